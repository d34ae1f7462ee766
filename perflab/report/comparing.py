"""Answers of `perflab.tasks.compare`, cut to what one table or figure of a notebook shows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab.analysis.compare_findings import category_word
from perflab.analysis.kernel_names import short_kernel_names
from perflab.tasks.compare import CompareReport

Pieces = list[dict[str, Any]]


def change_pieces(report: CompareReport) -> Pieces:
    """For `plot_step_changes`: all phases; none where there is nothing to compare."""
    if not report.phases:
        return []
    names = {"baseline": report.baseline.name, "candidate": report.candidate.name}
    return [{"comparisons": report.phases, **names}]


def kernel_change_pieces(report: CompareReport, phase: str | None = None) -> Pieces:
    """For `plot_kernel_changes`: every phase, or one."""
    return [{"comparison": one} for one in report.phases if phase in (None, one.phase)]


def difference_table(report: CompareReport) -> pd.DataFrame:
    """A row a fact that differs: what was varied first, then what was not expected, then what follows."""
    rows = [
        (one.key, _told(one.baseline), _told(one.candidate), "yes" if one.expected else "no", one.follows)
        for one in sorted(report.differences.found, key=lambda d: (d.follows is not None, not d.expected))
    ]
    return pd.DataFrame(rows, columns=["setting", "baseline", "candidate", "expected", "follows from"])


def change_table(report: CompareReport) -> pd.DataFrame:
    """A row a phase and category: nanoseconds a step on both sides, and the change. Steps of like batches."""
    rows = [
        {
            "phase": one.phase, "category": category_word(str(row["category"])), "baseline_ns": row["baseline_ns"],
            "candidate_ns": row["candidate_ns"], "change_ns": row["change_ns"],
        }
        for one in report.phases
        for row in one.shown.categories.to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["phase", "category", "baseline_ns", "candidate_ns", "change_ns"])


def kernel_change_table(report: CompareReport, phase: str, limit: int = 12) -> pd.DataFrame:
    """The kernels whose time a step of a phase changed most, with calls a step."""
    found = next((one.shown.kernels for one in report.phases if one.phase == phase), None)
    columns = [
        "change",
        "category",
        "kernel",
        "baseline_calls",
        "candidate_calls",
        "baseline_ns",
        "candidate_ns",
        "change_ns",
    ]
    if found is None:
        return pd.DataFrame(columns=columns)
    shown = found[found["change"] != "same"].head(limit)
    names = shown["candidate_name"].where(shown["candidate_name"].notna(), shown["baseline_name"]).astype(str)
    short = short_kernel_names(names)
    table: pd.DataFrame = shown.assign(
        kernel=names.map(short), category=[category_word(str(name)) for name in shown["category"]]
    )
    return table[columns].reset_index(drop=True)


def _told(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)
