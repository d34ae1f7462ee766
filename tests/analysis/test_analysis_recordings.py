"""The chain from a real trace to a breakdown, on recordings of vLLM on H200 and of its CPU engine."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from perflab.analysis.breakdown import breakdown, cpu_breakdown, overlaps, summary
from perflab.analysis.checks import TraceFacts, trace_checks
from perflab.analysis.findings import Finding, pass_findings
from perflab.analysis.idle import idle_gaps, idle_summary
from perflab.analysis.intervals import union_length
from perflab.analysis.kernels import categorize, graph_share, name_totals
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.analysis.steps import steps_from_ranges
from perflab.read.kineto import read_kineto
from perflab.read.trace import Trace
from perflab.runs import Engine

RUNS = {
    "llama3-8b-bf16": (9, 7), "llama3-8b-fp8": (9, 7), "llama3-8b-awq": (9, 7), "llama3-8b-eager": (9, 7),
    "llama3-8b-tp2": (10, 8), "llama3-70b-bf16-tp2": (10, 8), "llama3-70b-awq-tp2": (10, 8),
    "llama3-8b-nograph-stacks": (5, 3),
}  # fmt: skip
"""Run -> steps and decode steps of a rank, read off the annotations by eye."""


@lru_cache(maxsize=16)
def traces(folder: Path) -> list[Trace]:
    return [read_kineto(path) for path in sorted(folder.glob("rank*.json.gz"))]


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, shared: Path) -> tuple[str, list[Trace]]:
    return request.param, traces(shared / "recordings" / "h200" / request.param / "trace")


def test_a_real_trace_is_taken_apart_exactly(run: tuple[str, list[Trace]]) -> None:
    name, ranks = run
    assert len(ranks) == (2 if "tp2" in name else 1)
    for trace in ranks:
        kernels = categorize(trace.kernels)
        steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
        assert (len(steps), int((steps["phase"] == "decode").sum())) == RUNS[name]
        assert set(steps["bounded_by"]) == {"device"}

        table = breakdown(kernels, steps)
        assert table.groupby("step")["exclusive_ns"].sum().tolist() == steps["dur_ns"].tolist()
        record = summary(table)[0]
        start = kernels["start_ns"].to_numpy()
        assert record["busy_ns"] == union_length(start, start + kernels["dur_ns"].to_numpy()), "all lies in the steps"

        idle = idle_summary(idle_gaps(kernels, steps, trace.launches, trace.ranges))[trace.rank]
        assert sum(idle["causes"].values()) == record["idle_ns"]
        assert idle["between_steps_ns"] + idle["within_steps_ns"] == record["idle_ns"]
        assert idle["causes"]["unknown"] == 0

        unknown = name_totals(kernels, "other")
        assert unknown["share"].sum() < 0.03, unknown
        # In vLLM's own order of work neighbours overlap by microseconds at most.
        assert overlaps(kernels, steps)["overlap_ns"].sum() < 0.02 * record["busy_ns"]


def test_what_is_known_about_these_runs_is_found(shared: Path) -> None:
    def record(name: str) -> dict[str, float]:
        trace = traces(shared / "recordings" / "h200" / name / "trace")[0]
        kernels = categorize(trace.kernels)
        steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
        whole = summary(breakdown(kernels, steps))[0]
        decode = whole["phases"]["decode"]
        graphs = graph_share(kernels[kernels["start_ns"] >= steps[steps["phase"] == "decode"]["start_ns"].min()])[0]
        shares = {category: values["share"] for category, values in decode["categories"].items()}
        return {
            **shares,
            "busy": decode["busy_ns"] / decode["window_ns"],
            "whole": whole["busy_ns"] / whole["window_ns"],
            "in_graphs": graphs.share or 0,
        }

    bf16, eager, fp8, tp2 = (record(f"llama3-8b-{name}") for name in ("bf16", "eager", "fp8", "tp2"))
    assert bf16["busy"] > 0.93 > 0.3 > eager["busy"], "without graphs the host cannot keep up"
    assert eager["whole"] == pytest.approx(0.348, abs=0.005)
    assert (bf16["in_graphs"] > 0.9, eager["in_graphs"]) == (True, 0)
    assert fp8["quantize"] > 0.1 > bf16["quantize"] == 0
    assert tp2["communication"] > 0.05 > bf16["communication"] == 0
    assert bf16["gemm"] > 0.7


def test_a_cpu_engines_trace(shared: Path) -> None:
    folder = shared / "facts" / "samples" / "trace_llm"
    for name, steps_by_eye in (("runA_rank0", 4), ("runB_rank0", 5)):
        trace = read_kineto(next(folder.glob(f"{name}.*.json.gz")))
        assert trace.cpu_ops is not None
        table = cpu_breakdown(trace.cpu_ops, trace.ranges)
        record = summary(table)[0]
        assert record["kind"] == "cpu"
        assert sum(phase["steps"] for phase in record["phases"].values()) == steps_by_eye
        categories = record["categories"]
        assert categories["other"]["exclusive_ns"] < 0.03 * record["busy_ns"]
        assert 0.5 < categories["gemm"]["share"] < 0.7, "oneDNN matmuls are most of a small model's step"
        assert record["idle_ns"] + sum(c["exclusive_ns"] for c in categories.values()) == record["window_ns"]
        shares = table.groupby("step")["share"].sum()
        np.testing.assert_allclose(shares, 1)


def test_decode_on_rocm_agrees_with_the_authors_figures(shared: Path) -> None:
    # Published beside the trace: busy 156.0858 ms of 156.4664 ms, MoE matmuls 122.53 ms, in one mixed step.
    folder = shared / "fixtures" / "kineto" / "tracelens" / "inference" / "vllm_prefilldecode_piecewise"
    kernels = categorize(read_kineto(folder / "graph_execution.json.gz").kernels)
    record = summary(
        breakdown(kernels, steps_from_ranges(read_kineto(folder / "graph_execution.json.gz").ranges, kernels))
    )[0]
    assert record["busy_ns"] / 1e6 == pytest.approx(156.0858, abs=0.001)
    totals = name_totals(kernels, "moe")
    assert totals[totals["name"].str.startswith("_matmul_ogs")]["dur_ns"].sum() / 1e6 == pytest.approx(122.53, abs=0.01)
    assert record["categories"]["other"]["exclusive_ns"] == 0


def test_the_recorded_eager_run_is_told_why_its_gpu_waits(shared: Path) -> None:
    def found(name: str, settings: dict[str, object]) -> dict[str, Finding]:
        facts, records, idles = [], [], []
        for trace in traces(shared / "recordings" / "h200" / name / "trace"):
            kernels = categorize(trace.kernels)
            steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
            table = breakdown(kernels, steps)
            facts.append(
                TraceFacts(
                    trace.rank, trace.world_size, trace.truncated, trace.has_gpu, trace.unreadable, kernels,
                    trace.launches, steps, table, with_stack=trace.with_stack,
                )
            )  # fmt: skip
            records += summary(table)
            idles.append(idle_summary(idle_gaps(kernels, steps, trace.launches, trace.ranges))[trace.rank])
        checks = trace_checks(facts)
        assert {check.status for check in checks} <= {"pass", "not_applicable"}
        ranks = [RankFacts(record, idle) for record, idle in zip(records, idles, strict=True)]
        found = pass_findings(PassFacts(ranks, Engine(flavour="gpu", settings=settings), checks))
        return {finding.id: finding for finding in found}

    eager = found("llama3-8b-eager", {"enforce_eager": True})["host_bound"]
    assert (eager.severity, eager.confidence) == ("critical", 0.9)
    assert eager.impact is not None
    assert 20 < eager.impact["value"] < 30
    assert found("llama3-8b-bf16", {"enforce_eager": False}) == {}, "nothing to say about a run without fault"
    assert "exposed_communication" in found("llama3-8b-tp2", {"tensor_parallel_size": 2})
