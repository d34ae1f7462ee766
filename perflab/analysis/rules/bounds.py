"""What the roofline says bounds a phase, and what to try first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from perflab import units
from perflab.analysis.finding import Finding, bench_command, is_on
from perflab.analysis.model.quantization import kv_element_bytes
from perflab.analysis.roofline.bound import KernelRoof
from perflab.analysis.roofline.phases import PhaseRoofline, RankRoofline
from perflab.analysis.rules.facts import PassFacts
from perflab.knowledge.engine_args import flag
from perflab.messages import say

_FP8 = {"quantization": "fp8"}
_TITLES = MappingProxyType({
    "bandwidth_bound_decode": "finding.bound.title_bandwidth_bound_decode",
    "compute_bound_prefill": "finding.bound.title_compute_bound_prefill",
    "kernels_below_roof": "finding.bound.title_kernels_below_roof",
    "idle_bound": "finding.bound.title_idle_bound",
})  # fmt: skip


def bandwidth_bound_decode(facts: PassFacts) -> Finding | None:
    """Decode waits for its weights and its KV cache: how much fewer bytes would save, and what brings them."""
    found = _bounded(facts, ("decode",), "memory")
    if found is None or (gemm := found[1].kernels.get("gemm")) is None or gemm.bytes is None:
        return None
    rank, phase = found
    assert rank.work is not None and rank.peaks is not None and rank.shape is not None
    weights = rank.work.read_weight_bytes
    evidence = [
        say(
            "finding.bound.reads",
            gigabytes=f"{phase.bytes / 1e9:.1f}",
            weights=units.show_share(weights / phase.bytes),
            least=units.show_time(phase.limit_ns),
            step=units.show_time(phase.step_ns),
        ),
        say(
            "finding.bound.reaches",
            share=units.show_share(gemm.bytes_share or 0),
            peak=f"{rank.peaks.memory / 1e12:g}",
        ),
        _batch(rank, phase),
        *phase.withheld,
        *phase.notes,
    ]
    saved = _saved_by_quantizing(rank, gemm)
    attention = phase.kernels.get("attention")
    if attention is not None and attention.bytes and kv_element_bytes(facts.engine.settings, rank.shape.dtype) == 2:
        evidence.append(say("finding.bound.kv_saving", time=units.show_time(attention.time_ns / 2)))
    settings: dict[str, Any] = {}
    helps = {"kv": _flag(facts, "kv_cache_dtype", "fp8"), "seqs": _flag(facts, "max_num_seqs")}
    if saved is None:
        change = say("finding.bound.change_decode_quantized", **helps)
    else:
        evidence.append(say("finding.bound.assumes_bytes"))
        change = say("finding.bound.change_decode", quantize=_quantize(facts, rank), **helps)
        settings = _FP8 if _has_fp8(rank) else {}
    return _finding(facts, "bandwidth_bound_decode", "decode", phase, evidence, change, saved, 0.7, settings)


def compute_bound_prefill(facts: PassFacts) -> Finding | None:
    """Prefill computes as fast as the GPU lets it: smaller numbers or fewer tokens."""
    found = _bounded(facts, ("prefill", "mixed"), "compute")
    if found is None:
        return None
    rank, phase = found
    assert rank.peaks is not None and rank.gpu is not None
    slowest = max((k for k in phase.kernels.values() if k.side == "compute"), key=lambda k: k.time_ns)
    evidence = [
        say(
            "finding.bound.computes",
            teraflops=f"{phase.flops / 1e12:.1f}",
            tokens=f"{phase.tokens:.0f}",
            least=units.show_time(phase.limit_ns),
            step=units.show_time(phase.step_ns),
        ),
        say(
            "finding.bound.computes_at",
            share=units.show_share(slowest.flops_share or 0),
            dtype=rank.peaks.dtype.upper(),
            peak=f"{rank.peaks.linear / 1e12:,.0f}",
        ),
        *phase.withheld,
        *phase.notes,
    ]
    faster = rank.gpu.peak("fp8")
    saved = None
    if faster and rank.peaks.dtype == "bf16" and slowest.category in ("gemm", "moe"):
        saved = slowest.time_ns * (1 - rank.peaks.linear / faster)
        evidence.append(say("finding.bound.assumes_flops"))
    caching = "" if is_on(facts.engine.settings.get("enable_prefix_caching")) else say(
        "finding.bound.change_caching", flag=_flag(facts, "enable_prefix_caching")
    )  # fmt: skip
    change = say("finding.bound.change_prefill" if saved else "finding.bound.change_prefill_fast",
                 quantize=_flag(facts, "quantization", "fp8"))  # fmt: skip
    return _finding(
        facts, "compute_bound_prefill", phase.phase, phase, evidence, f"{change} {caching}".strip(), saved, 0.7,
        _FP8 if saved else None,
    )  # fmt: skip


def kernels_below_roof(facts: PassFacts) -> Finding | None:
    """Kernels run most of the time and reach neither roof: it is they that limit a step, not the GPU's peaks."""
    found = _bounded(facts, ("decode", "mixed", "prefill"), "kernels")
    if found is None:
        return None
    rank, phase = found
    low = [k for k in phase.kernels.values() if k.limit_ns is not None and k.category != "kv_cache"]
    if not low or rank.shape is None:
        return None
    worst = max(low, key=lambda k: k.time_ns - (k.limit_ns or 0))
    quantized = rank.shape.quantization
    evidence = [
        say(
            "finding.bound.below",
            category=worst.category,
            time=units.show_time(worst.time_ns),
            phase=phase.phase,
            least=units.show_time(worst.limit_ns or 0),
            reach=units.show_share(worst.reach or 0),
        ),
        _batch(rank, phase),
        say("finding.bound.below_most"),
    ]
    if quantized is not None and quantized.weight_bits <= 4:
        evidence.append(say("finding.bound.below_four_bits", method=quantized.method))
    change = say("finding.bound.change_kernels", seqs=_flag(facts, "max_num_seqs"))
    if quantized is not None and quantized.weight_bits <= 4 and rank.gpu and rank.gpu.peak("fp8"):
        change = say("finding.bound.change_four_bits", quantize=_flag(facts, "quantization", "fp8"),
                     seqs=_flag(facts, "max_num_seqs"))  # fmt: skip
    saved = worst.time_ns - (worst.limit_ns or 0) / facts.limit("bound", "good")
    return _finding(facts, "kernels_below_roof", phase.phase, phase, evidence, change, max(saved, 0.0), 0.6)


def idle_bound(facts: PassFacts) -> Finding | None:
    """The GPU is idle for a large part of a phase, and not because the host launches late: `host_bound` says that."""
    found = _bounded(facts, ("decode", "mixed", "prefill"), "overhead")
    if found is None:
        return None
    rank, phase = found
    of_rank = next(one for one in facts.ranks if one.rank == rank.rank)
    causes = of_rank.idle.get("phases", {}).get(phase.phase, {}).get("causes", {})
    whole = sum(causes.values())
    if not whole or causes.get("host_bound", 0) >= whole / 2:
        return None
    shares = ", ".join(
        say("finding.bound.idle_cause", cause=name.replace("_", " "), share=units.show_share(ns / whole))
        for name, ns in sorted(causes.items(), key=lambda pair: -pair[1])
        if ns
    )
    evidence = [
        say("finding.bound.idle", share=units.show_share(phase.verdict.share), phase=phase.phase, causes=shares)
    ]
    change = say("finding.bound.change_idle", seqs=_flag(facts, "max_num_seqs"))
    saved = phase.verdict.share * phase.step_ns
    return _finding(facts, "idle_bound", phase.phase, phase, evidence, change, saved, 0.4)


def _bounded(facts: PassFacts, phases: tuple[str, ...], bound: str) -> tuple[RankRoofline, PhaseRoofline] | None:
    """The rank with the longest step of the first of these phases that is bound so on every rank."""
    for phase in facts.phases():
        if phase not in phases:
            continue
        rooflines = [rank.roofline for rank in facts.ranks]
        known = [one for one in rooflines if one is not None and phase in one.phases]
        if known and len(known) == len(rooflines) and all(one.phases[phase].verdict.bound == bound for one in known):
            slowest = max(known, key=lambda one: one.phases[phase].step_ns)
            return slowest, slowest.phases[phase]
    return None


def _batch(rank: RankRoofline, phase: PhaseRoofline) -> str:
    """At which batch the linear layers would meet the other roof."""
    assert rank.work is not None and rank.peaks is not None
    balanced = rank.work.balanced_tokens(rank.peaks.linear, rank.peaks.memory)
    return say("finding.bound.batch", tokens=_tokens(phase.tokens), balanced=units.show_count(balanced))


def _tokens(mean: float) -> str:
    """A mean over steps: whole, or with the decimal that tells it from a count."""
    return units.show_count(mean) if abs(mean - round(mean)) < 0.05 else f"{mean:,.1f}"


def _saved_by_quantizing(rank: RankRoofline, gemm: KernelRoof) -> float | None:
    """Nanoseconds a step that 8-bit weights save at the bandwidth reached now; None where they have 8 bits or fewer."""
    assert rank.work is not None and rank.shape is not None
    if rank.shape.quantization is not None or not gemm.bytes:
        return None
    halved = sum(one.weight_bytes for one in rank.work.linear) / 2
    return gemm.time_ns * halved / gemm.bytes


def _quantize(facts: PassFacts, rank: RankRoofline) -> str:
    """FP8 can be made while loading where the GPU has units for it; else a quantized checkpoint has to be found."""
    if _has_fp8(rank):
        return say("finding.bound.quantize_online", flag=_flag(facts, "quantization", "fp8"))
    return say("finding.bound.quantize_checkpoint")


def _has_fp8(rank: RankRoofline) -> bool:
    return rank.gpu is not None and bool(rank.gpu.peak("fp8"))


def _flag(facts: PassFacts, name: str, value: str | None = None) -> str:
    """The argument as the run's version has it, in code marks."""
    found = flag(name, facts.engine.vllm_version, value)
    return f"`{found}`" if found else say("finding.bound.no_flag", name=name)


def _finding(
    facts: PassFacts, name: str, word: str, phase: PhaseRoofline, evidence: list[str], change: str,
    saved: float | None, confidence: float, settings: Mapping[str, Any] | None = None,
) -> Finding:  # fmt: skip
    verdict = phase.verdict
    return Finding(
        id=name,
        severity="warning" if name in ("kernels_below_roof", "idle_bound") else "info",
        confidence=confidence,
        title=say(_TITLES[name], phase=word, share=units.show_share(verdict.share),
                  reach=units.show_share(verdict.reach or 0)),
        impact=None if saved is None else {"value": saved / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=change,
        check=bench_command(facts.engine),
        run=facts.run,
        settings=settings or {},
    )  # fmt: skip
