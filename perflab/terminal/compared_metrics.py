"""What requests saw on two sides, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence

from perflab.analysis.compare.metric_findings import metric_word
from perflab.analysis.compare.metrics import MetricRow
from perflab.tasks.compare import CompareReport
from perflab.terminal.text import check_line, table, wrapped

_ELSEWHERE = ("tpot_p50_ms", "ttft_p50_ms", "ttft_p99_ms", "output_tokens_per_s", "goodput_per_s")
"""Metrics shown of points that do not decide; others only where they have a verdict."""
_MARK = {"better": "better", "worse": "WORSE", "same": "same", "undecided": "undecided", "withheld": "withheld"}


def compared_metrics(report: CompareReport) -> str:
    """A table of metrics with ratio, interval and verdict, and why some have none; empty where nothing was measured."""
    if not report.metrics:
        return ""
    where = report.metrics[0].point
    shown = [row for row in report.metrics if _is_shown(row, where)]
    rows = [_cells(row) for row in shown]
    head = ["", "at", "baseline", "candidate", "ratio", "95 % interval", "runs", "verdict"]
    left = len(report.metrics) - len(shown)
    parts = ["What requests saw (geometric means over runs of servers)", table(head, rows, left=2)]
    parts += [f"  {left} more metrics are in --json"] if left else []
    parts += [wrapped(f"* {report.measured.why}", "  ", "    ")] if report.measured.why else []
    parts += _reasons(shown)
    return "\n".join(parts)


def measured_trust(report: CompareReport) -> list[str]:
    """Lines of the checks of the runs."""
    return [check_line(one.status, one.detail) for one in report.measured.checks if one.status != "not_applicable"]


def _is_shown(row: MetricRow, where: str) -> bool:
    return row.primary or row.point == where or row.metric.name in _ELSEWHERE or row.verdict in ("better", "worse")


def _cells(row: MetricRow) -> list[str]:
    found = row.found
    name = f"{metric_word(row.metric.name)}{' (ms)' if row.metric.unit == 'ms' else ''}"
    name = f"* {name}" if row.primary else f"  {name}"
    if found is None:
        return [name, row.point, "-", "-", "-", "-", "-", _MARK[row.verdict]]
    interval = "-" if found.low is None or found.high is None else f"{found.low:.3f} to {found.high:.3f}"
    runs = (
        str(found.n_baseline) if found.n_baseline == found.n_candidate else f"{found.n_baseline}, {found.n_candidate}"
    )
    values = [f"{value:,.2f}" for value in (found.baseline, found.candidate)]
    return [name, row.point, *values, f"{found.ratio:.3f}", interval, runs, _MARK[row.verdict]]


def _reasons(rows: Sequence[MetricRow]) -> list[str]:
    """Why some verdicts are no answer, each reason once with the metrics it holds for."""
    by_reason: dict[str, list[MetricRow]] = {}
    for row in rows:
        if row.reason:
            by_reason.setdefault(row.reason, []).append(row)
    lines = []
    for reason, mine in by_reason.items():
        first = f"{metric_word(mine[0].metric.name)} at {mine[0].point}"
        more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
        lines.append(wrapped(f"{mine[0].verdict}: {first}{more}: {reason}", "  ", "    "))
    return lines[:6] + ([f"  {len(lines) - 6} more reasons are in --json"] if len(lines) > 6 else [])
