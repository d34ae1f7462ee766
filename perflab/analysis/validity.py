"""Can a benchmark result be believed? Checks of one measured point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.metrics import prefix_hit_share
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say


@dataclass(frozen=True)
class BenchFacts:
    """What the checks need of one measured point; None or empty where it is not known.

    Attributes
    ----------
    rate, concurrency
        As asked for: requests a second (None: all at once) and requests at once (None: no limit).
    metrics
        From `latency_metrics` or `metrics_from_reported`.
    requests
        Table `requests`, None where the result is not detailed.
    data
        Kind of prompts; one whose name holds `prefix` is meant to hit the prefix cache.
    deltas
        Growth of the server's counters during the point, from `counter_deltas`.
    server_means
        Means of the server's histograms, from `histogram_means`.
    thresholds
        Perflab's own, or those a user set.
    """

    completed: int | None
    failed: int | None
    num_prompts: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    total_output_tokens: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    requests: pd.DataFrame | None = None
    data: str = "random"
    deltas: Mapping[str, float] = field(default_factory=dict)
    server_means: Mapping[str, float] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=own_thresholds)


def bench_checks(facts: BenchFacts) -> list[Check]:
    """Every check of one measured point, in reading order."""
    return [
        _failures(facts),
        _samples(facts),
        _offered_rate(facts),
        _concurrency(facts),
        _prefix_hits(facts),
        _preemptions(facts),
        _warm_up(facts),
        _streaming(facts),
        _tokens(facts),
        _server_ttft(facts),
    ]


def in_flight(requests: pd.DataFrame) -> int | None:
    """The most requests that were under way at once; None where arrivals are not known."""
    known = requests[requests["arrival_ns"].notna() & requests["finish_ns"].notna()]
    if known.empty:
        return None
    # At one instant an end comes before an arrival: the freed place is the one that is taken.
    moments = np.concatenate((known["finish_ns"].to_numpy(np.int64), known["arrival_ns"].to_numpy(np.int64)))
    change = np.repeat([-1, 1], len(known))
    return int(np.cumsum(change[np.lexsort((change, moments))]).max())


def _failures(facts: BenchFacts) -> Check:
    asked, completed, failed = facts.num_prompts, facts.completed, facts.failed
    if failed is None and asked is not None and completed is not None:
        failed = max(asked - completed, 0)
    if failed is None or completed is None:
        return Check("requests_failed", "not_applicable", say("validity.requests_failed.unknown"))
    if not completed:
        return Check("requests_failed", "fail", say("validity.requests_failed.all", failed=failed), _EVERYTHING)
    share = failed / (failed + completed)
    if share <= facts.thresholds.limit("failed_requests", "warn"):
        return Check("requests_failed", "pass", say("validity.requests_failed.pass", n=completed))
    detail = say("validity.requests_failed.warn", failed=failed, n=failed + completed, share=units.show_share(share))
    bad = share > facts.thresholds.limit("failed_requests", "fail")
    return Check("requests_failed", "fail" if bad else "warn", detail, _EVERYTHING)


def _samples(facts: BenchFacts) -> Check:
    shown = facts.metrics.get("ttft_ms") or facts.metrics.get("e2el_ms")
    n = shown.get("n") if shown else None
    if n is None:
        return Check("enough_samples", "not_applicable", say("validity.enough_samples.unknown"))
    short = [name for name in ("p90", "p95", "p99") if n < facts.thresholds.limit("samples", name)]
    if not short:
        return Check("enough_samples", "pass", say("validity.enough_samples.pass", n=n))
    detail = say(
        "validity.enough_samples.warn",
        n=n,
        names=", ".join(short),
        needed=f"{facts.thresholds.limit('samples', 'p99'):.0f}",
    )
    return Check("enough_samples", "warn", detail, (of.TAIL,))


def _offered_rate(facts: BenchFacts) -> Check:
    if facts.rate is None:
        return Check("offered_rate", "not_applicable", say("validity.offered_rate.unbounded"))
    arrivals = None if facts.requests is None else facts.requests["arrival_ns"].dropna().to_numpy(np.int64)
    if arrivals is None or len(arrivals) < 2:
        return Check("offered_rate", "not_applicable", say("validity.offered_rate.unknown", asked=f"{facts.rate:g}"))
    sent = (len(arrivals) - 1) / units.seconds(int(arrivals.max() - arrivals.min()) or 1)
    fields = {"asked": f"{facts.rate:g}", "sent": f"{sent:.2f}"}
    # The client plans the last of n arrivals n/rate after its start, the first anywhere from the start on: keeping up,
    # it sends n-1 requests within n/rate of the first.
    kept_up = facts.rate * (len(arrivals) - 1) / len(arrivals)
    if sent >= kept_up * (1 - facts.thresholds.limit("offered_rate", "warn")):
        return Check("offered_rate", "pass", say("validity.offered_rate.pass", **fields))
    capped = facts.concurrency is not None
    detail = (
        say("validity.offered_rate.capped", **fields, concurrency=facts.concurrency)
        if capped
        else say("validity.offered_rate.warn", **fields)
    )
    return Check("offered_rate", "warn", detail, (of.LOAD, of.LATENCY))


def _concurrency(facts: BenchFacts) -> Check:
    asked = facts.concurrency
    if asked is None:
        return Check("concurrency_reached", "not_applicable", say("validity.concurrency_reached.unlimited"))
    reached = in_flight(facts.requests) if facts.requests is not None else None
    if reached is None and facts.num_prompts is not None and facts.num_prompts < asked:
        reached = facts.num_prompts
    if reached is None:
        detail = say("validity.concurrency_reached.unknown", asked=asked)
        return Check("concurrency_reached", "not_applicable", detail)
    if reached >= asked:
        return Check("concurrency_reached", "pass", say("validity.concurrency_reached.pass", asked=asked))
    detail = say("validity.concurrency_reached.warn", asked=asked, reached=reached)
    return Check("concurrency_reached", "warn", detail, (of.LOAD,))


def _prefix_hits(facts: BenchFacts) -> Check:
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


def _preemptions(facts: BenchFacts) -> Check:
    count = facts.deltas.get("num_preemptions")
    if count is None:
        return Check("preemptions", "not_applicable", say("validity.preemptions.unknown"))
    if not count:
        return Check("preemptions", "pass", say("validity.preemptions.pass"))
    detail = say("validity.preemptions.warn", count=units.show_count(count))
    return Check("preemptions", "warn", detail, (of.LATENCY,))


def _warm_up(facts: BenchFacts) -> Check:
    timed = _first_and_rest(facts.requests)
    if timed is None:
        return Check("warm_up", "not_applicable", say("validity.warm_up.unknown"))
    first, rest = timed
    median = float(np.median(rest))
    if median <= 0 or first <= facts.thresholds.limit("warm_up", "ratio") * median or first <= float(np.max(rest)):
        return Check("warm_up", "pass", say("validity.warm_up.pass"))
    detail = say(
        "validity.warm_up.warn",
        first=units.show_time(first),
        median=units.show_time(median),
        mean=units.show_time((first + float(np.sum(rest))) / (len(rest) + 1)),
        steady=units.show_time(float(np.mean(rest))),
    )
    return Check("warm_up", "warn", detail, (of.TTFT, of.TAIL))


def _first_and_rest(requests: pd.DataFrame | None) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]] | None:
    """TTFT in ns of the request that was sent first, and of the others; None where order or times are unknown."""
    if requests is None:
        return None
    known = requests[(requests["status"] != "failed") & requests["arrival_ns"].notna()]
    ttft = known["ttft_ns"] if "ttft_ns" in known else known["first_token_ns"] - known["arrival_ns"]
    ordered = ttft[known["arrival_ns"].sort_values(kind="stable").index].dropna().to_numpy(np.float64)
    return (float(ordered[0]), ordered[1:]) if len(ordered) > 2 else None


def _streaming(facts: BenchFacts) -> Check:
    itl = facts.metrics.get("itl_ms")
    if facts.metrics.get("source") == "computed" and facts.metrics.get("e2el_ms") and not facts.metrics.get("ttft_ms"):
        return Check("streaming", "warn", say("validity.streaming.none"), (of.TTFT, of.ITL))
    per_chunk = itl.get("tokens_per_chunk") if itl else None
    if per_chunk is None:
        return Check("streaming", "not_applicable", say("validity.streaming.unknown"))
    if per_chunk <= facts.thresholds.limit("tokens_per_chunk", "warn"):
        return Check("streaming", "pass", say("validity.streaming.pass"))
    return Check("streaming", "warn", say("validity.streaming.warn", per_chunk=f"{per_chunk:.1f}"), (of.ITL,))


def _tokens(facts: BenchFacts) -> Check:
    server, client = facts.deltas.get("generation_tokens"), facts.total_output_tokens
    if not server or client is None:
        return Check("token_count", "not_applicable", say("validity.token_count.unknown"))
    fields = {"client": units.show_count(client), "server": units.show_count(server)}
    if abs(client - server) <= facts.thresholds.limit("token_count", "warn") * server:
        return Check("token_count", "pass", say("validity.token_count.pass", **fields))
    if client > server:
        return Check("token_count", "warn", say("validity.token_count.more", **fields), (of.THROUGHPUT,))
    return Check("token_count", "warn", say("validity.token_count.fewer", **fields), (of.THROUGHPUT,))


def _server_ttft(facts: BenchFacts) -> Check:
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


_EVERYTHING = (of.LATENCY, of.THROUGHPUT, of.LOAD)
