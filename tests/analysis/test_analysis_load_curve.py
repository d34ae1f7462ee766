"""Knee, limits and cost on curves whose answer is visible by eye."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_tables import SERVER, points

from perflab.analysis.load.curve import cost_per_million, cost_table, knee, load_curves, load_limit


def test_the_knee_is_where_throughput_for_its_latency_is_most() -> None:
    [curve] = load_curves(SERVER, gpus={"run": 2})
    assert (curve.knee.status, curve.knee.load, curve.knee.low, curve.knee.high) == ("found", 32, 8, 128)
    assert (curve.knee.agree, curve.knee.repeats) == (1, 1)
    assert curve.table["load"].tolist() == ["c1", "c8", "c32", "c128", "c512"]
    assert curve.table["in_flight"].round(0).tolist() == [1, 8, 32, 128, 512], "Little's law"
    gain = curve.table["gain"].tolist()
    assert np.isnan(gain[0]) and all(share > 0.5 for share in gain[1:3]) and all(share < 0.5 for share in gain[3:])
    assert (curve.kind, curve.lengths, curve.unit, curve.gpus) == ("closed", "100/10", "requests at once", 2)


@pytest.mark.parametrize(
    ("kept", "status"), [([0, 1], "too_few"), ([0, 1, 2], "not_reached"), ([2, 3, 4], "passed"), ([], "too_few")]
)
def test_no_knee_where_the_points_do_not_tell(kept: list[int], status: str) -> None:
    assert knee(SERVER.assign(x=SERVER["concurrency"]).iloc[kept]).status == status


def test_repeats_that_disagree_are_counted() -> None:
    other = points((1, 1, 1000), (8, 7, 500), (32, 20, 1700), (128, 32, 4000), (512, 33, 15515), repeat=1)
    third = SERVER.assign(repeat=2)
    [curve] = load_curves(pd.concat([SERVER, other, third]))
    assert (curve.knee.load, curve.knee.agree, curve.knee.repeats) == (32, 2, 3)
    assert curve.table["repeats"].tolist() == [3] * 5


def test_open_and_closed_loops_and_workloads_are_apart() -> None:
    both = pd.concat([SERVER, points((4, 4, 900), (8, 8, 1000), kind="open"), SERVER.assign(workload="chat")])
    curves = load_curves(both)
    expected = [("w", "closed", 5), ("w", "open", 2), ("chat", "closed", 5)]
    assert [(c.workload, c.kind, len(c.table)) for c in curves] == expected
    everything_at_once = points((1, 1, 1000)).assign(concurrency=None)
    assert load_curves(everything_at_once) == []


def test_a_contaminated_point_is_in_no_curve_and_named() -> None:
    tainted = SERVER.copy()
    tainted.loc[3, ["requests_per_s", "e2el_mean_ms"]] = [90.0, 1400.0]
    assert load_curves(tainted)[0].knee.load == 128, "taken at its word it would be the knee"
    [curve] = load_curves(tainted, {3: "80 % from the cache"})
    assert curve.knee.load == 32
    assert curve.table["x"].tolist() == [1, 8, 32, 512]
    assert [(one.point, one.why) for one in curve.excluded] == [("p128", "80 % from the cache")]


def test_the_limit_is_interpolated_between_measured_loads() -> None:
    table = load_curves(SERVER)[0].table
    found = load_limit(table, {"e2el_ms": 2800}, "p99")
    assert found is not None
    assert (found.status, found.safe, found.broken, found.breaks) == ("between", 32, 128, "e2el_ms")
    assert found.load == 80, "halfway between 1600 and 4000 ms"
    assert found.requests_per_s == 26
    assert found.output_tokens_per_s == 260
    both = load_limit(table, {"e2el_ms": 2800, "ttft_ms": 220}, "p99")
    assert both is not None and (both.breaks, both.load) == ("ttft_ms", 56.0), "the first to give way"


def test_a_limit_is_never_extrapolated() -> None:
    table = load_curves(SERVER)[0].table
    above = load_limit(table, {"e2el_ms": 1e6})
    assert above is not None and (above.status, above.load, above.broken) == ("all_meet", 512, None)
    below = load_limit(table, {"e2el_ms": 500})
    assert below is not None and (below.status, below.load, below.requests_per_s) == ("none_meets", None, None)
    missing = load_limit(table.assign(ttft_p99_ms=np.nan), {"ttft_ms": 5000})
    assert missing is not None and missing.status == "not_measured"
    assert load_limit(table, {}) is None


def test_a_curve_that_comes_back_is_said_to() -> None:
    table = load_curves(points((1, 1, 1000), (2, 2, 3000), (4, 4, 1000)))[0].table
    found = load_limit(table, {"e2el_ms": 2000})
    assert found is not None and (found.status, found.load, found.monotone) == ("between", 1.5, False)


@given(
    lives=st.lists(st.floats(10, 10000), min_size=2, max_size=8, unique=True),
    limit=st.floats(5, 20000),
)
def test_the_limit_lies_where_it_should(lives: list[float], limit: float) -> None:
    rows = [(float(i + 1), 10.0 * (i + 1), life) for i, life in enumerate(sorted(lives))]
    found = load_limit(load_curves(points(*rows))[0].table, {"e2el_ms": limit})
    assert found is not None
    met = [x for x, _, life in rows if life <= limit]
    if found.status == "between":
        assert found.safe == max(met) and found.load is not None and found.broken == found.safe + 1
        assert found.safe <= found.load <= found.broken
    else:
        assert found.status == ("all_meet" if len(met) == len(rows) else "none_meets")


@given(
    rates=st.lists(st.floats(0.5, 100), min_size=3, max_size=7),
    lives=st.lists(st.floats(10, 1e4), min_size=7, max_size=7),
)
def test_power_falls_exactly_where_latency_takes_more_than_half(rates: list[float], lives: list[float]) -> None:
    rows = [(float(i), rate, lives[i]) for i, rate in enumerate(rates)]
    table = load_curves(points(*rows))[0].table
    rose = table["power"].diff()
    told = table["gain"].notna() & (rose.abs() > 1e-6)
    assert ((table["gain"] > 0.5) == (rose > 0))[told].all()


def test_cost_by_eye() -> None:
    assert cost_per_million(1_000_000 / 3600, 3.0, 1) == pytest.approx(3.0)
    assert cost_per_million(1_000_000 / 3600, 3.0, 8) == pytest.approx(24.0)
    assert cost_per_million(None, 3.0, 1) is None
    assert cost_per_million(100.0, None, 1) is None
    assert cost_per_million(100.0, 3.0, None) is None
    table = cost_table(load_curves(SERVER, gpus={"run": 2})[0], 1.8)
    row = table.set_index("load").loc["c32"]
    assert row["output"] == pytest.approx(1.8 * 2 / (200 * 3600) * 1e6)
    assert row["input"] == pytest.approx(row["output"] / 10)


def test_json_has_no_nan() -> None:
    import json

    [curve] = load_curves(SERVER)
    document = json.loads(json.dumps(curve.to_json(), allow_nan=False))
    assert document["loads"][0]["gain"] is None and document["knee"]["between"] == [8.0, 128.0]
