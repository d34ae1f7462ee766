"""What people ran into with torch profiler traces: one test a kind, a small input, the right answer end to end.

The kinds are numbered as in the project's list of public reports (R17 to R31). R31, clocks of two hosts, is with the
collectives.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_traces import ALL_REDUCE, BASE, GEMM, call, check, exactly, kernel, step, write

from perflab.analysis.breakdown import overlaps
from perflab.cli import main
from perflab.errors import InputError
from perflab.tasks.breakdown import breakdown
from perflab.tasks.imports import import_files


def test_r17_kernels_launched_early_by_design_overlap_without_alarm(tmp_path: Path) -> None:
    """Programmatic dependent launch lets a kernel begin 1 us before its predecessor ends: normal, counted once."""
    events = [kernel(GEMM, 1_000 + 9 * n, 10) for n in range(100)]
    report = breakdown(write(tmp_path / "t.json", events))
    (rank,) = report.ranks
    assert len(rank.kernels) == 100
    assert rank.busy_ns == rank.window_ns == (9 * 99 + 10) * 1_000
    assert rank.record["categories"]["gemm"]["raw_ns"] == 1_000_000
    assert check(report, "stream_overlap").status == "pass"


def test_r17_kernels_that_overlap_for_long_on_one_stream_are_doubted(tmp_path: Path) -> None:
    """The other side: half a kernel's length is more than an early launch explains."""
    events = [kernel(GEMM, 1_000 + 50 * n, 100) for n in range(100)]
    assert check(breakdown(write(tmp_path / "t.json", events)), "stream_overlap").status == "warn"


def test_r18_two_streams_that_run_at_once_are_100_percent_not_200(tmp_path: Path) -> None:
    """Compute and communication beside each other for 100 ms: busy 100 %, and the overlap is shown apart."""
    events = [kernel(GEMM, 1_000, 100_000, stream=7), kernel(ALL_REDUCE, 1_000, 100_000, stream=20)]
    (rank,) = breakdown(write(tmp_path / "t.json", events)).ranks
    shares = {name: category["share"] for name, category in rank.record["categories"].items()}
    assert rank.busy_ns == rank.window_ns == 100_000_000
    assert sum(shares.values()) == 1.0
    assert (shares["gemm"], shares["communication"]) == (1.0, 0.0), "communication is hidden, none of it is exposed"
    assert rank.record["categories"]["communication"]["raw_ns"] == 100_000_000
    both = overlaps(rank.kernels, rank.steps)
    assert both[["category", "with_category", "overlap_ns"]].to_numpy().tolist() == [
        ["gemm", "communication", 100_000_000]
    ]


def test_r19_durations_below_a_microsecond_stay_as_they_are(tmp_path: Path) -> None:
    """100.7 us plus 0.2 us: rounding both ends to whole microseconds would give -1, and lose the event."""
    events = [kernel(GEMM, exactly("100.7"), exactly("0.2")), kernel("_gumbel_sample_kernel", exactly("100.9"), 1)]
    (rank,) = breakdown(write(tmp_path / "t.json", events)).ranks
    assert rank.kernels["dur_ns"].tolist() == [200, 1_000]
    assert rank.kernels["start_ns"].tolist() == [BASE + 100_700, BASE + 100_900]
    assert (rank.window_ns, rank.idle_ns) == (1_200, 0)


def test_r20_time_bases_of_three_kinds_line_up_to_the_nanosecond(tmp_path: Path) -> None:
    """The same moment as whole microseconds since 1970, as such with decimals, and relative to a base."""
    epoch_us = BASE // 1_000
    files = {
        "rank0.json": ([kernel(GEMM, epoch_us + 5, 3)], None),
        "rank1.json": ([kernel(GEMM, exactly(f"{epoch_us + 5}.250"), 3)], None),
        "rank2.json": ([kernel(GEMM, exactly("1360000000005.500"), 3)], BASE - 1_360_000_000_000_000),
    }
    for number, (name, (events, base)) in enumerate(files.items()):
        write(tmp_path / name, events, rank=number, world=3, base=base)
    report = breakdown(tmp_path)
    starts = {rank.rank: int(rank.kernels["start_ns"].iloc[0]) - BASE for rank in report.ranks}
    assert starts == {0: 5_000, 1: 5_250, 2: 5_500}
    assert check(report, "ranks_present").status == "pass"


def test_r21_a_graph_replay_is_told_by_kernel_names_and_not_given_to_one_operator(tmp_path: Path) -> None:
    """500 kernels share the correlation id of one graph launch: they keep their names, and it is said that no
    operator called for them."""
    names = [GEMM, "void flash::FlashAttnFwdSm90<int>", "triton_red_fused_fused_add_rms_norm_2", ALL_REDUCE]
    events: list[dict[str, Any]] = [call("cudaGraphLaunch", 900, 10, 9)]
    events.append(
        {"ph": "X", "cat": "cpu_op", "name": "aten::the_only_one", "pid": 99, "tid": 99, "ts": 890, "dur": 30}
    )
    events += [kernel(names[n % 4], 1_000 + 10 * n, 10, correlation=9) for n in range(500)]
    report = breakdown(write(tmp_path / "t.json", events))
    (rank,) = report.ranks
    shares = {name: c["share"] for name, c in rank.record["categories"].items() if c["share"]}
    assert shares == {"attention": 0.25, "gemm": 0.25, "communication": 0.25, "norm_act": 0.25}
    assert set(rank.kernels["graph_id"]) == {9}
    replays = check(report, "graph_replays")
    assert "100.0 %" in replays.detail and "1 replays of up to 500 kernels" in replays.detail
    assert "no operators" in replays.detail
    assert "the_only_one" not in json.dumps(report.to_json())


def test_r22_what_lies_before_the_first_step_is_no_idle_time(tmp_path: Path) -> None:
    """A replay with gaps of 1 us, and 300 ms of nothing before it: the device was busy 90 % of its steps."""
    events = [kernel("warm_up", 0, 10), call("cudaGraphLaunch", 300_000, 5, 9)]
    events += [step(300_010, 1_000), step(301_010, 1_000)]
    events += [kernel(GEMM, 300_010 + 10 * n, 9, correlation=9) for n in range(200)]
    report = breakdown(write(tmp_path / "t.json", events))
    (rank,) = report.ranks
    assert rank.window_ns == 2_000_000
    assert rank.busy_ns == 200 * 9_000
    assert rank.idle["outside_ns"] >= 299_000_000
    assert rank.idle_ns == 200_000
    assert rank.idle["causes"]["in_graph"] == 199_000, "the last microsecond is the step's, behind the replay"


def test_r22_a_real_decode_is_97_percent_busy_inside_its_replay(shared: Path) -> None:
    """SGLang on MI300X: one gap of 463 ms before the graph was launched makes the step 97.9 % idle.

    It is told apart from the replay, put down to the host, and doubted, since Python stacks were recorded.
    """
    folder = shared / "fixtures" / "kineto" / "tracelens" / "inference" / "sglang_decode"
    report = breakdown(folder / "sglang_Qwen3-8B_decode.json.gz")
    (rank,) = report.ranks
    assert rank.busy_ns == pytest.approx(9.77e6, rel=0.01), "published beside the trace"
    assert rank.idle["causes"]["in_graph"] < 0.03 * rank.busy_ns
    assert rank.gaps["dur_ns"].max() > 0.999 * (rank.idle_ns - rank.idle["causes"]["in_graph"])
    assert rank.idle["causes"]["host_bound"] > 0.999 * (rank.idle_ns - rank.idle["causes"]["in_graph"])
    stacks = check(report, "profiler_overhead")
    assert stacks.status == "warn" and "causes of idle time" in stacks.undermines


NAMES = {
    "dp0_pp0_tp1_dcp0_ep1_rank1.1796052638281354642.pt.trace.json": 1,
    "rank3.1796052638281354642.pt.trace.json": 3,
    "rank-34.Jul_15_10_52_41.1074.pt.trace.json": 34,
    "1712345678.9-TP-2.trace.json": 2,
    "host_4711.1712345678901.pt.trace.json": 0,
}


@pytest.mark.parametrize(("name", "rank"), NAMES.items())
def test_r24_the_rank_is_taken_from_the_files_name_where_the_trace_is_silent(
    tmp_path: Path, name: str, rank: int
) -> None:
    """Names of vLLM, PyTorch and SGLang; where neither tells, rank 0, and a note says so."""
    file = write(tmp_path / name, [kernel(GEMM, 1, 2)], rank=None)
    (found,) = breakdown(file).ranks
    assert found.rank == rank
    (trace,) = breakdown(file).passes[0].source.traces()
    assert trace.notes == (
        ("The trace does not say which rank it is; taken from its file name.",)
        if rank
        else ("Neither the trace nor its file name says which rank it is; taken for rank 0.",)
    )


def test_r24_places_in_several_kinds_of_parallelism_make_one_rank(tmp_path: Path) -> None:
    """Two replicas of two: by its place in tensor parallelism alone each would be there twice."""
    for dp in (0, 1):
        for tp in (0, 1):
            write(tmp_path / f"17.3-TP-{tp}-DP-{dp}.trace.json", [kernel(f"{GEMM}_{dp}{tp}", 1, 2)], rank=None)
    report = breakdown(tmp_path)
    assert {rank.rank: str(rank.kernels["name"].iloc[0])[-2:] for rank in report.ranks} == {
        0: "00", 1: "01", 2: "10", 3: "11",
    }  # fmt: skip
    assert all(set(rank.table["rank"]) == {rank.rank} for rank in report.ranks)


def test_r24_two_files_that_claim_one_rank_are_refused_by_name(tmp_path: Path) -> None:
    """In a folder, and when given one by one; told by the trace or by the name."""
    one = write(tmp_path / "a_rank1.json", [kernel(GEMM, 1, 2)], rank=None)
    two = write(tmp_path / "b_rank1.json", [kernel(GEMM, 2, 2)], rank=None)
    for given in (tmp_path, [one, two]):
        with pytest.raises(InputError) as caught:
            breakdown(given)
        assert "a_rank1.json" in str(caught.value) and "b_rank1.json" in str(caught.value)
        assert "rank 1" in str(caught.value)


def test_r24_files_given_one_by_one_are_one_pass_where_they_fit(tmp_path: Path) -> None:
    """Two ranks at the same time belong together; the same rank an hour later is another pass."""
    files = [write(tmp_path / f"{n}.json", [kernel(GEMM, 1, 2)], rank=n, world=2) for n in (0, 1)]
    files.append(write(tmp_path / "later.json", [kernel(GEMM, 3_600_000_000, 2)], rank=0, world=2))
    report = breakdown(files)
    assert [[rank.rank for rank in one.ranks] for one in report.passes] == [[0, 1], [0]]


def test_r25_a_trace_cut_short_gives_its_complete_events(tmp_path: Path) -> None:
    """The compressed file ends after 70 %, as it does when the engine dies: what was whole is shown, with a warning."""
    rng = np.random.default_rng(1)
    events = [kernel(f"{GEMM}_{rng.integers(10**9)}", 1_000 + 10 * n, 5) for n in range(20_000)]
    packed = gzip.compress(write(tmp_path / "t.json", events).read_bytes())
    file = tmp_path / "rank0.pt.trace.json.gz"
    file.write_bytes(packed[: int(0.7 * len(packed))])
    report = breakdown(file)
    (rank,) = report.ranks
    assert 10_000 < len(rank.kernels) < 18_000
    assert (rank.kernels["dur_ns"] == 5_000).all()
    complete = check(report, "trace_complete")
    assert complete.status == "warn" and "end early" in complete.detail


def test_r25_text_of_another_process_inside_the_file_costs_only_its_place(tmp_path: Path) -> None:
    """All ranks wrote into one file: some strings never end. The rest is read, and what was not is counted."""
    text = write(tmp_path / "t.json", [kernel(GEMM, 1_000 + 10 * n, 5) for n in range(400)]).read_text()
    middle = text.index('{"ph"', len(text) // 2)
    torn = text[:middle] + '{"ph": "X", "cat": "kern{"schemaVersion": 1, "name": "never ends, ' + text[middle:]
    (tmp_path / "t.json").write_text(torn)
    report = breakdown(tmp_path / "t.json")
    assert 390 <= len(report.ranks[0].kernels) <= 400
    assert check(report, "trace_complete").status == "warn"
    assert "0 events could not be read" not in check(report, "trace_complete").detail


def test_r25_missing_ranks_are_counted(tmp_path: Path) -> None:
    """Three files of a run with eight ranks."""
    for rank in (0, 3, 5):
        write(tmp_path / f"rank{rank}.json", [kernel(GEMM, 1_000, 5)], rank=rank, world=8)
    report = breakdown(tmp_path)
    present = check(report, "ranks_present")
    assert (present.status, present.undermines) == ("warn", ("communication",))
    assert "3 of 8 ranks" in present.detail


def test_r27_launches_without_kernels_are_no_idle_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host launched and nothing was recorded on the device: said with its usual causes, and no figure is given.

    Its operators are no CPU engine either.
    """
    events = [call("cudaLaunchKernel", 10 * n, 5, n) for n in range(1, 50)]
    events += [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 99, "tid": 99, "ts": 10 * n, "dur": 8}
               for n in range(1, 50)]  # fmt: skip
    file = write(tmp_path / "t.json", events)
    assert main(["breakdown", str(file), "--json"]) == 2
    out = capsys.readouterr()
    document = json.loads(out.out)
    (rank,) = document["ranks"]
    assert rank["window_ns"] is rank["busy_ns"] is rank["idle_ns"] is None
    (gpu,) = [one for one in document["trust"] if one["check"] == "gpu_events"]
    assert gpu["status"] == "fail"
    assert "No GPU activity was recorded" in gpu["detail"] and "49 launch calls" in gpu["detail"]
    assert all(cause in gpu["detail"] for cause in ("CUPTI", "WSL", "stopped before", "only CPU"))
    assert document["findings"] == []
    assert len(out.err.splitlines()) == 1
    assert main(["breakdown", str(file)]) == 2
    shown = capsys.readouterr().out
    assert "0.0 %" not in shown and "no GPU activity was recorded" in shown


def test_r28_a_kernel_that_starts_before_its_launch_shows_clocks_apart(tmp_path: Path) -> None:
    """Launched at 10 us, started at 9.2 us: the link by correlation holds, no time becomes negative, and it is
    counted."""
    events = [call("cudaLaunchKernel", 10, 1, 1), kernel(GEMM, exactly("9.2"), 2, correlation=1)]
    events += [call("cudaLaunchKernel", 30, 1, 2), kernel(GEMM, 33, 2, correlation=2)]
    report = breakdown(write(tmp_path / "t.json", events))
    (rank,) = report.ranks
    clocks = check(report, "clocks_agree")
    assert clocks.status == "fail" and "1 of 2" in clocks.detail and "800 ns" in clocks.detail
    assert clocks.undermines == ("causes of idle time",)
    assert check(report, "launches_matched").detail.startswith("Launch calls and device work match: 0 of 2")
    assert (rank.gaps["dur_ns"] >= 0).all()
    assert rank.idle["causes"]["host_bound"] == rank.idle_ns == 21_800, "the second kernel was launched late"


LOG = """\
(APIServer pid=1) INFO 11-30 15:00:00 [api_server.py:10] vLLM API server version 0.25.1
(EngineCore pid=2) INFO 11-30 15:00:10 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: model='m'
(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /stop_profile HTTP/1.1" 500 Internal Server Error
(EngineCore pid=2) ERROR 11-30 15:10:00 [core.py:700]   File "vllm/v1/engine/core.py", line 350, in profile
(EngineCore pid=2) ERROR 11-30 15:10:00 [core.py:700]     self.model_executor.collective_rpc("profile", args=(on,))
(EngineCore pid=2) ERROR 11-30 15:10:00 [core.py:700]   File "vllm/v1/executor/multiproc_executor.py", line 277
(EngineCore pid=2) ERROR 11-30 15:10:00 [core.py:700] TimeoutError: {said}
"""


@pytest.mark.parametrize("said", ["RPC call to profile timed out.", ""])
@pytest.mark.parametrize("traced", [True, False])
def test_r29_a_log_in_which_stopping_the_profiler_timed_out_comes_with_advice(
    tmp_path: Path, traced: bool, said: str
) -> None:
    """Writing the trace took longer than vLLM waits: record less, or wait longer; whether or not a trace is there."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "server.log").write_text(LOG.format(said=said))
    if traced:
        write(tmp_path / "in" / "rank0.json", [kernel(GEMM, 1_000, 5)])
    run = import_files([tmp_path / "in"], tmp_path / "run")
    if traced:
        ended = check(breakdown(run.path), "profile_ended")
        assert ended.status == "warn"
        detail = ended.detail
    else:
        with pytest.raises(InputError) as caught:
            breakdown(run.path)
        detail = str(caught.value)
    assert all(word in detail for word in ("Line 7", "max_steps", "stack", "VLLM_RPC_TIMEOUT"))


def test_r29_another_timeout_is_not_the_profilers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "server.log").write_text(LOG.format(said="RPC call to execute_model timed out."))
    write(tmp_path / "in" / "rank0.json", [kernel(GEMM, 1_000, 5)])
    report = breakdown(import_files([tmp_path / "in"], tmp_path / "run").path)
    assert not [one for one in report.trust if one.check == "profile_ended"]


def test_r29_a_large_trace_is_read_in_memory_bounded_by_its_rows(tmp_path: Path) -> None:
    """Events with long stacks, 60 MB of text for 2000 kernels: the text is never held whole."""
    import tracemalloc

    from perflab.read.trace_files import read_traces

    padding = "x" * 30_000
    events = [kernel(GEMM, 1_000 + 10 * n, 5) for n in range(2_000)]
    for event in events:
        event["args"]["Call stack"] = padding
    file = write(tmp_path / "t.json", events)
    size = file.stat().st_size
    del events
    tracemalloc.start()
    (trace,) = read_traces(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.kernels) == 2_000
    assert size > 59e6 and peak < 0.5 * size
