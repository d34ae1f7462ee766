"""Goodput: requests that meet every service level objective (SLO), as vLLM counts them, and where that cannot be told.

vLLM (`benchmarks/serve.py`, `calculate_metrics`, option `--goodput`): a request that was answered is good when its
TTFT, TPOT and E2EL are each at most the limit given; a single token has no TPOT and meets any; goodput is good requests
over the benchmark's duration. A limit on ITL is perflab's own: no gap between chunks of the request is longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perflab.errors import InputError
from perflab.messages import say

OBJECTIVES: tuple[str, ...] = ("ttft_ms", "tpot_ms", "e2el_ms", "itl_ms")
OWN: tuple[str, ...] = ("itl_ms",)
"""Objectives that vLLM does not have."""


@dataclass(frozen=True)
class Goodput:
    """How many requests meet a set of objectives.

    Attributes
    ----------
    slos
        Limits in milliseconds, by `OBJECTIVES`.
    good, answered, unknown
        Requests that meet all, that did not fail, and that lack a figure which would decide (tokens that were not
        streamed have no TTFT).
    per_s
        Good requests a second; None where the duration, or what any request did, is not known.
    share
        Of all requests asked for, failed ones included: those are not good. None as `per_s`.
    missed
        By objective, how many answered requests exceed it.
    own
        Objectives used that vLLM does not have: with one of them, this is not vLLM's goodput.
    """

    slos: Mapping[str, float]
    good: int
    answered: int
    unknown: int
    per_s: float | None
    share: float | None
    missed: Mapping[str, int]
    own: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `goodput` of a point."""
        return {
            "slos": dict(self.slos),
            "good": self.good,
            "answered": self.answered,
            "unknown": self.unknown,
            "per_s": self.per_s,
            "share": self.share,
            "missed": dict(self.missed),
            "not_vllms": list(self.own),
        }


def objectives(given: Mapping[str, float | None]) -> dict[str, float]:
    """Limits by canonical name: `ttft` and `ttft_ms` are the same. Those that are None are left out.

    Raises
    ------
    InputError
        When there is no such objective, or a limit is no number above 0.
    """
    found: dict[str, float] = {}
    for name, limit in given.items():
        canonical = name if name.endswith("_ms") else f"{name}_ms"
        if canonical not in OBJECTIVES:
            raise InputError(say("goodput.no_such", name=name, names=", ".join(OBJECTIVES)))
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < float("inf"):
            raise InputError(say("goodput.no_limit", name=name, limit=limit))
        found[canonical] = float(limit)
    return found


def goodput(
    latencies: pd.DataFrame,
    output_tokens: pd.Series[Any],
    slos: Mapping[str, float],
    duration_s: float | None,
    *,
    longest_gap_ms: pd.Series[float] | None = None,
    failed: int = 0,
) -> Goodput | None:
    """Count the requests that meet every objective; None without objectives.

    Parameters
    ----------
    latencies
        From `perflab.analysis.latency.request_latencies`: answered requests, `request_id`, `ttft_ms`, `tpot_ms`,
        `e2el_ms`.
    output_tokens
        Of the same requests, in the same order.
    slos
        Limits by `OBJECTIVES`.
    longest_gap_ms
        By request_id, for an objective on ITL.
    failed
        Requests that failed: asked for and not good.
    """
    if not slos:
        return None
    tokens = output_tokens.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    values = {name: latencies[name].to_numpy(np.float64) for name in OBJECTIVES if name in latencies}
    if longest_gap_ms is not None:
        values["itl_ms"] = latencies["request_id"].map(longest_gap_ms).to_numpy(np.float64)
    n = len(latencies)
    met, known = np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    missed = {}
    for name, limit in slos.items():
        of = values.get(name, np.full(n, np.nan))
        # What has no second token has no time between tokens to be too long.
        single = (tokens <= 1) if name in ("tpot_ms", "itl_ms") else np.zeros(n, dtype=bool)
        over = (of > limit) & ~single
        missed[name] = int(over.sum())
        met &= ~over
        known &= single | ~np.isnan(of)
    undecided = int((met & ~known).sum())
    good = int((met & known).sum())
    told = undecided == 0
    asked = n + failed
    return Goodput(
        slos=dict(slos),
        good=good,
        answered=n,
        unknown=undecided,
        per_s=good / duration_s if told and duration_s else None,
        share=good / asked if told and asked else None,
        missed=missed,
        own=tuple(name for name in slos if name in OWN),
    )


def longest_gaps(gaps: pd.DataFrame) -> pd.Series[float]:
    """The longest gap of each request, from `perflab.analysis.latency.chunk_gaps`."""
    return gaps.groupby("request_id")["itl_ms"].max()
