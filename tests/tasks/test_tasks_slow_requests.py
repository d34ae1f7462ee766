"""From a slow request to its cause, on runs of a simulated engine and on recorded ones."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from slow_runs import MS, burst, change, write_run

from perflab import terminal
from perflab.analysis.requests.path import CAUSES
from perflab.cli import main
from perflab.errors import InputError
from perflab.read.files import read_text
from perflab.report.slow_views import path_pieces, similar_steps_table, slow_notes, slow_pieces, slow_table
from perflab.tasks.slow_requests import SlowPoint, SlowReport, similar_kernels, slow_requests

RECORDED = ("llama3-8b-bf16-3x", "llama3-8b-tp2-custom", "qwen3-30b-a3b-ep2")


@pytest.fixture(scope="module")
def recorded() -> SlowReport:
    return slow_requests(RECORDED)


def point_of(report: SlowReport, run: str, name: str) -> SlowPoint:
    return next(one for one in report.points if one.run.path.name == run and one.name == name)


def test_who_waited_for_the_only_seat_is_said_to_have_waited(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", burst(), seats=1, settings={"max_num_seqs": 1, "max_num_batched_tokens": 128})
    report = slow_requests(run, percentile=90)
    (point,) = report.points
    assert point.missing is None
    assert point.alignment is not None and point.alignment.quality == 1
    tail = point.tails["ttft"]
    assert set(tail.slow) <= {21, 22, 23} and 23 in tail.slow
    assert tail.cause == "queued"
    # A request takes 12 ms for its prompt and 4 x 10 ms; the three are taken in after the first one's prompt.
    assert point.paths is not None
    waited = point.paths.ttft.set_index("request_id").loc[[20, 21, 22, 23], "queued"] / MS
    assert waited.tolist() == [0, 40, 40 + 52, 40 + 2 * 52]
    assert tail.parts["excess_ns"].sum() == pytest.approx(tail.slow_ns - tail.typical_ns)
    finding = next(one for one in report.findings if one.id == "slow_tail_queued" and "TTFT" in one.title)
    assert "--max-num-seqs" in finding.change and "seats" in finding.change
    assert terminal.slow_requests(report).count("waiting in the engine") >= 2


def test_free_seats_are_told_apart_from_taken_ones(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", burst(), seats=1, settings={"max_num_seqs": 64, "max_num_batched_tokens": 128})
    report = slow_requests(run, percentile=90)
    finding = next(one for one in report.findings if one.id == "slow_tail_queued")
    assert finding.change.startswith("There were free seats")


def test_too_few_requests_make_no_finding(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", burst()[12:], seats=1)
    report = slow_requests(run, percentile=90)
    assert report.points[0].tails["ttft"].cause == "queued"
    assert report.findings == []


@pytest.mark.parametrize(("file", "changes", "told"), [
    ("bench/c4.json", {"input_lens": None, "output_lens": None, "start_times": None, "ttfts": None, "itls": None,
                       "errors": None}, "--save-detailed"),
    ("bench/c4.json", {"start_times": None}, "does not say when requests were sent"),
    ("manifest.json", {"step_records": []}, "no step records"),
    ("manifest.json", {"clock": None}, "No clock anchors"),
    ("clock.json", {"anchors": []}, "No clock anchors"),
    ("clock.json", {"shared_between_processes": False}, "CLOCK_MONOTONIC"),
])  # fmt: skip
def test_what_is_missing_is_said_and_how_to_record_it(
    tmp_path: Path, file: str, changes: dict[str, object], told: str
) -> None:
    run = change(write_run(tmp_path / "run", burst(), seats=1), file, **changes)
    report = slow_requests(run)
    (point,) = report.points
    assert point.missing is not None and told in point.missing
    assert point.tails == {} and report.findings == [] and slow_pieces(report) == []
    assert any(told in note for note in slow_notes(report))
    assert slow_table(report).empty
    assert told in " ".join(terminal.slow_requests(report).split())
    with pytest.raises(InputError, match=told):
        point.strip(0)


def test_records_that_do_not_fit_are_not_used(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", burst(), seats=1)
    lines = (run / "step_records.jsonl").read_text().splitlines()
    (run / "step_records.jsonl").write_text("\n".join([lines[0], *lines[20:]]) + "\n")
    (point,) = slow_requests(run).points
    assert point.missing is not None and "do not fit" in point.missing and point.tails == {}
    two = [json.dumps(json.loads(line) | {"engine": k % 2}) for k, line in enumerate(lines[1:])]
    (run / "step_records.jsonl").write_text("\n".join([lines[0], *two]) + "\n")
    (point,) = slow_requests(run).points
    assert point.missing is not None and "2 engines" in point.missing


def test_a_point_that_is_not_there_and_a_wrong_percentile_are_refused() -> None:
    with pytest.raises(InputError, match="no measured point"):
        slow_requests("llama3-8b-tp2-custom", point="nope")
    with pytest.raises(InputError, match="percentile 20"):
        slow_requests("llama3-8b-tp2-custom", percentile=20)


def test_every_recorded_request_is_placed_and_its_latencies_sum(recorded: SlowReport) -> None:
    count = 0
    for point in recorded.points:
        assert point.alignment is not None and point.alignment.quality == 1, point.name
        assert point.tie is not None and point.tie.is_one_clock and point.tie.uncertainty_ns < 5_000
        assert point.paths is not None and point.measured.requests is not None
        requests = point.measured.requests
        for table, end in ((point.paths.ttft, "first_token_ns"), (point.paths.e2el, "finish_ns")):
            assert (table["total_ns"].to_numpy() == (requests[end] - requests["arrival_ns"]).to_numpy(np.int64)).all()
            assert (table[list(CAUSES)].to_numpy() >= 0).all(), point.name
        count += len(requests)
    assert count == 2148 + 312 + 312


def test_first_tokens_of_each_step_are_those_the_server_wrote(recorded: SlowReport) -> None:
    """Counted again from the file's own lines: 512 prompt tokens for each request that got its first token there."""
    point = point_of(recorded, "llama3-8b-bf16-3x", "closed-i512-o128-c128-s0-n1")
    text = read_text(point.run.path / "step_records.jsonl.xz")[0]
    written = {record["m"]: record for line in text.splitlines() if "generated" in (record := json.loads(line))}
    assert point.join is not None
    steps, placed = point.join.steps, point.join.requests
    for step, mine in placed.groupby("first_step"):
        assert written[int(steps["seen_ns"].iloc[step])]["prompt"] == 512 * len(mine)
    assert (placed["last_step"] - placed["first_step"] == 127).all()


def test_queue_and_prefill_are_those_of_the_servers_own_histograms(recorded: SlowReport) -> None:
    """vLLM times queue and prefill of each request itself; counting steps comes to the same means."""
    for point in recorded.points:
        (queue, server_queue), (prefill, server_prefill) = (point.agreement[name] for name in ("queue", "prefill"))
        assert server_queue is not None and server_prefill is not None
        assert queue == pytest.approx(server_queue, rel=0.05, abs=1 * MS), point.name
        assert prefill == pytest.approx(server_prefill, rel=0.07), point.name
    queues = [point.agreement["queue"][0] / MS for point in recorded.points if "c128" in point.name]
    assert len(queues) == 3 and min(queues) > 250, "at 128 requests there was a queue to find"


def test_causes_of_recorded_tails(recorded: SlowReport) -> None:
    busy = point_of(recorded, "llama3-8b-bf16-3x", "closed-i512-o128-c128-s0-n2")
    assert {name: tail.cause for name, tail in busy.tails.items()} == {
        "ttft": "queued", "tpot": "others_prefill", "itl": "others_prefill", "e2el": None,
    }  # fmt: skip
    assert busy.findings["ttft"].change.startswith("There were free seats"), "1,024 seats, 128 requests"
    alone = point_of(recorded, "llama3-8b-bf16-3x", "closed-i512-o128-c1-s0-n0")
    assert all(tail.cause is None for tail in alone.tails.values())
    assert not any("others_prefill" in finding.id for finding in alone.findings.values())
    # Qwen's steps with prompts wait for the host: 118 to 134 ms at 512 tokens, 131 to 141 ms at 7,500.
    qwen = point_of(recorded, "qwen3-30b-a3b-ep2", "closed-i512-o128-c32-s0-n1").findings["itl"]
    assert "--max-cudagraph-capture-size" in qwen.change and "--max-num-batched-tokens" not in qwen.change
    assert "--max-num-batched-tokens" in busy.findings["itl"].change
    ids = {finding.id for finding in recorded.findings}
    assert {"slow_tail_queued", "slow_tail_others_prefill"} <= ids


def test_a_front_end_that_paused_is_not_taken_for_the_engine(recorded: SlowReport) -> None:
    """The widest gap of the first Qwen request, 18.1 ms: three records follow within 0.4 ms, so no step was slow."""
    point = point_of(recorded, "qwen3-30b-a3b-ep2", "closed-i512-o128-c1-s0-n0")
    assert point.paths is not None and point.join is not None and point.measured.chunks is not None
    chunks = point.measured.chunks
    mine = chunks[chunks["request_id"] == 0]
    widest = int(mine["arrival_ns"].diff().idxmax())
    gap = int(mine["arrival_ns"].diff().max())
    assert 18 * MS < gap < 18.5 * MS
    last = int(point.join.requests["first_step"].iloc[0]) + int(chunks["chunk_index"].loc[widest])
    near = point.join.steps.iloc[last - 1 : last + 5]
    assert (near["seen_ns"].diff() > 17 * MS).sum() == 1
    assert (near["end_ns"].diff() < 8 * MS).sum() == 5


def test_similar_steps_are_near_and_those_that_are_not_are_not_shown(recorded: SlowReport) -> None:
    point = point_of(recorded, "llama3-8b-bf16-3x", "open-i512-o128-r8-s0-n0")
    first, decode = similar_kernels(point, point.tails["ttft"].slow[0])
    assert (decode.wanted.phase, decode.wanted.batch) == ("decode", 8) and decode.steps
    assert decode.nearest == (8, 0)
    assert sum(decode.categories.values()) == pytest.approx(5 * MS, rel=0.5)
    assert first.wanted.prompt_tokens == 512
    busy = point_of(recorded, "llama3-8b-bf16-3x", "closed-i512-o128-c128-s0-n0")
    assert [one.steps for one in similar_kernels(busy, 0)][1] == (), "8 requests were profiled, not 128"
    table = similar_steps_table(SlowReport(99.0, [busy, point]))
    assert set(table["point"]) == {point.name}, "the point that has similar steps"
    assert table["like its"].tolist() == ["first-token step", "decode steps"]
    assert table["GEMM_ns"].isna().tolist() == [True, False]
    told = [name for name in table.columns if name.endswith("_ns")]
    assert "the rest_ns" in told and len(told) < 7, "what takes little is told together"


def test_views_show_the_point_with_most_requests(recorded: SlowReport) -> None:
    pieces = slow_pieces(recorded)
    assert [piece["of"].split(", ")[0] for piece in pieces] == list(RECORDED)
    assert "c128" in pieces[0]["of"]
    assert [type(piece["life"]).__name__ for piece in path_pieces(recorded)] == ["Life"] * 3
    table = slow_table(recorded)
    assert (table["slowest_ms"] > table["typical_ms"]).all()
    assert any("2,148 of 2,148 requests" in note for note in slow_notes(recorded))


def test_the_command_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(write_run(tmp_path / "run", burst(), seats=1, settings={"max_num_seqs": 1}))
    assert main(["latency", run, "--explain", "p90", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["slow_requests"]
    assert (found["missing"], found["tails"]["ttft"]["cause"]) == (None, "queued")
    causes = found["tails"]["ttft"]["causes"]
    assert sum(one["slow_ns"] for one in causes.values()) == pytest.approx(found["tails"]["ttft"]["slow_ns"], abs=9)
    assert main(["latency", run, "--explain"]) == 0
    assert "waiting in the engine" in capsys.readouterr().out
    assert main(["latency", run, "--json"]) == 0
    assert "slow_requests" not in json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["latency", run, "--explain", "12"])


def test_tables_are_not_changed(recorded: SlowReport) -> None:
    point = recorded.points[0]
    assert point.measured.requests is not None
    before = point.measured.requests.copy()
    point.strip(0)
    pd.testing.assert_frame_equal(point.measured.requests, before)


def test_requests_that_a_real_engine_preempted_are_found() -> None:
    """vLLM 0.32 on two CPU cores: blocks for four requests that need five. The server counted six preemptions.

    No step tells whose place was lost: six requests live through 23 steps more than they have tokens, and that hole is
    where their widest gap between chunks is.
    """
    (point,) = slow_requests(Path(__file__).parent / "preempted_cpu").points
    assert point.missing is None and point.alignment is not None and point.alignment.quality == 1
    assert point.paths is not None and point.join is not None and point.measured.chunks is not None
    counted = point.measured.server.deltas["num_preemptions"]
    split = point.paths.e2el.set_index("request_id")["preempted"]
    lost = split[split > 0]
    assert len(lost) == counted == point.join.steps["preemptions"].sum() == 6
    assert set(point.join.requests["missed"]) == {0, 23}
    for request_id in lost.index:
        stretch = point.strip(int(request_id))
        hole = stretch[stretch["cause"] == "preempted"].iloc[0]
        times = point.measured.chunks.loc[point.measured.chunks["request_id"] == request_id, "arrival_ns"].to_numpy()
        widest = int(np.argmax(np.diff(times)))
        assert times[widest] <= hole["start_ns"] + 50 * MS and hole["end_ns"] <= times[widest + 1]
        assert lost[request_id] > 0.9 * (times[widest + 1] - times[widest])
    queue, server_queue = point.agreement["queue"]
    assert server_queue is not None and queue == pytest.approx(server_queue, rel=0.01)
