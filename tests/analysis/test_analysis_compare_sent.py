"""Was the same sent to both sides? Records made by hand, one fact changed at a time."""

from typing import Any

import pytest

from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.compare.metrics import METRICS as ALL
from perflab.analysis.compare.metrics import Measured, comparison_rows, server_values, shared_points
from perflab.analysis.compare.sent import BURSTINESS, CLIENT, HITS, OUTPUT, PROMPT, REQUESTS_SENT, sent_checks
from perflab.knowledge.thresholds import own_thresholds

SENT = {PROMPT: 512.0, OUTPUT: 128.0, REQUESTS_SENT: 64, CLIENT: "vllm bench", HITS: 0.0}
MINUTE = 60_000_000_000


def side(
    tpots: list[float], *, starts: list[int] | None = None, point: str = "512/128 c8", **sent: Any
) -> list[Measured]:
    return [
        Measured(
            f"run{i}", point, {"tpot_ms": {"p50": tpot, "n": 64}}, None if starts is None else starts[i] * MINUTE,
            sent=SENT | sent, digest=f"{tpot}-{i}-{sent}",
        )
        for i, tpot in enumerate(tpots)
    ]  # fmt: skip


VALUES = [10.0, 10.1, 9.9, 10.05, 9.95]
MORE = [value + 0.003 for value in VALUES]
FACTORS = {"tpot": 1, "ttft": 9, "e2el": 99}


def checks(baseline: list[Measured], candidate: list[Measured]) -> dict[str, Check]:
    found = sent_checks(baseline, candidate, own_thresholds(), point="512/128 c8", metric="tpot_p50_ms")
    return {check.check: check for check in found}


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({HITS: 0.35}, "same_prefix_hits"),
        ({PROMPT: 530.0}, "same_load"),
        ({OUTPUT: 100.0}, "same_load"),
        ({BURSTINESS: 0.1}, None),  # told by one side only: not known to differ
        ({CLIENT: "guidellm"}, "same_client"),
        ({HITS: 0.005, PROMPT: 515.0}, None),  # within what is taken for alike
    ],
)
def test_another_load_withholds_every_verdict_and_a_small_difference_does_not(
    changed: dict[str, Any], check: str | None
) -> None:
    before, after = side(VALUES), side(MORE, **changed)
    found = checks(before, after)
    failed = {name for name, one in found.items() if one.status == "fail"}
    assert failed == ({check} if check else set())
    row = comparison_rows(before, after, list(found.values()), own_thresholds())[0]
    assert row.verdict == ("withheld" if check else "same")


def test_one_point_that_differs_leaves_the_others_alone() -> None:
    before = side(VALUES) + side(VALUES, point="512/128 c32")
    after = side(MORE) + side(MORE, point="512/128 c32", **{HITS: 0.4})
    found = sent_checks(before, after, own_thresholds())
    rows = comparison_rows(before, after, found, own_thresholds())
    assert {row.point: row.verdict for row in rows} == {"512/128 c8": "same", "512/128 c32": "withheld"}


@pytest.mark.parametrize(
    ("first", "second", "status", "order"),
    [
        ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9], "pass", "BCBCBCBCBC"),
        ([0, 3, 4, 7, 8], [1, 2, 5, 6, 9], "pass", "BCCBBCCBBC"),
        ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9], "warn", "BBBBBCCCCC"),
        ([0, 1, 2, 8, 9], [3, 4, 5, 6, 7], "warn", "BBBCCCCCBB"),
    ],
)
def test_turns(first: list[int], second: list[int], status: str, order: str) -> None:
    found = checks(side(VALUES, starts=first), side(MORE, starts=second))["interleaved"]
    assert found.status == status and order in found.detail


def test_unknown_or_equal_times_tell_no_order() -> None:
    assert checks(side(VALUES), side(MORE))["interleaved"].status == "not_applicable"
    same = [0] * 5
    assert checks(side(VALUES, starts=same), side(MORE, starts=same))["interleaved"].status == "not_applicable"


def test_a_drift_shared_by_turns_is_a_warning_and_after_one_another_a_failure() -> None:
    rising, later = [10.0, 10.2, 10.4, 10.6, 10.8], [10.1, 10.3, 10.5, 10.7, 10.9]
    turns = checks(side(rising, starts=[0, 2, 4, 6, 8]), side(later, starts=[1, 3, 5, 7, 9]))
    assert turns["drift"].status == "warn" and "rises" in turns["drift"].detail
    blocks = checks(side(rising, starts=[0, 1, 2, 3, 4]), side(later, starts=[5, 6, 7, 8, 9]))
    assert blocks["drift"].status == "fail"
    falling = checks(side(rising[::-1], starts=[0, 1, 2, 3, 4]), side(later[::-1], starts=[5, 6, 7, 8, 9]))
    assert "falls" in falling["drift"].detail


def test_repeats_of_a_server_are_one_geometric_mean() -> None:
    tpot = next(metric for metric in ALL if metric.name == "tpot_p50_ms")
    repeats = [
        Measured("one", "p", {"tpot_ms": {"p50": value}}) for value in (4.0, 9.0)
    ] + [Measured("two", "p", {"tpot_ms": {"p50": 5.0}}), Measured("three", "p", {"tpot_ms": None})]  # fmt: skip
    assert server_values(repeats, tpot) == {"one": pytest.approx(6.0), "two": pytest.approx(5.0)}


def test_points_come_by_load() -> None:
    loads = ["512/128 c256", "512/128 r8", "512/128 c32", "512/128 c4"]
    measured = [one for load in loads for one in side([1.0], point=load)]
    assert shared_points(measured, measured[:3]) == ["512/128 c32", "512/128 c256", "512/128 r8"]


@pytest.mark.parametrize(
    ("undermined", "withheld"),
    [
        (of.TPOT, {"tpot_p50_ms"}),
        (of.TTFT, {"ttft_p50_ms", "e2el_p50_ms"}),
        (of.THROUGHPUT, {"output_tokens_per_s"}),
        (of.LATENCY, {"tpot_p50_ms", "ttft_p50_ms", "e2el_p50_ms"}),
        (of.LOAD, {"tpot_p50_ms", "ttft_p50_ms", "e2el_p50_ms", "output_tokens_per_s"}),
        (of.PEAK, set()),
    ],
)
def test_a_failed_check_of_one_run_withholds_what_it_undermines_and_no_more(
    undermined: str, withheld: set[str]
) -> None:
    def measured(values: list[float], bad: bool) -> list[Measured]:
        check = Check("impossible", "fail" if bad else "pass", "cannot be", (undermined,))
        found = []
        for i, value in enumerate(values):
            latencies = {f"{name}_ms": {"p50": value * factor, "n": 64} for name, factor in FACTORS.items()}
            metrics = {**latencies, "output_tokens_per_s": 1e4 / value}
            found.append(Measured(f"run{i}", "c8", metrics, checks=(check,) if i == 3 else ()))
        return found

    rows = comparison_rows(measured(VALUES, False), measured(MORE, True), [], own_thresholds())
    assert {row.metric.name for row in rows if row.verdict == "withheld"} == withheld
    assert all(row.verdict == "same" for row in rows if row.metric.name not in withheld)
    assert all("run3: cannot be" in row.reason for row in rows if row.verdict == "withheld")
