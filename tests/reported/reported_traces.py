"""Small torch profiler traces, written event by event."""

import json
import re
from pathlib import Path
from typing import Any

from perflab.analysis.check import Check
from perflab.tasks.breakdown import BreakdownReport

BASE = 1_790_000_000_000_000_000
GEMM = "nvjet_sm90_tst_64x8_TNT"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kernel(name: str, ts: Any, dur: Any, *, stream: int = 7, correlation: int = 0, device: int = 0) -> dict[str, Any]:
    """A kernel; times in microseconds, as numbers or as the text that shall stand in the file."""
    args = {"device": device, "stream": stream} | ({"correlation": correlation} if correlation else {})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: Any, dur: Any, correlation: int) -> dict[str, Any]:
    """A runtime call."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 99, "tid": 99, "ts": ts, "dur": dur,
        "args": {"correlation": correlation},
    }  # fmt: skip


def step(ts: Any, dur: Any, name: str = "execute_context_0(0)_generation_4(4)") -> dict[str, Any]:
    """A step's annotation on the device."""
    return {"ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur}


def exactly(text: str) -> str:
    """A number whose digits stand in the file as given."""
    return f"@{text}@"


def write(
    path: Path, events: list[dict[str, Any]], *, rank: int | None = 0, world: int = 1, base: int | None = BASE,
) -> Path:  # fmt: skip
    """A trace file; `rank` None leaves out who it is."""
    document: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    if base is not None:
        document["baseTimeNanoseconds"] = base
    document["traceEvents"] = events
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r'"@([\d.]+)@"', r"\1", json.dumps(document)))
    return path


def check(report: BreakdownReport, name: str) -> Check:
    """The one check of that name."""
    (found,) = [one for one in report.trust if one.check == name]
    return found
