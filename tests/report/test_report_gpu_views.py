"""What notebooks 03 and 04 show of recorded runs, against independent counts."""

from typing import Any

import pandas as pd
import pytest

from perflab.report import gpu_views, rank_views
from perflab.tasks.breakdown import BreakdownReport, breakdown
from perflab.tasks.find import find_runs
from perflab.tasks.kv_pressure import USE, kv_pressure

RUNS = ["llama3-8b-bf16-3x", "llama3-8b-tp2-nccl", "llama3-8b-tp2-custom", "llama3-70b-bf16-tp2"]


@pytest.fixture(scope="module")
def report() -> BreakdownReport:
    return breakdown(RUNS)


def shares(row: Any) -> float:
    return float(sum(value for name, value in row.items() if str(name).endswith(" share") and name != "reached share"))


def test_one_minute_with_the_70b_report_answers_what_takes_and_bounds_a_step(report: BreakdownReport) -> None:
    table = gpu_views.answer_table(report)
    of = table[table["run"] == "llama3-70b-bf16-tp2"].set_index("phase")
    assert set(of.index) == {"prefill", "decode", "mixed"}
    assert [shares(row) for _, row in table.iterrows()] == pytest.approx([1.0] * len(table))
    decode = of.loc["decode"]
    ranks = [rank.record["phases"]["decode"] for rank in report.ranks if "70B" in rank.run]
    window = sum(rank["window_ns"] for rank in ranks)
    for name, category in (("GEMM share", "gemm"), ("attention share", "attention"), ("comm. share", "communication")):
        assert decode[name] == pytest.approx(sum(r["categories"][category]["exclusive_ns"] for r in ranks) / window)
    assert decode["idle share"] == pytest.approx(sum(r["idle_ns"] for r in ranks) / window)
    assert (decode["bound by"], of.loc["mixed", "bound by"]) == ("memory bandwidth", "compute")
    assert 0.7 < decode["reached share"] < 0.85
    first = next(line for line in gpu_views.first_steps(report).splitlines() if "llama3-70b-bf16-tp2" in line)
    assert "memory bandwidth" in first and "--quantization fp8" in first


def test_a_run_of_which_nothing_stands_out_says_so(report: BreakdownReport) -> None:
    import dataclasses

    quiet = [dataclasses.replace(one, findings=[]) for one in report.passes]
    lines = gpu_views.first_steps(dataclasses.replace(report, passes=quiet)).splitlines()
    assert len(lines) == 4 and all("no rule found anything" in line for line in lines)


def test_memory_as_bandwidth_is_a_share_of_the_step(report: BreakdownReport) -> None:
    table = gpu_views.bandwidth_table(report)
    parts = ["bandwidth-bound kernels share", "KV cache writes share", "copies and sets share"]
    assert table[parts].sum(axis=1).tolist() == pytest.approx(table["in all share"].tolist())
    decode = table[(table["run"] == "llama3-70b-bf16-tp2") & (table["phase"] == "decode")].iloc[0]
    assert decode["in all share"] > 0.8
    assert 69e9 < decode["at_least_moved_bytes"] < 72e9, "65.7 GiB of weights a GPU, and a little KV cache"


def test_every_run_has_parts_and_layers(report: BreakdownReport) -> None:
    assert [piece["run"] for piece in gpu_views.module_pieces(report)] == RUNS
    layers = {piece["run"]: piece["table"]["layer"].nunique() for piece in gpu_views.layer_pieces(report)}
    assert layers == dict(zip(RUNS, (32, 32, 32, 80), strict=True))
    rungs = gpu_views.rungs(report)
    assert rungs.groupby("run")["share"].sum().tolist() == pytest.approx([1.0] * 4)


def test_only_runs_with_several_ranks_communicate(report: BreakdownReport) -> None:
    assert [piece["of"] for piece in rank_views.waiting_pieces(report)] == RUNS[1:]
    assert [piece["of"] for piece in rank_views.arrival_pieces(report)] == RUNS[1:]
    text = rank_views.communication_sentences(report)
    assert "llama3-8b-bf16-3x" not in text
    assert text.count("plausible for a collective of that size") == 3, "each against NVLink"
    alone = breakdown("llama3-8b-bf16")
    assert rank_views.waiting_pieces(alone) == [] and "several ranks" in rank_views.communication_sentences(alone)
    assert rank_views.size_table(alone).empty and rank_views.expert_table(alone).empty


def test_notebook_04_keeps_to_findings_about_ranks(report: BreakdownReport) -> None:
    found = rank_views.rank_findings(report)
    assert found and {finding.id for finding in found} == {"exposed_communication"}
    assert len(found) < len(report.findings)


def test_custom_all_reduce_is_faster_for_small_messages(report: BreakdownReport) -> None:
    table = rank_views.size_table(report)
    small = table[(table["phase"] == "decode") & (table["op"] == "all-reduce") & (table["message"] == "~64.0 KiB")]
    times = dict(zip(small["by"], small["time_each_ns"], strict=True))
    assert set(times) == {"nccl", "custom"}
    assert 3_000 < times["custom"] < times["nccl"] < 9_000
    assert (table["of the link share"].dropna() < 1).all()


def test_runs_of_one_shape_are_set_beside_the_one_before() -> None:
    found = rank_views.comparisons(find_runs([*RUNS, "qwen3-30b-a3b-ep2"]))
    assert [(one.baseline.name, one.candidate.name) for one in found] == [(RUNS[0], RUNS[1]), (RUNS[1], RUNS[2])]
    table = rank_views.difference_table(found)
    between = table[table["between"] == f"{RUNS[1]} → {RUNS[2]}"]
    assert between["setting"].tolist() == ["disable_custom_all_reduce"]
    told = rank_views.change_sentences(found).splitlines()
    assert len(told) == 6 and "shorter" in told[0], "three phases each; without late launches two GPUs are faster"
    pieces = rank_views.change_pieces(found)
    assert [(piece["baseline"], piece["candidate"]) for piece in pieces] == [(RUNS[0], RUNS[1]), (RUNS[1], RUNS[2])]


def test_the_kv_cache_over_time_comes_from_the_best_source() -> None:
    runs = find_runs(["llama3-8b-bf16-3x", "llama3-70b-bf16-tp2"])
    pieces = gpu_views.pressure_pieces(runs)
    assert ["the steps" in piece["of"] for piece in pieces] == [True, False]
    assert "log" in pieces[1]["of"] and "208 requests waiting" in pieces[1]["title"]
    records, log = (kv_pressure(run) for run in runs)
    assert records is not None and log is not None
    assert (records.source, log.source) == ("step_records", "log")
    assert 0 < (records.most(USE) or 0) < 0.1 < (log.most(USE) or 0) < 1
    times = records.samples[records.samples["metric"] == USE]["t_ns"]
    assert times.is_monotonic_increasing and len(times) <= 602
    assert isinstance(records.samples, pd.DataFrame) and records.most("nothing") is None
