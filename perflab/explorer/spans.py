"""What a stretch of time that a reader marks consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perflab.explorer.rank_times import CODES, RankTimes
from perflab.schema import CATEGORIES


@dataclass(frozen=True)
class SpanSum:
    """One rank's time in a stretch: exclusive time by category and idle sum to its length, to the nanosecond.

    `count` is activities that run in it; `on_cpu`: the rest of the time is no device that waits.
    """

    rank: int
    ns: int
    busy_ns: int
    idle_ns: int
    categories: dict[str, int]
    count: int
    on_cpu: bool


def span_sums(ranks: Sequence[RankTimes], start: int, end: int) -> list[SpanSum]:
    """Sums of one stretch, rank by rank."""
    return [_of_rank(times, start, end) for times in ranks]


def _of_rank(times: RankTimes, start: int, end: int) -> SpanSum:
    by_code = times.alone.total(start, end)
    busy = int(by_code.sum())
    rows = times.running(start, end)
    begin, finish = times.start[rows], times.end[rows]
    count = int(np.count_nonzero((finish > start) | (begin >= start)))
    return SpanSum(
        rank=times.rank.rank, ns=end - start, busy_ns=busy, idle_ns=end - start - busy,
        categories={CODES[one]: int(by_code[one]) for one in range(len(CATEGORIES)) if by_code[one]},
        count=count, on_cpu=times.rank.kind == "cpu",
    )  # fmt: skip
