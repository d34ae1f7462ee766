"""Communication that no computation hides."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command, is_on
from perflab.analysis.rules.facts import PassFacts
from perflab.messages import say


def exposed_communication(facts: PassFacts) -> Finding | None:
    """In the phase where it takes the largest share."""
    phases = facts.phases()
    if not phases:
        return None
    shares = {phase: [rank.share("communication", phase) for rank in facts.ranks] for phase in phases}
    phase = max(phases, key=lambda p: sum(shares[p]))
    found = shares[phase]
    mean = sum(found) / len(found)
    severity = facts.severity(mean, "exposed_communication")
    if severity is None:
        return None
    step = facts.ranks[found.index(min(found))].step_ns(phase)
    off = is_on(facts.engine.settings.get("disable_custom_all_reduce"))
    evidence = [
        say(
            "finding.communication.shares",
            least=units.show_share(min(found)),
            most=units.show_share(max(found)),
            phase=phase,
            ranks=len(found),
        ),
        say("finding.communication.exposed"),
    ]
    if len(found) > 1:
        evidence.append(say("finding.communication.waiting"))
    if off:
        evidence.append(say("finding.communication.custom_off"))
    return Finding(
        id="exposed_communication",
        severity=severity,
        confidence=0.8 if off else 0.5,
        title=say("finding.communication.title", share=units.show_share(mean), phase=phase),
        impact={"value": min(found) * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=say("finding.communication.change_custom") if off else say("finding.communication.change"),
        check=bench_command(facts.engine),
        run=facts.run,
    )
