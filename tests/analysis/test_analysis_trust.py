from dataclasses import replace

import analysis_tables as tables
import pandas as pd
import pytest

from perflab.analysis.breakdown import breakdown, cpu_breakdown
from perflab.analysis.checks import Check, TraceFacts, trace_checks, undermined
from perflab.analysis.steps import steps_from_ranges

DECODE = "execute_context_0(0)_generation_8(8)"
N = 200


def facts(rank: int = 0, world_size: int | None = 1) -> TraceFacts:
    """A sound trace: kernels one after the other, each launched before it starts, in four steps."""
    rows = [
        {"start": 10 * n, "dur": 9, "correlation_id": n, "category": "gemm", "rank": rank, "name": "nvjet"}
        for n in range(N)
    ]
    kernels = tables.kernels(*rows)
    launches = tables.launches(*({"id": n, "start": 10 * n - 5, "rank": rank} for n in range(N)))
    marks = tables.ranges(*(("device", 7, DECODE, 500 * n, 400, rank) for n in range(4)))
    steps = steps_from_ranges(marks, kernels, launches)
    return TraceFacts(rank, world_size, False, True, 0, kernels, launches, steps, breakdown(kernels, steps))


def with_kernels(trace: TraceFacts, kernels: pd.DataFrame) -> TraceFacts:
    return replace(trace, kernels=kernels, table=breakdown(kernels, trace.steps), has_gpu=bool(len(kernels)))


def by_name(traces: list[TraceFacts]) -> dict[str, Check]:
    return {check.check: check for check in trace_checks(traces, run="r")}


def test_a_sound_trace_passes() -> None:
    checks = by_name([facts()])
    assert {c.status for c in checks.values()} == {"pass", "not_applicable"}
    assert [c.check for c in checks.values() if c.status == "not_applicable"] == ["graph_replays"]
    assert all(c.source == "r" and c.detail for c in checks.values())
    assert checks["gpu_events"].to_json() == {
        "check": "gpu_events",
        "status": "pass",
        "detail": "200 kernels, copies and sets were recorded on the device.",
        "undermines": [],
        "source": "r",
    }


def test_no_gpu_events_is_not_an_idle_gpu() -> None:
    checks = by_name([with_kernels(facts(), tables.kernels())])
    found = checks["gpu_events"]
    assert found.status == "fail"
    assert "200 launch calls" in found.detail
    assert undermined([found], "breakdown") is found
    assert undermined([found], "latencies") is None
    assert checks["launches_matched"].status == checks["unknown_kernels"].status == "not_applicable"


def test_a_cpu_engine_has_no_gpu_to_miss() -> None:
    marks = tables.ranges(("host", 9, DECODE, 0, 100))
    ops = tables.kernels({"kind": "cpu_op", "stream": 9, "category": "gemm", "start": 0, "dur": 50})
    steps = steps_from_ranges(marks, ops)
    trace = TraceFacts(0, 1, False, False, 0, ops, tables.launches(), steps, cpu_breakdown(ops, marks))
    checks = by_name([trace])
    assert checks["gpu_events"].status == "not_applicable"
    assert checks["steps_found"].status == "pass"
    assert {c.status for c in checks.values()} <= {"pass", "not_applicable"}


def test_truncated_traces_are_named() -> None:
    found = by_name([replace(facts(), truncated=True, unreadable=3, notes=("ends early", "ends early"))])[
        "trace_complete"
    ]
    assert found.status == "warn"
    assert "1 of 1" in found.detail
    assert "3 events" in found.detail
    assert found.detail.count("ends early") == 1


@pytest.mark.parametrize(
    ("ranks", "world", "status", "said"),
    [
        ([0, 1], 2, "pass", "2 of 2"),
        ([0, 1, 5], 8, "warn", "3 of 8 ranks"),
        ([0, 0], 2, "fail", "rank 0"),
        ([0], None, "not_applicable", "do not say"),
    ],
)
def test_ranks(ranks: list[int], world: int | None, status: str, said: str) -> None:
    found = by_name([facts(rank, world) for rank in ranks])["ranks_present"]
    assert found.status == status
    assert said in found.detail


def test_an_assumed_rank_is_said() -> None:
    found = by_name([replace(facts(0, 2), rank_source="assumed"), facts(1, 2)])["ranks_present"]
    assert found.status == "warn"


def test_steps_that_are_missing_or_differ() -> None:
    none = replace(facts(), steps=facts().steps.iloc[:0])
    assert by_name([none])["steps_found"].status == "warn"
    fewer = replace(facts(1, 2), steps=facts(1).steps.iloc[:2])
    found = by_name([facts(0, 2), fewer])["steps_found"]
    assert (found.status, "from 2 to 4" in found.detail) == ("warn", True)


def test_calls_without_work_and_work_without_calls() -> None:
    sound = facts()
    few_lost = with_kernels(sound, sound.kernels.iloc[5:])
    assert by_name([few_lost])["launches_matched"].status == "warn"
    many_lost = by_name([with_kernels(sound, sound.kernels.iloc[100:])])["launches_matched"]
    assert many_lost.status == "fail"
    assert "100 of 200 launch calls" in many_lost.detail
    assert undermined([many_lost], "breakdown") is many_lost
    uncalled = by_name([replace(sound, launches=sound.launches.iloc[100:])])["launches_matched"]
    assert uncalled.status == "fail"
    assert undermined([uncalled], "breakdown") is None, "work without calls still adds up"
    others = tables.launches(
        {"id": 900, "start": 0, "api": "cudaStreamIsCapturing"}, {"id": 901, "start": 0, "api": "cudaLaunchHostFunc"}
    )
    assert by_name([replace(sound, launches=pd.concat([sound.launches, others]))])["launches_matched"].status == "pass"


def test_activities_before_their_launch() -> None:
    sound = facts()
    late = sound.launches.assign(start_ns=sound.launches["start_ns"].where(sound.launches.index >= 2, 100))
    assert by_name([replace(sound, launches=late)])["clocks_agree"].status == "warn"
    found = by_name([replace(sound, launches=sound.launches.assign(start_ns=sound.launches["start_ns"] + 6))])[
        "clocks_agree"
    ]
    assert found.status == "fail"
    assert "by up to 1 ns" in found.detail
    assert undermined([found], "causes of idle time") is found


def test_unknown_kernels_are_named() -> None:
    sound = facts()
    unknown = sound.kernels.assign(
        category=["other"] * 10 + ["gemm"] * (N - 10), name=["strange"] * 10 + ["nvjet"] * (N - 10)
    )
    found = by_name([with_kernels(sound, unknown)])["unknown_kernels"]
    assert (found.status, "`strange`" in found.detail, "5.0 %" in found.detail) == ("warn", True, True)
    assert by_name([with_kernels(sound, sound.kernels.assign(category="other"))])["unknown_kernels"].status == "fail"


def test_graph_replays_are_counted() -> None:
    sound = facts()
    found = by_name([with_kernels(sound, sound.kernels.assign(graph_id=[3] * 50 + [-1] * 150))])["graph_replays"]
    assert (found.status, "25.0 %" in found.detail) == ("pass", True)


def test_small_overlaps_are_normal_and_large_ones_are_not() -> None:
    sound = facts()
    assert by_name([with_kernels(sound, sound.kernels.assign(dur_ns=10))])["stream_overlap"].status == "pass"
    start = sound.kernels["start_ns"] * 1_000
    launched_early = sound.kernels.assign(start_ns=start, dur_ns=15_000)
    assert by_name([with_kernels(sound, launched_early)])["stream_overlap"].status == "pass", "5 us each, as with PDL"
    overrun = sound.kernels.assign(start_ns=start, dur_ns=16_000)
    assert by_name([with_kernels(sound, overrun)])["stream_overlap"].status == "warn"
    other_stream = overrun.assign(stream=[7, 8] * (N // 2))
    assert by_name([with_kernels(sound, other_stream)])["stream_overlap"].status == "pass"


def test_stacks_slow_the_host() -> None:
    found = by_name([replace(facts(), with_stack=True)])["profiler_overhead"]
    assert (found.status, found.undermines) == ("warn", ("causes of idle time",))


def test_front_end_traces_are_no_ranks() -> None:
    front = replace(facts(), kernels=tables.kernels(), has_gpu=False, is_frontend=True)
    assert {c.status for c in trace_checks([facts(), front])} == {"pass", "not_applicable"}
