"""Which kernels: by name in a step, a phase or a stretch of time, found by text or pattern, one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints, as_ints
from perflab.errors import InputError
from perflab.explorer.rank_times import CODES, Lane, RankTimes
from perflab.explorer.sums import TimeSums
from perflab.messages import say
from perflab.schema import CATEGORIES

MOST_ROWS = 200


@dataclass(frozen=True)
class Scope:
    """What is counted: `all` of a rank, a `phase` (what begins in its steps), or a `span` (cut at its ends)."""

    kind: Literal["all", "phase", "span"]
    phase: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class NameRow:
    """One name: how often it ran, for how long (ns), and its share of the time of all names in the scope."""

    name: str
    category: str
    count: int
    ns: int
    share: float | None


@dataclass(frozen=True)
class NameTable:
    """Names by time. `found` is of what the search matched: names, activities, time; `ns` is of all in the scope."""

    rows: tuple[NameRow, ...]
    names: int
    count: int
    found_ns: int
    ns: int


def matcher(text: str, is_pattern: bool) -> re.Pattern[str] | None:
    """What a search looks for in names, whatever the case; None where it is empty.

    Raises
    ------
    InputError
        When the pattern is not one; the message says why and where.
    """
    if not text:
        return None
    try:
        return re.compile(text if is_pattern else re.escape(text), re.IGNORECASE)
    except re.error as error:
        raise InputError(say("explorer.bad_pattern", why=str(error))) from error


def matching(names: Sequence[str], pattern: re.Pattern[str] | None) -> NDArray[np.bool_]:
    """Which names a search finds; all where there is none."""
    if pattern is None:
        return np.ones(len(names), dtype=bool)
    return np.fromiter((pattern.search(name) is not None for name in names), dtype=bool, count=len(names))


def name_table(
    ranks: Sequence[RankTimes], scope: Scope, *, pattern: re.Pattern[str] | None = None,
    categories: Sequence[str] = (), limit: int = MOST_ROWS,
) -> NameTable:  # fmt: skip
    """Names of the ranks' activities with count and time (of CPU operators their own), largest time first.

    Parameters
    ----------
    categories
        Only these; all unless given. The share is of all of them.
    """
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for times in ranks:
        for key, (count, ns) in _sums(times, scope).items():
            before = sums.get(key, (0, 0))
            sums[key] = before[0] + count, before[1] + ns
    total = sum(ns for _, ns in sums.values())
    wanted = {CATEGORIES.index(one) for one in categories} or set(range(len(CATEGORIES)))
    names = [name for name, _ in sums]
    hits = matching(names, pattern)
    found = [
        NameRow(name, CODES[code], count, ns, ns / total if total else None)
        for ((name, code), (count, ns)), hit in zip(sums.items(), hits.tolist(), strict=True)
        if hit and code in wanted
    ]
    found.sort(key=lambda row: (-row.ns, row.name))
    return NameTable(
        tuple(found[:limit]), len(found), sum(row.count for row in found), sum(row.ns for row in found), total
    )


def _sums(times: RankTimes, scope: Scope) -> dict[tuple[str, int], tuple[int, int]]:
    rows, ns = _rows(times, scope)
    if not len(rows):
        return {}
    # Of a name with two categories (a copy and a kernel) both are kept apart.
    key = times.name[rows] * len(CODES) + times.code[rows]
    size = (times.names.kernels + 1) * len(CODES)
    count = np.bincount(key, minlength=size)
    total = np.zeros(size, dtype=np.int64)
    # Halves, since weights are floats: each sum is exact below 2**53.
    total += np.bincount(key, weights=ns & 0xFFFFFF, minlength=size).astype(np.int64)
    total += np.bincount(key, weights=ns >> 24, minlength=size).astype(np.int64) << 24
    return {
        (times.names.full[one // len(CODES)], one % len(CODES)): (int(count[one]), int(total[one]))
        for one in np.flatnonzero(count).tolist()
    }


def _rows(times: RankTimes, scope: Scope) -> tuple[Ints, Ints]:
    """Activities of a scope, and how much of each counts."""
    if scope.kind == "span":
        rows = times.running(scope.start, scope.end)
        start, end = times.start[rows], times.end[rows]
        inside = np.minimum(end, scope.end) - np.maximum(start, scope.start)
        some = (inside > 0) | ((start >= scope.start) & (start < scope.end))
        rows, inside = rows[some], inside[some]
        # What of a nested operator is its own cannot be cut; it counts where it begins.
        own = times.own_ns[rows] if times.rank.kind == "cpu" else inside
        return rows, as_ints(own)
    if scope.kind == "phase":
        of = np.append((times.steps["phase"].astype(str) == scope.phase).to_numpy(bool), False)
        rows = np.flatnonzero(of[times.step])
        return rows, times.own_ns[rows]
    return np.arange(len(times.start)), times.own_ns


@dataclass(frozen=True, eq=False)
class Matches:
    """What a search found on one rank, ready to be drawn and walked through.

    Attributes
    ----------
    names
        A mark for each of the rank's names.
    lanes
        Number of the lane and the sums of what was found in it, all under code 0.
    """

    times: RankTimes
    names: NDArray[np.bool_]
    lanes: tuple[tuple[int, TimeSums], ...]

    @cached_property
    def rows(self) -> Ints:
        """Activities found, by start."""
        order = self.times.order
        return order[self.names[self.times.name[order]]]

    @cached_property
    def start(self) -> Ints:
        """Their starts."""
        return self.times.start[self.rows]


def matches(times: RankTimes, names: NDArray[np.bool_]) -> Matches:
    """The activities of a rank that bear one of the names (a mark for each of `times.names`)."""
    lanes = []
    for number, lane in enumerate(times.lanes):
        mine = np.flatnonzero(_of_lane(lane, names))
        if len(mine):
            code = np.zeros(len(mine), dtype=np.int64)
            lanes.append((number, TimeSums.of(lane.start[mine], lane.end[mine], code, 1)))
    return Matches(times, names, tuple(lanes))


def _of_lane(lane: Lane, names: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.zeros(len(lane.row), dtype=bool) if lane.kind == "host" else names[lane.name]


def occurrence(found: Matches, at: int, step: int) -> tuple[int, int] | None:
    """The next (`step` 1) or previous (-1) activity found that begins after or before `at`, going round at the ends.

    Returns
    -------
    tuple or None
        Its row, and its number among all that were found, from 1.
    """
    if not len(found.rows):
        return None
    side: Literal["left", "right"] = "right" if step > 0 else "left"
    place = int(np.searchsorted(found.start, at, side=side)) - (0 if step > 0 else 1)
    place %= len(found.rows)
    return int(found.rows[place]), place + 1
