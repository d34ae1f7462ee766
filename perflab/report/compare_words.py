"""What a comparison says in sentences, and what it rests on, for a notebook."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perflab import units
from perflab.analysis.check import Check
from perflab.analysis.compare.findings import category_changes, category_word, signed_time
from perflab.analysis.compare.metric_findings import metric_word, show_ratio
from perflab.analysis.compare.metrics import MetricRow
from perflab.analysis.finding import Finding
from perflab.messages import say
from perflab.report.points import validity_checks
from perflab.runs import Run
from perflab.tasks.compare import CompareReport

_THROUGHPUT = "output_tokens_per_s"
_CHUNK = "max_num_batched_tokens"
_CATEGORIES = 3


def compared_runs(report: CompareReport) -> list[Run]:
    """The runs of both sides, the baseline's first; none where only files were compared."""
    return [run for side in report.sides for run in side.runs]


def compare_trust(report: CompareReport) -> list[Check]:
    """Checks of the traces, of the comparison, and of every measured point."""
    points = []
    for side, measured in zip(report.sides, (report.measured.baseline, report.measured.candidate), strict=True):
        found = [] if measured.report is None else validity_checks(measured.report)
        points += [
            check if len(side.runs) > 1 else replace(check, source=f"{side.name}, {check.source}") for check in found
        ]
    return [*report.trust, *points]


def compare_findings(report: CompareReport) -> list[Finding]:
    """What metrics come to, then what traces come to."""
    return [*report.metric_findings, *report.findings]


def metric_sentences(report: CompareReport) -> str:
    """Which metric decides and its verdict, what throughput came to at each point, and how much evidence that is."""
    primary = report.primary
    if primary is None or primary.found is None:
        return say("notebook.compare.nothing")
    lines = [report.measured.why] if report.measured.why else []
    lines += [_verdict(primary)]
    rates = [row for row in report.metrics if row.metric.name == _THROUGHPUT and row.found is not None]
    lines += [_rate(row) for row in rates]
    if primary.found.fewest == 1:
        lines.append(say("compare.metrics.one_repeat"))
    return "\n".join(f"- {line}" for line in lines)


def cause_sentences(report: CompareReport) -> str:
    """By phase, which categories changed a step; why there is nothing to say where there are no traces."""
    lines = [
        say(
            "notebook.compare.phase",
            phase=one.phase,
            baseline=units.show_time(one.shown.baseline.ns),
            candidate=units.show_time(one.shown.candidate.ns),
            parts=", ".join(
                f"{category_word(str(row.category))} {signed_time(float(str(row.change_ns)))}"
                for row in category_changes(one.shown).head(_CATEGORIES).itertuples()
            )
            or say("notebook.compare.no_category"),
        )
        for one in report.phases
    ]
    return "\n".join(f"- {line}" for line in lines or report.missing or [say("notebook.compare.no_traces")])


def chunk_sentences(report: CompareReport) -> str:
    """What these runs tell of larger chunks: whether prompts are chunked, at what size, and what could change."""
    settings = [_settings(side.run) for side in report.sides]
    sizes = [one.get(_CHUNK) for one in settings]
    if not all(isinstance(size, int) for size in sizes):
        return say("notebook.compare.chunks_unknown")
    on = [bool(one.get("enable_chunked_prefill")) for one in settings]
    size = " → ".join(dict.fromkeys(f"{size:,}" for size in sizes))
    lines = [say("notebook.compare.chunks_on" if all(on) else "notebook.compare.chunks_off", size=size)]
    if sizes[0] == sizes[1]:
        lines.append(say("notebook.compare.chunks_same"))
    longest = _longest_prompt(report)
    if longest is not None and longest <= min(int(str(size)) for size in sizes):
        lines.append(say("notebook.compare.chunks_fit", longest=f"{longest:,}", size=size))
    lines.append(say("notebook.compare.chunks_ask"))
    return "\n".join(f"- {line}" for line in lines)


def _verdict(row: MetricRow) -> str:
    found = row.found
    assert found is not None
    name = metric_word(row.metric.name)
    if found.low is None or found.high is None:
        fields = {"metric": name, "point": row.point, "change": show_ratio(found.ratio), "verdict": row.verdict}
        return say("notebook.compare.no_interval", **fields)
    return say(
        "notebook.compare.verdict",
        metric=name,
        point=row.point,
        change=show_ratio(found.ratio),
        low=f"{(found.low - 1) * 100:+.1f} %",
        high=f"{(found.high - 1) * 100:+.1f} %",
        verdict=row.verdict,
    )


def _rate(row: MetricRow) -> str:
    found = row.found
    assert found is not None
    stream = " (single stream)" if row.point.rpartition(" ")[2] == "c1" else ""
    return say(
        "notebook.compare.rate",
        point=f"{row.point}{stream}",
        baseline=_tokens(found.baseline),
        candidate=_tokens(found.candidate),
        change=show_ratio(found.ratio),
    )


def _tokens(rate: float) -> str:
    return f"{rate:,.{0 if rate >= 1000 else 1}f}"


def _settings(run: Run | None) -> dict[str, Any]:
    return run.manifest.engine.settings if run is not None else {}


def _longest_prompt(report: CompareReport) -> int | None:
    """The longest prompt that was sent to either side; None where that is not known."""
    known: list[int] = []
    for side in (report.measured.baseline, report.measured.candidate):
        lengths = [_prompt(point) for point in side.points]
        if any(length is None for length in lengths):
            return None
        known += [length for length in lengths if length is not None]
    return max(known, default=None)


def _prompt(point: Any) -> int | None:
    requests = point.requests
    if requests is not None and requests["prompt_tokens"].notna().any():
        return int(requests["prompt_tokens"].max())
    length: int | None = point.point.input_len
    return length
