"""Recorded traces are made small without a change to what perflab reads."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from perflab.read.files import read_text
from perflab.read.kineto import read_kineto


@pytest.fixture(scope="module")
def slim_trace(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("slim_trace", root / "data" / "slim_trace.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def x(cat: str, name: str, ts: str, dur: str, tid: int, args: dict[str, Any]) -> str:
    fields = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "args": args}
    return json.dumps(fields)[:-1] + f', "ts": {ts}, "dur": {dur}}}'


EVENTS = (
    x("cpu_op", "aten::mm", "5207118174739.2980", "3.40", 1,
      {"External id": 5, "Ev Idx": 4, "Input Dims": [[8, 4]], "Input Strides": [[4, 1]], "stream": 0, "num_warps": 4}),
    x("python_function", "nn.Module: Llama_0", "1.0", "1", 1, {"Python id": 4, "Python module id": 0}),
    x("python_function", "sampler.py(1): sample", "5207118174739.0", "9", 1, {"Python id": 5}),
    x("python_function", "idle.py(1): nothing", "1.0", "1", 1, {"Python id": 6}),
    x("python_function", "<built-in mm>", "5207118174739.0", "9", 1, {"Python id": 7}),
    x("cuda_runtime", "cudaLaunchKernel", "5207118174740.125", "1.5", 1, {"cbid": 211, "correlation": 77}),
    '{"ph": "s", "id": 77, "pid": 1, "tid": 1, "ts": 5.0, "cat": "ac2g", "name": "ac2g"}',
    x("kernel", "ncclDevKernel_AllReduce", "5207118174750.001", "2.25", 7,
      {"External id": 5, "correlation": 77, "device": 0, "stream": 7, "grid": [1, 1, 1], "registers per thread": 96,
       "Collective name": "allreduce", "In msg nelems": 4096, "dtype": "BFloat16"}),
)  # fmt: skip


def test_what_stays_and_what_goes(slim_trace: ModuleType) -> None:
    text = (
        '{"schemaVersion": 1, "traceEvents": [' + ",".join(EVENTS) + '], "deviceProperties": [{"id": 0, "name": "G"}]}'
    )
    slim = slim_trace.slim(text)
    told = json.loads(slim)
    assert told["deviceProperties"] == [{"id": 0, "name": "G"}]
    by_name = {event["name"]: event.get("args", {}) for event in told["traceEvents"]}
    assert by_name == {
        "aten::mm": {"External id": 5, "Input Dims": [[8, 4]]},
        "nn.Module: Llama_0": {"Python module id": 0},
        "sampler.py(1): sample": {},
        "cudaLaunchKernel": {"correlation": 77},
        "ncclDevKernel_AllReduce": {
            "External id": 5, "correlation": 77, "device": 0, "stream": 7, "grid": [1, 1, 1],
            "Collective name": "allreduce", "In msg nelems": 4096, "dtype": "BFloat16",
        },
    }  # fmt: skip
    for exact in ("5207118174739.2980", "3.40", "5207118174750.001"):
        assert f":{exact}" in slim, "times are the same text"


def test_perflab_reads_the_same(slim_trace: ModuleType, tmp_path: Path) -> None:
    text = '{"schemaVersion": 1, "traceEvents": [' + ",".join(EVENTS) + "]}"
    before, after = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    before.write_text(text)
    after.write_text(slim_trace.slim(text))
    one, other = read_kineto(before, cpu_ops=True), read_kineto(after, cpu_ops=True)
    for table in ("kernels", "launches", "ranges", "cpu_ops", "messages"):
        assert_frame_equal(getattr(one, table), getattr(other, table))


def test_a_trace_without_device_work_stays_as_it_is(slim_trace: ModuleType) -> None:
    text = '{"traceEvents": [' + ",".join(EVENTS[:4]) + "]}"
    assert slim_trace.slim(text) == text


def test_recorded_traces_are_slim_and_valid(root: Path) -> None:
    traces = sorted((root / "data" / "recorded").rglob("*.pt.trace.json.xz"))
    assert len(traces) > 12
    for path in traces:
        text = read_text(path)[0]
        assert '"ac2g"' not in text, f"{path} was packed without data/slim_trace.py"
        assert '"Input Strides"' not in text
    sizes = {path: path.stat().st_size for path in (root / "data" / "recorded").rglob("*") if path.is_file()}
    of_studies = sum(size for path, size in sizes.items() if "studies" in path.parts)
    # Everyone who clones the repository fetches it: a study of eight variants may take as much as four runs.
    assert of_studies < 2_000_000 and sum(sizes.values()) - of_studies < 7_000_000
