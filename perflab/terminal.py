"""What the command line prints: plain text from the tasks' results."""

from __future__ import annotations

import math
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from perflab import units
from perflab.analysis.checks import Check
from perflab.analysis.finding import Finding
from perflab.experiment import Plan
from perflab.runs import Run
from perflab.schema import CATEGORIES, GROUPS, PHASES
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown
from perflab.tasks.capture_records import Progress
from perflab.tasks.doctor import DoctorReport, Item
from perflab.tasks.history import FEWEST, Difference, HistoryReport, Series
from perflab.tasks.latency import LatencyReport, OfflinePoint
from perflab.tasks.provenance import provenance

_SHOWN_DIFFERENCES = 6
_ITEM_MARKS = {"ok": "ok  ", "info": "-   ", "warn": "WARN", "missing": "NO  "}
_MARKS = {"pass": "ok  ", "warn": "WARN", "fail": "FAIL", "not_applicable": "-   "}


def breakdown(report: BreakdownReport) -> str:
    """The trust report, a table per rank, and the findings."""
    sources = dict.fromkeys(check.source for check in report.trust)
    blocks = [
        _checks(f"Can it be trusted? {source}", [c for c in report.trust if c.source == source]) for source in sources
    ]
    blocks += [_rank(rank) for rank in report.ranks]
    return "\n\n".join([*blocks, _findings(report.findings)]).rstrip()


def latency(report: LatencyReport) -> str:
    """A row per measured point, then what can be doubted about them."""
    table = report.points
    rows = [
        [
            row["run"],
            row["point"],
            _count(row["completed"]),
            *(_ms(row[name]) for name in ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "itl_p99_ms", "e2el_p50_ms")),
            _number(row["output_tokens_per_s"], 1),
            _number(row["requests_per_s"], 2),
        ]
        for row in table.to_dict("records")
    ]
    head = ["run", "point", "n", "TTFT p50", "TTFT p99", "TPOT p50", "ITL p99", "E2EL p50", "output tok/s", "req/s"]
    doubts = [
        f"  {_MARKS[check.status]}  {measured.run}, {measured.point.id}: {check.detail}"
        for measured in report.runs
        for check in measured.validity
        if check.status in ("warn", "fail")
    ]
    blocks = ["Latencies in milliseconds; - is not measured.\n" + _table(head, rows, left=2)] if rows else []
    if report.offline:
        blocks.append(_offline(report.offline))
    if doubts:
        blocks.append("What can be doubted\n" + "\n".join(doubts))
    if report.skipped:
        blocks.append("Not measured\n" + "\n".join(f"  {text}" for text in report.skipped))
    return "\n\n".join(blocks)


def _offline(points: Sequence[OfflinePoint]) -> str:
    """Figures of `vllm bench latency` and `throughput` as vLLM reported them."""
    shown = {
        "batch mean (ms)": ("avg_latency", 1000.0, 1),
        "p50 (ms)": ("p50_latency", 1000.0, 1),
        "p99 (ms)": ("p99_latency", 1000.0, 1),
        "req/s": ("request_throughput", 1.0, 2),
        "total tok/s": ("total_token_throughput", 1.0, 1),
    }
    rows = [
        [point.run, point.point.id, f"vllm bench {point.result.kind}"]
        + [_number(_scaled(point.metrics.get(name), scale), digits) for name, scale, digits in shown.values()]
        for point in points
    ]
    return "Without a server: an engine of its own\n" + _table(["run", "point", "by", *shown], rows, left=3)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def plan(steps: Plan) -> str:
    """The commands in the order they run, the number of points, and about how long it all takes."""
    lines = [
        f"{len(steps.points)} points, {len(steps.profiles)} profiling passes, {steps.servers_in_all} server starts,"
        f" about {steps.estimated_minutes:.0f} minutes (without preparing the model)"
    ]
    lines += [f"\n{len(steps.offline)} points without a server"] if steps.offline else []
    lines += [_command(point.id, point.argv, point.estimate_s) for point in steps.offline]
    for number in range(steps.servers):
        lines += [f"\nserver {number + 1}", f"  {shlex.join(steps.serve_argv) or 'runs already'}"]
        lines += [_command(point.id, point.argv, point.estimate_s) for point in steps.of_server(number)]
    lines += ["\nprofiling, after measuring"] if steps.profiles else []
    lines += [_command(one.spec.id, one.argv, one.estimate_s) for one in steps.profiles]
    return "\n".join(lines)


def _command(name: str, argv: Sequence[str], estimate_s: float) -> str:
    return f"  {name} (about {_minutes(estimate_s)})\n    {shlex.join(argv)}"


def run_outcome(run: Run) -> str:
    """Where the run is, what came of it, and what to do next."""
    facts = provenance([run])[0]
    ended = f"{run.path}: {facts.status}" + (f", {facts.reason}" if facts.reason else "")
    passes = [one.status in ("complete", "partial") for one in run.manifest.profiles]
    done = f"{facts.points - facts.failed_points} of {facts.points} points, {sum(passes)} of {len(passes)} passes"
    notes = [f"  note: {note}" for note in facts.notes]
    return "\n".join([f"{ended} ({done})", *notes, f"next: perflab report {run.path} -o report.html"])


def doctor(report: DoctorReport) -> str:
    """What is possible here, then everything looked at, with the command that brings what is missing."""
    can = [f"  {'yes' if there else 'no ':3}  {ability}" for ability, there in report.can.items()]
    blocks = ["Possible on this machine", *can, ""]
    for item in report.items:
        blocks += _item(item)
    return "\n".join(blocks)


def _item(item: Item) -> list[str]:
    lines = [f"{_ITEM_MARKS[item.status]}  {item.check.replace('_', ' ')}: {item.detail}"]
    lines += [f"      {item.without}"] if item.without else []
    return lines + [f"      {tool:6}  {command}" for tool, command in item.commands.items()]


def history(report: HistoryReport) -> str:
    """A row per figure, then each change with what else changed there."""
    head = ["model", "measured", "metric", "runs", "first", "last", "level", "what happened"]
    machines = {series.key["hardware"] for series in report.series}
    rows = [_series_row(series, len(machines) > 1) for series in report.series]
    blocks = [f"{report.runs} runs below {report.folder}\n" + _table(head, rows, left=3)]
    changes = [line for series in report.series for line in _changes(series)]
    blocks += ["Changes\n" + "\n".join(changes)] if changes else []
    if any(series.found.too_few for series in report.series):
        blocks.append(f"Fewer than {FEWEST} runs are too few to tell a change from chance.")
    if report.skipped:
        blocks.append("Not in it\n" + "\n".join(f"  {text}" for text in report.skipped))
    return "\n\n".join(blocks)


def _series_row(series: Series, tell_machine: bool) -> list[str]:
    values = series.rows["value"].tolist()
    level = statistics.median(values[series.found.bounds[-2] :])
    changes, trend = len(series.found.changes), series.found.trend
    happened = [f"{changes} change{'s' if changes > 1 else ''}"] if changes else []
    happened += [f"drifts by {trend.slope:+.2%} a run"] if trend is not None else []
    said = ", ".join(happened) or ("too few runs" if series.found.too_few else "no change")
    model = f"{series.key['model'] or '-'}" + (f" on {series.key['hardware'] or '?'}" if tell_machine else "")
    what = [model, series.name, series.metric, str(len(values))]
    return [*what, *(f"{value:.5g}" for value in (values[0], values[-1], level)), said]


def _changes(series: Series) -> list[str]:
    lines = []
    for change, found in zip(series.found.changes, series.differences, strict=True):
        last, first = series.rows["run"].iloc[change.at - 1], series.rows["run"].iloc[change.at]
        by = "" if change.ratio is None else f", {change.ratio - 1:+.1%}"
        lines.append(
            f"  {series.verdict(change)}: {series.metric} of {series.name} went from {change.before:.5g} to"
            f" {change.after:.5g}{by} (p = {change.p:.2g})"
        )
        lines.append(f"      after {last}, from {first} on ({series.rows['created'].iloc[change.at][:10]})")
        lines += [f"      {_difference(one)}" for one in found[:_SHOWN_DIFFERENCES]]
        more = len(found) - _SHOWN_DIFFERENCES
        lines += [f"      and {more} more differences (--json lists them)"] if more > 0 else []
        lines += [] if found else ["      nothing that the runs record differs there"]
    return lines


def _difference(one: Difference) -> str:
    before, after = ("not told" if value is None else str(value)[:60] for value in (one.before, one.after))
    doubt = "" if one.steady else " (differs in other runs too)"
    runs = f"{abs(one.offset)} run{'s' if abs(one.offset) > 1 else ''}"
    doubt += f" ({runs} {'later' if one.offset > 0 else 'earlier'})" if one.offset else ""
    return f"{one.key}: {before} -> {after}{doubt}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned, the first `left` of them to the left."""
    return _table(head, rows, left)


class ProgressPrinter:
    """Prints the progress events of a run: one line that renews itself on a terminal, lines elsewhere."""

    def __init__(self, stream: TextIO = sys.stderr, every_s: float = 5.0) -> None:
        self.stream = stream
        self.every_s = every_s
        self.renews = stream.isatty()
        self._last: tuple[str, int, str] | None = None
        self._printed = -math.inf

    def __call__(self, event: Progress) -> None:
        """Show one event; elsewhere than on a terminal a line per stage and job, and one every few seconds."""
        left = "" if event.remaining_s is None else f", about {_minutes(event.remaining_s)} left"
        text = f"[{_minutes(event.elapsed_s)}{left}] {event.message}"
        job = (event.stage, event.done, event.message.partition(":")[0])
        if self.renews:
            self.stream.write(f"\r\033[K{text}")
        elif job != self._last or time.monotonic() - self._printed >= self.every_s:
            self.stream.write(text + "\n")
            self._printed = time.monotonic()
        self._last = job
        self.stream.flush()

    def close(self) -> None:
        """End the line that renews itself."""
        if self.renews and self._last:
            self.stream.write("\n")
            self.stream.flush()


def _rank(rank: RankBreakdown) -> str:
    place = "idle" if rank.kind == "gpu" else "outside operators (Python, waiting)"
    phases = {"all steps": rank.record} | {
        phase: rank.record["phases"][phase] for phase in PHASES if rank.record["phases"].get(phase, {}).get("steps")
    }
    head = ["share of time", *phases]
    rows = [
        [name, *(_share(sum(_of(record, c) for c in members), record) for record in phases.values())]
        for name, members in GROUPS.items()
    ]
    rows.append([place, *(_share(record["idle_ns"], record) for record in phases.values())])
    rows.append(["", *("" for _ in phases)])
    rows += [
        [f"  {category}", *(_share(_of(record, category), record) for record in phases.values())]
        for category in CATEGORIES
        if any(_of(record, category) for record in phases.values())
    ]
    rows.append(["", *("" for _ in phases)])
    rows.append(
        [
            "steps",
            str(len(rank.steps)),
            *(str(record["steps"]) for name, record in phases.items() if name != "all steps"),
        ]
    )
    rows.append(["time per step", *(_per_step(record, rank) for record in phases.values())])
    what = (
        "GPU time" if rank.kind == "gpu" else "CPU operators of the engine's worker thread; nothing here is about a GPU"
    )
    return (
        f"{rank.run}, rank {rank.rank} on {rank.device}: {what}, window {units.show_time(rank.window_ns)}\n"
        + _table(head, rows)
    )


def _of(record: dict[str, Any], category: str) -> int:
    return int(record["categories"].get(category, {}).get("exclusive_ns", 0))


def _share(ns: int, record: dict[str, Any]) -> str:
    return units.show_share(ns / record["window_ns"]) if record["window_ns"] else "-"


def _per_step(record: dict[str, Any], rank: RankBreakdown) -> str:
    steps = record.get("steps", len(rank.steps))
    return units.show_time(record["window_ns"] / steps) if steps else "-"


def _checks(title: str, checks: Sequence[Check]) -> str:
    shown = [f"  {_MARKS[check.status]}  {check.detail}" for check in checks if check.status != "not_applicable"]
    return "\n".join([title, *(shown or ["  nothing to check"])])


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Findings: none"
    lines = ["Findings"]
    for finding in findings:
        lines.append(f"  {finding.severity}: {finding.title}")
        lines += [f"      {text}" for text in finding.evidence]
        lines += [f"      change: {finding.change}", f"      check:  {finding.check}"]
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    widths = [max(len(str(line[i])) for line in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return ("  " + "  ".join(padded)).rstrip()

    return "\n".join([line(head), "  " + "  ".join("-" * w for w in widths), *(line(row) for row in rows)])


def _number(value: Any, digits: int) -> str:
    return "-" if value is None or (isinstance(value, float) and math.isnan(value)) else f"{value:,.{digits}f}"


def _ms(value: Any) -> str:
    return _number(value, 2)


def _count(value: Any) -> str:
    return _number(value, 0)


def _minutes(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
