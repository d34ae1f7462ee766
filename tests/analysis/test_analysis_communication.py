"""Sizes and bandwidth of collectives, the checks about them, and the finding."""

import dataclasses
from typing import Any

import pandas as pd
import pytest
from analysis_tables import kernels
from collective_tables import CUSTOM, GATHER, NCCL, SEND, all_steps, meeting

from perflab import schema
from perflab.analysis.check import COMMUNICATION
from perflab.analysis.findings import pass_findings
from perflab.analysis.model.graph_padding import CaptureSizes
from perflab.analysis.ranks.collectives import match_collectives
from perflab.analysis.ranks.communication import Communication, communication, communication_checks
from perflab.analysis.ranks.sizes import bus_factor, by_size, with_sizes
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.analysis.unprofiled import Unprofiled
from perflab.knowledge.gpus import Link, gpu_spec
from perflab.runs import Engine

US = 1000
NVLINK = Link("NVLink 4", 450e9, 450e9, "")


def messages(*rows: dict[str, Any]) -> pd.DataFrame:
    """Table `messages`; a row needs correlation_id and in_bytes."""
    blank = {"rank": 0, "call": "vllm::all_reduce", "out_bytes": None, "tokens": None, "group": "", "group_size": None}
    names = schema.TABLES["messages"].names
    frame = pd.DataFrame([{**blank, "source": "shape", **row} for row in rows], columns=names)
    return schema.conform(frame, "messages")


def counted(tokens: int, *, ranks: int = 2, count: int = 1, length: int = 10**9) -> pd.DataFrame:
    known = all_steps(count, length, ranks)
    return known.assign(
        prefill_tokens=pd.array([0] * len(known), dtype="Int64"),
        decode_tokens=pd.array([tokens] * len(known), dtype="Int64"),
    )


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75), ("reduce_scatter", 2, 0.5),
        ("all_to_all", 8, 0.875), ("send_recv", 2, 1.0), ("broadcast", 8, 1.0), ("other", 2, None),
        ("all_reduce", 1, None),
    ],
)  # fmt: skip
def test_formulas_of_nccl_tests(op: str, ranks: int, factor: float | None) -> None:
    assert bus_factor(op, ranks) == factor
    assert bus_factor("all_reduce", 8, in_network=True) == pytest.approx(7 / 9)


def test_bandwidth_of_a_known_message() -> None:
    """45 MB in 200 us is 225 GB/s; between 2 ranks that is the bus bandwidth, half of the link's 450."""
    table, _ = match_collectives(meeting([(0, 9), (10**6, 10**6 + 5)], 200 * US, name=NCCL), all_steps(1, 10**7))
    told = messages(*[{"correlation_id": n, "in_bytes": 45 * 10**6} for n in (100, 101)])
    sized = with_sizes(table, told, schema.empty("steps"))
    assert sized["bytes"].tolist() == [45 * 10**6] * 4, "what rank 0's trace says holds for rank 1 too"
    assert set(sized["bytes_source"]) == {"shape"}
    (row,) = by_size(sized, NVLINK).to_dict("records")
    assert (row["count"], row["transfer_ns"]) == (2, 200 * US)
    assert row["algorithm_bandwidth"] == row["bus_bandwidth"] == pytest.approx(225e9)
    assert (row["of_peak"], row["bound"]) == (pytest.approx(0.5), "bandwidth")


def test_a_gather_counts_what_comes_out() -> None:
    table, _ = match_collectives(meeting([(0, 9)], 10 * US, name=GATHER), all_steps(1, 10**7))
    told = messages({"correlation_id": 100, "in_bytes": 4 * 10**6, "out_bytes": 8 * 10**6, "source": "arguments"})
    (row,) = by_size(with_sizes(table, told, schema.empty("steps")), NVLINK).to_dict("records")
    assert row["bytes"] == 8 * 10**6
    assert row["bus_bandwidth"] == pytest.approx(8e6 / 10e-6 / 2)
    # Where only the input's shape is known, the group makes it the output's.
    shaped = with_sizes(table, messages({"correlation_id": 100, "in_bytes": 4 * 10**6}), schema.empty("steps"))
    assert shaped["bytes"].tolist() == [8 * 10**6] * 2


def test_small_messages_are_bound_by_latency() -> None:
    """64 KiB would take NVLink 0.15 us; that it took 4 us is the kernel's doing, not a slow link."""
    table, _ = match_collectives(meeting([(0, 9)], 4 * US), all_steps(1, 10**7))
    (row,) = by_size(
        with_sizes(table, messages({"correlation_id": 100, "in_bytes": 65536}), schema.empty("steps")), NVLINK
    ).to_dict("records")
    assert row["bound"] == "latency" and row["of_peak"] == pytest.approx(65536 / 4e-6 / 450e9)


def test_more_than_the_link_carries_is_called_implausible() -> None:
    table, _ = match_collectives(meeting([(0, 9)], 100 * US), all_steps(1, 10**7))
    told = messages({"correlation_id": 100, "in_bytes": 90 * 10**6})
    assert by_size(with_sizes(table, told, schema.empty("steps")), NVLINK)["bound"].tolist() == ["implausible"]


def test_a_switch_that_reduces_needs_less_of_the_link() -> None:
    """256 MB in 700 us among 8: GPUs that reduce would need 640 GB/s of the link's 450, the switch (NVLS) 284."""
    lines = [(0,) * 8]
    told = messages({"correlation_id": 100, "in_bytes": 256 * 10**6})

    def sized(name: str, ranks: int) -> dict[str, Any]:
        table, _ = match_collectives(meeting([lines[0][:ranks]], 700 * US, name=name), all_steps(1, 10**7, ranks))
        (row,) = by_size(with_sizes(table, told, schema.empty("steps")), NVLINK).to_dict("records")
        return row

    nvls = sized(NCCL, 8)
    assert nvls["in_network"] and nvls["bound"] == "bandwidth"
    assert nvls["bus_bandwidth"] == pytest.approx(256e6 / 700e-6 * 7 / 9)
    multimem = sized("multimem_all_reduce_kernel", 8)
    assert multimem["in_network"] and multimem["bus_bandwidth"] == nvls["bus_bandwidth"]
    ring = sized("two_shot_all_reduce_kernel_inplace", 8)
    assert ring["bound"] == "implausible" and not ring["in_network"], "those kernels reduce on the GPUs"
    assert not sized(NCCL, 2)["in_network"]


def test_what_is_not_known_is_not_said() -> None:
    table, _ = match_collectives(meeting([(0, 9)], 4 * US), all_steps(1, 10**7))
    sized = with_sizes(table, None, counted(8), capture=CaptureSizes((8,)))
    assert sized["bytes"].isna().all() and set(sized["bytes_source"]) == {""}
    (row,) = by_size(sized, NVLINK).to_dict("records")
    assert row["bus_bandwidth"] is None and row["bound"] is None
    known = with_sizes(table, messages({"correlation_id": 100, "in_bytes": 65536}), schema.empty("steps"))
    (row,) = by_size(known, None).to_dict("records")
    assert row["bus_bandwidth"] == pytest.approx(65536 / 4e-6) and row["of_peak"] is None


class TestInference:
    def test_hidden_size_times_tokens(self) -> None:
        table, _ = match_collectives(meeting([(0, 9)], 4 * US), counted(7))
        sized = with_sizes(table, None, counted(7), hidden_size=4096, itemsize=2)
        assert sized["bytes"].tolist() == [7 * 4096 * 2] * 2
        assert set(sized["bytes_source"]) == {"inferred"}

    def test_a_graph_pads_the_batch(self) -> None:
        """7 tokens replay the graph of 8; of 600 there is none, so they are computed as they are."""
        for tokens, rows in ((7, 8), (600, 600)):
            table, _ = match_collectives(meeting([(0, 9)], 4 * US, graph_id=3), counted(tokens))
            sized = with_sizes(
                table, None, counted(tokens), hidden_size=4096, itemsize=2, capture=CaptureSizes((1, 2, 4, 8, 512))
            )
            assert sized["bytes"].tolist() == [rows * 4096 * 2] * 2

    def test_without_the_captured_sizes_a_graphs_padding_is_unknown(self) -> None:
        table, _ = match_collectives(meeting([(0, 9)], 4 * US, graph_id=3), counted(7))
        assert with_sizes(table, None, counted(7), hidden_size=4096, itemsize=2)["bytes"].isna().all()

    def test_the_size_of_a_token_is_learned_from_another_all_reduce(self) -> None:
        """The first was launched by itself, with its shape; the second is like it, without."""
        known = counted(8, count=2)
        table, _ = match_collectives(meeting([(0, 9), (10**9, 10**9 + 5)], 4 * US), known)
        told = messages({"correlation_id": 100, "in_bytes": 8 * 8192 * 2, "tokens": 8})
        sized = with_sizes(table, told, known)
        assert sized["bytes"].tolist() == [131072] * 4
        assert sized["bytes_source"].tolist() == ["shape", "shape", "inferred", "inferred"]

    def test_a_trace_that_contradicts_stops_it(self) -> None:
        """Sequence parallel layers exchange less than a row a token."""
        known = counted(8, count=2)
        table, _ = match_collectives(meeting([(0, 9), (10**9, 10**9 + 5)], 4 * US), known)
        told = messages({"correlation_id": 100, "in_bytes": 4 * 8192 * 2, "tokens": 4})
        sized = with_sizes(table, told, known, hidden_size=8192, itemsize=2)
        assert sized.loc[sized["step"] == 1, "bytes"].isna().all()

    def test_other_collectives_are_left_alone(self) -> None:
        table, _ = match_collectives(meeting([(0, 9)], 4 * US, name=GATHER), counted(7))
        assert with_sizes(table, None, counted(7), hidden_size=4096, itemsize=2)["bytes"].isna().all()


def late(rank: int, by: int, *, steps: int = 8, transfer: int = 4 * US, name: str = CUSTOM) -> Communication:
    """Ten collectives in each of some steps of 1 ms, to which one of two ranks comes late."""
    lines = [
        tuple(n * 10**6 + c * 90_000 + (by if r == rank else 0) for r in range(2))
        for n in range(steps)
        for c in range(10)
    ]
    found = communication(
        meeting(lines, transfer, name=name), counted(8, count=steps, length=10**6), device="NVIDIA H200"
    )
    assert found is not None
    return found


def test_two_of_many_ranks_need_not_send_to_each_other() -> None:
    work = meeting([(n * 1000, n * 1000 + 5) for n in range(10)], name=SEND)
    two = communication(work, schema.empty("steps"), world=2)
    many = communication(work, schema.empty("steps"), world=128)
    assert two is not None and many is not None
    assert len(two.matched) == 20 and many.matched.empty
    assert {one.reason for one in many.unmatched} == {"peers"}


class TestChecks:
    def test_sound(self) -> None:
        checks = communication_checks(late(0, 500), run="a run")
        assert [(c.check, c.status, c.source) for c in checks] == [
            ("collectives_matched", "pass", "a run"), ("ranks_aligned", "pass", "a run"),
        ]  # fmt: skip

    def test_one_rank_has_nothing_to_check(self) -> None:
        alone = communication(meeting([(0,)]), all_steps(1, 100, 1))
        assert alone is not None and communication_checks(alone) == []
        assert communication_checks(None) == []
        assert communication(kernels({"start": 0, "dur": 5, "category": "gemm"}), all_steps(1, 100)) is None

    def test_clocks_that_cannot_be_reconciled_withhold_what_rests_on_them(self) -> None:
        work = meeting([(n * 1000, n * 1000) for n in range(20)], 50)
        jump = (work["rank"] == 1) & (work["start_ns"] >= 10_000)
        found = communication(work.assign(start_ns=work["start_ns"] + 400 * jump), schema.empty("steps"))
        aligned = communication_checks(found)[1]
        assert (aligned.status, aligned.undermines) == ("fail", (COMMUNICATION,))
        assert "300 ns" in aligned.detail, "400 apart, of which each end may take 50"

    def test_what_found_no_partner_is_said_with_rank_op_and_time(self) -> None:
        work = meeting([(4, 10), (30, 22), (50, 50)])
        found = communication(work[~((work["rank"] == 1) & (work["start_ns"] == 50))], all_steps(1, 100))
        matched = communication_checks(found)[0]
        assert matched.status == "warn" and "3 all_reduce of rank 0" in matched.detail

    def test_uncertain_ends(self) -> None:
        """Ends scatter by more than the transfers take."""
        lines = [(n * 1000, n * 1000) for n in range(16)]
        found = communication(meeting(lines, 50, jitter=[(0, 200 * (n % 2)) for n in range(16)]), all_steps(1, 10**5))
        assert communication_checks(found)[1].status == "warn"


def test_json_is_the_contract() -> None:
    found = late(0, 500)
    (op,) = found.to_json()
    assert {key: op[key] for key in ("op", "count", "transfer_ns", "wait_ns_by_rank")} == {
        "op": "all_reduce", "count": 80, "transfer_ns": 80 * 4 * US, "wait_ns_by_rank": {"0": 0, "1": 80 * 500},
    }  # fmt: skip
    assert op["phases"]["decode"]["count"] == 80 and op["kernels"] == {CUSTOM: 160} and op["unmatched"] == []
    assert op["bytes"] is None, "not known is null, never 0"
    (offset,) = found.clocks_json()["offsets"]
    assert (offset["rank"], offset["offset_ns"]) == (1, 0)
    assert found.clocks_json()["stragglers"][0]["verdict"] == "straggler"


def facts(found: Communication | None, exposed_ns: list[int], window_ns: int = 10**6, **settings: Any) -> PassFacts:
    """Two ranks, 8 decode steps of 1 ms; what communication each has for itself in a step, the rest GEMM."""

    def record(rank: int, talk: int) -> dict[str, Any]:
        steps = 8
        own = dict.fromkeys(schema.CATEGORIES, 0) | {"communication": talk, "gemm": window_ns - talk}
        empty = {"steps": 0, "window_ns": 0, "busy_ns": 0, "idle_ns": 0, "categories": {}}
        decode = {
            "steps": steps, "window_ns": steps * window_ns, "busy_ns": steps * window_ns, "idle_ns": 0,
            "categories": {
                name: {"exclusive_ns": steps * ns, "raw_ns": steps * ns, "share": ns / window_ns}
                for name, ns in own.items()
            },
        }  # fmt: skip
        return {"rank": rank, "kind": "gpu", "phases": {"prefill": empty, "mixed": empty, "decode": decode}}

    ranks = [RankFacts(record(rank, ns), {}) for rank, ns in enumerate(exposed_ns)]
    return PassFacts(ranks, Engine(settings=settings), communication=found)


class TestFinding:
    def only(self, given: PassFacts) -> Any:
        (found,) = [one for one in pass_findings(given) if one.id == "exposed_communication"]
        return found

    def test_waiting_names_the_straggler_and_what_it_does_longer(self) -> None:
        """Rank 0 is 10 us late ten times a step: rank 1 waits 100 us, of 140 us of communication."""
        found = self.only(facts(late(0, 10 * US), [40 * US, 140 * US]))
        assert "waiting for another rank" in found.title
        assert found.impact == {"value": pytest.approx(0.05), "unit": "ms/step"}
        text = " ".join(found.evidence)
        assert "The others wait for rank 0: in 8 of 8 decode steps" in text
        assert "rank 0 spends more time on than the others is mostly GEMM: 100 µs" in text
        assert "not what to mend" in found.change

    def test_waiting_at_the_start_of_steps_points_at_the_hosts(self) -> None:
        """Only the first collective of a step waits."""
        lines = [(n * 10**6 + c * 90_000 + 800, n * 10**6 + c * 90_000) for n in range(8) for c in range(1, 11)]
        first = [(n * 10**6 + 80 * US, n * 10**6) for n in range(8)]
        made = communication(meeting([*first, *lines], 2 * US), counted(8, count=8, length=10**6), device="NVIDIA H200")
        found = self.only(facts(made, [22 * US, 102 * US]))
        assert "do not keep step" in found.change
        assert "90.9 % of the waiting is for the first collective" in " ".join(found.evidence)
        assert (found.severity, found.confidence) == ("info", 0.4), "nothing tells what of it the profiler made"

    def test_what_the_profiler_made_of_the_waiting_is_taken_off(self) -> None:
        """80 us a step of waiting for rank 0's host; unprofiled, a step is 60 us shorter."""
        first = [(n * 10**6 + 160 * US, n * 10**6) for n in range(8)]
        lines = [(n * 10**6 + c * 90_000,) * 2 for n in range(8) for c in range(2, 11)]
        made = communication(meeting([*first, *lines], 4 * US), counted(8, count=8, length=10**6), device="NVIDIA H200")
        given = facts(made, [40 * US, 200 * US])
        whole = self.only(given)
        assert "waiting" in whole.title and whole.severity == "info"
        short = Unprofiled(step_ns=940 * US, concurrency=8, point="c8", batch=8)
        part = self.only(dataclasses.replace(given, unprofiled=short))
        assert "at most 20.0 µs a step is the engine's own" in " ".join(part.evidence)
        assert "6.4 %" in part.title, "40 us of transfer and 20 of waiting in a step of 940"
        none = Unprofiled(step_ns=900 * US, concurrency=8, point="c8", batch=8)
        found = pass_findings(dataclasses.replace(given, unprofiled=none))
        assert found == [], "4.4 % of transfer is left, which is no finding"

    def test_small_messages_by_nccl_with_the_custom_kernel_off(self) -> None:
        made = late(0, 0, transfer=12 * US, name=NCCL)
        sized = communication(
            meeting([(n * 10**6 + c * 90_000,) * 2 for n in range(8) for c in range(10)], 12 * US, name=NCCL),
            counted(8, count=8, length=10**6), device="NVIDIA H200", hidden_size=4096, itemsize=2,
        )  # fmt: skip
        assert made.sizes["bound"].tolist() == [None], "without a size nothing is said of bandwidth"
        found = self.only(facts(sized, [120 * US] * 2, disable_custom_all_reduce=True))
        assert "--disable-custom-all-reduce" in found.change and found.confidence == 0.9
        assert "bound by latency" in found.title
        found = self.only(facts(sized, [120 * US] * 2))
        assert "all-reduce backends" in found.change

    def test_a_fusion_that_was_asked_for_and_did_not_come(self) -> None:
        sized = communication(
            meeting([(n * 10**6 + c * 90_000,) * 2 for n in range(8) for c in range(10)], 12 * US),
            counted(8, count=8, length=10**6), device="NVIDIA H200", hidden_size=4096, itemsize=2,
        )  # fmt: skip
        key = "compilation_config.pass_config.fuse_allreduce_rms"
        assert "FlashInfer" in self.only(facts(sized, [120 * US] * 2, **{key: True})).change
        assert "FlashInfer" not in self.only(facts(sized, [120 * US] * 2, **{key: False})).change

    def test_large_messages_are_bound_by_bandwidth(self) -> None:
        sized = communication(
            meeting([(n * 10**7 + c * 900_000,) * 2 for n in range(8) for c in range(10)], 230 * US, name=NCCL),
            counted(3585, count=8, length=10**7), device="NVIDIA H200", hidden_size=8192, itemsize=2,
        )  # fmt: skip
        found = self.only(facts(sized, [2300 * US] * 2, window_ns=10**7))
        assert "bound by bandwidth" in found.title
        assert "255 GB/s, 56.8 % of what NVLink 4 carries in one direction (450 GB/s)" in " ".join(found.evidence)
        assert found.impact == {"value": pytest.approx(2.3), "unit": "ms/step"}

    def test_without_collectives_it_says_what_it_knows(self) -> None:
        found = self.only(facts(None, [100 * US, 150 * US]))
        assert found.title == "Communication that nothing hides takes 12.5 % of the decode time"
        assert found.impact == {"value": pytest.approx(0.1), "unit": "ms/step"}

    def test_a_little_is_no_finding(self) -> None:
        assert pass_findings(facts(late(0, 500), [10 * US, 10 * US])) == []


def test_links_by_name() -> None:
    spec = gpu_spec("NVIDIA H200")
    assert spec is not None and spec.link.among(2) == 450e9
