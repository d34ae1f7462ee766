"""Rooflines as one table, for figures and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from perflab.analysis.roofline.bound import KernelRoof
from perflab.analysis.roofline.phases import PhaseRoofline, RankRoofline

COLUMNS = (
    "run", "rank", "phase", "part", "steps", "tokens", "time_ns", "flops", "bytes", "limit_ns", "intensity",
    "flops_share", "bytes_share", "side", "bound", "gpu", "dtype", "peak_flops", "peak_bytes", "withheld",
)  # fmt: skip


def roofline_table(rooflines: Iterable[tuple[str, RankRoofline]]) -> pd.DataFrame:
    """What each phase, and each category of kernels in it, did of what the GPU can do.

    Parameters
    ----------
    rooflines
        Each with the title of its run. Those without phases leave no rows.

    Returns
    -------
    DataFrame
        A row a run, rank, phase and part: `part` is `step` (the whole step; its time is the step's) or a category
        (its own time). `time_ns`, `flops`, `bytes`, `limit_ns` are a step's mean; `intensity` in operations a byte;
        `peak_flops` and `peak_bytes` a second. Unknown work is NA. `bound` is the phase's verdict, None where open;
        `withheld` whether the step's work lacks a part.
    """
    rows: list[dict[str, Any]] = []
    for run, found in rooflines:
        if found.peaks is None or found.gpu is None:
            continue
        peaks = {
            "gpu": found.gpu.name, "dtype": found.peaks.dtype,
            "peak_flops": found.peaks.linear, "peak_bytes": found.peaks.memory,
        }  # fmt: skip
        for phase in found.phases.values():
            common = {
                "run": run, "rank": found.rank, "phase": phase.phase, "steps": phase.steps, "tokens": phase.tokens,
                "bound": phase.verdict.bound, "withheld": _lacks_a_part(phase), **peaks,
            }  # fmt: skip
            rows.append(common | _step(phase))
            for kernel in phase.kernels.values():
                own = peaks | ({"peak_flops": found.peaks.sixteen} if kernel.category == "attention" else {})
                rows.append(common | own | _kernel(kernel))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(
        dict.fromkeys(("flops", "bytes", "limit_ns", "intensity", "flops_share", "bytes_share"), "float64")
    )


def _lacks_a_part(phase: PhaseRoofline) -> bool:
    return any(kernel.flops is None for kernel in phase.kernels.values())


def _step(phase: PhaseRoofline) -> dict[str, Any]:
    return {
        "part": "step", "time_ns": phase.step_ns, "flops": phase.flops, "bytes": phase.bytes,
        "limit_ns": phase.limit_ns, "intensity": phase.intensity, "flops_share": phase.flops_share,
        "bytes_share": phase.bytes_share, "side": None,
    }  # fmt: skip


def _kernel(kernel: KernelRoof) -> dict[str, Any]:
    known = kernel.flops is not None and kernel.bytes is not None
    return {
        "part": kernel.category, "time_ns": kernel.time_ns, "flops": kernel.flops, "bytes": kernel.bytes,
        "limit_ns": kernel.limit_ns, "side": kernel.side, "flops_share": kernel.flops_share,
        "bytes_share": kernel.bytes_share,
        "intensity": kernel.flops / kernel.bytes if known and kernel.flops and kernel.bytes else None,
    }  # fmt: skip
