"""Arithmetic on half-open intervals [start, end) of integer nanoseconds, as pairs of int64 arrays.

A *set* here is a pair of arrays of equal length, sorted, disjoint and without empty members: what `union`
returns. Nothing rounds; sums are exact. All functions are vectorised and run in O(n log n).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int64]
Intervals: TypeAlias = tuple[Ints, Ints]

_EMPTY = np.empty(0, dtype=np.int64)


def as_ints(values: ArrayLike) -> Ints:
    """`values` as an int64 array."""
    return np.asarray(values, dtype=np.int64)


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """The set of instants that any of the intervals covers; touching ones are joined."""
    start, end = as_ints(starts), as_ints(ends)
    some = end > start
    start, end = start[some], end[some]
    if not len(start):
        return _EMPTY, _EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return start[opens], reach[closes]


def length(intervals: Intervals) -> int:
    """Total length of a set, or plain sum of durations of any intervals."""
    return int(np.sum(intervals[1] - intervals[0]))


def union_length(starts: ArrayLike, ends: ArrayLike) -> int:
    """How many nanoseconds any of the intervals covers."""
    return length(union(starts, ends))


def covered_before(times: ArrayLike, inside: Intervals) -> Ints:
    """For each time, how much of the set `inside` lies before it."""
    at = as_ints(times)
    start, end = inside
    if not len(start):
        return np.zeros_like(at)
    before = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, at, side="right")
    last = np.maximum(index - 1, 0)
    # The interval that began last may not have ended yet: take back what lies after `at`.
    over = np.where(index > 0, np.maximum(end[last] - at, 0), 0)
    return as_ints(before[index] - over)


def covered(starts: ArrayLike, ends: ArrayLike, inside: Intervals) -> Ints:
    """For each interval, how much of it the set `inside` covers."""
    return as_ints(covered_before(ends, inside) - covered_before(starts, inside))


def complement(inside: Intervals, start: int, end: int) -> Intervals:
    """What of the window [start, end) the set does not cover."""
    inner_start = np.clip(inside[0], start, end)
    inner_end = np.clip(inside[1], start, end)
    gap_start = np.concatenate(([start], inner_end))
    gap_end = np.concatenate((inner_start, [end]))
    some = gap_end > gap_start
    return as_ints(gap_start[some]), as_ints(gap_end[some])


def subtract(minuend: Intervals, subtrahend: Intervals) -> Intervals:
    """The set of instants in the first set and not in the second."""
    if not len(minuend[0]) or not len(subtrahend[0]):
        return minuend
    start, end, _ = split(minuend[0], minuend[1], np.concatenate(subtrahend))
    kept = covered(start, end, subtrahend) == 0
    return union(start[kept], end[kept])


def split(starts: ArrayLike, ends: ArrayLike, cuts: ArrayLike) -> tuple[Ints, Ints, Ints]:
    """Cut intervals at every cut that lies strictly inside them.

    Returns
    -------
    starts, ends, rows
        The pieces, in the order of the intervals they come from, and which interval that is. Empty
        intervals stay, as one empty piece.
    """
    start, end = as_ints(starts), as_ints(ends)
    cut = _distinct(as_ints(cuts))
    first = np.searchsorted(cut, start, side="right")
    count = np.maximum(np.searchsorted(cut, end, side="left") - first, 0)
    pieces = count + 1
    rows = np.repeat(np.arange(len(start)), pieces)
    # Position of each piece within its interval, from 0.
    place = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    piece_start, piece_end = start[rows], end[rows]
    later = place > 0
    earlier = place < count[rows]
    index = first[rows] + place
    piece_start[later] = cut[index[later] - 1]
    piece_end[earlier] = cut[index[earlier]]
    return piece_start, piece_end, as_ints(rows)


def _distinct(values: Ints) -> Ints:
    """Sorted, each once. `np.unique` hashes, which takes ten times as long for a million times."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def exclusive(
    starts: ArrayLike,
    ends: ArrayLike,
    tiers: ArrayLike,
    *,
    cuts: ArrayLike = (),
    keys: ArrayLike | None = None,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Give every covered instant to exactly one interval.

    A lower tier goes before a higher one. Within a tier the interval that started earlier keeps the instant,
    of two that start together the longer one, of two that are equal the one with the lower key: so the sums
    per key do not depend on the order of the rows.

    Parameters
    ----------
    starts, ends, tiers
        One element an interval.
    cuts
        Times at which intervals are cut, so that lengths can be summed on either side.
    keys
        What the lengths will be summed by (a category's code, say); only breaks ties.

    Returns
    -------
    starts, ends, rows, lengths
        Pieces; the interval each piece is of; the length given to it. A piece may lie partly under
        intervals of lower tiers, so its length can be less than its extent. Lengths sum to `union_length`.
    """
    start, end = as_ints(starts), as_ints(ends)
    tier = as_ints(tiers)
    key = np.zeros(len(start), dtype=np.int64) if keys is None else as_ints(keys)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    taken: Intervals = (_EMPTY, _EMPTY)
    for level in np.unique(tier):
        rows = np.flatnonzero(tier == level)
        rows = rows[np.lexsort((key[rows], -end[rows], start[rows]))]
        own_start, own_end = _first_come(start[rows], end[rows])
        piece_start, piece_end, of = split(own_start, own_end, cuts)
        lengths = as_ints(piece_end - piece_start - covered(piece_start, piece_end, taken))
        found.append((piece_start, piece_end, as_ints(rows[of]), lengths))
        taken = union(np.concatenate((taken[0], start[rows])), np.concatenate((taken[1], end[rows])))
    if not found:
        return _EMPTY, _EMPTY, _EMPTY, _EMPTY
    return (
        np.concatenate([part[0] for part in found]),
        np.concatenate([part[1] for part in found]),
        np.concatenate([part[2] for part in found]),
        np.concatenate([part[3] for part in found]),
    )


def _first_come(start: Ints, end: Ints) -> Intervals:
    """What of each interval no earlier one (by position; sorted by start) covers: one piece, maybe empty."""
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    own_start = np.maximum(start, reach)
    return as_ints(own_start), as_ints(np.maximum(own_start, end))
