"""What the server and its GPUs did while the point was measured."""

from __future__ import annotations

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.metrics import prefix_hit_share
from perflab.analysis.validity.facts import BenchFacts
from perflab.knowledge.throttle_reasons import POWER_CAP, throttle_reasons
from perflab.messages import say


def prefix_hits(facts: BenchFacts) -> Check:
    """No prompt was answered from the prefix cache where none was meant to be."""
    share = prefix_hit_share(facts.deltas)
    if share is None:
        return Check("prefix_cache", "not_applicable", say("validity.prefix_cache.unknown"))
    shown = units.show_share(share)
    if "prefix" in facts.data:
        return Check("prefix_cache", "not_applicable", say("validity.prefix_cache.meant", share=shown))
    if share < facts.thresholds.limit("prefix_hits", "warn"):
        return Check("prefix_cache", "pass", say("validity.prefix_cache.pass", share=shown))
    hits = units.show_count(facts.deltas["prefix_cache_hits"])
    bad = share >= facts.thresholds.limit("prefix_hits", "fail")
    detail = say("validity.prefix_cache.warn", share=shown, hits=hits)
    return Check("prefix_cache", "fail" if bad else "warn", detail, (of.TTFT, of.THROUGHPUT))


def preemptions(facts: BenchFacts) -> Check:
    """No request lost its place in the KV cache."""
    count = facts.deltas.get("num_preemptions")
    if count is None:
        return Check("preemptions", "not_applicable", say("validity.preemptions.unknown"))
    if not count:
        return Check("preemptions", "pass", say("validity.preemptions.pass"))
    detail = say("validity.preemptions.warn", count=units.show_count(count))
    return Check("preemptions", "warn", detail, (of.LATENCY,))


def server_ttft(facts: BenchFacts) -> Check:
    """Client and server agree on the time to first token."""
    server = facts.server_means.get("time_to_first_token_seconds")
    client = (facts.metrics.get("ttft_ms") or {}).get("mean")
    if server is None or client is None:
        return Check("client_server_ttft", "not_applicable", say("validity.client_server_ttft.unknown"))
    client_s = client / 1000
    fields = {"client": units.show_time(client_s * units.NS_PER_S), "server": units.show_time(server * units.NS_PER_S)}
    near = client_s - server <= facts.thresholds.limit("client_server_ttft", "floor_s")
    if near or client_s <= facts.thresholds.limit("client_server_ttft", "ratio") * server:
        return Check("client_server_ttft", "pass", say("validity.client_server_ttft.pass", **fields))
    return Check("client_server_ttft", "warn", say("validity.client_server_ttft.warn", **fields), (of.TTFT,))


def clocks(facts: BenchFacts) -> Check:
    """GPUs kept their clocks while they were busy, or lost them only to their power limit, which is how they work."""
    seen = facts.machine
    if seen is None or not seen.low_clock_mhz or not seen.high_clock_mhz:
        return Check("clocks", "not_applicable", say("validity.clocks.unknown"))
    fields = {"low": f"{seen.low_clock_mhz:.0f}", "high": f"{seen.high_clock_mhz:.0f}"}
    if seen.low_clock_mhz >= seen.high_clock_mhz * (1 - facts.thresholds.limit("clocks", "warn")):
        return Check("clocks", "pass", say("validity.clocks.pass", **fields))
    if seen.throttled_by == (throttle_reasons()[POWER_CAP],):
        return Check("clocks", "pass", say("validity.clocks.power", **fields))
    names = ", ".join(seen.throttled_by)
    reasons = " " + say("validity.clocks.because", names=names) if names else ""
    detail = say("validity.clocks.warn", **fields, reasons=reasons)
    return Check("clocks", "warn", detail, (of.LATENCY, of.THROUGHPUT))
