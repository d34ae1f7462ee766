"""One figure over many runs: where its level changed, and whether it drifts.

The unit of evidence is the run: a series holds one value a run, in the order in which the runs were made.

Change points. For each way to split a series with at least `FEWEST_SIDE` runs on both sides, and for windows of 4, 8,
16, ... runs on both sides of the split up to the whole series, the mean ranks before and after it are compared: their
difference over its standard deviation under "no change" (over the whole series that is the Mann-Whitney statistic).
The largest absolute value is the candidate. Its p-value comes from a permutation test of that largest value, so it
accounts for every split and window that was looked at. Where it is small the two parts are searched in the same way
(binary segmentation, as E-divisive means does with a distance instead of ranks; Matteson and James 2014, used for
performance data by Daly and others 2020), and at last each change is placed anew between its neighbours, where the
values deviate least from the medians of both sides. Ranks make single outliers harmless. Under "no change" any number
of change points is reported in at most a share `alpha` of series, whatever the distribution. Runs have to be
exchangeable while nothing changes: a machine whose speed wanders slowly is told as changes.

Trend. Kendall's tau of the values against their order within the part after the last change, with the Theil-Sen
slope as a share of the median a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

FEWEST = 8
"""Runs below which nothing is said about changes or trends."""
FEWEST_SIDE = 4
"""Runs on each side of a change: fewer could not be told from chance."""
PERMUTATIONS = 4999
PERMUTATIONS_OF_MANY = 1999
"""Of longer series, for speed."""
_MANY = 400
_NEAR = 8
_MOST_FOR_SLOPE = 400
_BLOCK = 1 << 18

_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """The level differs from position `at` on (the first run of the new level).

    `p` is the permutation p-value within the part that was searched; `before` and `after` are medians of the levels
    on both sides, up to the next change.
    """

    at: int
    p: float
    before: float
    after: float

    @property
    def ratio(self) -> float | None:
        """New level over old; None where the old one is 0."""
        return self.after / self.before if self.before else None


@dataclass(frozen=True)
class Trend:
    """A drift since `start` (a position): `slope` as a share of the median a run, and its p-value."""

    start: int
    slope: float
    p: float


@dataclass(frozen=True)
class Levels:
    """What a series says. `too_few`: fewer than `FEWEST` runs, so nothing was tested."""

    n: int
    too_few: bool
    changes: tuple[Change, ...] = ()
    trend: Trend | None = None
    p: float | None = None

    @property
    def bounds(self) -> list[int]:
        """First positions of the levels, and the end."""
        return [0, *(change.at for change in self.changes), self.n]


def levels(values: Sequence[float], *, alpha: float = 0.05, most_p: float | None = None) -> Levels:
    """Change points and trend of one series.

    Parameters
    ----------
    values
        One a run, in order; all finite.
    alpha
        Largest p-value of a change, and of a trend.
    most_p
        A stricter limit for the first change, where several series are looked at (see `holm`).
    """
    found = np.asarray(values, dtype=np.float64)
    if len(found) < FEWEST:
        return Levels(len(found), True)
    p = change_p(found)[1]
    splits: dict[int, float] = {}
    if p <= (alpha if most_p is None else most_p):
        _search(found, 0, alpha, splits)
        splits = _refined(found, splits, alpha)
    bounds = [0, *sorted(splits), len(found)]
    medians = [float(np.median(found[a:b])) for a, b in pairwise(bounds)]
    changes = tuple(
        Change(at, splits[at], before, after)
        for at, before, after in zip(bounds[1:-1], medians, medians[1:], strict=False)
    )
    return Levels(len(found), False, changes, _trend(found, bounds[-2], alpha), p)


def _search(values: _Floats, offset: int, alpha: float, splits: dict[int, float]) -> None:
    if len(values) < 2 * FEWEST_SIDE:
        return
    at, p = change_p(values)
    if p > alpha:
        return
    splits[offset + at] = p
    _search(values[:at], offset, alpha, splits)
    _search(values[at:], offset + at, alpha, splits)


def _refined(values: _Floats, splits: dict[int, float], alpha: float) -> dict[int, float]:
    """Each change placed anew between its neighbours: the first search saw levels on its sides that are not one."""
    for _ in range(3):
        again: dict[int, float] = {}
        left = 0
        # One after the other, so that what one moves to bounds the next and no level gets too short.
        for right in [*sorted(splits)[1:], len(values)]:
            at, p = change_p(values[left:right])
            if p <= alpha:
                left += _placed(values[left:right], at)
                again[left] = p
        if again.keys() == splits.keys():
            break
        splits = again
    return splits


def _placed(values: _Floats, at: int) -> int:
    """The position near `at` that leaves the least absolute deviation from the medians of both sides.

    Ranks tell that a level changed, but put a run that is a little low on the side of the lower level.
    """

    def left_over(k: int) -> float:
        return float(sum(np.abs(part - np.median(part)).sum() for part in (values[:k], values[k:])))

    near = range(max(FEWEST_SIDE, at - _NEAR), min(len(values) - FEWEST_SIDE, at + _NEAR) + 1)
    return min(near, key=lambda k: (left_over(k), abs(k - at)))


def change_p(values: npt.ArrayLike) -> tuple[int, float]:
    """The most likely position of a change, and the probability of as clear a one if nothing had changed."""
    from scipy import stats  # takes as long to import as a small trace to break down; most commands need none of it

    found = np.asarray(values, dtype=np.float64)
    ranks = stats.rankdata(found)
    n = len(found)
    windows = _windows(n)
    sums = _sums(ranks[:, None])
    spread = float(ranks.std(ddof=1))
    scores = [_scores(sums, spread, *window)[:, 0] for window in windows]
    best = max(range(len(windows)), key=lambda i: scores[i].max())
    score, at = float(scores[best].max()), int(windows[best][1][scores[best].argmax()])
    # Without ties the distribution depends on the number of runs alone.
    null = _null(n) if len(np.unique(found)) == n else _null_of(ranks)
    p = (1 + int((null >= score - 1e-9).sum())) / (1 + len(null))
    return at, p


_Window = tuple[_Counts, _Counts, _Counts]


@lru_cache(maxsize=512)
def _windows(n: int) -> list[_Window]:
    """Start, split and end of every comparison: `width` runs before a split with as many after it, at the ends fewer.

    Widths double up to the whole series: a level that lasts for a while and then goes back hardly moves the
    comparison of all that came before with all that comes after.
    """
    split = np.arange(FEWEST_SIDE, n - FEWEST_SIDE + 1)
    widths = [*(FEWEST_SIDE << i for i in range(32) if FEWEST_SIDE << i < n), n]
    return [(np.maximum(split - width, 0), split, np.minimum(split + width, n)) for width in widths]


def _sums(ranks: _Floats) -> _Floats:
    """Sums of the first 0, 1, ... n ranks of each column."""
    return np.concatenate([np.zeros((1, ranks.shape[1])), ranks.cumsum(axis=0)])


def _scores(sums: _Floats, spread: float, start: _Counts, split: _Counts, end: _Counts) -> _Floats:
    """|difference of mean ranks| over its standard deviation if nothing had changed: a row a split, a column an order.

    `spread` is the standard deviation of the ranks.
    """
    before, after = (split - start)[:, None], (end - split)[:, None]
    at_split = sums[split]
    apart: _Floats = np.abs((at_split - sums[start]) / before - (sums[end] - at_split) / after)
    # Exact for values drawn without replacement, where the covariance of the two means is -variance / n.
    apart /= np.maximum(spread * np.sqrt(1 / before + 1 / after), np.finfo(np.float64).tiny)
    return apart


@lru_cache(maxsize=512)
def _null(n: int) -> _Floats:
    return _null_of(np.arange(1, n + 1, dtype=np.float64))


def _null_of(ranks: _Floats) -> _Floats:
    """The largest score of random orders of these ranks. The same each time it is called."""
    rng = np.random.default_rng(20261130)
    count = PERMUTATIONS if len(ranks) <= _MANY else PERMUTATIONS_OF_MANY
    rows = max(1, _BLOCK // len(ranks))
    spread = float(ranks.std(ddof=1))
    parts = []
    for first in range(0, count, rows):
        shuffled = rng.permuted(np.tile(ranks, (min(rows, count - first), 1)), axis=1)
        sums = _sums(np.ascontiguousarray(shuffled.T))
        parts.append(np.max([_scores(sums, spread, *window).max(axis=0) for window in _windows(len(ranks))], axis=0))
    return np.concatenate(parts)


def _trend(values: _Floats, start: int, alpha: float) -> Trend | None:
    """The drift of the last level; None where there is none, or too few runs to tell."""
    part = values[start:]
    if len(part) < FEWEST or np.ptp(part) == 0:
        return None
    from scipy import stats

    order = np.arange(len(part))
    p = float(stats.kendalltau(order, part).pvalue)
    if not p <= alpha:
        return None
    every = max(1, len(part) // _MOST_FOR_SLOPE)
    slope = float(stats.theilslopes(part[::every], order[::every])[0])
    middle = float(np.median(part))
    return Trend(start, slope / middle, p) if middle else None


def holm(p: Sequence[float | None], alpha: float = 0.05) -> list[float]:
    """For each of several tests the largest p-value at which it counts, so that all hold together (Holm 1979).

    None is a test that was not made. The limit is `alpha` over the number of tests not yet rejected; after the first
    that fails, 0 for all further ones.
    """
    limits = [0.0] * len(p)
    made = sorted((value, i) for i, value in enumerate(p) if value is not None)
    for place, (value, i) in enumerate(made):
        limit = alpha / (len(made) - place)
        if value > limit:
            break
        limits[i] = limit
    return limits


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What two mappings of facts say differently, by name; None where one lacks the name."""
    names = sorted(before.keys() | after.keys())
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
