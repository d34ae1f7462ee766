"""Interval arithmetic against a brute-force oracle that looks at every instant."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis import intervals as iv

small = st.tuples(st.integers(0, 30), st.integers(0, 12))  # start, duration
timeline = st.lists(small, max_size=14)
tiered = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2), st.integers(0, 3)), max_size=14)


def ends(rows: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([row[0] for row in rows], dtype=np.int64)
    return start, start + np.array([row[1] for row in rows], dtype=np.int64)


def instants(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {t for s, e in zip(start, end, strict=True) for t in range(s, e)}


def is_set(intervals: iv.Intervals) -> bool:
    start, end = intervals
    return bool(np.all(end > start) and np.all(start[1:] > end[:-1]))


def test_union_by_eye() -> None:
    start, end = iv.union([5, 0, 2, 20, 20], [7, 3, 5, 20, 21])
    assert start.tolist() == [0, 20]
    assert end.tolist() == [7, 21]
    assert iv.union_length([5, 0, 2, 20, 20], [7, 3, 5, 20, 21]) == 8


def test_nothing_is_zero() -> None:
    assert iv.union_length([], []) == 0
    assert iv.exclusive([], [], [])[3].sum() == 0
    assert [part.tolist() for part in iv.complement(iv.union([], []), 3, 9)] == [[3], [9]]


def test_exclusive_by_eye() -> None:
    # Tier 0 takes 10..20. Tier 1: the first has 0..15, so it keeps 0..10; the second 12..30 keeps 20..30.
    _, _, rows, lengths = iv.exclusive([0, 12, 10], [15, 30, 20], [1, 1, 0])
    given_to = np.bincount(rows, lengths, 3).tolist()
    assert given_to == [10, 10, 10]


def test_epoch_size_keeps_nanoseconds() -> None:
    base = 1_796_052_393_599_160_974
    assert iv.union_length([base, base + 1], [base + 1, base + 3]) == 3
    assert iv.covered([base], [base + 3], iv.union([base + 1], [base + 2])).tolist() == [1]


@given(timeline)
def test_union_covers_the_same_instants(rows: list[tuple[int, int]]) -> None:
    start, end = ends(rows)
    merged = iv.union(start, end)
    assert is_set(merged)
    assert instants(*merged) == instants(start, end)


@given(timeline, timeline)
def test_covered_counts_instants(rows: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    start, end = ends(rows)
    inside = iv.union(*ends(others))
    expected = [len(instants(inside[0], inside[1]) & set(range(s, e))) for s, e in zip(start, end, strict=True)]
    assert iv.covered(start, end, inside).tolist() == expected


@given(timeline, timeline)
def test_subtract_and_complement(rows: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    first, second = iv.union(*ends(rows)), iv.union(*ends(others))
    rest = iv.subtract(first, second)
    assert is_set(rest)
    assert instants(*rest) == instants(*first) - instants(*second)
    gaps = iv.complement(first, 5, 25)
    assert is_set(gaps)
    assert instants(*gaps) == set(range(5, 25)) - instants(*first)


@given(timeline, st.lists(st.integers(-2, 45), max_size=6))
def test_split_partitions_each_interval(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    start, end = ends(rows)
    piece_start, piece_end, of = iv.split(start, end, cuts)
    for row in range(len(rows)):
        mine = of == row
        assert piece_start[mine][0] == start[row]
        assert piece_end[mine][-1] == end[row]
        assert piece_start[mine][1:].tolist() == piece_end[mine][:-1].tolist()
    assert not any(s < cut < e for s, e in zip(piece_start, piece_end, strict=True) for cut in cuts)


@given(tiered, st.lists(st.integers(0, 45), max_size=4))
def test_exclusive_is_the_rule_at_every_instant(rows: list[tuple[int, int, int, int]], cuts: list[int]) -> None:
    start, end = ends(rows)
    tier = np.array([row[2] for row in rows], dtype=np.int64)
    key = np.array([row[3] for row in rows], dtype=np.int64)
    piece_start, piece_end, of, lengths = iv.exclusive(start, end, tier, cuts=cuts, keys=key)
    owner = {}
    for t in sorted(instants(start, end)):
        active = [i for i in range(len(rows)) if start[i] <= t < end[i]]
        owner[t] = min(active, key=lambda i: (tier[i], start[i], -end[i], key[i], i))
    for row in range(len(rows)):
        assert lengths[of == row].sum() == sum(1 for who in owner.values() if who == row)
    assert lengths.sum() == iv.union_length(start, end)
    assert np.all(lengths >= 0)
    assert np.all(lengths <= piece_end - piece_start)


@given(tiered, st.randoms())
def test_sums_by_key_do_not_depend_on_row_order(rows: list[tuple[int, int, int, int]], random: object) -> None:
    def by_key(given_rows: list[tuple[int, int, int, int]]) -> list[float]:
        start, end = ends(given_rows)
        keys = np.array([row[3] for row in given_rows], dtype=np.int64)
        _, _, of, lengths = iv.exclusive(start, end, [row[2] for row in given_rows], keys=keys)
        return np.bincount(keys[of], lengths, 4).tolist() if len(of) else [0, 0, 0, 0]

    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert by_key(rows) == by_key(shuffled)


def test_a_million_intervals_take_seconds() -> None:
    rng = np.random.default_rng(0)
    start = np.sort(rng.integers(0, 10**10, 10**6))
    end = start + rng.integers(0, 20_000, 10**6)
    began = time.perf_counter()
    _, _, _, lengths = iv.exclusive(start, end, rng.integers(0, 3, 10**6), cuts=start[:: 10**4])
    assert lengths.sum() == iv.union_length(start, end)
    assert time.perf_counter() - began < 20
