"""Goodput as vLLM counts it, and never a number where it cannot be told."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.goodput import goodput, longest_gaps, objectives
from perflab.errors import InputError


def table(*rows: tuple[float | None, float | None, float | None, int]) -> tuple[pd.DataFrame, Any]:
    """Latencies and output tokens of requests: (ttft, tpot, e2el, tokens), milliseconds."""
    frame = pd.DataFrame(rows, columns=["ttft_ms", "tpot_ms", "e2el_ms", "tokens"])
    frame["request_id"] = range(len(frame))
    return frame.astype({f"{name}_ms": float for name in ("ttft", "tpot", "e2el")}), frame["tokens"].astype("Int64")


def vllms(rows: list[tuple[float, float, int]], slos: dict[str, float], duration_s: float) -> float:
    """What `calculate_metrics` of vLLM 0.33 does with (ttft, latency, tokens) in seconds, in our words."""
    metrics = {"ttft_ms": [], "tpot_ms": [], "e2el_ms": []}  # type: ignore[var-annotated]
    for ttft, latency, tokens in rows:
        metrics["ttft_ms"].append(ttft)
        metrics["tpot_ms"].append((latency - ttft) / (tokens - 1) if tokens > 1 else 0.0)
        metrics["e2el_ms"].append(latency)
    used = [(limit / 1000, metrics[name]) for name, limit in slos.items()]
    return sum(all(limit >= of[i] for limit, of in used) for i in range(len(rows))) / duration_s


def test_by_eye() -> None:
    latencies, tokens = table((100, 20, 1000, 46), (300, 20, 1000, 36), (100, 60, 2000, 33), (100, None, 100, 1))
    found = goodput(latencies, tokens, {"ttft_ms": 200, "tpot_ms": 50}, 2.0, failed=1)
    assert found is not None
    assert (found.good, found.answered, found.unknown) == (2, 4, 0), "a single token meets any TPOT"
    assert found.per_s == 1.0
    assert found.share == 0.4, "the failed request was asked for and is not good"
    assert found.missed == {"ttft_ms": 1, "tpot_ms": 1}
    assert found.own == ()


def test_a_limit_is_met_by_what_equals_it() -> None:
    latencies, tokens = table((200, 50, 1000, 17))
    found = goodput(latencies, tokens, {"ttft_ms": 200, "tpot_ms": 50, "e2el_ms": 1000}, 1.0)
    assert found is not None and found.good == 1


def test_what_decides_but_was_not_measured_makes_it_unknown() -> None:
    latencies, tokens = table((None, None, 900, 50), (100, 10, 500, 41))
    found = goodput(latencies, tokens, {"ttft_ms": 1000, "e2el_ms": 1000}, 1.0)
    assert found is not None
    assert (found.good, found.unknown, found.per_s, found.share) == (1, 1, None, None)
    decided = goodput(latencies, tokens, {"ttft_ms": 1000, "e2el_ms": 800}, 1.0)
    assert decided is not None
    assert (decided.good, decided.unknown, decided.per_s) == (1, 0, 1.0), "it misses E2EL whatever its TTFT was"


def test_no_objectives_no_duration() -> None:
    latencies, tokens = table((100, 10, 500, 41))
    assert goodput(latencies, tokens, {}, 1.0) is None
    found = goodput(latencies, tokens, {"ttft_ms": 100}, None)
    assert found is not None and found.per_s is None and found.good == 1


def test_itl_is_ours_and_said_to_be() -> None:
    latencies, tokens = table((100, 10, 500, 41), (100, 10, 500, 41), (100, None, 100, 1))
    gaps = pd.DataFrame({"request_id": [0, 0, 1, 1], "itl_ms": [10.0, 12.0, 10.0, 90.0]})
    found = goodput(latencies, tokens, {"itl_ms": 50}, 1.0, longest_gap_ms=longest_gaps(gaps))
    assert found is not None
    assert (found.good, found.own) == (2, ("itl_ms",))
    unknown = goodput(latencies, tokens, {"itl_ms": 50}, 1.0)
    assert unknown is not None and unknown.unknown == 2, "without chunks nothing is known of gaps"


def test_objectives_by_either_name() -> None:
    assert objectives({"ttft": 200, "tpot_ms": 50.0, "e2el": None}) == {"ttft_ms": 200.0, "tpot_ms": 50.0}


@pytest.mark.parametrize("given_", [{"tps": 5}, {"ttft_ms": 0}, {"ttft_ms": -1}, {"ttft_ms": True}, {"ttft": "200"}])
def test_what_is_no_objective_is_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=str(next(iter(given_)))):
        objectives(given_)


@given(
    rows=st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 20000), st.integers(1, 300)), min_size=1, max_size=30),
    limits=st.fixed_dictionaries(
        {}, optional={name: st.integers(1, 20000) for name in ("ttft_ms", "tpot_ms", "e2el_ms")}
    ),
)
def test_it_is_vllms(rows: list[tuple[int, int, int]], limits: dict[str, int]) -> None:
    # Halves keep every figure off the limits, where nanoseconds and floating seconds may differ.
    seconds = [((ttft + 0.5) / 1000, (ttft + 0.5 + rest) / 1000, tokens) for ttft, rest, tokens in rows]
    slos = {name: float(limit) + 0.25 for name, limit in limits.items()}
    latencies, tokens = table(
        *((t * 1000, (e - t) * 1000 / (n - 1) if n > 1 else None, e * 1000, n) for t, e, n in seconds)
    )
    found = goodput(latencies, tokens, slos, 2.0)
    if not slos:
        assert found is None
    else:
        assert found is not None and found.per_s == pytest.approx(vllms(seconds, slos, 2.0))
