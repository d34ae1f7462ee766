"""Kineto traces."""

import gzip
import json
import tracemalloc
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perflab.errors import InputError
from perflab.read.kineto import read_kineto
from perflab.schema import CATEGORIES, validate

BASE = 1_790_857_026_000_000_000


def x(cat, name, ts, dur=None, pid=1, tid=2, **args):
    times = f'"ts": {ts}' + ("" if dur is None else f', "dur": {dur}')
    where = f'"pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
    return f'{{"ph": "X", "cat": "{cat}", "name": "{name}", {where}, {times}, "args": {json.dumps(args)}}}'


def kernel(name, ts, dur, correlation, **args):
    return x("kernel", name, ts, dur, 0, 7, **{"device": 0, "stream": 7, "correlation": correlation, **args})


HEADER = {
    "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "with_stack": 1,
    "vllm_version": "0.32.0",
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2}, "host_name": "h", "baseTimeNanoseconds": BASE,
}  # fmt: skip
EVENTS = [
    x("cpu_op", "aten::mm", "10.5", "3"),
    x("user_annotation", "execute_context_1(8)_generation_0(0)", "10", "50"),
    x("gpu_user_annotation", "execute_context_1(8)_generation_0(0)", "20", "30", 0, 7),
    x("cuda_runtime", "cudaLaunchKernel", "11", "2", correlation=5, cbid=1),
    x("cuda_runtime", "cudaGraphLaunch", "14", "2", correlation=6),
    x("cuda_driver", "cuLaunchKernelEx", "15", "1", correlation=9),
    kernel("gemm<float>", "100.700", "0.200", 5),
    kernel("attn", "30", "4", 6), kernel("gemm<float>", "34.001", "1.5", 6),
    x("gpu_memcpy", "Memcpy HtoD", "25", "1", 0, 7, device=0, stream=7, correlation=8, bytes=4096),
    x("gpu_memset", "Memset (Device)", "26", "1", 0, 7, device=0, stream=7, correlation=6),
    x("python_function", "f", "1", "2"),
    '{"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0}',
    '{"ph": "f", "cat": "ac2g", "id": 5, "ts": 100, "pid": 0, "tid": 7}',
]  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def to_file(events=EVENTS, header=HEADER, name="rank0.1.pt.trace.json", tail=None):
        head = json.dumps(header)[:-1] + (", " if header else "")
        text = head + '"traceEvents": [' + ", ".join(events) + "]" + (", " + json.dumps(tail)[1:] if tail else "}")
        file = tmp_path / name
        file.write_text(text)
        return file

    return to_file


def test_kernels(write):
    kernels = validate(read_kineto(write()).kernels, "kernels")
    assert list(kernels["name"]) == ["Memcpy HtoD", "Memset (Device)", "attn", "gemm<float>", "gemm<float>"]
    assert list(kernels["kind"]) == ["memcpy", "memset", "kernel", "kernel", "kernel"]
    assert list(kernels["start_ns"] - BASE) == [25_000, 26_000, 30_000, 34_001, 100_700]
    assert list(kernels["dur_ns"]) == [1_000, 1_000, 4_000, 1_500, 200]
    assert kernels["bytes"].tolist() == [4096, pd.NA, pd.NA, pd.NA, pd.NA]
    assert set(kernels["category"]) == {"other"}
    assert tuple(kernels["category"].cat.categories) == CATEGORIES
    assert set(kernels["rank"]) == {1} and set(kernels["stream"]) == {7} and set(kernels["device"]) == {0}


def test_graph_ids(write):
    def graphs(*events):
        kernels = read_kineto(write(events)).kernels
        return dict(zip(kernels["name"].astype(str), kernels["graph_id"], strict=True))

    launch = x("cuda_runtime", "cudaGraphLaunch", "1", "1", correlation=6)
    # One launch for several, one launch for one, several without a known launch, a plain launch, no correlation.
    assert graphs(launch, kernel("a", 2, 1, 6), kernel("b", 3, 1, 6)) == {"a": 6, "b": 6}
    assert graphs(launch, kernel("a", 2, 1, 6)) == {"a": 6}
    assert graphs(kernel("a", 2, 1, 6), kernel("b", 3, 1, 6), kernel("c", 4, 1, 7)) == {"a": 6, "b": 6, "c": -1}
    assert graphs(x("cuda_runtime", "cudaLaunchKernel", "1", "1", correlation=6), kernel("a", 2, 1, 6)) == {"a": -1}
    assert graphs(
        x("kernel", "a", 1, 1), x("kernel", "b", 2, 1), kernel("c", 3, 1, 0), kernel("d", 4, 1, 0)
    ) == dict.fromkeys("abcd", -1)
    # What the trace itself says comes first.
    told = {"graph id": 3}
    assert graphs(launch, kernel("a", 2, 1, 6, **told), kernel("b", 3, 1, 6)) == {"a": 3, "b": 6}


def test_launches_and_ranges(write):
    trace = read_kineto(write())
    launches = validate(trace.launches, "launches")
    assert list(launches["api_name"]) == ["cudaLaunchKernel", "cudaGraphLaunch", "cuLaunchKernelEx"]
    assert list(launches["correlation_id"]) == [5, 6, 9]
    assert set(launches["process"]) == {1} and set(launches["thread"]) == {2}
    ranges = validate(trace.ranges, "ranges")
    assert list(zip(ranges["domain"], ranges["thread"], ranges["start_ns"] - BASE, strict=True)) == [
        ("host", 2, 10_000), ("device", 7, 20_000),
    ]  # fmt: skip


def test_what_is_known_about_the_trace(write):
    trace = read_kineto(write())
    assert (trace.rank, trace.rank_source, trace.world_size) == (1, "trace", 2)
    assert (trace.device_name, trace.vllm_version, trace.host, trace.base_ns) == ("NVIDIA H200", "0.32.0", "h", BASE)
    assert (trace.with_stack, trace.record_shapes, trace.has_gpu, trace.is_frontend) == (True, False, True, False)
    assert (trace.truncated, trace.unreadable, trace.without_duration, trace.notes) == (False, 0, 0, ())
    assert trace.counts == {
        "cpu_op": 1, "user_annotation": 1, "gpu_user_annotation": 1, "cuda_runtime": 2, "cuda_driver": 1, "kernel": 3,
        "gpu_memcpy": 1, "gpu_memset": 1, "python_function": 1, "phase M": 1, "ac2g": 1,
    }  # fmt: skip


def test_header_behind_the_events(write):
    trace = read_kineto(write(header={}, tail=HEADER))
    assert trace.kernels["start_ns"].min() == BASE + 25_000
    assert (trace.rank, trace.device_name) == (1, "NVIDIA H200")


@pytest.mark.parametrize("block", [30, 200, 1 << 20])
def test_block_size_changes_nothing(write, block):
    whole, blocks = read_kineto(write()), read_kineto(write(), block=block)
    pd.testing.assert_frame_equal(whole.kernels, blocks.kernels)
    pd.testing.assert_frame_equal(whole.ranges, blocks.ranges)
    assert whole.counts == blocks.counts


def test_operators_are_kept_for_cpu_engines_or_when_asked(write):
    assert read_kineto(write()).cpu_ops is None
    asked = read_kineto(write(), cpu_ops=True, block=100).cpu_ops
    assert asked.to_dict("list") == {
        "rank": [1], "process": [1], "thread": [2], "name": ["aten::mm"], "start_ns": [BASE + 10_500],
        "dur_ns": [3_000],
    }  # fmt: skip
    # The parent comes first where both start together.
    cpu = [x("cpu_op", "inner", "5", "1"), x("cpu_op", "outer", "5", "9"), x("user_annotation", "step", "4", "20")]
    trace = read_kineto(write(cpu))
    assert list(trace.cpu_ops["name"]) == ["outer", "inner"]
    assert (trace.has_gpu, trace.kernels.empty) == (False, True)
    assert read_kineto(write(cpu), cpu_ops=False).cpu_ops is None


def test_old_names_and_streams_in_words(write):
    trace = read_kineto(write([
        x("Kernel", "k", "1623212388426902", "35", 0, "stream 7", correlation=3),
        x("Memcpy", "m", "1623212388426910", "2", 0, "stream 16", bytes=8),
        x("Memset", "s", "1623212388426920", "2", 0, "stream 16"),
        x("Runtime", "cudaLaunchKernel", "1623212388426900", "1", 55, "55", correlation=3),
        x("Operator", "aten::empty", "1623212388426902", "3", 55, "55"),
    ], {"schemaVersion": 1}, "worker0.1623212756351.pt.trace.json"))  # fmt: skip
    assert list(trace.kernels["kind"]) == ["kernel", "memcpy", "memset"]
    assert list(trace.kernels["stream"]) == [7, 16, 16]
    assert trace.kernels["start_ns"].iloc[0] == 1_623_212_388_426_902_000
    assert list(trace.launches["thread"]) == [55]


def test_missing_times_and_odd_values(write):
    trace = read_kineto(write([
        x("kernel", "no end", "5"), x("kernel", "null", "6", "null"), x("kernel", "no start", "null", "3"),
        x("kernel", "odd", "7", "1", "GPU", None, correlation=2.5, bytes="many", device=1e300),
        '{"ph": "X", "cat": "kernel", "name": null, "ts": "8.5", "dur": 1, "args": null}',
    ]))  # fmt: skip
    assert list(trace.kernels["name"]) == ["no end", "null", "odd", "None"]
    assert list(trace.kernels["dur_ns"]) == [0, 0, 1_000, 1_000]
    assert trace.kernels["start_ns"].iloc[3] == BASE + 8_500
    assert trace.without_duration == 2
    assert trace.unreadable == 1 and "1 events" in trace.notes[0]
    assert trace.kernels.loc[2, ["device", "stream", "correlation_id"]].tolist() == [-1, -1, -1]
    assert trace.kernels["bytes"].isna().all()


@pytest.mark.parametrize("name, info, given_rank, expected", [
    ("rank0.1.pt.trace.json", {"rank": 3}, None, (3, "trace")),
    ("rank0.1.pt.trace.json", {"rank": 3}, 5, (5, "given")),
    ("rank2.1.pt.trace.json", {}, None, (2, "file_name")),
    ("runA_rank12.1796.pt.trace.json.gz", {}, None, (12, "file_name")),
    ("dp0_pp0_tp1_dcp0_ep1_rank1.17.pt.trace.json", {}, None, (1, "file_name")),
    ("rank-34.Jul_15.pt.trace.json", {"rank": "x"}, None, (34, "file_name")),
    ("graph_capture_rank_0.17.pt.trace.json", {"rank": -1}, None, (0, "file_name")),
    ("1712.3-TP-1.trace.json.gz", {}, None, (1, "file_name")),
    ("host_123.17.pt.trace.json", {}, None, (0, "assumed")),
    ("frank5.json", {}, None, (0, "assumed")),
])  # fmt: skip
def test_rank(write, name, info, given_rank, expected):
    trace = read_kineto(write(header={**HEADER, "distributedInfo": info}, name=name), rank=given_rank)
    assert (trace.rank, trace.rank_source) == expected
    assert set(trace.kernels["rank"]) == {expected[0]}
    assert bool(trace.notes) == (expected[1] in ("file_name", "assumed"))


def test_front_end(write):
    header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    functions = [x("python_function", "f", "1", "2"), x("Trace", "PyTorch Profiler (0)", "0", "9", "Spans", "p")]
    trace = read_kineto(write(functions, header, "vm.json"))
    assert (trace.is_frontend, trace.notes) == (True, ())
    assert read_kineto(write([], header, "vm_1.async_llm.17.pt.trace.json")).is_frontend
    assert not read_kineto(write(functions, HEADER, "rank1.json")).is_frontend


def test_no_gpu_events_but_launches(write):
    trace = read_kineto(write([x("cuda_runtime", "cudaLaunchKernel", "11", "2", correlation=5)]))
    assert (trace.has_gpu, len(trace.launches), trace.device_name) == (False, 1, None)


@pytest.mark.parametrize("content", [
    "[1, 2]", "[]", '[{"name": "x"}]', '{"traceEvents": []}', '{"traceEvents": [{"a": 1}]}', "", "x", "{}",
    '{"rocprofiler-sdk-tool": []}',
])  # fmt: skip
def test_what_is_no_trace(tmp_path, content):
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(InputError, match="not a torch profiler") as caught:
        read_kineto(file)
    assert "\n" not in str(caught.value)


def test_cut_before_the_events(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"schemaVersion": 1, "deviceProperties": [')
    with pytest.raises(InputError, match="ends before its events"):
        read_kineto(file)


def test_bare_list_of_events(tmp_path):
    file = tmp_path / "rank3.json"
    file.write_text("[" + ",\n".join(EVENTS) + "]")
    trace = read_kineto(file)
    assert (len(trace.kernels), trace.rank, trace.truncated) == (5, 3, False)


def test_truncated_gz_is_salvaged_and_flagged(tmp_path, write):
    events = [kernel(f"k{n % 9}", f"{n}.5", "0.25", n) for n in range(1, 20_001)]
    packed = gzip.compress(write(events).read_bytes())
    file = tmp_path / "rank0.json.gz"
    file.write_bytes(packed[: len(packed) * 7 // 10])
    trace = read_kineto(file)
    assert trace.truncated
    assert any("ends early" in note for note in trace.notes)
    assert list(trace.kernels["correlation_id"]) == list(range(1, len(trace.kernels) + 1))
    assert 10_000 < len(trace.kernels) < 20_000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 10**16), st.integers(0, 10**10)), min_size=1, max_size=20),
    st.integers(0, 2 * 10**18),
)
def test_times_are_exact_to_the_nanosecond(write, times, base):
    events = [kernel("k", f"{t // 1000}.{t % 1000:03d}", f"{d // 1000}.{d % 1000:03d}".rstrip("0").rstrip("."), n)
              for n, (t, d) in enumerate(times)]  # fmt: skip
    kernels = read_kineto(write(events, {**HEADER, "baseTimeNanoseconds": base})).kernels
    assert sorted(zip(kernels["start_ns"], kernels["dur_ns"], strict=True)) == sorted((base + t, d) for t, d in times)


def independent(path):
    """Counts and sums by the standard library alone."""
    with gzip.open(path, "rt") as file:
        data = json.load(file, parse_float=Decimal, parse_int=Decimal)
    base = int(data.get("baseTimeNanoseconds", 0))
    work = [e for e in data["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    starts = [base + int(Decimal(e["ts"]) * 1000) for e in work]
    durations = [int(Decimal(e["dur"]) * 1000) for e in work]
    per_name = Counter()
    for e, d in zip(work, durations, strict=True):
        per_name[e["name"]] += d
    shared = Counter(e["args"]["correlation"] for e in work)
    ends = map(sum, zip(starts, durations, strict=True))
    return {
        "n": len(work), "sum": sum(durations), "first": min(starts), "last": max(ends),
        "names": per_name, "bytes": sum(int(e["args"].get("bytes", 0)) for e in work),
        "in_graphs": sum(n for n in shared.values() if n > 1), "events": len(data["traceEvents"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", [
    "recordings/h200/llama3-8b-tp2/trace/rank1.1796052286468432184.pt.trace.json.gz",
    "fixtures/kineto/hta/trace_diff/test/test.json.gz",
    "fixtures/kineto/tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
])  # fmt: skip
def test_same_as_an_independent_reading(shared, name):
    expected, trace = independent(shared / name), read_kineto(shared / name)
    kernels = validate(trace.kernels, "kernels")
    assert len(kernels) == expected["n"]
    assert kernels["dur_ns"].sum() == expected["sum"]
    assert kernels["start_ns"].min() == expected["first"]
    assert (kernels["start_ns"] + kernels["dur_ns"]).max() == expected["last"]
    assert kernels.groupby("name", observed=True)["dur_ns"].sum().to_dict() == dict(expected["names"])
    assert kernels["bytes"].sum() == expected["bytes"]
    assert (kernels["graph_id"] >= 0).sum() >= expected["in_graphs"]
    assert sum(trace.counts.values()) == expected["events"]
    assert not trace.truncated and trace.unreadable == 0


def test_recording_of_two_ranks(shared):
    folder = shared / "recordings/h200/llama3-8b-tp2/trace"
    traces = [read_kineto(file) for file in sorted(folder.glob("*.gz"))]
    assert [(t.rank, t.world_size, t.is_frontend) for t in traces] == [(0, 2, False), (1, 2, False), (0, None, True)]
    assert traces[0].device_name == "NVIDIA H200"
    replayed = traces[0].kernels.query("graph_id >= 0").groupby("graph_id").size()
    assert replayed.max() == 484  # a decode step in one graph
    steps = traces[0].ranges.query("domain == 'device'")["name"].astype(str)
    assert steps.str.startswith("execute_context_").sum() > 5


def test_cpu_engine(shared):
    file = next((shared / "facts/samples/trace_llm").glob("runA*.gz"))
    trace = read_kineto(file)
    assert (trace.has_gpu, trace.vllm_version, trace.record_shapes, len(trace.ranges)) == (False, "0.32.0", True, 4)
    assert len(trace.cpu_ops) == trace.counts["cpu_op"] == 15366
    assert (np.diff(trace.cpu_ops["start_ns"]) >= 0).all()


def test_published_total_of_others(shared):
    """TraceLens publishes 473.7 ms from first to last activity and 9.77 ms busy for this SGLang decode step."""
    kernels = read_kineto(
        shared / "fixtures/kineto/tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz"
    ).kernels
    span = (kernels["start_ns"] + kernels["dur_ns"]).max() - kernels["start_ns"].min()
    assert span / 1e6 == pytest.approx(473.7, abs=0.1)
    assert kernels["graph_id"].value_counts().iloc[0] == 544


def test_every_file_is_read_or_refused_in_one_line(shared):
    refused = []
    for file in sorted((shared / "fixtures/kineto").rglob("*.*")):
        if file.is_dir() or file.suffix == ".csv" or file.stat().st_size > 1_600_000:
            continue
        try:
            trace = read_kineto(file)
        except InputError as error:
            assert "\n" not in str(error)
            refused.append(file.name)
        else:
            assert trace.counts and not trace.truncated and trace.unreadable == 0
            for table in ("kernels", "launches", "ranges"):
                validate(getattr(trace, table), table)
    assert sorted(refused) == [
        "chakra_1.0.2-chakra.0.0.4.tgz", "execution_details.json", "execution_details.json",
        "hta_benchmark_simple_add_et.json.gz", "hta_memory_timeline.raw.gz", "unit_tests_comparative.tar.gz",
        "unit_tests_standalone.tar.gz",
    ]  # fmt: skip


def test_rocprofiler_is_named(shared):
    with pytest.raises(InputError, match="is a rocprofiler-sdk result"):
        read_kineto(shared / "fixtures/kineto/negative/rocprof_908_results.json.gz")


def test_memory_is_bounded_by_the_rows_kept(tmp_path):
    stack = x("python_function", "f" * 200, "1", "2")
    file = tmp_path / "rank0.json"
    with file.open("w") as out:
        out.write('{"schemaVersion": 1, "traceEvents": [' + kernel("k", 1, 1, 1))
        out.writelines(", " + stack for _ in range(60_000))
        out.write("]}")
    assert file.stat().st_size > 18_000_000
    tracemalloc.start()
    trace = read_kineto(file, block=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(trace.kernels), trace.counts["python_function"]) == (1, 60_000)
    assert peak < 14_000_000
