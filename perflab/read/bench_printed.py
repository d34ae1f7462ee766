"""What `vllm bench serve` and SGLang's `bench_serving` print at their end: figures of two decimals, no requests.

Beside the JSON it belongs to, a printed table only confirms it; alone it is the measurement, marked `rounded`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perflab.errors import InputError
from perflab.read.bench_figures import is_streamed, without_empty_families, without_streaming
from perflab.read.bench_result import BenchMeta, BenchResult
from perflab.read.clients.common import count, known, number_of, positive
from perflab.read.files import read_text, refusal

_TITLE = "= Serving Benchmark Result ="
_LINE = re.compile(r"^(?P<label>[A-Z][^:\n]*?):[ \t]+(?P<value>\S+)", re.MULTILINE)
_LATENCY = re.compile(r"(Mean|Median|Std|P\d+(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)")
_NAMES = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "input_tokens",
    "Total generated tokens": "output_tokens",
    "Total generated tokens (retokenized)": "retokenized",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Burstiness factor": "burstiness",
    "Request throughput (req/s)": "request_throughput",
    "Request goodput (req/s)": "request_goodput",
    "Input token throughput (tok/s)": "input_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Total Token throughput (tok/s)": "total_token_throughput",
    "Total throughput (tok/s)": "total_token_throughput",
    "Peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "Peak concurrent requests": "max_concurrent_requests",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Acceptance length": "spec_decode_acceptance_length",
    "Accept length": "spec_decode_acceptance_length",
}
_COUNTS = ("completed", "failed", "duration", "input_tokens", "output_tokens", "retokenized")
_ASKED = ("max_concurrency", "request_rate", "burstiness")
_REPORTED = tuple(dict.fromkeys(name for name in _NAMES.values() if name not in (*_COUNTS, *_ASKED)))


def is_printed_of(printed: BenchResult, result: BenchResult) -> bool:
    """Whether a printed table is of `result`, a JSON result: requests, tokens, and duration to 10 ms."""
    if printed.duration_s is None or result.duration_s is None:
        return False
    same = (printed.completed, printed.total_output_tokens) == (result.completed, result.total_output_tokens)
    return same and abs(printed.duration_s - result.duration_s) <= 0.00501


def read_printed_results(path: str | Path) -> list[BenchResult]:
    """Every table that was printed into a file.

    Raises
    ------
    InputError
        When there is none.
    """
    found = [_result(before, table, Path(path)) for before, table in _tables(read_text(path)[0])]
    if not found:
        raise refusal(path, "bench_printed")
    if all(one.duration_s is None for one in found):
        raise InputError("ends before the figures that `vllm bench serve` prints", path=path)
    return found


def printed_part(path: Path, place: int) -> str:
    """The table at `place`, from 0, with what stands before it."""
    before, table = list(_tables(read_text(path)[0]))[place]
    return f"{before}{_TITLE}{table}"


def _tables(body: str) -> Iterator[tuple[str, str]]:
    """What stands before each table (from the end of the one before), and the table itself."""
    parts = body.replace("\r", "\n").split(_TITLE)
    before = parts[0]
    for part in parts[1:]:
        yield before, part
        before = part.rpartition("=====")[2]


def _result(before: str, table: str, path: Path) -> BenchResult:
    words = {label: value for label, value in _lines(before) if label in _ASKED}
    lines = dict(_lines(table.partition("=====\n")[2] if table.startswith("=") else table))
    words |= lines
    figures = {name: number_of(word) for name, word in words.items()}
    reported = known({name: figures.get(name) for name in (*_REPORTED, *(n for n in figures if n.endswith("_ms")))})
    completed, failed, prompt, output = (
        count(figures.get(n)) for n in ("completed", "failed", "input_tokens", "output_tokens")
    )
    marks: tuple[str, ...] = ("rounded",)
    if not is_streamed(reported, completed, output):
        reported, marks = without_streaming(reported), (*marks, "not_streamed")
    is_sglang = "retokenized" in words or "Backend:" in table
    if is_sglang and reported.get("mean_itl_ms"):
        marks = (*marks, "itl_spread")
    retokenized = {"total_output_tokens_retokenized": count(figures["retokenized"])} if "retokenized" in figures else {}
    return BenchResult(
        path=path, kind="serve", completed=completed, failed=failed, duration_s=positive(figures.get("duration")),
        total_input_tokens=prompt, total_output_tokens=output, reported=without_empty_families(reported), marks=marks,
        client="SGLang bench_serving" if is_sglang else "vllm bench",
        meta=BenchMeta(
            max_concurrency=count(figures.get("max_concurrency")) or None, burstiness=figures.get("burstiness"),
            request_rate=positive(figures.get("request_rate")), rate_unbounded=words.get("request_rate") == "inf",
            extra=retokenized,
        ),
    )  # fmt: skip


def _lines(body: str) -> Iterator[tuple[str, str]]:
    for match in _LINE.finditer(body):
        if name := _NAMES.get(match["label"]):
            yield name, match["value"]
        elif latency := _LATENCY.fullmatch(match["label"]):
            family = latency[2].lower().replace("e2e latency", "e2el")
            yield f"{latency[1].lower()}_{family}_ms", match["value"]
