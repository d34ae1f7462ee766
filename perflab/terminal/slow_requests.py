"""What `perflab latency --explain` prints after the latencies: slow requests against typical ones, by cause."""

from __future__ import annotations

from perflab import units
from perflab.analysis.requests.slow_tail import Tail
from perflab.messages import say
from perflab.tasks.slow_requests import SlowReport
from perflab.terminal.text import findings, table, wrapped


def slow_requests(report: SlowReport) -> str:
    """A row a point and metric: slow, typical, cause; then where the excess is; then findings and what is missing."""
    rows = [
        [
            point.measured.run, point.name, say(f"slow.metric.{tail.metric}"), f"{len(tail.slow):,}",
            units.show_time(tail.slow_ns), units.show_time(tail.typical_ns), _cause(tail), _excess(tail),
        ]
        for point in report.points
        for tail in point.tails.values()
    ]  # fmt: skip
    head = ["run", "point", "metric", "slow", "their mean", "typical", "cause", "of the difference"]
    title = say("slow.terminal.title", percentile=f"{report.percentile:g}")
    blocks = [wrapped(title, "") + "\n" + table(head, rows, left=3)] if rows else []
    if report.findings:
        blocks.append(findings(report.findings))
    missing: dict[str, list[str]] = {}
    for point in report.points:
        if point.missing is not None:
            missing.setdefault(point.missing, []).append(point.name)
    if missing:
        lines = [wrapped(f"{', '.join(names)}: {why}", "  ", "    ") for why, names in missing.items()]
        blocks.append("\n".join([say("slow.terminal.missing"), *lines]))
    return "\n\n".join(blocks)


def _cause(tail: Tail) -> str:
    return "-" if tail.cause is None else say(f"slow.cause.{tail.cause}")


def _excess(tail: Tail) -> str:
    if tail.cause_share is None:
        return "-"
    return units.show_share(min(tail.cause_share, 1.0))
