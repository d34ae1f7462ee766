"""Copies and sets inside the steps."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command, number
from perflab.analysis.rules.facts import PassFacts
from perflab.messages import say


def copies_in_step(facts: PassFacts) -> Finding | None:
    """In the phase and on the rank where they take the largest share."""
    phases = facts.phases()
    if not phases:
        return None
    rank, phase = max(((r, p) for p in phases for r in facts.ranks), key=lambda pair: pair[0].share("memory", pair[1]))
    found = rank.share("memory", phase)
    severity = facts.severity(found, "copies")
    if severity is None:
        return None
    step = rank.step_ns(phase)
    offload = number(facts.engine.settings.get("cpu_offload_gb")) or 0.0
    known = offload > 0
    evidence = [
        say("finding.copies.took", share=units.show_share(found), phase=phase, time=units.show_time(found * step))
    ]
    if known:
        evidence.append(say("finding.copies.offload", size=f"{offload:g}"))
    return Finding(
        id="copies_in_step",
        severity=severity,
        confidence=0.8 if known else 0.4,
        title=say("finding.copies.title", share=units.show_share(found), phase=phase),
        impact={"value": found * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=say("finding.copies.change_offload") if known else say("finding.copies.change"),
        check=bench_command(facts.engine),
        run=facts.run,
    )
