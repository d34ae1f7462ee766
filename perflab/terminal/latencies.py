"""What `perflab latency` prints."""

from __future__ import annotations

from collections.abc import Sequence

from perflab.tasks.latency import LatencyReport, OfflinePoint
from perflab.tasks.measured_facts import differing
from perflab.terminal.loads import loads
from perflab.terminal.text import MARKS, count, ms, number, table

_LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "itl_p99_ms", "e2el_p50_ms")
_STARRED = ", and * is not defined as in `vllm bench serve`, see below."


def latency(report: LatencyReport) -> str:
    """A row per measured point, then what can be doubted about them."""
    points = report.points
    differ = [differing(measured.result) for measured in report.runs]
    rows = [
        [
            row["run"],
            row["point"],
            count(row["completed"]),
            *(_marked(ms(row[name]), name, marks) for name in _LATENCIES),
            _marked(number(row["output_tokens_per_s"], 1), "output_tokens_per_s", marks),
            number(row["requests_per_s"], 2),
        ]
        for row, marks in zip(points.to_dict("records"), differ, strict=True)
    ]
    head = ["run", "point", "n", "TTFT p50", "TTFT p99", "TPOT p50", "ITL p99", "E2EL p50", "output tok/s", "req/s"]
    doubts = [
        f"  {MARKS[check.status]}  {measured.run}, {measured.point.id}: {check.detail}"
        for measured in report.runs
        for check in measured.validity
        if check.status in ("warn", "fail")
    ]
    title = "Latencies in milliseconds; - is not measured" + (_STARRED if any(differ) else ".")
    blocks = [f"{title}\n{table(head, rows, left=2)}"] if rows else []
    if report.offline:
        blocks.append(_offline(report.offline))
    if told := loads(report.load):
        blocks.append(told)
    if doubts:
        blocks.append("What can be doubted\n" + "\n".join(doubts))
    if report.skipped:
        blocks.append("Not measured\n" + "\n".join(f"  {text}" for text in report.skipped))
    return "\n\n".join(blocks)


def _marked(shown: str, column: str, marks: Sequence[str]) -> str:
    """A figure, starred where the client does not define it as vLLM does."""
    metric = column if column.endswith("_per_s") else column.split("_")[0] + "_ms"
    return f"{shown}*" if shown != "-" and {metric, "all"} & set(marks) else shown


def _offline(points: Sequence[OfflinePoint]) -> str:
    """Figures of `vllm bench latency`, `throughput`, `forward` and `startup` as vLLM reported them."""
    shown = {
        "batch mean (ms)": ("avg_latency", 1000.0, 1),
        "p50 (ms)": ("p50_latency", 1000.0, 1),
        "p99 (ms)": ("p99_latency", 1000.0, 1),
        "req/s": ("request_throughput", 1.0, 2),
        "total tok/s": ("total_token_throughput", 1.0, 1),
    }
    timed = [point for point in points if point.result.kind != "startup"]
    rows = [
        [point.run, point.point.id, f"vllm bench {point.result.kind}"]
        + [number(_scaled(point.metrics.get(name), scale), digits) for name, scale, digits in shown.values()]
        for point in timed
    ]
    blocks = (
        ["Without a server: an engine of its own\n" + table(["run", "point", "by", *shown], rows, left=3)]
        if rows
        else []
    )
    starts = [point for point in points if point.result.kind == "startup"]
    if starts:
        blocks.append(_starts(starts))
    return "\n\n".join(blocks)


def _starts(points: Sequence[OfflinePoint]) -> str:
    """Times of `vllm bench startup`, in seconds."""
    names = [f"{when} {what}" for when in ("cold", "warm") for what in ("startup", "compilation")]
    rows = [
        [
            point.run,
            point.point.id,
            *(number(point.metrics.get(f"avg_{name.replace(' ', '_')}_time"), 2) for name in names),
        ]
        for point in points
    ]
    return "Starts of an engine, means in seconds\n" + table(["run", "point", *names], rows, left=2)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
