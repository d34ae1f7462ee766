"""The load at which an advantage vanishes: where a curve of ratios comes down to a level, and how sure that is.

Between measured loads the logarithm of the ratio is taken to go straight in the logarithm of the load. The interval of
the crossing holds every load whose ratio may be the level: where the band of the points' intervals, joined the same
way, contains it. Each interval holds with 95 % by itself, not all of them together. Joined ends are wider than the
interval of a point between two that were measured apart, so the band errs on the wide side there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["found", "keeps", "never", "too_few"]


@dataclass(frozen=True)
class RatioPoint:
    """One load: a ratio above 1 is an advantage. `low` and `high` are the ends of its interval, None without one."""

    load: float
    ratio: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Crossing:
    """Where the advantage ends.

    Attributes
    ----------
    status
        `found`: between two measured loads. `keeps`: the ratio stays above the level up to the largest load. `never`:
        it is not above the level at the smallest. `too_few`: fewer than two loads.
    at
        The load, interpolated; None unless found.
    below, above
        The measured loads on either side; of `keeps` and `never` the one that was the last, or the first, to be looked
        at.
    low, high
        Ends of the interval of `at`. None: not known, or (where `banded`) beyond the loads that were measured.
    banded
        Whether every point has an interval.
    returns
        The ratio is above the level again at a larger load, so that one number does not tell all.
    """

    status: Status
    level: float
    at: float | None = None
    below: float | None = None
    above: float | None = None
    low: float | None = None
    high: float | None = None
    banded: bool = False
    returns: bool = False

    def to_json(self) -> dict[str, Any]:
        """All of it; loads are requests at once."""
        return {
            "status": self.status, "level": self.level, "at": self.at, "between": [self.below, self.above],
            "ci_low": self.low, "ci_high": self.high, "has_interval": self.banded, "returns": self.returns,
        }  # fmt: skip


def crossing(points: Sequence[RatioPoint], level: float = 1.0) -> Crossing:
    """The first load, from the smallest up, at which the ratio is down to `level`.

    Raises
    ------
    ValueError
        For a level, load or ratio that is not above 0 and finite.
    """
    known = sorted(points, key=lambda one: one.load)
    if not all(math.isfinite(v) and v > 0 for one in known for v in (one.load, one.ratio, level)):
        raise ValueError("loads, ratios and the level have to be finite and above 0")
    if len(known) < 2:
        return Crossing("too_few", level)
    loads = [one.load for one in known]
    banded = all(one.low is not None and one.high is not None for one in known)
    at = _first_down(loads, [one.ratio for one in known], level)
    low = _first_down(loads, [one.low or one.ratio for one in known], level) if banded else None
    high = _first_down(loads, [one.high or one.ratio for one in known], level) if banded else None
    if at is None:
        # The lower end of the band may come down although the curve does not: the advantage is not sure up to there.
        return Crossing("keeps", level, below=loads[-1], low=_inside(low, loads), banded=banded)
    if at == loads[0]:
        return Crossing("never", level, above=loads[0], high=_inside(high, loads), banded=banded)
    below = max(load for load in loads if load < at)
    above = min(load for load in loads if load >= at)
    returns = any(one.ratio > level for one in known if one.load > at)
    return Crossing("found", level, at, below, above, _inside(low, loads), _inside(high, loads), banded, returns)


def _inside(at: float | None, loads: Sequence[float]) -> float | None:
    """An end of the interval, None where it lies at the edge of what was measured: it may be beyond."""
    return None if at is None or at <= loads[0] else at


def _first_down(loads: Sequence[float], values: Sequence[float], level: float) -> float | None:
    """The first place where the joined curve is not above the level; None where it always is."""
    if values[0] <= level:
        return loads[0]
    for i in range(1, len(loads)):
        if values[i] <= level:
            before, after = math.log(values[i - 1] / level), math.log(values[i] / level)
            share = before / (before - after)
            found = math.exp(math.log(loads[i - 1]) + share * math.log(loads[i] / loads[i - 1]))
            return min(max(found, loads[i - 1]), loads[i])
    return None
