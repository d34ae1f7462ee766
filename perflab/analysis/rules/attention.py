"""Attention above a share that the user set. Perflab has none of its own: a large share is no defect."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.rules.facts import PassFacts
from perflab.knowledge.engine_args import flag
from perflab.messages import say


def attention_share(facts: PassFacts) -> Finding | None:
    """In the phase where it is largest, with what helps in that phase; silent where no limit is set."""
    phases = facts.phases()
    if not phases:
        return None

    def mean(phase: str) -> float:
        return sum(rank.share("attention", phase) for rank in facts.ranks) / len(facts.ranks)

    phase = max(phases, key=mean)
    share = mean(phase)
    severity = facts.severity(share, "attention_share")
    if severity is None:
        return None
    step = sum(rank.step_ns(phase) for rank in facts.ranks) / len(facts.ranks)
    decode = phase == "decode"
    limit = facts.limit("attention_share", severity)
    return Finding(
        id="attention_share",
        severity=severity,
        confidence=0.5,
        title=say("finding.attention_share.title", share=units.show_share(share), phase=phase),
        impact={"value": share * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=(
            say("finding.attention_share.limit", limit=units.show_share(limit)),
            say("finding.attention_share.why_decode" if decode else "finding.attention_share.why_prefill"),
        ),
        change=_change(decode, facts.engine.vllm_version),
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _change(decode: bool, version: str | None) -> str:
    """What helps, with the arguments as that version spells them."""
    if decode:
        return say("finding.attention_share.change_decode", kv=flag("kv_cache_dtype", version, "fp8"))
    caching = flag("enable_prefix_caching", version)
    return say("finding.attention_share.change_prefill", caching=f"`{caching}`" if caching else "prefix caching")
