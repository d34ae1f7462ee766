"""What an Nsight Systems export says of the recording itself: who should be in it, and what went wrong."""

from __future__ import annotations

import re
from collections import Counter

import pandas as pd

from perflab.analysis.recording import Evidence, Recording
from perflab.read.nsys_database import Database
from perflab.read.nsys_ranks import WORKER, process_names

# The tables that a breakdown reads. Without the others there are no names, no clock, or no device's name.
TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME",
)  # fmt: skip
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_ASKS = re.compile(r"Launch(?!HostFunc)|Memcpy|Memset")
# Messages that say events are missing, whatever their level.
_LOST = re.compile(r"\b(dropped|lost|discarded|not all .{0,40}collected|overflow|out of (buffer|memory))\b", re.I)
_WARNING, _ERROR = 2, 3
# Warnings of the recorder that say nothing of the events: memory that cannot be traced, symbols that are not found.
_HARMLESS = re.compile(r"Unified Memory|Debuginfod|symbol|launched by the profiler|sampling|context switch|perf", re.I)
_MOST = 200


def recording_of(data: Database, work: pd.DataFrame, calls: pd.DataFrame, call_names: list[str]) -> Recording:
    """The recording's facts.

    Parameters
    ----------
    work, calls
        Device work (`process`) and host calls (`process`, `name` as codes into `call_names`) of all processes.
    """
    kernels_missing = _GRAPHS in data.tables and data.count("CUPTI_ACTIVITY_KIND_KERNEL") == 0
    missing = [t for t in TABLES if t not in data.tables and not (t == TABLES[0] and kernels_missing)]
    has = {int(key) for key in work["process"].unique()}
    should, evidence = _should(data, has, calls, call_names)
    messages, lost = _messages(data)
    version = data.facts("META_DATA_EXPORT").get("EXPORT_PRODUCT_VERSION", "")
    return Recording(
        tool=f"Nsight Systems {version}".strip(),
        processes=len(should),
        with_work=len(has),
        evidence=evidence,
        missing=tuple(missing),
        opaque_launches=data.count(_GRAPHS),
        messages=messages,
        lost=lost,
    )


def _should(data: Database, has: set[int], calls: pd.DataFrame, call_names: list[str]) -> tuple[set[int], Evidence]:
    """The processes whose device work should be there, and what says so."""
    asking = [code for code, name in enumerate(call_names) if _ASKS.search(name)]
    called = {int(key) for key in calls.loc[calls["name"].isin(asking), "process"].unique()} - {-1}
    if called - has and -1 not in has:
        return called | has, "calls"
    names = process_names(data)
    workers = {key for key, some in names.items() if any(WORKER.search(name) for name in some)}
    if workers - has and -1 not in has:
        return workers | has, "names"
    if len(has) == 1 and -1 not in has:
        own = _own_names(data)
        mine = {own[key] for key in has if key in own}
        alike = {key for key, name in own.items() if name in mine}
        if alike - has:
            return alike | has, "alike"
    return has, "calls"


def _own_names(data: Database) -> dict[int, str]:
    found: dict[int, str] = {}
    for rows in data.rows("PROCESSES", ("globalPid", "name")):
        found.update((pid >> 24, name) for pid, name in rows if isinstance(pid, int) and isinstance(name, str) and name)
    return found


def _messages(data: Database) -> tuple[tuple[str, ...], bool]:
    """Warnings, errors, and what tells of loss, the most frequent first."""
    said: Counter[str] = Counter()
    lost = False
    for rows in data.rows("DIAGNOSTIC_EVENT", ("severity", "text")):
        for level, text in rows:
            if not isinstance(text, str):
                continue
            is_loss = bool(_LOST.search(text))
            if is_loss or level == _ERROR or (level == _WARNING and not _HARMLESS.search(text)):
                said[" ".join(text.split())[:_MOST]] += 1
                lost |= is_loss
    return tuple(text for text, _ in said.most_common(20)), lost


__all__ = ["TABLES", "recording_of"]
