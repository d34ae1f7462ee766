"""Our tables say what `vllm bench serve` said."""

import json
from pathlib import Path

import client_files as made
import pytest

from perflab import terminal
from perflab.errors import InputError
from perflab.read.files import read_text
from perflab.report.points import points_table
from perflab.tasks.find import recorded_runs
from perflab.tasks.imports import import_files
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


def test_what_a_client_defines_otherwise_reaches_table_json_and_terminal(tmp_path: Path) -> None:
    files = [tmp_path / "guidellm.json", tmp_path / "aiperf.json"]
    files[0].write_text(json.dumps(made.guidellm(requests=False)))
    files[1].write_text(json.dumps(made.aiperf()))
    report = latency([*files, "llama3-8b-bf16"])
    assert list(report.points["client"])[:3] == ["GuideLLM", "AIPerf", "vllm bench"]
    assert list(report.points["differs"])[:2] == ["TTFT, ITL, E2EL", "TPOT, output tokens/s, total tokens/s"]
    assert report.points["differs"][2:].isna().all()
    first = report.to_json()["runs"][0]
    assert first["client"] == "GuideLLM"
    codes = {one["code"]: (one["metrics"], one["differs"]) for one in first["definitions"]}
    assert codes["itl_of_requests"] == (["itl_ms"], True) and codes["tpot_from_itl"] == (["tpot_ms"], False)
    shown = terminal.latency(report)
    assert "200.00*" in shown and "30.00*" in shown and "not defined as in `vllm bench serve`" in shown
    assert "GuideLLM's own time per output token includes the first token" in shown
    table = points_table(report)
    assert list(table["client"])[:2] == ["GuideLLM", "AIPerf"]
    assert table.loc[0, "not as in vLLM"] == "TTFT, ITL, E2EL"
    assert "client" not in points_table(latency("llama3-8b-bf16")), "no news where vLLM's client measured"


def test_a_folder_of_one_client_is_one_measurement(tmp_path: Path) -> None:
    """AIPerf writes the same run three times over; inference-perf its stages, their sum, and all requests."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "profile_export_aiperf.json").write_text(json.dumps(made.aiperf()))
    (tmp_path / "a" / "profile_export_aiperf.csv").write_text(made.AIPERF_CSV)
    (tmp_path / "a" / "profile_export.jsonl").write_text(made.aiperf_records())
    (tmp_path / "a" / "phases" / "warmup").mkdir(parents=True)
    (tmp_path / "a" / "phases" / "warmup" / "profile_export_aiperf.json").write_text(json.dumps(made.aiperf()))
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "stage_0_lifecycle_metrics.json").write_text(json.dumps(made.inference_perf()))
    (tmp_path / "i" / "summary_lifecycle_metrics.json").write_text(json.dumps(made.inference_perf(stage=False)))
    (tmp_path / "i" / "per_request_lifecycle_metrics.json").write_text(json.dumps(made.inference_perf_requests()))
    names = [measured.source.name for measured in latency(tmp_path).runs]
    assert names == ["profile_export.jsonl", "stage_0_lifecycle_metrics.json"]
    manifest = import_files([tmp_path], tmp_path / "run").manifest
    assert sorted(point.id for point in manifest.points) == ["profile_export", "stage_0_lifecycle_metrics"]
    assert len(manifest.other_files) == 5 and all("same run as" in note for note in manifest.notes)


@pytest.mark.parametrize(("name", "text", "points"), [
    ("report.json", json.dumps(made.guidellm()), 1),
    ("console.txt", made.SGLANG_CONSOLE * 2 + made.SGLANG_CONSOLE.replace("264.25", "260.14"), 2),
    ("profile_export.json", json.dumps(made.perf_analyzer()), 1),
    ("result.jsonl", json.dumps(made.sglang()) + "\n" + json.dumps(made.sglang(duration=3.0)), 2),
    ("forward.json", json.dumps(made.forward()), 2),
    ("report.yaml", made.LLMD.format(tool="inference-perf"), 1),
])  # fmt: skip
def test_what_import_keeps_reads_the_same_again(tmp_path: Path, name: str, text: str, points: int) -> None:
    (tmp_path / name).write_text(text)
    run = import_files([tmp_path / name], tmp_path / "run")
    assert len(run.manifest.points) == points
    alone, again = latency(tmp_path / name), latency(run.path)
    first = alone.points.drop_duplicates("duration_s", ignore_index=True)
    figures = [
        "completed",
        "failed",
        "duration_s",
        "ttft_mean_ms",
        "tpot_mean_ms",
        "e2el_p50_ms",
        "output_tokens_per_s",
    ]
    assert again.points[figures].equals(first[figures])
    assert [one.metrics for one in again.offline] == [one.metrics for one in alone.offline]
