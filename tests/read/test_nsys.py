"""Exports of Nsight Systems: small ones whose answer is visible, real ones against counts made in SQL, hostile ones."""

import gzip
import lzma
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_nsys import START_UTC, Export, pid_id

from perflab.analysis.intervals import union_length
from perflab.errors import InputError
from perflab.read.files import sniff
from perflab.read.nsys_sqlite import read_nsys
from perflab.read.trace_files import read_traces
from perflab.schema import validate
from perflab.tasks.breakdown import breakdown

GEMM = "nvjet_sm90_tst_64x8_TNT"


@pytest.fixture
def export() -> Export:
    return Export()


def one_of_each(export: Export) -> Export:
    export.kernel(f"{GEMM}<int, 4>", 1_000, 3_000)
    export.copy(1, 3_100, 3_500, size=4096)
    used = export.call("cudaMemsetAsync_v3020", 3_505, 3_510)
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMSET", start=3_600, end=3_601, deviceId=0, streamId=7, correlationId=used,
        globalPid=pid_id(10), bytes=8, memKind=2,
    )  # fmt: skip
    export.range("execute_context_0(0)_generation_4(4)", 900, 3_800)
    export.range("a registered text", 950, 960, registered=True)
    return export


def test_tables_on_the_clock_of_the_epoch(export: Export, tmp_path: Path) -> None:
    (trace,) = read_nsys(one_of_each(export).write(tmp_path / "x.sqlite"))
    kernels = validate(trace.kernels, "kernels")
    assert kernels["name"].tolist() == [f"{GEMM}<int, 4>", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"]
    assert kernels["kind"].tolist() == ["kernel", "memcpy", "memset"]
    assert kernels["start_ns"].tolist() == [START_UTC + at for at in (1_000, 3_100, 3_600)]
    assert kernels["dur_ns"].tolist() == [2_000, 400, 1]
    assert kernels["bytes"].tolist()[1:] == [4096, 8]
    assert kernels["bytes"].isna().tolist() == [True, False, False]
    launches = validate(trace.launches, "launches")
    assert launches["api_name"].tolist() == ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"]
    assert launches["correlation_id"].tolist() == kernels["correlation_id"].tolist()
    assert set(launches["process"]) == set(launches["thread"]) == {10}
    ranges = validate(trace.ranges, "ranges")
    assert ranges["name"].tolist() == ["execute_context_0(0)_generation_4(4)", "a registered text"]
    assert set(ranges["domain"]) == {"host"}
    assert trace.device_name == "NVIDIA H200"
    assert trace.recording is not None and trace.recording.tool == "Nsight Systems 2026.2.1.210"
    assert trace.counts["CUPTI_ACTIVITY_KIND_KERNEL"] == 1


def test_calls_that_neither_launch_nor_wait_are_left_out(export: Export, tmp_path: Path) -> None:
    one_of_each(export)
    for at in range(50):
        export.call("cudaEventQuery_v3020", 5_000 + at, 5_001 + at)
    export.call("cudaStreamSynchronize_v3020", 6_000, 6_100)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.launches["api_name"].astype(str).str.contains("Query").sum() == 0
    assert trace.launches["api_name"].tolist()[-1] == "cudaStreamSynchronize"


def test_times_that_are_of_the_epoch_already_stay(export: Export, tmp_path: Path) -> None:
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    export.kernel(GEMM, START_UTC + 1_000, START_UTC + 3_000)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.kernels["start_ns"].tolist() == [START_UTC + 1_000]


def test_pytorchs_numbered_ranges_become_one_name(export: Export, tmp_path: Path) -> None:
    export.kernel(GEMM, 1_000, 3_000)
    for number in range(3):
        export.range(f"aten::mm, op_id = {number}, sizes = [[4, 4]]", 100 + number, 200)
    export.range("never ended", 50, None)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.ranges["name"].tolist() == ["aten::mm"] * 3


# ---------------------------------------------------------------- which rank a process is


def workers(export: Export, devices: tuple[int, ...] = (0, 1)) -> Export:
    """Two workers, the later one's pid first; each runs a kernel, a copy to the other's device, and an annotation."""
    for pid, device in zip((31, 30), devices, strict=True):
        export.kernel(f"of_pid_{pid}", 1_000, 2_000, pid=pid, device=device, correlation=7)
        export.call("cudaLaunchKernel_v7000", 900, 905, pid=pid, correlation=7)
        export.range(f"range of {pid}", 800, 1_000, pid=pid)
    return export


def by_rank(file: Path) -> dict[int, str]:
    return {trace.rank: str(trace.kernels["name"].iloc[0]) for trace in read_nsys(file)}


def test_equal_correlation_ids_of_two_processes_are_kept_apart(export: Export, tmp_path: Path) -> None:
    for trace in read_nsys(workers(export).write(tmp_path / "x.sqlite")):
        pid = str(trace.kernels["name"].iloc[0])[-2:]
        assert trace.launches["process"].tolist() == [int(pid)]
        assert trace.ranges["name"].tolist() == [f"range of {pid}"]


def test_rank_by_device(export: Export, tmp_path: Path) -> None:
    file = workers(export).write(tmp_path / "x.sqlite")
    assert by_rank(file) == {0: "of_pid_31", 1: "of_pid_30"}
    assert {trace.rank_source for trace in read_nsys(file)} == {"devices"}


def test_rank_by_gpu_where_each_process_sees_only_its_own(export: Export, tmp_path: Path) -> None:
    workers(export, devices=(0, 0))
    export.add("TARGET_INFO_GPU", vmId=1, id=1, name="NVIDIA H100", cuDevice=1)
    for pid, gpu in ((31, 1), (30, 0)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid, uuid=None)
    file = export.write(tmp_path / "x.sqlite")
    assert by_rank(file) == {0: "of_pid_30", 1: "of_pid_31"}
    assert [trace.device_name for trace in read_nsys(file)] == ["NVIDIA H200", "NVIDIA H100"]


def test_rank_by_order_where_nothing_tells(export: Export, tmp_path: Path) -> None:
    file = workers(export, devices=(0, 0)).write(tmp_path / "x.sqlite")
    assert by_rank(file) == {0: "of_pid_30", 1: "of_pid_31"}
    assert {trace.rank_source for trace in read_nsys(file)} == {"assumed"}
    assert "numbered in the order" in read_nsys(file)[0].notes[0]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("VLLM::Worker_TP1", "VLLM::Worker_TP0"), {1: "of_pid_31", 0: "of_pid_30"}),
        (("VLLM::Worker_TP3_EP3", "VLLM::Worker_TP2_EP2"), {3: "of_pid_31", 2: "of_pid_30"}),
        (("Worker_PP1_TP0", "Worker_PP0_TP1"), {1: "of_pid_31", 0: "of_pid_30"}),
        (("VLLM::EngineCore_DP1", "VLLM::EngineCore_DP0"), {1: "of_pid_31", 0: "of_pid_30"}),
        (("VLLM::Worker_DP0_TP0", "VLLM::Worker_DP1_TP0"), {0: "of_pid_31", 1: "of_pid_30"}),
    ],
)
def test_rank_by_vllms_names(export: Export, tmp_path: Path, names: tuple[str, str], ranks: dict[int, str]) -> None:
    workers(export)
    export.process(31, names[0])
    export.add("ThreadNames", nameId=export.text(names[1]), priority=0, globalTid=pid_id(30) | 30)
    assert by_rank(export.write(tmp_path / "x.sqlite")) == ranks


def test_rank_by_mpi(export: Export, tmp_path: Path) -> None:
    workers(export)
    for pid, rank in ((31, 5), (30, 4)):
        export.add("MPI_RANKS", globalPid=pid_id(pid), rank=rank)
    assert by_rank(export.write(tmp_path / "x.sqlite")) == {5: "of_pid_31", 4: "of_pid_30"}


def test_rank_of_a_single_process_by_its_environment_or_file(export: Export, tmp_path: Path) -> None:
    export.kernel(GEMM, 1_000, 2_000)
    (named,) = read_nsys(export.write(tmp_path / "report_rank6.sqlite"))
    assert (named.rank, named.rank_source) == (6, "file_name")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='OMPI_COMM_WORLD_RANK="3"')
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='WORLD_SIZE="8"')
    (told,) = read_nsys(export.write(tmp_path / "again_rank6.sqlite"))
    assert (told.rank, told.rank_source, told.world_size) == (3, "trace", 8)


def test_one_process_with_two_devices_is_two_ranks(export: Export, tmp_path: Path) -> None:
    export.kernel("on 0", 1_000, 2_000, device=0)
    export.kernel("on 1", 1_500, 2_500, device=1)
    export.range("both", 500, 3_000)
    first, second = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert (first.rank, second.rank) == (0, 1)
    assert first.kernels["name"].tolist() == ["on 0"]
    assert second.kernels["name"].tolist() == ["on 1"]
    assert len(first.launches) == len(second.launches) == 1, "a call goes with its kernel"
    assert len(first.ranges) == len(second.ranges) == 1


def test_a_copy_on_another_device_makes_no_rank(export: Export, tmp_path: Path) -> None:
    export.kernel("on 1", 1_000, 2_000, device=1)
    export.copy(10, 2_000, 2_100, device=0)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.kernels["device"].tolist() == [1, 0]


# ---------------------------------------------------------------- CUDA graphs


def test_a_graph_as_one_block(export: Export, tmp_path: Path) -> None:
    export.graph(109, 1_000, 9_000, launched=500)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.kernels["name"].tolist() == ["CUDA graph 109"]
    assert trace.kernels["graph_id"].tolist() == [109]
    assert trace.launches["api_name"].tolist() == ["cudaGraphLaunch"]
    assert trace.recording is not None and trace.recording.opaque_launches == 1
    assert "CUPTI_ACTIVITY_KIND_KERNEL" not in trace.recording.missing, "graphs stand for kernels"


@pytest.mark.parametrize(("more", "graph"), [
    ({"graphId": 12, "graphNodeId": 99}, 12), ({"graphNodeId": (5 << 32) + 3}, 5), ({}, 77),
])  # fmt: skip
def test_kernels_of_an_opened_graph(export: Export, tmp_path: Path, more: dict[str, int], graph: int) -> None:
    export.call("cudaGraphLaunch_v10000", 500, 505, correlation=77)
    for at in (1_000, 2_000):
        export.kernel(GEMM, at, at + 900, correlation=77, **more)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.kernels["graph_id"].tolist() == [graph, graph]


def test_a_graph_without_times_is_counted_as_unreadable(export: Export, tmp_path: Path) -> None:
    export.kernel(GEMM, 1_000, 2_000)
    export.graph(3, 0, 0, launched=500)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert len(trace.kernels) == 1
    assert trace.unreadable == 1


# ---------------------------------------------------------------- other versions and missing tables


def test_few_columns_are_enough(export: Export, tmp_path: Path) -> None:
    export.kernel(f"{GEMM}<x>", 1_000, 2_000)
    few = {
        "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId shortName",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end correlationId globalTid nameId",
    }
    file = export.write(tmp_path / "x.sqlite", columns=few, without=["TARGET_INFO_GPU"])
    (trace,) = read_nsys(file)
    assert trace.kernels["name"].tolist() == [GEMM]
    assert len(trace.launches) == 1
    assert trace.device_name is None


@pytest.mark.parametrize("table", [
    "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
    "StringIds", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL",
])  # fmt: skip
def test_a_missing_table_is_named(export: Export, tmp_path: Path, table: str) -> None:
    traces = read_nsys(one_of_each(export).write(tmp_path / "x.sqlite", without=[table]))
    assert traces[0].recording is not None
    assert traces[0].recording.missing == (table,)


def test_warnings_of_the_recorder_that_matter_are_kept(export: Export, tmp_path: Path) -> None:
    export.kernel(GEMM, 1_000, 2_000)
    for severity, text in (
        (1, "CUDA injection initialized successfully."),
        (2, "CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer transfers."),
        (1, "Not all CUDA events might have been collected."),
        (3, "Failed to\nstop the agent."),
    ):
        export.add("DIAGNOSTIC_EVENT", timestamp=1, timestampType=1, source=1, severity=severity, text=text)
    (trace,) = read_nsys(export.write(tmp_path / "x.sqlite"))
    assert trace.recording is not None
    assert trace.recording.messages == ("Not all CUDA events might have been collected.", "Failed to stop the agent.")
    assert trace.recording.lost


# ---------------------------------------------------------------- compressed, damaged, hostile


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_compressed_exports(export: Export, tmp_path: Path, pack: object, suffix: str) -> None:
    plain = one_of_each(export).write(tmp_path / "x.sqlite")
    packed = tmp_path / f"x.sqlite{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))  # type: ignore[operator]
    assert sniff(packed) == "nsys"
    assert read_nsys(packed)[0].kernels.equals(read_nsys(plain)[0].kernels)
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    with pytest.raises(InputError, match=r"x\.sqlite"):
        read_nsys(packed)


def test_the_file_is_neither_changed_nor_joined_by_others(export: Export, tmp_path: Path) -> None:
    file = one_of_each(export).write(tmp_path / "x.sqlite")
    before = file.read_bytes()
    file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        read_nsys(file)
        assert [path.name for path in tmp_path.iterdir()] == ["x.sqlite"]
    finally:
        tmp_path.chmod(0o755)
    assert file.read_bytes() == before


def test_odd_names_in_paths(export: Export, tmp_path: Path) -> None:
    file = one_of_each(export).write(tmp_path / "a?b#c %41 'd'.sqlite")
    assert sniff(file) == "nsys"
    assert len(read_nsys(file)[0].kernels) == 3


def test_another_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    with sqlite3.connect(file) as data:
        data.execute("CREATE TABLE users (name TEXT)")
    assert sniff(file) == "sqlite"
    for read in (read_nsys, read_traces):
        with pytest.raises(InputError, match="SQLite database") as caught:
            read(file)
        assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("value", ["'text'", "x'0102'", "1.5", "1e300", "9223372036854775807", "-9223372036854775808"])
@pytest.mark.parametrize("column", ["start", "end", "deviceId", "correlationId", "globalPid", "demangledName"])
def test_a_value_of_the_wrong_type_or_size(export: Export, tmp_path: Path, column: str, value: str) -> None:
    file = one_of_each(export).write(tmp_path / "x.sqlite")
    with sqlite3.connect(file) as data:
        data.execute(f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "{column}" = {value}')
    try:
        assert read_nsys(file)
    except InputError as error:
        assert str(error).startswith(str(file))
        assert "\n" not in str(error)
    else:
        assert value.lstrip("-").isdecimal(), "only a whole number may pass"


@pytest.mark.parametrize("statement", [
    "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
    " SELECT n AS start, n AS \"end\", 0 AS deviceId, 0 AS streamId, n AS correlationId, 1 AS globalPid FROM r",
    'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ("start"";DROP TABLE x--" INTEGER, "a b" TEXT)',
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)",
])  # fmt: skip
def test_tables_that_are_none_or_have_odd_columns(export: Export, tmp_path: Path, statement: str) -> None:
    file = one_of_each(export).write(tmp_path / "x.sqlite", without=["CUPTI_ACTIVITY_KIND_KERNEL"])
    with sqlite3.connect(file) as data:
        data.execute(statement)
    traces = read_nsys(file)
    assert sum(len(trace.kernels) for trace in traces) == 2, "the copy and the set"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_cut_file_is_one_clear_line(export: Export, tmp_path: Path, share: float) -> None:
    for at in range(3_000):
        export.kernel(f"{GEMM}<{at}>", 1_000 * at + 1_000, 1_000 * at + 1_900)
    file = export.write(tmp_path / "x.sqlite")
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError) as caught:
        read_nsys(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [
    ("r.nsys-rep", "nsys export --type=sqlite --output=r.sqlite r.nsys-rep"),
    ("r.qdstrm", "QdstrmImporter -i r.qdstrm"),
])  # fmt: skip
def test_a_report_is_answered_with_the_command_that_exports_it(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"QDREP\0\1\2" * 100)
    assert sniff(file) == "nsys_report"
    with pytest.raises(InputError) as caught:
        read_traces(file)
    assert said in str(caught.value)


# ---------------------------------------------------------------- counted independently

UNION = """
WITH work AS (
    SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ?
), seen AS (
    SELECT start, "end", max("end") OVER (
        ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reach FROM work
) SELECT sum(max(0, "end" - max(start, coalesce(reach, start)))), max("end") - min(start) FROM seen
"""


RANDOM = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "copy", "graph"]), st.integers(1, 3), st.integers(0, 3_000), st.integers(0, 900)
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RANDOM)
def test_busy_time_and_sums_are_those_that_sql_counts(tmp_path: Path, events: list[tuple[str, int, int, int]]) -> None:
    """Any timeline of up to three processes with a device each: union, sums and counts to the nanosecond."""
    export = Export()
    for kind, pid, start, length in events:
        start += 100
        if kind == "kernel":
            export.kernel(GEMM, start, start + length, pid=pid, device=pid)
        elif kind == "copy":
            export.copy(1, start, start + length, pid=pid, device=pid)
        else:
            export.graph(5, start, start + length, pid=pid, device=pid, launched=start - 10)
    file = tmp_path / "x.sqlite"
    file.unlink(missing_ok=True)
    report = breakdown(export.write(file))
    tables = [t for t in ("KERNEL", "MEMCPY", "GRAPH_TRACE") if f"CUPTI_ACTIVITY_KIND_{t}" in export.rows]
    both = " UNION ALL ".join(f'SELECT start, "end", deviceId FROM CUPTI_ACTIVITY_KIND_{table}' for table in tables)
    with sqlite3.connect(file) as data:
        counted = UNION.replace("CUPTI_ACTIVITY_KIND_KERNEL", f"({both})")
        devices = {int(rank.kernels["device"].iloc[0]): rank for rank in report.ranks}
        for device, rank in devices.items():
            busy, span = data.execute(counted, (device,)).fetchone()
            count, total = data.execute(
                f'SELECT count(*), sum("end" - start) FROM ({both}) WHERE deviceId = ?', (device,)
            ).fetchone()
            assert (rank.busy_ns, rank.window_ns) == (busy, span)
            assert (len(rank.kernels), int(rank.kernels["dur_ns"].sum())) == (count, total)
            assert rank.busy_ns + rank.idle_ns == rank.window_ns
    assert set(devices) == {pid for _, pid, _, _ in events}


@pytest.mark.parametrize(
    ("device", "span", "union", "copies", "nccl"),
    [(0, 299.85, 270.86, 2.84, 17.17), (1, 298.66, 264.33, 2.85, 8.23)],
)
def test_two_gpus_agree_with_sql_and_the_published_figures(
    shared: Path, device: int, span: float, union: float, copies: float, nccl: float
) -> None:
    file = shared / "fixtures/nsys/nsys-ai/mfu_2gpu_before.sqlite"
    trace = read_nsys(file)[device]
    kernels = trace.kernels[trace.kernels["kind"] == "kernel"]
    start = kernels["start_ns"].to_numpy(np.int64)
    end = start + kernels["dur_ns"].to_numpy(np.int64)
    with sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True) as data:
        own_union, own_span = data.execute(UNION, (device,)).fetchone()
        (own_copies,) = data.execute(
            'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = ?', (device,)
        ).fetchone()
        own_nccl, own_calls = data.execute(
            'SELECT sum("end" - start), count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName'
            " WHERE deviceId = ? AND value LIKE '%nccl%SendRecv%'",
            (device,),
        ).fetchone()
    talks = kernels[kernels["name"].astype(str).str.contains("SendRecv")]
    copied = trace.kernels.loc[trace.kernels["kind"] == "memcpy", "dur_ns"].sum()
    assert union_length(start, end) == own_union == pytest.approx(union * 1e6, abs=1e4)
    assert end.max() - start.min() == own_span == pytest.approx(span * 1e6, abs=1e4)
    assert copied == own_copies == pytest.approx(copies * 1e6, abs=1e4)
    assert talks["dur_ns"].sum() == own_nccl == pytest.approx(nccl * 1e6, abs=1e4)
    assert len(talks) == own_calls == 33
    assert trace.rank == device
    assert trace.base_ns == 1_779_782_330_176_752_435
    ids = set(trace.launches["correlation_id"])
    assert kernels["correlation_id"].isin(ids).mean() > 0.98, "the window cuts a few calls off"


@pytest.mark.parametrize("name", ["mock", "healthy_1pct", "healthy_judged_1pct"])
def test_other_exports_lose_no_kernel(shared: Path, name: str) -> None:
    file = shared / f"fixtures/nsys/nsys-ai/{name}.sqlite"
    (trace,) = read_nsys(file)
    with sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True) as data:
        tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
        there = [t for t in tables if data.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (t,)).fetchone()]
        own = [data.execute(f'SELECT count(*), sum("end" - start) FROM {table}').fetchone() for table in there]
    assert len(trace.kernels) == sum(count for count, _ in own)
    assert trace.kernels["dur_ns"].sum() == sum(total or 0 for _, total in own)
