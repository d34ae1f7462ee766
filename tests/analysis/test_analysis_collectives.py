"""Collectives matched across ranks: what waits, what transfers, and what found no partner."""

import pandas as pd
import pytest
from analysis_tables import steps
from collective_tables import CUSTOM, GATHER, NCCL, SEND, all_steps, meeting
from hypothesis import given
from hypothesis import strategies as st

from perflab import schema
from perflab.analysis.ranks.clock_offsets import clock_offsets
from perflab.analysis.ranks.collectives import match_collectives, parallel_groups, step_shifts

NO_STEPS = schema.empty("steps")


def waits(table: pd.DataFrame) -> list[list[int]]:
    """By collective, what each rank waited."""
    return [rows.sort_values("rank")["wait_ns"].tolist() for _, rows in table[table["seq"] >= 0].groupby("seq")]


def test_the_last_to_arrive_waits_least() -> None:
    """Rank 1 comes at 10, rank 0 at 4, both leave at 14: rank 0 waited 6, the transfer took 4."""
    table, left = match_collectives(meeting([(4, 10), (30, 22)]), all_steps(1, 100))
    assert waits(table) == [[6, 0], [0, 8]]
    assert table["transfer_ns"].tolist() == [4] * 4
    assert left == []
    schema.validate(table, "collectives")


def test_steps_phases_and_numbers() -> None:
    table, _ = match_collectives(meeting([(4, 10), (110, 104)]), all_steps(2, 100))
    assert table["step"].tolist() == [0, 0, 1, 1]
    assert table["seq"].tolist() == [0, 0, 1, 1]
    assert set(table["phase"]) == {"decode"}
    assert match_collectives(meeting([(4, 10)]), NO_STEPS)[0]["phase"].tolist() == ["all", "all"]


def test_ops_are_matched_apart() -> None:
    """An all-gather between the all-reduces takes the place of none of them."""
    both = pd.concat([meeting([(4, 10), (40, 41)]), meeting([(20, 21)], name=GATHER)])
    table, left = match_collectives(both, all_steps(1, 100))
    assert table[["op", "seq"]].drop_duplicates().to_numpy().tolist() == [
        ["all_reduce", 0], ["all_gather", 1], ["all_reduce", 2],
    ]  # fmt: skip
    assert left == []


def test_another_number_on_one_rank_is_matched_by_ends() -> None:
    """Rank 1 lost its second all-reduce of step 1: the third must not pass for it. Its clock is 5000 ahead."""
    ahead = {1: 5000}
    whole = meeting(
        [(t, t + 7) for t in range(10, 900, 100)] + [(1010, 1003), (1110, 1120), (1310, 1300)], clocks=ahead
    )
    cut = whole[~((whole["rank"] == 1) & (whole["start_ns"] == 1120 + 5000))]
    table, left = match_collectives(cut, all_steps(2, 1000, clocks=ahead))
    assert [(one.rank, one.op, one.reason, one.count, one.dur_ns) for one in left] == [
        (0, "all_reduce", "counts", 1, 14)
    ]
    last = table[table["step"] == 1]
    assert waits(last) == [[0, 7], [0, 10]]
    assert last.loc[last["seq"] < 0, ["wait_ns", "transfer_ns"]].isna().all(axis=None)


def test_without_anything_that_settles_it_nothing_is_matched() -> None:
    """Three against two, and no others to tell the clocks' offset."""
    odd = meeting([(4, 10), (30, 22), (50, 50)])
    odd = odd[~((odd["rank"] == 1) & (odd["start_ns"] == 10))]
    table, left = match_collectives(odd, all_steps(1, 100))
    assert (table["seq"] == -1).all()
    assert {(one.rank, one.reason, one.count) for one in left} == {(0, "counts", 3), (1, "counts", 2)}


def test_a_rank_without_a_trace() -> None:
    """Of three ranks two have traces: matched on two, though three take part."""
    work = meeting([(4, 10, 12)])
    table, left = match_collectives(work[work["rank"] < 2], all_steps(1, 100), groups=parallel_groups(3, tensor=3))
    assert table[["ranks", "group_size"]].to_numpy().tolist() == [[2, 3], [2, 3]]
    assert left == []
    alone, left = match_collectives(work[work["rank"] == 0], all_steps(1, 100, 1))
    assert alone["wait_ns"].isna().all() and [one.reason for one in left] == ["alone"]


def test_kernels_outside_the_steps_are_named() -> None:
    table, left = match_collectives(meeting([(4, 10), (500, 500)]), all_steps(1, 100))
    assert (table["seq"] >= 0).sum() == 2
    assert {(one.rank, one.reason, one.count) for one in left} == {(0, "outside", 1), (1, "outside", 1)}


def test_traces_that_begin_at_different_steps() -> None:
    """Rank 1's trace lacks the prefill: its first step is rank 0's second."""
    counted = all_steps(3, 100)
    counted["prefill_tokens"] = pd.array([64, 0, 0] * 2, dtype="Int64")
    counted["decode_tokens"] = pd.array([0, 8, 7] * 2, dtype="Int64")
    late = counted[~((counted["rank"] == 1) & (counted["step"] == 0))]
    late = late.assign(step=late["step"].where(late["rank"] == 0, late["step"] - 1))
    assert step_shifts(late) == {0: 0, 1: 1}
    work = meeting([(4, 10), (110, 104), (240, 241)])
    work = work[~((work["rank"] == 1) & (work["start_ns"] == 10))]
    table, left = match_collectives(work, late)
    assert waits(table) == [[0, 6], [1, 0]]
    assert table.loc[table["seq"] >= 0, "step"].tolist() == [1, 1, 2, 2]
    assert [(one.rank, one.reason) for one in left] == [(0, "alone")]


def test_groups_keep_tensor_parallel_pairs_apart() -> None:
    """Two pairs of two: what the one pair does says nothing of the other."""
    pairs = parallel_groups(4, tensor=2, pipeline=2)
    assert pairs["all_reduce"] == [(0, 1), (2, 3)]
    assert pairs["send_recv"] == [(0, 2), (1, 3)]
    table, left = match_collectives(meeting([(4, 10, 60, 50)]), all_steps(1, 200, 4), groups=pairs)
    assert sorted(table.groupby("seq")["rank"].apply(tuple)) == [(0, 1), (2, 3)]
    assert left == []


def test_sends_whose_peers_nothing_tells() -> None:
    table, left = match_collectives(meeting([(4, 10, 6)], name=SEND), all_steps(1, 100, 3))
    assert (table["seq"] == -1).all() and {one.reason for one in left} == {"peers"}
    two, left = match_collectives(meeting([(4, 10)], name=SEND), all_steps(1, 100))
    assert waits(two) == [[6, 0]] and left == []


def test_the_trace_names_groups_and_calls() -> None:
    """RCCL's kernel does anything; the call says what, and the group which ranks."""
    work = meeting([(4, 10, 90, 80)], name="ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    told = schema.conform(
        pd.DataFrame({
            "rank": range(4), "correlation_id": 100, "call": "allreduce", "in_bytes": 8, "out_bytes": 8,
            "tokens": pd.NA,
            "group": ["0,1", "0,1", "2,3", "2,3"], "group_size": 2, "source": "arguments",
        }),
        "messages",
    )  # fmt: skip
    table, _ = match_collectives(work, all_steps(1, 200, 4), told)
    assert set(table["op"]) == {"all_reduce"}
    assert sorted(table.groupby("seq")["rank"].apply(tuple)) == [(0, 1), (2, 3)]


@pytest.mark.parametrize(("world", "tensor", "pipeline", "data"), [(4, 3, 1, 1), (0, 1, 1, 1), (2, 1, 1, 1)])
def test_sizes_that_do_not_make_up_the_world(world: int, tensor: int, pipeline: int, data: int) -> None:
    assert parallel_groups(world, tensor=tensor, pipeline=pipeline, data=data) == {}


def test_experts_exchange_over_data_parallel_ranks() -> None:
    groups = parallel_groups(4, tensor=2, data=2)
    assert groups["all_reduce"] == [(0, 1), (2, 3)]
    assert groups["all_to_all"] == groups[""] == [(0, 1, 2, 3)]


def test_no_communication_at_all() -> None:
    table, left = match_collectives(schema.empty("kernels"), NO_STEPS)
    assert table.empty and left == []
    schema.validate(table, "collectives")


@st.composite
def timelines(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Some steps of some collectives on some ranks, each rank late at random; and how many ranks."""
    ranks, count = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    lines, at = [], 0
    for _ in range(count * draw(st.integers(1, 5))):
        late = draw(st.lists(st.integers(0, 50), min_size=ranks, max_size=ranks))
        lines.append([at + x for x in late])
        at += 100
    transfer = draw(st.integers(1, 40))
    return meeting(lines, transfer), all_steps(1, at, ranks), transfer


@given(timelines(), st.integers(-(10**12), 10**12))
def test_waiting_and_transfer_make_up_the_duration(made: tuple[pd.DataFrame, pd.DataFrame, int], ahead: int) -> None:
    work, known, transfer = made
    table, left = match_collectives(work, known)
    assert left == []
    assert (table["wait_ns"] + table["transfer_ns"] == table["dur_ns"]).all()
    assert (table["wait_ns"] >= 0).all()
    assert (table.groupby("seq")["wait_ns"].min() == 0).all()
    assert (table["transfer_ns"] == transfer).all()
    assert table["dur_ns"].sum() == work["dur_ns"].sum()

    def shifted(some: pd.DataFrame) -> pd.DataFrame:
        return some.assign(start_ns=some["start_ns"].where(some["rank"] != 1, some["start_ns"] + ahead))

    # A clock that is wrong by a constant changes nothing but the starts it wrote down.
    moved, left = match_collectives(shifted(work), shifted(known))
    assert left == []
    columns = ["rank", "seq", "step", "op", "dur_ns", "wait_ns", "transfer_ns"]
    order = ["seq", "rank"]
    pd.testing.assert_frame_equal(
        moved.sort_values(order, ignore_index=True)[columns], table.sort_values(order, ignore_index=True)[columns]
    )


def test_implementations_are_told() -> None:
    both = pd.concat([meeting([(4, 10)], name=CUSTOM), meeting([(40, 41)], name=NCCL)])
    table, _ = match_collectives(both, all_steps(1, 100))
    assert table["by"].astype(str).tolist() == ["custom", "custom", "nccl", "nccl"]


class TestClocks:
    def test_a_host_that_is_ahead(self) -> None:
        """R31: the same collectives, the second host 3.5 ms ahead; ends scatter by 20."""
        lines = [(n * 1000, n * 1000 + (n * 37) % 200) for n in range(40)]
        scatter = [(0, (n * 7) % 41 - 20) for n in range(40)]
        table, _ = match_collectives(meeting(lines, 50, clocks={1: 3_500_000}, jitter=scatter), NO_STEPS)
        (found,) = clock_offsets(table)
        assert (found.rank, found.reference) == (1, 0)
        assert abs(found.offset_ns - 3_500_000) <= 20
        assert found.uncertainty_ns <= 20
        assert found.drift_ppm == 0
        assert found.low_ns <= 3_500_000 <= found.high_ns and found.is_possible

    def test_a_clock_that_runs_fast(self) -> None:
        """100 ppm over 4 s: 400 us in all, far more than the scatter."""
        lines = [(n * 10**8, n * 10**8 + (n * 37) % 200) for n in range(40)]
        work = meeting(lines, 5000)
        second = work["rank"] == 1
        work = work.assign(start_ns=work["start_ns"].where(~second, (work["start_ns"] * 1.0001).astype("int64")))
        table, _ = match_collectives(work, NO_STEPS)
        (found,) = clock_offsets(table)
        assert found.drift_ppm == pytest.approx(100, rel=0.01)
        assert found.uncertainty_ns < 300
        assert found.is_possible

    def test_kernels_that_cannot_belong_together(self) -> None:
        """A clock that jumps by more than any collective lasts: no offset makes all of them overlap."""
        lines = [(n * 1000, n * 1000) for n in range(20)]
        work = meeting(lines, 50)
        jump = (work["rank"] == 1) & (work["start_ns"] >= 10_000)
        work = work.assign(start_ns=work["start_ns"] + 400 * jump)
        (found,) = clock_offsets(match_collectives(work, NO_STEPS)[0])
        assert not found.is_possible

    def test_too_few_to_say(self) -> None:
        assert clock_offsets(match_collectives(meeting([(0, 1)] * 1), NO_STEPS)[0]) == []

    def test_large_transfers_do_not_blur_the_clocks(self) -> None:
        """Ends of long rings lie 20 us apart both ways; the short ones settle it."""
        short = meeting([(n * 1000, n * 1000 + 9) for n in range(20)], 40)
        lines = [(10**6 + n * 10**6, 10**6 + n * 10**6) for n in range(20)]
        apart = [(0, 20_000 if n % 2 else -20_000) for n in range(20)]
        table, _ = match_collectives(pd.concat([short, meeting(lines, 230_000, name=NCCL, jitter=apart)]), NO_STEPS)
        (found,) = clock_offsets(table)
        assert abs(found.offset_ns) < 10 and found.uncertainty_ns < 10


def test_steps_of_ranks_with_other_batches_keep_their_order() -> None:
    """Data parallel ranks run other batches in step: nothing but their number and time says which belong together."""
    known = steps(("decode", 0, 100, 0), ("decode", 100, 100, 0), ("decode", 3, 100, 1), ("decode", 103, 100, 1))
    known["decode_tokens"] = pd.array([1, 2, 5, 6], dtype="Int64")
    assert step_shifts(known) == {0: 0, 1: 0}
