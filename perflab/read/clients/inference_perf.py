"""Reports of inference-perf: a stage's or the summary's `lifecycle_metrics` JSON, and the requests one by one.

All times are seconds. Its TPOT is (last - first token) / (n - 1), where n was the number of chunks in older versions
and is that of tokens in newer ones; ITL is pooled over gaps between chunks (inference_perf/reportgen/base.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    result_of_rows,
)
from perflab.read.files import read_text, refusal

_FAMILIES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2el",
}
_RATES = {
    "requests_per_sec": "request_throughput",
    "input_tokens_per_sec": "input_throughput",
    "output_tokens_per_sec": "output_throughput",
    "total_tokens_per_sec": "total_token_throughput",
}
CLIENT = "inference-perf"


def read_inference_perf(path: str | Path) -> list[BenchResult]:
    """A stage or the summary.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    documents, notes = json_records(body, damage, Path(path), "inference_perf")
    if not all(isinstance(document.get("successes"), dict) for document in documents):
        raise refusal(path, "inference_perf")
    return [_summary(document, Path(path), notes) for document in documents]


def _summary(document: dict[str, Any], path: Path, notes: tuple[str, ...]) -> BenchResult:
    good, load = document["successes"], document.get("load_summary")
    reported: dict[str, float | None] = {}
    for key, name in _FAMILIES.items():
        reported |= family(name, at(good, "latency", key), 1000.0)
    done = count(good.get("count"))
    rate = known({ours: number(at(good, "throughput", theirs)) for theirs, ours in _RATES.items()})
    per_s = positive(rate.get("request_throughput"))
    prompt, output = (_tokens(good, name, done) for name in ("prompt", "output"))
    return BenchResult(
        path=path, kind="serve", completed=done, failed=count(at(document, "failures", "count")),
        duration_s=positive(document.get("benchmark_time_seconds")) or (done / per_s if done and per_s else None),
        meta=BenchMeta(
            num_prompts=count(at(load, "count")), request_rate=positive(at(load, "requested_rate")),
            max_concurrency=count(at(load, "concurrency")) or None,
            extra=known({"achieved_rate": number(at(load, "achieved_rate")),
                         "schedule_delay_p90_s": number(at(load, "schedule_delay", "p90"))}),
        ),
        total_input_tokens=prompt, total_output_tokens=output, reported={**rate, **known(reported)}, client=CLIENT,
        marks=("tpot_by_chunks",) if any("tpot" in key for key in reported) else (), notes=notes,
    )  # fmt: skip


def _tokens(good: dict[str, Any], what: str, done: int | None) -> int | None:
    """A total, or the mean length times the requests."""
    whole = count(at(good, f"{what}_tokens", "total"))
    mean = number(at(good, f"{what}_len", "mean"))
    return whole if whole is not None or mean is None or not done else count(round(mean * done))


def read_inference_perf_requests(path: str | Path) -> list[BenchResult]:
    """The requests one by one, `per_request_lifecycle_metrics.json`.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    records, notes = json_records(body, damage, Path(path), "inference_perf_requests")
    if not all("start_time" in record and "info" in record for record in records):
        raise refusal(path, "inference_perf_requests")
    rows = [_row(record) for record in records]
    return [result_of_rows(
        rows, path=Path(path), meta=_asked(records), clock="client", client=CLIENT,
        marks=("last_token", "client_tokenizer"), notes=notes,
    )]  # fmt: skip


def _row(record: dict[str, Any]) -> Row:
    info = record.get("info")
    streamed = at(info, "response_metrics") or info
    times = at(streamed, "output_token_times")
    arrived = [moment(when) for when in times] if isinstance(times, list) else []
    told = [when for when in arrived if when is not None]
    whole = len(told) == len(arrived) and len(told) > 1 and told == sorted(told)
    usage = at(streamed, "server_usage", "completion_tokens")
    prompt = at(info, "input_tokens") or at(info, "request_metrics", "text", "input_tokens")
    return Row(
        arrival_ns=moment(record.get("start_time")), first_ns=told[0] if whole else None,
        finish_ns=told[-1] if whole else moment(record.get("end_time")), prompt_tokens=count(prompt),
        output_tokens=count(usage) or count(at(streamed, "output_tokens")), ok=not record.get("error"),
        chunks=told if whole else (),
    )  # fmt: skip


def _asked(records: list[dict[str, Any]]) -> BenchMeta:
    """The model, where the first request names it."""
    body = records[0].get("request")
    try:
        found = json.loads(body) if isinstance(body, str) else body
    except (json.JSONDecodeError, RecursionError):
        found = None
    model = at(found, "model")
    return BenchMeta(model=model if isinstance(model, str) else None)
