"""Numbers over the steps of one pass: an interval of their median, and whole parts that add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from perflab.analysis.intervals import Ints, as_ints


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Distribution-free interval of a median: order statistics k and n+1-k with the largest k that keeps the level.

    The number of values below the median is binomial(n, 1/2). None where even smallest and largest do not keep the
    level (n below 6 for 95 %).
    """
    ordered = sorted(values)
    # Of scipy only `special`: importing its distributions takes longer than breaking down a small trace.
    tails = special.bdtr(np.arange(len(ordered)), len(ordered), 0.5)
    k = int((tails <= (1 - level) / 2).sum())
    return (float(ordered[k - 1]), float(ordered[-k])) if k > 0 else None


def whole(parts: Sequence[float], total: int | None = None) -> Ints:
    """Numbers rounded to whole ones that add up to `total` (the largest remainders are rounded up).

    Without `total`, to their rounded sum.
    """
    exact = np.asarray(parts, dtype=np.float64)
    floors = np.floor(exact)
    missing = (round(float(exact.sum())) if total is None else total) - int(floors.sum())
    up = np.argsort(-(exact - floors), kind="stable")[: max(missing, 0)]
    found = floors.astype(np.int64)
    found[up] += 1
    return as_ints(found)


def whole_step(busy: Sequence[float], idle: float) -> Ints:
    """Whole parts of a step, `idle` last: step and idle time are rounded, and what the GPU did is the difference.

    So each of the three is within one of what it is exactly, however many parts there are.
    """
    step = round(float(np.sum(busy)) + idle)
    # Halves are rounded to even: where those of step and idle part, whole parts of the GPU's work stay as they are.
    least, most = int(np.floor(busy).sum()), int(np.ceil(busy).sum())
    parts = whole(busy, min(max(step - round(idle), least), most))
    return as_ints(np.append(parts, step - int(parts.sum())))
