"""Who is waited for, and when that cannot be said."""

import pandas as pd
import pytest
from collective_tables import CUSTOM, NCCL, all_steps, meeting
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.ranks.clock_offsets import ClockOffset, clock_offsets
from perflab.analysis.ranks.collectives import match_collectives
from perflab.analysis.ranks.stragglers import Straggler, median_interval, sign_test, stragglers


def judged(lines: list[tuple[int, ...]], steps: int, transfer: int = 40, **more: object) -> Straggler:
    """Collectives spread evenly over so many steps of 1000."""
    ranks = len(lines[0])
    clocks = more.get("clocks")
    known = all_steps(steps, 1000, ranks, clocks=clocks)  # type: ignore[arg-type]
    table, _ = match_collectives(meeting(lines, transfer, **more), known)  # type: ignore[arg-type]
    (found,) = stragglers(table, clock_offsets(table))
    return found


def lines(steps: int, each: int, late: list[int]) -> list[tuple[int, ...]]:
    return [tuple(1000 * s + 150 * c + x for x in late) for s in range(steps) for c in range(each)]


def test_the_rank_that_is_always_late() -> None:
    """Rank 0 comes 30 after rank 1, four times a step: 120 a step, in 8 of 8 steps."""
    found = judged(lines(8, 4, [30, 0]), 8)
    assert (found.verdict, found.rank, found.steps, found.least_steps) == ("straggler", 0, 8, 8)
    assert (found.lag_ns, found.low_ns, found.high_ns, found.per_collective_ns) == (120, 120, 120, 30)
    assert found.p == pytest.approx(2 / 2**8)
    assert found.waits_least == 1 and found.arrives_last == 1
    assert found.first_share == 0.25, "each of four collectives of a step waits as long"


def test_a_clock_that_is_far_off_changes_nothing() -> None:
    found = judged(lines(8, 4, [30, 0]), 8, clocks={1: 3_500_000})
    assert (found.verdict, found.rank, found.lag_ns) == ("straggler", 0, 120)


def test_of_three_ranks_the_others_mean_counts() -> None:
    """Ranks 1 and 2 wait 30 and 10 for rank 0."""
    found = judged(lines(8, 2, [30, 0, 20]), 8)
    assert (found.verdict, found.rank, found.lag_ns) == ("straggler", 0, 2 * 20)


def test_taking_turns_is_no_straggler() -> None:
    turns = [(1000 * s + 30 * (s % 2), 1000 * s + 30 * (1 - s % 2)) for s in range(8)]
    assert judged(turns, 8).verdict == "even"


def test_a_few_steps_may_be_chance() -> None:
    assert judged(lines(2, 8, [30, 0]), 2).verdict == "too_few_steps"
    # Four of four has one chance in eight for two ranks.
    found = judged(lines(4, 8, [30, 0]), 4)
    assert (found.verdict, found.p) == ("even", 2 / 2**4)


def test_one_large_hiccup_is_no_straggler() -> None:
    """Ranks take turns, once rank 0 is very late: a mean would blame it."""
    turns = [(1000 * s + 5 * (s % 2), 1000 * s + 5 * (1 - s % 2)) for s in range(8)]
    turns[3] = (3000 + 900, 3000)
    assert judged(turns, 8).verdict == "even"


def test_clocks_too_uncertain_to_name_anyone() -> None:
    """R31: rank 0 is 5 late, but ends scatter by 200 even after the clocks are put right."""
    scatter = [(0, 400 * (n % 2) - 200) for n in range(12)]
    late = [(10_000 * s + 5, 10_000 * s) for s in range(12)]
    known = all_steps(12, 10_000, clocks={1: 3_500_000})
    table, _ = match_collectives(meeting(late, 1000, clocks={1: 3_500_000}, jitter=scatter), known)
    (offset,) = clock_offsets(table)
    assert offset.uncertainty_ns >= 200
    (found,) = stragglers(table, [offset])
    assert found.verdict in ("even", "clocks")
    # The same lateness by the same clocks, were they sure, is a straggler.
    (sure,) = stragglers(match_collectives(meeting(late, 1000), all_steps(12, 10_000))[0], [_offset(0, 1)])
    assert sure.verdict == "straggler"
    (unsure,) = stragglers(match_collectives(meeting(late, 1000), all_steps(12, 10_000))[0], [_offset(0, 300)])
    assert unsure.verdict == "clocks"


def test_no_offset_no_name() -> None:
    table, _ = match_collectives(meeting(lines(8, 1, [30, 0])), all_steps(8, 1000))
    assert stragglers(table, [])[0].verdict == "clocks"


def test_who_waits_least_must_arrive_last() -> None:
    """Long kernels end on rank 0 before rank 1 is done, though both come together: nobody was waited for."""
    short = meeting([(1000 * s, 1000 * s) for s in range(8)], 40, name=CUSTOM)
    long = meeting(
        [(1000 * s + 200, 1000 * s + 200) for s in range(8)], 400, name=NCCL, jitter=[(0, 100)] * 8
    )  # fmt: skip
    table, _ = match_collectives(pd.concat([short, long]), all_steps(8, 1000))
    offsets = clock_offsets(table)
    assert abs(offsets[0].offset_ns) < 1, "by the short ones the clocks agree"
    (found,) = stragglers(table, offsets)
    assert (found.verdict, found.rank, found.lag_ns) == ("disagree", 0, 100)


def test_one_rank_has_no_straggler() -> None:
    assert stragglers(match_collectives(meeting([(4,)]), all_steps(1, 100, 1))[0], []) == []


def test_chance() -> None:
    assert sign_test(8, 8, 2) == 2 / 256
    assert sign_test(7, 8, 2) == pytest.approx(2 * 9 / 256)
    assert sign_test(4, 4, 4) == pytest.approx(4 / 4**4)
    assert sign_test(0, 5, 2) == 1.0
    assert sign_test(0, 0, 2) == 1.0


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60))
def test_the_interval_of_a_median(values: list[int]) -> None:
    low, high = median_interval(values)
    ordered = sorted(values)
    assert low in ordered and high in ordered
    assert low <= float(pd.Series(values).median()) <= high
    if len(values) < 6:
        assert (low, high) == (ordered[0], ordered[-1])


def test_known_intervals() -> None:
    """From the tables of order statistics: 2nd and 9th of 10, 6th and 15th of 20."""
    assert median_interval(list(range(1, 11))) == (2, 9)
    assert median_interval(list(range(1, 21))) == (6, 15)


def _offset(offset: float, uncertainty: float) -> ClockOffset:
    return ClockOffset(1, 0, offset, 0.0, uncertainty, -(10.0**9), 10.0**9, 12)
