"""Lesson 1: where the GPU time goes, eager against CUDA graphs, on two recorded runs that differ in this alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.kernels import launch_times
from perflab.analysis.steps import step_of
from perflab.tasks.breakdown import RankBreakdown, breakdown
from perflab.tasks.latency import latency
from perflab.workshop.lessons import Lesson
from perflab.workshop.questions import Choice, Number

EAGER, GRAPHS = "llama3-8b-eager", "llama3-8b-bf16"
POINT, ALONE = "c32", "c1"
"""The load whose measured times the lesson compares, and one request at a time."""


@dataclass(frozen=True)
class Facts:
    """What the lesson's answers come from.

    Attributes
    ----------
    eager, graphs
        The breakdowns of the one rank of each run.
    measured
        Metrics of both runs (eager first) by point, as the JSON contract of `perflab latency` has them.
    """

    eager: RankBreakdown
    graphs: RankBreakdown
    measured: Mapping[str, tuple[dict[str, Any], dict[str, Any]]]

    def ratio(self, point: str, metric: str, statistic: str = "p50") -> float:
        """Eager over CUDA graphs."""
        eager, graphs = (side[metric][statistic] for side in self.measured[point])
        return float(eager) / float(graphs)


@lru_cache(maxsize=1)
def facts() -> Facts:
    """Read both runs, once."""
    eager, graphs = breakdown([EAGER, GRAPHS], attribution=False).ranks
    points = latency([EAGER, GRAPHS]).runs
    by_run = {
        name: {one.point.id: one.metrics for one in points if name in one.source.parts} for name in (EAGER, GRAPHS)
    }
    shared = [point for point in by_run[EAGER] if point in by_run[GRAPHS]]
    return Facts(eager, graphs, {point: (by_run[EAGER][point], by_run[GRAPHS][point]) for point in shared})


def _phase(rank: RankBreakdown, phase: str = "decode") -> dict[str, Any]:
    found: dict[str, Any] = rank.record["phases"][phase]
    return found


def _busy(part: Mapping[str, Any]) -> float:
    return float(part["busy_ns"] / part["window_ns"])


def _raw_ns(part: Mapping[str, Any]) -> int:
    return sum(int(category["raw_ns"]) for category in part["categories"].values())


# How busy is the GPU in decode?


def busy_share(found: Facts) -> float:
    """Of the eager run's decode steps, the share in which anything ran."""
    return _busy(_phase(found.eager))


def _busy_mistakes(found: Facts) -> dict[str, float]:
    rank, decode = found.eager, _phase(found.eager)
    table, steps = rank.table[rank.table["phase"] == "decode"], rank.steps[rank.steps["phase"] == "decode"]
    idle = table[table["category"] == "idle"]
    within = rank.idle["phases"]["decode"]["within_steps_ns"]
    return {
        "idle": 1 - _busy(decode),
        "every_phase": rank.busy_ns / rank.window_ns,
        "prefill": _busy(_phase(rank, "prefill")),
        "mixed": _busy(_phase(rank, "mixed")),
        "raw": _raw_ns(decode) / decode["window_ns"],
        "forward": decode["busy_ns"] / float(steps["forward_ns"].sum()),
        "between": 1 - within / decode["window_ns"],
        "mean_of_shares": 1 - float(idle["share"].mean()),
        "other_run": busy_share(Facts(found.graphs, found.graphs, {})),
    }


# What would a step take without the waiting?


def step_without_waiting(found: Facts) -> float:
    """Mean eager decode step, ns, less the idle time that was there because the host launched late."""
    decode = _phase(found.eager)
    return float((decode["window_ns"] - _late(found.eager)) / decode["steps"])


def _late(rank: RankBreakdown, phase: str = "decode") -> int:
    return int(rank.idle["phases"][phase]["causes"]["host_bound"])


def _step_mistakes(found: Facts) -> dict[str, float]:
    rank, decode = found.eager, _phase(found.eager)
    gaps = rank.gaps
    inside = gaps[(gaps["phase"] == "decode") & (gaps["place"] == "within_steps") & (gaps["cause"] == "host_bound")]
    late_everywhere = rank.idle["causes"]["host_bound"]
    n = decode["steps"]
    others = {name: _phase(rank, name) for name in ("prefill", "mixed")}
    return {
        "total": float(decode["window_ns"] - _late(rank)),
        "waiting": _late(rank) / n,
        "whole": decode["window_ns"] / n,
        "all_idle": decode["busy_ns"] / n,
        "raw": _raw_ns(decode) / n,
        "between": (decode["window_ns"] - int(inside["dur_ns"].sum())) / n,
        "every_phase": (rank.window_ns - late_everywhere) / len(rank.steps),
        **{name: (part["window_ns"] - _late(rank, name)) / part["steps"] for name, part in others.items()},
    }


# What did users gain?


def decode_speedup(found: Facts) -> float:
    """How many times as long a token took in the eager run: median TPOT with 32 requests at once."""
    return found.ratio(POINT, "tpot_ms")


def _speedup_mistakes(found: Facts) -> dict[str, float]:
    right = decode_speedup(found)
    profiled = [_phase(rank)["window_ns"] / _phase(rank)["steps"] for rank in (found.eager, found.graphs)]
    eager, graphs = found.measured[POINT]
    return {
        "inverse": 1 / right,
        "shorter": 1 - 1 / right,
        "gain": right - 1,
        "profiled": profiled[0] / profiled[1],
        "estimate": profiled[0] / step_without_waiting(found),
        "alone": found.ratio(ALONE, "tpot_ms"),
        "ttft": found.ratio(POINT, "ttft_ms"),
        "e2el": found.ratio(POINT, "e2el_ms"),
        "tail": found.ratio(POINT, "tpot_ms", "p99"),
        "throughput": graphs["output_tokens_per_s"] / eager["output_tokens_per_s"],
    }


# What does the guide's rule about attention say?


def attention_share(found: Facts) -> float:
    """Attention's share of the decode steps with CUDA graphs."""
    return float(_phase(found.graphs)["categories"]["attention"]["share"])


def _attention_mistakes(found: Facts) -> dict[str, float]:
    rank, decode = found.graphs, _phase(found.graphs)
    attention = {
        phase: part["categories"]["attention"]["exclusive_ns"] for phase, part in rank.record["phases"].items()
    }
    return {
        "eager": float(_phase(found.eager)["categories"]["attention"]["share"]),
        "of_busy": attention["decode"] / decode["busy_ns"],
        "every_phase": sum(attention.values()) / rank.window_ns,
        "prefill": attention["prefill"] / _phase(rank, "prefill")["window_ns"],
        "mixed": attention["mixed"] / _phase(rank, "mixed")["window_ns"],
        "gemm": float(decode["categories"]["gemm"]["share"]),
        "rest": 1 - attention_share(found),
    }


def fields(found: Facts) -> dict[str, str]:
    """Every number the lesson's sentences tell."""
    told = _per_step(found) | _ahead(found.eager) | _measured(found)
    for name, rank in (("eager", found.eager), ("graphs", found.graphs)):
        for phase in ("prefill", "decode", "mixed"):
            part = _phase(rank, phase)
            told[f"{name}_{phase}"] = units.show_time(part["window_ns"] / part["steps"])
            told[f"{name}_{phase}_busy"] = units.show_share(_busy(part))
            told[f"{name}_{phase}_work"] = units.show_time(part["busy_ns"] / part["steps"])
            told[f"{name}_{phase}_attention"] = units.show_share(part["categories"]["attention"]["share"])
            told[f"{name}_{phase}_gemm"] = units.show_share(part["categories"]["gemm"]["share"])
    causes = found.eager.idle["phases"]["decode"]["causes"]
    told["late_share"] = units.show_share(causes["host_bound"] / sum(causes.values()))
    told["estimate"] = units.show_time(step_without_waiting(found))
    for phase in ("prefill", "mixed"):
        tokens = found.eager.steps.loc[found.eager.steps["phase"] == phase, "prefill_tokens"]
        told[f"{phase}_tokens"] = units.show_count(float(tokens.mean()))
    return told


def _per_step(found: Facts) -> dict[str, str]:
    told = {}
    for name, rank in (("eager", found.eager), ("graphs", found.graphs)):
        decode = rank.steps[rank.steps["phase"] == "decode"]
        mine = rank.kernels[step_of(rank.kernels["start_ns"], decode) >= 0]
        launched, _ = launch_times(mine, rank.launches)
        told[f"{name}_kernels"] = f"{len(mine) / len(decode):.0f}"
        told[f"{name}_calls"] = f"{mine.loc[launched >= 0, 'correlation_id'].nunique() / len(decode):.0f}"
        told[f"{name}_kernel_time"] = units.show_time(float(mine["dur_ns"].median()))
        told[f"{name}_call_time"] = units.show_time(float(decode["dur_ns"].sum() / max(len(mine), 1)))
    return told


def _ahead(rank: RankBreakdown) -> dict[str, str]:
    """The decode step most of whose kernels were launched before it began: the waiting taken away by itself."""
    decode = rank.steps[rank.steps["phase"] == "decode"].reset_index(drop=True)
    launched, _ = launch_times(rank.kernels, rank.launches)
    at = step_of(rank.kernels["start_ns"], decode)
    early = launched[at >= 0] < decode["start_ns"].to_numpy()[at[at >= 0]]
    share = pd.Series(early).groupby(at[at >= 0]).mean()
    step = decode.loc[share.idxmax()]
    return {
        "ahead_step": str(step["step"]),
        "ahead_launched": units.show_share(float(share.max())),
        "ahead_time": units.show_time(float(step["dur_ns"])),
    }


def _measured(found: Facts) -> dict[str, str]:
    eager, graphs = found.measured[POINT]
    decode = _phase(found.eager)
    profiled = decode["window_ns"] / decode["steps"]
    busy_ms = units.ms(decode["busy_ns"] / decode["steps"])
    return {
        "speedup": f"{decode_speedup(found):.1f}",
        "speedup_alone": f"{found.ratio(ALONE, 'tpot_ms'):.1f}",
        "speedup_trace": f"{_speedup_mistakes(found)['profiled']:.1f}",
        "speedup_throughput": f"{_speedup_mistakes(found)['throughput']:.1f}",
        "eager_tpot": units.show_time(eager["tpot_ms"]["p50"] * units.NS_PER_MS),
        "graphs_tpot": units.show_time(graphs["tpot_ms"]["p50"] * units.NS_PER_MS),
        "eager_ttft": units.show_time(eager["ttft_ms"]["p50"] * units.NS_PER_MS),
        "graphs_ttft": units.show_time(graphs["ttft_ms"]["p50"] * units.NS_PER_MS),
        "profiler": units.show_time(profiled - eager["tpot_ms"]["p50"] * units.NS_PER_MS),
        "busy_unprofiled": units.show_share(busy_ms / eager["tpot_ms"]["p50"]),
        "batch": f"{found.eager.steps['decode_requests'].max()}",
    }


_CAUSES = {
    "not_started": "not_started|launched_but_not_started",
    "in_graph": "in_graph|inside_a_graph(_replay)?",
    "no_request": "no_requests?|no_running_requests?",
    "unknown": "unknown|not_known",
    "memory": "(.*_)?(memory|bandwidth|hbm|kv_cache)(_.*)?",
    "attention": "(.*_)?(attention|flash.*)(_.*)?",
    "communication": "(.*_)?(communication|all_reduce|nccl|network|pcie|nvlink)(_.*)?",
    "compute": "(.*_)?(compute|gemm|matmul|kernels?|gpu)(_bound)?",
}
_FLAGS = {
    "true": "(.*_)?enforce_eager_(true|1|on)",
    "graphs": "(.*_)?(cuda_?graphs?(_mode)?|compilation_config|torch_compile|compile|cc|o[123])(_.*)?",
    "attention_backend": "(.*_)?(attention_backend|flash.*|vllm_attention_backend)(_.*)?",
    "mla": "(.*_)?mla(_.*)?",
    "quantization": "(.*_)?(quantization|quantize|awq|gptq|fp8|kv_cache_dtype)(_.*)?",
    "parallel": "(.*_)?(tensor|pipeline|data)_parallel(_.*)?|tp|dp|pp",
    "batch": "max_num_seqs(_.*)?|max_num_batched_tokens(_.*)?|batch_size",
    "memory": "gpu_memory_utilization(_.*)?|block_size(_.*)?|swap_space(_.*)?",
    "chunked": "(.*_)?chunked_prefill(_.*)?",
}
_ABOUT = "workshop.eager"

LESSON = Lesson(
    number=1,
    name="01_eager_against_graphs",
    title="Where does the GPU time go: eager against CUDA graphs",
    minutes=45,
    questions=(
        Number("busy_share", f"{_ABOUT}.busy_share", "share", busy_share, _busy_mistakes),
        Choice("idle_cause", f"{_ABOUT}.idle_cause", "(.*_)?(host|cpu|python|launched_late)(_.*)?", _CAUSES),
        Choice("flag", f"{_ABOUT}.flag", "(.*_)?enforce_eager(_(false|0|off))?", _FLAGS),
        Number(
            "step_without_waiting_ms", f"{_ABOUT}.step", "time", step_without_waiting, _step_mistakes, tolerance=0.01
        ),
        Number("decode_speedup", f"{_ABOUT}.speedup", "factor", decode_speedup, _speedup_mistakes),
        Choice(
            "unaffected_phase", f"{_ABOUT}.phase", "mixed(_.*)?", {"prefill": "prefill(_.*)?", "decode": "decode(_.*)?"}
        ),
        Number("attention_share", f"{_ABOUT}.attention", "share", attention_share, _attention_mistakes),
    ),
    facts=facts,
    fields=fields,
)
