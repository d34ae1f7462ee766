"""Operators, module frames and launch calls of a trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from perflab.analysis.attribution import captures
from perflab.errors import InputError
from perflab.read.host_side import read_host_side


def event(category: str, name: str, ts: float, dur: float = 1, thread: int = 5, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 4, "tid": thread, "ts": ts, "dur": dur, "args": args}


def written(folder: Path, *events: dict[str, Any], **header: Any) -> Path:
    path = folder / "rank0.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}))
    return path


def test_what_is_kept_and_what_is_not(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        event("cpu_op", "aten::mm", 1.5, 2, **{"External id": 9, "Input Dims": [[8, 16], [16, 4]]}),
        event("python_function", "nn.Module: LlamaDecoderLayer_3", 1, 5),
        event("python_function", "vllm/v1/worker/gpu/sample/sampler.py(72): __call__", 9, 5),
        event("python_function", "torch/nn/modules/module.py(1783): _call_impl", 1, 5),
        event("python_function", "<built-in method linear>", 1, 5),
        event("cuda_runtime", "cudaLaunchKernel", 2, 0.25, correlation=7),
        event("cuda_runtime", "cudaEventQuery", 2, correlation=8),
        event("hip_runtime", "hipLaunchKernel", 3, correlation=9, kernel="void f<int>(x)"),
        event("user_annotation", "capture_8_FULL", 0, 50),
        event("user_annotation", "{'Module': 'model.layers.0.mlp'}", 4, 2),
        event("kernel", "k", 30, 2, 7, correlation=7, stream=7, **{"External id": 9}),
        baseTimeNanoseconds=1_000_000,
    )
    side = read_host_side(path)
    columns = ["name", "shapes", "start_ns", "dur_ns", "external_id", "process", "thread"]
    assert side.operators[columns].values.tolist() == [["aten::mm", "[[8, 16], [16, 4]]", 1_001_500, 2000, 9, 4, 5]]
    assert side.frames["name"].tolist() == [
        "nn.Module: LlamaDecoderLayer_3", "{'Module': 'model.layers.0.mlp'}",
        "vllm/v1/worker/gpu/sample/sampler.py(72): __call__",
    ]  # fmt: skip
    assert side.calls[["name", "correlation_id", "kernel"]].values.tolist() == [
        ["cudaLaunchKernel", 7, ""],
        ["hipLaunchKernel", 9, "void f<int>(x)"],
    ]
    assert side.links.values.tolist() == [[7, 9]]
    assert side.labels["name"].tolist() == ["capture_8_FULL", "{'Module': 'model.layers.0.mlp'}"]


@pytest.mark.parametrize("kernel", [5, None, ["a"], {"b": 1}, "\u00e9"])
def test_surprising_arguments_cost_nothing(tmp_path: Path, kernel: Any) -> None:
    path = written(tmp_path, event("cuda_runtime", "cudaLaunchKernel", 2, correlation=7, kernel=kernel))
    side = read_host_side(path)
    assert side.calls["kernel"].tolist() == [kernel if isinstance(kernel, str) else ""]


def test_a_capture_is_read_between_its_begin_and_end(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        event("cuda_runtime", "cudaStreamBeginCapture", 1),
        event("cpu_op", "aten::mm", 2, 3),
        event("cuda_runtime", "cudaLaunchKernel", 3, correlation=1),
        event("cuda_runtime", "cudaStreamEndCapture", 6),
        event("cuda_runtime", "cudaGraphLaunch", 8, correlation=2),
    )
    (capture,) = captures(read_host_side(path))
    assert capture.operator == ("aten::mm",)


def test_memory_grows_with_the_operators_not_with_the_stacks(root: Path) -> None:
    """The recorded teacher trace: its frames that name something are a fraction of those it has."""
    (path,) = (root / "data/recorded/llama3-8b-bf16-3x/profile/teacher").glob("rank0*")
    side = read_host_side(path)
    assert len(side.operators) == 11446
    assert 100 < len(side.frames) < 1500


def test_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}')
    with pytest.raises(InputError):
        read_host_side(path)


def test_without_host_events_the_tables_are_empty(tmp_path: Path) -> None:
    side = read_host_side(written(tmp_path))
    assert [len(t) for t in (side.operators, side.frames, side.calls, side.links, side.labels)] == [0] * 5
