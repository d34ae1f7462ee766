"""Reports of GuideLLM: JSON of versions 0.2 to 0.8, where each benchmark of a sweep is one result.

GuideLLM's request is timed from `request_start`. Its `time_per_output_token_ms` spans the first token too, so it is
no TPOT; its `inter_token_latency_ms` is a request's mean, (last token - first token) / (tokens - 1), and its
distribution counts that mean once for each of the request's tokens (src/guidellm/schemas/request_stats.py).
Percentiles are values that occurred, without interpolation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.messages import say
from perflab.read.bench import json_records
from perflab.read.bench_result import BenchMeta, BenchResult
from perflab.read.clients.common import (
    Row,
    at,
    count,
    family,
    known,
    moment,
    number,
    positive,
    rates,
    tables,
    text,
    total,
)
from perflab.read.files import read_text, refusal

_FAMILIES = {"ttft": ("time_to_first_token_ms", 1.0), "e2el": ("request_latency", 1000.0)}
_PERCENTILES = {"p001": "p0.1", "p01": "p1", "p05": "p5", "p999": "p99.9"}
CLIENT = "GuideLLM"
_MANY = 100  # from here on a percentile that is not interpolated is next to one that is


def read_guidellm(path: str | Path) -> list[BenchResult]:
    """Every benchmark of a report.

    Raises
    ------
    InputError
        When it is not such a report, or is damaged.
    """
    return [_result(document, one, Path(path)) for document in _documents(Path(path)) for one in document["benchmarks"]]


def guidellm_part(path: Path, place: int) -> str:
    """The report with only the benchmark at `place`, from 0."""
    (document,) = _documents(path)
    return json.dumps({**document, "benchmarks": [document["benchmarks"][place]]})


def _documents(path: Path) -> list[dict[str, Any]]:
    body, damage = read_text(path)
    documents, _ = json_records(body, damage, path, "guidellm")
    for document in documents:
        parts = document.get("benchmarks")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise refusal(path, "guidellm")
        if not parts:
            raise InputError("holds no benchmark", path=path)
    return documents


def _result(document: dict[str, Any], one: dict[str, Any], path: Path) -> BenchResult:
    totals = at(one, "metrics", "request_totals") or at(one, "scheduler_metrics", "requests_made")
    totals = totals or at(one, "run_stats", "requests_made") or at(one, "request_totals") or {}
    done, failed, cut = (count(at(totals, name)) for name in ("successful", "errored", "incomplete"))
    rows = _rows(one)
    duration = positive(one.get("duration")) or _duration(one)
    requests = chunks = None
    marks: tuple[str, ...]
    if rows:
        requests, chunks = tables(rows)
        marks = ("last_token", *(("tokens_by_chunks",) if _without_usage(one) else ()))
        done, failed = sum(row.ok for row in rows), sum(not row.ok for row in rows)
        prompt, output = (
            total([getattr(row, name) for row in rows if row.ok]) for name in ("prompt_tokens", "output_tokens")
        )
        reported: dict[str, float | None] = {}
    else:
        prompt, output = (
            count(at(one, "metrics", f"{name}_token_count", "successful", "total_sum")) for name in ("prompt", "output")
        )
        reported, marks = _reported(one, done)
    return BenchResult(
        path=path, kind="serve", meta=_meta(document, one), completed=done, failed=failed, duration_s=duration,
        total_input_tokens=prompt, total_output_tokens=output,
        reported={**rates(duration, done, prompt, output), **reported},
        requests=requests, chunks=chunks, clock="epoch" if rows else None, client=CLIENT, marks=marks,
        notes=(say("read.cut_off", n=cut),) if cut else (),
    )  # fmt: skip


def _duration(one: dict[str, Any]) -> float | None:
    start, end = number(one.get("start_time")), number(one.get("end_time"))
    return end - start if start is not None and end is not None and end > start else None


def _reported(one: dict[str, Any], completed: int | None) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """Figures of a report without its requests. TPOT is there only where all answers were of one length."""
    found: dict[str, float | None] = {}
    for name, (key, scale) in _FAMILIES.items():
        found |= family(name, _statistics(at(one, "metrics", key, "successful")), scale)
    gaps = _statistics(at(one, "metrics", "inter_token_latency_ms", "successful"))
    lengths = at(one, "metrics", "output_token_count", "successful")
    shortest, longest = number(at(lengths, "min")), number(at(lengths, "max"))
    itl = family("itl", gaps, 1.0)
    marks = ["taken_percentiles"] if found and (completed or 0) < _MANY else []
    if itl:
        found |= itl
        marks.append("itl_of_requests")
        if shortest is not None and shortest == longest:
            found |= family("tpot", gaps, 1.0)
            marks.append("tpot_from_itl")
        else:
            marks.append("tpot_with_first")
    return known(found), tuple(marks)


def _statistics(summary: Any) -> dict[str, Any]:
    if not isinstance(summary, Mapping):
        return {}
    given = summary.get("percentiles")
    named = (
        {_PERCENTILES.get(str(key), str(key)): value for key, value in given.items()}
        if isinstance(given, Mapping)
        else {}
    )
    return {"mean": summary.get("mean"), "median": summary.get("median"), "std": summary.get("std_dev"), **named}


def _rows(one: dict[str, Any]) -> list[Row]:
    """Requests that were answered or failed; those cut off at the end of the time are left out."""
    return [
        _row(request, ok)
        for group, ok in (("successful", True), ("errored", False))
        for request in (at(one, "requests", group) or ())
        if isinstance(request, dict)
    ]


def _without_usage(one: dict[str, Any]) -> bool:
    """Whether any answer came without usage: GuideLLM then counts its chunks as tokens."""
    answered = [request for request in at(one, "requests", "successful") or () if isinstance(request, dict)]
    counts = [at(request, "output_metrics") for request in answered]
    return any(isinstance(c, dict) and "text_tokens" in c and not any(map(count, c.values())) for c in counts)


def _row(request: dict[str, Any], ok: bool) -> Row:
    times = at(request, "info", "timings") or at(request, "scheduler_info", "request_timings") or {}
    start = at(times, "request_start") or at(request, "request_start_time") or request.get("start_time")
    first = at(times, "first_token_iteration") or at(times, "first_iteration") or request.get("first_token_time")
    last = at(times, "last_token_iteration") or at(times, "last_iteration") or request.get("last_token_time")
    end = last or at(times, "request_end") or request.get("request_end_time") or request.get("end_time")
    prompt = request.get("prompt_tokens", at(request, "input_metrics", "text_tokens"))
    output = request.get("output_tokens", at(request, "output_metrics", "text_tokens"))
    return Row(moment(start), moment(first), moment(end), count(prompt), count(output), ok)


def _meta(document: dict[str, Any], one: dict[str, Any]) -> BenchMeta:
    strategy = at(one, "config", "strategy") or at(one, "args", "strategy") or at(one, "scheduler", "strategy") or {}
    kind = text(at(strategy, "type_")) or ""
    rate = positive(at(strategy, "rate"))
    streams = count(at(strategy, "streams")) or count(at(strategy, "max_concurrency"))
    limited = {"synchronous": 1, "concurrent": streams, "throughput": None}.get(kind)
    asked = at(one, "config", "constraints", "max_requests", "args", "count") or at(one, "args", "max_number")
    backend = at(one, "config", "backend")
    older = text(at(document, "args", "model")) or text(at(one, "worker", "backend_model"))
    return BenchMeta(
        model=text(at(backend, "model")) or older,
        backend=text(at(backend, "kind")), num_prompts=count(asked) if asked else None,
        request_rate=rate if kind in ("constant", "poisson", "async") else None, rate_unbounded=kind == "throughput",
        max_concurrency=limited, burstiness=1.0 if kind == "poisson" else None,
        extra=known({"arrivals": kind or None, "guidellm": text(at(document, "metadata", "guidellm_version"))}),  # type: ignore[dict-item]
    )  # fmt: skip
