"""A run in short, as panels: what it is, whether it can be trusted, the answer, what to try first."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from perflab.messages import say
from perflab.plots import breakdown as plots
from perflab.plots.latency import plot_throughput_latency
from perflab.report import blocks, gpu_views, points, sentences, views
from perflab.report.tables import table_html
from perflab.runs import Run
from perflab.start.parts import figure_html
from perflab.tasks.breakdown import BreakdownReport, breakdown
from perflab.tasks.latency import LatencyReport, latency
from perflab.tasks.memory import memory
from perflab.tasks.traces import has_measured_traces

MOST_FINDINGS = 3


def answers(run: Run) -> Iterator[tuple[str, str]]:
    """What is being worked out, then the panel of it, one after another: `("breakdown", "")`, `("", html)`."""
    yield "", notes_html(run)
    if has_measured_traces(run):
        yield "breakdown", ""
        yield "", breakdown_html(breakdown(run.path))
    if any(point.bench for point in run.manifest.points):
        yield "latency", ""
        yield "", latency_html(latency(run.path))
    if not has_answer(run):
        yield "", log_html(run)


def has_answer(run: Run) -> bool:
    """Whether there is anything to answer from."""
    return has_measured_traces(run) or any(point.bench for point in run.manifest.points)


def notes_html(run: Run) -> str:
    """What a reader must know of the run before any figure; empty where nothing is."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in run.manifest.notes)
    told = say("start.notes", n=len(run.manifest.notes))
    return f"<details><summary>{html.escape(told)}</summary><ul>{notes}</ul></details>" if notes else ""


def breakdown_html(report: BreakdownReport) -> str:
    """Trust, the answer, its figure and table, and the gravest findings."""
    if not any(rank.window_ns for rank in report.ranks):
        return _section("start.breakdown", _trust(report.trust), blocks.text_html(say("start.no_activity")))
    pieces = views.breakdown_pieces(report)
    return _section(
        "start.breakdown",
        _trust(report.trust),
        blocks.text_html(sentences.breakdown_sentences(report)),
        *(figure_html(plots.plot_breakdown(**piece)) for piece in pieces),
        table_html(gpu_views.answer_table(report), caption=say("start.answer_caption")),
        _findings(report.findings),
    )


def latency_html(report: LatencyReport) -> str:
    """Trust, the answer, its figure, and the gravest findings."""
    pieces = points.throughput_pieces(report)
    return _section(
        "start.latency",
        _trust(points.validity_checks(report)),
        blocks.text_html(sentences.latency_sentences(report)),
        *(figure_html(plot_throughput_latency(**piece, latency="tpot_p50_ms")) for piece in pieces[:1]),
        table_html(points.points_table(report), limit=12),
        _findings(points.point_findings(report)),
    )


def log_html(run: Run) -> str:
    """What a run without traces and results tells: what its log says of memory, and that there is no more."""
    known = views.memory_table(memory([run]), [run])
    told = blocks.text_html(say("start.nothing"))
    return told if known.empty else _section("start.memory", blocks.text_html(sentences.memory_sentences(known)), told)


def _section(title: str, *parts: str) -> str:
    return f"<h3>{html.escape(say(title))}</h3>{''.join(parts)}"


def _trust(checks: Sequence[Any]) -> str:
    return blocks.trust_html([_plain(check) for check in checks])


def _findings(findings: Sequence[Any]) -> str:
    plain = [_plain(finding) for finding in findings]
    order = {"critical": 0, "warning": 1, "info": 2}
    plain.sort(key=lambda one: (order.get(str(one["severity"]), 2), -float(one["confidence"])))
    more = len(plain) - MOST_FINDINGS
    rest = f'<p class="quiet">{html.escape(say("start.more_findings", n=more))}</p>' if more > 0 else ""
    return blocks.findings_html(plain[:MOST_FINDINGS]) + rest


def _plain(record: Any) -> dict[str, Any]:
    if hasattr(record, "to_json"):
        return dict(record.to_json())
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.asdict(record)
    return dict(msgspec.to_builtins(record))
