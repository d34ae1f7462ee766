"""Recorded runs compared: counts made here independently, what is refused, the contract."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from perflab import terminal
from perflab.analysis.compare.traces import PhaseComparison
from perflab.errors import InputError
from perflab.runs import MANIFEST
from perflab.tasks.breakdown import RankBreakdown, breakdown
from perflab.tasks.compare import CompareReport, compare
from perflab.tasks.compare_facts import run_differences
from perflab.tasks.find import find_runs

PAIRS = [
    ("llama3-8b-bf16", "llama3-8b-fp8"),
    ("llama3-8b-bf16", "llama3-8b-awq"),
    ("llama3-8b-eager", "llama3-8b-bf16"),
    ("llama3-8b-bf16", "llama3-8b-tp2"),
    ("llama3-70b-bf16-tp2", "llama3-70b-awq-tp2"),
]


@cache
def pair(before: str, after: str) -> CompareReport:
    """Two recorded runs compared, once for all tests."""
    return compare(before, after)


@cache
def ranks_of(run: str) -> tuple[RankBreakdown, ...]:
    return tuple(breakdown(run).ranks)


def told_apart(before: str, after: str, **settings: Any) -> set[str]:
    """What differs between two recorded runs of their own accord, with settings of the second changed."""
    (one,), (other,) = find_runs([before]), find_runs([after])
    engine = msgspec.structs.replace(other.manifest.engine, settings={**other.manifest.engine.settings, **settings})
    changed = msgspec.structs.replace(other, manifest=msgspec.structs.replace(other.manifest, engine=engine))
    return {difference.key for difference in run_differences((one, changed)).own}


def test_random_weights_of_one_config_are_one_model_whatever_it_is_called() -> None:
    pair_of = ("llama3-8b-bf16-3x", "llama3-8b-tp2-nccl")
    names = {run: find_runs([run])[0].manifest.engine.settings["model"] for run in pair_of}
    assert len(set(names.values())) == 2, names
    assert told_apart(*pair_of) == {"tensor_parallel_size", "disable_custom_all_reduce"}
    # Weights that were read are told by their name; another shape is another model.
    assert "model" in told_apart(*pair_of, load_format="auto")
    assert "model" in told_apart("llama3-8b-tp2", "llama3-70b-bf16-tp2")


def phase(report: CompareReport, name: str = "decode") -> PhaseComparison:
    return next(one for one in report.phases if one.phase == name)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_times_agree_with_both_breakdowns_and_add_up(before: str, after: str) -> None:
    document = pair(before, after).to_json()
    for side, run in (("baseline", before), ("candidate", after)):
        ranks = ranks_of(run)
        for name in ("prefill", "decode", "mixed"):
            rows = [row for row in document["categories"] if row["phase"] == name]
            steps = [rank.record["phases"][name] for rank in ranks]
            assert sum(row[f"{side}_ns_per_step"] for row in rows) == pytest.approx(
                np.mean([one["window_ns"] / one["steps"] for one in steps]), abs=1
            )
            for row in rows:
                found = [
                    one["idle_ns"] if row["category"] == "idle" else one["categories"][row["category"]]["exclusive_ns"]
                    for one in steps
                ]
                mean = np.mean([ns / one["steps"] for ns, one in zip(found, steps, strict=True)])
                assert row[f"{side}_ns_per_step"] == pytest.approx(mean, abs=1)
    for one in document["phases"]:
        rows = [row for row in document["categories"] if row["phase"] == one["phase"]]
        change = sum(row["like_candidate_ns_per_step"] - row["like_baseline_ns_per_step"] for row in rows)
        assert change == one["change_ns_per_step"] == sum(row["change_ns_per_step"] for row in rows)


def test_fp8_matmuls_take_the_place_of_16_bit_ones() -> None:
    report = pair("llama3-8b-bf16", "llama3-8b-fp8")
    kernels = phase(report).shown.kernels
    # Counted here: decode steps are 2 to 8 of 9; exclusive and plain sums of matmuls agree (they hardly overlap).
    for run, side in (("llama3-8b-bf16", "baseline"), ("llama3-8b-fp8", "candidate")):
        rank = ranks_of(run)[0]
        decode = rank.steps[rank.steps["phase"] == "decode"]
        begin, end = int(decode["start_ns"].iloc[0]), int((decode["start_ns"] + decode["dur_ns"]).iloc[-1])
        names = rank.kernels["name"].astype(str)
        inside = (rank.kernels["start_ns"] >= begin) & (rank.kernels["start_ns"] < end)
        for family, word in (("CUTLASS (FP8)", "cutlass_3x_gemm_sm90_fp8"), ("cuBLASLt (nvjet, 16 bit)", "nvjet")):
            mine = rank.kernels[inside & names.str.contains(word)]
            told = kernels[kernels["family"] == family]
            assert told[f"{side}_calls"].sum() == pytest.approx(len(mine) / 7)
            assert told[f"{side}_ns"].sum() == pytest.approx(mine["dur_ns"].sum() / 7, rel=0.002)
    fp8 = kernels[kernels["family"] == "CUTLASS (FP8)"]
    # 32 layers of four matmuls; the 129th, the logits, stays in 16 bit.
    assert fp8["change"].tolist() == ["appeared"] and fp8["candidate_calls"].tolist() == [128.0]
    decode = report.findings[0]
    assert decode.id == "step_time_changed" and decode.severity == "info"
    assert "shorter" in decode.title and "GEMM" in decode.title
    assert any("CUTLASS (FP8)" in text for text in decode.evidence)
    assert [(one.key, one.expected) for one in report.differences.own] == [("quantization", True)]


def test_all_reduce_appears_with_the_second_gpu_and_only_like_batches_count() -> None:
    report = pair("llama3-8b-bf16", "llama3-8b-tp2")
    one = phase(report)
    # The second run has a decode step of one request, which the first has not.
    assert one.alike == "partly" and (one.shown.baseline.steps, one.shown.candidate.steps) == (7, 7)
    assert one.every.candidate.steps == 8
    reduce = one.shown.kernels[one.shown.kernels["family"] == "vLLM's custom all-reduce"]
    assert reduce["change"].tolist() == ["appeared"]
    assert reduce["candidate_calls"].tolist() == [65.0]  # two a layer and one after the embedding
    talk = one.shown.categories.set_index("category").loc["communication"]
    assert talk["baseline_ns"] == 0 and talk["candidate_low_ns"] < talk["candidate_ns"] < talk["candidate_high_ns"]
    assert [one.key for one in report.differences.own] == ["tensor_parallel_size"]
    assert {"GPUs"} <= {one.key for one in report.differences.found}
    assert any(check.check == "batches_alike" and check.status == "warn" for check in report.checks)


def test_late_launches_vanish_with_graphs() -> None:
    report = pair("llama3-8b-eager", "llama3-8b-bf16")
    causes = phase(report).shown.causes.set_index("cause")
    assert causes.loc["host_bound", "baseline_ns"] > 20_000_000
    assert causes.loc["host_bound", "candidate_ns"] < 100_000
    assert [one.key for one in report.differences.varied] == ["enforce_eager"]
    back = compare("llama3-8b-bf16", "llama3-8b-eager")
    assert back.findings[0].severity == "critical" and "longer" in back.findings[0].title
    assert phase(back).shown.change_ns == -phase(report).shown.change_ns


def test_the_same_run_twice_has_no_difference() -> None:
    report = compare("llama3-8b-bf16", "llama3-8b-bf16")
    assert report.differences.found == () and report.differences.untold == ()
    assert all(one.shown.change_ns == 0 for one in report.phases)
    assert all((one.shown.kernels["change"] == "same").all() for one in report.phases)
    assert {finding.id for finding in report.findings} == {"step_time_same"}


def test_two_passes_of_one_engine_are_the_same_in_decode() -> None:
    report = compare("llama3-8b-bf16", "llama3-8b-bf16-3x")
    assert report.findings[0].id == "step_time_same"
    assert abs(phase(report).shown.change) < 0.01


def test_the_contract() -> None:
    document = json.loads(json.dumps(pair("llama3-8b-bf16", "llama3-8b-tp2").to_json(), allow_nan=False))
    assert document["schema"] == 1 and document["inputs"] == ["llama3-8b-bf16", "llama3-8b-tp2"]
    assert document["metrics"] and document["primary"]
    assert {"trust", "differences", "categories", "findings", "kernels", "phases"} <= set(document)
    for row in document["categories"]:
        assert {"category", "phase", "baseline_ns_per_step", "candidate_ns_per_step"} <= set(row)
        assert isinstance(row["baseline_ns_per_step"], int) and isinstance(row["candidate_ns_per_step"], int)
    for row in document["differences"]:
        assert {"key", "baseline", "candidate", "expected"} <= set(row)
    for row in document["findings"]:
        assert {"id", "severity", "confidence", "title", "impact", "evidence", "change", "check"} <= set(row)


def test_a_side_without_traces_still_has_its_settings_compared(tmp_path: Path) -> None:
    run = tmp_path / "untraced"
    shutil.copytree(find_runs("llama3-8b-fp8")[0].path, run)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["profiles"] = []
    (run / MANIFEST).write_text(json.dumps(manifest))
    report = compare("llama3-8b-bf16", run)
    assert report.phases == [] and report.findings == []
    assert [one.key for one in report.differences.varied] == ["quantization"]
    assert len(report.missing) == 1 and "candidate (untraced)" in report.missing[0]
    assert "quantization" in terminal.compare(report) and "no trace" in terminal.compare(report)
    assert report.to_json()["categories"] == []


def test_trace_files_compare_without_settings(tmp_path: Path) -> None:
    files = [next(find_runs(name)[0].path.glob("profile/torch/rank0*")) for name in ("llama3-8b-bf16", "llama3-8b-fp8")]
    report = compare(*files)
    assert phase(report).shown.change_ns == phase(pair("llama3-8b-bf16", "llama3-8b-fp8")).shown.change_ns
    told = next(check for check in report.checks if check.check == "one_difference")
    assert told.status == "warn" and "not told" in told.detail
    assert "not known" in report.findings[0].change


def test_a_teacher_is_not_compared_with_a_measured_pass(tmp_path: Path) -> None:
    run = tmp_path / "taught"
    shutil.copytree(find_runs("llama3-8b-bf16-3x")[0].path, run)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["profiles"] = [one for one in manifest["profiles"] if one.get("role") == "teacher"]
    (run / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="teacher"):
        compare("llama3-8b-bf16", run)
    assert compare(run, run).phases


def test_unlike_batches_withhold_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perflab.tasks import compare as module

    real = module.pass_breakdown

    def doubled(source: Any, users: Any, **more: Any) -> Any:
        found = real(source, users, **more)
        if "FP8" in source.run:
            for rank in found.ranks:
                rank.steps["decode_requests"] *= 2
                rank.steps["decode_tokens"] *= 2
        return found

    monkeypatch.setattr(module, "pass_breakdown", doubled)
    report = compare("llama3-8b-bf16", "llama3-8b-fp8")
    assert any(check.status == "fail" and "decode" in check.detail for check in report.checks)
    assert report.findings[0].withheld and report.findings[0].impact is None
    rows = [row for row in report.to_json()["categories"] if row["phase"] == "decode"]
    assert all(row["like_baseline_ns_per_step"] is None for row in rows)


@pytest.mark.parametrize("name", ["no-such-run", "."])
def test_what_is_no_run_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        compare("llama3-8b-bf16", name)


def trace_file(path: Path, *kernels: tuple[str, float, float]) -> Path:
    """A trace of kernels (name, start and duration in microseconds) without annotations of steps."""
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
         "args": {"device": 0, "stream": 7, "correlation": i}}
        for i, (name, ts, dur) in enumerate(kernels)
    ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return path


def test_without_steps_only_shares_of_the_window_compare(tmp_path: Path) -> None:
    before = trace_file(tmp_path / "a.json", ("nvjet_sm90_tst_x", 0, 50), ("flash::flash_fwd", 50, 50))
    after = trace_file(tmp_path / "b.json", ("nvjet_sm90_tst_x", 0, 25), ("flash::flash_fwd", 50, 50))
    report = compare(before, after)
    assert report.phases == [] and report.findings == []
    assert report.window_shares() == {"attention": (0.5, 0.5), "gemm": (0.5, 0.25), "idle": (0.0, 0.25)}
    row = next(row for row in report.to_json()["categories"] if row["category"] == "gemm")
    assert row["baseline_ns_per_step"] is None and (row["baseline_share"], row["candidate_share"]) == (0.5, 0.25)
    assert any(check.check == "batches_alike" and check.status == "fail" for check in report.checks)
    assert "-25.0" in terminal.compare(report)


def test_a_trace_without_activity_is_named(tmp_path: Path) -> None:
    empty = trace_file(tmp_path / "empty.json")
    report = compare("llama3-8b-bf16", empty)
    assert report.phases == [] and any("empty.json" in text for text in report.missing)
    assert report.to_json()["categories"] == []


def test_two_passes_of_one_engine_on_two_gpus_differ_by_the_host_alone() -> None:
    report = pair("llama3-8b-tp2", "llama3-8b-tp2-custom")
    assert report.differences.own == ()
    for one in report.phases:
        assert one.shown.change > 0.06 and abs(one.shown.gpu_change) < 0.02
    assert {finding.id for finding in report.findings} == {"step_time_host"}
    assert {finding.severity for finding in report.findings} == {"info"}
    # Counted here, of rank 1 in decode: idle that a late call ended, and waiting that the collectives tell.
    passed = report.candidate.passed
    assert passed is not None and passed.communication is not None
    late = [rank.idle["phases"]["decode"]["causes"]["host_bound"] / 8 for rank in passed.ranks]
    totals = passed.communication.totals()
    waits = totals.loc[totals["phase"] == "decode", "wait_ns"] / 8
    time = phase(report).shown.candidate
    assert time.late_ns == pytest.approx(np.mean(late), abs=1)
    assert time.wait_ns == pytest.approx(waits.mean(), abs=1)


def test_what_the_gpu_does_decides_where_launches_are_late() -> None:
    report = pair("llama3-8b-bf16", "llama3-8b-awq")
    decode = report.findings[0]
    assert abs(phase(report).shown.change) < 0.03 and phase(report).shown.gpu_change < -0.1
    assert decode.id == "step_time_changed" and decode.title.startswith("What the GPU does in a decode step")
    assert decode.impact is not None and decode.impact["value"] < -0.7


def test_a_users_rules_and_thresholds_reach_both_sides(tmp_path: Path) -> None:
    rules, thresholds = tmp_path / "rules.toml", tmp_path / "thresholds.toml"
    rules.write_text("[[rule]]\ncategory = 'moe'\npattern = 'nvjet|cutlass_3x_gemm'\n")
    thresholds.write_text("[step_change]\ninfo = 0.5\nwarning = 0.6\ncritical = 0.7\n")
    report = compare("llama3-8b-bf16", "llama3-8b-fp8", rules=rules, thresholds=thresholds)
    plain = phase(pair("llama3-8b-bf16", "llama3-8b-fp8")).shown
    mine = phase(report).shown.categories.set_index("category")["change_ns"]
    theirs = plain.categories.set_index("category")["change_ns"]
    assert mine["moe"] + mine["gemm"] == pytest.approx(theirs["gemm"], abs=1)
    assert phase(report).shown.change_ns == plain.change_ns
    assert report.findings[0].id == "step_time_same"
    assert len(report.to_json()["user_rules"]) == 2
    assert sum(check.check == "user_thresholds" for check in report.trust) == 2
