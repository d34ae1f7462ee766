"""SQLite exports of Nsight Systems: one `Trace` per process and device, on the clock of the epoch.

Event times count from `TARGET_INFO_SESSION_START_TIME.utcEpochNs`. Launches and device work are linked by correlation
id, which is unique only within a process. Under `--cuda-graph-trace=graph` a graph launch is one row without its
kernels; it becomes an activity `CUDA graph N`. NVTX ranges are on the host; vLLM's `cuda` profiler writes its step
annotations there. Which rank a process is: see `perflab.read.nsys_ranks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from perflab.errors import InputError
from perflab.messages import say
from perflab.read.nsys_database import MAX_NAME, MAX_TIME, Database, Ints
from perflab.read.nsys_ranks import PID, Owner, owners, physical_devices
from perflab.read.nsys_recording import recording_of
from perflab.read.trace import Trace, graph_ids
from perflab.read.trace_columns import MISSING, categorical
from perflab.schema import CATEGORIES, conform

_KINDS = ("kernel", "memcpy", "memset")
_KERNEL, _MEMCPY, _MEMSET = range(3)
_COPY = ("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
         "Unified HtoD", "Unified DtoH", "Unified DtoD")  # fmt: skip
_PLACES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed")
# Push/pop and start/end ranges, of NVTX and of files in its text format.
_RANGES = (59, 60, 70, 71)
# Of all calls those that put work on a device or wait for it: a recording may hold millions of queries.
_CALLS = re.compile(r"Launch|Memcpy|Memset|Synchronize|Wait|Batch", re.IGNORECASE)
_VERSION = re.compile(r"_v\d{4,5}$")
# PyTorch's NVTX ranges number every call: `aten::mm, op_id = 17, seq = 3, sizes = [[4, 4]]`.
_NUMBERED = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*$", re.DOTALL)
_COLUMNS = ("process", "device", "stream", "correlation_id", "graph_id", "name", "kind", "bytes", "start_ns", "dur_ns")


class _Names:
    """Names as codes."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        return self.codes.setdefault(name, len(self.codes))


def read_nsys(path: str | Path) -> list[Trace]:
    """Read an export.

    Parameters
    ----------
    path
        What `nsys export --type sqlite` wrote, plain or gzip- or xz-compressed.

    Returns
    -------
    list of Trace
        One a process and device that ran kernels, by rank; where none did, one a process that called for device work,
        and one empty trace where none did that either. All carry the same `recording`.

    Raises
    ------
    InputError
        When the file is not such an export, is damaged, or holds values of the wrong type.
    """
    with Database(path) as data:
        return _read(data)


def _read(data: Database) -> list[Trace]:
    names = _Names()
    work, unreadable = _device_work(data, names)
    calls, call_names = _calls(data, set(work["correlation_id"].to_numpy().tolist()))
    work = _with_process(work, calls)
    found = owners(data, work, calls)
    ranges, range_names = _ranges(data)
    recording = recording_of(data, work, calls, call_names)
    base = _base(data, work)
    gpus = _gpu_names(data)
    counts = {table: data.count(table) for table in data.tables if table.startswith(("CUPTI_ACTIVITY", "NVTX_EVENTS"))}
    host = data.facts("TARGET_INFO_SYSTEM_ENV").get("Hostname")
    traces = []
    for owner in found:
        mine = work[_of(work, owner)]
        asked = calls[_calls_of(calls, mine, work, owner)]
        launches = _launch_table(asked, call_names, owner.rank, base)
        kernels = _kernel_table(mine, names, launches, owner.rank, base)
        beside = ranges[_by_process(ranges, owner)]
        traces.append(
            Trace(
                path=data.path, rank=owner.rank, rank_source=owner.source, world_size=owner.world_size,
                devices=_devices(data, gpus, owner), base_ns=base, vllm_version=None, host=host, kernels=kernels,
                launches=launches, ranges=_range_table(beside, range_names, owner.rank, base), cpu_ops=None,
                counts=counts, truncated=False, has_gpu=not kernels.empty, is_frontend=False, with_stack=False,
                record_shapes=False, without_duration=0, unreadable=unreadable if owner is found[0] else 0,
                notes=owner.notes, recording=recording,
            )
        )  # fmt: skip
    return traces


def _device_work(data: Database, names: _Names) -> tuple[pd.DataFrame, int]:
    """Kernels, copies, sets and whole graphs of all processes, and how many rows had no time."""
    parts, unreadable = [], 0
    for frame in (*_kernels(data, names), *_copies(data, names), *_sets(data, names), *_graphs(data, names)):
        late = (frame["end"] < frame["start"]) | ((frame["start"] == 0) & (frame["end"] == 0))
        _refuse_odd_times(data, frame)
        unreadable += int(late.sum())
        parts.append(frame.assign(dur_ns=frame["end"] - frame["start"], start_ns=frame["start"])[~late])
    empty = pd.DataFrame({name: np.zeros(0, dtype=np.int64) for name in _COLUMNS})
    work = pd.concat([empty, *parts], ignore_index=True)[list(_COLUMNS)]
    return work.sort_values(
        ["start_ns", "dur_ns"], ascending=[True, False], ignore_index=True, kind="stable"
    ), unreadable


def _refuse_odd_times(data: Database, frame: pd.DataFrame) -> None:
    times = frame[["start", "end"]].to_numpy(np.int64)
    if ((times < -MAX_TIME) | (times > MAX_TIME)).any():
        raise InputError(say("nsys.wrong_time"), path=data.path)


def _common(part: Mapping[str, Ints], kind: int, name: Iterable[int], size: Ints | None = None) -> pd.DataFrame:
    node = part["graphNodeId"] if "graphNodeId" in part else np.full(len(part["start"]), MISSING)
    told = part["graphId"] if "graphId" in part else np.full(len(part["start"]), MISSING)
    # CUPTI's node id holds the graph's in its upper half.
    graph = np.where(told > 0, told, np.where(node > 0, node >> 32, MISSING))
    return pd.DataFrame({
        "process": np.where(part["globalPid"] >= 0, part["globalPid"] >> 24, MISSING), "device": part["deviceId"],
        "stream": part["streamId"], "correlation_id": part["correlationId"], "graph_id": graph,
        "name": np.fromiter(name, dtype=np.int64, count=len(part["start"])), "kind": kind,
        "bytes": np.full(len(part["start"]), MISSING) if size is None else size,
        "start": part["start"], "end": part["end"],
    })  # fmt: skip


_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")


def _kernels(data: Database, names: _Names) -> list[pd.DataFrame]:
    bears = ("demangledName", "shortName", "mangledName")
    parts = list(data.integers("CUPTI_ACTIVITY_KIND_KERNEL", (*_PLACE, *bears, "graphNodeId", "graphId")))
    used: set[int] = set()
    for part in parts:
        for column in bears:
            used.update(np.unique(part[column]).tolist())
    texts = data.strings(used)
    known = {key: names.code(text) for key, text in texts.items()}
    unnamed = names.code("unnamed kernel") if parts else MISSING
    frames = []
    for part in parts:
        code = np.full(len(part["start"]), MISSING, dtype=np.int64)
        for column in bears:
            ids, inverse = np.unique(part[column], return_inverse=True)
            found = np.array([known.get(int(key), MISSING) for key in ids], dtype=np.int64)[inverse]
            code = np.where(code >= 0, code, found)
        frames.append(_common(part, _KERNEL, np.where(code >= 0, code, unnamed)))
    return frames


def _copies(data: Database, names: _Names) -> list[pd.DataFrame]:
    frames = []
    wanted = (*_PLACE, "copyKind", "srcKind", "dstKind", "bytes", "graphNodeId")
    for part in data.integers("CUPTI_ACTIVITY_KIND_MEMCPY", wanted):
        ways = zip(part["copyKind"].tolist(), part["srcKind"].tolist(), part["dstKind"].tolist(), strict=True)
        called = (names.code(_copy_name(*way)) for way in ways)
        frames.append(_common(part, _MEMCPY, called, part["bytes"]))
    return frames


def _copy_name(kind: int, source: int, target: int) -> str:
    """A copy as the torch profiler names it: `Memcpy HtoD (Pageable -> Device)`."""
    way = _COPY[kind] if 0 <= kind < len(_COPY) else _COPY[0]
    places = [_PLACES[place] if 0 <= place < len(_PLACES) else None for place in (source, target)]
    return f"Memcpy {way}" + (f" ({places[0]} -> {places[1]})" if None not in places else "")


def _sets(data: Database, names: _Names) -> list[pd.DataFrame]:
    frames = []
    for part in data.integers("CUPTI_ACTIVITY_KIND_MEMSET", (*_PLACE, "memKind", "bytes", "graphNodeId")):
        places = (_PLACES[p] if 0 <= p < len(_PLACES) else None for p in part["memKind"].tolist())
        called = (names.code(f"Memset ({place})" if place else "Memset") for place in places)
        frames.append(_common(part, _MEMSET, called, part["bytes"]))
    return frames


def _graphs(data: Database, names: _Names) -> list[pd.DataFrame]:
    """Graph launches recorded as one block; a number for each graph, which is one a batch size in vLLM."""
    parts = data.integers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_PLACE, "graphId"))
    return [_common(p, _KERNEL, (names.code(f"CUDA graph {max(g, 0)}") for g in p["graphId"].tolist())) for p in parts]


def _calls(data: Database, asked: set[int]) -> tuple[pd.DataFrame, list[str]]:
    """Host calls that put work on a device or wait for it, with `name` as a code into the names."""
    texts: dict[int, str] = {}
    parts = []
    ids: set[int] = set()
    for part in data.integers("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)):
        ids.update(np.unique(part["nameId"]).tolist())
    texts = data.strings(ids)
    kept = {key for key, text in texts.items() if _CALLS.search(text)}
    names = _Names()
    codes = {key: names.code(_VERSION.sub("", text)) for key, text in texts.items()}
    unnamed = names.code("unnamed call")
    wanted = ("start", "end", "globalTid", "correlationId", "nameId")
    for part in data.integers("CUPTI_ACTIVITY_KIND_RUNTIME", wanted):
        frame = pd.DataFrame(part)
        keep = frame["nameId"].isin(kept) | frame["correlationId"].isin(asked)
        frame = frame[keep & (frame["end"] >= frame["start"])]
        _refuse_odd_times(data, frame)
        parts.append(_host(frame, [codes.get(int(key), unnamed) for key in frame["nameId"]]).assign(
            correlation_id=frame["correlationId"]
        ))  # fmt: skip
    columns = ("process", "thread", "name", "start_ns", "dur_ns", "correlation_id")
    return _sorted(parts, columns), list(names.codes)


def _ranges(data: Database) -> tuple[pd.DataFrame, list[str]]:
    """NVTX ranges that ended, with `name` as a code into the names."""
    names = _Names()
    parts = []
    numbers = ("start", "end", "eventType", "globalTid", "textId")
    has_type = data.has("NVTX_EVENTS", "eventType")
    ids: set[int] = set()
    for part in data.integers("NVTX_EVENTS", ("textId",)):
        ids.update(np.unique(part["textId"]).tolist())
    texts = data.strings(ids)
    for part, shown in zip(data.integers("NVTX_EVENTS", numbers), data.rows("NVTX_EVENTS", ("text",)), strict=True):
        frame = pd.DataFrame(part).assign(text=[row[0] for row in shown])
        # A mark, or a range that never ended, has no end.
        is_range = frame["eventType"].isin(_RANGES) if has_type else frame["end"] != MISSING
        frame = frame[is_range & (frame["end"] >= frame["start"])]
        _refuse_odd_times(data, frame)
        said = zip(frame["text"], frame["textId"].tolist(), strict=True)
        codes = [
            names.code(_NUMBERED.sub("", (text if isinstance(text, str) else texts.get(key, ""))[:MAX_NAME]))
            for text, key in said
        ]
        parts.append(_host(frame, codes))
    return _sorted(parts, ("process", "thread", "name", "start_ns", "dur_ns")), list(names.codes)


def _host(frame: pd.DataFrame, names: list[int]) -> pd.DataFrame:
    tid = frame["globalTid"].to_numpy(np.int64)
    return pd.DataFrame({
        "process": np.where(tid >= 0, tid >> 24, MISSING), "thread": np.where(tid >= 0, tid & PID, MISSING),
        "name": np.array(names, dtype=np.int64), "start_ns": frame["start"].to_numpy(np.int64),
        "dur_ns": (frame["end"] - frame["start"]).to_numpy(np.int64),
    }, index=frame.index)  # fmt: skip


def _sorted(parts: list[pd.DataFrame], columns: tuple[str, ...]) -> pd.DataFrame:
    empty = pd.DataFrame({name: np.zeros(0, dtype=np.int64) for name in columns})
    found = pd.concat([empty, *parts], ignore_index=True)[list(columns)]
    return found.sort_values(["start_ns", "dur_ns"], ascending=[True, False], ignore_index=True, kind="stable")


def _with_process(work: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Device work with its process where the export does not tell: the only one that called."""
    callers = calls["process"].unique()
    if (work["process"] >= 0).all() or len(callers) != 1:
        return work
    return work.assign(process=np.where(work["process"] >= 0, work["process"], callers[0]))


def _of(work: pd.DataFrame, owner: Owner) -> pd.Series:
    return (work["process"] == owner.process) & work["device"].isin(owner.devices)


def _by_process(frame: pd.DataFrame, owner: Owner) -> pd.Series:
    # Where the export does not say whose device work it is, all calls and ranges may belong to it.
    return (frame["process"] == owner.process) | (owner.process == MISSING)


def _calls_of(calls: pd.DataFrame, mine: pd.DataFrame, work: pd.DataFrame, owner: Owner) -> pd.Series:
    """The process's calls; of those whose work ran on another of its devices, none."""
    others = work[(work["process"] == owner.process) & ~work["device"].isin(owner.devices)]
    elsewhere = calls["correlation_id"].isin(others["correlation_id"]) & ~calls["correlation_id"].isin(
        mine["correlation_id"]
    )
    return _by_process(calls, owner) & ~elsewhere


def _kernel_table(mine: pd.DataFrame, names: _Names, launches: pd.DataFrame, rank: int, base: int) -> pd.DataFrame:
    size = mine["bytes"].to_numpy(np.int64)
    told, correlation = mine["graph_id"].to_numpy(np.int64), mine["correlation_id"].to_numpy(np.int64)
    placed = mine.assign(
        rank=np.int64(rank),
        graph_id=graph_ids(told, correlation, launches),
        name=categorical(mine["name"].to_numpy(), names.codes),
        kind=categorical(mine["kind"].to_numpy(), _KINDS),
        bytes=pd.arrays.IntegerArray(size, size == MISSING),
        category=categorical(np.full(len(mine), CATEGORIES.index("other")), CATEGORIES),
        start_ns=mine["start_ns"] + base,
    )
    return conform(placed, "kernels")


def _launch_table(mine: pd.DataFrame, names: list[str], rank: int, base: int) -> pd.DataFrame:
    placed = mine.assign(
        rank=np.int64(rank),
        process=_pids(mine["process"]),
        api_name=categorical(mine["name"].to_numpy(), names),
        start_ns=mine["start_ns"] + base,
    )
    return conform(placed, "launches")


def _range_table(mine: pd.DataFrame, names: list[str], rank: int, base: int) -> pd.DataFrame:
    placed = mine.assign(
        rank=np.int64(rank),
        domain=categorical(np.zeros(len(mine), dtype=np.int64), ("host", "device")),
        name=categorical(mine["name"].to_numpy(), names),
        start_ns=mine["start_ns"] + base,
    )
    return conform(placed, "ranges")


def _pids(process: pd.Series) -> Ints:
    """Process ids of keys."""
    key = process.to_numpy(np.int64)
    return np.where(key >= 0, key & PID, MISSING)


def _base(data: Database, work: pd.DataFrame) -> int:
    """What to add to times for nanoseconds since the epoch; 0 where they are so already, or nothing tells."""
    normalized = data.facts("META_DATA_EXPORT").get("EXPORT_PARAM_TIME_NORMALIZE") == "true"
    began = data.table("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
    known = [int(value) for value in began if 0 < value < MAX_TIME]
    is_absolute = len(work) > 0 and int(work["start_ns"].min()) > 10**18
    return 0 if normalized or is_absolute or not known else known[0]


def _gpu_names(data: Database) -> dict[int, str]:
    """Names of the machine's GPUs by nsys's number."""
    rows = data.texts("TARGET_INFO_GPU", ("id", "name")) if data.has("TARGET_INFO_GPU", "id", "name") else []
    return {int(number): name for number, name in rows if number.isdecimal() and name}


def _devices(data: Database, gpus: Mapping[int, str], owner: Owner) -> dict[int, str]:
    """Names of GPUs by the number that the owner's process knows them by."""
    physical = physical_devices(data)
    found = {device: physical.get((owner.process & PID, device), device) for device in owner.devices}
    return {device: gpus[number] for device, number in found.items() if number in gpus}
