"""What quantization costs in accuracy, with intervals: perplexity, top-1 agreement and KL divergence, paired by token.

Every figure is a mean over tokens, or its exponential: perplexity is exp(mean nll), the ratio of perplexities
exp(mean(nll - nll_baseline)), agreement the mean of "the most likely token is the baseline's", KL the mean of
KL(baseline || variant) over next-token distributions. The same tokens are scored by both sides, so that how hard the
text is cancels in the ratio.

Tokens of a document hang together: a name that is misjudged once is misjudged again. Documents are therefore what is
resampled (block bootstrap): each resample draws as many documents as there are, with all their tokens, and takes the
figure of those. The interval is the bias-corrected and accelerated one (Efron 1987, Better bootstrap confidence
intervals, JASA 82, 171), whose ends are moved outward by sqrt(n / (n - 1)) and by Student's t over the normal as in
`perflab.analysis.compare.run_statistics`; docs/validation.md has how often it covers. Resampling is seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from perflab.analysis.quantization.estimate import Estimate
from perflab.errors import SchemaError

CONFIDENCE, POWER = 0.95, 0.8
RESAMPLES, SEED = 9_999, 20_261_130
FEWEST_DOCUMENTS = 10
MARGIN = 0.01
"""Smallest change of perplexity that matters, as a share, where nobody says another."""

COLUMNS = ("document", "position", "token", "nll", "nll_baseline", "top1_agrees", "kl")
Word = Literal["identical", "equivalent", "small_loss", "loss", "none_detectable", "lower", "too_few_documents"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """What one variant loses on one text.

    Attributes
    ----------
    perplexity, perplexity_baseline, ratio
        Of the variant, of the baseline on the same tokens, and one over the other.
    agreement, kl
        Share of tokens, and nats a token.
    tokens, documents
        What the figures rest on.
    word
        identical: every token has the same nll, and KL is 0; equivalent: the ratio's interval lies within the margin
        and not above 1; small_loss: above 1 and within the margin; loss: above 1; none_detectable: the interval holds 1
        and reaches beyond the margin; lower: below 1; too_few_documents: no interval.
    margin
        As a share of the perplexity.
    detectable
        The smallest change of perplexity, as a share, that this text would have shown with a probability of 80 %; None
        without an interval.
    """

    perplexity: Estimate
    perplexity_baseline: Estimate
    ratio: Estimate
    agreement: Estimate
    kl: Estimate
    tokens: int
    documents: int
    word: Word
    margin: float
    detectable: float | None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "perplexity": self.perplexity.to_json(),
            "perplexity_baseline": self.perplexity_baseline.to_json(),
            "perplexity_ratio": self.ratio.to_json(),
            "agreement": self.agreement.to_json(),
            "kl": self.kl.to_json(),
            "verdict": {"word": self.word, "margin": self.margin, "smallest_detectable": self.detectable},
        }


def loss(tokens: pd.DataFrame, *, margin: float = MARGIN, resamples: int = RESAMPLES) -> Loss:
    """What a variant loses.

    Parameters
    ----------
    tokens
        One row a scored token: `document`, `nll` and `nll_baseline` in nats, `top1_agrees`, `kl` in nats.
    margin
        Smallest change of perplexity that matters, as a share.

    Raises
    ------
    SchemaError
        For a column that is missing, a table without rows, or numbers that are not finite.
    """
    sums = document_sums(tokens)
    shares = _resampled(len(sums), resamples)
    perplexity = _mean(sums, "nll", shares, math.exp)
    baseline = _mean(sums, "nll_baseline", shares, math.exp)
    ratio = _mean(sums, "difference", shares, math.exp)
    agreement = _mean(sums, "top1_agrees", shares)
    kl = _mean(sums, "kl", shares)
    same = bool((tokens["nll"].to_numpy() == tokens["nll_baseline"].to_numpy()).all()) and kl.value == 0
    detectable = None
    if ratio.low is not None and not same:
        error = float(np.std(_means(sums, "difference", shares), ddof=1))
        detectable = math.expm1((_z(1 - (1 - CONFIDENCE) / 2) + _z(POWER)) * error)
    return Loss(
        perplexity, baseline, ratio, agreement, kl, len(tokens), len(sums),
        "identical" if same else word_of(ratio, margin), margin, detectable,
    )  # fmt: skip


def word_of(ratio: Estimate, margin: float) -> Word:
    """What an interval of the ratio of perplexities comes to."""
    if ratio.low is None or ratio.high is None:
        return "too_few_documents"
    within = ratio.low > 1 - margin and ratio.high < 1 + margin
    if ratio.low > 1:
        return "small_loss" if within else "loss"
    if ratio.high < 1:
        return "equivalent" if within else "lower"
    return "equivalent" if within else "none_detectable"


def mean_estimate(values: pd.Series, documents: pd.Series, *, resamples: int = RESAMPLES) -> Estimate:
    """A mean over rows with its interval, documents resampled."""
    frame = pd.DataFrame({"document": documents.to_numpy(), "value": values.to_numpy(dtype=np.float64)})
    sums = frame.groupby("document", sort=True)["value"].agg(["size", "sum"])
    sums = sums.rename(columns={"size": "n", "sum": "value"}).astype(np.float64)
    return _mean(sums, "value", _resampled(len(sums), resamples))


def document_sums(tokens: pd.DataFrame) -> pd.DataFrame:
    """One row a document: tokens `n`, and the sums of what `loss` needs; all that the bootstrap looks at.

    Raises
    ------
    SchemaError
        As `loss` does.
    """
    needed = ("document", "nll", "nll_baseline", "top1_agrees", "kl")
    for name in needed:
        if name not in tokens.columns:
            raise SchemaError(f"the table of scored tokens lacks column {name!r}")
    if not len(tokens):
        raise SchemaError("the table of scored tokens has no rows")
    values = tokens.loc[:, list(needed[1:])].astype(np.float64)
    if not np.isfinite(values.to_numpy()).all():
        raise SchemaError("the table of scored tokens has numbers that are not finite")
    values["difference"] = values["nll"] - values["nll_baseline"]
    values["n"] = 1.0
    return values.groupby(tokens["document"].to_numpy(), sort=True).sum()


def _resampled(documents: int, resamples: int) -> _Floats:
    """How often each document is drawn, one row a resample."""
    if documents < FEWEST_DOCUMENTS:
        return np.empty((0, documents))
    rng = np.random.default_rng(SEED)
    return rng.multinomial(documents, np.full(documents, 1 / documents), size=resamples).astype(np.float64)


def _means(sums: pd.DataFrame, name: str, shares: _Floats) -> _Floats:
    value, n = (sums[key].to_numpy(dtype=np.float64) for key in (name, "n"))
    found: _Floats = (shares @ value) / (shares @ n)
    return found


def _mean(
    sums: pd.DataFrame, name: str, shares: _Floats, scale: Callable[[float], float] = lambda value: value
) -> Estimate:
    value, n = (sums[key].to_numpy(dtype=np.float64) for key in (name, "n"))
    point = float(value.sum() / n.sum())
    if not len(shares):
        return Estimate(scale(point), n=len(sums))
    # All alike: the mean is known to be that of every resample, up to rounding of sums.
    each = value / n
    if np.ptp(each) <= 1e-12 * max(1.0, float(np.abs(each).max())):
        return Estimate(scale(point), scale(point), scale(point), len(sums))
    left_out = (value.sum() - value) / (n.sum() - n)
    low, high = bca(point, _means(sums, name, shares), left_out)
    return Estimate(scale(point), scale(low), scale(high), len(sums))


def bca(point: float, resampled: _Floats, left_out: _Floats, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Ends of the bias-corrected and accelerated interval, its tails moved outward for few blocks.

    Parameters
    ----------
    point, resampled
        The figure, and the figure of each resample.
    left_out
        The figure without each block in turn (jackknife), for the acceleration.
    """
    blocks = len(left_out)
    below = float(np.mean(resampled < point) + np.mean(resampled == point) / 2)
    edge = 1 / (2 * len(resampled))
    bias = _z(min(max(below, edge), 1 - edge))
    centred = left_out.mean() - left_out
    spread = float((centred**2).sum())
    acceleration = float((centred**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    reach = float(special.stdtrit(blocks - 1, 0.5 + confidence / 2)) * math.sqrt(blocks / (blocks - 1))
    ends = []
    for z in (-reach, reach):
        moved = bias + z
        level = float(special.ndtr(bias + moved / (1 - acceleration * moved)))
        ends.append(float(np.quantile(resampled, min(max(level, edge), 1 - edge))))
    return ends[0], ends[1]


def _z(level: float) -> float:
    return float(special.ndtri(level))


def facts_of(found: Loss) -> Mapping[str, Any]:
    """Fields of the sentence of a verdict."""
    return {
        "margin": found.margin, "detectable": found.detectable, "ratio": found.ratio.value, "low": found.ratio.low,
        "high": found.ratio.high, "tokens": found.tokens, "documents": found.documents,
    }  # fmt: skip
