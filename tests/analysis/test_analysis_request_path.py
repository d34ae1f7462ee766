"""Requests placed into engine steps, and their latencies split by cause."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_tables import (
    EPOCH,
    MS,
    SAME,
    Asked,
    chunk_table,
    iteration_table,
    request_table,
    simulated,
    three_steps_behind,
)

from perflab.analysis.requests.clock import ClockTie, clock_tie
from perflab.analysis.requests.path import CAUSES, gap_parts, split_paths, strip
from perflab.analysis.requests.steps import one_engine, step_join


def ms_of(table: pd.DataFrame, request_id: int) -> dict[str, float]:
    row = table.set_index("request_id").loc[request_id]
    return {cause: row[cause] / MS for cause in CAUSES if row[cause]}


def test_a_request_waits_exactly_three_steps_for_anothers_prompt() -> None:
    requests, chunks, iterations = three_steps_behind()
    join = step_join(requests, iterations, SAME, token_budget=100)
    assert join.alignment.quality == 1
    assert join.requests["first_step"].tolist() == [0, 4, 5]
    assert join.requests["last_step"].tolist() == [9, 9, 9]
    paths = split_paths(join, requests, chunks, token_budget=100)
    # R: sent at 13, taken in at 20, three steps of 30 ms, its own prompt 20 ms, 1 ms to the client.
    assert ms_of(paths.ttft, 2) == {"arriving": 7, "queued": 90, "prefill": 20, "delivery": 1}
    assert ms_of(paths.e2el, 2) == {"arriving": 7, "queued": 90, "prefill": 20, "decode": 40, "delivery": 1}
    # D: eight more steps at 10 ms; the three parts of L's prompt cost it 20 ms each, R's prompt 10 ms.
    assert ms_of(paths.decoding, 0) == {"decode": 90, "others_prefill": 70}
    # L: its prompt takes the three steps.
    assert ms_of(paths.ttft, 1) == {"arriving": 8, "prefill": 90, "delivery": 1}
    assert paths.facts.set_index("request_id").loc[2, "waited_steps"] == 3


def test_a_life_has_no_gaps_and_sums_to_the_split() -> None:
    requests, chunks, iterations = three_steps_behind()
    join = step_join(requests, iterations, SAME, token_budget=100)
    paths = split_paths(join, requests, chunks, token_budget=100)
    for request_id in (0, 1, 2):
        life = strip(join, paths, requests, request_id)
        one = requests.iloc[request_id]
        assert life["start_ns"].iloc[0] == one["arrival_ns"]
        assert life["end_ns"].iloc[-1] == one["finish_ns"]
        assert (life["end_ns"].iloc[:-1].to_numpy() == life["start_ns"].iloc[1:].to_numpy()).all()
        length = ((life["end_ns"] - life["start_ns"]) / MS).groupby(life["cause"]).sum().to_dict()
        assert length == ms_of(paths.e2el, request_id)


def test_gaps_between_chunks_by_cause() -> None:
    requests, chunks, iterations = three_steps_behind()
    join = step_join(requests, iterations, SAME, token_budget=100)
    gaps = gap_parts(join, chunks, split_paths(join, requests, chunks, token_budget=100).facts)
    of_d = gaps[gaps["request_id"] == 0]
    assert (of_d["total_ns"] / MS).tolist() == [10, 30, 30, 30, 20, 10, 10, 10, 10]
    assert (of_d["others_prefill"] / MS).tolist() == [0, 20, 20, 20, 10, 0, 0, 0, 0]
    assert (gaps[list(CAUSES)].sum(axis=1) == gaps["total_ns"]).all()


def test_a_late_chunk_is_delivery_and_the_next_gap_makes_up_for_it() -> None:
    requests, _, iterations = three_steps_behind()
    ends = [11, 21, 51, 81, 111, 131, 148, 151, 161, 171]  # the seventh came 7 ms late
    chunks = chunk_table([ends, ends[4:], ends[5:]])
    join = step_join(requests, iterations, SAME, token_budget=100)
    gaps = gap_parts(join, chunks, split_paths(join, requests, chunks, token_budget=100).facts)
    assert (gaps[gaps["request_id"] == 0]["delivery"] / MS).tolist() == [0, 0, 0, 0, 0, 7, -7, 0, 0]


def test_a_front_end_that_writes_several_records_at_once_was_late_and_not_the_engine() -> None:
    steps = [(10.0 * k, 1, 0, 1, 20 if k == 1 else 0, 0) for k in range(1, 30)]
    for late in (12, 13, 14):  # handled together with the step at 160
        steps[late] = (159.7 + 0.1 * (late - 12), *steps[late][1:])
    steps.append((300.0, 0, 0, 1, 0, 1))
    requests = request_table([(0, 11, 301, 20, 30)])
    join = step_join(requests, iteration_table(steps), SAME)
    paths = split_paths(join, requests)
    assert ms_of(paths.decoding, 0).keys() == {"decode"}
    # The engine was done with those steps about when it would have been: 130, 140, 150.
    assert np.abs(join.steps["end_ns"].iloc[12:15] / MS - [130, 140, 150]).max() <= 4
    stuck = [(at + (30 if at > 130 else 0), *rest) for at, *rest in steps[:12]] + [
        (10.0 * k + 30, 1, 0, 1, 0, 0) for k in range(13, 30)
    ]
    stuck.append((330.0, 0, 0, 1, 0, 1))
    requests = request_table([(0, 11, 331, 20, 30)])
    paths = split_paths(step_join(requests, iteration_table(stuck), SAME), requests)
    assert ms_of(paths.decoding, 0) == {"decode": 290, "slow_steps": 30}


def test_a_step_told_late_because_a_prompt_was_launched_gives_that_time_to_the_prompt() -> None:
    """An engine that schedules ahead: the record before a prompt's step is late by its launch."""
    plain = [(10.0 * k, 1, 0, 1, 20 if k == 1 else 0, 0) for k in range(1, 11)]
    ahead = [(130.0, 2, 0, 1, 0, 0), (134.0, 2, 0, 2, 50, 0)]
    after = [(134.0 + 10 * k, 2, 0, 2, 0, 0) for k in range(1, 9)] + [(224.0, 0, 0, 2, 0, 2)]
    requests = request_table([(0, 11, 225, 20, 21), (101, 135, 225, 50, 10)])
    chunks = chunk_table([[at + 1 for at, *_ in plain + ahead + after], [at + 1 for at, *_ in [ahead[1], *after]]])
    join = step_join(requests, iteration_table(plain + ahead + after), SAME)
    assert join.alignment.quality == 1
    paths = split_paths(join, requests, chunks)
    assert ms_of(paths.ttft, 1)["prefill"] == 24
    assert ms_of(paths.decoding, 0) == {"decode": 200, "others_prefill": 14}
    # To the waiting client the gap is long at the step that was told late.
    gaps = gap_parts(join, chunks, paths.facts)
    gap = gaps[(gaps["request_id"] == 0) & (gaps["chunk_index"] == 10)].iloc[0]
    assert (gap["total_ns"], gap["others_prefill"], gap["delivery"]) == (30 * MS, 20 * MS, 0)


def test_a_lost_place_is_preemption_where_the_chunks_have_a_hole() -> None:
    steps = [(10.0 * k, 2, 0, 2, 40 if k == 1 else 0, 0) for k in range(1, 6)]
    steps += [(10.0 * k, 1, 1, 1, 0, 0) for k in range(6, 11)]  # one lost its place for five steps
    steps += [(10.0 * k, 2, 0, 2, 0, 0) for k in range(11, 15)] + [(150.0, 1, 0, 2, 0, 1)]
    steps += [(10.0 * k, 1, 0, 1, 0, 0) for k in range(16, 20)] + [(200.0, 0, 0, 1, 0, 1)]
    iterations = iteration_table(steps, preempted=[5])
    requests = request_table([(0, 11, 151, 20, 15), (0, 11, 201, 20, 15)])
    ends = [step[0] + 1 for step in steps]
    chunks = chunk_table([ends[:15], ends[:5] + ends[10:]])
    join = step_join(requests, iterations, SAME)
    assert join.requests["missed"].tolist() == [0, 5]
    assert join.alignment.quality == 1
    paths = split_paths(join, requests, chunks)
    assert ms_of(paths.decoding, 1) == {"decode": 140, "preempted": 50}
    life = strip(join, paths, requests, 1)
    lost = life[life["cause"] == "preempted"].iloc[0]
    assert (lost["start_ns"], lost["end_ns"]) == (50 * MS, 100 * MS)
    gaps = gap_parts(join, chunks, paths.facts)
    assert (gaps["preempted"] / MS).tolist() == [0.0] * 14 + [0, 0, 0, 0, 50] + [0.0] * 9
    assert (gaps[list(CAUSES)].sum(axis=1) == gaps["total_ns"]).all()


def test_prompts_of_one_step_share_it_by_tokens() -> None:
    steps = [(10, 1, 0, 1, 10, 0), (20, 1, 0, 1, 0, 0), (60, 3, 0, 3, 400, 0), (70, 0, 0, 3, 0, 3)]
    requests = request_table([(0, 11, 71, 10, 4), (15, 61, 71, 100, 2), (16, 61, 71, 300, 2)])
    paths = split_paths(step_join(requests, iteration_table(steps), SAME), requests)
    assert ms_of(paths.ttft, 1) == {"arriving": 5, "prefill": 10, "others_prefill": 30, "delivery": 1}
    assert ms_of(paths.ttft, 2) == {"arriving": 4, "prefill": 30, "others_prefill": 10, "delivery": 1}
    assert paths.facts["mates"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(("server_ns", "how", "parts"), [
    (8.0 * MS, "server_mean", {"arriving": 2, "prefill": 8, "delivery": 1}),
    (None, "undivided", {"prefill": 10, "delivery": 1}),
])  # fmt: skip
def test_an_idle_engine_does_not_tell_when_it_began(server_ns: float | None, how: str, parts: dict[str, float]) -> None:
    requests = request_table([(0, 11, 21, 10, 2)])
    join = step_join(requests, iteration_table([(10, 1, 0, 1, 10, 0), (20, 0, 0, 1, 0, 1)]), SAME)
    paths = split_paths(join, requests, server_prefill_ns=server_ns)
    assert ms_of(paths.ttft, 0) == parts
    assert paths.facts["prefill_how"].tolist() == [how]


requests_sent = st.lists(
    st.builds(
        Asked, sent=st.integers(0, 400).map(lambda v: v * MS), prompt=st.integers(1, 300), output=st.integers(1, 12)
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(asked=requests_sent, seats=st.integers(1, 5))
def test_counting_finds_what_a_simulated_engine_did(asked: list[Asked], seats: int) -> None:
    """Who waited, and until when, comes out of counts alone; every split sums to its latency."""
    requests, chunks, iterations = simulated(asked, seats=seats)
    join = step_join(requests, iterations, SAME, token_budget=128, schedules_ahead=False)
    assert join.alignment.quality == 1
    paths = split_paths(join, requests, chunks, token_budget=128)
    for table, begin, end in (
        (paths.ttft, "arrival_ns", "first_token_ns"), (paths.e2el, "arrival_ns", "finish_ns"),
        (paths.decoding, "first_token_ns", "finish_ns"),
    ):  # fmt: skip
        assert (table["total_ns"].to_numpy() == (requests[end] - requests[begin]).to_numpy(np.int64)).all()
        assert (table[list(CAUSES)].sum(axis=1) == table["total_ns"]).all()
    gaps = gap_parts(join, chunks, paths.facts)
    assert (gaps[list(CAUSES)].sum(axis=1) == gaps["total_ns"]).all()
    # Taking in goes by the order of arrival; who came at the same moment may be told apart either way.
    for one, (_, ttft), (_, fact) in zip(asked, paths.ttft.iterrows(), paths.facts.iterrows(), strict=True):
        if fact["idle_engine"] or sum(other.sent == one.sent for other in asked) > 1:
            continue
        assert ttft["arriving"] == one.admitted - one.sent
        assert ttft["queued"] == one.scheduled - one.admitted
        assert ttft[["behind_step", "prefill", "others_prefill"]].sum() == one.tokens[0] - one.scheduled


@settings(max_examples=20, deadline=None)
@given(asked=requests_sent, offset=st.integers(-(10**15), 10**15))
def test_the_split_does_not_depend_on_the_clocks_origin(asked: list[Asked], offset: int) -> None:
    requests, chunks, iterations = simulated(asked)
    moved = iterations.assign(monotonic_ns=iterations["monotonic_ns"] + offset)
    tie = ClockTie(offset, offset, 0, False)
    here, there = (
        split_paths(step_join(requests, table, by, token_budget=128), requests, chunks, token_budget=128)
        for table, by in ((iterations, SAME), (moved, tie))
    )
    pd.testing.assert_frame_equal(here.e2el, there.e2el)
    pd.testing.assert_frame_equal(here.ttft, there.ttft)


def test_requests_of_others_and_lost_records_lower_the_quality() -> None:
    requests, _, iterations = three_steps_behind()
    assert step_join(requests.iloc[:2], iterations, SAME, token_budget=100).alignment.quality < 0.9
    assert step_join(requests, iterations.drop(index=6), SAME, token_budget=100).alignment.quality < 0.95
    uneven = requests.assign(prompt_tokens=requests["prompt_tokens"] - [9, 0, 11])
    assert step_join(uneven, iterations, SAME, token_budget=100).alignment.prompts == pytest.approx(340 / 360)
    late = ClockTie(20 * MS, 20 * MS, 0, False)
    assert step_join(requests, iterations, late, token_budget=100).alignment.quality < 0.9


def test_a_chat_template_makes_every_prompt_longer_by_as_much() -> None:
    requests, chunks, iterations = three_steps_behind()
    as_sent = requests.assign(prompt_tokens=requests["prompt_tokens"] - 9)
    here, there = (
        split_paths(step_join(table, iterations, SAME, token_budget=100), table, chunks, token_budget=100)
        for table in (requests, as_sent)
    )
    assert step_join(as_sent, iterations, SAME, token_budget=100).alignment.quality == 1
    assert ms_of(there.ttft, 2) == ms_of(here.ttft, 2)


def test_records_of_several_front_ends_are_told() -> None:
    _, _, iterations = three_steps_behind()
    assert one_engine(iterations)
    assert not one_engine(pd.concat([iterations, iterations.assign(front_end=2)]))
    assert not one_engine(pd.concat([iterations, iterations.assign(engine=1)]))


def test_clocks_of_one_host_are_one_to_the_nanosecond() -> None:
    _, _, iterations = three_steps_behind()
    tie = clock_tie([(EPOCH + 40, 200), (EPOCH - 60, 100)], iterations)
    assert tie == ClockTie(offset_ns=0, measured_ns=-10, uncertainty_ns=200, is_one_clock=True)
    other = clock_tie([(EPOCH + 5_000 * MS, 200)], iterations)
    assert other is not None
    assert (other.offset_ns, other.is_one_clock) == (5_000 * MS, False)
    assert clock_tie([], iterations) is None
    assert clock_tie([(EPOCH, 1)], iterations.iloc[:0]) is None


def test_failed_requests_are_no_requests() -> None:
    requests, _, iterations = three_steps_behind()
    failed = pd.concat([requests, requests.assign(request_id=7, status="failed").iloc[:1]], ignore_index=True)
    join = step_join(failed, iterations, SAME, token_budget=100)
    assert dataclasses.replace(join.alignment) == step_join(requests, iterations, SAME, token_budget=100).alignment
    assert 7 not in set(join.requests["request_id"])
