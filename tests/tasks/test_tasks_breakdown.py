"""From trace files to the answer, on real traces."""

import json
import shutil
from pathlib import Path

import pytest

from perflab import terminal
from perflab.errors import InputError
from perflab.places import recorded
from perflab.schema import validate
from perflab.tasks.breakdown import breakdown
from perflab.tasks.find import recorded_runs

RUNS = [run.path.name for run in recorded_runs()]


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs_sum_to_the_nanosecond(name: str) -> None:
    report = breakdown(name)
    for rank in report.ranks:
        validate(rank.table, "breakdown")
        validate(rank.kernels, "kernels")
        assert int(rank.table["exclusive_ns"].sum()) == rank.window_ns == int(rank.steps["dur_ns"].sum())
        assert rank.busy_ns + rank.idle_ns == rank.window_ns
        assert sum(rank.idle["causes"].values()) == rank.idle_ns
        assert rank.record["categories"]["other"]["exclusive_ns"] < 0.03 * rank.busy_ns
    assert {check.status for check in report.trust} <= {"pass", "warn", "not_applicable"}


def test_the_eager_run_waits_for_the_host_and_the_cause_is_named() -> None:
    report = breakdown("llama3-8b-eager")
    rank = report.ranks[0]
    assert rank.busy_ns / rank.window_ns == pytest.approx(0.35, abs=0.01)
    first = report.findings[0]
    assert first.severity == "critical"
    assert "enforce-eager" in first.change


def test_all_reduce_is_communication_on_both_ranks() -> None:
    report = breakdown("llama3-70b-bf16-tp2")
    assert [rank.rank for rank in report.ranks] == [0, 1]
    for rank in report.ranks:
        names = rank.kernels.loc[rank.kernels["category"] == "communication", "name"].astype(str)
        assert names.str.contains("cross_device_reduce").any()
        assert names.str.contains("ncclDevKernel_AllReduce").any()
        assert 0.05 < rank.record["categories"]["communication"]["exclusive_ns"] / rank.window_ns < 0.2


def test_a_cpu_engine_is_never_spoken_of_as_a_gpu(shared: Path) -> None:
    report = breakdown(shared / "facts" / "samples" / "trace_bench_latency")
    (rank,) = report.ranks
    assert rank.kind == "cpu"
    assert rank.device == "CPU engine"
    assert rank.record["categories"]["gemm"]["exclusive_ns"] > 0.4 * rank.window_ns
    assert not rank.idle, "there is no device that could be idle"
    gpu = next(check for check in report.trust if check.check == "gpu_events")
    assert gpu.status == "not_applicable"


def test_the_json_document_is_strict_json() -> None:
    document = json.loads(json.dumps(breakdown("llama3-8b-tp2").to_json(), allow_nan=False))
    assert set(document) >= {"schema", "inputs", "trust", "ranks", "collectives", "findings", "user_rules"}
    rank = document["ranks"][0]
    assert sum(c["exclusive_ns"] for c in rank["categories"].values()) + rank["idle_ns"] == rank["window_ns"]
    assert set(rank["phases"]) == {"prefill", "decode", "mixed"}
    assert set(rank["idle"]["causes"]) == {"host_bound", "not_started", "in_graph", "no_request", "unknown"}


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "not a trace"])
def test_a_file_that_is_no_trace_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        breakdown(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_every_foreign_trace_is_answered_or_refused_in_one_line(shared: Path) -> None:
    """Training traces, other vendors, no GPU events, no steps: nothing of it may end in a traceback."""
    answered = 0
    for file in sorted((shared / "fixtures" / "kineto").rglob("*.gz")):
        if file.stat().st_size > 500_000:
            continue
        try:
            report = breakdown(file)
        except InputError as error:
            assert "\n" not in str(error)
            continue
        assert terminal.breakdown(report)
        json.dumps(report.to_json(), allow_nan=False)
        answered += 1
    assert answered >= 20


def test_a_users_rules_and_thresholds_are_applied_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, thresholds = tmp_path / "rules.toml", tmp_path / "thresholds.toml"
    rules.write_text("[[rule]]\ncategory = 'moe'\npattern = '^nvjet'\n")
    thresholds.write_text("[attention_share]\nwarning = 0.05\n")
    plain = breakdown("llama3-8b-bf16")
    mine = breakdown("llama3-8b-bf16", rules=rules, thresholds=thresholds)
    kernels = plain.ranks[0].kernels
    theirs = kernels["name"].astype(str).str.startswith("nvjet")
    share = kernels.loc[theirs, "dur_ns"].sum() / kernels["dur_ns"].sum()
    told = mine.to_json()["user_rules"]
    assert len(told) == 1 and told[0]["share"] == pytest.approx(share)
    assert all(name.startswith("nvjet") for name in told[0]["names"])
    assert plain.to_json()["user_rules"] == []
    before, after = plain.ranks[0].record["categories"], mine.ranks[0].record["categories"]
    moved = before["gemm"]["exclusive_ns"] - after["gemm"]["exclusive_ns"]
    assert moved > 0 and after["moe"]["exclusive_ns"] == moved
    assert {"user_rules", "user_thresholds"} <= {check.check for check in mine.trust}
    assert "user_rules" not in {check.check for check in plain.trust}
    assert [f.id for f in plain.findings if f.id == "attention_share"] == []
    assert [f.severity for f in mine.findings if f.id == "attention_share"] == ["warning"]

    monkeypatch.setenv("PERFLAB_RULES", str(rules))
    assert breakdown("llama3-8b-bf16").to_json()["user_rules"] == told
    monkeypatch.setenv("PERFLAB_RULES", str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="cannot be read as a file of kernel rules"):
        breakdown("llama3-8b-bf16")


def test_rules_that_match_nothing_are_said(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\ncategory = 'moe'\npattern = '^no_such_kernel'\n")
    found = [check for check in breakdown("llama3-8b-bf16", rules=rules).trust if check.check == "user_rules"]
    assert [check.status for check in found] == ["warn"]


def test_traces_alone_of_which_some_collectives_tell_their_size(tmp_path: Path) -> None:
    """Without the run around it nothing says the model's hidden size: all-reduces have no size, all-gathers have."""
    for trace in (recorded() / "llama3-8b-tp2" / "profile" / "torch").glob("rank*.json.xz"):
        shutil.copyfile(trace, tmp_path / trace.name)
    report = breakdown(tmp_path)
    sizes = report.passes[0].communication.sizes
    assert sizes["bytes"].isna().any() and sizes["bytes"].notna().any()
    assert set(sizes["bound"][sizes["bytes"].isna()]) == {None}
    assert "exposed_communication" in {finding.id for finding in report.findings}
    assert "all_reduce" in terminal.breakdown(report)


def test_a_captured_runs_finding_is_checked_by_running_it_again_with_the_change() -> None:
    found = next(f for f in breakdown("llama3-8b-tp2-nccl").findings if f.id == "exposed_communication")
    assert found.settings == {"disable_custom_all_reduce": False}
    assert found.to_json()["settings"] == {"disable_custom_all_reduce": False}
    assert found.check.startswith(
        "perflab run data/experiments/h200-tp2-nccl.yaml --set engine.args.disable_custom_all_reduce=false -o"
    )
    assert "perflab compare" in found.check
    # An imported run cannot be run again: a load to send before and after is the next best.
    imported = breakdown("llama3-8b-eager").findings[0]
    assert imported.settings and imported.check.startswith("vllm bench serve")
