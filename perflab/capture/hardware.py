"""The machine: its GPUs through NVML, else nothing about GPUs; CPU, memory and system from the host."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import psutil
import pynvml

from perflab.runs import Gpu, Hardware


def hardware() -> Hardware:
    """What this machine is; what cannot be found out is absent."""
    gpus, driver = _gpus()
    return Hardware(
        gpus=gpus,
        driver=driver,
        cpu=_cpu(),
        cores=_usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def _gpus() -> tuple[list[Gpu], str | None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], None
    found: list[Gpu] = []
    driver: str | None = None
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        for index in visible_gpus(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(Gpu(name=_text(pynvml.nvmlDeviceGetName(handle)), memory_bytes=int(memory.total)))
    except pynvml.NVMLError:
        pass
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return found, driver


def visible_gpus(count: int) -> list[int]:
    """Which of `count` GPUs a program started from here sees, in its order; all where it is not said by number."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and int(part) < count for part in parts):
        return list(range(count))
    return [int(part) for part in parts]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _cpu() -> str | None:
    return cpu_says("model name", "Model", "Hardware") or platform.processor() or None


def cpu_says(*names: str) -> str | None:
    """What the system says of the first CPU under one of these names; None where it does not tell (macOS)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in names and value.strip():
                return value.strip()
    return None


def _usable_cores() -> int | None:
    with contextlib.suppress(AttributeError, psutil.Error):
        return len(psutil.Process().cpu_affinity() or []) or psutil.cpu_count()
    return psutil.cpu_count()
