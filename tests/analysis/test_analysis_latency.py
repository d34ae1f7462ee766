import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.latency import (
    DISTRIBUTIONS,
    chunk_gaps,
    latency_metrics,
    latency_values,
    metrics_from_reported,
    request_latencies,
    tokens_per_chunk,
)
from perflab.errors import InputError
from perflab.read.bench import read_bench
from perflab.schema import conform

MS = 1_000_000


def requests(*rows: tuple[int | None, int | None, int | None, int, int | None, str]) -> pd.DataFrame:
    """Rows of arrival, first token, finish (ms), prompt and output tokens, status."""
    scale = [[None if t is None else t * MS for t in row[:3]] for row in rows]
    return conform(
        pd.DataFrame(
            {
                "request_id": range(len(rows)),
                "arrival_ns": [row[0] for row in scale],
                "first_token_ns": [row[1] for row in scale],
                "finish_ns": [row[2] for row in scale],
                "prompt_tokens": [row[3] for row in rows],
                "output_tokens": [row[4] for row in rows],
                "status": [row[5] for row in rows],
            }
        ),
        "requests",
    )


def chunks(*rows: tuple[int, list[int]]) -> pd.DataFrame:
    """Rows of request and arrivals (ms)."""
    flat = [(request, index, at * MS) for request, times in rows for index, at in enumerate(times)]
    frame = pd.DataFrame(flat, columns=["request_id", "chunk_index", "arrival_ns"]).assign(token_count=None)
    return conform(frame, "chunks")


THREE = requests(
    (0, 100, 500, 32, 5, "ok"),
    (10, 60, 60, 32, 1, "ok"),
    (20, None, None, 32, None, "failed"),
)
STREAM = chunks((0, [100, 150, 300, 400, 500]), (1, [60]), (2, [30, 31]))


def test_definitions_by_eye() -> None:
    of = request_latencies(THREE)
    assert of["ttft_ms"].tolist() == [100, 50]
    assert of["e2el_ms"].tolist() == [500, 50]
    assert of["tpot_ms"].iloc[0] == 100
    assert math.isnan(of["tpot_ms"].iloc[1]), "one token has no time per further token"
    assert chunk_gaps(THREE, STREAM)["itl_ms"].tolist() == [50, 150, 100, 100], "none of the failed request"


def test_metrics_by_eye() -> None:
    found = latency_metrics(THREE, STREAM, 2.0, {"ttft_ms": 60, "tpot_ms": 50})
    assert found["ttft_ms"]["mean"] == 75
    assert found["ttft_ms"]["p50"] == 75
    assert found["ttft_ms"]["p99"] == pytest.approx(99.5)
    assert (found["ttft_ms"]["n"], found["tpot_ms"]["n"], found["itl_ms"]["n"]) == (2, 1, 4)
    assert found["ttft_ms"]["ci_low"] is None
    assert (found["requests_per_s"], found["input_tokens_per_s"]) == (1.0, 32.0)
    assert (found["output_tokens_per_s"], found["total_tokens_per_s"]) == (3.0, 35.0)
    assert found["goodput_per_s"] == 0.5, "the single token meets any TPOT, the other misses TTFT"
    assert found["itl_ms"]["tokens_per_chunk"] == 1
    assert found["source"] == "computed"


def test_not_measured_is_none_never_zero() -> None:
    found = latency_metrics(THREE.iloc[2:], None, None, None)
    assert [found[name] for name in DISTRIBUTIONS] == [None] * 4
    assert found["requests_per_s"] is None
    assert found["goodput_per_s"] is None
    some = latency_metrics(THREE.assign(output_tokens=pd.array([None] * 3, dtype="Int64")), None, 1.0)
    assert some["output_tokens_per_s"] is None
    assert some["tpot_ms"] is None
    assert some["ttft_ms"]["n"] == 2


def test_a_server_that_does_not_stream_has_no_first_token() -> None:
    found = latency_metrics(requests((0, 900, 900, 32, 50, "ok")), chunks((0, [900])), 1.0, {"ttft_ms": 1000})
    assert found["ttft_ms"] is None
    assert found["tpot_ms"] is None
    assert found["itl_ms"] is None
    assert found["e2el_ms"]["p50"] == 900
    assert found["goodput_per_s"] is None, "whether it met an objective that was not measured is not known"


def test_gaps_between_chunks_are_said_to_be_that() -> None:
    # 100 tokens in 25 chunks of 40 ms: 40 ms is not the time of a token, TPOT is.
    stream = chunks((0, [100 + 40 * n for n in range(25)]))
    one = requests((0, 100, 100 + 40 * 24, 8, 100, "ok"))
    found = latency_metrics(one, stream, 1.0)
    assert found["itl_ms"]["p50"] == 40
    assert found["itl_ms"]["tokens_per_chunk"] == 4
    assert found["tpot_ms"]["p50"] == pytest.approx(960 / 99)
    assert tokens_per_chunk(one.assign(output_tokens=pd.array([None], dtype="Int64")), stream) is None


def test_values_for_curves() -> None:
    values = latency_values(THREE, STREAM)
    assert values["metric"].value_counts().to_dict() == {"itl": 4, "ttft": 2, "e2el": 2, "tpot": 1}


def test_reported_aggregates_have_the_same_shape() -> None:
    found = metrics_from_reported(
        {
            "mean_ttft_ms": 10.0,
            "median_ttft_ms": 9.0,
            "p99_ttft_ms": 20.0,
            "mean_itl_ms": 3.0,
            "mean_tpot_ms": None,
            "request_throughput": 5.0,
            "request_goodput": None,
        },
        7,
    )
    computed = latency_metrics(THREE, STREAM, 2.0)
    assert set(found) == set(computed)
    assert set(found["ttft_ms"]) == set(computed["ttft_ms"])
    assert (found["ttft_ms"]["p50"], found["ttft_ms"]["p90"], found["ttft_ms"]["n"]) == (9.0, None, 7)
    assert found["itl_ms"]["n"] is None
    assert found["tpot_ms"] is None
    assert (found["requests_per_s"], found["output_tokens_per_s"]) == (5.0, None)
    assert found["source"] == found["ttft_ms"]["source"] == "reported"


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(InputError, match="no objective 'tps_ms'"):
        latency_metrics(THREE, STREAM, 1.0, {"tps_ms": 5})


def same_as_vllm(path: Path) -> None:
    """What is computed from the arrays is what vLLM computed from them."""
    raw: dict[str, Any] = json.loads(path.read_text())
    result = read_bench(path)
    assert result.requests is not None
    computed = latency_metrics(result.requests, result.chunks, result.duration_s, {"e2el_ms": 1e9})
    reported = metrics_from_reported(result.reported, result.completed)
    compared = 0
    for name in DISTRIBUTIONS:
        for statistic in ("mean", "std", "p50", "p90", "p95", "p99"):
            if reported[name] is not None and reported[name][statistic] is not None:
                # Without `latencies` E2EL is rebuilt from gaps, about a microsecond long (see request_latencies).
                near = 1e-5 if name != "e2el_ms" or "latencies" in raw else 5e-3
                assert computed[name][statistic] == pytest.approx(reported[name][statistic], abs=near), (path, name)
                compared += 1
    assert compared >= 9
    for name in ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s"):
        assert computed[name] == pytest.approx(reported[name], rel=1e-12)
    assert computed["goodput_per_s"] == pytest.approx(raw["request_throughput"], rel=1e-12)
    assert computed["ttft_ms"]["n"] == raw["completed"]


def test_the_detailed_sample_to_the_last_printed_digit(shared: Path) -> None:
    same_as_vllm(shared / "facts" / "samples" / "bench" / "serve_detailed.json")


def test_every_detailed_recording_to_the_last_printed_digit(shared: Path) -> None:
    detailed = [
        path for path in sorted((shared / "recordings" / "h200").glob("*/bench/*.json")) if '"itls"' in path.read_text()
    ]
    assert len(detailed) >= 10
    for path in detailed:
        same_as_vllm(path)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_percentiles_are_linear_interpolation_between_order_statistics(values: list[int]) -> None:
    frame = requests(*((0, value, value + 1, 1, 2, "ok") for value in values))
    found = latency_metrics(frame, None, 1.0)["ttft_ms"]
    ordered = sorted(values)
    for p in (50, 90, 95, 99):
        place = (len(ordered) - 1) * p / 100
        below, part = int(place), place - int(place)
        above = min(below + 1, len(ordered) - 1)
        assert found[f"p{p}"] == pytest.approx(ordered[below] + part * (ordered[above] - ordered[below]), abs=1e-6)
    assert found["mean"] == pytest.approx(sum(values) / len(values))
