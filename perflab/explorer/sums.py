"""Exact sums of time by category in every column of a picture, whatever the zoom and however many kernels.

Of intervals [start, end) the time that lies before t is the sum of `t - start` over those that began before t, less
the sum of `t - end` over those that ended before t. With starts and ends sorted, and their running sums, that takes
two binary searches: a picture of a million kernels costs as much as one of a thousand, and nothing is lost or rounded.
Intervals may overlap; then the sums are plain sums, which count an overlap twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perflab.analysis.intervals import Ints, as_ints


@dataclass(frozen=True)
class _Sorted:
    """Starts and ends of the intervals of one code, each sorted by itself, and their running sums from 0."""

    code: int
    start: Ints
    end: Ints
    start_sum: Ints
    end_sum: Ints
    empty: Ints
    """Starts of those without duration."""

    def before(self, at: Ints) -> tuple[Ints, Ints]:
        """Of each time, how much of the intervals lies before it, and how many began before it."""
        begun, ended = np.searchsorted(self.start, at, side="left"), np.searchsorted(self.end, at, side="left")
        # The products may exceed 64 bits; they wrap, and their difference, a sum of durations, is right again.
        time = (begun * at - self.start_sum[begun]) - (ended * at - self.end_sum[ended])
        return as_ints(time), as_ints(begun)

    def running(self, at: int) -> int:
        """How many began before a time and end after it."""
        empty = np.searchsorted(self.empty, [at, at + 1], side="left")
        over = int(np.searchsorted(self.end, at, side="right")) - int(empty[1] - empty[0])
        return int(np.searchsorted(self.start, at, side="left")) - over


@dataclass(frozen=True)
class TimeSums:
    """Intervals with codes from 0 to below `codes`, ready to be summed over any stretches of time."""

    codes: int
    parts: tuple[_Sorted, ...]

    @classmethod
    def of(cls, start: ArrayLike, end: ArrayLike, code: ArrayLike, codes: int) -> TimeSums:
        """Sort intervals for summing; `code` tells what each is summed by."""
        begin, finish, which = as_ints(start), as_ints(end), as_ints(code)
        parts = []
        for one in np.flatnonzero(np.bincount(which, minlength=codes)).tolist():
            mine = which == one
            # Stable: quick where values are nearly in order, as they are.
            starts, ends = (np.sort(times[mine], kind="stable") for times in (begin, finish))
            empty = np.sort(begin[mine & (finish == begin)])
            parts.append(_Sorted(one, starts, ends, _summed(starts), _summed(ends), empty))
        return cls(codes, tuple(parts))

    def between(self, edges: ArrayLike) -> tuple[Ints, Ints]:
        """Sums over the stretches between neighbouring edges, which ascend.

        Returns
        -------
        ns, counts
            A row a stretch, a column a code: time inside it, and how many intervals begin in it. Those that had begun
            before the first edge and were not over by then are counted in the first stretch.
        """
        at = as_ints(edges)
        ns = np.zeros((max(len(at) - 1, 0), self.codes), dtype=np.int64)
        counts = np.zeros_like(ns)
        for part in self.parts:
            time, begun = part.before(at)
            ns[:, part.code] = np.diff(time)
            counts[:, part.code] = np.diff(begun)
            if len(at) > 1:
                counts[0, part.code] += part.running(int(at[0]))
        return ns, counts

    def total(self, start: int, end: int) -> Ints:
        """Time by code in one stretch."""
        return as_ints(self.between([start, end])[0][0])


def _summed(values: Ints) -> Ints:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
