"""What GuideLLM 0.8.1 and AIPerf 0.13 wrote of GuideLLM's mock server: 100 ms to the first token, then 20 ms a token.

Both sent chat requests, 4 at a time, 16 tokens each. Cut to a few requests and to what is read; figures are as written.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from perflab.read.files import sniff
from perflab.read.results import read_results
from perflab.tasks.latency import measured_metrics

RECORDED = Path(__file__).with_name("clients_recorded")


def test_guidellm_says_of_each_request_what_we_compute() -> None:
    file = RECORDED / "guidellm-0.8.1.json"
    raw = json.loads(file.read_text())["benchmarks"][0]["requests"]["successful"]
    (result,) = read_results(file)
    assert (result.meta.max_concurrency, result.meta.model, result.meta.num_prompts) == (4, "m", 24)
    table = result.requests
    assert table is not None and len(table) == len(raw) == 5
    by_start = sorted(raw, key=lambda one: one["request_start_time"])
    for ours, theirs in zip(table.to_dict("records"), by_start, strict=True):
        assert ours["ttft_ns"] / 1e6 == pytest.approx(theirs["time_to_first_token_ms"], abs=1e-3)
        tpot = (ours["latency_ns"] - ours["ttft_ns"]) / (ours["output_tokens"] - 1) / 1e6
        assert tpot == pytest.approx(theirs["inter_token_latency_ms"], abs=1e-3)
        assert ours["latency_ns"] / 1e9 < theirs["request_latency"], "to the last token, not to the end of the response"
    assert measured_metrics(result, {})["tpot_ms"]["mean"] == pytest.approx(20, abs=1), "its own figure is 27 ms"


def test_guidellms_summary_gives_its_means(tmp_path: Path) -> None:
    """All 24 requests, as GuideLLM summed them up."""
    document = json.loads((RECORDED / "guidellm-0.8.1.json").read_text())
    document["benchmarks"][0]["requests"] = {"successful": [], "errored": [], "incomplete": []}
    (tmp_path / "report.json").write_text(json.dumps(document))
    (result,) = read_results(tmp_path / "report.json")
    metrics = measured_metrics(result, {})
    assert metrics["ttft_ms"]["mean"] == pytest.approx(123.32056959470113)
    assert metrics["tpot_ms"]["mean"] == pytest.approx(20.487298568089802)
    assert metrics["requests_per_s"] == pytest.approx(9.026454914486422, rel=1e-6)
    assert metrics["output_tokens_per_s"] == pytest.approx(144.42327863178275, rel=1e-6)
    assert (result.completed, result.failed, result.total_output_tokens) == (24, 0, 384)


def test_aiperfs_records() -> None:
    file = RECORDED / "aiperf-0.13-records.jsonl"
    assert sniff(file) == "aiperf_records"
    (result,) = read_results(file)
    assert result.completed == 6 and "1 warm-up requests" in result.notes[0]
    assert (result.total_output_tokens, result.meta.extra["total_output_tokens_text"]) == (96, 60)
    assert result.chunks is not None and set(result.chunks["token_count"]) == {1}
    metrics = measured_metrics(result, {})
    raw = [json.loads(line)["metrics"] for line in file.read_text().splitlines()[1:]]
    assert metrics["ttft_ms"]["mean"] == pytest.approx(
        np.mean([one["time_to_first_token"]["value"] for one in raw]), abs=1e-3
    )
    gaps = [gap for one in raw for gap in one["inter_chunk_latency"]["value"]]
    assert metrics["itl_ms"]["mean"] == pytest.approx(np.mean(gaps), abs=1e-3) and metrics["itl_ms"]["n"] == len(gaps)
    assert metrics["itl_ms"]["per_token_ms"] == pytest.approx(metrics["itl_ms"]["mean"], rel=1e-6)


def test_aiperfs_summary_by_the_servers_tokens() -> None:
    """By the text an answer has 10 tokens, by usage 16: 40.8 ms a token become 24.5."""
    (result,) = read_results(RECORDED / "aiperf-0.13-summary.json")
    assert (result.client, result.meta.model, result.meta.max_concurrency, result.meta.num_prompts) == (
        "AIPerf",
        "m",
        4,
        24,
    )
    assert result.reported["mean_ttft_ms"] == 113.69059179166666
    assert result.reported["mean_tpot_ms"] == pytest.approx(40.80186663425926 * 9 / 15)
    assert result.reported["mean_itl_ms"] == pytest.approx(24.481119980555555)
    assert result.reported["mean_tpot_ms"] == pytest.approx(result.reported["mean_itl_ms"], rel=1e-6), (
        "one token a chunk"
    )
    assert (result.completed, result.total_output_tokens, result.marks) == (24, 384, ("itl_is_tpot",))


def test_aiperfs_csv_has_the_same_to_two_decimals() -> None:
    (csv,), (summary,) = (read_results(RECORDED / f"aiperf-0.13-summary.{end}") for end in ("csv", "json"))
    shared = [key for key in csv.reported if key.endswith("_ms") and key in summary.reported]
    assert len(shared) >= 30
    for key in shared:
        assert csv.reported[key] == pytest.approx(summary.reported[key], abs=0.0051), key
    assert (csv.completed, csv.total_output_tokens) == (24, 384)
