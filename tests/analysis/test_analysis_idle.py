from itertools import pairwise

import analysis_tables as tables
import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from perflab.analysis.breakdown import breakdown
from perflab.analysis.idle import CAUSES, idle_gaps, idle_summary

DUMMY = "execute_context_0(0)_generation_0(0)"


def told(gaps: pd.DataFrame) -> list[tuple[int, int, str, str]]:
    return [(r.start_ns, r.dur_ns, r.place, r.cause) for r in gaps.itertuples()]


def test_causes_by_eye() -> None:
    work = tables.kernels(
        {"start": 0, "dur": 10, "correlation_id": 1},
        {"start": 20, "dur": 10, "correlation_id": 2},  # its call began at 15, after 10: host-bound
        {"start": 35, "dur": 5, "correlation_id": 3},  # called for long before: queued, started late
        {"start": 45, "dur": 5, "correlation_id": 4, "graph_id": 4},  # first of a replay, call returned at 42
        {"start": 52, "dur": 8, "correlation_id": 4, "graph_id": 4},  # inside the replay
        {"start": 70, "dur": 5, "correlation_id": 99},  # no call recorded
    )
    calls = tables.launches(
        {"id": 1, "start": 0},
        {"id": 2, "start": 15, "dur": 4},
        {"id": 3, "start": 16, "dur": 4},
        {"id": 4, "start": 38, "dur": 4, "api": "cudaGraphLaunch"},
    )
    gaps = idle_gaps(work, tables.steps(("decode", 0, 75)), calls)
    assert told(gaps) == [
        (10, 10, "within_steps", "host_bound"),
        (30, 5, "within_steps", "not_started"),
        (40, 5, "within_steps", "host_bound"),  # the graph's call was still under way when the device ran dry
        (50, 2, "within_steps", "in_graph"),
        (60, 10, "within_steps", "unknown"),
    ]
    summed = idle_summary(gaps)[0]
    assert summed["causes"] == {"host_bound": 15, "not_started": 5, "in_graph": 2, "no_request": 0, "unknown": 10}
    assert (summed["between_steps_ns"], summed["within_steps_ns"], summed["outside_ns"]) == (0, 32, 0)
    assert summed["phases"]["decode"]["causes"]["host_bound"] == 15
    assert summed["phases"]["prefill"]["within_steps_ns"] == 0


def test_without_launches_only_replays_are_known() -> None:
    work = tables.kernels(
        {"start": 0, "dur": 5, "correlation_id": 4, "graph_id": 4},
        {"start": 8, "dur": 5, "correlation_id": 4, "graph_id": 4},
        {"start": 20, "dur": 5, "correlation_id": 5},
    )
    assert [row[3] for row in told(idle_gaps(work, tables.steps()))] == ["in_graph", "unknown"]


def test_a_blocking_copy_that_was_called_early_is_not_the_hosts_fault() -> None:
    work = tables.kernels(
        {"start": 0, "dur": 10, "correlation_id": 1},
        {"start": 12, "dur": 10, "correlation_id": 2, "kind": "memcpy"},
    )
    calls = tables.launches({"id": 1, "start": 0}, {"id": 2, "start": 5, "dur": 20})
    assert told(idle_gaps(work, tables.steps(), calls)) == [(10, 2, "within_steps", "not_started")]


def test_a_gap_over_a_steps_start_is_between_steps_and_cut_there() -> None:
    work = tables.kernels({"start": 0, "dur": 10}, {"start": 31, "dur": 9}, {"start": 45, "dur": 5})
    gaps = idle_gaps(work, tables.steps(("prefill", 0, 30), ("decode", 30, 20)))
    assert [(r.step, r.phase, r.dur_ns, r.place) for r in gaps.itertuples()] == [
        (0, "prefill", 20, "between_steps"),
        (1, "decode", 1, "between_steps"),
        (1, "decode", 5, "within_steps"),
    ]


def test_before_and_after_the_steps_is_apart() -> None:
    # Traces begin and end with profiler work: 300 ms of nothing before the first step is no idle of the engine.
    work = tables.kernels(
        {"start": 0, "dur": 1}, {"start": 301, "dur": 9}, {"start": 311, "dur": 9}, {"start": 400, "dur": 5}
    )
    marks = tables.ranges(("host", 1, DUMMY, 500, 10))
    summed = idle_summary(idle_gaps(work, tables.steps(("decode", 301, 19)), tables.launches(), marks))[0]
    assert (summed["outside_ns"], summed["within_steps_ns"]) == (300 + 80 + 105, 1)
    assert sum(summed["causes"].values()) == 1


def test_an_empty_step_meanwhile_means_no_request() -> None:
    work = tables.kernels(
        {"start": 0, "dur": 10, "correlation_id": 1},
        {"start": 1000, "dur": 10, "correlation_id": 2},
        {"start": 2000, "dur": 10, "correlation_id": 3},
    )
    calls = tables.launches({"id": 1, "start": 0}, {"id": 2, "start": 990}, {"id": 3, "start": 1990})
    marks = tables.ranges(("host", 1, DUMMY, 20, 5))
    assert [row[3] for row in told(idle_gaps(work, tables.steps(), calls, marks))] == ["no_request", "host_bound"]


def test_nothing_recorded_gives_nothing() -> None:
    assert idle_gaps(tables.kernels(), tables.steps(), tables.launches(), tables.ranges()).empty
    assert idle_summary(idle_gaps(tables.kernels(), tables.steps())) == {}


activity = st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5), st.booleans())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(activity, min_size=1, max_size=12),
    st.lists(st.integers(1, 20), max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=5),
)
def test_places_and_causes_sum_to_the_idle_of_the_breakdown(
    rows: list[tuple[int, int, int, bool]], durations: list[int], calls: list[tuple[int, int]]
) -> None:
    work = tables.kernels(
        *({"start": s, "dur": d, "correlation_id": c, "graph_id": c if g else -1} for s, d, c, g in rows)
    )
    edges = np.cumsum([5, *durations])
    windows = tables.steps(*(("decode", int(a), int(b - a)) for a, b in pairwise(edges)))
    gaps = idle_gaps(work, windows, tables.launches(*({"id": c, "start": s} for c, s in calls)), tables.ranges())
    table = breakdown(work, windows)
    idle = table[table["category"] == "idle"].set_index("step")["exclusive_ns"]
    inside = gaps[gaps["place"] != "outside"]
    by_step = inside.groupby("step")["dur_ns"].sum().reindex(idle.index, fill_value=0)
    assert by_step.tolist() == idle.tolist()
    summed = idle_summary(gaps).get(0)
    if summed is None:
        assert idle.sum() == 0
    else:
        assert sum(summed["causes"].values()) == summed["between_steps_ns"] + summed["within_steps_ns"] == idle.sum()
        assert set(summed["causes"]) == set(CAUSES)
