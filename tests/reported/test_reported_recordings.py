"""What people ran into with Nsight Systems (R32, R33), and the rest of what such a recording can hide."""

import json
from pathlib import Path

import pytest
from reported_traces import check
from small_nsys import Export

from perflab.cli import main
from perflab.tasks.breakdown import BreakdownReport, breakdown
from perflab.tasks.imports import import_files
from perflab.tasks.traces import has_measured_traces

GEMM = "nvjet_sm90_tst_64x8_TNT"
ADVICE = ("--trace-fork-before-exec=true", "VLLM_WORKER_MULTIPROC_METHOD=spawn", "--capture-range=cudaProfilerApi")


def decode(export: Export, steps: int = 4, pid: int = 10, device: int = 0) -> Export:
    """Decode steps of 1 ms: a GEMM for 600 us, attention for 200, a copy for 100, then 100 of nothing."""
    for number in range(steps):
        at = 1_000_000 * (number + 1)
        export.range("execute_context_0(0)_generation_4(4)", at - 60_000, at - 10_000, pid=pid)
        export.kernel(GEMM, at, at + 600_000, pid=pid, device=device, launched=at - 50_000)
        export.kernel("flash_fwd_kernel", at + 600_000, at + 800_000, pid=pid, device=device, launched=at - 40_000)
        used = export.call("cudaMemcpyAsync_v3020", at - 30_000, at - 25_000, pid=pid)
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=at + 800_000, end=at + 900_000, deviceId=device, streamId=7,
            correlationId=used, globalPid=(1 << 48) | pid << 24, bytes=4096, copyKind=2, srcKind=2, dstKind=1,
        )  # fmt: skip
    return export


def report_of(export: Export, tmp_path: Path) -> BreakdownReport:
    return breakdown(export.write(tmp_path / "x.sqlite"))


def told_with_advice(report: BreakdownReport, status: str) -> None:
    found = check(report, "processes_recorded")
    assert found.status == status
    assert "from 1 of 8 processes" in found.detail
    assert all(word in found.detail for word in ADVICE)
    assert found.undermines == ("communication",)


def test_r32_eight_processes_called_and_one_has_kernels(tmp_path: Path) -> None:
    """All eight launched; the device side of seven is not there."""
    export = decode(Export())
    for pid in range(11, 18):
        export.call("cudaLaunchKernel_v7000", 1_000, 1_005, pid=pid)
    report = report_of(export, tmp_path)
    told_with_advice(report, "fail")
    assert [rank.rank for rank in report.ranks] == [0], "nothing is shown of processes nothing is known of"


def test_r32_eight_workers_by_name_and_one_has_kernels(tmp_path: Path) -> None:
    """Not even the calls of the others were recorded: nsys did not follow the fork."""
    export = decode(Export())
    for number in range(8):
        export.process(10 + number, f"VLLM::Worker_TP{number}")
    told_with_advice(report_of(export, tmp_path), "fail")


def test_r32_eight_processes_of_one_name_are_a_doubt(tmp_path: Path) -> None:
    """Without vLLM's names they may be workers or helpers; both are said."""
    export = decode(Export())
    for number in range(8):
        export.process(10 + number, "python3")
    export.process(99, "bash")
    report = report_of(export, tmp_path)
    told_with_advice(report, "warn")
    assert "only help" in check(report, "processes_recorded").detail


def test_r32_helpers_beside_two_workers_with_kernels_raise_no_alarm(tmp_path: Path) -> None:
    export = decode(decode(Export()), pid=11, device=1)
    for number in range(8):
        export.process(10 + number, "python3")
    assert check(report_of(export, tmp_path), "processes_recorded").status == "pass"


def test_r32_a_recording_without_kernels_is_no_idle_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no table of kernels at all: named, with advice, and without any figure."""
    export = Export()
    for pid in range(10, 18):
        export.call("cudaLaunchKernel_v7000", 1_000, 1_005, pid=pid)
    file = export.write(tmp_path / "x.sqlite")
    assert main(["breakdown", str(file), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    by = {one["check"]: one for one in document["trust"]}
    assert by["gpu_events"]["status"] == by["recorded_tables"]["status"] == "fail"
    assert "CUPTI_ACTIVITY_KIND_KERNEL is missing" in by["recorded_tables"]["detail"]
    assert "from 0 of 8 processes" in by["processes_recorded"]["detail"]
    assert all(rank["busy_ns"] is None and rank["idle_ns"] is None for rank in document["ranks"])


def test_r33_time_of_copies_is_not_idle(tmp_path: Path) -> None:
    """Kernel, 80 ns of copying, kernel: idle 0, and the copy stands apart."""
    export = Export()
    export.kernel(GEMM, 1_000, 1_010)
    export.copy(1, 1_010, 1_090)
    export.kernel(GEMM, 1_090, 1_100)
    (rank,) = report_of(export, tmp_path).ranks
    assert (rank.window_ns, rank.busy_ns, rank.idle_ns) == (100, 100, 0)
    categories = rank.record["categories"]
    assert (categories["gemm"]["exclusive_ns"], categories["memory"]["exclusive_ns"]) == (20, 80)


def test_steps_come_from_nvtx_ranges_through_their_launches(tmp_path: Path) -> None:
    """vLLM's `cuda` profiler annotates the host; steps lie where the work launched inside ran."""
    report = report_of(decode(Export()), tmp_path)
    (rank,) = report.ranks
    assert rank.steps["phase"].tolist() == ["decode"] * 4
    assert rank.steps["decode_tokens"].tolist() == [4] * 4
    assert rank.steps["dur_ns"].tolist() == [1_000_000] * 3 + [900_000]
    shares = {name: c["share"] for name, c in rank.record["phases"]["decode"]["categories"].items() if c["share"]}
    assert shares == {"gemm": 2_400 / 3_900, "attention": 800 / 3_900, "memory": 400 / 3_900}
    assert rank.idle_ns == 300_000
    assert rank.idle["causes"]["host_bound"] == 300_000, "each step was launched after the one before had ended"
    assert all(one.status in ("pass", "not_applicable") for one in report.trust), [c.detail for c in report.trust]


def test_two_workers_are_two_ranks_of_one_pass(tmp_path: Path) -> None:
    report = report_of(decode(decode(Export()), pid=11, device=1), tmp_path)
    (only,) = report.passes
    assert [rank.rank for rank in only.ranks] == [0, 1]
    assert [rank.record["phases"]["decode"]["steps"] for rank in only.ranks] == [4, 4]
    told = check(report, "ranks_present")
    assert told.status == "pass" and "order of the GPUs" in told.detail


def test_a_guess_at_ranks_is_said(tmp_path: Path) -> None:
    """Two processes that each see one GPU as their device 0, and nothing that names them."""
    told = check(report_of(decode(decode(Export()), pid=11), tmp_path), "ranks_present")
    assert told.status == "warn" and "numbered in the order" in told.detail


def test_graphs_as_blocks_are_opaque_and_what_kernels_are_for_is_withheld(tmp_path: Path) -> None:
    """`--cuda-graph-trace=graph`, the default: one row a launch. Its time is told, its content is not."""
    export = Export()
    for number in range(4):
        at = 1_000_000 * (number + 1)
        export.range("execute_context_0(0)_generation_4(4)", at - 60_000, at - 10_000)
        export.graph(109, at, at + 900_000, launched=at - 50_000)
    report = report_of(export, tmp_path)
    (rank,) = report.ranks
    assert rank.record["categories"]["graph_opaque"]["exclusive_ns"] == rank.busy_ns == 3_600_000
    opened = check(report, "graphs_opened")
    assert opened.status == "fail" and "--cuda-graph-trace=node" in opened.detail
    assert "what kernels are for" in opened.undermines
    assert "100.0 %" in opened.detail and "4 CUDA graph launches" in opened.detail
    assert check(report, "gpu_events").status == "pass"


def test_beside_opaque_graphs_the_host_is_judged_and_categories_are_not(tmp_path: Path) -> None:
    """That the device waits is certain; that copies take much of a step is not, since those in graphs are hidden."""
    export = Export()
    for number in range(6):
        at = 1_000_000 * (number + 1)
        export.range("execute_context_0(0)_generation_4(4)", at - 60_000, at - 5_000)
        export.graph(109, at, at + 300_000, launched=at - 50_000)
        export.copy(1, at + 300_000, at + 500_000)
        used = export.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]
        used["start"], used["end"] = at - 20_000, at - 15_000
    by = {finding.id: finding for finding in report_of(export, tmp_path).findings}
    assert by["host_bound"].severity == "critical" and not by["host_bound"].withheld
    assert by["copies_in_step"].withheld
    assert "--cuda-graph-trace=node" in by["copies_in_step"].evidence[0]


def test_what_the_recorder_says_of_loss_is_passed_on(tmp_path: Path) -> None:
    export = decode(Export())
    text = "CUPTI: 1234 events were dropped because buffers were full."
    export.add("DIAGNOSTIC_EVENT", timestamp=1, timestampType=1, source=1, severity=2, text=text)
    found = check(report_of(export, tmp_path), "recorder_messages")
    assert found.status == "warn" and "events are missing" in found.detail and text in found.detail


def test_an_export_gives_the_same_in_a_file_a_folder_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = decode(Export()).write(tmp_path / "in" / "report1.sqlite")
    run = import_files([tmp_path / "in"], tmp_path / "run")
    (profile,) = run.manifest.profiles
    assert (profile.kind, profile.reports, profile.traces) == ("nsys", ["profile/nsys/report1.sqlite"], [])
    assert [gpu.name for gpu in run.manifest.hardware.gpus] == ["NVIDIA H200"]
    assert has_measured_traces(run), "reports have a page on it"
    records = [breakdown(given).ranks[0].record for given in (file, tmp_path / "in", run.path)]
    assert records[0] == records[1] == records[2]


def test_capture_ranges_of_a_run_are_passes_of_their_own(tmp_path: Path) -> None:
    """nsys writes a report a range; each holds the same ranks at another time."""
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        export = Export()
        export.rows["TARGET_INFO_SESSION_START_TIME"][0]["utcEpochNs"] += number * 10**9
        decode(export, steps=number + 1).write(tmp_path / "in" / f"system.{number}.sqlite")
    run = import_files([tmp_path / "in"], tmp_path / "run")
    report = breakdown(run.path)
    assert [len(one.ranks[0].steps) for one in report.passes] == [2, 3]
    assert len({one.source.run for one in report.passes}) == 2


def test_a_report_that_was_not_exported_is_answered_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "system.nsys-rep").write_bytes(b"report\0\1" * 100)
    for given in (tmp_path, tmp_path / "system.nsys-rep"):
        with pytest.raises(Exception, match=r"nsys export --type=sqlite --output=system\.sqlite system\.nsys-rep"):
            breakdown(given)


def test_import_keeps_a_report_and_says_how_to_use_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    decode(Export()).write(tmp_path / "in" / "system.sqlite")
    (tmp_path / "in" / "system.nsys-rep").write_bytes(b"report\0\1" * 100)
    run = import_files([tmp_path / "in"], tmp_path / "run")
    assert run.manifest.other_files == ["other/system.nsys-rep"]
    assert any("system.nsys-rep" in note and "nsys export" in note for note in run.manifest.notes)
