from itertools import pairwise

import analysis_tables as tables
import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from perflab.analysis.breakdown import breakdown, cpu_breakdown, innermost, overlaps, self_times, summary
from perflab.analysis.kernels import operators
from perflab.schema import CATEGORIES, PHASES, validate


def share_of(table: pd.DataFrame, step: int = -1) -> dict[str, int]:
    rows = table[table["step"] == step]
    return dict(zip(rows["category"].astype(str), rows["exclusive_ns"].tolist(), strict=True))


def test_communication_is_exposed_communication() -> None:
    work = tables.kernels(
        {"category": "gemm", "stream": 7, "start": 0, "dur": 60},
        {"category": "communication", "stream": 20, "start": 40, "dur": 50},
        {"category": "memory", "kind": "memcpy", "stream": 30, "start": 80, "dur": 20},
    )
    table = breakdown(work, tables.steps())
    assert validate(table, "breakdown") is table
    assert share_of(table) == {"gemm": 60, "communication": 30, "memory": 10, "idle": 0}
    assert dict(zip(table["category"].astype(str), table["raw_ns"], strict=True))["communication"] == 50
    assert set(table["phase"]) == {"all"}


def test_two_streams_at_once_are_busy_once() -> None:
    work = tables.kernels(
        {"category": "gemm", "stream": 7, "start": 0, "dur": 100},
        {"category": "communication", "stream": 20, "start": 0, "dur": 100},
    )
    record = summary(breakdown(work, tables.steps()))[0]
    assert (record["window_ns"], record["busy_ns"], record["idle_ns"]) == (100, 100, 0)
    assert record["categories"]["communication"] == {"exclusive_ns": 0, "raw_ns": 100, "share": 0.0}


def test_a_copy_is_not_idle_time() -> None:
    work = tables.kernels(
        {"category": "gemm", "start": 0, "dur": 10},
        {"category": "memory", "kind": "memcpy", "start": 10, "dur": 80},
        {"category": "gemm", "start": 90, "dur": 10},
    )
    assert share_of(breakdown(work, tables.steps())) == {"gemm": 20, "memory": 80, "idle": 0}


def test_a_copy_made_by_a_kernel_ranks_with_kernels() -> None:
    work = tables.kernels(
        {"category": "memory", "start": 0, "dur": 10},
        {"category": "gemm", "start": 5, "dur": 10},
    )
    assert share_of(breakdown(work, tables.steps())) == {"memory": 10, "gemm": 5, "idle": 0}


def test_steps_are_cut_exactly() -> None:
    work = tables.kernels(
        {"category": "gemm", "start": 90, "dur": 30},  # 90..120, 10 of it before the first step
        {"category": "attention", "start": 140, "dur": 20},  # crosses into the second step at 150
        {"category": "sampling", "start": 170, "dur": 50},  # 20 of it after the last
    )
    table = breakdown(work, tables.steps(("prefill", 100, 50), ("decode", 150, 50)))
    assert share_of(table, 0) == {"gemm": 20, "attention": 10, "idle": 20}
    assert share_of(table, 1) == {"attention": 10, "sampling": 30, "idle": 10}
    np.testing.assert_allclose(table[table["step"] == 0]["share"].sum(), 1)
    phases = summary(table)[0]["phases"]
    assert (phases["prefill"]["steps"], phases["prefill"]["busy_ns"]) == (1, 30)
    assert (phases["mixed"]["steps"], phases["mixed"]["window_ns"]) == (0, 0)
    assert phases["mixed"]["categories"]["gemm"]["share"] is None
    decode = phases["decode"]
    assert (decode["categories"]["sampling"]["exclusive_ns"], decode["idle_ns"]) == (30, 10)


def test_ranks_are_apart_and_a_rank_without_work_is_absent() -> None:
    work = tables.kernels(
        {"category": "gemm", "start": 0, "dur": 10, "rank": 0}, {"category": "gemm", "start": 5, "dur": 10, "rank": 2}
    )
    table = breakdown(work, tables.steps(("decode", 0, 10, 0), ("decode", 0, 20, 1), ("decode", 0, 20, 2)))
    assert [(r["rank"], r["busy_ns"], r["window_ns"]) for r in summary(table)] == [(0, 10, 10), (2, 10, 20)]
    assert validate(breakdown(tables.kernels(), tables.steps()), "breakdown").empty
    assert summary(breakdown(tables.kernels(), tables.steps())) == []


def test_all_categories_and_phases_are_in_a_summary() -> None:
    record = summary(breakdown(tables.kernels({"category": "gemm", "start": 0, "dur": 1}), tables.steps()))[0]
    assert tuple(record["categories"]) == CATEGORIES
    assert tuple(record["phases"]) == PHASES
    assert record["kind"] == "gpu"


def test_overlaps_by_pair() -> None:
    work = tables.kernels(
        {"category": "gemm", "start": 0, "dur": 50},
        {"category": "gemm", "start": 45, "dur": 15},
        {"category": "communication", "start": 40, "dur": 40},
        {"category": "sampling", "start": 90, "dur": 5},
    )
    found = {(r.category, r.with_category): r.overlap_ns for r in overlaps(work, tables.steps()).itertuples()}
    assert found == {("gemm", "communication"): 20, ("gemm", "gemm"): 5}
    assert overlaps(work, tables.steps(("decode", 0, 42))).iloc[0]["overlap_ns"] == 2, "only inside the steps"


def test_self_times_leave_out_what_is_inside_and_keep_threads_apart() -> None:
    ops = tables.kernels(
        {"kind": "cpu_op", "stream": 9, "category": "attention", "start": 10, "dur": 50},
        {"kind": "cpu_op", "stream": 9, "category": "kv_cache", "start": 15, "dur": 10},
        {"kind": "cpu_op", "stream": 9, "category": "memory", "start": 15, "dur": 4},
        {"kind": "cpu_op", "stream": 8, "category": "gemm", "start": 0, "dur": 100},
    )
    own = self_times(ops)
    assert dict(zip(own["category"].astype(str), own["dur_ns"], strict=True)) == {
        "attention": 40, "kv_cache": 6, "memory": 4, "gemm": 100,
    }  # fmt: skip
    assert int(ops["dur_ns"].sum()) == 164, "the argument is as it was"


def test_cpu_operators_count_their_self_time() -> None:
    marks = tables.ranges(("host", 9, "execute_context_0(0)_generation_2(2)", 0, 100))
    ops = tables.kernels(
        {"kind": "cpu_op", "stream": 9, "category": "attention", "start": 10, "dur": 50},  # wrapper
        {"kind": "cpu_op", "stream": 9, "category": "kv_cache", "start": 15, "dur": 10},
        {"kind": "cpu_op", "stream": 9, "category": "attention", "start": 30, "dur": 20},
        {"kind": "cpu_op", "stream": 9, "category": "memory", "start": 35, "dur": 5},  # inside the inside
        {"kind": "cpu_op", "stream": 8, "category": "gemm", "start": 0, "dur": 100},  # another thread
        {"kind": "cpu_op", "stream": 9, "category": "gemm", "start": 60, "dur": 30},
    )
    table = cpu_breakdown(ops, marks)
    assert validate(table, "breakdown") is table
    assert share_of(table, 0) == {"attention": 35, "gemm": 30, "kv_cache": 10, "memory": 5, "idle": 20}
    assert set(table["kind"]) == {"cpu"}
    assert summary(table)[0]["kind"] == "cpu"
    assert cpu_breakdown(ops, tables.ranges()).empty


def test_operators_as_read_are_categorised() -> None:
    marks = tables.ranges(("host", 9, "execute_context_0(0)_generation_2(2)", 100, 50))
    ops = pd.DataFrame(
        {
            "rank": 0,
            "process": 3,
            "thread": 9,
            "name": ["_C::onednn_mm", "?"],
            "start_ns": [110, 130],
            "dur_ns": [15, 5],
        }
    )
    table = cpu_breakdown(ops, marks)
    assert share_of(table, 0) == {"gemm": 15, "other": 5, "idle": 30}
    assert validate(operators(ops), "kernels")["stream"].tolist() == [9, 9]


nested = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12)


@given(nested)
def test_innermost_gives_each_instant_to_the_latest_start_of_nested_intervals(rows: list[tuple[int, int]]) -> None:
    # Made properly nested: each interval ends where the one it begins in ends, at the latest.
    placed: list[tuple[int, int]] = []
    for start, duration in sorted(rows, key=lambda row: (row[0], -row[1])):
        end = start + duration
        for s, e in placed:
            if s <= start < e:
                end = min(end, e)
        placed.append((start, end))
    start = np.array([row[0] for row in placed], dtype=np.int64)
    end = np.array([row[1] for row in placed], dtype=np.int64)
    piece_start, piece_end, of = innermost(start, end)
    owner = {t: row for s, e, row in zip(piece_start, piece_end, of, strict=True) for t in range(s, e)}
    assert len(owner) == int((piece_end - piece_start).sum()), "pieces are disjoint"
    for t in range(70):
        active = [i for i in range(len(placed)) if start[i] <= t < end[i]]
        if not active:
            assert t not in owner
        else:
            best = max(start[i] for i in active)
            assert start[owner[t]] == best


kernel = st.tuples(
    st.integers(0, 60), st.integers(0, 25), st.sampled_from(["gemm", "communication", "memory"]), st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(kernel, min_size=1, max_size=15), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.randoms())
def test_the_breakdown_is_a_partition_of_the_steps(
    rows: list[tuple[int, int, str, bool]], durations: list[int], random: object
) -> None:
    work = [{"start": s, "dur": d, "category": c, "kind": "memcpy" if copy else "kernel"} for s, d, c, copy in rows]
    edges = np.cumsum([5, *durations])
    windows = tables.steps(*(("decode", int(a), int(b - a)) for a, b in pairwise(edges)))
    table = breakdown(tables.kernels(*work), windows)
    sums = table.groupby("step")["exclusive_ns"].sum()
    assert sums.tolist() == durations
    assert (table["exclusive_ns"] >= 0).all()
    busy_instants = {t for s, d, _, _ in rows for t in range(s, s + d)}
    idle = table[table["category"] == "idle"]["exclusive_ns"].tolist()
    assert idle == [sum(t not in busy_instants for t in range(a, b)) for a, b in pairwise(edges)]
    random.shuffle(work)  # type: ignore[attr-defined]
    pd.testing.assert_frame_equal(table, breakdown(tables.kernels(*work), windows))
