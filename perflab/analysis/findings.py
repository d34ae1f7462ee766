"""Findings about a profiling pass and about a measured point, by the rules of `perflab.analysis.rules`.

What rests on a figure that a failed check undermines is withheld, and the reader is told why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perflab.analysis import check as of
from perflab.analysis.check import Check, undermined
from perflab.analysis.finding import Again, Finding, withheld
from perflab.analysis.load.curve import LoadCurve
from perflab.analysis.load.evidence import LoadEvidence, Reason
from perflab.analysis.quantization.effect import Effect
from perflab.analysis.rules import CPU_RULES, GPU_RULES, PassFacts
from perflab.analysis.rules.load import past_knee
from perflab.analysis.rules.server import contaminated, few_prefix_hits, preempted
from perflab.knowledge.engine_args import as_version_has_it
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.runs import Engine

__all__ = ["Finding", "effect_findings", "gravest_first", "load_findings", "pass_findings", "server_findings"]


def pass_findings(facts: PassFacts) -> list[Finding]:
    """Findings about where the time of a profiling pass went, over all its ranks.

    Returns
    -------
    list of Finding
        The gravest first. Ranks without a breakdown are passed over; where one is a CPU engine's, only the rules for
        those apply.
    """
    known = [rank for rank in facts.ranks if rank.record.get("phases")]
    on_cpu = [rank for rank in known if rank.is_cpu]
    kept, rules = (on_cpu, CPU_RULES) if on_cpu else (known, GPU_RULES)
    if not kept:
        return []
    facts = replace(facts, ranks=kept)
    found = [(rule(facts), rests_on) for rule, rests_on in rules]
    told = [(one, rests_on) for one, rests_on in found if one is not None]
    return _kept(told, facts.checks, facts.engine, facts.again)


def effect_findings(effect: Effect, engine: Engine) -> list[Finding]:
    """Findings about a quantization that did not take effect, or runs otherwise than hoped."""
    return _kept([(one, ()) for one in effect.findings], (), engine)


def gravest_first(found: Sequence[Finding]) -> list[Finding]:
    """Findings of several rules in one order."""
    order = ("critical", "warning", "info")
    return sorted(found, key=lambda finding: (order.index(finding.severity), -finding.confidence))


def server_findings(
    deltas: Mapping[str, float],
    engine: Engine,
    *,
    data: str = "random",
    kv_usage: float | None = None,
    checks: Sequence[Check] = (),
    run: str = "",
    thresholds: Thresholds | None = None,
) -> list[Finding]:
    """Findings from the server's counters over one measured point.

    Parameters
    ----------
    deltas
        From `perflab.analysis.metrics.counter_deltas`.
    data
        Kind of prompts; one whose name holds `prefix` is meant to hit the prefix cache.
    kv_usage
        The largest KV cache use scraped, 0 to 1.
    checks
        From `bench_checks`.
    thresholds
        Perflab's own unless given.
    """
    limits = own_thresholds() if thresholds is None else thresholds
    found = [
        (contaminated(deltas, engine, data, run, limits), (of.LOAD,)),
        (few_prefix_hits(deltas, engine, data, run, limits), ()),
        (preempted(deltas, engine, kv_usage, run), (of.LOAD,)),
    ]
    return _kept([(one, rests_on) for one, rests_on in found if one is not None], checks, engine)


def load_findings(
    curve: LoadCurve,
    reasons: Sequence[Reason],
    engine: Engine,
    *,
    at_knee: LoadEvidence | None = None,
    past: LoadEvidence | None = None,
    checks: Sequence[Check] = (),
) -> list[Finding]:
    """Findings from a load curve; see `perflab.analysis.rules.load`. `checks` are those of the load past the knee."""
    found = past_knee(curve, reasons, engine, at_knee=at_knee, past=past)
    return [] if found is None else _kept([(found, (of.LOAD, of.THROUGHPUT))], checks, engine)


def _kept(
    found: list[tuple[Finding, tuple[str, ...]]], checks: Sequence[Check], engine: Engine, again: Again | None = None
) -> list[Finding]:
    """Withheld where a check failed, with flags as the engine's version names them, the gravest first.

    Where the run can be made again and the change is a matter of arguments, the check is that: one command, both sides.
    """
    kept = []
    for finding, rests_on in found:
        failed = undermined(checks, *rests_on)
        version = engine.vllm_version
        said = replace(
            finding,
            change=as_version_has_it(finding.change, version),
            evidence=tuple(as_version_has_it(text, version) for text in finding.evidence),
            check=again.with_settings(finding.settings) if again and finding.settings else finding.check,
        )
        kept.append(said if failed is None else withheld(said, failed))
    return gravest_first(kept)
