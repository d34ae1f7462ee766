"""Answers of `perflab.tasks.compare`, cut to what one table or figure of a notebook shows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab.analysis.compare.metric_findings import metric_word
from perflab.analysis.compare.metrics import MetricRow, comparison_table
from perflab.analysis.latency import latency_values
from perflab.plots import style
from perflab.tasks.compare import CompareReport

Pieces = list[dict[str, Any]]

_FIRST = ("tpot_p50_ms", "ttft_p50_ms", "ttft_p99_ms", "output_tokens_per_s", "goodput_per_s")
"""Metrics shown at every point."""
_MULTIPLES = ("total_tokens_per_s", "requests_per_s")
"""With fixed lengths multiples of `output_tokens_per_s`."""


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


def _told(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)


def metric_table(report: CompareReport, *, everything: bool = False) -> pd.DataFrame:
    """A row a metric and point: both sides, ratio, interval, runs and verdict; the one that decides first, with a star.

    At points that do not decide, the metrics a reader looks at first, unless `everything` is asked for.
    """
    rows = [row for row in report.metrics if everything or _is_shown(report, row)]
    table = comparison_table(rows)
    units_of = {row.metric.name: row.metric.unit for row in rows}
    names = [f"{metric_word(name)}{' (ms)' if units_of[name] == 'ms' else ''}" for name in table["metric"]]
    return pd.DataFrame({
        "metric": [f"{name} *" if first else name for name, first in zip(names, table["primary"], strict=True)],
        "at": table["point"],
        "baseline": table["baseline"],
        "candidate": table["candidate"],
        "ratio": table["ratio"].round(3),
        "95 % interval": [_interval(low, high) for low, high in zip(table["ci_low"], table["ci_high"], strict=True)],
        "runs": [f"{a}, {b}" for a, b in zip(table["n_baseline"], table["n_candidate"], strict=True)],
        "verdict": table["verdict"],
    })  # fmt: skip


def metric_pieces(report: CompareReport) -> Pieces:
    """For `plot_metric_ratios`: the point that decides with all its metrics, then all points with the first ones."""
    if not report.metrics:
        return []
    names = f"{report.candidate.name} against {report.baseline.name}"
    where = report.metrics[0].point
    here = [row for row in report.metrics if row.point == where and row.metric.name not in _MULTIPLES]
    found: Pieces = [{"table": comparison_table(here), "of": names}]
    if len({row.point for row in report.metrics}) > 1:
        first = [row for row in report.metrics if row.metric.name in _FIRST]
        order = list(dict.fromkeys(row.point for row in report.metrics))
        first.sort(key=lambda row: (order.index(row.point), _FIRST.index(row.metric.name)))
        found.append({"table": comparison_table(first), "of": names})
    return found


def ecdf_pieces(report: CompareReport) -> Pieces:
    """For `plot_latency_distributions`: requests of both sides at each point, all runs of a side together.

    They describe what requests saw; no verdict comes from them, since requests of one server are no independent
    evidence.
    """
    parts = []
    for side, measured in ((report.baseline, report.measured.baseline), (report.candidate, report.measured.candidate)):
        for one, point in zip(measured.measured, measured.points, strict=True):
            if point.requests is not None:
                values = latency_values(point.requests, point.chunks)
                parts.append(values.assign(series=side.name, point=one.point))
    if not parts:
        return []
    values = pd.concat(parts, ignore_index=True)
    shared = values.groupby("point")["series"].nunique()
    names = [report.baseline.name, report.candidate.name]
    colours = dict(zip(names, style.series(2), strict=True))
    order = [row.point for row in report.metrics]
    return [
        {"values": values[values["point"] == point], "of": point, "colours": colours}
        for point in dict.fromkeys(order)
        if shared.get(point, 0) > 1
    ]


def _is_shown(report: CompareReport, row: MetricRow) -> bool:
    here = row.point == report.metrics[0].point and row.metric.name not in _MULTIPLES
    return row.primary or here or row.metric.name in _FIRST


def _interval(low: float, high: float) -> str | None:
    return None if pd.isna(low) or pd.isna(high) else f"{low:.3f} to {high:.3f}"
