"""Collectives of the recorded tensor-parallel runs: against a separate count, against NVLink, and against compute."""

import json
import lzma
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflab import terminal
from perflab.analysis.model.graph_padding import capture_sizes
from perflab.analysis.ranks.clock_offsets import clock_offsets
from perflab.analysis.ranks.collectives import match_collectives
from perflab.analysis.ranks.communication import Communication
from perflab.analysis.ranks.sizes import with_sizes
from perflab.tasks.breakdown import BreakdownReport, breakdown

RUNS = {
    "llama3-8b-tp2": (65, 4096), "llama3-70b-bf16-tp2": (161, 8192), "llama3-70b-awq-tp2": (161, 8192),
    "llama3-8b-tp2-custom": (65, 4096), "llama3-8b-tp2-nccl": (65, 4096), "qwen3-30b-a3b-ep2": (97, 2048),
}  # fmt: skip
"""Run -> all-reduces of a step (two a layer and one behind the embedding), and hidden size."""

WORDS = {"all_reduce": ("AllReduce", "cross_device_reduce"), "all_gather": ("AllGather",)}


@lru_cache(maxsize=16)
def report(name: str) -> BreakdownReport:
    return breakdown(name)


@pytest.fixture(params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def communication(name: str) -> Communication:
    found = report(name).passes[0].communication
    assert found is not None
    return found


@lru_cache(maxsize=8)
def events(path: Path) -> list[dict[str, Any]]:
    """The kernels of a trace by the standard library alone."""
    with lzma.open(path, "rt") as file:
        found = json.load(file, parse_float=Decimal)["traceEvents"]
    return [event for event in found if event.get("cat") == "kernel"]


def test_sums_agree_with_a_count_of_the_files(name: str) -> None:
    found = communication(name)
    for op in found.to_json():
        words = WORDS[op["op"]]
        counted = {
            rank.rank: [event for event in events(rank.source) if any(word in event["name"] for word in words)]
            for rank in report(name).ranks
        }
        assert {len(some) for some in counted.values()} == {op["count"]}
        for rank, some in counted.items():
            total = sum(int(Decimal(event["dur"]) * 1000) for event in some)
            assert op["transfer_ns"] + op["wait_ns_by_rank"][str(rank)] == total
        assert op["unmatched"] == []
        assert sum(phase["count"] for phase in op["phases"].values()) == op["count"]
        assert sum(phase["transfer_ns"] for phase in op["phases"].values()) == op["transfer_ns"]


def test_every_step_has_its_all_reduces(name: str) -> None:
    each, _ = RUNS[name]
    reduces = communication(name).matched.query("op == 'all_reduce' and rank == 0")
    assert reduces.groupby("step").size().tolist() == [each] * 10


def test_clocks_of_one_host_agree_to_a_microsecond(name: str) -> None:
    (offset,) = communication(name).offsets
    assert abs(offset.offset_ns) < 1000 and offset.uncertainty_ns < 1000 and offset.is_possible
    checks = {check.check: check.status for check in report(name).trust}
    assert checks["collectives_matched"] == checks["ranks_aligned"] == "pass"


def test_sizes_and_bandwidth_are_plausible_for_nvlink(name: str) -> None:
    """Large all-reduces reach 27 to 59 % of 450 GB/s and never more; what a decode step sends is bound by latency."""
    _, hidden = RUNS[name]
    sizes = communication(name).sizes
    assert sizes["bytes"].notna().all()
    assert (sizes["of_peak"] < 1).all() and not (sizes["bound"] == "implausible").any()
    reduces = sizes[sizes["op"] == "all_reduce"].set_index("phase")
    assert reduces.loc["mixed", "bytes"] == 3585 * hidden * 2
    assert reduces.loc["mixed", "bytes_source"] == "shape"
    assert 200e9 < reduces.loc["mixed", "bus_bandwidth"] < 270e9
    assert reduces.loc["prefill", "bytes"] == 512 * hidden * 2
    assert 120e9 < reduces.loc["prefill", "bus_bandwidth"] < 220e9
    decode = sizes[sizes["phase"] == "decode"]
    assert set(decode["bound"]) == {"latency"}
    # One token, then 8 and 7, which a graph of 8 computes alike.
    assert sorted(decode.loc[decode["op"] == "all_reduce", "bytes"]) == [hidden * 2, 8 * hidden * 2]
    by_nccl = decode["by"] == "nccl"
    each = decode.loc[decode["op"] == "all_reduce", "transfer_ns"]
    assert each.between(*((6000, 7500) if by_nccl.all() else (3500, 5000))).all()


def test_the_custom_kernel_is_faster_for_small_messages_and_not_used_for_large_ones() -> None:
    """The same engine with and without `--disable-custom-all-reduce`."""

    def transfers(name: str) -> dict[tuple[str, int], tuple[str, float]]:
        sizes = communication(name).sizes
        reduces = sizes[sizes["op"] == "all_reduce"].to_dict("records")
        return {(row["phase"], int(row["bytes"])): (row["by"], float(row["transfer_ns"])) for row in reduces}

    custom, nccl = transfers("llama3-8b-tp2-custom"), transfers("llama3-8b-tp2-nccl")
    assert custom.keys() == nccl.keys()
    assert {by for by, _ in nccl.values()} == {"nccl"}
    for key, (by, took) in custom.items():
        ratio = took / nccl[key][1]
        if key[1] > 8 << 20:
            assert by == "nccl" and ratio == pytest.approx(1, abs=0.03), "vLLM's kernel takes up to 8 MiB"
        else:
            assert by == "custom" and 0.5 < ratio < 0.7


def test_what_the_profiler_made_of_the_waiting_is_not_charged_to_the_engine() -> None:
    """Profiled, rank 0 waits 2.6 ms a step for rank 1's host; unprofiled, a whole step of a larger batch takes 5.0."""
    (found,) = [one for one in report("llama3-8b-tp2-nccl").findings if one.id == "exposed_communication"]
    assert found.severity == "info" and "bound by latency" in found.title
    text = " ".join(found.evidence)
    assert "the profiler can have made all of the waiting" in text and "first collective of a step" in text
    assert found.change.startswith("Serve without `--disable-custom-all-reduce`")
    assert found.impact is not None and 0.15 < found.impact["value"] < 0.25, "TPOT differs by 0.26 ms between the runs"


def test_an_inferred_size_is_the_recorded_one(name: str) -> None:
    """The shape of the mixed step's all-reduces was recorded; without it, hidden size and tokens give the same."""
    _, hidden = RUNS[name]
    found, one = communication(name), report(name).passes[0]
    steps = pd.concat([rank.steps for rank in one.ranks])
    blank = found.table.assign(bytes=pd.array([pd.NA] * len(found.table), dtype="Int64"), bytes_source="")
    capture = capture_sizes(one.source.engine.settings)
    sized = with_sizes(blank, None, steps, hidden_size=hidden, itemsize=2, capture=capture)
    reduces = sized["op"] == "all_reduce"
    assert sized.loc[reduces, "bytes"].tolist() == found.table.loc[reduces, "bytes"].tolist()


@pytest.mark.parametrize(("name", "category"), [("llama3-70b-bf16-tp2", "gemm"), ("llama3-70b-awq-tp2", "gemm")])
def test_what_one_rank_waits_is_what_the_other_computes_longer(name: str, category: str) -> None:
    """The mixed step of 0.4 s: rank 0's matmuls take longer by what rank 1, within a sixth, waits more."""
    totals = communication(name).totals().set_index(["phase", "rank"])["wait_ns"]
    more = totals["mixed", 1] - totals["mixed", 0]
    own, other = (rank.record["phases"]["mixed"]["categories"][category]["exclusive_ns"] for rank in report(name).ranks)
    assert more > 10**6
    assert own - other == pytest.approx(more, rel=1 / 6)


def test_the_step_that_waited_for_a_host() -> None:
    """Step 7 of the 8B run lasts 5.0 ms, not 3.8: rank 0's host launched late, and rank 1 waited 0.9 ms for it."""
    found = communication("llama3-8b-tp2").matched
    waits = found[(found["step"] == 7) & (found["rank"] == 1)]
    first = waits.loc[waits["start_ns"].idxmin()]
    assert first["wait_ns"] > 900_000 > 20 * waits["wait_ns"].drop(first.name).max()
    idle = [
        rank.table.query("step == 7 and category == 'idle'")["exclusive_ns"].item()
        for rank in report("llama3-8b-tp2").ranks
    ]
    assert idle[0] - idle[1] == pytest.approx(first["wait_ns"], rel=0.05)


@pytest.mark.parametrize(("name", "share"), [("llama3-8b-tp2", 0.05), ("qwen3-30b-a3b-ep2", 0.01)])
def test_lost_kernels_are_never_matched_with_the_wrong_ones(name: str, share: float) -> None:
    """Of one rank's kernels some are lost at random: what is matched still is what was matched in the whole."""
    ranks = report(name).ranks
    whole = pd.concat(
        [rank.kernels[rank.kernels["category"] == "communication"].astype({"name": str}) for rank in ranks]
    )
    steps = pd.concat([rank.steps for rank in ranks])
    table, _ = match_collectives(whole, steps)
    truth = partners(table)
    lost = np.random.default_rng(0).random(len(whole)) < share
    kept = whole[~((whole["rank"] == 1) & lost)]
    cut, left = match_collectives(kept, steps)
    found = partners(cut)
    assert len(found) > 0.5 * len(truth)
    assert all(truth[start] == partner for start, partner in found.items())
    assert sum(one.count for one in left) + 2 * len(found) == len(kept)


def partners(table: pd.DataFrame) -> dict[int, int]:
    """Start on rank 0 -> start on rank 1 of what was matched."""
    wide = table[table["seq"] >= 0].pivot(index="seq", columns="rank", values="start_ns")
    return dict(zip(wide[0], wide[1], strict=True))


@pytest.mark.parametrize(("name", "ahead"), [("llama3-8b-tp2", 3_500_000), ("llama3-70b-awq-tp2", -40_000_000_000)])
def test_a_host_whose_clock_is_far_off(name: str, ahead: int) -> None:
    ranks = report(name).ranks
    work = pd.concat(
        [rank.kernels[rank.kernels["category"] == "communication"].astype({"name": str}) for rank in ranks]
    )
    steps = pd.concat([rank.steps for rank in ranks])
    shifted = [frame.assign(start_ns=frame["start_ns"] + ahead * (frame["rank"] == 1)) for frame in (work, steps)]
    table, left = match_collectives(shifted[0], shifted[1])
    assert left == []
    (offset,), (own,) = clock_offsets(table), communication(name).offsets
    assert offset.offset_ns == pytest.approx(own.offset_ns + ahead, abs=1)
    assert table["wait_ns"].sum() == communication(name).table["wait_ns"].sum()


def test_one_trace_of_two_says_nothing_of_waiting() -> None:
    (rank,) = (rank for rank in report("llama3-8b-tp2").ranks if rank.rank == 0)
    alone = breakdown(str(rank.source)).passes[0].communication
    assert alone is not None
    assert alone.matched.empty and alone.stragglers == [] and alone.offsets == []
    assert {one.reason for one in alone.unmatched} == {"alone"}
    (reduce, _) = alone.to_json()
    assert (reduce["count"], reduce["wait_ns_by_rank"], reduce["unmatched"][0]["count"]) == (0, {}, 650)


def test_a_single_gpu_does_not_communicate() -> None:
    one = report("llama3-8b-bf16")
    assert one.passes[0].communication is None
    assert one.to_json()["collectives"] == []


def test_the_text_says_how_the_link_was_used() -> None:
    shown = terminal.breakdown(report("llama3-70b-bf16-tp2"))
    assert "collectives of 2 ranks" in shown
    assert "NVLink 4 carries 450 GB/s in one direction" in shown
    line = next(line for line in shown.splitlines() if "56.0 MiB" in line)
    assert line.split() == [
        "all_reduce",
        "nccl",
        "mixed",
        "56.0",
        "MiB",
        "161",
        "230",
        "µs",
        "255.4",
        "56.7",
        "%",
        "bandwidth",
    ]


def test_the_finding_of_the_8b_run() -> None:
    (found,) = [one for one in report("llama3-8b-tp2").findings if one.id == "exposed_communication"]
    text = " ".join(found.evidence)
    assert "bound by latency" in found.title
    assert "455 all-reduces of 64.0 KiB each (inferred" in text and "NVLink 4 would move that in 146 ns" in text
    assert "No rank is waited for consistently" in text
    assert "FlashInfer" in found.change, "its log says that the fused kernel was skipped without it"
    assert found.impact is not None and 0.2 < found.impact["value"] < 0.3
