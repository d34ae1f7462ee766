"""CUDA graphs that are larger than the batch they replay."""

from __future__ import annotations

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.rules.facts import PassFacts
from perflab.knowledge.engine_args import flag
from perflab.messages import say


def graph_padding(facts: PassFacts) -> Finding | None:
    """In the phase where most of the linear layers' work is padding."""
    found = [
        (rank.roofline.phases[phase].padding, rank.roofline.phases[phase], rank.roofline)
        for phase in facts.phases()
        for rank in facts.ranks
        if rank.roofline and phase in rank.roofline.phases
    ]
    known = [(padding, phase, roofline) for padding, phase, roofline in found if padding is not None]
    if not known:
        return None
    padding, phase, roofline = max(known, key=lambda one: one[0].extra_share)
    severity = facts.severity(padding.extra_share, "graph_padding")
    if severity is None or roofline.peaks is None:
        return None
    gemm = phase.kernels.get("gemm")
    costs = gemm is not None and gemm.side == "compute"
    evidence = [
        say("finding.padding.steps", padded=padding.padded_steps, steps=padding.steps, phase=phase.phase,
            tokens=f"{padding.tokens:.1f}", size=f"{padding.padded_tokens:.1f}"),
        say("finding.padding.costs" if costs else "finding.padding.free"),
    ]  # fmt: skip
    sizes = flag("cudagraph_capture_sizes", facts.engine.vllm_version)
    change = say("finding.padding.change", flag=f"`{sizes}`") if sizes else say("finding.padding.change_old")
    extra = padding.extra_share * (gemm.time_ns if gemm else 0.0)
    return Finding(
        id="graph_padding",
        severity=severity if costs else "info",
        confidence=0.7 if costs else 0.4,
        title=say("finding.padding.title", share=units.show_share(padding.extra_share), phase=phase.phase),
        impact={"value": extra / units.NS_PER_MS, "unit": "ms/step"} if costs else None,
        evidence=tuple(evidence),
        change=change,
        check=bench_command(facts.engine),
        run=facts.run,
    )
