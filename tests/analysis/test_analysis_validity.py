from dataclasses import replace

import pandas as pd
import pytest

from perflab.analysis.checks import BenchFacts, Check, bench_checks
from perflab.analysis.latency import latency_metrics
from perflab.analysis.validity import in_flight
from perflab.schema import conform

MS = 1_000_000


def requests(count: int = 120, every_ms: int = 100, ttft_ms: int = 50, lasts_ms: int = 250) -> pd.DataFrame:
    """Requests sent at a steady rate, all alike."""
    arrival = [n * every_ms * MS for n in range(count)]
    frame = pd.DataFrame(
        {
            "request_id": range(count),
            "arrival_ns": arrival,
            "first_token_ns": [at + ttft_ms * MS for at in arrival],
            "finish_ns": [at + lasts_ms * MS for at in arrival],
            "prompt_tokens": 8,
            "output_tokens": 5,
            "status": "ok",
        }
    )
    return conform(frame, "requests")


def facts(table: pd.DataFrame | None = None, **changes: object) -> BenchFacts:
    table = requests() if table is None else table
    metrics = latency_metrics(table, None, 12.0)
    sound = BenchFacts(
        completed=len(table),
        failed=0,
        num_prompts=len(table),
        rate=10.0,
        concurrency=3,
        duration_s=12.0,
        total_output_tokens=5 * len(table),
        metrics=metrics,
        requests=table,
        deltas={
            "prefix_cache_queries": 1000.0,
            "prefix_cache_hits": 0.0,
            "num_preemptions": 0.0,
            "generation_tokens": 5.0 * len(table),
        },
        server_means={"time_to_first_token_seconds": 0.045},
    )
    return replace(sound, **changes)  # type: ignore[arg-type]


def named(given: BenchFacts, name: str) -> Check:
    return next(check for check in bench_checks(given) if check.check == name)


def test_a_sound_result_passes() -> None:
    statuses = {check.check: check.status for check in bench_checks(facts())}
    assert set(statuses.values()) == {"pass", "not_applicable"}
    unknown = [name for name, status in statuses.items() if status == "not_applicable"]
    assert unknown == ["client_saturated", "clocks", "pace", "streaming"]
    assert all(check.detail for check in bench_checks(facts()))


def test_nothing_known_gives_no_verdict() -> None:
    checks = bench_checks(BenchFacts(completed=None, failed=None))
    assert {check.status for check in checks if check.check != "definitions"} == {"not_applicable"}


@pytest.mark.parametrize(
    ("completed", "failed", "asked", "status"),
    [
        (100, 0, 100, "pass"),
        (199, 1, 200, "warn"),
        (6, 4, 10, "fail"),
        (97, None, 100, "fail"),  # an old result that does not say how many failed
        (0, 10, 10, "fail"),
        (97, None, None, "not_applicable"),
    ],
)
def test_failures(completed: int, failed: int | None, asked: int | None, status: str) -> None:
    assert named(facts(completed=completed, failed=failed, num_prompts=asked), "requests_failed").status == status


def test_too_few_samples_name_the_percentiles() -> None:
    assert named(facts(requests(24)), "enough_samples").detail.startswith("24 requests are too few for p99,")
    assert "p90, p95 and p99, which are then" in named(facts(requests(5)), "enough_samples").detail
    assert named(facts(requests(100)), "enough_samples").status == "pass"


def test_offered_rate() -> None:
    slow = named(facts(requests(every_ms=125), concurrency=None), "offered_rate")
    assert (slow.status, "at 8.00 a second instead of 10" in slow.detail) == ("warn", True)
    assert "at most 3 were allowed" in named(facts(requests(every_ms=125)), "offered_rate").detail
    assert named(facts(rate=None), "offered_rate").status == "not_applicable"
    assert named(facts(requests=None), "offered_rate").status == "not_applicable"


def test_few_requests_sent_on_time_are_no_slow_client() -> None:
    """Ten arrivals planned over 10/0.8 s, the first at once: nine gaps in 12.3 s read as 0.73 a second."""
    ten = requests(count=10, every_ms=12_300 // 9)
    assert named(facts(ten, rate=0.8, concurrency=None), "offered_rate").status == "pass"
    late = requests(count=10, every_ms=14_000 // 9)
    assert named(facts(late, rate=0.8, concurrency=None), "offered_rate").status == "warn"


def test_concurrency() -> None:
    assert in_flight(requests()) == 3
    assert in_flight(requests(every_ms=250)) == 1, "one that ends as the next arrives frees its place"
    assert in_flight(requests().assign(arrival_ns=pd.array([pd.NA] * 120, dtype="Int64"))) is None
    short = named(facts(concurrency=32), "concurrency_reached")
    assert (short.status, "At most 3" in short.detail) == ("warn", True)
    assert named(facts(requests=None, num_prompts=4, concurrency=32), "concurrency_reached").status == "warn"
    assert named(facts(requests=None, concurrency=32), "concurrency_reached").status == "not_applicable"
    assert named(facts(concurrency=None), "concurrency_reached").status == "not_applicable"


@pytest.mark.parametrize(
    ("hits", "data", "status"),
    [(0, "random", "pass"), (9, "random", "pass"), (10, "random", "warn"), (800, "random", "fail"),
     (800, "prefix_repetition", "not_applicable")],
)  # fmt: skip
def test_prefix_cache(hits: float, data: str, status: str) -> None:
    given = facts(deltas={"prefix_cache_queries": 1000.0, "prefix_cache_hits": hits}, data=data)
    assert named(given, "prefix_cache").status == status


def test_preemptions() -> None:
    found = named(facts(deltas={"num_preemptions": 6.0}), "preemptions")
    assert (found.status, found.detail.startswith("6 times")) == ("warn", True)
    assert named(facts(deltas={}), "preemptions").status == "not_applicable"


def test_a_cold_first_request_is_named_and_kept() -> None:
    table = requests()
    table.loc[0, "first_token_ns"] = 21_000 * MS
    found = named(facts(table), "warm_up")
    assert found.status == "warn"
    for said in ("21.0 s", "50.0 ms at the median", "instead of 225 ms"):
        assert said in found.detail
    assert named(facts(table.sample(frac=1, random_state=3)), "warm_up").status == "warn", "first is by arrival"
    later = requests()
    later.loc[7, "first_token_ns"] += 21_000 * MS
    assert named(facts(later), "warm_up").status == "pass"


def paced(*gaps_ms: float, each: int = 6) -> pd.DataFrame:
    """Chunks of `requests`: six tokens, with a request's gap between them."""
    rows = [
        {"request_id": request, "chunk_index": chunk, "arrival_ns": round((request * 100 + 50 + chunk * gap) * MS)}
        for request, gap in enumerate(gaps_ms)
        for chunk in range(each)
    ]
    return conform(pd.DataFrame(rows).assign(token_count=1), "chunks")


@pytest.mark.parametrize(
    ("gaps", "concurrency", "status"),
    [
        ([26.0] * 8 + [16.0] * 24, 8, "warn"),
        ([16.0] * 8 + [26.0] * 24, 8, "pass"),  # slower later is what clocks and preemptions tell
        ([17.0] * 8 + [16.0] * 24, 8, "pass"),
        ([26.0, 16.0, 26.0, 16.0] * 8, 8, "pass"),
        ([26.0, 26.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0], 1, "pass"),  # half of the first four
        ([26.0] * 8 + [16.0] * 7, 8, "not_applicable"),
        ([26.0] * 8 + [16.0] * 24, None, "not_applicable"),
    ],
)
def test_an_engine_that_is_slow_at_first(gaps: list[float], concurrency: int | None, status: str) -> None:
    table, chunks = requests(len(gaps)).assign(output_tokens=6), paced(*gaps)
    metrics = latency_metrics(table, chunks, 12.0)
    found = named(facts(table, metrics=metrics, chunks=chunks, concurrency=concurrency), "pace")
    assert found.status == status
    if status == "warn":
        assert "first 8 requests got a token every 26.0 ms, the others every 16.0 ms" in found.detail
    if status != "not_applicable":
        doubled = latency_metrics(table.assign(output_tokens=12), chunks, 12.0)
        assert named(facts(table, metrics=doubled, chunks=chunks, concurrency=8), "pace").status == "not_applicable"


def test_a_load_of_prompts_tells_nothing_of_an_engine_that_is_slow_at_first() -> None:
    """The first answers are decoded together, later ones beside the prompts of others: in smaller batches."""
    gaps = [26.0] * 8 + [16.0] * 24
    table, chunks = requests(len(gaps), ttft_ms=100, lasts_ms=250).assign(output_tokens=6), paced(*gaps)
    given = facts(table, metrics=latency_metrics(table, chunks, 12.0), chunks=chunks, concurrency=8)
    assert named(given, "pace").status == "not_applicable"


def test_streaming() -> None:
    metrics = {"source": "computed", "e2el_ms": {"n": 1}, "ttft_ms": None, "itl_ms": None}
    assert named(facts(metrics=metrics), "streaming").status == "warn"
    chunky = {"source": "computed", "e2el_ms": {"n": 1}, "ttft_ms": {"n": 1}, "itl_ms": {"tokens_per_chunk": 4.0}}
    assert "4.0 tokens" in named(facts(metrics=chunky), "streaming").detail
    assert named(facts(metrics={**chunky, "itl_ms": {"tokens_per_chunk": 1.0}}), "streaming").status == "pass"


def test_tokens_are_reconciled_with_the_server() -> None:
    assert named(facts(total_output_tokens=516, deltas={"generation_tokens": 900.0}), "token_count").status == "warn"
    more = named(facts(total_output_tokens=1575, deltas={"generation_tokens": 900.0}), "token_count")
    assert (more.status, "from text" in more.detail) == ("warn", True)
    assert named(facts(deltas={}), "token_count").status == "not_applicable"


def test_client_and_server_ttft() -> None:
    waited = facts(metrics={"ttft_ms": {"mean": 183_600.0, "n": 9}}, server_means={"time_to_first_token_seconds": 1.2})
    found = named(waited, "client_server_ttft")
    assert (found.status, "184 s" in found.detail, "1.20 s" in found.detail) == ("warn", True, True)
    assert named(facts(server_means={}), "client_server_ttft").status == "not_applicable"
