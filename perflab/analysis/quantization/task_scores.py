"""Scores on tasks, paired by document: what a variant answers otherwise than the baseline, with an interval.

Every figure is a mean over documents; the difference of two means is the mean of differences, since both sides were
asked the same documents. Documents are resampled as in `accuracy.py`, each a block of its own.

Where a score is 0 or 1 only the answers that flipped say anything about the difference, and with few of them the
bootstrap finds an end too near: five flips to one side and none to the other leave hardly a resample without a flip.
There a verdict also needs flips that a fair coin would give in fewer than 5 of 100 tries (exact test of McNemar, 1947).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from scipy import special

from perflab.analysis.quantization.accuracy import CONFIDENCE, POWER, mean_estimate
from perflab.analysis.quantization.estimate import Estimate
from perflab.errors import SchemaError

Word = Literal["identical", "worse", "better", "none_detectable", "too_few_documents", "differs"]
WORDS: tuple[Word, ...] = get_args(Word)
PAIRED = ("task", "document", "value", "value_baseline")


@dataclass(frozen=True)
class TaskLoss:
    """What one variant answers otherwise on one task, by one metric.

    Attributes
    ----------
    value, baseline, difference
        Means over documents, and variant less baseline with its interval.
    documents
        What they rest on.
    lost, won
        Of scores of 0 and 1: documents that only the baseline got right, and those that only the variant did; None of
        other scores.
    flips_p
        How likely flips so uneven are of a fair coin; None of other scores.
    word
        identical: every document has the same score, and there is no interval; worse, better: the whole interval is on
        one side of 0 (and flips are no coin's); differs: so too, of a metric of which is not known whether more is
        better; none_detectable: neither; too_few_documents: no interval.
    detectable
        The smallest difference that so many documents would have shown with a probability of 80 %; where nothing
        differs, the share of documents scored otherwise of which one would have shown so; None without an interval.
    """

    value: Estimate
    baseline: Estimate
    difference: Estimate
    documents: int
    lost: int | None
    won: int | None
    flips_p: float | None
    word: Word
    detectable: float | None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "value": self.value.to_json(),
            "baseline": self.baseline.to_json(),
            "difference": self.difference.to_json(),
            "documents": self.documents,
            "flips": None if self.lost is None else {"lost": self.lost, "won": self.won, "p": self.flips_p},
            "verdict": {"word": self.word, "smallest_detectable": self.detectable},
        }


def task_loss(scores: pd.DataFrame, *, higher_is_better: bool | None = True) -> TaskLoss:
    """What a variant loses on a task.

    Parameters
    ----------
    scores
        One row a document: `task`, `document`, `value`, `value_baseline`.

    Raises
    ------
    SchemaError
        For a column that is missing, a table without rows, a document that is there twice, or numbers not finite.
    """
    blocks = _checked(scores)
    own, base = (scores[name].to_numpy(dtype=np.float64) for name in PAIRED[2:])
    change = own - base
    difference = mean_estimate(pd.Series(change), blocks)
    lost, won, chance = flips(base, own)
    same = bool((change == 0).all())
    detectable = None
    if same:
        # No resample of zeros is anything but zero, which says nothing about other documents.
        difference = Estimate(0.0, n=len(change))
        detectable = 1 - (1 - POWER) ** (1 / len(change))
    elif difference.low is not None:
        reach = float(special.ndtri(1 - (1 - CONFIDENCE) / 2) + special.ndtri(POWER))
        detectable = reach * float(np.std(change, ddof=1)) / math.sqrt(len(change))
    return TaskLoss(
        mean_estimate(pd.Series(own), blocks), mean_estimate(pd.Series(base), blocks), difference, len(scores), lost,
        won, chance, "identical" if same else word_of(difference, chance, higher_is_better), detectable,
    )  # fmt: skip


def _checked(scores: pd.DataFrame) -> pd.Series:
    """A number for each document of each task."""
    for name in PAIRED:
        if name not in scores.columns:
            raise SchemaError(f"the table of scores lacks column {name!r}")
    if not len(scores):
        raise SchemaError("the table of scores has no rows")
    if not np.isfinite(scores.loc[:, list(PAIRED[2:])].to_numpy(dtype=np.float64)).all():
        raise SchemaError("the table of scores has numbers that are not finite")
    if scores.duplicated(["task", "document"]).any():
        raise SchemaError("the table of scores has a document twice")
    return pd.Series(np.arange(len(scores)))


def flips(baseline: np.ndarray, own: np.ndarray) -> tuple[int | None, int | None, float | None]:
    """Answers lost and won, and how likely a fair coin gives flips so uneven; None of scores other than 0 and 1."""
    if not (np.isin(baseline, (0, 1)).all() and np.isin(own, (0, 1)).all()):
        return None, None, None
    lost, won = int(((baseline == 1) & (own == 0)).sum()), int(((baseline == 0) & (own == 1)).sum())
    chance = min(1.0, 2 * float(special.bdtr(min(lost, won), lost + won, 0.5))) if lost + won else 1.0
    return lost, won, chance


def word_of(difference: Estimate, chance: float | None, higher_is_better: bool | None) -> Word:
    """What an interval of the difference, and flips where there are any, come to."""
    if difference.low is None or difference.high is None:
        return "too_few_documents"
    if difference.low <= 0 <= difference.high or (chance is not None and chance >= 1 - CONFIDENCE):
        return "none_detectable"
    if higher_is_better is None:
        return "differs"
    return "better" if (difference.low > 0) == higher_is_better else "worse"


@dataclass(frozen=True)
class TaskScore:
    """A variant's score on one task by one metric, as a study records it.

    Attributes
    ----------
    name
        As the study names the task; `tasks` are those of lm-eval that it stands for.
    metric
        As lm-eval names it.
    value, baseline, difference
        Means over documents; the last two None of the baseline itself.
    lost, won
        Flipped answers, of scores of 0 and 1.
    failed
        Why there is no score; figures are None then.
    """

    name: str
    metric: str = ""
    tasks: tuple[str, ...] = ()
    shots: tuple[int, ...] = ()
    documents: int | None = None
    value: Estimate | None = None
    baseline: Estimate | None = None
    difference: Estimate | None = None
    lost: int | None = None
    won: int | None = None
    flips_p: float | None = None
    word: str = ""
    sentence: str = ""
    notes: tuple[str, ...] = ()
    failed: str = ""

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        parts: Mapping[str, Estimate | None] = {
            "value": self.value, "baseline": self.baseline, "difference": self.difference
        }  # fmt: skip
        return {
            "name": self.name, "metric": self.metric or None, "tasks": list(self.tasks), "shots": list(self.shots),
            "documents": self.documents, **{key: one and one.to_json() for key, one in parts.items()},
            "lost": self.lost, "won": self.won, "flips_p": self.flips_p, "word": self.word or None,
            "verdict": self.sentence or None, "notes": list(self.notes), "failed": self.failed or None,
        }  # fmt: skip
