"""The device waits for its host."""

from __future__ import annotations

import re
from typing import Any

from perflab import units
from perflab.analysis.finding import Finding, bench_command, is_on
from perflab.analysis.rules.facts import PassFacts, RankFacts
from perflab.messages import say
from perflab.runs import Engine

_NO_GRAPHS = re.compile(r"cudagraph_mode\W{1,6}(CUDAGraphMode\.)?NONE")


def host_bound(facts: PassFacts) -> Finding | None:
    """Kernels were launched late: in the phase and on the rank where most of the time went so."""

    def share(rank: RankFacts, phase: str) -> float:
        causes = rank.idle.get("phases", {}).get(phase, {}).get("causes", {})
        return float(causes.get("host_bound", 0)) / float(rank.phase(phase)["window_ns"])

    phases = facts.phases()
    if not phases:
        return None
    worst, phase = max(((rank, p) for p in phases for rank in facts.ranks), key=lambda pair: share(*pair))
    waited = share(worst, phase)
    record, step = worst.phase(phase), worst.step_ns(phase)
    of_rank = "_rank" if len(facts.ranks) > 1 else ""
    own_ns, own_share = _of_the_engine(facts, phase, waited * step, step)
    severity = facts.severity(own_share, "host_bound")
    stacks = any(c.check == "profiler_overhead" and c.status == "warn" for c in facts.checks)
    cause, change, confidence, settings = _why(facts.engine)
    # With stacks the profiler itself holds the host up: only a cause in the settings is then worth saying, and
    # how much it costs cannot be told.
    if severity is None or (stacks and cause is None):
        return None
    if stacks:
        severity, confidence = "info", min(confidence, 0.5)
    evidence = [
        say(
            f"finding.host_bound.waited{of_rank}",
            rank=worst.rank,
            waited=units.show_time(waited * step),
            step=units.show_time(step),
            phase=phase,
            steps=record["steps"],
        ),
        say("finding.host_bound.busy", busy=units.show_share(record["busy_ns"] / record["window_ns"])),
        *([cause] if cause else []),
        say("finding.host_bound.stacks") if stacks else _profiled(facts, phase, own_ns),
    ]
    return Finding(
        id="host_bound",
        severity=severity,
        confidence=confidence,
        title=say(f"finding.host_bound.title{of_rank}", rank=worst.rank, share=units.show_share(waited), phase=phase),
        impact=None if stacks else {"value": own_ns / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=change,
        check=bench_command(facts.engine),
        run=facts.run,
        settings=settings,
    )


def _of_the_engine(facts: PassFacts, phase: str, waited_ns: float, step_ns: float) -> tuple[float, float]:
    """Waiting that can be the engine's own, in nanoseconds a step and as a share of an unprofiled step.

    Kernels take as long with the profiler as without, so what a step is longer by is waiting.
    """
    if phase != "decode" or facts.unprofiled is None:
        return waited_ns, waited_ns / step_ns
    excess = facts.unprofiled.excess_ns(step_ns)
    left = max(0.0, waited_ns - excess)
    return left, left / (step_ns - excess)


def _profiled(facts: PassFacts, phase: str, own_ns: float) -> str:
    known = facts.unprofiled
    if phase != "decode" or known is None:
        return say("finding.host_bound.profiled")
    return say(
        "finding.host_bound.bounded",
        measured=units.show_time(known.step_ns),
        concurrency=known.concurrency,
        point=known.point,
        left=units.show_time(own_ns),
    )


def _why(engine: Engine) -> tuple[str | None, str, float, dict[str, Any]]:
    """The cause in words if the settings hold one, the change, how sure that is, and the arguments that make it."""
    settings = engine.settings
    if is_on(settings.get("enforce_eager")):
        return say("finding.host_bound.eager"), say("finding.host_bound.change_eager"), 0.9, {"enforce_eager": False}
    if _NO_GRAPHS.search(f"cudagraph_mode={settings.get('cudagraph_mode')} {settings.get('compilation_config')}"):
        return say("finding.host_bound.no_graphs"), say("finding.host_bound.change_no_graphs"), 0.9, {}
    if str(settings.get("async_scheduling")).lower() == "false":
        return say("finding.host_bound.sync"), say("finding.host_bound.change_sync"), 0.7, {"async_scheduling": True}
    return None, say("finding.host_bound.change_unknown"), 0.4, {}


def outside_operators(facts: PassFacts) -> Finding | None:
    """A CPU engine's time in Python, where the settings hold the cause: of the many, this one can be switched off."""
    if not is_on(facts.engine.settings.get("enforce_eager")) or "decode" not in facts.phases():
        return None
    phase = max((r.phase("decode") for r in facts.ranks), key=lambda p: float(p["idle_ns"]) / float(p["window_ns"]))
    share = phase["idle_ns"] / phase["window_ns"]
    severity = facts.severity(share, "outside_operators")
    if severity is None:
        return None
    step = phase["window_ns"] / phase["steps"]
    took = units.show_time(share * step)
    return Finding(
        id="outside_operators",
        severity=severity,
        confidence=0.6,
        title=say("finding.outside_operators.title", share=units.show_share(share)),
        # The profiler costs time at every operator, so what compiling would save cannot be read off this trace.
        impact=None,
        evidence=(
            say("finding.outside_operators.took", time=took, step=units.show_time(step), steps=phase["steps"]),
            say("finding.outside_operators.eager"),
            say("finding.outside_operators.profiled"),
        ),
        change=say("finding.outside_operators.change"),
        check=bench_command(facts.engine),
        run=facts.run,
        settings={"enforce_eager": False},
    )
