"""Attention as the largest part of a phase: what bounds it there, and so what helps."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.rules.attention import attention_share
from perflab.analysis.rules.facts import PassFacts, RankFacts
from perflab.knowledge.engine_args import flag
from perflab.messages import say
from perflab.schema import CATEGORIES


def attention_largest(facts: PassFacts) -> Finding | None:
    """In the phase where it takes most; silent where `attention_share` has spoken by a user's limit."""
    phases = [p for p in facts.phases() if all(_largest(rank, p) == "attention" for rank in facts.ranks)]
    if not phases or attention_share(facts) is not None:
        return None

    def mean(phase: str) -> float:
        return sum(rank.share("attention", phase) for rank in facts.ranks) / len(facts.ranks)

    phase = max(phases, key=mean)
    rank = max(facts.ranks, key=lambda one: one.share("attention", phase))
    version = facts.engine.vllm_version
    decode = phase == "decode"
    evidence = [say("finding.attention_largest.why_decode" if decode else "finding.attention_largest.why_prefill")]
    evidence += _reached(rank, phase)
    evidence.append(say("finding.attention_largest.not_a_switch"))
    if decode:
        change = say("finding.attention_largest.change_decode", kv=f"`{flag('kv_cache_dtype', version, 'fp8')}`")
    else:
        caching = flag("enable_prefix_caching", version)
        change = say(
            "finding.attention_largest.change_prefill", caching=f"`{caching}`" if caching else "prefix caching"
        )
    step = rank.step_ns(phase)
    return Finding(
        id="attention_largest",
        severity="info",
        confidence=0.6,
        title=say("finding.attention_largest.title", share=units.show_share(mean(phase)), phase=phase),
        impact={"value": mean(phase) * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=change,
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _largest(rank: RankFacts, phase: str) -> str:
    return max(CATEGORIES, key=lambda category: rank.share(category, phase))


def _reached(rank: RankFacts, phase: str) -> list[str]:
    """How near attention comes to its roof, where its work is known."""
    found = rank.roofline.phases.get(phase) if rank.roofline else None
    attention = found.kernels.get("attention") if found else None
    if attention is None or attention.reach is None:
        return list(found.withheld) if found else []
    share = units.show_share(attention.reach)
    if attention.side == "memory":
        return [say("finding.attention_largest.reaches_memory", share=share)]
    return [say("finding.attention_largest.reaches_compute", share=share)]
