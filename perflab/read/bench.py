"""Results of `vllm bench serve`, `latency`, `throughput` and `startup`, of any version, and wrapped ones.

What vLLM reported is kept under vLLM's own names (`BenchResult.reported`); what can be computed again comes as
tables (`requests`, `chunks`). vLLM's formulas (benchmarks/serve.py, `calculate_metrics`): TTFT, TPOT and E2EL
over successful requests, TPOT = (latency - ttft) / (output tokens - 1) only where there is more than one token,
ITL pooled over all gaps, percentiles by numpy's linear interpolation, rates over `duration`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.knowledge.toml import shipped_toml
from perflab.messages import say
from perflab.read.bench_figures import LATENCY, is_streamed, without_empty_families, without_streaming
from perflab.read.bench_requests import DETAIL_KEYS, chunks_table, requests_table
from perflab.read.bench_result import BenchMeta, BenchResult, Clock, Kind
from perflab.read.clients.common import number
from perflab.read.files import read_text, refusal

__all__ = ["BenchMeta", "BenchResult", "json_records", "read_bench", "read_bench_all", "result_of"]


def read_bench(path: str | Path) -> BenchResult:
    """Read a file with one benchmark result.

    Raises
    ------
    InputError
        When it is not a benchmark result, is damaged, or holds several results (`read_bench_all` reads those).
    """
    results = read_bench_all(path)
    if len(results) > 1:
        raise InputError(f"holds {len(results)} results where one is wanted; split it, one result a file", path=path)
    return results[0]


def read_bench_all(path: str | Path) -> list[BenchResult]:
    """Read every benchmark result of a file: one object, JSON lines (`--append-result`), or a list (sweeps)."""
    path = Path(path)
    text, damage = read_text(path)
    records, notes = json_records(text, damage, path)
    results = [result_of(_flattened(raw), path, notes) for raw in records]
    if not results:
        raise InputError("holds no benchmark result", path=path)
    return results


_CONSTANTS = {"Infinity": math.inf, "-Infinity": None, "NaN": None}


def _loads(text: str) -> Any:
    # Python's writer leaves NaN and Infinity in the text, which strict readers refuse.
    return json.loads(text, parse_constant=_CONSTANTS.__getitem__)


def json_records(
    text: str, damage: str | None, path: Path, wanted: str = "bench"
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The objects of a text: one, a list of them, or one a line; and notes on what was left out.

    `wanted` is what the file should be (a key of `perflab.read.kinds.NAMES`).

    Raises
    ------
    InputError
        When it is not JSON, or holds anything but objects.
    """
    notes: tuple[str, ...] = ()
    try:
        found = _loads(text)
        found = found if isinstance(found, list) else [found]
    except RecursionError as error:
        raise InputError("is nested too deeply to be a benchmark result", path=path) from error
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            why = damage or f"{error.msg} at column {error.colno}"
            if text.lstrip()[:1] not in ("{", "["):
                raise refusal(path, wanted) from error
            raise InputError(f"is not valid JSON ({why}); copy the file again", path=path, line=error.lineno) from error
        found, notes = _json_lines(text, damage, path)
    records = [item for item in found if isinstance(item, dict)]
    if len(records) < len(found) or not records:
        raise refusal(path, wanted)
    return records, notes


def _json_lines(text: str, damage: str | None, path: Path) -> tuple[list[Any], tuple[str, ...]]:
    found: list[Any] = []
    lines = [(at, line) for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for at, line in lines:
        try:
            found.append(_loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            if at == lines[-1][0]:
                return found, (say("read.last_line_cut", line=at),)
            raise InputError(f"is not valid JSON ({error})", path=path, line=at) from error
    return found, (() if damage is None else (say("read.damaged", why=damage),))


@lru_cache(maxsize=1)
def _knowledge() -> dict[str, Any]:
    return shipped_toml("bench_keys.toml")


@lru_cache(maxsize=1)
def _canonical() -> dict[str, tuple[str, float]]:
    return {
        name: (entry["canonical"], entry.get("scale", 1)) for entry in _knowledge()["rename"] for name in entry["names"]
    }


def _flattened(item: dict[str, Any]) -> dict[str, Any]:
    """A record with canonical keys, whether wrapped ({concurrency, ok, metrics, command}) or not."""
    if isinstance(item.get("metrics"), dict):
        command = item.get("command")
        flags = _flags(command) if isinstance(command, list) else {}
        rest = {key: value for key, value in item.items() if key not in ("metrics", "command", "concurrency")}
        item = {**flags, "max_concurrency": item.get("concurrency"), **rest, **item["metrics"]}
    renamed = _canonical()
    out: dict[str, Any] = {}
    for key, value in item.items():
        name, scale = renamed.get(key, (key, 1))
        if scale != 1 and isinstance(value, list):
            value = [v * scale if isinstance(v, int | float) else v for v in value]
        out.setdefault(name, value)
    return out


def _flags(command: list[Any]) -> dict[str, Any]:
    """Options of a command line as keys: `--num-prompts 80` -> num_prompts 80."""
    out: dict[str, Any] = {}
    words = [str(word) for word in command]
    for at, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and at + 1 < len(words) and not words[at + 1].startswith("--"):
                value = words[at + 1]
            out[name.replace("-", "_")] = _literal(value) if value else True
    return out


def _literal(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _kind(raw: dict[str, Any]) -> Kind | None:
    if "completed" in raw or raw.get("ok") is False:  # the second: a wrapper's point that was skipped or broke
        return "serve"
    if "avg_latency" in raw:
        return "latency"
    if "duration" in raw and ("request_throughput" in raw or "output_throughput" in raw):
        return "throughput"
    if "avg_cold_startup_time" in raw or "avg_warm_startup_time" in raw:
        return "startup"
    return None


_META = {
    "model_id": "model", "tokenizer_id": "tokenizer", "tokenizer": "tokenizer", "backend": "backend",
    "endpoint_type": "backend", "label": "label", "date": "date", "num_prompts": "num_prompts",
    "max_concurrency": "max_concurrency", "burstiness": "burstiness", "seed": "seed",
}  # fmt: skip
_COUNTS = frozenset(
    ("completed", "failed", "total_input_tokens", "total_output_tokens", "num_prompts", "max_concurrency")
)


def result_of(raw: dict[str, Any], path: Path, notes: tuple[str, ...]) -> BenchResult:
    """One record, its keys those of `vllm bench`, as a result.

    Raises
    ------
    InputError
        When it is no result of a kind that is known, or holds something else than numbers where these belong.
    """
    kind = _kind(raw)
    if kind is None:
        raise refusal(path, "bench")
    for key in (*_COUNTS, "duration"):
        if raw.get(key) is not None and number(raw[key]) is None:
            raise InputError(f"{key} is {str(raw[key])[:40]!r}, not a number", path=path)
    reported, series, extra = _sorted_values(raw)
    count = {key: _count(raw.get(key)) for key in _COUNTS}
    completed, failed = count["completed"], count["failed"]
    inferred = failed is None and completed is not None and count["num_prompts"] is not None
    if inferred:
        failed = max(0, (count["num_prompts"] or 0) - (completed or 0))
        notes = (*notes, say("read.failed_inferred", failed=failed)) if failed else notes
    if raw.get("ok") is False:
        notes = (*notes, say("read.not_ok", detail=raw.get("detail")))
    requests = chunks = None
    clock: Clock | None = None
    if kind == "serve" and any(key in raw for key in DETAIL_KEYS):
        requests, more = requests_table(raw, failed, path)
        chunks = chunks_table(raw, requests, path)
        clock = "client" if requests["arrival_ns"].notna().any() else "per_request"
        notes = (*notes, *more, *(() if clock == "client" else (say("read.no_start_times"),)))
        series = {k: v for k, v in series.items() if k not in ("latencies", "queue_times")}
    marks: tuple[str, ...] = ()
    if kind == "serve" and not is_streamed(reported, completed, count["total_output_tokens"]):
        reported, marks = without_streaming(reported), ("not_streamed",)
    return BenchResult(
        path=path, kind=kind, meta=_meta(raw, count, extra), completed=completed, failed=failed,
        failed_inferred=inferred, duration_s=number(raw.get("duration")),
        total_input_tokens=count["total_input_tokens"], total_output_tokens=count["total_output_tokens"],
        reported=reported, series=series, requests=requests, chunks=chunks, clock=clock,
        latency_from_gaps=requests is not None and "latencies" not in raw, notes=notes, marks=marks,
    )  # fmt: skip


def _meta(raw: dict[str, Any], count: Mapping[str, int | None], extra: dict[str, Any]) -> BenchMeta:
    rate = raw.get("request_rate")
    rate = _literal(rate) if isinstance(rate, str) else rate
    finite = isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate)
    text = {name: raw.get(key) for key, name in reversed(_META.items()) if raw.get(key) is not None}
    seed = _literal(str(text.get("seed")))
    return BenchMeta(
        model=_text(text.get("model")), tokenizer=_text(text.get("tokenizer")), backend=_text(text.get("backend")),
        label=_text(text.get("label")), date=_text(text.get("date")), num_prompts=count["num_prompts"],
        request_rate=float(rate) if finite and rate is not None else None,
        rate_unbounded=isinstance(rate, float) and math.isinf(rate),
        max_concurrency=count["max_concurrency"], burstiness=number(raw.get("burstiness")),
        seed=seed if isinstance(seed, int) else None, extra=extra,
    )  # fmt: skip


def _sorted_values(
    raw: dict[str, Any],
) -> tuple[dict[str, float | None], dict[str, tuple[float | None, ...]], dict[str, Any]]:
    """What is reported, what is a series, and what is left over."""
    metrics = _knowledge()["metrics"]
    reported: dict[str, float | None] = {}
    series: dict[str, tuple[float | None, ...]] = {}
    extra: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _META or key in _COUNTS or key in DETAIL_KEYS or key in ("duration", "request_rate"):
            continue
        if key == "percentiles" or key.endswith("_percentiles"):
            reported.update(_percentiles(key, value))
        elif isinstance(value, list) and value and all(number(v) is not None or v is None for v in value):
            # A latency of exactly 0 is a request that never got an answer.
            series[key] = tuple((number(v) or None) if key == "latencies" else number(v) for v in value)
        elif isinstance(value, int | float | None) and (
            key in metrics["names"] or LATENCY.fullmatch(key) or key.startswith(("avg_", *metrics["prefixes"]))
        ):
            reported[key] = number(value)
        else:
            extra[key] = value
    return without_empty_families(reported), series, extra


def _percentiles(key: str, value: Any) -> Iterator[tuple[str, float | None]]:
    what = key.removesuffix("percentiles").removesuffix("_") or "latency"
    if isinstance(value, dict):
        yield from ((f"p{q}_{what}", number(v)) for q, v in value.items())


def _count(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
