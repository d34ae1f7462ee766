"""Sides of a comparison by hand."""

from typing import Any

import pandas as pd
from analysis_tables import kernels, launches, steps

from perflab.analysis.breakdown import breakdown
from perflab.analysis.compare.traces import BATCH, RankTrace
from perflab.analysis.idle import idle_gaps
from perflab.schema import empty


def batches(table: pd.DataFrame, *counts: tuple[int, int, int, int]) -> pd.DataFrame:
    """Steps with their requests and tokens in prefill and decode."""
    columns = {name: pd.array([row[i] for row in counts], dtype="Int64") for i, name in enumerate(BATCH)}
    return table.assign(**columns)


def side(work: pd.DataFrame, of: pd.DataFrame) -> list[RankTrace]:
    return [
        RankTrace(
            int(rank), "gpu", breakdown(mine, of[of["rank"] == rank]), mine, of[of["rank"] == rank],
            idle_gaps(mine, of[of["rank"] == rank], launches()), empty("ranges"),
        )
        for rank, mine in work.groupby("rank")
    ]  # fmt: skip


DECODE = (0, 0, 8, 8)


def simple(
    *rows: tuple[str, str, int, int], length: int = 100, counts: Any = (DECODE,), phase: str = "decode"
) -> list[RankTrace]:
    """Rows are (name, category, start, duration); steps of `length` one after another."""
    work = kernels(*[{"name": n, "category": c, "start": s, "dur": d} for n, c, s, d in rows])
    of = steps(*[(phase, length * i, length) for i in range(len(counts))])
    return side(work, batches(of, *counts))
