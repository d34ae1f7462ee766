"""Small runs written by hand, whose answers can be seen by eye; what tests of notebooks and reports work on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat

from perflab.runs import Run
from perflab.tasks.imports import import_files

EVIL = "<img src=x onerror=alert(1)>"
"""A kernel with this name must come out as text, wherever it is shown."""

_BASE = 1_790_000_000_000_000_000


def kineto(steps: int = 4, kernel: str = EVIL) -> dict[str, Any]:
    """A trace of one GPU: a prefill step of 10 ms, then decode steps of 1 ms.

    Each step runs a GEMM for 60 %, attention for 20 % and the kernel `kernel` for 10 %; for 10 % it is idle.
    """
    events: list[dict[str, Any]] = []
    at, correlation = 1000.0, 1
    for step in range(steps):
        name = "execute_context_1(512)_generation_0(0)" if step == 0 else "execute_context_0(0)_generation_4(4)"
        whole = 10_000.0 if step == 0 else 1_000.0
        mark = {"ph": "X", "name": name, "ts": at, "dur": whole * 0.95, "args": {}}
        events.append(mark | {"cat": "gpu_user_annotation", "pid": 0, "tid": 7})
        events.append(mark | {"cat": "user_annotation", "pid": 99, "tid": 99, "ts": at - 50.0})
        begin = at
        for what, share in (("nvjet_sm90_tst_64x8_TNT", 0.6), ("flash_fwd_kernel", 0.2), (kernel, 0.1)):
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 99, "tid": 99, "dur": 4.0}
            events.append(launch | {"ts": begin - 30.0, "args": {"correlation": correlation}})
            args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
            run = {"ph": "X", "cat": "kernel", "name": what, "pid": 0, "tid": 7, "ts": begin, "dur": whole * share}
            events.append(run | {"args": args})
            begin += whole * share
            correlation += 1
        at += whole
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_109_880_320}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "baseTimeNanoseconds": _BASE,
        "traceEvents": events,
    }


def bench(concurrency: int, requests: int = 8, tokens: int = 5) -> dict[str, Any]:
    """A detailed result of `vllm bench serve`: every first token after 100 ms, every further one after 10 ms."""
    ttft, gap = 0.100, 0.010
    life = ttft + gap * (tokens - 1)
    duration = life * requests / concurrency
    latencies = {"ttft": ttft, "tpot": gap, "itl": gap, "e2el": life}
    summary = {
        f"{statistic}_{name}_ms": value * 1e3
        for name, value in latencies.items()
        for statistic in ("mean", "median", "p50", "p90", "p95", "p99")
    }
    return {
        "date": "20261130-150000", "backend": "vllm", "endpoint_type": "vllm", "label": None, "model_id": "m",
        "tokenizer_id": "m", "num_prompts": requests, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": concurrency, "duration": duration, "completed": requests, "failed": 0,
        "total_input_tokens": 16 * requests, "total_output_tokens": tokens * requests,
        "request_throughput": requests / duration, "output_throughput": tokens * requests / duration,
        "total_token_throughput": (16 + tokens) * requests / duration,
        "input_lens": [16] * requests, "output_lens": [tokens] * requests, "ttfts": [ttft] * requests,
        "itls": [[gap] * (tokens - 1)] * requests, "generated_texts": [EVIL] * requests, "errors": [""] * requests,
        "start_times": [5.0 + life * (i // concurrency) for i in range(requests)], **summary,
    }  # fmt: skip


def small_run(folder: Path, name: str = "small", **settings: Any) -> Run:
    """A run directory with two measured points and one trace, made by the importer from files."""
    raw = folder / f"{name}-raw"
    raw.mkdir(parents=True)
    (raw / "rank0.pt.trace.json").write_text(json.dumps(kineto(**settings)))
    for concurrency in (1, 4):
        (raw / f"c{concurrency}.json").write_text(json.dumps(bench(concurrency)))
    files = sorted(raw.iterdir())
    return import_files(files, folder / name, title=f"Small run {EVIL}", notes=[f"Written by hand {EVIL}"])


def write_notebook(path: Path, *cells: tuple[str, str, list[str]]) -> Path:
    """A notebook of (`markdown` or `code`, source, tags)."""
    made: Any = nbformat.v4
    notebook = made.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for kind, source, tags in cells:
        make = made.new_markdown_cell if kind == "markdown" else made.new_code_cell
        notebook.cells.append(make(source, metadata={"tags": tags} if tags else {}))
    nbformat.write(notebook, str(path))
    return path
