"""Every sample and every recording: our figures are those vLLM wrote, to the last digit that it prints."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflab.read.files import sniff
from perflab.read.results import read_results
from perflab.tasks.latency import latency, measured_metrics

STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
RATES = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_throughput",
    "total_tokens_per_s": "total_token_throughput",
}


def agreed(metrics: dict[str, Any], raw: dict[str, Any], *, digits: int = 2) -> int:
    """How many figures there were to compare; all agree as printed."""
    compared = 0
    for name in ("ttft", "tpot", "itl", "e2el"):
        for ours, theirs in STATISTICS.items():
            told = raw.get(f"{theirs}_{name}_ms")
            if told is None:
                continue
            shown = metrics[f"{name}_ms"]
            assert f"{shown[ours]:.{digits}f}" == f"{told:.{digits}f}", (name, theirs)
            compared += 1
    for ours, theirs in RATES.items():
        assert f"{metrics[ours]:.{digits}f}" == f"{raw[theirs]:.{digits}f}", theirs
        compared += 1
    return compared


def serve_results(shared: Path) -> list[Path]:
    folders = (shared / "facts" / "samples", shared / "recordings" / "h200")
    files = [file for folder in folders for file in sorted(folder.rglob("*.json")) if file.stat().st_size < 2**22]
    return [file for file in files if sniff(file) == "bench_serve"]


def test_serve(shared: Path) -> None:
    files = serve_results(shared)
    assert len(files) >= 30
    detailed = 0
    for file in files:
        raw = json.loads(file.read_text())
        (result,) = read_results(file)
        metrics = measured_metrics(result, {})
        assert agreed(metrics, raw) >= 9, file
        assert (result.completed, result.failed) == (raw["completed"], raw["failed"])
        detailed += metrics["source"] == "computed"
    assert detailed >= 10, "computed again from single requests, not copied"


def test_what_serve_prints(shared: Path) -> None:
    """Each printed line that has a counterpart, against the JSON of the same run."""
    bench = shared / "facts" / "samples" / "bench"
    for name in ("serve", "serve_detailed"):
        printed = (bench / f"{name}.stdout.txt").read_text()
        metrics = latency(bench / f"{name}.json").runs[0].metrics
        lines = dict(re.findall(r"^([A-Z][^:\n]+):\s+([\d.]+)\s*$", printed, re.MULTILINE))
        compared = 0
        for metric in ("TTFT", "TPOT", "ITL", "E2EL"):
            for word, ours in (("Mean", "mean"), ("Median", "p50"), ("P90", "p90"), ("P99", "p99")):
                if (told := lines.get(f"{word} {metric} (ms)")) is not None:
                    assert f"{metrics[f'{metric.lower()}_ms'][ours]:.2f}" == told, (word, metric)
                    compared += 1
        assert lines["Request throughput (req/s)"] == f"{metrics['requests_per_s']:.2f}"
        assert lines["Output token throughput (tok/s)"] == f"{metrics['output_tokens_per_s']:.2f}"
        assert lines["Total token throughput (tok/s)"] == f"{metrics['total_tokens_per_s']:.2f}"
        assert compared >= 9


def test_console_text_alone_gives_the_same(shared: Path) -> None:
    bench = shared / "facts" / "samples" / "bench"
    for name in ("serve", "serve_detailed"):
        metrics = latency(bench / f"{name}.stdout.txt").runs[0].metrics
        assert agreed(metrics, json.loads((bench / f"{name}.json").read_text())) >= 9


@pytest.fixture
def offline(shared: Path) -> dict[str, Any]:
    folder = shared / "facts" / "samples" / "bench"
    report = latency([folder / f"{kind}.json" for kind in ("latency", "throughput", "startup")])
    printed = {kind: (folder / f"{kind}.out").read_text() for kind in ("latency", "throughput", "startup")}
    return {one.result.kind: (one.metrics, one.result, printed[one.result.kind]) for one in report.offline}


def test_bench_latency(offline: dict[str, Any]) -> None:
    """All digits: it prints Python's own."""
    metrics, result, printed = offline["latency"]
    assert f"Avg latency: {metrics['avg_latency']} seconds" in printed
    told = re.findall(r"^(\d+)% percentile latency: (\S+) seconds", printed, re.MULTILINE)
    assert len(told) == 6
    for percent, value in told:
        assert str(metrics[f"p{percent}_latency"]) == value
        assert np.percentile(result.series["latencies"], int(percent)) == pytest.approx(float(value), rel=1e-12)


def test_bench_throughput(offline: dict[str, Any]) -> None:
    metrics, result, printed = offline["throughput"]
    total = f"{metrics['total_token_throughput']:.2f}"
    assert f"Throughput: {metrics['request_throughput']:.2f} requests/s, {total} total tokens/s" in printed
    assert result.meta.num_prompts / result.duration_s == pytest.approx(metrics["request_throughput"])


def test_bench_startup(offline: dict[str, Any]) -> None:
    metrics, _, printed = offline["startup"]
    cold, warm = printed.split("COLD STARTUP:")[1].split("WARM STARTUP:")
    for when, text in (("cold", cold), ("warm", warm)):
        assert f"Avg startup time: {metrics[f'avg_{when}_startup_time']:.2f} seconds" in text
        assert f"Avg compilation time: {metrics[f'avg_{when}_compilation_time']:.2f} seconds" in text
        for percent, value in re.findall(r"(\d+)%: ([\d.]+) seconds", text.split("Compilation time percentiles")[0]):
            assert f"{metrics[f'p{percent}_{when}_startup']:.2f}" == value
