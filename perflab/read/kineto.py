"""Traces of the torch profiler (Kineto), of GPU and CPU engines, whole or cut short.

Times are exact: `ts` and `dur` are decimal microseconds, read as text; absolute time is `baseTimeNanoseconds` +
1000 * ts. Old traces have no base and count from the epoch. The file is read in blocks, so that memory is bounded
by the rows kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflab.messages import say
from perflab.read.collective_args import Messages
from perflab.read.files import BLOCK, refusal
from perflab.read.trace import RankSource, Trace, graph_ids
from perflab.read.trace_columns import MISSING, Extract, Rows, argument, categorical, processes, threads
from perflab.read.trace_events import Event, EventStream, Scalar
from perflab.schema import CATEGORIES, conform


def read_kineto(path: str | Path, *, rank: int | None = None, cpu_ops: bool | None = None, block: int = BLOCK) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path
        A Kineto trace as JSON, plain or compressed.
    rank
        The rank, where the caller knows better than the file.
    cpu_ops
        Whether to keep the host's operators. None: only when the trace has no device work, as a CPU engine's.
    block
        Bytes of text decoded at a time.

    Raises
    ------
    InputError
        When the file is no such trace (the message says what it seems to be), or ends before its events.
    """
    stream = EventStream(path, block)
    gathered = _Gathered(cpu_ops)
    for events in stream:
        gathered.add(events)
    if not gathered.has_phases and not _names_kineto(stream.header):
        raise refusal(path, "kineto")
    return _trace(Path(path), stream, gathered, rank)


def _devices(events: list[Event]) -> list[Scalar]:
    return [e.pid if e.args is None or e.args.device is None else e.args.device for e in events]


def _streams(events: list[Event]) -> list[Scalar]:
    return [e.tid if e.args is None or e.args.stream is None else e.args.stream for e in events]


_FIELDS: Mapping[str, Mapping[str, Extract]] = {
    "kernels": {
        "device": _devices, "stream": _streams, "correlation_id": argument("correlation"),
        "graph_id": argument("graph_id"), "bytes": argument("bytes"),
    },
    "launches": {"process": processes, "thread": threads, "correlation_id": argument("correlation")},
    "ranges": {"thread": threads},
    "cpu_ops": {"process": processes, "thread": threads},
}  # fmt: skip
_KINDS = ("kernel", "memcpy", "memset", "cpu_op")
_DOMAINS = ("host", "device")

# Category in lower case -> table and label there: Kineto's of today, those of 2021 (Kernel, Memcpy, Runtime,
# Operator), and other vendors' runtimes.
_ROLES: Mapping[str, tuple[str, int]] = {
    "kernel": ("kernels", 0), "gpu_memcpy": ("kernels", 1), "memcpy": ("kernels", 1),
    "gpu_memset": ("kernels", 2), "memset": ("kernels", 2),
    "user_annotation": ("ranges", 0), "gpu_user_annotation": ("ranges", 1),
    "cpu_op": ("cpu_ops", 0), "operator": ("cpu_ops", 0),
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "xpu_runtime", "mtia_runtime"),
        ("launches", 0),
    ),
}  # fmt: skip
_FRONTEND_CATEGORIES = frozenset(("python_function", "Trace"))


class _Gathered:
    """Sorts events into the rows of tables and counts all of them."""

    def __init__(self, cpu_ops: bool | None) -> None:
        self._wanted = cpu_ops
        self._counts: dict[tuple[str, str], int] = {}
        self.rows = {table: Rows(fields) for table, fields in _FIELDS.items()}
        self.messages = Messages()

    def add(self, events: list[Event]) -> None:
        sorts: dict[tuple[str, str | None], list[Event]] = {}
        for event in events:
            key = (event.ph, event.cat)
            some = sorts.get(key)
            if some is None:
                sorts[key] = [event]
            else:
                some.append(event)
        for (phase, category), some in sorts.items():
            category = category or ""
            self._counts[phase, category] = self._counts.get((phase, category), 0) + len(some)
            table, label = _ROLES.get(category.lower(), ("", 0)) if phase == "X" else ("", 0)
            if table == "cpu_ops":
                self.messages.add_operators(some)
            elif table == "kernels" and label == 0:
                self.messages.add_kernels(some)
            if table and (table != "cpu_ops" or self._keeps_ops()):
                self.rows[table].add(some, label)
        if not self._keeps_ops() and self.rows["cpu_ops"].length:
            self.rows["cpu_ops"] = Rows(_FIELDS["cpu_ops"])

    def _keeps_ops(self) -> bool:
        return not self.rows["kernels"].length if self._wanted is None else self._wanted

    def ops(self) -> pd.DataFrame | None:
        """The operators, or None where they are not kept."""
        return self.rows["cpu_ops"].frame() if self._keeps_ops() else None

    @property
    def has_phases(self) -> bool:
        """Whether anything was an event of a trace."""
        return any(phase for phase, _ in self._counts)

    @property
    def counts(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for (phase, category), n in sorted(self._counts.items()):
            name = category or f"phase {phase}"
            out[name] = out.get(name, 0) + n
        return out


def _names_kineto(header: Mapping[str, Any]) -> bool:
    return "schemaVersion" in header or "deviceProperties" in header


def _trace(path: Path, stream: EventStream, gathered: _Gathered, rank: int | None) -> Trace:
    header, rows, counts = stream.header, gathered.rows, gathered.counts
    known = header.get("distributedInfo")
    info: Mapping[str, Any] = known if isinstance(known, dict) else {}
    number, source = _rank(path, info, rank)
    base = base_of(header)
    launches = _launches(rows["launches"].frame(), number, base)
    kernels = _kernels(rows["kernels"].frame(), launches, number, base)
    ops = gathered.ops()
    without_start = sum(some.without_start for some in rows.values())
    is_frontend = _is_frontend(path, header, counts)
    return Trace(
        path=path, rank=number, rank_source=source, world_size=_whole(info.get("world_size")),
        devices=_device_names(header), base_ns=base, vllm_version=_text(header.get("vllm_version")),
        host=_text(header.get("host_name")), kernels=kernels, launches=launches,
        ranges=_ranges(rows["ranges"].frame(), number, base),
        cpu_ops=None if ops is None else _placed(ops, number, base, ("process", "thread")),
        messages=gathered.messages.frame(number), counts=counts, truncated=stream.truncated, has_gpu=not kernels.empty,
        is_frontend=is_frontend, with_stack=bool(header.get("with_stack")),
        record_shapes=bool(header.get("record_shapes")),
        without_duration=sum(some.without_duration for some in rows.values()),
        unreadable=stream.unreadable + without_start,
        notes=_notes(stream, None if is_frontend else source, without_start),
    )  # fmt: skip


def _placed(frame: pd.DataFrame, rank: int, base: int, columns: tuple[str, ...]) -> pd.DataFrame:
    """Rank, `columns`, name and absolute times."""
    out = frame.assign(rank=np.int64(rank), start_ns=frame["start_ns"].to_numpy() + np.int64(base))
    return out[["rank", *columns, "name", "start_ns", "dur_ns"]]


def _kernels(frame: pd.DataFrame, launches: pd.DataFrame, rank: int, base: int) -> pd.DataFrame:
    size = frame["bytes"].to_numpy()
    placed = _placed(frame, rank, base, ("device", "stream", "correlation_id")).assign(
        graph_id=graph_ids(frame["graph_id"].to_numpy(), frame["correlation_id"].to_numpy(), launches),
        kind=categorical(frame["label"].to_numpy(), _KINDS),
        bytes=pd.arrays.IntegerArray(size.astype(np.int64), size == MISSING),
        category=categorical(np.full(len(frame), CATEGORIES.index("other")), CATEGORIES),
    )
    return conform(placed, "kernels")


def _launches(frame: pd.DataFrame, rank: int, base: int) -> pd.DataFrame:
    placed = _placed(frame, rank, base, ("process", "thread", "correlation_id"))
    return conform(placed.rename(columns={"name": "api_name"}), "launches")


def _ranges(frame: pd.DataFrame, rank: int, base: int) -> pd.DataFrame:
    placed = _placed(frame, rank, base, ("thread",))
    return conform(placed.assign(domain=categorical(frame["label"].to_numpy(), _DOMAINS)), "ranges")


# rank0.17..., runA_rank0.17..., dp0_pp0_tp1_dcp0_ep1_rank1.17..., rank-34.Jul..., and SGLang's 1712.3-TP-1.trace...
_RANK_IN_NAME = (
    re.compile(r"(?<![A-Za-z])rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"-TP-(\d{1,6})(?!\d)"),
)


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name tells, in the ways vLLM, PyTorch and SGLang name traces."""
    found = (pattern.search(path.name) for pattern in _RANK_IN_NAME)
    return next((int(match[1]) for match in found if match), None)


def _rank(path: Path, info: Mapping[str, Any], given: int | None) -> tuple[int, RankSource]:
    if given is not None:
        return given, "given"
    told = _whole(info.get("rank"))
    if told is not None and told >= 0:
        return told, "trace"
    named = rank_in_name(path)
    return (0, "assumed") if named is None else (named, "file_name")


def base_of(header: Mapping[str, Any]) -> int:
    """What a file adds to every time, in nanoseconds."""
    return _whole(header.get("baseTimeNanoseconds")) or 0


def _device_names(header: Mapping[str, Any]) -> dict[int, str]:
    found = header.get("deviceProperties")
    devices = [device for device in found if isinstance(device, dict)] if isinstance(found, list) else []
    named = ((_whole(device.get("id", index)), device.get("name")) for index, device in enumerate(devices))
    return {index: str(name) for index, name in named if index is not None and name}


def _is_frontend(path: Path, header: Mapping[str, Any], counts: Mapping[str, int]) -> bool:
    """Named as vLLM names it, or by its content: Python functions only, and no word of a rank."""
    if ".async_llm." in path.name:
        return True
    categories = {name for name in counts if not name.startswith("phase ")}
    return "distributedInfo" not in header and "python_function" in categories <= _FRONTEND_CATEGORIES


def _notes(stream: EventStream, source: RankSource | None, without_start: int) -> tuple[str, ...]:
    notes = []
    if source == "assumed":
        notes.append(say("read.rank_assumed"))
    elif source == "file_name":
        notes.append(say("read.rank_from_name"))
    if stream.truncated:
        notes.append(say("read.trace_truncated"))
    if stream.damage is not None:
        notes.append(say("read.damaged", why=stream.damage))
    if without_start:
        notes.append(say("read.events_without_time", n=without_start))
    return tuple(notes)


def _whole(value: Any) -> int | None:
    """A whole number that int64 holds, also as text; else None."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value) if abs(value) < 1 << 62 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
