"""R31 of the public reports, end to end: traces of ranks on two hosts whose clocks disagree."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from reported_traces import ALL_REDUCE, GEMM, check, kernel, step, write

from perflab import terminal
from perflab.cli import main
from perflab.tasks.breakdown import BreakdownReport, breakdown

AHEAD_US = 3_500
STEPS, EACH, STEP_US = 10, 12, 2_000


def two_hosts(folder: Path, *, lag_us: float = 30.0, scatter_us: float = 0.0, jump_us: float = 0.0) -> BreakdownReport:
    """Decode steps of 12 layers; rank 0 computes longer by a lag, rank 1's host is 3.5 ms ahead.

    `scatter_us`: how far the ends that rank 1's clock wrote down lie apart at random. `jump_us`: by how much that clock
    is set on in the middle.
    """
    rng = random.Random(0)
    events: list[list[dict[str, Any]]] = [[], []]
    for number in range(STEPS):
        ahead = (0, AHEAD_US + (jump_us if number >= STEPS // 2 else 0))
        start = 10_000 + number * STEP_US
        for rank in (0, 1):
            events[rank].append(step(start + ahead[rank], STEP_US - 200))
        for layer in range(EACH):
            begin = start + 150 * layer
            arrivals = (begin + 50 + lag_us, begin + 50)
            end = max(arrivals) + 20
            for rank in (0, 1):
                late = rng.uniform(-scatter_us, scatter_us) if rank else 0.0
                at = ahead[rank]
                events[rank].append(kernel(GEMM, round(begin + at, 3), round(arrivals[rank] - begin, 3)))
                events[rank].append(
                    kernel(ALL_REDUCE, round(arrivals[rank] + at, 3), round(end - arrivals[rank] + late, 3))
                )
    for rank in (0, 1):
        write(folder / f"rank{rank}.pt.trace.json", events[rank], rank=rank, world=2)
    return breakdown(folder)


def test_the_offset_is_found_and_the_straggler_named_all_the_same(tmp_path: Path) -> None:
    report = two_hosts(tmp_path)
    found = report.passes[0].communication
    assert found is not None
    (offset,) = found.offsets
    assert offset.offset_ns == pytest.approx(3_500_000, abs=10)
    aligned = check(report, "ranks_aligned")
    assert aligned.status == "pass" and "3.50 ms ahead of that of rank 0" in aligned.detail
    straggler = found.straggler("decode")
    assert straggler is not None and (straggler.verdict, straggler.rank) == ("straggler", 0)
    assert straggler.lag_ns == pytest.approx(12 * 30_000, abs=100)
    totals = found.totals().set_index("rank")
    assert totals["wait_ns"].tolist() == pytest.approx([0, STEPS * EACH * 30_000], abs=2_000)
    assert totals["transfer_ns"].tolist() == pytest.approx([STEPS * EACH * 20_000] * 2, abs=2_000)


def test_no_straggler_where_the_clocks_are_less_certain_than_the_lag(tmp_path: Path) -> None:
    """A lag of 0.5 us, and ends that scatter by 10 us."""
    report = two_hosts(tmp_path, lag_us=0.5, scatter_us=10.0)
    found = report.passes[0].communication
    assert found is not None
    (offset,) = found.offsets
    assert abs(offset.offset_ns - 3_500_000) < 5_000
    assert 5_000 < offset.uncertainty_ns < 12_000
    straggler = found.straggler("decode")
    assert straggler is not None and straggler.verdict != "straggler"
    row = next(line for line in terminal.breakdown(report).splitlines() if line.split()[:2] == ["decode", str(STEPS)])
    assert "no rank consistently" in row or "not certain" in row


def test_a_clock_that_jumps_fails_the_check_and_withholds_the_finding(tmp_path: Path) -> None:
    report = two_hosts(tmp_path, jump_us=700)
    aligned = check(report, "ranks_aligned")
    assert aligned.status == "fail" and aligned.undermines == ("communication",)
    (finding,) = [one for one in report.findings if one.id == "exposed_communication"]
    assert finding.withheld and finding.evidence == (aligned.detail,)


def test_the_document_holds_offset_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_hosts(tmp_path)
    assert main(["breakdown", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (op,) = document["collectives"]
    assert (op["op"], op["count"], op["wait_ns_by_rank"]["0"]) == ("all_reduce", STEPS * EACH, 0)
    (clocks,) = document["communication"]
    assert clocks["offsets"][0]["offset_ns"] == pytest.approx(3_500_000, abs=10)
    assert clocks["stragglers"][0]["verdict"] == "straggler"
