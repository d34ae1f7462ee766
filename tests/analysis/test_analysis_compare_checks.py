"""Whether two traces compare, and what is concluded where they do not."""

from dataclasses import replace
from typing import Any

import pytest
from compare_tables import DECODE, simple

from perflab.analysis.check import Check
from perflab.analysis.compare.checks import comparison_checks
from perflab.analysis.compare.differences import Differences, differences
from perflab.analysis.compare.findings import comparison_findings
from perflab.analysis.compare.traces import Alike, PhaseComparison, StepTime, View, compare_phases
from perflab.knowledge.thresholds import own_thresholds
from perflab.runs import Engine

NOTHING = Differences((), ())
QUANTIZED = differences({"quantization": None}, {"quantization": "fp8"})
EAGER = differences({"enforce_eager": True}, {"enforce_eager": False})
SEVERAL = differences({"quantization": None, "GPU": "A"}, {"quantization": "fp8", "GPU": "B"})


def phase(before: int, after: int, alike: Alike = "same", **times: Any) -> PhaseComparison:
    """Twelve decode steps of one request batch, a GEMM and idle time, as long as given."""
    count = 12
    one, other = (
        [("k", "gemm", 1000 * i, busy) for i in range(count)] for busy in (before, after)
    )  # fmt: skip
    sides = [simple(*rows, length=1000, counts=[DECODE] * count) for rows in (one, other)]
    (found,) = compare_phases(*sides)
    view = found.every
    table = view.categories.copy()
    table.loc[table["category"] == "idle", ["baseline_ns", "candidate_ns", "change_ns"]] = 0

    def step(time: StepTime, ns: int) -> StepTime:
        return replace(time, ns=ns, **times)

    made = View(step(view.baseline, before), step(view.candidate, after), table, view.causes, view.kernels)
    return replace(found, alike=alike, every=made, like=None if alike == "none" else made)


def checks(phases: list[PhaseComparison], found: Differences = NOTHING, **how: Any) -> dict[str, Check]:
    given = {"stacks": (False, False), "told": True, **how}
    return {check.check: check for check in comparison_checks(phases, found, **given)}


def finding(one: PhaseComparison, found: Differences = QUANTIZED, **how: Any) -> Any:
    all_checks = list(checks([one], found, **how).values())
    (only,) = comparison_findings([one], found, all_checks, Engine(), own_thresholds())
    return only


def test_stacks_on_one_side_withhold_the_verdict() -> None:
    one = phase(500, 400)
    assert checks([one], stacks=(True, False))["same_profiler"].status == "fail"
    assert finding(one, stacks=(True, False)).withheld
    assert checks([one], stacks=(True, True))["same_profiler"].status == "warn"
    assert not finding(one, stacks=(True, True)).withheld


def test_two_profilers_are_a_doubt() -> None:
    one = phase(500, 400)
    check = checks([one], profilers=("torch", "Nsight Systems"))["same_profiler"]
    assert check.status == "warn" and "Nsight Systems" in check.detail
    assert finding(one, profilers=("torch", "Nsight Systems")).confidence < finding(one).confidence


@pytest.mark.parametrize(
    ("found", "told", "status", "said"),
    [
        (NOTHING, True, "pass", "same engine twice"),
        (QUANTIZED, True, "pass", "`quantization` none → fp8"),
        (SEVERAL, True, "warn", "--varied"),
        (NOTHING, False, "warn", "not known"),
    ],
)
def test_one_difference_is_a_cause_and_several_are_none(found: Differences, told: bool, status: str, said: str) -> None:
    check = checks([phase(500, 400)], found, told=told)["one_difference"]
    assert (check.status, said in check.detail) == (status, True)


def test_the_load_is_told_apart_from_the_settings() -> None:
    found = differences(
        {"load: concurrency": 8, "quantization": None}, {"load: concurrency": 16, "quantization": "fp8"}
    )
    told = checks([phase(500, 400)], found)
    assert told["same_load"].status == "warn" and "concurrency" in told["same_load"].detail
    assert "concurrency" not in told["one_difference"].detail


def test_contexts_of_another_length_are_said() -> None:
    one = phase(500, 500)
    longer = replace(one.every, baseline=replace(one.every.baseline, kv_tokens=1000.0))
    longer = replace(longer, candidate=replace(longer.candidate, kv_tokens=2000.0))
    told = checks([replace(one, every=longer, like=longer)])
    assert told["same_contexts"].status == "warn"
    assert "same_contexts" not in checks([one])


def test_unlike_batches_withhold_and_give_times_per_token() -> None:
    one = phase(500, 400, alike="none")
    check = next(c for c in comparison_checks([one], NOTHING, stacks=(False, False), told=True) if c.status == "fail")
    assert check.check == "batches_alike" and "a token" in check.detail
    assert finding(one).withheld


@pytest.mark.parametrize(
    ("before", "after", "severity", "kind"),
    [
        (500, 400, "info", "step_time_changed"),
        (500, 505, "info", "step_time_same"),
        (500, 518, "info", "step_time_changed"),
        (500, 530, "warning", "step_time_changed"),
        (500, 650, "critical", "step_time_changed"),
    ],
)
def test_severity_grows_with_what_is_lost(before: int, after: int, severity: str, kind: str) -> None:
    found = finding(phase(before, after))
    assert (found.severity, found.id) == (severity, kind)
    assert found.impact["value"] == pytest.approx((after - before) / 1e6)


def test_late_launches_count_only_where_something_moves_the_host() -> None:
    one = phase(900, 500)
    late = replace(one.every, baseline=replace(one.every.baseline, late_ns=400))
    one = replace(one, every=late, like=late)
    assert one.shown.gpu_change == 0
    by_profiler = finding(one, QUANTIZED)
    assert by_profiler.id == "step_time_host" and "alone" in by_profiler.title
    by_graphs = finding(one, EAGER)
    assert by_graphs.id == "step_time_changed" and "44.4 % shorter" in by_graphs.title


def test_a_gain_hidden_by_late_launches_is_found() -> None:
    one = phase(500, 500)
    late = replace(one.every, candidate=replace(one.every.candidate, late_ns=100))
    found = finding(replace(one, every=late, like=late))
    assert found.id == "step_time_changed"
    assert found.title.startswith("What the GPU does in a decode step is 20.0 % shorter")
