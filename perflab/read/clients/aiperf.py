"""Exports of AIPerf and of GenAI-Perf, whose form AIPerf keeps: summary JSON and CSV, and AIPerf's records (JSONL).

Their `inter_token_latency` is, for each request, (request latency - time to first token) / (output tokens - 1): vLLM's
TPOT, and so it is called here. `inter_chunk_latency` is pooled over chunks, which is vLLM's ITL (AIPerf 0.13,
metrics/types). Both count output tokens by tokenizing the text. Where AIPerf also tells the usage that the server
reported, that is taken for tokens, as vLLM's client does, and the count of the text is kept beside it.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator
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
    number_of,
    positive,
    rates,
    result_of_rows,
    text,
    total,
)
from perflab.read.files import read_text, refusal
from perflab.units import NS_PER_MS

_FAMILIES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2el",
}
_RATES = {
    "request_throughput": "request_throughput",
    "output_token_throughput": "output_throughput",
    "input_token_throughput": "input_throughput",
    "total_token_throughput": "total_token_throughput",
    "goodput": "request_goodput",
}
_USAGE = ("usage_completion_tokens", "value")
_SAME = 0.01
_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_HEADER = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^)]*)\))?")


def read_aiperf(path: str | Path) -> list[BenchResult]:
    """A summary, `profile_export_aiperf.json` or `profile_export_genai_perf.json`.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    documents, notes = json_records(body, damage, Path(path), "aiperf")
    return [_summary(document, Path(path), notes) for document in documents]


def read_aiperf_csv(path: str | Path) -> list[BenchResult]:
    """The CSV form of a summary; figures have two decimals.

    Raises
    ------
    InputError
        When it is not such a file.
    """
    metrics: dict[str, dict[str, Any]] = {}
    head: list[str] = []
    for row in _lines(read_text(path)[0]):
        if "Metric" in row:  # the head of a block; those about GPUs are left out
            head = row[1:] if row[0] == "Metric" and row[1:2] != ["GPU"] else []
        elif head and (match := _HEADER.fullmatch(row[0].strip())):
            name = match["name"].strip().lower().replace(" ", "_")
            values = {key.lower(): number_of(cell) for key, cell in zip(head, row[1:], strict=False)}
            metrics.setdefault(name, {"avg": values.pop("value", None), **values, "unit": match["unit"] or ""})
    if not any(name in metrics for name in (*_FAMILIES, *_RATES)):
        raise refusal(path, "aiperf_csv")
    return [_summary(metrics, Path(path), (), client="AIPerf or GenAI-Perf", marks=("rounded",))]


def _lines(body: str) -> Iterator[list[str]]:
    try:
        yield from (row for row in csv.reader(io.StringIO(body)) if row)
    except csv.Error:
        return


def _summary(
    document: dict[str, Any], path: Path, notes: tuple[str, ...], client: str | None = None, marks: tuple[str, ...] = ()
) -> BenchResult:
    metrics = document["records"] if isinstance(document.get("records"), dict) else document
    reported: dict[str, float | None] = {}
    for key, name in _FAMILIES.items():
        scale = _MILLISECONDS.get(str(at(metrics, key, "unit") or "ms").lower(), 1.0)
        reported |= family(name, metrics.get(key), scale)
    prompt, output = (
        count(at(metrics, f"total_{short}", "avg")) or count(at(metrics, f"{long}_sequence_length", "sum"))
        for short, long in (("isl", "input"), ("osl", "output"))
    )
    done, failed = (count(at(metrics, f"{name}request_count", "avg")) for name in ("", "error_"))
    duration = positive(at(metrics, "benchmark_duration", "avg"))
    rate = {ours: number(at(metrics, theirs, "avg")) for theirs, ours in _RATES.items()}
    by_text, usage = output, count(at(metrics, "total_usage_completion_tokens", "avg"))
    told = ("itl_is_tpot",) if any("tpot" in key for key in reported) else ()
    longer = _longer(metrics)
    if longer is not None:
        reported |= {key: value * longer for key, value in reported.items() if value and key.endswith("_tpot_ms")}
    told = (*told, *(() if longer is not None else _counted(by_text, usage)))
    if usage:
        output = usage
        rate |= {
            key: value
            for key, value in rates(duration, None, prompt, usage).items()
            if "output" in key or "total" in key
        }
    is_aiperf = "aiperf_version" in document or isinstance(at(document, "input_config", "loadgen"), dict)
    failed = failed if failed or done is None else 0
    return BenchResult(
        path=path, kind="serve", meta=_meta(document, by_text if usage else None), completed=done, failed=failed,
        duration_s=duration, total_input_tokens=prompt, total_output_tokens=output,
        reported={**rates(duration, None, prompt, output), **known(rate), **known(reported)},
        client=client or ("AIPerf" if is_aiperf else "GenAI-Perf"), marks=(*told, *marks),
        notes=(*notes, *((say("read.cancelled"),) if document.get("was_cancelled") is True else ())),
    )  # fmt: skip


def _longer(metrics: dict[str, Any]) -> float | None:
    """What TPOT by text is to be multiplied by to be by the server's tokens; None where answers differ in length."""
    lengths = []
    for name in ("output_sequence_length", "usage_completion_tokens"):
        shortest, longest = (positive(at(metrics, name, end)) for end in ("min", "max"))
        if shortest is None or shortest != longest or shortest <= 1:
            return None
        lengths.append(shortest - 1)
    return lengths[0] / lengths[1]


def _counted(by_text: int | None, usage: int | None) -> tuple[str, ...]:
    """Whose count of output tokens a summary's TPOT rests on: the text's, unless the server's is the same."""
    same = bool(usage and by_text and abs(by_text - usage) <= _SAME * usage)
    return () if same else ("client_tokenizer",)


def _meta(document: dict[str, Any], by_text: int | None = None) -> BenchMeta:
    config = document.get("input_config")
    phases = at(config, "phases")
    phase = next((one for one in phases if at(one, "kind") != "warmup"), None) if isinstance(phases, list) else None
    load = phase or at(config, "loadgen") or config
    stimulus = at(config, "perf_analyzer", "stimulus") or {}
    model = text(at(config, "endpoint", "model_names")) or text(at(config, "model_names")) or text(at(config, "model"))
    return BenchMeta(
        model=model or text(at(config, "models", "items", 0, "name")) or text(at(config, "formatted_model_name")),
        tokenizer=text(at(config, "tokenizer", "name")) or text(at(config, "tokenizer")),
        backend=text(at(config, "endpoint", "type")) or text(at(config, "endpoint_type")),
        num_prompts=count(at(load, "request_count")) or count(at(load, "requests")) or None,
        request_rate=positive(at(load, "request_rate"))
        or positive(at(load, "rate"))
        or positive(at(stimulus, "request_rate")),
        max_concurrency=count(at(load, "concurrency")) or count(at(stimulus, "concurrency")) or None,
        seed=count(at(config, "input", "random_seed")) or count(at(config, "random_seed")),
        extra={**known({"aiperf": text(document.get("aiperf_version"))}), **_text_count(by_text)},  # type: ignore[dict-item]
    )


def _text_count(tokens: int | None) -> dict[str, int]:
    return {} if tokens is None else {"total_output_tokens_text": tokens}


def _asked(path: Path) -> BenchMeta:
    """What was asked for, from the summary that AIPerf writes beside its records."""
    beside = path.with_name(path.name.partition(".")[0] + "_aiperf.json")
    try:
        return read_aiperf(beside)[0].meta
    except InputError:
        return BenchMeta()


def read_aiperf_records(path: str | Path) -> list[BenchResult]:
    """AIPerf's records, `profile_export.jsonl`: one request a line. Warm-up requests are left out.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    records, notes = json_records(body, damage, Path(path), "aiperf_records")
    if not all(isinstance(record.get("metadata"), dict) for record in records):
        raise refusal(path, "aiperf_records")
    measured = [record for record in records if at(record, "metadata", "benchmark_phase") != "warmup"]
    if len(measured) < len(records):
        notes = (*notes, say("read.warm_ups_left_out", n=len(records) - len(measured)))
    rows = [_row(record) for record in measured]
    by_text = total([_of_text(record) for record, row in zip(measured, rows, strict=True) if row.ok])
    usage = any(at(record, "metrics", *_USAGE) is not None for record in measured)
    meta = _asked(Path(path))
    meta = dataclasses.replace(meta, extra={**meta.extra, **_text_count(by_text if usage else None)})
    return [result_of_rows(
        rows, path=Path(path), meta=meta, clock="epoch", client="AIPerf",
        marks=() if usage else ("client_tokenizer",), notes=notes,
    )]  # fmt: skip


def _row(record: dict[str, Any]) -> Row:
    values = record.get("metrics")
    start = moment(at(record, "metadata", "request_start_ns"), 1)
    ttft, latency = (_after(values, name) for name in ("time_to_first_token", "request_latency"))
    first = None if start is None or ttft is None else start + ttft
    gaps = at(values, "inter_chunk_latency", "value")
    gaps = [moment(gap, NS_PER_MS) for gap in gaps] if isinstance(gaps, list) else []
    chunks: list[int] = []
    if first is not None and None not in gaps and gaps:
        chunks = [first]
        for gap in gaps:
            chunks.append(chunks[-1] + (gap or 0))
    return Row(
        arrival_ns=start, first_ns=first, finish_ns=None if start is None or latency is None else start + latency,
        prompt_tokens=count(at(values, "input_sequence_length", "value")),
        output_tokens=count(at(values, *_USAGE)) or count(at(values, "output_sequence_length", "value")),
        ok=not record.get("error") and at(record, "metadata", "was_cancelled") is not True,
        chunks=chunks if not chunks or abs(chunks[-1]) < 1 << 62 else (),
    )  # fmt: skip


def _of_text(record: dict[str, Any]) -> int | None:
    return count(at(record, "metrics", "output_sequence_length", "value"))


def _after(values: Any, name: str) -> int | None:
    scale = _MILLISECONDS.get(str(at(values, name, "unit") or "ms"), 1.0)
    found = positive(at(values, name, "value"))
    return None if found is None else moment(found * scale, NS_PER_MS)
