"""Results of SGLang's `bench_serving`: JSON lines, whose keys are largely those of `vllm bench serve`.

TTFT and TPOT are as in vLLM. Where a chunk holds several tokens, SGLang of 2025-10 and later divides its gap by them
and counts the quotient once a token (pull request 12064), so ITL is spread evenly within chunks; before, it was per
chunk. `output_lens` are what the server reported, or what was asked for; `total_output_tokens_retokenized` counts the
text that came. `concurrency` is the mean that was under way, not a limit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from perflab.read.bench import json_records, result_of
from perflab.read.bench_result import BenchResult
from perflab.read.clients.common import count
from perflab.read.files import read_text

CLIENT = "SGLang bench_serving"
_RENAMED = {
    "total_throughput": "total_token_throughput",
    "accept_length": "spec_decode_acceptance_length",
    "max_output_tokens_per_s": "max_output_tokens_per_s",
}


def read_sglang(path: str | Path) -> list[BenchResult]:
    """Every result of a file.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    records, notes = json_records(body, damage, Path(path), "sglang")
    return [_result(record, Path(path), notes) for record in records]


def _result(record: dict[str, Any], path: Path, notes: tuple[str, ...]) -> BenchResult:
    raw = {_RENAMED.get(key, key.replace("e2e_latency_ms", "e2el_ms")): value for key, value in record.items()}
    lengths = raw.get("output_lens")
    if isinstance(lengths, list) and "num_prompts" not in raw:
        raw["num_prompts"] = len(lengths)
    for key in ("server_info", "generated_texts"):
        raw.pop(key, None)
    result = result_of(raw, path, notes)
    asked = raw.get("request_rate")
    meta = result.meta
    if asked == "trace":
        meta = dataclasses.replace(meta, extra={**meta.extra, "arrivals": "trace"})
    marks = ("itl_spread",) if result.chunks is not None or result.reported.get("mean_itl_ms") else ()
    retokenized = count(record.get("total_output_tokens_retokenized"))
    meta = dataclasses.replace(meta, extra={**meta.extra, "total_output_tokens_retokenized": retokenized})
    return dataclasses.replace(result, client=CLIENT, meta=meta, marks=marks)
