"""Small exports of Nsight Systems, in the columns of version 2026.2: a table is there only where it has rows."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_UTC = 1_790_000_000_000_000_000
VM = 1 << 48

# `!` may not be null, `:` is text; all others are whole numbers.
_COLUMNS = {
    "StringIds": "id! value!:",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid"
    " demangledName! shortName! mangledName graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start! end! deviceId! streamId! correlationId globalPid bytes! copyKind! srcKind"
    " dstKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start! end! deviceId! streamId! correlationId globalPid bytes! memKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start! end! deviceId! contextId streamId! correlationId globalPid graphId!"
    " graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass globalTid correlationId nameId! returnValue",
    "NVTX_EVENTS": "start! end eventType! rangeId text: globalTid endGlobalTid textId domainId",
    "TARGET_INFO_GPU": "vmId! id! name: cuDevice",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid! uuid:",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime: localTime: systemClockNs",
    "TARGET_INFO_SYSTEM_ENV": "devStateName: name!: value!:",
    "PROCESSES": "globalPid pid name:",
    "ThreadNames": "nameId! priority globalTid",
    "MPI_RANKS": "globalPid rank",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text!: globalPid",
    "META_DATA_CAPTURE": "name!: value:",
    "META_DATA_EXPORT": "name!: value:",
}


def pid_id(pid: int) -> int:
    """nsys's global id of a process."""
    return VM | pid << 24


class Export:
    """Collects rows and writes the database."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.names: dict[str, int] = {}
        self.correlation = 100
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START_UTC, utcTime="", localTime="", systemClockNs=7)
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1.210")
        self.add("TARGET_INFO_GPU", vmId=VM, id=0, name="NVIDIA H200", cuDevice=0)

    def add(self, table: str, **values: Any) -> None:
        """One row as it is."""
        self.rows.setdefault(table, []).append(values)

    def text(self, value: str) -> int:
        """The id of a string."""
        return self.names.setdefault(value, len(self.names) + 1)

    def call(
        self, name: str, start: int, end: int, *, pid: int = 10, correlation: int | None = None, tid: int | None = None
    ) -> int:
        """A runtime call; returns its correlation id."""
        if correlation is None:
            self.correlation += 1
        used = self.correlation if correlation is None else correlation
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, globalTid=pid_id(pid) | (tid or pid),
            correlationId=used, nameId=self.text(name), returnValue=0,
        )  # fmt: skip
        return used

    def kernel(
        self, name: str, start: int, end: int, *, pid: int = 10, device: int = 0, stream: int = 7,
        correlation: int | None = None, launched: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """A kernel, with the call that launched it unless `correlation` names one."""
        if correlation is None:
            at = start - 10 if launched is None else launched
            correlation = self.call("cudaLaunchKernel_v7000", at, at + 5, pid=pid)
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=device, streamId=stream, contextId=1,
            correlationId=correlation, globalPid=pid_id(pid), demangledName=self.text(name),
            shortName=self.text(name.partition("<")[0]), **more,
        )  # fmt: skip

    def copy(self, kind: int, start: int, end: int, *, size: int = 1024, pid: int = 10, device: int = 0) -> None:
        """A copy and its call."""
        used = self.call("cudaMemcpyAsync_v3020", start - 10, start - 5, pid=pid)
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, deviceId=device, streamId=7, correlationId=used,
            globalPid=pid_id(pid), bytes=size, copyKind=kind, srcKind=1, dstKind=2,
        )  # fmt: skip

    def graph(self, number: int, start: int, end: int, *, pid: int = 10, device: int = 0, launched: int) -> None:
        """A graph launch recorded as one block."""
        used = self.call("cudaGraphLaunch_v10000", launched, launched + 5, pid=pid)
        self.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=start, end=end, deviceId=device, streamId=7, contextId=1,
            correlationId=used, globalPid=pid_id(pid), graphId=number, graphExecId=number + 1,
        )  # fmt: skip

    def range(self, name: str, start: int, end: int | None, *, pid: int = 10, registered: bool = False) -> None:
        """A push/pop range."""
        self.add(
            "NVTX_EVENTS", start=start, end=end, eventType=59, text=None if registered else name,
            textId=self.text(name) if registered else None, globalTid=pid_id(pid) | pid, domainId=0,
        )  # fmt: skip

    def process(self, pid: int, name: str) -> None:
        """A process's name."""
        self.add("PROCESSES", globalPid=pid_id(pid), pid=pid, name=name)

    def write(self, path: Path, *, without: Sequence[str] = (), columns: Mapping[str, str] | None = None) -> Path:
        """Write the tables that have rows, less `without`; `columns` replaces the columns of tables."""
        strings = {"StringIds": [{"id": number, "value": value} for value, number in self.names.items()]}
        with sqlite3.connect(path) as file:
            for table, rows in (strings | self.rows).items():
                if table in without or not rows:
                    continue
                spec = (columns or {}).get(table, _COLUMNS[table]).split()
                file.execute(f'CREATE TABLE "{table}" ({", ".join(_column(part) for part in spec)})')
                file.executemany(
                    f'INSERT INTO "{table}" VALUES ({",".join("?" * len(spec))})',
                    [[row.get(part.rstrip("!:")) for part in spec] for row in rows],
                )
        file.close()
        return path


def _column(part: str) -> str:
    kind = "TEXT" if part.endswith(":") else "INTEGER"
    return f'"{part.rstrip("!:")}" {kind}{" NOT NULL" if "!" in part else ""}'
