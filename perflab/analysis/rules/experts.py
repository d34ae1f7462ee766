"""Experts that keep one rank busier than the others."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.ranks.expert_balance import expert_balance
from perflab.analysis.rules.facts import PassFacts
from perflab.messages import say


def expert_imbalance(facts: PassFacts) -> Finding | None:
    """In the phase where it costs most; none where routers are random, which says nothing about a trained model."""
    phases = facts.phases()
    known = expert_balance([rank.record for rank in facts.ranks], facts.engine.settings)
    found = [known[phase] for phase in phases if phase in known and not known[phase].random_routers]
    if not found:
        return None
    worst = max(found, key=lambda one: one.excess_ns)
    severity = facts.severity(worst.imbalance, "expert_imbalance")
    if severity is None:
        return None
    times = ", ".join(
        say("finding.experts.rank", rank=rank, time=units.show_time(ns)) for rank, ns in sorted(worst.step_ns.items())
    )
    return Finding(
        id="expert_imbalance",
        severity=severity,
        confidence=0.6,
        title=say(
            "finding.experts.title",
            rank=worst.busiest,
            share=units.show_share(worst.imbalance),
            phase=worst.phase,
        ),
        impact={"value": worst.excess_ns / units.NS_PER_MS, "unit": "ms/step"},
        evidence=(
            say("finding.experts.times", phase=worst.phase, times=times, steps=worst.steps),
            say("finding.experts.prompts"),
        ),
        change=say("finding.experts.change"),
        check=bench_command(facts.engine),
        run=facts.run,
    )
