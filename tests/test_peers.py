"""The pure parts of `benchmarks/peers.py`: HTA's tables as shares, what explains a difference, rounds by turns."""

import importlib.util
import math
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def script(name: str) -> ModuleType:
    """A script of benchmarks/ as a module, without its folder on the path."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


results, rounds, raw = script("peer_results"), script("peer_rounds"), script("peer_raw")
SAID = {
    "temporal": [
        {"rank": 0, "kernel_time(us)": 200.0, "idle_time(us)": 20.0, "compute_time(us)": 150.0},
        {"rank": 1, "kernel_time(us)": 100.0, "idle_time(us)": 0.0, "compute_time(us)": 100.0},
    ],
    "overlap": [{"rank": 0, "comp_comm_overlap_pctg": 25.0}, {"rank": 1, "comp_comm_overlap_pctg": math.nan}],
    "kernels": [
        {"rank": 0, "name": "gemm", "sum (us)": 120.0},
        {"rank": 0, "name": "norm", "sum (us)": 30.0},
        {"rank": 1, "name": "gemm", "sum (us)": 100.0},
    ],
}


def counts(idle: int, compute: int, talk: int = 0, both: int = 0, gemm: int = 0) -> dict[str, object]:
    return {
        "window_ns": 200_000, "idle_ns": idle, "compute_ns": compute, "communication_ns": talk, "overlap_ns": both,
        "kernels": {"gemm": gemm},
    }  # fmt: skip


def test_htas_tables_become_shares_of_each_rank() -> None:
    found = results.of_hta(SAID, ["gemm"])
    assert [found[0].figure(name) for name in results.FIGURES] == [10, 75, 15, 25, 0.12]
    assert [found[1].figure(name) for name in results.FIGURES] == [0, 100, 0, None, 0.1]


def test_sums_become_the_same_shares() -> None:
    found = results.of_counts(counts(20_000, 150_000, talk=40_000, both=10_000, gemm=120_000), ["gemm", "absent"])
    assert found == results.of_hta(SAID, ["gemm"])[0]
    assert results.of_counts(counts(0, 1), []).overlap_percent is None


def test_a_difference_is_given_to_the_stage_it_arises_in() -> None:
    idle = [30_000, 20_000, 20_000, 10_000, 10_000, 10_002]
    stages = [results.of_counts(counts(one, 150_000), []) for one in idle]
    (found, *_) = results.differences(3, stages)
    assert (found.rank, found.figure, found.hta, found.perflab) == (3, "idle", 15, pytest.approx(5.001))
    assert list(found.by_cause.values()) == pytest.approx([-5, 0, -5, 0, 0.001])
    assert found.unexplained == pytest.approx(0.001)
    (line, *_) = results.table("a trace", [found])
    assert line == "| a trace | 3 | idle, % | 15.00 | 5.00 | -5.00 | -5.00 | +0.00 | 0.0010 |"
    assert line.count("|") == results.HEADER[0].count("|")


def test_rounds_alternate_and_ratios_pair_them() -> None:
    assert rounds.turns("ab", 3) == [["a", "b"], ["b", "a"], ["a", "b"]]
    # The machine was twice as slow in the second round: no ratio sees it.
    costs = {"b": [rounds.Cost(t, t, 10) for t in (1, 2, 1)], "a": [rounds.Cost(t, t, 30) for t in (3, 6, 4)]}
    found = rounds.ratio(costs, "a", "b", "wall_s")
    assert (found.median, found.low, found.high, found.n) == (3, 3, 4, 3)
    assert str(rounds.ratio(costs, "a", "b", "peak_mb")) == "3.00 (3.00 to 3.00)"
    with pytest.raises(ValueError):
        rounds.ratio({**costs, "a": costs["a"][:2]}, "a", "b", "wall_s")


def event(name: str, cat: str, ts: str, dur: str, **args: int) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": cat, "ts": Decimal(ts), "dur": Decimal(dur), "args": args}


def test_the_judge_counts_three_ways() -> None:
    trace = {
        "traceEvents": [
            event("ProfilerStep#1", "user_annotation", "0", "10"),
            event("ProfilerStep#2", "user_annotation", "10", "10"),
            event("launch", "cuda_runtime", "1", "1", correlation=1),
            event("launch", "cuda_runtime", "11", "1", correlation=2),
            event("gemm", "kernel", "5", "2.5", stream=7, correlation=1),
            event("ncclKernel", "kernel", "7", "2", stream=8, correlation=1),
            event("cross_device_reduce", "kernel", "12", "4", stream=7, correlation=2),
            event("Memcpy DtoH", "gpu_memcpy", "17", "1", stream=7, correlation=3),
        ]
    }
    htas, every, listed = raw.three_ways(trace, raw.work_of(trace), {"ncclKernel", "cross_device_reduce"})
    assert [one["counted"] for one in (htas, every)] == [{"kernel": 2}, {"kernel": 3, "gpu_memcpy": 1}]
    figures = ("window_ns", "idle_ns", "compute_ns", "communication_ns", "overlap_ns")
    assert [htas[name] for name in figures] == [4000, 0, 2500, 2000, 500]
    assert [every[name] for name in figures] == [13_000, 4000, 6500, 2000, 500]
    assert [listed[name] for name in figures] == [13_000, 4000, 2500, 6000, 500]
