"""Change points and trends: found where they are, and not where nothing changes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm, rankdata

from perflab.analysis.history import FEWEST, FEWEST_SIDE, _scores, _sums, _windows, change_p, differences, holm, levels

WOBBLE = [0.1, -0.3, 0.2, 0.0, -0.1, 0.3, -0.2, 0.15, -0.25, 0.05]


def series(*parts: tuple[float, int]) -> list[float]:
    """Levels with a small wobble that no two values share."""
    return [level + WOBBLE[i % 10] + 1e-4 * i for level, count in parts for i in range(count)]


def test_a_step_is_found_where_it_is() -> None:
    found = levels(series((100, 12), (90, 10)))
    (change,) = found.changes
    assert change.at == 12 and change.p < 0.01
    assert (change.before, change.after) == pytest.approx((100.03, 90.03), abs=0.1)
    assert change.ratio == pytest.approx(0.9, abs=0.002)
    assert found.bounds == [0, 12, 22]


def test_two_steps_up_and_down_are_both_found() -> None:
    assert [change.at for change in levels(series((100, 15), (90, 15), (105, 15))).changes] == [15, 30]
    assert [change.at for change in levels(series((100, 15), (90, 15), (100, 15))).changes] == [15, 30]


def test_a_run_that_is_a_little_low_stays_with_the_level_it_is_near() -> None:
    values = series((100, 12), (90, 12))
    values[11] = 98.5
    assert [change.at for change in levels(values).changes] == [12]


def test_one_outlier_is_no_change() -> None:
    values = series((100, 30))
    values[17] = 20.0
    assert levels(values).changes == ()


def test_nothing_is_said_of_few_runs() -> None:
    found = levels(series((100, 4), (50, FEWEST - 5)))
    assert found.too_few and found.p is None and found.changes == () and found.bounds == [0, FEWEST - 1]


def test_the_fewest_runs_are_enough_for_a_clear_step() -> None:
    assert [change.at for change in levels(series((100, 4), (50, 4))).changes] == [4]


def test_a_constant_has_no_change_and_no_trend() -> None:
    found = levels([5.0] * 20)
    assert found.changes == () and found.trend is None and found.p == 1.0


def test_a_drift_after_the_last_change_is_told_as_a_share_a_run() -> None:
    found = levels([100 + 0.02 * i + w for i, w in enumerate(WOBBLE)])
    assert found.changes == () and found.trend is None, "a drift below the wobble is not told"
    drifting = series((300, 12)) + [100 * (1 + 0.002 * i) for i in range(7)]
    assert levels(drifting).trend is None, "seven runs are too few"
    steady = levels([100 * (1 + 0.01 * i) for i in range(8)])
    assert steady.trend is not None or steady.changes


def test_a_stricter_limit_withholds_a_change() -> None:
    values = series((100, 4), (50, 4))
    p = levels(values).p
    assert p is not None
    assert levels(values, most_p=p / 2).changes == () and len(levels(values, most_p=p).changes) == 1


def test_over_the_whole_series_the_statistic_is_mann_whitneys() -> None:
    values = np.array(series((100, 9), (99.8, 8)))
    start, split, end = _windows(17)[-1]
    ranks = rankdata(values)
    scores = _scores(_sums(ranks[:, None]), ranks.std(ddof=1), start, split, end)[:, 0]
    for k, score in zip(split, scores, strict=True):
        test = mannwhitneyu(values[:k], values[k:], method="asymptotic", use_continuity=False)
        assert 2 * norm.sf(score) == pytest.approx(test.pvalue)


def test_random_orders_have_mean_squares_of_one_in_every_window() -> None:
    rng = np.random.default_rng(3)
    ranks = np.arange(1.0, 21)
    sums = _sums(rng.permuted(np.tile(ranks, (20_000, 1)), axis=1).T)
    for window in _windows(20):
        assert np.mean(_scores(sums, ranks.std(ddof=1), *window) ** 2, axis=1) == pytest.approx(1.0, abs=0.05)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=FEWEST, max_size=40), st.floats(0.01, 100), st.booleans())
def test_units_do_not_matter(values: list[float], factor: float, down: bool) -> None:
    scaled = [value * factor for value in values]
    if len(set(scaled)) == len(set(values)):  # no two values fell together
        assert change_p(values) == change_p(scaled)
    found = levels(values)
    assert all(b - a >= FEWEST_SIDE for a, b in pairwise(found.bounds))
    assert all(0 < change.p <= 0.05 for change in found.changes)


def test_many_close_changes_leave_no_level_too_short() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        steps = np.repeat(rng.normal(0, 3, 12), rng.integers(2, 9, 12))
        found = levels((steps + rng.normal(0, 0.5, len(steps))).tolist())
        assert all(b - a >= FEWEST_SIDE for a, b in pairwise(found.bounds))


def test_holm_is_holm() -> None:
    limits = holm([0.01, None, 0.04, 0.03], 0.05)
    assert limits == [pytest.approx(0.05 / 3), 0.0, 0.0, 0.0], "0.03 is more than 0.05 / 2, so 0.04 is not looked at"
    assert holm([0.001, 0.002], 0.05) == [0.025, 0.05]
    assert holm([], 0.05) == []


def test_differences_name_what_is_there_on_one_side_only() -> None:
    assert differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4, "d": 5}) == [
        ("b", 2, 4), ("c", 3, None), ("d", None, 5),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("runs", [8, 10, 16, 40, 120])
@pytest.mark.parametrize("shape", ["normal", "lognormal", "heavy", "ties"])
def test_false_alarms_are_as_rare_as_promised(runs: int, shape: str) -> None:
    rng = np.random.default_rng(runs)
    draw = {
        "normal": lambda: rng.normal(100, 1, runs),
        "lognormal": lambda: rng.lognormal(0, 0.5, runs),
        "heavy": lambda: rng.standard_t(1.5, runs),
        "ties": lambda: rng.integers(0, 4, runs).astype(float),
    }[shape]
    count = 400 if shape == "ties" and runs > 40 else 2000
    alarms = sum(bool(levels(draw()).changes) for _ in range(count))
    # Binomial: 0.05 and four standard deviations.
    assert alarms / count <= 0.05 + 4 * (0.05 * 0.95 / count) ** 0.5


@pytest.mark.slow
def test_a_step_of_three_deviations_is_found_almost_always() -> None:
    rng = np.random.default_rng(5)
    found = [levels([*rng.normal(100, 1, 20), *rng.normal(97, 1, 20)]).changes for _ in range(300)]
    assert sum(any(abs(change.at - 20) <= 2 for change in changes) for changes in found) >= 0.95 * 300
    assert sum(len(changes) > 1 for changes in found) <= 0.15 * 300, (
        "further changes are false alarms, two chances each"
    )
