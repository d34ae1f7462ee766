"""Accuracy of a variant: figures by hand, intervals by property, verdicts, and how often intervals cover."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflab.analysis.quantization.accuracy import (
    FEWEST_DOCUMENTS,
    bca,
    document_sums,
    loss,
    mean_estimate,
    word_of,
)
from perflab.analysis.quantization.estimate import Estimate
from perflab.errors import SchemaError


def tokens(documents: int = 20, each: int = 30, *, shift: float = 0.0, spread: float = 0.1, seed: int = 0):
    """Scored tokens whose variant is worse by `shift` nats on average."""
    rng = np.random.default_rng(seed)
    rows = documents * each
    base = rng.gamma(2.0, 1.2, rows)
    by_document = np.repeat(rng.normal(0, spread / 5, documents), each)
    return pd.DataFrame(
        {
            "document": np.repeat(np.arange(documents), each),
            "position": np.tile(np.arange(each), documents),
            "token": rng.integers(0, 1000, rows),
            "nll": base + shift + by_document + rng.normal(0, spread, rows),
            "nll_baseline": base,
            "top1_agrees": rng.random(rows) < 0.95,
            "kl": rng.gamma(0.2, 0.05, rows),
        }
    )


def test_figures_by_eye():
    frame = pd.DataFrame(
        {
            "document": [0, 0, 1],
            "nll": [math.log(4), math.log(4), math.log(16)],
            "nll_baseline": [math.log(2), math.log(2), math.log(8)],
            "top1_agrees": [True, False, True],
            "kl": [0.1, 0.2, 0.3],
        }
    )
    found = loss(frame)
    # Perplexity is the geometric mean of 1/p over tokens: (4 * 4 * 16) ** (1/3); each token is half as likely.
    assert found.perplexity.value == pytest.approx(256 ** (1 / 3))
    assert found.perplexity_baseline.value == pytest.approx(32 ** (1 / 3))
    assert found.ratio.value == pytest.approx(2)
    assert found.agreement.value == pytest.approx(2 / 3)
    assert found.kl.value == pytest.approx(0.2)
    assert (found.tokens, found.documents, found.word) == (3, 2, "too_few_documents")
    assert found.ratio.low is None and found.detectable is None


def test_document_sums_weigh_by_tokens():
    sums = document_sums(tokens(3, 5))
    assert list(sums["n"]) == [5, 5, 5]
    frame = tokens(3, 5)
    assert sums["difference"].to_numpy() == pytest.approx(
        (frame["nll"] - frame["nll_baseline"]).groupby(frame["document"]).sum().to_numpy()
    )


def test_the_same_scores_are_identical():
    frame = tokens()
    frame["nll"], frame["kl"], frame["top1_agrees"] = frame["nll_baseline"], 0.0, True
    found = loss(frame)
    assert found.word == "identical"
    assert (found.ratio.value, found.ratio.low, found.ratio.high) == (1, 1, 1)
    assert found.detectable is None


def test_a_large_loss_and_a_small_one():
    assert loss(tokens(40, 100, shift=0.2)).word == "loss"
    small = loss(tokens(60, 200, shift=0.004, spread=0.01))
    assert small.word == "small_loss"
    assert 1 < small.ratio.low < small.ratio.high < 1.01


def test_no_loss_is_only_said_with_what_could_have_been_seen():
    wide = loss(tokens(12, 10, spread=0.5, seed=3))
    assert wide.word == "none_detectable"
    assert wide.ratio.low < 1 < wide.ratio.high
    # A change that would be seen in four of five texts is beyond the reach of this interval's half.
    assert wide.detectable > (wide.ratio.high - wide.ratio.low) / 2 * 0.9


@given(seed=st.integers(0, 10_000), documents=st.integers(FEWEST_DOCUMENTS, 30))
@settings(max_examples=25)
def test_intervals_hold_the_figure_and_do_not_depend_on_order(seed: int, documents: int):
    frame = tokens(documents, 7, seed=seed, shift=0.05)
    one = loss(frame, resamples=500)
    for estimate in (one.perplexity, one.ratio, one.agreement, one.kl):
        assert estimate.low <= estimate.value <= estimate.high
    other = loss(frame.sample(frac=1, random_state=seed), resamples=500)
    assert other.ratio.low == pytest.approx(one.ratio.low)
    assert other.kl.high == pytest.approx(one.kl.high)
    assert one.kl.low >= 0 and one.agreement.high <= 1


@given(shift=st.floats(-0.3, 0.3))
@settings(max_examples=20)
def test_a_shift_of_every_token_multiplies_the_ratio(shift: float):
    frame = tokens(15, 8)
    moved = frame.assign(nll=frame["nll"] + shift)
    plain, shifted = loss(frame, resamples=300), loss(moved, resamples=300)
    assert shifted.ratio.value == pytest.approx(plain.ratio.value * math.exp(shift))
    assert shifted.ratio.low == pytest.approx(plain.ratio.low * math.exp(shift), rel=1e-6)


def test_documents_not_tokens_are_what_counts():
    """Ten copies of every token say nothing new: the interval stays as wide."""
    frame = tokens(20, 20)
    copied = pd.concat([frame] * 10)
    assert loss(copied).ratio.high == pytest.approx(loss(frame).ratio.high, rel=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.995, 1.004, "equivalent"),
        (0.98, 1.004, "none_detectable"),
        (0.995, 1.02, "none_detectable"),
        (1.001, 1.009, "small_loss"),
        (1.001, 1.02, "loss"),
        (0.97, 0.98, "lower"),
        (0.992, 0.999, "equivalent"),
        (None, None, "too_few_documents"),
    ],
)
def test_words(low, high, word):
    assert word_of(Estimate(1.0, low, high, 20), 0.01) == word


def test_bca_of_a_symmetric_sample_is_about_students_interval():
    rng = np.random.default_rng(5)
    sample = rng.normal(3, 1, 40)
    drawn = rng.choice(sample, (20_000, 40)).mean(axis=1)
    left_out = (sample.sum() - sample) / 39
    low, high = bca(float(sample.mean()), drawn, left_out)
    reach = 2.0227 * sample.std(ddof=1) / math.sqrt(40)
    assert low == pytest.approx(sample.mean() - reach, abs=0.05)
    assert high == pytest.approx(sample.mean() + reach, abs=0.05)


def test_mean_estimate_of_few_documents_has_no_interval():
    found = mean_estimate(pd.Series([1.0, 2.0, 6.0]), pd.Series([0, 0, 1]))
    assert (found.value, found.low, found.n) == (3.0, None, 2)


@pytest.mark.parametrize("column", ["document", "nll", "nll_baseline", "top1_agrees", "kl"])
def test_a_missing_column_is_named(column: str):
    with pytest.raises(SchemaError, match=column):
        loss(tokens().drop(columns=column))


def test_no_rows_and_no_numbers():
    with pytest.raises(SchemaError, match="no rows"):
        loss(tokens().iloc[:0])
    with pytest.raises(SchemaError, match="not finite"):
        loss(tokens().assign(kl=float("nan")))


@pytest.mark.slow
@pytest.mark.parametrize(("figure", "least"), [("ratio", 0.90), ("kl", 0.88), ("agreement", 0.88)])
@pytest.mark.parametrize("documents", [20, 79])
def test_coverage(figure: str, least: float, documents: int):
    """On texts of unlike documents, intervals hold the truth nearly as often as they say."""
    truth = {"ratio": 0.02, "kl": 0.03, "agreement": 0.97}[figure]
    held, repeats = 0, 1000
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        n = np.minimum(np.round(rng.lognormal(5.5, 0.9, documents)).clip(16), 1022)
        if figure == "ratio":
            sums = n * (truth + rng.normal(0, 0.01, documents)) + rng.normal(0, 0.35, documents) * np.sqrt(n)
        elif figure == "kl":
            mean = truth * rng.lognormal(-0.125, 0.5, documents)
            sums = rng.gamma(0.15 * n, mean / 0.15)
        else:
            sums = rng.binomial(n.astype(int), rng.beta(truth * 60, (1 - truth) * 60, documents)).astype(float)
        shares = rng.multinomial(documents, np.full(documents, 1 / documents), size=999)
        left_out = (sums.sum() - sums) / (n.sum() - n)
        low, high = bca(sums.sum() / n.sum(), (shares @ sums) / (shares @ n), left_out)
        held += low <= truth <= high
    assert held / repeats > least
