"""One measured point -> what its checks need to know, from the result, the server's metrics and the run's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perflab.analysis.validity import BenchFacts, MachineView, machine_view
from perflab.knowledge.clients import marks_of
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.read.bench_result import BenchResult
from perflab.runs import Point
from perflab.tasks.load_evidence import RunRecords

_FACTS = ("total_output_tokens_retokenized", "total_output_tokens_text", "schedule_delay_p90_s", "arrivals")


def bench_facts(
    point: Point,
    result: BenchResult,
    metrics: Mapping[str, Any],
    *,
    deltas: Mapping[str, float],
    means: Mapping[str, float],
    records: RunRecords | None,
    thresholds: Thresholds,
) -> BenchFacts:
    """The facts of one point.

    Parameters
    ----------
    metrics
        From `perflab.tasks.latency.measured_metrics`.
    deltas, means
        Growth of the server's counters and means of its histograms; empty where it was not scraped.
    records
        Of the run; None for a result file alone.
    """
    extra = result.meta.extra
    retokenized, text, delay, arrivals = (extra.get(name) for name in _FACTS)
    return BenchFacts(
        completed=result.completed,
        failed=result.failed,
        num_prompts=point.num_prompts or result.meta.num_prompts,
        rate=point.load.rate,
        concurrency=point.load.concurrency,
        duration_s=result.duration_s,
        total_output_tokens=result.total_output_tokens,
        metrics=metrics,
        requests=result.requests,
        chunks=result.chunks,
        data=point.data,
        deltas=deltas,
        server_means=means or _server_told(result),
        thresholds=thresholds,
        client=result.client,
        marks=result.marks,
        burstiness=result.meta.burstiness,
        arrivals=arrivals if isinstance(arrivals, str) else None,
        reported=result.reported,
        retokenized=retokenized if isinstance(retokenized, int) else None,
        text_tokens=text if isinstance(text, int) else None,
        schedule_delay_s=delay if isinstance(delay, float) else None,
        machine=_machine(point, result, records),
    )


def _server_told(result: BenchResult) -> dict[str, float]:
    """Means of what the server told of each request, which `vllm bench serve` of 0.33 writes where it does."""
    told = [value for value in result.series.get("server_ttfts", ()) if value is not None]
    return {"time_to_first_token_seconds": sum(told) / len(told)} if told else {}


def _machine(point: Point, result: BenchResult, records: RunRecords | None) -> MachineView | None:
    if records is None or records.manifest.telemetry is None:
        return None
    window = records.window(point, result.requests)
    return None if window is None else machine_view(records.samples, *window)


def definitions(result: BenchResult) -> list[dict[str, Any]]:
    """Where the client's definitions and counts are not vLLM's, as the JSON document has it.

    `metrics` is empty where all are meant; `differs` is False where figures were converted to vLLM's definition.
    """
    return [
        {
            "code": mark.code,
            "metrics": list(mark.metrics),
            "differs": mark.differs,
            "detail": say(f"definition.{mark.code}"),
        }
        for mark in marks_of(result.marks)
    ]


def differing(result: BenchResult) -> tuple[str, ...]:
    """Metrics that the client does not define or count as vLLM does, and that could not be converted; `all` for all."""
    marks = [mark for mark in marks_of(result.marks) if mark.differs]
    return tuple(dict.fromkeys(metric for mark in marks for metric in mark.metrics or ("all",)))
