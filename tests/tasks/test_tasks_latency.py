"""Our tables say what `vllm bench serve` said."""

import json
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.read.files import read_text
from perflab.tasks.find import recorded_runs
from perflab.tasks.latency import latency

RUNS = [run.path.name for run in recorded_runs()]
REPORTED = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_throughput",
    "total_tokens_per_s": "total_token_throughput",
}


def printed(value: float) -> str:
    """As the client prints it: two digits after the point."""
    return f"{value:.2f}"


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs_equal_what_vllm_printed(name: str) -> None:
    report = latency(name)
    assert len(report.runs) >= 2
    for measured in report.runs:
        raw = json.loads(read_text(measured.source)[0])
        compared = 0
        for metric in ("ttft", "tpot", "itl", "e2el"):
            for statistic, key in {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}.items():
                ours, theirs = measured.metrics[f"{metric}_ms"][statistic], raw.get(f"{key}_{metric}_ms")
                if theirs is not None:
                    compared += 1
                    assert printed(ours) == printed(theirs), f"{measured.point.id} {statistic} {metric}"
        for ours, theirs in REPORTED.items():
            assert printed(measured.metrics[ours]) == printed(raw[theirs])
        assert compared >= 12
        assert (measured.result.completed, measured.result.failed) == (raw["completed"], raw["failed"])


def test_a_row_of_the_table_is_a_point_and_what_is_not_measured_is_na() -> None:
    table = latency(["llama3-8b-bf16", "llama3-8b-tp2"]).points
    assert len(table) == 7
    assert table["goodput_per_s"].isna().all(), "no objective was set"
    assert (table["failed"] == 0).all()


def test_the_profiled_result_is_no_measurement() -> None:
    for run in recorded_runs():
        assert "profiled" not in {point.id for point in run.manifest.points}
        assert all(profile.bench for profile in run.manifest.profiles if profile.status == "complete")


def test_the_json_document_is_strict_json() -> None:
    document = latency("llama3-8b-bf16").to_json()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["runs"][0]["metrics"]["goodput_per_s"] is None


def test_a_folder_of_results_counts_no_result_twice(shared: Path) -> None:
    report = latency(shared / "facts" / "samples" / "sweep" / "results")
    assert [measured.result.completed for measured in report.runs] == [4, 4, 4, 4]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        latency(tmp_path)
    with pytest.raises(InputError, match="no such run directory or recorded run; did you mean llama3-8b-bf16"):
        latency("llama3-8b-bf17")


def test_results_without_a_server_are_shown_apart(shared: Path) -> None:
    report = latency([shared / "facts" / "samples" / "bench" / f"{kind}.json" for kind in ("latency", "throughput")])
    assert report.runs == [] and len(report.points) == 0
    by_kind = {point.result.kind: point.metrics for point in report.offline}
    assert by_kind["latency"]["avg_latency"] == pytest.approx(0.8935758)
    assert by_kind["throughput"]["request_throughput"] == pytest.approx(3.9659347)
    assert [entry["kind"] for entry in report.to_json()["offline"]] == ["latency", "throughput"]
