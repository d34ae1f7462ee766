"""Do two groups of runs differ, by how much, and does it matter? The unit of evidence is the run of a server.

Requests of one server share its start, its compiled graphs, its clocks and its neighbours, so they are no independent
evidence about the next start; runs are. All is done on logarithms of run values: latencies and rates are positive and
skewed, effects are ratios, and logarithms make both sides of a ratio alike.

Interval. Below `BOOTSTRAP_FROM` runs a side, Welch's t (unequal variances, Welch-Satterthwaite degrees of freedom) on
the logarithms; its ends are the 95 % interval of the ratio of geometric means. From there on, the bootstrap: runs of
each side are resampled with replacement, and the interval holds the middle of the differences of mean logarithms.
The plain percentile interval is too short by sqrt((n - 1) / n) and by the normal in place of Student's t; its tails are
therefore moved outward by both (the expanded percentile interval, Hesterberg 2015, The American Statistician 69, 371).
Plain percentile intervals and the bootstrap-t were simulated beside it (docs/validation.md) and cover less. Resampling
is seeded: the same runs give the same interval, in whatever order.

Verdict. See `verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

Better = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "same", "undecided", "withheld"]
Method = Literal["welch", "bootstrap", "none"]

FEWEST_FOR_INTERVAL = 3
FEWEST_FOR_VERDICT = 5
BOOTSTRAP_FROM = 20
CONFIDENCE = 0.95
POWER = 0.8
RESAMPLES = 4999
SEED = 20_240_613
MOST_RUNS = 200
"""A side: where more would be needed, that is said instead of a number."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ratio:
    """Candidate over baseline, of geometric means of run values.

    Attributes
    ----------
    baseline, candidate
        Geometric means of the run values.
    low, high
        Ends of the 95 % interval of `ratio`; None below `FEWEST_FOR_INTERVAL` runs on either side.
    p
        Two-sided p-value of "the ratio is 1", by the same method as the interval; None without interval.
    method
        `welch`, `bootstrap` or `none`.
    spread
        Standard deviations of the logarithms, of baseline and candidate; None with one run.
    """

    baseline: float
    candidate: float
    n_baseline: int
    n_candidate: int
    low: float | None = None
    high: float | None = None
    p: float | None = None
    method: Method = "none"
    spread: tuple[float | None, float | None] = (None, None)

    @property
    def ratio(self) -> float:
        """Candidate over baseline."""
        return self.candidate / self.baseline

    @property
    def fewest(self) -> int:
        """Runs on the side that has fewer."""
        return min(self.n_baseline, self.n_candidate)


def run_ratio(baseline: Sequence[float], candidate: Sequence[float], *, resamples: int = RESAMPLES) -> Ratio:
    """Ratio and interval of two groups of run values.

    Parameters
    ----------
    baseline, candidate
        One value a run of a server, at least one a side, finite and above 0.

    Raises
    ------
    ValueError
        For a value that is not above 0 or not finite, or a side without any.
    """
    logs = [_logs(values) for values in (baseline, candidate)]
    means = [float(np.mean(side)) for side in logs]
    n = (len(logs[0]), len(logs[1]))
    sd = [float(np.std(side, ddof=1)) if len(side) > 1 else None for side in logs]
    found = Ratio(math.exp(means[0]), math.exp(means[1]), *n, spread=(sd[0], sd[1]))
    if min(n) < FEWEST_FOR_INTERVAL:
        return found
    if min(n) < BOOTSTRAP_FROM:
        low, high, p = _welch(logs[0], logs[1])
    else:
        low, high, p = _bootstrap(logs[0], logs[1], resamples)
    method: Method = "welch" if min(n) < BOOTSTRAP_FROM else "bootstrap"
    return Ratio(found.baseline, found.candidate, *n, math.exp(low), math.exp(high), p, method, spread=(sd[0], sd[1]))


def verdict(
    found: Ratio, better: Better, threshold: float, *, p: float | None = None, alpha: float = 1 - CONFIDENCE
) -> Verdict:
    """What a ratio comes to.

    Parameters
    ----------
    threshold
        The smallest change that matters, as a share: 0.02 makes a band from 1/1.02 to 1.02, which is the same band when
        the sides are swapped.
    p
        Where several metrics are looked at, the adjusted p-value (`holm`); the ratio's own by default.

    Returns
    -------
    str
        `undecided` below `FEWEST_FOR_VERDICT` runs on either side. Else `same` where the whole interval lies within the
        band: no change that matters is left in it. `better` or `worse` where the whole interval lies beyond the band on
        one side (and p does not exceed `alpha`): whichever of its values is the true one, it matters. Else
        `undecided`: the interval straddles an end of the band.
    """
    if found.low is None or found.high is None or found.p is None or found.fewest < FEWEST_FOR_VERDICT:
        return "undecided"
    band = math.log1p(threshold)
    low, high = math.log(found.low), math.log(found.high)
    if threshold > 0 and -band <= low and high <= band:
        return "same"
    if not (low > band or high < -band) or (found.p if p is None else p) > alpha:
        return "undecided"
    return "better" if (high < 0) == (better == "lower") else "worse"


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given.

    Each times the number of hypotheses not yet rejected, running maximum, at most 1 (Holm 1979). One that does not
    exceed 0.05 may be rejected with at most 5 % chance of any false rejection among them all.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found = [1.0] * len(p)
    highest = 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, p[i] * (len(p) - place)))
        found[i] = highest
    return found


def runs_needed(found: Ratio, threshold: float, *, power: float = POWER) -> int | None:
    """Runs a side that would decide with a chance of `power`, if ratio and spread are truly what was observed.

    Normal theory on logarithms with quantiles of Student's t. Where the observed ratio is out of the band, runs until
    the interval lies beyond it; where it is in the band, until the interval lies inside it. At least
    `FEWEST_FOR_VERDICT`.

    Returns
    -------
    int or None
        None where the spread is not known (fewer than two runs on a side). `MOST_RUNS + 1` stands for more than
        `MOST_RUNS`.
    """
    if found.spread[0] is None or found.spread[1] is None:
        return None
    variance = found.spread[0] ** 2 + found.spread[1] ** 2
    band, effect = math.log1p(threshold), abs(math.log(found.ratio))
    room = abs(effect - band)
    # Near the middle of the band both ends of the interval can miss it; the chance of missing is shared between them.
    miss = (1 - power) if effect > band / 4 else (1 - power) / 2
    for n in range(FEWEST_FOR_VERDICT, MOST_RUNS + 1):
        degrees = 2 * (n - 1)
        reach = _t(0.5 + CONFIDENCE / 2, degrees) + _t(1 - miss, degrees)
        if reach * math.sqrt(variance / n) <= room:
            return n
    return MOST_RUNS + 1


def _logs(values: Sequence[float]) -> _Floats:
    found = np.sort(np.asarray(values, dtype=np.float64))
    if not len(found) or not np.isfinite(found).all() or found[0] <= 0:
        raise ValueError("run values have to be finite and above 0, at least one a side")
    return np.log(found)


def _welch(baseline: _Floats, candidate: _Floats) -> tuple[float, float, float]:
    """Ends of the interval of the difference of means, and p."""
    difference = float(np.mean(candidate) - np.mean(baseline))
    parts = [float(np.var(side, ddof=1)) / len(side) for side in (baseline, candidate)]
    variance = sum(parts)
    if variance <= _least(baseline, candidate):
        return _exact(difference, baseline, candidate)
    degrees = variance**2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (baseline, candidate), strict=True)
    )
    reach = _t(0.5 + CONFIDENCE / 2, degrees) * math.sqrt(variance)
    p = 2 * float(special.stdtr(degrees, -abs(difference) / math.sqrt(variance)))
    return difference - reach, difference + reach, p


def _bootstrap(baseline: _Floats, candidate: _Floats, resamples: int) -> tuple[float, float, float]:
    """Ends of the interval of the difference of means, and p, from means of resampled runs."""
    difference = float(np.mean(candidate) - np.mean(baseline))
    if float(np.var(baseline)) + float(np.var(candidate)) <= _least(baseline, candidate):
        return _exact(difference, baseline, candidate)
    # Which side takes which stream depends on the values and not on what the sides are called: swapping sides swaps
    # the interval. Sides with the same values leave only one such interval, the one that is its own mirror image.
    first, second = (_rank(side, baseline, candidate) for side in (baseline, candidate))
    streams = (0, 1) if first <= second else (1, 0)
    means = [_means(side, resamples, stream) for side, stream in zip((baseline, candidate), streams, strict=True)]
    drawn = means[1] - means[0]
    if first == second:
        drawn = np.concatenate((drawn, -drawn))
    n, degrees = min(len(baseline), len(candidate)), len(baseline) + len(candidate) - 2
    wider = math.sqrt(n / (n - 1))
    tail = float(special.ndtr(wider * _t(0.5 - CONFIDENCE / 2, degrees)))
    low, high = np.quantile(drawn, (tail, 1 - tail))
    # p agrees with the interval: 0 lies at an end of it where its share of resamples, expanded alike, is alpha / 2.
    beyond = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0))
    at = float(special.ndtri((beyond + 1) / (len(drawn) + 2)))
    return float(low), float(high), min(1.0, 2 * float(special.stdtr(degrees, at / wider)))


def _rank(side: _Floats, baseline: _Floats, candidate: _Floats) -> tuple[float, ...]:
    """A key by which two sides are ordered alike whatever unit they are in, and however rounding goes."""
    origin = float(np.mean(baseline) + np.mean(candidate)) / 2
    centred = np.round(side - origin, 7) + 0.0
    return (round(float(np.mean(side)) - origin, 7), float(len(side)), *centred.tolist())


def _means(side: _Floats, resamples: int, stream: int) -> _Floats:
    """Means of resamples with replacement."""
    chosen = np.random.default_rng((SEED, stream)).integers(0, len(side), (resamples, len(side)))
    found: _Floats = side[chosen].mean(axis=1)
    return found


def _least(baseline: _Floats, candidate: _Floats) -> float:
    """Variances up to this are rounding."""
    return (1e-12 * max(1.0, float(np.abs(baseline).max()), float(np.abs(candidate).max()))) ** 2


def _exact(difference: float, baseline: _Floats, candidate: _Floats) -> tuple[float, float, float]:
    """Runs that do not vary at all."""
    return difference, difference, 1.0 if abs(difference) <= math.sqrt(_least(baseline, candidate)) else 0.0


def _t(probability: float, degrees: float) -> float:
    return float(special.stdtrit(degrees, probability))
