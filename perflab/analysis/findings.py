"""Rules that turn a breakdown and the server's counters into findings. Each is silent where its evidence is weak.

What rests on a figure that a failed check undermines is withheld, and the reader is told why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check, undermined
from perflab.analysis.finding import Finding, bench_command, is_on, severity_of, withheld
from perflab.analysis.metrics import prefix_hit_share
from perflab.knowledge.thresholds import threshold
from perflab.messages import say
from perflab.runs import Engine

__all__ = ["Finding", "rank_findings", "server_findings"]

_NO_GRAPHS = re.compile(r"cudagraph_mode\W{1,6}(CUDAGraphMode\.)?NONE")


def rank_findings(
    records: Sequence[Mapping[str, Any]],
    idles: Sequence[Mapping[str, Any]],
    engine: Engine,
    checks: Sequence[Check],
    *,
    run: str = "",
) -> list[Finding]:
    """Findings about where the time of a profiling pass went, over all its ranks.

    Parameters
    ----------
    records
        One a rank, from `perflab.analysis.breakdown.summary`.
    idles
        For each of them its value of `perflab.analysis.idle.idle_summary`; empty where there is none.
    engine
        The engine's settings, which may hold the cause.
    checks
        From `trace_checks`.
    run
        Goes into the findings.

    Returns
    -------
    list of Finding
        The gravest first. About a CPU engine only what its operators leave to Python: the other rules are about a
        device that a host feeds.
    """
    known = [(r, i) for r, i in zip(records, idles, strict=True) if r.get("phases")]
    on_cpu = [(r, i) for r, i in known if r.get("kind") == "cpu"]
    if on_cpu:
        eager = _outside_operators(on_cpu, engine, run)
        return _kept([(eager, (of.PHASES,))] if eager else [], checks)
    on_gpu = [(r, i) for r, i in known if r.get("kind") != "cpu"]
    if not on_gpu:
        return []
    found = [
        (_host_bound(on_gpu, engine, checks, run), (of.BREAKDOWN, of.IDLE)),
        (_communication(on_gpu, engine, run), (of.BREAKDOWN, of.COMMUNICATION)),
        (_copies(on_gpu, engine, run), (of.BREAKDOWN,)),
    ]
    return _kept([(finding, rests_on) for finding, rests_on in found if finding is not None], checks)


def server_findings(
    deltas: Mapping[str, float],
    engine: Engine,
    *,
    data: str = "random",
    kv_usage: float | None = None,
    checks: Sequence[Check] = (),
    run: str = "",
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
    """
    found = [
        (_contaminated(deltas, engine, data, run), (of.LOAD,)),
        (_preempted(deltas, engine, kv_usage, run), (of.LOAD,)),
    ]
    return _kept([(finding, rests_on) for finding, rests_on in found if finding is not None], checks)


def _kept(found: list[tuple[Finding, tuple[str, ...]]], checks: Sequence[Check]) -> list[Finding]:
    kept = []
    for finding, rests_on in found:
        failed = undermined(checks, *rests_on)
        kept.append(finding if failed is None else withheld(finding, failed))
    order = ("critical", "warning", "info")
    return sorted(kept, key=lambda finding: (order.index(finding.severity), -finding.confidence))


_Ranks = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def _phases(ranks: _Ranks) -> list[str]:
    """Phases with enough steps on every rank to be spoken about, decode first."""
    fewest = threshold("fewest_steps", "count")
    return [p for p in ("decode", "mixed", "prefill") if all(r["phases"][p]["steps"] >= fewest for r, _ in ranks)]


def _host_bound(ranks: _Ranks, engine: Engine, checks: Sequence[Check], run: str) -> Finding | None:
    def share(rank: tuple[Mapping[str, Any], Mapping[str, Any]], phase: str) -> float:
        record, idle = rank
        causes = idle.get("phases", {}).get(phase, {}).get("causes", {})
        return float(causes.get("host_bound", 0)) / float(record["phases"][phase]["window_ns"])

    phases = _phases(ranks)
    if not phases:
        return None
    worst, phase = max(((rank, p) for p in phases for rank in ranks), key=lambda pair: share(*pair))
    waited = share(worst, phase)
    severity = severity_of(waited, "host_bound")
    stacks = any(c.check == "profiler_overhead" and c.status == "warn" for c in checks)
    cause, change, confidence = _why_host_bound(engine)
    # With stacks the profiler itself holds the host up: only a cause in the settings is then worth saying, and
    # how much it costs cannot be told.
    if severity is None or (stacks and cause is None):
        return None
    if stacks:
        severity, confidence = "info", min(confidence, 0.5)
    record = worst[0]["phases"][phase]
    step = record["window_ns"] / record["steps"]
    evidence = [
        say(
            "finding.host_bound.waited",
            waited=units.show_time(waited * step),
            step=units.show_time(step),
            phase=phase,
            steps=record["steps"],
        ),
        say("finding.host_bound.busy", busy=units.show_share(record["busy_ns"] / record["window_ns"])),
        *([cause] if cause else []),
        say("finding.host_bound.stacks") if stacks else say("finding.host_bound.profiled"),
    ]
    return Finding(
        id="host_bound",
        severity=severity,
        confidence=confidence,
        title=say("finding.host_bound.title", share=units.show_share(waited), phase=phase),
        impact=None if stacks else {"value": waited * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=change,
        check=bench_command(engine),
        run=run,
    )


def _why_host_bound(engine: Engine) -> tuple[str | None, str, float]:
    """The cause in words if the settings hold one, the change, and how sure that is."""
    settings = engine.settings
    if is_on(settings.get("enforce_eager")):
        return say("finding.host_bound.eager"), say("finding.host_bound.change_eager"), 0.9
    if _NO_GRAPHS.search(f"cudagraph_mode={settings.get('cudagraph_mode')} {settings.get('compilation_config')}"):
        return say("finding.host_bound.no_graphs"), say("finding.host_bound.change_no_graphs"), 0.9
    if str(settings.get("async_scheduling")).lower() == "false":
        return say("finding.host_bound.sync"), say("finding.host_bound.change_sync"), 0.7
    return None, say("finding.host_bound.change_unknown"), 0.4


def _communication(ranks: _Ranks, engine: Engine, run: str) -> Finding | None:
    def shares(phase: str) -> list[float]:
        return [float(r["phases"][phase]["categories"]["communication"]["share"] or 0) for r, _ in ranks]

    phases = _phases(ranks)
    if not phases:
        return None
    phase = max(phases, key=lambda p: sum(shares(p)))
    found = shares(phase)
    severity = severity_of(sum(found) / len(found), "exposed_communication")
    if severity is None:
        return None
    least = ranks[found.index(min(found))][0]["phases"][phase]
    step = least["window_ns"] / least["steps"]
    off = is_on(engine.settings.get("disable_custom_all_reduce"))
    evidence = [
        say(
            "finding.communication.shares",
            least=units.show_share(min(found)),
            most=units.show_share(max(found)),
            phase=phase,
            ranks=len(ranks),
        ),
        say("finding.communication.exposed"),
    ]
    if len(ranks) > 1:
        evidence.append(say("finding.communication.waiting"))
    if off:
        evidence.append(say("finding.communication.custom_off"))
    return Finding(
        id="exposed_communication",
        severity=severity,
        confidence=0.8 if off else 0.5,
        title=say("finding.communication.title", share=units.show_share(sum(found) / len(found)), phase=phase),
        impact={"value": min(found) * step / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=say("finding.communication.change_custom") if off else say("finding.communication.change"),
        check=bench_command(engine),
        run=run,
    )


def _copies(ranks: _Ranks, engine: Engine, run: str) -> Finding | None:
    def share(record: Mapping[str, Any], phase: str) -> float:
        return float(record["phases"][phase]["categories"]["memory"]["share"] or 0)

    phases = _phases(ranks)
    if not phases:
        return None
    record, phase = max(((r, p) for p in phases for r, _ in ranks), key=lambda pair: share(*pair))
    found = share(record, phase)
    severity = severity_of(found, "copies")
    if severity is None:
        return None
    step = record["phases"][phase]["window_ns"] / record["phases"][phase]["steps"]
    offload = _number(engine.settings.get("cpu_offload_gb")) or 0.0
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
        check=bench_command(engine),
        run=run,
    )


def _outside_operators(ranks: _Ranks, engine: Engine, run: str) -> Finding | None:
    """Only where the settings hold the cause: time in Python has many, and this one can be switched off."""
    if not is_on(engine.settings.get("enforce_eager")) or "decode" not in _phases(ranks):
        return None
    phase = max((r["phases"]["decode"] for r, _ in ranks), key=lambda p: float(p["idle_ns"]) / float(p["window_ns"]))
    share = phase["idle_ns"] / phase["window_ns"]
    severity = severity_of(share, "outside_operators")
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
        check=bench_command(engine),
        run=run,
    )


def _contaminated(deltas: Mapping[str, float], engine: Engine, data: str, run: str) -> Finding | None:
    share = prefix_hit_share(deltas)
    if share is None or share < threshold("prefix_hits", "warn") or "prefix" in data:
        return None
    hits, queries = (units.show_count(deltas[f"prefix_cache_{name}"]) for name in ("hits", "queries"))
    return Finding(
        id="prefix_cache_contaminated",
        severity="warning" if share >= threshold("prefix_hits", "fail") else "info",
        confidence=0.95,
        title=say("finding.prefix_cache.title", share=units.show_share(share)),
        impact={"value": share, "unit": "share"},
        evidence=(say("finding.prefix_cache.counted", hits=hits, queries=queries), say("finding.prefix_cache.seed")),
        change=say("finding.prefix_cache.change"),
        check=bench_command(engine, seed=2),
        run=run,
    )


def _preempted(deltas: Mapping[str, float], engine: Engine, kv_usage: float | None, run: str) -> Finding | None:
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


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
