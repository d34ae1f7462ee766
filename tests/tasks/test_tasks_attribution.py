"""Attribution from files: captures beside a trace, teachers of a run, and what is read only when asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from perflab.tasks import attribution as task
from perflab.tasks.breakdown import breakdown
from perflab.terminal.attribution import attribution as printed


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    thread = 7 if category in ("kernel", "gpu_user_annotation") else 5
    return {"ph": "X", "cat": category, "name": name, "pid": 4, "tid": thread, "ts": ts, "dur": dur, "args": args}


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def folder(root: Path, captured: int) -> Path:
    """A step that replays a graph of three kernels; beside it a capture of so many launches."""
    names = ("gemm_kernel", "rms_norm_kernel", "silu_kernel")
    write(
        root / "rank0.pt.trace.json",
        event("gpu_user_annotation", "execute_context_0(0)_generation_8(8)", 100, 50),
        event("cpu_op", "aten::copy_", 1, 9),
        event("cuda_runtime", "cudaGraphLaunch", 5, 1, correlation=77),
        *(event("kernel", n, 110 + 10 * i, 5, correlation=77, stream=7, device=0) for i, n in enumerate(names)),
    )
    write(
        root / "capture_traces" / "graph_capture_rank_0.pt.trace.json",
        event("cuda_runtime", "cudaStreamBeginCapture", 1, 1),
        *(event("cpu_op", f"op::{i}", 10 * i + 10, 5) for i in range(captured)),
        *(event("cuda_runtime", "cudaLaunchKernel", 10 * i + 11, 1, correlation=i + 1) for i in range(captured)),
        event("cuda_runtime", "cudaStreamEndCapture", 99, 1),
    )
    return root / "rank0.pt.trace.json"


def test_captures_are_found_beside_the_trace(tmp_path: Path) -> None:
    (rank,) = breakdown(folder(tmp_path, 3)).ranks
    assert rank.attribution is not None
    assert rank.attribution.rows["operator"].tolist() == ["op::0", "op::1", "op::2"]
    told = rank.to_json()["attribution"]["rungs"]
    assert told["capture"] == {"kernels": 3, "exclusive_ns": 15_000, "share": 1.0}


def test_a_capture_of_another_size_tells_nothing(tmp_path: Path) -> None:
    (rank,) = breakdown(folder(tmp_path, 4)).ranks
    assert rank.attribution is not None
    assert rank.attribution.rows["operator"].isna().all(), "least of all the operator that launched the graph"
    assert rank.to_json()["attribution"]["rungs"]["capture"]["kernels"] == 0


def test_the_trust_report_says_what_of_the_replays_is_known(tmp_path: Path) -> None:
    def detail(report: Any) -> str:
        return next(check.detail for check in report.trust if check.check == "graph_replays")

    known = breakdown(folder(tmp_path / "a", 3))
    assert "operators are known for 100.0 % (from capture traces)" in detail(known)
    unknown = breakdown(folder(tmp_path / "b", 4))
    assert "There is no capture trace and no teacher trace of it" in detail(unknown)
    assert "inferred for 0.0 %" in detail(unknown)
    taught = breakdown("llama3-8b-bf16-3x")
    assert "(from the teacher trace, by the order of kernels), and the part of the model for 100.0 %" in detail(taught)


def test_it_is_not_read_when_not_wanted_or_when_files_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, 3)
    assert breakdown(path, attribution=False).ranks[0].attribution is None
    assert breakdown(path, attribution=False).ranks[0].to_json()["attribution"] is None
    monkeypatch.setattr(task, "SMALL_BYTES", 10)
    assert breakdown(path).ranks[0].attribution is None
    assert breakdown(path, attribution=True).ranks[0].attribution is not None


def test_a_cpu_engine_has_none(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rank0.pt.trace.json",
        event("user_annotation", "execute_context_0(0)_generation_8(8)", 100, 50),
        event("cpu_op", "aten::mm", 110, 20),
    )
    (rank,) = breakdown(path, attribution=True).ranks
    assert (rank.kind, rank.attribution) == ("cpu", None)
    assert printed([rank]) == ""


def test_each_rank_of_a_run_and_no_teacher_of_the_teacher() -> None:
    ranks = breakdown("llama3-8b-tp2").ranks
    assert [rank.attribution.rank for rank in ranks if rank.attribution is not None] == [0, 1]
    (teacher,) = breakdown("llama3-8b-bf16-3x", teacher=True).ranks
    assert teacher.attribution is not None
    assert teacher.attribution.matches == ()
    assert set(teacher.attribution.rows["rung"]) == {"launch"}


def test_the_terminal_names_parts_rungs_and_slow_layers() -> None:
    text = printed(breakdown("llama3-8b-bf16-3x").ranks)
    assert text.startswith("Parts of the model, 32 layers\n")
    assert "mlp.gate_up_proj" in text
    assert "How it is known: launched from an operator 63.8 %, teacher trace 36.2 %" in text
    assert "Layers 21 to 31 of mixed (1 step) take 10.1 % longer than the median layer" in text
    assert "Layers are alike:" in printed(breakdown("llama3-8b-fp8").ranks)
