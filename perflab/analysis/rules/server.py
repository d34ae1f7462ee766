"""What the server's counters over a measured point say about its load."""

from __future__ import annotations

from collections.abc import Mapping

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.metrics import prefix_hit_share
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.runs import Engine


def contaminated(
    deltas: Mapping[str, float], engine: Engine, data: str, run: str, thresholds: Thresholds
) -> Finding | None:
    """Prompts came from the prefix cache where none were meant to."""
    share = prefix_hit_share(deltas)
    if share is None or share < thresholds.limit("prefix_hits", "warn") or "prefix" in data:
        return None
    hits, queries = (units.show_count(deltas[f"prefix_cache_{name}"]) for name in ("hits", "queries"))
    return Finding(
        id="prefix_cache_contaminated",
        severity="warning" if share >= thresholds.limit("prefix_hits", "fail") else "info",
        confidence=0.95,
        title=say("finding.prefix_cache.title", share=units.show_share(share)),
        impact={"value": share, "unit": "share"},
        evidence=(say("finding.prefix_cache.counted", hits=hits, queries=queries), say("finding.prefix_cache.seed")),
        change=say("finding.prefix_cache.change"),
        check=bench_command(engine, seed=2),
        run=run,
    )


def few_prefix_hits(
    deltas: Mapping[str, float], engine: Engine, data: str, run: str, thresholds: Thresholds
) -> Finding | None:
    """Fewer prompt tokens came from the prefix cache than the user asks for; silent where nobody asks."""
    least, share = thresholds.maybe("prefix_hits_least", "warning"), prefix_hit_share(deltas)
    if least is None or share is None or share >= least:
        return None
    hits, queries = (units.show_count(deltas[f"prefix_cache_{name}"]) for name in ("hits", "queries"))
    evidence = [
        say("finding.prefix_hits_least.counted", hits=hits, queries=queries),
        say("finding.prefix_hits_least.limit", least=units.show_share(least)),
    ]
    if "prefix" not in data:
        evidence.append(say("finding.prefix_hits_least.unique"))
    return Finding(
        id="prefix_cache_below_limit",
        severity="warning" if "prefix" in data else "info",
        confidence=0.9,
        title=say("finding.prefix_hits_least.title", share=units.show_share(share), least=units.show_share(least)),
        impact={"value": share, "unit": "share"},
        evidence=tuple(evidence),
        change=say("finding.prefix_hits_least.change"),
        check=bench_command(engine),
        run=run,
    )


def preempted(deltas: Mapping[str, float], engine: Engine, kv_usage: float | None, run: str) -> Finding | None:
    """Requests lost their place in the KV cache."""
    count = deltas.get("num_preemptions")
    if not count:
        return None
    finished = deltas.get("request_success")
    evidence = [say("finding.preemptions.counted", count=units.show_count(count))]
    if finished:
        evidence.append(say("finding.preemptions.per_request", finished=units.show_count(finished)))
    if kv_usage is not None:
        evidence.append(say("finding.preemptions.kv_usage", share=units.show_share(kv_usage)))
    known = {name: engine.settings.get(name) for name in ("gpu_memory_utilization", "max_num_seqs", "max_model_len")}
    told = ", ".join(f"`{name}` {value}" for name, value in known.items() if value is not None)
    if told:
        evidence.append(say("finding.preemptions.settings", settings=told))
    return Finding(
        id="kv_preemptions",
        severity="warning",
        confidence=0.9,
        title=say("finding.preemptions.title", count=units.show_count(count)),
        impact={"value": count / finished, "unit": "preemptions/request"} if finished else None,
        evidence=tuple(evidence),
        change=say("finding.preemptions.change_cpu" if engine.flavour == "cpu" else "finding.preemptions.change"),
        check=bench_command(engine),
        run=run,
    )
