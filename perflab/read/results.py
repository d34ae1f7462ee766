"""Benchmark results of any client: what a file is decides who reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from perflab.read.bench import read_bench_all
from perflab.read.bench_forward import forward_part, read_forward
from perflab.read.bench_printed import printed_part, read_printed_results
from perflab.read.bench_result import BenchResult
from perflab.read.clients.aiperf import read_aiperf, read_aiperf_csv, read_aiperf_records
from perflab.read.clients.guidellm import guidellm_part, read_guidellm
from perflab.read.clients.inference_perf import read_inference_perf, read_inference_perf_requests
from perflab.read.clients.llmd import read_llmd
from perflab.read.clients.perf_analyzer import perf_analyzer_part, read_perf_analyzer
from perflab.read.clients.sglang import read_sglang
from perflab.read.files import sniff

READERS: Mapping[str, Callable[[str | Path], list[BenchResult]]] = MappingProxyType({
    "bench_serve": read_bench_all, "bench_latency": read_bench_all, "bench_throughput": read_bench_all,
    "bench_startup": read_bench_all, "bench_wrapped": read_bench_all, "sweep_summary": read_bench_all,
    "bench_forward": read_forward, "bench_printed": read_printed_results, "sglang": read_sglang,
    "guidellm": read_guidellm, "aiperf": read_aiperf, "aiperf_csv": read_aiperf_csv,
    "aiperf_records": read_aiperf_records, "perf_analyzer": read_perf_analyzer,
    "inference_perf": read_inference_perf, "inference_perf_requests": read_inference_perf_requests,
    "llmd_report": read_llmd,
})  # fmt: skip
"""Who reads a kind of file (`perflab.read.files.sniff`); kinds that are not here are no results."""

_PARTS: Mapping[str, Callable[[Path, int], str]] = MappingProxyType({
    "bench_forward": forward_part, "bench_printed": printed_part, "guidellm": guidellm_part,
    "perf_analyzer": perf_analyzer_part,
})  # fmt: skip


def read_results(path: str | Path) -> list[BenchResult]:
    """Every benchmark result of a file, whoever's client wrote it.

    Raises
    ------
    InputError
        When it holds no result of a kind that is known, or is damaged.
    """
    return READERS.get(sniff(path) or "", read_bench_all)(path)


def result_part(path: Path, kind: str, place: int) -> str | None:
    """The text of one result of several, from 0; None for kinds whose parts are plain JSON records."""
    part = _PARTS.get(kind)
    return None if part is None else part(path, place)
