"""The machine while it is measured: GPUs through NVML, the host and the processes through psutil.

Every line is `{"t_ns", "metric", "labels", "value"}`; names carry their unit. What a GPU does not report is
left out, and is not 0.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml

from perflab.capture.hardware import visible_gpus
from perflab.capture.sampler import Sampler

Row = tuple[str, dict[str, str], float]

# NVML's calls: metric, and what to do with a handle. PCIe throughput is NVML's own average over 20 ms.
_GPU: tuple[tuple[str, Callable[[Any], float]], ...] = (
    ("gpu_utilization_percent", lambda h: float(pynvml.nvmlDeviceGetUtilizationRates(h).gpu)),
    ("gpu_memory_controller_percent", lambda h: float(pynvml.nvmlDeviceGetUtilizationRates(h).memory)),
    ("gpu_memory_used_bytes", lambda h: float(pynvml.nvmlDeviceGetMemoryInfo(h).used)),
    ("gpu_power_watts", lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000),
    ("gpu_sm_clock_mhz", lambda h: float(pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM))),
    ("gpu_memory_clock_mhz", lambda h: float(pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM))),
    ("gpu_temperature_celsius", lambda h: float(pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU))),
    ("gpu_throttle_reasons", lambda h: float(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(h))),
    (
        "gpu_pcie_tx_bytes_per_s",
        lambda h: 1024.0 * pynvml.nvmlDeviceGetPcieThroughput(h, pynvml.NVML_PCIE_UTIL_TX_BYTES),
    ),
    (
        "gpu_pcie_rx_bytes_per_s",
        lambda h: 1024.0 * pynvml.nvmlDeviceGetPcieThroughput(h, pynvml.NVML_PCIE_UTIL_RX_BYTES),
    ),
)


class TelemetrySampler(Sampler):
    """Samples GPUs, host, and the process trees under the given roots (`{"engine": pid, "client": pid}`)."""

    def __init__(self, file: Path, interval_s: float) -> None:
        super().__init__(file, interval_s)
        self.roots: dict[str, int] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._gpus = list(_gpu_handles())
        psutil.cpu_percent(None)

    def watch(self, role: str, pid: int | None) -> None:
        """Follow the processes under `pid` as `role`; None: no longer."""
        roots = {name: root for name, root in self.roots.items() if name != role}
        self.roots = roots if pid is None else {**roots, role: pid}

    def sample(self) -> list[str]:
        """One line a value, all with one time."""
        t_ns = time.time_ns()
        rows = [*self._of_gpus(), *_of_host(), *self._of_processes()]
        return [
            json.dumps({"t_ns": t_ns, "metric": metric, "labels": labels, "value": round(value, 3)})
            for metric, labels, value in rows
        ]

    def close(self) -> None:
        """Leave NVML."""
        if self._gpus:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _of_gpus(self) -> Iterator[Row]:
        for index, handle in enumerate(self._gpus):
            for metric, read in _GPU:
                with contextlib.suppress(pynvml.NVMLError):
                    yield metric, {"gpu": str(index)}, read(handle)

    def _of_processes(self) -> Iterator[Row]:
        alive: dict[int, psutil.Process] = {}
        for role, root in self.roots.items():
            cpu, rss = 0.0, 0
            found = False
            for process in _tree(root):
                # The same object again: psutil measures CPU time since the call before.
                known = self._processes.get(process.pid, process)
                with contextlib.suppress(psutil.Error):
                    with known.oneshot():
                        share, memory, name = known.cpu_percent(None), known.memory_info().rss, known.name()
                    alive[known.pid] = known
                    cpu, rss, found = cpu + share, rss + memory, True
                    yield f"{role}_process_cpu_percent", {"pid": str(known.pid), "process": name}, share
            if found:
                yield f"{role}_cpu_percent", {}, cpu
                yield f"{role}_rss_bytes", {}, float(rss)
        self._processes = alive


def _tree(root: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _of_host() -> Iterator[Row]:
    yield "host_cpu_percent", {}, psutil.cpu_percent(None)
    yield "host_memory_used_bytes", {}, float(psutil.virtual_memory().used)
    with contextlib.suppress(OSError, AttributeError):
        yield "host_load_1m", {}, psutil.getloadavg()[0]


def _gpu_handles() -> Iterator[Any]:
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return
    for index in visible_gpus(count):
        with contextlib.suppress(pynvml.NVMLError):
            yield pynvml.nvmlDeviceGetHandleByIndex(index)
