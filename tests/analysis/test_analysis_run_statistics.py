"""Ratios of runs: values whose answer can be seen, properties that must hold, and how often intervals are right."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perflab.analysis.compare.run_statistics import (
    BOOTSTRAP_FROM,
    MOST_RUNS,
    Ratio,
    Verdict,
    holm,
    run_ratio,
    runs_needed,
    verdict,
)

VALUES = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=25)


def spread(n: int, middle: float = 100.0, step: float = 0.01) -> list[float]:
    """Values around `middle` that are evenly spread in logarithms."""
    return [middle * math.exp(step * (i - (n - 1) / 2)) for i in range(n)]


def test_ratio_is_of_geometric_means() -> None:
    found = run_ratio([10.0, 40.0], [40.0, 40.0])
    assert found.baseline == pytest.approx(20) and found.candidate == pytest.approx(40)
    assert found.ratio == pytest.approx(2)


@pytest.mark.parametrize(("n", "interval"), [(1, False), (2, False), (3, True), (4, True), (5, True)])
def test_no_interval_below_three_runs_and_no_verdict_below_five(n: int, interval: bool) -> None:
    found = run_ratio(spread(n), spread(n, 200))
    assert (found.low is not None) == interval
    assert verdict(found, "lower", 0.02) == ("worse" if n >= 5 else "undecided")
    assert verdict(run_ratio(spread(9), spread(n, 200)), "lower", 0.02) == ("worse" if n >= 5 else "undecided")


def test_small_groups_are_welchs_t_on_logarithms_as_scipy_has_it() -> None:
    before, after = [10.0, 11.0, 10.5, 12.0, 10.2], [11.0, 15.0, 12.5, 13.0, 12.2, 14.0]
    found = run_ratio(before, after)
    theirs = stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
    low, high = theirs.confidence_interval(0.95)
    assert found.method == "welch" and found.p == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))


def test_from_twenty_runs_on_the_interval_is_bootstrapped_and_close_to_welchs() -> None:
    rng = np.random.default_rng(3)
    before, after = (list(np.exp(rng.normal(0, 0.05, BOOTSTRAP_FROM))) for _ in range(2))
    found = run_ratio(before, after)
    low, high = stats.ttest_ind(np.log(after), np.log(before), equal_var=False).confidence_interval(0.95)
    assert found.method == "bootstrap" and found.low is not None and found.high is not None
    assert math.log(found.low) == pytest.approx(low, abs=0.005) and math.log(found.high) == pytest.approx(
        high, abs=0.005
    )
    assert run_ratio(before[1:], after).method == "welch"


def test_p_and_interval_agree() -> None:
    rng = np.random.default_rng(4)
    for n in (5, 25):
        for shift in np.linspace(0, 0.08, 9):
            found = run_ratio(list(np.exp(rng.normal(0, 0.05, n))), list(np.exp(rng.normal(shift, 0.05, n))))
            assert found.low is not None and found.high is not None and found.p is not None
            outside = not found.low <= 1 <= found.high
            assert outside == (found.p < 0.05) or abs(found.p - 0.05) < 0.003


def made(ratio: float, low: float, high: float, n: int = 5, p: float = 0.01) -> Ratio:
    return Ratio(100.0, 100.0 * ratio, n, n, low, high, p, "welch", (0.01, 0.01))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (made(1.10, 1.05, 1.15), "worse"),
        (made(0.90, 0.85, 0.95), "better"),
        (made(1.00, 0.99, 1.01, p=0.9), "same"),
        (made(1.01, 1.005, 1.015), "same"),  # a change, and one that does not matter
        (made(1.015, 1.005, 1.03), "undecided"),  # a change; whether it matters is open
        (made(1.05, 1.01, 1.09), "undecided"),  # even so: it may be 1 %
        (made(1.05, 1.03, 1.07), "worse"),
        (made(1.10, 0.95, 1.25, p=0.1), "undecided"),
        (made(1.10, 1.05, 1.15, n=4), "undecided"),
        (Ratio(100.0, 150.0, 1, 1), "undecided"),
    ],
)
def test_verdicts(found: Ratio, expected: Verdict) -> None:
    assert verdict(found, "lower", 0.02) == expected
    turned = {"worse": "better", "better": "worse"}
    assert verdict(found, "higher", 0.02) == turned.get(expected, expected)


def test_a_p_value_among_several_can_take_a_verdict_back_and_never_sameness() -> None:
    assert verdict(made(1.10, 1.05, 1.15), "lower", 0.02, p=0.06) == "undecided"
    assert verdict(made(1.01, 1.005, 1.015), "lower", 0.02, p=0.9) == "same"


def test_without_a_threshold_nothing_is_the_same() -> None:
    assert verdict(made(1.0, 0.9999, 1.0001, p=0.9), "lower", 0.0) == "undecided"


def test_holm_by_hand() -> None:
    # 4 * 0.01, 3 * 0.02, then the running maximum of 2 * 0.03 and 1 * 0.04.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_runs_that_do_not_vary() -> None:
    alike = run_ratio([5.0] * 5, [5.0] * 5)
    assert (alike.low, alike.high, alike.p) == (1.0, 1.0, 1.0) and verdict(alike, "lower", 0.02) == "same"
    apart = run_ratio([5.0] * 5, [6.0] * 5)
    assert apart.p == 0.0 and verdict(apart, "lower", 0.02) == "worse"


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.nan], [math.inf]])
def test_what_has_no_logarithm_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        run_ratio([1.0], bad)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, st.floats(1e-3, 1e3))
def test_scale_does_not_matter(before: list[float], after: list[float], scale: float) -> None:
    found = run_ratio(before, after, resamples=199)
    scaled = run_ratio([v * scale for v in before], [v * scale for v in after], resamples=199)
    assert scaled.ratio == pytest.approx(found.ratio)
    for one, other in ((found.low, scaled.low), (found.high, scaled.high)):
        assert (one is None) == (other is None) and (one is None or other == pytest.approx(one, rel=1e-6))


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES)
def test_swapping_sides_turns_ratio_interval_and_verdict_around(before: list[float], after: list[float]) -> None:
    found, swapped = run_ratio(before, after, resamples=199), run_ratio(after, before, resamples=199)
    assert swapped.ratio == pytest.approx(1 / found.ratio)
    if found.low is not None and found.high is not None and found.p is not None:
        assert swapped.high == pytest.approx(1 / found.low) and swapped.low == pytest.approx(1 / found.high)
        assert swapped.p == pytest.approx(found.p)
        turned = {"worse": "better", "better": "worse"}
        said = verdict(found, "lower", 0.02)
        assert verdict(swapped, "lower", 0.02) == turned.get(said, said)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(before: list[float], after: list[float], random: object) -> None:
    mixed = [list(before), list(after)]
    for side in mixed:
        random.shuffle(side)  # type: ignore[attr-defined]
    assert run_ratio(before, after, resamples=199) == run_ratio(mixed[0], mixed[1], resamples=199)


def test_more_runs_are_needed_for_smaller_effects_and_wider_spreads() -> None:
    def needed(ratio: float, sd: float) -> int:
        found = runs_needed(Ratio(1.0, ratio, 5, 5, spread=(sd, sd)), 0.02)
        assert found is not None
        return found

    assert needed(1.05, 0.02) < needed(1.03, 0.02) < needed(1.03, 0.04)
    assert needed(1.0, 0.01) < needed(1.0, 0.03)
    assert needed(1.5, 0.001) == 5  # never below what a verdict needs
    assert needed(1.0199, 0.05) == MOST_RUNS + 1
    assert runs_needed(Ratio(1.0, 2.0, 1, 1), 0.02) is None
    # Textbook: n = 2 (1.96 + 0.84)^2 (sd / effect)^2 = 15.7, and one more for Student's t.
    assert runs_needed(Ratio(1.0, math.exp(0.05), 5, 5, spread=(0.05, 0.05)), 0.0) == 17


def _mixture(share: float, slower: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: np.exp(rng.normal(0, 0.02, n)) * np.where(rng.random(n) < share, slower, 1.0)


SKEWED: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal, sd 0.05": lambda rng, n: rng.lognormal(0, 0.05, n),
    "lognormal, sd 0.5": lambda rng, n: rng.lognormal(0, 0.5, n),
    "gamma, shape 2": lambda rng, n: rng.gamma(2, 1, n),
    "gamma, shape 25": lambda rng, n: rng.gamma(25, 1, n),
    "one run in five 8 % slower": _mixture(0.2, 1.08),
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("name", SKEWED)
def test_intervals_cover_and_false_regressions_are_rare(name: str, n: int) -> None:
    """Of sides that truly differ by 10 %, and of sides that do not differ at all, 4,000 pairs each."""
    rng = np.random.default_rng(7)
    covered = false = outside = 0
    for _ in range(4000):
        before, after = (list(SKEWED[name](rng, n)) for _ in range(2))
        moved = run_ratio(before, [1.1 * value for value in after], resamples=1999)
        assert moved.low is not None and moved.high is not None
        covered += moved.low <= 1.1 <= moved.high
        before, after = (list(SKEWED[name](rng, n)) for _ in range(2))
        alike = run_ratio(before, after, resamples=1999)
        assert alike.low is not None and alike.high is not None
        false += verdict(alike, "lower", 0.02) == "worse"
        outside += not alike.low <= 1 <= alike.high
    print(f"| {name} | {n} | {covered / 40:.1f} % | {outside / 40:.1f} % | {false / 40:.1f} % |")  # noqa: T201
    assert 0.92 <= covered / 4000 <= 0.97
    assert outside / 4000 <= 0.067 and false / 4000 <= 0.067


LONG_TAILED: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential on a floor": lambda rng, n: 1 + 0.1 * rng.exponential(1, n),
    "one run in ten 15 % slower": _mixture(0.1, 1.15),
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("name", LONG_TAILED)
def test_long_tails_make_small_groups_cautious(name: str, n: int) -> None:
    """A side of five often has none of the rare slow runs, and Welch's t is then wide; with 20 it is right again."""
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(4000):
        before, after = (list(LONG_TAILED[name](rng, n)) for _ in range(2))
        found = run_ratio(before, after, resamples=1999)
        assert found.low is not None and found.high is not None
        covered += found.low <= 1 <= found.high
    print(f"| {name} | {n} | {covered / 40:.1f} % |")  # noqa: T201
    assert 0.92 <= covered / 4000 <= (0.97 if n == 20 else 0.99)


@pytest.mark.slow
def test_a_planned_number_of_runs_decides_as_often_as_was_said() -> None:
    rng = np.random.default_rng(9)
    for ratio, threshold, wanted in ((1.06, 0.02, "worse"), (1.0, 0.04, "same")):
        n = runs_needed(Ratio(1.0, ratio, 5, 5, spread=(0.04, 0.04)), threshold)
        assert n is not None and n < BOOTSTRAP_FROM * 2
        pairs = [(rng.lognormal(0, 0.04, n), ratio * rng.lognormal(0, 0.04, n)) for _ in range(1500)]
        decided = sum(
            verdict(run_ratio(list(a), list(b), resamples=999), "lower", threshold) == wanted for a, b in pairs
        )
        assert 0.75 <= decided / 1500 <= 0.9, (ratio, n, decided)
