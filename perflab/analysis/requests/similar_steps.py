"""Profiled steps that are like a measured one: the measured pass has no trace, so kernels come from a pass of its own.

A similar step is one of the same phase whose batch and prompt tokens are near the wanted ones. It is never the
request's own, and where none is near enough, none is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

NEAR = 1.5
"""Batch and prompt tokens of a similar step are within this factor (judgement: time of a decode step hardly changes
with the batch, that of a prefill step is nearly proportional to its tokens)."""


@dataclass(frozen=True)
class Wanted:
    """A kind of step a measured request lived through: `role` is first_token or decode."""

    role: str
    phase: str
    batch: int
    prompt_tokens: int


@dataclass(frozen=True)
class Similar:
    """The profiled steps like a measured one.

    Attributes
    ----------
    steps
        Their numbers in the pass; none where no step is near.
    nearest
        `(batch, prompt tokens)` of the nearest step of the phase, near or not; None where the phase was not profiled.
    categories
        Mean exclusive time of each category in those steps, ns, idle included; empty without steps.
    """

    wanted: Wanted
    steps: tuple[int, ...]
    nearest: tuple[int, int] | None
    categories: dict[str, float]


def similar_steps(wanted: Wanted, steps: pd.DataFrame, breakdown: pd.DataFrame) -> Similar:
    """The steps of a profiled pass that are like the wanted one.

    Parameters
    ----------
    steps
        Table `steps` of one rank.
    breakdown
        Table `breakdown` of the same rank.
    """
    phase = steps[steps["phase"] == wanted.phase]
    batch = phase["decode_requests"].fillna(0).to_numpy(np.float64)
    tokens = phase["prefill_tokens"].fillna(0).to_numpy(np.float64)
    if phase.empty:
        return Similar(wanted, (), None, {})
    away = np.stack([_factor(batch, wanted.batch), _factor(tokens, wanted.prompt_tokens)])
    worst = away.max(axis=0)
    closest = int(np.argmin(worst))
    near = phase.loc[worst <= NEAR, "step"].to_numpy(np.int64)
    rows = breakdown[breakdown["step"].isin(near)]
    means = rows.groupby("category", observed=True)["exclusive_ns"].sum() / max(len(near), 1)
    return Similar(
        wanted,
        tuple(int(step) for step in near),
        (int(batch[closest]), int(tokens[closest])),
        {str(name): float(ns) for name, ns in means.items() if ns > 0},
    )


def _factor(have: np.ndarray, want: int) -> np.ndarray:
    """How many times one is the other; infinite where only one is nought."""
    low, high = np.minimum(have, want), np.maximum(have, want)
    return np.where(high == 0, 1.0, np.divide(high, low, out=np.full_like(high, np.inf, dtype=float), where=low > 0))
