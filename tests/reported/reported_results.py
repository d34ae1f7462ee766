"""Small results of `vllm bench serve`, made by hand request by request, and runs of them with the server's counters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perflab.analysis.check import Check
from perflab.cli import main
from perflab.runs import SCHEMA, Engine, Load, Manifest, Point, RunWriter
from perflab.tasks.latency import LatencyReport


@dataclass(frozen=True)
class Sent:
    """One request: when it was sent, its TTFT, the gaps between its chunks (seconds), and its output tokens."""

    at: float
    ttft: float | None
    gaps: Sequence[float] = ()
    tokens: int | None = None
    prompt: int = 16
    error: str = ""

    @property
    def life(self) -> float:
        return (self.ttft or 0.0) + sum(self.gaps)


def result(requests: Sequence[Sent], **more: Any) -> dict[str, Any]:
    """A detailed result as vLLM 0.32 writes it, without aggregates: what is shown must come from the requests."""
    good = [one for one in requests if not one.error]
    end = max((one.at + one.life for one in good), default=1.0)
    duration = end - min(one.at for one in requests)
    tokens = [0 if one.error else (len(one.gaps) + 1 if one.tokens is None else one.tokens) for one in requests]
    return {
        "date": "20261130-150000", "backend": "vllm", "model_id": "m", "num_prompts": len(requests),
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": None, "duration": duration,
        "completed": len(good), "failed": len(requests) - len(good), "total_output_tokens": sum(tokens),
        "total_input_tokens": sum(one.prompt for one in good),
        "input_lens": [one.prompt for one in requests], "output_lens": tokens,
        "ttfts": [one.ttft for one in requests], "itls": [list(one.gaps) for one in requests],
        "latencies": [0.0 if one.error else one.life for one in requests],
        "start_times": [1000.0 + one.at for one in requests], "queue_times": [0.0] * len(requests),
        "generated_texts": [""] * len(requests), "errors": [one.error for one in requests],
        **more,
    }  # fmt: skip


def aggregates(**more: Any) -> dict[str, Any]:
    """A result without single requests, as `--save-result` alone writes it."""
    return {
        "date": "20261130-150000", "backend": "vllm", "model_id": "m", "num_prompts": 200, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": None, "duration": 100.0, "completed": 200, "failed": 0,
        "total_input_tokens": 3200, "total_output_tokens": 20_000, "request_throughput": 2.0,
        "output_throughput": 200.0, "total_token_throughput": 232.0, **more,
    }  # fmt: skip


def write(path: Path, *documents: Any) -> Path:
    """JSON, or the text that is given."""
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents))
    return path


def measured_run(folder: Path, points: Mapping[str, tuple[dict[str, Any], str, str]], **of: Any) -> Path:
    """A run directory of perflab's: by name of a point its result, and /metrics before and after it."""
    writer = RunWriter(folder, Manifest(
        schema=SCHEMA, id=folder.name, title=folder.name, origin="captured", created="2026-11-30T15:00:00+00:00",
        perflab_version="0", engine=Engine(vllm_version="0.32.0", model="m"),
    ))  # fmt: skip
    made = []
    for name, (document, before, after) in points.items():
        for file, text in (
            (f"{name}.json", json.dumps(document)),
            (f"{name}-before", before),
            (f"{name}-after", after),
        ):
            (folder / file).write_text(text)
        load = Load(concurrency=document["max_concurrency"])
        made.append(Point(
            id=name, workload="w", load=load, num_prompts=document["num_prompts"], status="complete",
            bench=f"{name}.json", metrics_before=f"{name}-before", metrics_after=f"{name}-after", **of,
        ))  # fmt: skip
    writer.update(points=made, status="complete")
    return folder


def counters(**values: float) -> str:
    """/metrics with these counters of vLLM."""
    lines = [f'# TYPE vllm:{name} counter\nvllm:{name}_total{{engine="0"}} {value}' for name, value in values.items()]
    return "\n".join(lines) + "\n"


def histogram(name: str, total: float, count: int) -> str:
    """/metrics with one histogram: its sum and count, all in the last bucket."""
    labels = 'engine="0"'
    return (
        f"# TYPE vllm:{name} histogram\n"
        f'vllm:{name}_bucket{{{labels},le="+Inf"}} {count}\n'
        f"vllm:{name}_sum{{{labels}}} {total}\nvllm:{name}_count{{{labels}}} {count}\n"
    )


def check(report: LatencyReport, name: str, run: int = 0) -> Check:
    """One check of one measured point."""
    return next(one for one in report.runs[run].validity if one.check == name)


def document(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `perflab latency PATH --json` prints, of the one point there is."""
    capsys.readouterr()
    assert main(["latency", str(path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return run
