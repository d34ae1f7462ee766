"""Sums by column against counting one by one: nothing is lost or rounded at any zoom."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from explorer import brute
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.breakdown import breakdown as breakdown_table
from perflab.explorer.pictures import MOST_BARS, edges_of, picture
from perflab.explorer.rank_times import CODES, RankTimes
from perflab.explorer.sources import entries, read_pass
from perflab.explorer.spans import span_sums
from perflab.explorer.sums import TimeSums
from perflab.tasks.breakdown import breakdown

INTERVALS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.integers(0, 3)), max_size=30)
EDGES = st.lists(st.integers(-10, 200), min_size=2, max_size=12).map(lambda some: sorted(set(some)))


@given(INTERVALS, EDGES, st.sampled_from([0, 10**15, -(10**15)]))
def test_sums_equal_counting_each_interval(some: list[tuple[int, int, int]], edges: list[int], far: int) -> None:
    start, dur, code = (np.array([one[at] for one in some], dtype=np.int64) for at in range(3))
    sums = TimeSums.of(start + far, start + dur + far, code, 4)
    ns, counts = sums.between(np.array(edges) + far)
    assert ns.shape == counts.shape == (len(edges) - 1, 4)
    for row, (low, high) in enumerate(pairwise(edges)):
        for which in range(4):
            mine = [(b, b + d) for b, d, c in some if c == which]
            assert ns[row, which] == sum(max(min(e, high) - max(b, low), 0) for b, e in mine)
            begun = sum(low <= b < high for b, _ in mine)
            before = sum(b < low < e for b, e in mine) if row == 0 else 0
            assert counts[row, which] == begun + before


def test_products_beyond_64_bits_still_give_exact_sums() -> None:
    start = np.arange(200_000, dtype=np.int64) * 1000 + 10**16
    sums = TimeSums.of(start, start + 7, np.zeros(len(start)), 1)
    assert len(start) * int(start[-1]) > 1 << 70
    assert sums.total(10**16, 10**16 + 10**9) == [7 * 200_000]
    assert sums.total(10**16 + 3, 10**16 + 5000) == [4 + 4 * 7]


@pytest.fixture(scope="module")
def two_ranks() -> tuple[RankTimes, ...]:
    return read_pass(breakdown("llama3-8b-tp2-custom", attribution=False).passes[0]).ranks


@pytest.mark.parametrize("part", [1.0, 0.31, 0.05])
def test_every_picture_of_a_recorded_run_holds_all_its_time(two_ranks: tuple[RankTimes, ...], part: float) -> None:
    for times in two_ranks:
        low, high = times.window
        start = low + int((high - low) * (1 - part) / 2)
        end = start + int((high - low) * part)
        bars, columns = picture(times.lanes, start, end, 333)
        assert {one.lane for one in bars if not one.only_named} | {one.lane for one in columns} == set(
            range(len(times.lanes))
        )
        assert part < 1 or columns, "the whole run has more kernels than are drawn one by one"
        for one in columns:
            lane = times.lanes[one.lane]
            sums = {CODES[c]: int(one.ns[one.code == c].sum()) for c in np.unique(one.code)}
            assert {name: ns for name, ns in sums.items() if ns} == brute.time_by_code(lane, start, end)
            assert one.count.sum() == brute.running(lane, start, end) > MOST_BARS
        for bar in (one for one in bars if not one.only_named):
            lane = times.lanes[bar.lane]
            assert len(bar.start) == brute.running(lane, start, end) <= MOST_BARS
            assert (lane.end[np.isin(lane.row, bar.row)] >= start).all()


def test_columns_of_a_picture_cover_it_without_gaps() -> None:
    edges = edges_of(-5, 1_000_003, 7)
    assert edges[0] == -5 and edges[-1] == 1_000_003 and len(edges) == 8 and (np.diff(edges) > 0).all()


def test_a_step_marked_is_the_step_of_the_breakdown(two_ranks: tuple[RankTimes, ...]) -> None:
    for times in two_ranks:
        table = breakdown_table(times.rank.kernels, times.rank.steps)
        for step in times.steps.itertuples():
            (found,) = span_sums([times], int(step.start_ns), int(step.start_ns + step.dur_ns))
            rows = table[table["step"] == step.step].set_index("category")["exclusive_ns"]
            wanted = {str(name): int(ns) for name, ns in rows.items() if ns and name != "idle"}
            assert found.categories == wanted and found.idle_ns == rows["idle"]
            assert found.busy_ns + found.idle_ns == found.ns == step.dur_ns


@given(st.data())
def test_marked_stretches_add_up(two_ranks: tuple[RankTimes, ...], data: st.DataObject) -> None:
    times = two_ranks[data.draw(st.integers(0, 1))]
    low, high = times.window
    cuts = sorted({low, high, *data.draw(st.lists(st.integers(low, high), max_size=5))})
    parts = [span_sums([times], a, b)[0] for a, b in pairwise(cuts)]
    (whole,) = span_sums([times], low, high)
    for name in whole.categories:
        assert sum(part.categories.get(name, 0) for part in parts) == whole.categories[name]
    assert sum(part.idle_ns for part in parts) == whole.idle_ns >= 0


def test_exclusive_time_goes_to_computing_kernels_first() -> None:
    """Communication under a GEMM is hidden, and a copy under both: by eye, then as the arrays have it."""
    from analysis.analysis_tables import kernels, steps

    table = kernels(
        {"start": 0, "dur": 100, "category": "communication"},
        {"start": 20, "dur": 50, "category": "gemm", "stream": 8},
        {"start": 60, "dur": 60, "category": "memory", "kind": "memcpy", "stream": 9},
    )  # fmt: skip
    times = made(table, steps(("decode", 0, 130)))
    (all_of_it,) = span_sums([times], 0, 130)
    assert all_of_it.categories == {"communication": 50, "gemm": 50, "memory": 20} and all_of_it.idle_ns == 10
    (part,) = span_sums([times], 65, 75)
    assert part.categories == {"gemm": 5, "communication": 5} and part.count == 3


def made(table: Any, steps: Any) -> RankTimes:
    from explorer.made import rank_of

    from perflab.explorer.rank_times import rank_times

    return rank_times(rank_of(table, steps), 0)


def test_a_run_named_twice_is_told_apart() -> None:
    names = [entry.name for entry in entries(["llama3-8b-bf16", "llama3-8b-bf16"])]
    assert names == ["llama3-8b-bf16", "llama3-8b-bf16 #2"]
