"""Ranks out of small tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.breakdown import breakdown, summary
from perflab.schema import empty
from perflab.tasks.breakdown import RankBreakdown


def rank_of(
    kernels: pd.DataFrame, steps: pd.DataFrame, launches: pd.DataFrame | None = None, rank: int = 0
) -> RankBreakdown:  # fmt: skip
    """A rank as `perflab.tasks.breakdown` makes it, without a trace."""
    table = breakdown(kernels, steps)
    found: list[dict[str, Any]] = summary(table)
    nothing = {"rank": rank, "kind": "gpu", "window_ns": 0, "busy_ns": 0, "idle_ns": 0, "categories": {}, "phases": {}}
    return RankBreakdown(
        source=Path("made"), run="made", rank=rank, device="NVIDIA H200", kind="gpu",
        record=found[0] if found else nothing, table=table, kernels=kernels,
        launches=empty("launches") if launches is None else launches, ranges=empty("ranges"), steps=steps,
        gaps=pd.DataFrame(), idle={},
    )  # fmt: skip
