"""Checks of the client, the machine and the figures themselves."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perflab.analysis.checks import BenchFacts, Check, bench_checks
from perflab.analysis.latency import latency_metrics
from perflab.analysis.token_times import implied_concurrency, with_token_times
from perflab.analysis.validity import MachineView, machine_view
from perflab.knowledge.throttle_reasons import POWER_CAP, throttle_reasons
from perflab.schema import conform

MS = 1_000_000
SECOND = 1000 * MS
FIRST = "time to first token"
EMPTY = BenchFacts(completed=None, failed=None)


def named(facts: BenchFacts, name: str) -> Check:
    return next(check for check in bench_checks(facts) if check.check == name)


def requests(arrivals_s: list[float], tokens: int = 5) -> pd.DataFrame:
    at = [round(when * SECOND) for when in arrivals_s]
    frame = pd.DataFrame({
        "request_id": range(len(at)), "arrival_ns": at, "first_token_ns": [t + 50 * MS for t in at],
        "finish_ns": [t + 250 * MS for t in at], "prompt_tokens": 8, "output_tokens": tokens, "status": "ok",
    })  # fmt: skip
    return conform(frame, "requests")


def chunks(table: pd.DataFrame, gaps_ms: list[float]) -> pd.DataFrame:
    """For each request the first token, then these gaps."""
    offsets = np.cumsum([0.0, *gaps_ms]) * MS
    rows = [
        (row.request_id, n, int(row.first_token_ns + offset), 1)
        for row in table.itertuples()
        for n, offset in enumerate(offsets)
    ]
    return conform(pd.DataFrame(rows, columns=["request_id", "chunk_index", "arrival_ns", "token_count"]), "chunks")


@pytest.mark.parametrize(("burstiness", "status", "said"), [
    (1.0, "pass", "Poisson"), (0.25, "warn", "2.0 times their mean"), (4.0, "warn", "more evenly"),
])  # fmt: skip
def test_burstiness_as_asked_for(burstiness: float, status: str, said: str) -> None:
    found = named(replace(EMPTY, rate=2.0, burstiness=burstiness), "bursts")
    assert (found.status, said in found.detail) == (status, True)


def test_constant_arrivals_are_no_traffic() -> None:
    found = named(replace(EMPTY, rate=2.0, arrivals="constant", burstiness=None), "bursts")
    assert (found.status, found.undermines) == ("warn", ("the load",))


def test_poisson_arrivals_pass_and_bursts_do_not() -> None:
    rng = np.random.default_rng(1)
    poisson = list(np.cumsum(rng.exponential(0.5, 200)))
    bursts = list(np.cumsum(rng.gamma(0.1, 5.0, 200)))
    assert named(replace(EMPTY, rate=2.0, requests=requests(poisson)), "bursts").status == "pass"
    assert named(replace(EMPTY, rate=2.0, requests=requests(bursts)), "bursts").status == "warn"
    assert named(replace(EMPTY, rate=2.0, requests=requests(bursts[:20])), "bursts").status == "not_applicable"
    assert named(replace(EMPTY, requests=requests(bursts)), "bursts").status == "not_applicable", (
        "no rate was asked for"
    )


@pytest.mark.parametrize(("delay", "cpu", "status"), [
    (None, None, "not_applicable"), (0.002, None, "pass"), (0.5, None, "warn"), (None, 40.0, "pass"),
    (None, 97.0, "warn"), (0.002, 97.0, "warn"),
])  # fmt: skip
def test_a_client_at_its_limit(delay: float | None, cpu: float | None, status: str) -> None:
    facts = replace(EMPTY, schedule_delay_s=delay, machine=MachineView(client_cpu_percent=cpu))
    assert named(facts, "client_saturated").status == status


@pytest.mark.parametrize(("low", "reasons", "status"), [
    (1980.0, (), "pass"), (1800.0, (), "pass"), (1500.0, ("power cap",), "pass"), (1500.0, (), "warn"),
    (1500.0, ("power cap", "heat (hardware)"), "warn"), (None, (), "not_applicable"),
])  # fmt: skip
def test_clocks(low: float | None, reasons: tuple[str, ...], status: str) -> None:
    """A GPU at its power limit works as it does under this load; one held down by heat does not."""
    found = named(replace(EMPTY, machine=MachineView(None, low, 1980.0, reasons)), "clocks")
    assert found.status == status
    assert all(reason in found.detail or status == "pass" for reason in reasons)


def telemetry(clock: list[float], busy: list[float], reasons: int, gpu: int = 0) -> list[tuple[int, str, str, float]]:
    rows = []
    for n, (mhz, percent) in enumerate(zip(clock, busy, strict=True)):
        for metric, value in (
            ("gpu_sm_clock_mhz", mhz),
            ("gpu_utilization_percent", percent),
            ("gpu_throttle_reasons", reasons),
        ):
            rows.append((n * SECOND, metric, f"gpu={gpu}", float(value)))
    return rows


def test_the_machine_during_a_point() -> None:
    """Idle clocks do not count, nor what lies outside the window; the slower GPU decides."""
    busy, idle = [100.0] * 20, [0.0] * 5
    rows = telemetry([1980.0] * 20 + [345.0] * 5, busy + idle, 0)
    rows += telemetry([1980.0] * 10 + [1400.0] * 10 + [345.0] * 5, busy + idle, 0x40, gpu=1)
    rows += [(n * SECOND, "client_cpu_percent", "", 30.0) for n in range(20)]
    samples = pd.DataFrame(rows, columns=["t_ns", "metric", "labels", "value"])
    view = machine_view(samples, 0, 30 * SECOND)
    assert (view.low_clock_mhz, view.high_clock_mhz, view.client_cpu_percent) == (1400.0, 1980.0, 30.0)
    assert view.throttled_by == (throttle_reasons()[0x40],)
    early = machine_view(samples, 0, 9 * SECOND)
    assert (early.low_clock_mhz, early.high_clock_mhz) == (1980.0, 1980.0)
    assert machine_view(samples, 0, 2 * SECOND).low_clock_mhz is None, "three samples are too few"
    assert machine_view(samples.iloc[:0], 0, SECOND) == MachineView()
    assert POWER_CAP in throttle_reasons()


def figures(**more: object) -> BenchFacts:
    metrics: dict[str, object] = dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"))
    sound = replace(EMPTY, completed=100, failed=0, duration_s=50.0, total_output_tokens=5000)
    return replace(sound, metrics=metrics | more)  # type: ignore[arg-type]


def test_sound_figures_are_possible() -> None:
    facts = figures(
        ttft_ms={"mean": 50.0, "p50": 40.0, "p99": 90.0}, e2el_ms={"mean": 500.0}, output_tokens_per_s=100.0
    )
    reported = {"request_throughput": 2.0, "output_throughput": 100.0, "max_output_tokens_per_s": 120.0}
    assert named(replace(facts, reported=reported), "possible").status == "pass"


@pytest.mark.parametrize(("metrics", "reported", "said", "undermined"), [
    ({"tpot_ms": {"mean": -0.5}}, {}, "TPOT mean is -0.50 ms", "time per output token"),
    ({"ttft_ms": {"p50": 90.0, "p99": 50.0}}, {}, "TTFT p50 (90.00 ms) is above TTFT p99 (50.00 ms)", FIRST),
    ({"ttft_ms": {"mean": 600.0}, "e2el_ms": {"mean": 500.0}}, {}, "TTFT mean (600.00 ms) is above E2EL mean", FIRST),
    ({"output_tokens_per_s": 100.0}, {"max_output_tokens_per_s": 60.0}, "peak output rate (60.0", "peak throughput"),
    ({}, {"output_throughput": 300.0}, "5,000 in 50.0 s are 100.00", "throughput"),
    ({}, {"request_throughput": 3.0}, "100 in 50.0 s are 2.00", "throughput"),
])  # fmt: skip
def test_figures_that_cannot_be(
    metrics: dict[str, object], reported: dict[str, float], said: str, undermined: str
) -> None:
    found = named(replace(figures(**metrics), reported=reported), "possible")
    assert found.status == "fail"
    assert said in found.detail and undermined in found.undermines


def test_a_peak_of_whole_seconds_may_be_below_the_mean_of_a_run_of_one_and_a_quarter() -> None:
    """vLLM's sample of 24 tokens in 1.26 s: 16 in the first second, 19.0 a second in the mean."""
    facts = replace(figures(output_tokens_per_s=19.0), duration_s=1.26, total_output_tokens=24)
    assert named(replace(facts, reported={"max_output_tokens_per_s": 16.0}), "possible").status != "fail"


def test_first_gaps_of_a_busy_server_are_no_empty_chunk() -> None:
    """Another request's prefill makes the first gap long; the time to first token is longer still."""
    table = requests([float(n) for n in range(10)], tokens=6)
    gaps = [100.0, 10.0, 10.0, 10.0, 10.0]
    long_first = table.assign(ttft_ns=pd.array([60 * MS] * 10, dtype="Int64"))
    facts = replace(EMPTY, requests=long_first, chunks=chunks(table, gaps))
    assert named(facts, "possible").status != "fail"
    short = table.assign(ttft_ns=pd.array([5 * MS] * 10, dtype="Int64"))
    assert named(replace(facts, requests=short), "possible").status == "fail"


def test_time_of_a_token_from_chunks() -> None:
    """Two requests of 9 tokens in 3 chunks each: 2 gaps of 40 ms bring 8 tokens, 10 ms each."""
    table = requests([0.0, 1.0], tokens=9)
    streamed = chunks(table, [40.0, 40.0])
    itl = with_token_times(latency_metrics(table, streamed, 2.0), table, streamed, {})["itl_ms"]
    assert (itl["mean"], itl["tokens_per_chunk"], itl["per_token_ms"]) == pytest.approx((40.0, 3.0, 10.0))
    unknown = table.assign(output_tokens=pd.array([pd.NA, 9], dtype="Int64"))
    itl = with_token_times(latency_metrics(unknown, streamed, 2.0), unknown, streamed, {})["itl_ms"]
    assert itl["per_token_ms"] is None


def test_time_of_a_token_from_aggregates() -> None:
    metrics = {"itl_ms": {"mean": 30.0, "tokens_per_chunk": None}, "output_tokens_per_s": 100.0}
    itl = with_token_times(metrics, None, None, {"spec_decode_acceptance_length": 2.5})["itl_ms"]
    assert (itl["tokens_per_chunk"], itl["per_token_ms"]) == (2.5, 12.0)
    assert with_token_times(metrics, None, None, {})["itl_ms"]["per_token_ms"] is None
    assert with_token_times({"itl_ms": None}, None, None, {}) == {"itl_ms": None}
    assert implied_concurrency(metrics) == pytest.approx(3.0)
    assert implied_concurrency({"itl_ms": None, "output_tokens_per_s": 3.0}) is None


def test_definitions_name_the_client_and_what_they_touch() -> None:
    assert named(EMPTY, "definitions").status == "pass"
    converted = named(replace(EMPTY, client="AIPerf", marks=("itl_is_tpot",)), "definitions")
    assert converted.status == "pass" and "vLLM's TPOT" in converted.detail
    other = named(replace(EMPTY, client="GuideLLM", marks=("itl_of_requests",)), "definitions")
    assert (other.status, other.undermines) == ("warn", ("time between tokens",))
    assert other.detail.startswith("Measured with GuideLLM")
    assert named(replace(EMPTY, marks=("unknown_client",)), "definitions").undermines == ("latencies",)


def test_tokens_that_came_back_against_tokens_asked_for() -> None:
    facts = replace(EMPTY, total_output_tokens=1000, retokenized=600, duration_s=10.0)
    found = named(facts, "token_count")
    assert found.status == "warn" and "60.0 tokens/s" in found.detail
    assert named(replace(facts, retokenized=995), "token_count").status == "not_applicable"
