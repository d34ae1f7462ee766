"""Is a warm-up in the sample: a slow first request, or an engine that is slow at first?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.validity.facts import BenchFacts
from perflab.messages import say


def warm_up(facts: BenchFacts) -> Check:
    """The first request did not pay for a warm-up."""
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


_FEWEST = 4
"""Requests on either side of a comparison of paces (judgement: quartiles of fewer mean nothing)."""
_MOSTLY_ANSWERS = 1 / 3
"""Largest share of TTFT in E2EL: beyond it, later answers are decoded in smaller batches than the first (judgement)."""


def pace(facts: BenchFacts) -> Check:
    """With the same number of requests at once, tokens came no slower at first than later.

    The pace of a request is the median of its gaps between chunks, which leaves out the steps that computed others'
    prompts. The first requests are as many as run at once. They count as slower where their median is, and where the
    middle halves of both do not overlap.
    """
    paces = _paces(facts)
    count = max(facts.concurrency or 0, _FEWEST)
    if paces is None or len(paces) < 2 * count:
        return Check("pace", "not_applicable", say("validity.pace.unknown"))
    first, later = paces[:count], paces[count:]
    before, after = float(np.median(first)), float(np.median(later))
    fields = {"count": str(count), "first": units.show_time(before), "later": units.show_time(after)}
    apart = np.quantile(first, 0.25) > np.quantile(later, 0.75)
    if not apart or before <= facts.thresholds.limit("pace", "ratio") * after:
        return Check("pace", "pass", say("validity.pace.pass", **fields))
    return Check("pace", "warn", say("validity.pace.warn", **fields), (of.LATENCY, of.TPOT, of.ITL, of.THROUGHPUT))


def _paces(facts: BenchFacts) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Each request's median gap in ns, in the order of sending; None where the load or the gaps do not allow it."""
    itl = facts.metrics.get("itl_ms") or {}
    per_chunk = itl.get("tokens_per_chunk")
    if facts.requests is None or facts.chunks is None or facts.concurrency is None:
        return None
    # Where chunks hold several tokens, gaps tell when the client read, not when the engine wrote.
    if per_chunk is None or per_chunk > facts.thresholds.limit("tokens_per_chunk", "warn"):
        return None
    ttft, whole = ((facts.metrics.get(name) or {}).get("mean") for name in ("ttft_ms", "e2el_ms"))
    if ttft is None or whole is None or ttft > _MOSTLY_ANSWERS * whole:
        return None
    chunks = facts.chunks.sort_values(["request_id", "chunk_index"])
    gaps = chunks.groupby("request_id")["arrival_ns"].diff()
    medians = gaps.groupby(chunks["request_id"]).median()
    sent = facts.requests[facts.requests["status"] != "failed"].set_index("request_id")["arrival_ns"]
    found = medians.reindex(sent.dropna().sort_values(kind="stable").index).dropna()
    return np.asarray(found, dtype=np.float64)


def _first_and_rest(requests: pd.DataFrame | None) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]] | None:
    """TTFT in ns of the request that was sent first, and of the others; None where order or times are unknown."""
    if requests is None:
        return None
    known = requests[(requests["status"] != "failed") & requests["arrival_ns"].notna()]
    ttft = known["ttft_ns"] if "ttft_ns" in known else known["first_token_ns"] - known["arrival_ns"]
    ordered = ttft[known["arrival_ns"].sort_values(kind="stable").index].dropna().to_numpy(np.float64)
    return (float(ordered[0]), ordered[1:]) if len(ordered) > 2 else None
