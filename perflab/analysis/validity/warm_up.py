"""Is a warm-up in the sample?"""

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


def _first_and_rest(requests: pd.DataFrame | None) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]] | None:
    """TTFT in ns of the request that was sent first, and of the others; None where order or times are unknown."""
    if requests is None:
        return None
    known = requests[(requests["status"] != "failed") & requests["arrival_ns"].notna()]
    ttft = known["ttft_ns"] if "ttft_ns" in known else known["first_token_ns"] - known["arrival_ns"]
    ordered = ttft[known["arrival_ns"].sort_values(kind="stable").index].dropna().to_numpy(np.float64)
    return (float(ordered[0]), ordered[1:]) if len(ordered) > 2 else None
