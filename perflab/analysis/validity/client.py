"""Did the client measure what it should: its definitions, the spread of its arrivals, its own speed?"""

from __future__ import annotations

import numpy as np

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.validity.facts import BenchFacts
from perflab.knowledge.clients import Mark, marks_of
from perflab.messages import say

_UNDERMINED = {"ttft_ms": of.TTFT, "itl_ms": of.ITL, "tpot_ms": of.TPOT, "e2el_ms": of.LATENCY}


def definitions(facts: BenchFacts) -> Check:
    """Latencies and counts are vLLM's, or were converted to be."""
    marks = marks_of(facts.marks)
    told = " ".join(say(f"definition.{mark.code}") for mark in marks)
    if not any(mark.differs for mark in marks):
        return Check("definitions", "pass", say("validity.definitions.pass", told=told))
    detail = say("validity.definitions.warn", client=facts.client, told=told)
    return Check("definitions", "warn", detail, _touched(marks))


def _touched(marks: list[Mark]) -> tuple[str, ...]:
    metrics = [metric for mark in marks if mark.differs for metric in mark.metrics]
    if any(mark.differs and not mark.metrics for mark in marks):
        return (of.LATENCY,)
    return tuple(dict.fromkeys(_UNDERMINED.get(metric, of.THROUGHPUT) for metric in metrics))


def bursts(facts: BenchFacts) -> Check:
    """Requests arrived as a Poisson process does.

    vLLM draws gaps from a gamma distribution of shape `burstiness`, whose coefficient of variation is one over its
    root: 1 for Poisson, more for a burstiness below 1 (vllm/benchmarks/serve.py, `get_request`).
    """
    if facts.rate is None:
        return Check("bursts", "not_applicable", say("validity.bursts.unlimited"))
    if facts.arrivals == "constant":
        return Check("bursts", "warn", say("validity.bursts.even"), (of.LOAD,))
    shape = facts.burstiness
    if shape is not None and shape > 0:
        if abs(shape - 1) <= facts.thresholds.limit("bursts", "shape"):
            return Check("bursts", "pass", say("validity.bursts.pass"))
        fields = {"burstiness": f"{shape:g}"}
        if shape > 1:
            return Check("bursts", "warn", say("validity.bursts.uneven", **fields), (of.LOAD,))
        detail = say("validity.bursts.bursty", **fields, cv=f"{shape**-0.5:.1f}")
        return Check("bursts", "warn", detail, (of.LOAD, of.TTFT, of.TAIL))
    return _seen_bursts(facts)


def _seen_bursts(facts: BenchFacts) -> Check:
    arrivals = None if facts.requests is None else facts.requests["arrival_ns"].dropna().to_numpy(np.int64)
    if arrivals is None or len(arrivals) < facts.thresholds.limit("bursts", "gaps"):
        return Check("bursts", "not_applicable", say("validity.bursts.unknown"))
    gaps = np.diff(np.sort(arrivals)).astype(np.float64)
    mean = float(gaps.mean())
    cv = float(gaps.std()) / mean if mean else 0.0
    limit = facts.thresholds.limit("bursts", "variation")
    if cv <= limit:
        return Check("bursts", "pass", say("validity.bursts.pass"))
    detail = say("validity.bursts.seen", cv=f"{cv:.1f}", limit=f"{limit:g}")
    return Check("bursts", "warn", detail, (of.LOAD, of.TTFT, of.TAIL))


def client_saturated(facts: BenchFacts) -> Check:
    """The client kept up: it neither filled its core nor sent late."""
    delay, cpu = facts.schedule_delay_s, None if facts.machine is None else facts.machine.client_cpu_percent
    touched = (of.LOAD, of.LATENCY, of.THROUGHPUT)
    if delay is not None and delay > facts.thresholds.limit("client_saturated", "delay_s"):
        shown = units.show_time(delay * units.NS_PER_S)
        return Check("client_saturated", "warn", say("validity.client_saturated.delay", delay=shown), touched)
    if cpu is not None and cpu > 100 * facts.thresholds.limit("client_saturated", "cpu"):
        shown = units.show_share(cpu / 100)
        return Check("client_saturated", "warn", say("validity.client_saturated.cpu", cpu=shown), touched)
    if delay is None and cpu is None:
        return Check("client_saturated", "not_applicable", say("validity.client_saturated.unknown"))
    return Check("client_saturated", "pass", say("validity.client_saturated.pass"))
