"""What `perflab compare` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perflab import units
from perflab.analysis.compare.findings import category_word
from perflab.analysis.compare.traces import ROWS, PhaseComparison, StepTime
from perflab.analysis.kernel_names import short_kernel_names
from perflab.tasks.compare import CompareReport, CompareSide
from perflab.terminal.compared_metrics import compared_metrics, measured_trust
from perflab.terminal.text import check_line, findings, table, wrapped

_ORDER = ("decode", "mixed", "prefill")
_KERNELS = 8
_LEAST = 0.005
_VALUE = 44


def compare(report: CompareReport) -> str:
    """What can be trusted, what differs, time per step by category, the kernels that changed, findings."""
    phases = sorted(report.phases, key=lambda one: _ORDER.index(one.phase))
    blocks = [_sides(report.sides), _trust(report), _differences(report), compared_metrics(report)]
    if phases:
        blocks += [_times(phases, _on_cpu(report)), *(_kernels(one) for one in phases)]
    elif shares := report.window_shares():
        rows = [
            [category_word(name), units.show_share(before), units.show_share(after), f"{100 * (after - before):+.1f}"]
            for name, (before, after) in shares.items()
        ]
        head = ["share of the whole window", "baseline", "candidate", "points"]
        blocks.append("Steps are not known, so neither is time per step\n" + table(head, rows))
    if report.missing:
        blocks.append("Not compared\n" + "\n".join(f"  {text}" for text in report.missing))
    told = [*report.metric_findings, *report.findings]
    blocks += [findings(told)] if phases or told else []
    return "\n\n".join(block for block in blocks if block)


def _sides(sides: Sequence[CompareSide]) -> str:
    words = ("baseline ", "candidate")
    return "\n".join(
        f"{word}  {side.name}" + (f": {side.title}" if side.title != side.name else "")
        for word, side in zip(words, sides, strict=True)
    )


def _trust(report: CompareReport) -> str:
    """The comparison's own checks in full; of the traces' only what can be doubted, and how many passed."""
    lines = [check_line(check.status, check.detail) for check in report.checks if check.status != "not_applicable"]
    for side in report.sides:
        checks = side.passed.checks if side.passed else []
        passed = sum(check.status == "pass" for check in checks)
        doubts = [check for check in checks if check.status in ("warn", "fail")]
        lines += (
            [check_line("pass", f"{side.name}: {passed} checks of its traces passed.")] if passed and not doubts else []
        )
        lines += [check_line(check.status, f"{side.name}: {check.detail}") for check in doubts]
    lines += measured_trust(report)
    return "\n".join(["Can they be compared?", *lines]) if lines else ""


def _differences(report: CompareReport) -> str:
    found = report.differences
    if not found.found:
        return "What differs: nothing that both tell" if report.differences.untold else ""
    rows = [
        [one.key, _value(one.baseline), _value(one.candidate), "" if one.expected else "not expected"]
        for one in found.own
    ]
    behind = [one.key for one in found.found if one.follows is not None]
    text = "What differs\n" + table(["", "baseline", "candidate", ""], rows, left=4) if rows else "What differs"
    if behind:
        shown = ", ".join(behind[:4]) + (f" and {len(behind) - 4} more" if len(behind) > 4 else "")
        text += "\n" + wrapped(f"and what follows from it: {shown}", "  ")
    if found.untold:
        text += f"\n  {len(found.untold)} facts are told by one of the two only (--json lists them)"
    return text


def _on_cpu(report: CompareReport) -> bool:
    passed = report.baseline.passed
    return passed is not None and any(rank.kind == "cpu" for rank in passed.ranks)


def _times(phases: Sequence[PhaseComparison], on_cpu: bool) -> str:
    there = [name for name in ROWS if any((one.shown.categories["category"] == name).any() for one in phases)]
    head = ["ms a step"]
    for one in phases:
        head += [one.phase, "then", "change"]
    rows = [["step", *(cell for one in phases for cell in _cells(one.shown.baseline.ns, one.shown.candidate.ns))]]
    rows[0] = _with_percent(rows[0], phases)
    if any(time.late_ns or time.wait_ns for one in phases for time in (one.shown.baseline, one.shown.candidate)):
        rows.append(_gpu_row(phases))
    for name in there:
        cells: list[str] = []
        for one in phases:
            row = one.shown.categories[one.shown.categories["category"] == name]
            cells += _cells(int(row["baseline_ns"].sum()), int(row["candidate_ns"].sum()))
        word = "outside operators (Python, waiting)" if on_cpu and name == "idle" else category_word(name)
        rows.append([f"  {word}", *cells])
        rows += _cause_rows(phases) if name == "idle" else []
    rows += [["steps compared", *(cell for one in phases for cell in _steps(one))]]
    if any(time.median_ns for one in phases for time in (one.shown.baseline, one.shown.candidate)):
        rows += [["median step", *(cell for one in phases for cell in _medians(one))]]
    if any(
        time.rank_low_ns != time.rank_high_ns for one in phases for time in (one.shown.baseline, one.shown.candidate)
    ):
        rows += [["ranks, least", *(c for one in phases for c in _ranks(one, "rank_low_ns"))]]
        rows += [["ranks, most", *(c for one in phases for c in _ranks(one, "rank_high_ns"))]]
    return "Where the time of a step changed (mean over steps and ranks, every instant counted once)\n" + table(
        head, rows
    )


def _gpu_row(phases: Sequence[PhaseComparison]) -> list[str]:
    """The step without what the profiler makes longer."""
    row = ["step without late launches, waiting"]
    for one in phases:
        cells = _cells(one.shown.baseline.gpu_ns, one.shown.candidate.gpu_ns)
        row += [*cells[:2], f"{cells[2]} ({one.shown.gpu_change:+.1%})"]
    return row


def _with_percent(row: list[str], phases: Sequence[PhaseComparison]) -> list[str]:
    for number, one in enumerate(phases):
        row[3 + 3 * number] += f" ({one.shown.change:+.1%})"
    return row


def _cause_rows(phases: Sequence[PhaseComparison]) -> list[list[str]]:
    rows = []
    words = {"host_bound": "launched late", "not_started": "not started", "in_graph": "inside a graph replay"}
    for cause in ("host_bound", "not_started", "in_graph", "no_request", "unknown"):
        cells: list[str] = []
        largest = 0
        for one in phases:
            row = one.shown.causes[one.shown.causes["cause"] == cause]
            pair = (int(row["baseline_ns"].sum()), int(row["candidate_ns"].sum()))
            largest = max(largest, *pair)
            cells += _cells(*pair)
        rows += [[f"    {words.get(cause, cause.replace('_', ' '))}", *cells]] if largest else []
    return rows


def _cells(before: int, after: int) -> list[str]:
    if not before and not after:
        return ["-", "-", ""]
    change = units.ms(after - before)
    return [f"{units.ms(before):,.3f}", f"{units.ms(after):,.3f}", f"{change:+,.3f}" if abs(change) >= 0.0005 else "0"]


def _steps(one: PhaseComparison) -> list[str]:
    def told(time: StepTime, every: StepTime) -> str:
        return f"{time.steps:g}" if time.steps == every.steps else f"{time.steps:g} of {every.steps:g}"

    shown, every = one.shown, one.every
    word = "unlike batches" if one.alike == "none" else ""
    return [told(shown.baseline, every.baseline), told(shown.candidate, every.candidate), word]


def _medians(one: PhaseComparison) -> list[str]:
    before, after = one.shown.baseline.median_ns, one.shown.candidate.median_ns
    if before is None or after is None:
        return ["-", "-", ""]
    return [*_cells(round(before), round(after))[:2], f"({after / before - 1:+.1%})"]


def _ranks(one: PhaseComparison, which: str) -> list[str]:
    return [f"{units.ms(getattr(time, which)):,.3f}" for time in (one.shown.baseline, one.shown.candidate)] + [""]


def _kernels(one: PhaseComparison) -> str:
    view = one.shown
    # Of the shorter side's work: a step that mostly waits would hide every kernel.
    least = _LEAST * min(view.baseline.gpu_ns, view.candidate.gpu_ns)
    large = view.kernels[(view.kernels["change_ns"].abs() > least) & (view.kernels["change"] != "same")]
    if large.empty:
        return f"Kernels that changed in {one.phase} steps: none by more than 0.5 % of its work"
    shown = large.head(_KERNELS)
    names = [_name(row) for row in shown.to_dict("records")]
    short = short_kernel_names(names, limit=46)
    rows = [
        [
            row["change"],
            category_word(row["category"]),
            short[name],
            _calls(row),
            *_cells(round(row["baseline_ns"]), round(row["candidate_ns"])),
        ]
        for name, row in zip(names, shown.to_dict("records"), strict=True)
    ]
    more = len(large) - len(shown)
    rest = f"\n  and {more} more (--json lists them)" if more > 0 else ""
    head = ["", "", "kernel", "calls", "ms a step", "then", "change"]
    return f"Kernels that changed in {one.phase} steps\n" + table(head, rows, left=3) + rest


def _name(row: dict[str, Any]) -> str:
    return str(row["candidate_name"] if isinstance(row["candidate_name"], str) else row["baseline_name"])


def _calls(row: dict[str, Any]) -> str:
    before, after = f"{row['baseline_calls']:.3g}", f"{row['candidate_calls']:.3g}"
    return before if before == after else f"{before} → {after}"


def _value(value: Any) -> str:
    text = "none" if value is None or value == "" else str(value)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"
