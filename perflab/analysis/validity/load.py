"""Was the load the one that was asked for?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.validity.facts import EVERYTHING, BenchFacts
from perflab.messages import say


def in_flight(requests: pd.DataFrame) -> int | None:
    """The most requests that were under way at once; None where arrivals are not known."""
    known = requests[requests["arrival_ns"].notna() & requests["finish_ns"].notna()]
    if known.empty:
        return None
    # At one instant an end comes before an arrival: the freed place is the one that is taken.
    moments = np.concatenate((known["finish_ns"].to_numpy(np.int64), known["arrival_ns"].to_numpy(np.int64)))
    change = np.repeat([-1, 1], len(known))
    return int(np.cumsum(change[np.lexsort((change, moments))]).max())


def failures(facts: BenchFacts) -> Check:
    """Requests that failed or never came back."""
    asked, completed, failed = facts.num_prompts, facts.completed, facts.failed
    if failed is None and asked is not None and completed is not None:
        failed = max(asked - completed, 0)
    if failed is None or completed is None:
        return Check("requests_failed", "not_applicable", say("validity.requests_failed.unknown"))
    if not completed:
        return Check("requests_failed", "fail", say("validity.requests_failed.all", failed=failed), EVERYTHING)
    share = failed / (failed + completed)
    if share <= facts.thresholds.limit("failed_requests", "warn"):
        return Check("requests_failed", "pass", say("validity.requests_failed.pass", n=completed))
    detail = say("validity.requests_failed.warn", failed=failed, n=failed + completed, share=units.show_share(share))
    bad = share > facts.thresholds.limit("failed_requests", "fail")
    return Check("requests_failed", "fail" if bad else "warn", detail, EVERYTHING)


def samples(facts: BenchFacts) -> Check:
    """Enough values for the percentiles that are shown."""
    shown = facts.metrics.get("ttft_ms") or facts.metrics.get("e2el_ms")
    n = shown.get("n") if shown else None
    if n is None:
        return Check("enough_samples", "not_applicable", say("validity.enough_samples.unknown"))
    short = [name for name in ("p90", "p95", "p99") if n < facts.thresholds.limit("samples", name)]
    if not short:
        return Check("enough_samples", "pass", say("validity.enough_samples.pass", n=n))
    detail = say(
        f"validity.enough_samples.warn{'_several' if len(short) > 1 else ''}",
        n=n,
        names=" and ".join(filter(None, (", ".join(short[:-1]), short[-1]))),
        needed=f"{facts.thresholds.limit('samples', 'p99'):.0f}",
    )
    return Check("enough_samples", "warn", detail, (of.TAIL,))


def offered_rate(facts: BenchFacts) -> Check:
    """Requests were sent at the rate asked for."""
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


def concurrency(facts: BenchFacts) -> Check:
    """As many requests were under way as asked for."""
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
        told = "pass_one" if asked == 1 else "pass"
        return Check("concurrency_reached", "pass", say(f"validity.concurrency_reached.{told}", asked=asked))
    detail = say("validity.concurrency_reached.warn", asked=asked, reached=reached)
    return Check("concurrency_reached", "warn", detail, (of.LOAD,))
