"""The part of a timeline that a picture of some width shows: single activities where they fit, else exact columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perflab.analysis.intervals import Ints, as_ints
from perflab.explorer.rank_times import CODES, Lane
from perflab.explorer.sums import TimeSums

MOST_BARS = 2_500
"""Activities of a lane that are drawn one by one; more are summed by column."""
_WIDE = 24
_MOST_WIDE = 300


@dataclass(frozen=True)
class Bars:
    """Activities one by one. `only_named`: columns draw them already, they are here for their names."""

    lane: int
    start: Ints
    end: Ints
    code: Ints
    name: Ints
    row: Ints
    only_named: bool = False


@dataclass(frozen=True)
class Columns:
    """Sums of time by column and category; only what is not 0.

    `count` is how many activities begin in the column (in the first, also those that already run).
    """

    lane: int
    column: Ints
    code: Ints
    count: Ints
    ns: Ints


def edges_of(start: int, end: int, width: int) -> Ints:
    """The borders of `width` columns between two times, whole nanoseconds."""
    return as_ints(start + (np.arange(width + 1, dtype=np.int64) * (end - start)) // width)


def picture(lanes: Sequence[Lane], start: int, end: int, width: int) -> tuple[list[Bars], list[Columns]]:
    """What lanes show between two times in a picture `width` columns wide."""
    edges = edges_of(start, end, width)
    bars: list[Bars] = []
    columns: list[Columns] = []
    for number, lane in enumerate(lanes):
        low, high = lane.span(start, end)
        if high - low <= MOST_BARS:
            at = np.arange(low, high)
            bars.append(_bars(number, lane, at[(lane.end[low:high] > start) | (lane.start[low:high] >= start)]))
            continue
        columns.append(_columns(number, lane.sums, edges))
        wide = _WIDE * (end - start) / width
        at = low + np.flatnonzero(lane.end[low:high] - lane.start[low:high] >= wide)
        if len(at) > _MOST_WIDE:
            length = lane.end[at] - lane.start[at]
            at = np.sort(at[np.argpartition(-length, _MOST_WIDE)[:_MOST_WIDE]])
        if len(at):
            bars.append(_bars(number, lane, at[lane.end[at] > start], only_named=True))
    return bars, columns


def matched_columns(lanes: Sequence[tuple[int, TimeSums]], start: int, end: int, width: int) -> list[Columns]:
    """The columns of what a search found, by number of the lane."""
    edges = edges_of(start, end, width)
    return [_columns(number, sums, edges) for number, sums in lanes]


def _bars(number: int, lane: Lane, at: Ints, only_named: bool = False) -> Bars:
    return Bars(number, lane.start[at], lane.end[at], lane.code[at], lane.name[at], lane.row[at], only_named)


def _columns(number: int, sums: TimeSums, edges: Ints) -> Columns:
    ns, counts = sums.between(edges)
    column, code = np.nonzero((ns != 0) | (counts != 0))
    return Columns(number, as_ints(column), as_ints(code), counts[column, code], ns[column, code])


assert len(CODES) < 256, "codes travel as bytes"
