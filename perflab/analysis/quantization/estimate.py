"""A value with its 95 % interval over runs of servers, and contrasts of several groups of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perflab.analysis.compare.run_statistics import CONFIDENCE, FEWEST_FOR_INTERVAL


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its 95 % interval, None where there is none; `n` values it rests on."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {"value": self.value, "ci_low": self.low, "ci_high": self.high, "n": self.n}

    def inverted(self) -> Estimate:
        """One over it."""
        return Estimate(
            1 / self.value,
            None if self.high is None else 1 / self.high,
            None if self.low is None else 1 / self.low,
            self.n,
        )


def mean_of_runs(values: Sequence[float]) -> Estimate:
    """The geometric mean of run values above 0; its interval by Student's t on their logarithms, from 3 runs on."""
    return contrast([(1.0, values)])


def contrast(groups: Sequence[tuple[float, Sequence[float]]]) -> Estimate:
    """exp of a signed sum of mean logarithms: of `[(1, candidate), (-1, baseline)]` the ratio of geometric means.

    Notes
    -----
    Welch's t with as many groups as there are and Satterthwaite's degrees of freedom; of two groups the interval is
    that of `perflab.analysis.compare.run_statistics.run_ratio`. None below `FEWEST_FOR_INTERVAL` runs in a group.

    Raises
    ------
    ValueError
        For a value that is not above 0 and finite, or a group without any.
    """
    logs = [(sign, _logs(values)) for sign, values in groups]
    centre = sum(sign * float(np.mean(values)) for sign, values in logs)
    n = min(len(values) for _, values in logs)
    if n < FEWEST_FOR_INTERVAL:
        return Estimate(math.exp(centre), n=n)
    parts = [(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for _, values in logs]
    variance = sum(part for part, _ in parts)
    if variance <= 1e-24:
        return Estimate(math.exp(centre), math.exp(centre), math.exp(centre), n)
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    reach = float(special.stdtrit(degrees, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance)
    return Estimate(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach), n)


def _logs(values: Sequence[float]) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if not len(found) or not np.isfinite(found).all() or found.min() <= 0:
        raise ValueError("run values have to be finite and above 0, at least one a group")
    return np.log(found)
