"""The client's clock on the time axis of the server's step records, and how far that can be off.

Client times are readings of perf_counter, step records carry CLOCK_MONOTONIC and the epoch. Anchors tie perf_counter
to the epoch before and after a point; records tie CLOCK_MONOTONIC to the epoch at every step. The difference of the
two ties is the offset: on one Linux host it is nought but for the time between a record's two readings, and whatever
the epoch's clock was set by in between shows as drift.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab.analysis.intervals import Ints, as_ints
from perflab.units import NS_PER_MS

SAME_CLOCK_NS = NS_PER_MS
"""Two clocks that agree this well through the epoch are one: the epoch is only as good as its readings."""


@dataclass(frozen=True)
class ClockTie:
    """How client times become times of step records: add `offset_ns`.

    Attributes
    ----------
    offset_ns
        0 where both are the same clock; `measured_ns` otherwise.
    measured_ns
        Anchors' offset less the records', both to the epoch, over the point.
    uncertainty_ns
        Half the widest anchor, the change of either offset over the point, and for one clock nothing else.
    is_one_clock
        Both are CLOCK_MONOTONIC of one host.
    """

    offset_ns: int
    measured_ns: int
    uncertainty_ns: int
    is_one_clock: bool


def clock_tie(anchors: Iterable[tuple[int, int]], iterations: pd.DataFrame) -> ClockTie | None:
    """The tie over one point.

    Parameters
    ----------
    anchors
        `(epoch - perf_counter, width)` of the anchors around the point, ns.
    iterations
        Table `iterations`, the records of the point.

    Returns
    -------
    ClockTie or None
        None without anchors or records.
    """
    known = list(anchors)
    if not known or iterations.empty:
        return None
    base = known[0][0]
    # Less a common one: the median of epochs would lose the last digits to the float it comes as.
    offsets = as_ints([offset - base for offset, _ in known])
    records = _offsets(iterations) - base
    measured = int(np.median(offsets)) - int(np.median(records))
    width = max(width for _, width in known)
    drift = int(offsets.max() - offsets.min()) + int(np.percentile(records, 99) - np.percentile(records, 1))
    one = abs(measured) <= SAME_CLOCK_NS
    return ClockTie(0 if one else measured, measured, width // 2 + drift, one)


def _offsets(iterations: pd.DataFrame) -> Ints:
    return as_ints(iterations["t_ns"].to_numpy(np.int64) - iterations["monotonic_ns"].to_numpy(np.int64))
