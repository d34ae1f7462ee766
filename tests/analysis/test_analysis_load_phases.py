"""Warm-up, steady state and drain of hand-made loads, and of a server simulated by eye."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.load.phases import (
    busy_share,
    in_flight_over_time,
    load_phases,
    mean_in_flight,
    rate_over_time,
)
from perflab.schema import conform

S = 1_000_000_000


def requests(spans: list[tuple[float, float, float]], tokens: int = 11) -> pd.DataFrame:
    """(sent, first token, end) in seconds."""
    ns = (np.array(spans, dtype=float) * S).round().astype("int64")
    frame = pd.DataFrame(ns, columns=["arrival_ns", "first_token_ns", "finish_ns"]).astype("Int64")
    frame["request_id"] = range(len(frame))
    frame["prompt_tokens"], frame["output_tokens"], frame["status"] = 100, tokens, "ok"
    return conform(frame, "requests")


def chunks(of: pd.DataFrame, tokens: int = 11) -> pd.DataFrame:
    """A token at the first-token time and the rest evenly until the end."""
    rows = [
        (row.request_id, i, int(at), 1)
        for row in of.itertuples()
        for i, at in enumerate(np.linspace(int(row.first_token_ns), int(row.finish_ns), tokens).round())
    ]
    return conform(pd.DataFrame(rows, columns=["request_id", "chunk_index", "arrival_ns", "token_count"]), "chunks")


def closed(slots: int, rounds: int, life: float, shift: float = 0.0) -> list[tuple[float, float, float]]:
    """`slots` users, each sends `rounds` requests one after the other; user k begins k x shift later."""
    return [
        (k * shift + r * life, k * shift + r * life + life / 10, k * shift + (r + 1) * life)
        for k in range(slots)
        for r in range(rounds)
    ]


def test_a_user_who_sends_one_after_the_other() -> None:
    of = requests(closed(1, 5, 1.0))
    found = load_phases(of, chunks(of), concurrency=1)
    assert (found.status, found.level, found.turnovers) == ("steady", 1.0, 4.0)
    assert (found.steady_from_s, found.steady_to_s) == (1.0, 5.0)
    assert found.table["phase"].tolist() == ["warm-up", "steady", "whole"], "a drain without length is none"
    assert found.of("steady", "output_tokens_per_s") == pytest.approx(11.0)
    assert found.of("whole", "in_flight") == pytest.approx(1.0)
    assert found.of("steady", "arrived") == 4


def test_ten_users_spread_out_then_a_drain() -> None:
    of = requests(closed(10, 6, 1.0, shift=0.1))
    found = load_phases(of, chunks(of), concurrency=10)
    assert (found.status, found.level) == ("steady", 10.0)
    # At 0.8 s nine of ten are there; ten requests have ended at 1.9 s; at 6.0 s the first user is done.
    assert found.steady_from_s == pytest.approx(1.9 - 0.1 + 0.0, abs=0.11)
    assert found.steady_to_s == pytest.approx(6.1, abs=0.11)
    assert found.lockstep is not None and found.lockstep < 0.2
    drain = found.of("drain", "in_flight")
    assert drain is not None and drain < 6
    whole, steady = found.of("whole", "output_tokens_per_s"), found.of("steady", "output_tokens_per_s")
    assert whole is not None and steady is not None and steady > whole, "the drain lowers the whole"
    assert steady == pytest.approx(110, rel=0.03)


def test_users_in_step_are_said_to_be() -> None:
    of = requests(closed(10, 6, 1.0))
    found = load_phases(of, chunks(of), concurrency=10)
    assert found.status == "waves"
    assert found.lockstep == pytest.approx(1.0)


def test_chance_is_not_taken_for_step() -> None:
    """Users with lives of random lengths; few of them, and few requests, come together by chance."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(60):
        spans = []
        for start in rng.uniform(0, 1, size=int(rng.integers(2, 6))):
            at = float(start)
            for life in rng.uniform(0.3, 1.7, size=8):
                spans.append((at, at + 0.1, at + float(life)))
                at += float(life)
        found.append(load_phases(requests(spans), None, concurrency=5).status)
    assert found.count("waves") <= 1 and found.count("steady") > 40


def test_more_come_than_end() -> None:
    # Ten a second come; each takes longer than the one before.
    of = requests([(i * 0.1, i * 0.1 + 0.1, i * 0.1 + 0.5 + i * 0.04) for i in range(300)])
    found = load_phases(of, None, concurrency=None)
    assert found.status == "growing"
    assert found.growth is not None and found.growth > 1.5
    assert "middle" in set(found.table["phase"]) and "steady" not in set(found.table["phase"])
    assert found.table["output_tokens_per_s"].isna().all(), "no chunks, no tokens over time"


def test_too_few_requests_for_a_steady_state() -> None:
    of = requests(closed(10, 2, 1.0))
    found = load_phases(of, chunks(of), concurrency=10)
    assert found.status == "too_short"
    assert found.of("whole", "finished") == 20


def test_without_single_requests_nothing_is_said() -> None:
    assert load_phases(None, None).status == "unknown"
    none = requests([(0.0, 0.1, 1.0)]).assign(arrival_ns=pd.array([pd.NA], dtype="Int64"))
    assert load_phases(none, None).status == "unknown"
    assert load_phases(None, None).to_json()["phases"] == []


def test_mean_in_flight_by_eye() -> None:
    of = requests([(0, 0.1, 2), (1, 1.1, 3)])
    assert in_flight_over_time(of)["in_flight"].tolist() == [1, 2, 1, 0]
    assert mean_in_flight(of) == pytest.approx(4 / 3)
    assert mean_in_flight(of, 4.0) == pytest.approx(1.0)


def test_share_of_the_time_with_anything_under_way() -> None:
    of = requests([(0, 0.1, 1), (3, 3.1, 4)])
    assert busy_share(of) == pytest.approx(0.5)
    assert busy_share(requests([(0, 0.1, 2), (1, 1.1, 3)])) == 1.0
    assert busy_share(of.assign(finish_ns=pd.array([pd.NA, pd.NA], dtype="Int64"))) is None


def test_at_one_moment_an_end_makes_room() -> None:
    assert in_flight_over_time(requests([(0, 0.1, 1), (1, 1.1, 2)]))["in_flight"].tolist() == [1, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=2, max_size=40))
def test_phases_share_the_whole_among_them(raw: list[tuple[int, int]]) -> None:
    of = requests([(sent / 10, sent / 10 + life / 100, (sent + life) / 10) for sent, life in raw])
    found = load_phases(of, chunks(of), concurrency=None)
    parts = found.table[found.table["phase"] != "whole"]
    whole = found.table[found.table["phase"] == "whole"].iloc[0]
    assert whole["finished"] == len(of) and whole["arrived"] == len(of)
    total = 11 * len(of) / whole["end_s"]
    assert whole["output_tokens_per_s"] == pytest.approx(total)
    if len(parts):
        length = parts["end_s"] - parts["start_s"]
        assert parts["share"].sum() == pytest.approx(1)
        assert parts["finished"].sum() == len(of) and parts["arrived"].sum() == len(of), "nothing is lost or twice"
        assert (parts["in_flight"] * length).sum() == pytest.approx(whole["in_flight"] * whole["end_s"])
        assert (parts["output_tokens_per_s"] * length).sum() == pytest.approx(11 * len(of))


def test_rate_over_time_holds_every_token() -> None:
    of = requests(closed(3, 4, 1.0, shift=0.2))
    found = rate_over_time(of, chunks(of), bins=20)
    assert found is not None
    rate, edges = found
    assert (rate * np.diff(edges)).sum() == pytest.approx(3 * 4 * 11)
    assert edges[-1] == pytest.approx(4.4)
