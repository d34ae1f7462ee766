"""What ran when on one rank, in arrays that pictures and sums are cut from: lanes, exclusive time, names."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.breakdown import innermost, tiers
from perflab.analysis.intervals import Ints, as_ints, exclusive, union
from perflab.analysis.steps import step_marks, step_of
from perflab.explorer.sums import TimeSums
from perflab.schema import CATEGORIES
from perflab.tasks.breakdown import RankBreakdown

CODES: tuple[str, ...] = (*CATEGORIES, "idle", "call", "wait")
"""What a stretch of a lane can be: a category; or a call of the host, and one that waits for the device."""
IDLE, CALL, WAIT = len(CATEGORIES), len(CATEGORIES) + 1, len(CATEGORIES) + 2
_WAITS = ("synchronize", "eventquery")
MOST_LANES = 8
"""Streams with a lane of their own; those with least time share one more."""


@dataclass(frozen=True)
class Lane:
    """One row of the timeline: stretches sorted by start.

    Attributes
    ----------
    kind
        `stream`, `streams` (several with little in them), `thread`, or `host` (its calls).
    row
        Position of each stretch's activity in the rank's tables: `kernels`, or for `host` `launches`.
    reach
        The latest end so far, so that what still runs at a time is found by search.
    """

    label: str
    kind: str
    start: Ints
    end: Ints
    code: Ints
    name: Ints
    row: Ints
    reach: Ints
    sums: TimeSums

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretches from where to where (positions) can lie in [start, end)."""
        low = int(np.searchsorted(self.reach, start, side="left"))
        return low, max(int(np.searchsorted(self.start, end, side="left")), low)


@dataclass(frozen=True)
class Names:
    """Distinct names of a rank's activities, then of its host calls."""

    full: tuple[str, ...]
    kernels: int


@dataclass(frozen=True, eq=False)
class RankTimes:
    """One rank, times in ns since the origin of its pass.

    Attributes
    ----------
    start, end, name, code, own_ns
        A row an activity, in the order of `rank.kernels`; `own_ns` is its duration, or of a CPU operator the time
        without the operators inside it.
    lanes
        The host's calls first (of a GPU), then streams, the busiest first.
    alone
        Disjoint stretches by category: exclusive time as `perflab.analysis.breakdown` gives it out.
    step
        Position in `steps` of the step each activity begins in, -1 outside.
    """

    rank: RankBreakdown
    origin: int
    start: Ints
    end: Ints
    name: Ints
    code: Ints
    own_ns: Ints
    names: Names
    lanes: tuple[Lane, ...]
    alone: TimeSums
    steps: pd.DataFrame
    step: Ints
    window: tuple[int, int]
    order: Ints = field(repr=False)
    """Activities by start."""
    sorted_start: Ints = field(repr=False)
    sorted_reach: Ints = field(repr=False)

    def running(self, start: int, end: int) -> Ints:
        """Activities that may run in [start, end): few more than those that do."""
        low = int(np.searchsorted(self.sorted_reach, start, side="left"))
        high = max(int(np.searchsorted(self.sorted_start, end, side="left")), low)
        return self.order[low:high]


def rank_times(rank: RankBreakdown, origin: int) -> RankTimes:
    """Arrays of one rank, times counted from `origin`."""
    kernels = rank.kernels
    start = as_ints(kernels["start_ns"].to_numpy(np.int64) - origin)
    end = as_ints(start + kernels["dur_ns"].to_numpy(np.int64))
    code = as_ints(pd.Index(CATEGORIES).get_indexer(pd.Index(kernels["category"].astype("object"))))
    code = as_ints(np.where(code < 0, CATEGORIES.index("other"), code))
    names = kernels["name"].astype("category")
    name = as_ints(names.cat.codes.to_numpy())
    calls = rank.launches["api_name"].astype("category")
    full = tuple([str(one) for one in names.cat.categories] + [str(one) for one in calls.cat.categories])
    lanes, own, alone = _cpu(rank, start, end, code, name) if rank.kind == "cpu" else _gpu(rank, start, end, code, name)
    if rank.kind == "gpu" and len(rank.launches):
        lanes = [_host(rank.launches, calls, origin, len(names.cat.categories)), *lanes]
    steps = rank.steps.sort_values("start_ns", ignore_index=True)
    steps = steps.assign(start_ns=steps["start_ns"] - origin)
    order = as_ints(np.argsort(start, kind="stable"))
    return RankTimes(
        rank=rank, origin=origin, start=start, end=end, name=name, code=code, own_ns=own,
        names=Names(full, len(names.cat.categories)), lanes=tuple(lanes), alone=alone,
        steps=steps, step=step_of(start, steps), window=_window(steps, start, end),
        order=order, sorted_start=start[order],
        sorted_reach=np.maximum.accumulate(end[order]) if len(order) else end,
    )  # fmt: skip


def first_start(rank: RankBreakdown) -> int | None:
    """When the rank's first activity or step begins; None where it has none."""
    frames = [frame for frame in (rank.kernels, rank.steps) if len(frame)]
    return min((int(frame["start_ns"].min()) for frame in frames), default=None)


def _window(steps: pd.DataFrame, start: Ints, end: Ints) -> tuple[int, int]:
    edges = [(int(start.min()), int(end.max()))] if len(start) else []
    if len(steps):
        edges.append((int(steps["start_ns"].min()), int((steps["start_ns"] + steps["dur_ns"]).max())))
    if not edges:
        return 0, 1
    return min(low for low, _ in edges), max(max(high for _, high in edges), min(low for low, _ in edges) + 1)


def _lane(label: str, kind: str, start: Ints, end: Ints, code: Ints, name: Ints, row: Ints) -> Lane:
    by = np.argsort(start, kind="stable")
    start, end, code, name, row = start[by], end[by], code[by], name[by], row[by]
    reach = as_ints(np.maximum.accumulate(end)) if len(end) else end
    return Lane(label, kind, start, end, code, name, row, reach, TimeSums.of(start, end, code, len(CODES)))


def _groups(stream: Ints, time: Ints, word: str) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Label, kind and members of each lane, the busiest first."""
    found, where = np.unique(stream, return_inverse=True)
    busiest = np.argsort(-np.bincount(where, weights=time, minlength=len(found)), kind="stable")
    shown = busiest if len(busiest) <= MOST_LANES + 1 else busiest[:MOST_LANES]
    lanes = [(f"{word} {int(found[one])}", word, where == one) for one in shown.tolist()]
    if len(shown) < len(busiest):
        rest = busiest[MOST_LANES:]
        lanes.append((f"{len(rest)} more {word}s", f"{word}s", np.isin(where, rest)))
    return lanes


def _gpu(
    rank: RankBreakdown, start: Ints, end: Ints, code: Ints, name: Ints
) -> tuple[list[Lane], Ints, TimeSums]:  # fmt: skip
    row = np.arange(len(start))
    stream = rank.kernels["stream"].to_numpy(np.int64)
    lanes = [
        _lane(label, kind, start[mine], end[mine], code[mine], name[mine], row[mine])
        for label, kind, mine in _groups(stream, end - start, "stream")
    ]
    return lanes, as_ints(end - start), _alone(rank.kernels, start, end, code)


def _alone(kernels: pd.DataFrame, start: Ints, end: Ints, code: Ints) -> TimeSums:
    """Exclusive time as disjoint stretches: cut where kernels of a lower tier begin or end, a piece counts or not."""
    tier = tiers(kernels)
    lower = [union(start[tier <= level], end[tier <= level]) for level in (0, 1) if (tier > level).any()]
    cuts = np.concatenate([edge for both in lower for edge in both]) if lower else as_ints([])
    low, high, of, length = exclusive(start, end, tier, cuts=cuts, keys=code)
    some = length > 0
    return TimeSums.of(low[some], high[some], code[of[some]], len(CODES))


def _cpu(
    rank: RankBreakdown, start: Ints, end: Ints, code: Ints, name: Ints
) -> tuple[list[Lane], Ints, TimeSums]:  # fmt: skip
    """Nested operators: an instant belongs to the innermost; the worker's thread is that of the annotations."""
    thread = rank.kernels["stream"].to_numpy(np.int64)
    marks = step_marks(rank.ranges)
    marks = marks[(marks["domain"] == "host") & ~marks["dummy"]]
    worker = int(marks["thread"].mode().iloc[0]) if len(marks) else None
    own = np.zeros(len(start), dtype=np.int64)
    lanes, alone = [], TimeSums.of([], [], [], len(CODES))
    for label, kind, mine in _groups(thread, end - start, "thread"):
        rows = np.flatnonzero(mine)
        parts = []
        for one in np.unique(thread[rows]).tolist():
            at = rows[thread[rows] == one]
            low, high, of = innermost(start[at], end[at])
            np.add.at(own, at[of], high - low)
            parts.append((low, high, at[of]))
            if one == worker:
                alone = TimeSums.of(low, high, code[at[of]], len(CODES))
        low, high, of = (as_ints(np.concatenate(arrays)) for arrays in zip(*parts, strict=True))
        lanes.append(_lane(label, kind, low, high, code[of], name[of], of))
    return lanes, as_ints(own), alone


def _host(launches: pd.DataFrame, calls: pd.Series, origin: int, first_name: int) -> Lane:
    start = as_ints(launches["start_ns"].to_numpy(np.int64) - origin)
    end = as_ints(start + launches["dur_ns"].to_numpy(np.int64))
    waits = np.array([any(word in str(one).lower() for word in _WAITS) for one in calls.cat.categories], dtype=bool)
    which = calls.cat.codes.to_numpy(np.int64)
    code = as_ints(np.where(waits[which], WAIT, CALL)) if len(waits) else which
    return _lane("host calls", "host", start, end, code, as_ints(which + first_name), np.arange(len(start)))
