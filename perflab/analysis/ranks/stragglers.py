"""Which rank the others wait for, and whether that can be said.

The rank that waits least is the one the others wait for. It is named only if it waits least in most steps of a phase,
more often than chance would have it (a sign test over steps, since the collectives of one step depend on one another),
by more than the clocks leave open, and if it is also the one that arrives last by the clocks put right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints
from perflab.analysis.ranks.clock_offsets import ClockOffset, corrected_starts
from perflab.knowledge.thresholds import Thresholds, own_thresholds

Verdict = Literal["straggler", "even", "too_few_steps", "clocks", "disagree"]


@dataclass(frozen=True)
class Straggler:
    """What can be said of one phase.

    Attributes
    ----------
    verdict
        `straggler`: `rank` is it. `even`: no rank is waited for consistently. `too_few_steps`. `clocks`: the effect is
        smaller than what the clocks leave open, or they have no offset. `disagree`: who waits least is not who arrives
        last.
    rank
        The rank that waits least most often.
    steps, least_steps, p
        Steps of the phase, those in which it waits least, and how likely chance makes that many for some rank.
    lag_ns, low_ns, high_ns
        How much longer the others wait than it does, per step: mean over the others, median over steps, and the 95 %
        interval of that median (order statistics; the extremes where there are fewer than 6 steps).
    per_collective_ns
        The same per collective: median of the differences.
    arrives_last, waits_least
        Share of collectives in which it arrives last by the corrected clocks, and in which it waits least.
    uncertainty_ns
        Of a single collective's end, the largest of all ranks' offsets.
    first_share
        Share of all waiting that falls on the first collective of each step: much means that the hosts begin steps
        apart, little that the GPUs' work differs.
    """

    phase: str
    verdict: Verdict
    rank: int
    steps: int
    least_steps: int
    p: float
    lag_ns: float
    low_ns: float
    high_ns: float
    per_collective_ns: float
    waits_least: float
    arrives_last: float | None
    uncertainty_ns: float | None
    first_share: float | None

    def to_json(self) -> dict[str, Any]:
        """As the JSON contract has it."""
        return {
            "phase": self.phase, "verdict": self.verdict, "rank": self.rank, "steps": self.steps,
            "least_steps": self.least_steps, "p": self.p, "lag_ns_per_step": round(self.lag_ns),
            "lag_low_ns": round(self.low_ns), "lag_high_ns": round(self.high_ns),
            "lag_ns_per_collective": round(self.per_collective_ns), "waits_least": self.waits_least,
            "arrives_last": self.arrives_last, "uncertainty_ns": _whole(self.uncertainty_ns),
            "first_in_step_share": self.first_share,
        }  # fmt: skip


def stragglers(
    collectives: pd.DataFrame, offsets: Sequence[ClockOffset], limits: Thresholds | None = None
) -> list[Straggler]:
    """For each phase, the rank the others wait for, if it can be told.

    Parameters
    ----------
    collectives
        Table `collectives`. Only what was matched on all ranks that are there counts, so that no rank seems to wait
        little because it has less.
    offsets
        From `clock_offsets` of the same table.
    """
    known = own_thresholds() if limits is None else limits
    ranks = sorted(collectives["rank"].unique().tolist())
    matched = collectives[(collectives["seq"] >= 0) & (collectives["ranks"] == len(ranks))]
    if len(ranks) < 2 or matched.empty:
        return []
    arrival = corrected_starts(matched, list(offsets))
    return [
        _phase(str(phase), rows, arrival[rows.index], ranks, offsets, known)
        for phase, rows in matched.groupby("phase", observed=True)
    ]


def sign_test(hits: int, of: int, ranks: int) -> float:
    """How likely chance makes some rank the one in `hits` of `of` steps, all ranks being equal (Bonferroni)."""
    if not of:
        return 1.0
    tail = sum(math.comb(of, k) * (ranks - 1) ** (of - k) for k in range(hits, of + 1)) / ranks**of
    return float(min(1.0, ranks * tail))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median by order statistics; the extremes where there are fewer than 6 values."""
    ordered = sorted(values)
    n = len(ordered)
    cut = 0
    while 2 * sum(math.comb(n, k) for k in range(cut + 2)) <= 0.05 * 2**n:
        cut += 1
    return float(ordered[cut]), float(ordered[n - 1 - cut])


def _phase(
    phase: str, rows: pd.DataFrame, arrival: pd.Series, ranks: list[int], offsets: Sequence[ClockOffset],
    limits: Thresholds,
) -> Straggler:  # fmt: skip
    waits = rows.pivot(index="seq", columns="rank", values="wait_ns")[ranks].to_numpy(np.float64)
    starts = rows.assign(at=arrival).pivot(index="seq", columns="rank", values="at")[ranks].to_numpy(np.float64)
    step = rows.drop_duplicates("seq").sort_values("seq")["step"].to_numpy(np.int64)
    lags, late = _ahead_of_others(waits, step, -1), _ahead_of_others(starts, step, 1)
    least = lags.argmax(axis=1)
    counts = np.bincount(least[lags.max(axis=1) > 0], minlength=len(ranks))
    place = int(counts.argmax())
    hits, steps = int(counts[place]), len(lags)
    lag = lags[:, place]
    low, high = median_interval(lag.tolist())
    clear = (waits.max(axis=1) > 0) & np.isfinite(starts).all(axis=1)
    spread = max((one.uncertainty_ns for one in offsets), default=None)
    found = Straggler(
        phase=phase, verdict="even", rank=ranks[place], steps=steps, least_steps=hits,
        p=sign_test(hits, steps, len(ranks)), lag_ns=float(np.median(lag)), low_ns=low, high_ns=high,
        per_collective_ns=float(np.median(_ahead_of_others(waits, np.arange(len(waits)), -1)[:, place])),
        waits_least=float((waits.argmin(axis=1) == place).mean()),
        arrives_last=float((starts.argmax(axis=1) == place)[clear].mean()) if clear.any() else None,
        uncertainty_ns=spread, first_share=_first_share(waits, step),
    )  # fmt: skip
    per_step = len(waits) / steps
    # It must come late by about as much as the others wait, not by a hair.
    agree = (late.argmax(axis=1) == least) & (2 * late.max(axis=1) > lags.max(axis=1))
    return replace(found, verdict=_verdict(found, agree, offsets, per_step, limits))


def _verdict(
    found: Straggler, agree: NDArray[np.bool_], offsets: Sequence[ClockOffset], per_step: float, limits: Thresholds
) -> Verdict:
    if found.steps < limits.limit("fewest_steps", "count"):
        return "too_few_steps"
    share = limits.limit("straggler", "steps")
    if found.least_steps < share * found.steps or found.p > limits.limit("straggler", "p") or found.low_ns <= 0:
        return "even"
    spread = found.uncertainty_ns
    # Noise of single ends grows with the root of their number; the lag that is compared is a step's sum.
    if spread is None or found.lag_ns <= spread * math.sqrt(per_step) or not all(one.is_possible for one in offsets):
        return "clocks"
    return "straggler" if agree.mean() >= share else "disagree"


def _ahead_of_others(values: NDArray[np.float64], step: Ints, sign: int) -> NDArray[np.float64]:
    """By step and rank, the sum of how far its values lie above (sign 1) or below (-1) the mean of the others'."""
    count = values.shape[1]
    others = (values.sum(axis=1, keepdims=True) - values) / (count - 1)
    _, at = np.unique(step, return_inverse=True)
    sums = np.zeros((int(at.max()) + 1, count))
    np.add.at(sums, at, sign * (values - others))
    return sums


def _first_share(waits: NDArray[np.float64], step: Ints) -> float | None:
    total = float(waits.sum())
    _, first = np.unique(step, return_index=True)
    return float(waits[first].sum()) / total if total else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
