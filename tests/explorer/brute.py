"""Answers of the explorer, read back as a page reads them, and the same figures counted one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from perflab.explorer.rank_times import CODES, Lane


def columns_of(reply: dict[str, Any], buffers: list[bytes], which: str = "columns") -> list[dict[str, Any]]:
    """The columns of a `view` reply as arrays."""
    at = 6 * len(reply["bars"]) + (4 * len(reply["columns"]) if which == "found" else 0)
    found = []
    for one in reply[which]:
        column, code, count, ns = buffers[at : at + 4]
        kind = np.uint32 if len(ns) == len(count) else np.float64
        arrays = {
            "column": np.frombuffer(column, np.uint16), "code": np.frombuffer(code, np.uint8),
            "count": np.frombuffer(count, np.uint32), "ns": np.frombuffer(ns, kind),
        }  # fmt: skip
        found.append({**one, **arrays})
        at += 4
    return found


def bars_of(reply: dict[str, Any], buffers: list[bytes]) -> list[dict[str, Any]]:
    """The bars of a `view` reply as arrays."""
    kinds = (np.float64, np.float64, np.uint8, np.uint32, np.uint32, np.uint8)
    names = ("start", "end", "code", "name", "row", "hit")
    return [
        {**one, **{n: np.frombuffer(b, k) for n, b, k in zip(names, buffers[6 * at : 6 * at + 6], kinds, strict=True)}}
        for at, one in enumerate(reply["bars"])
    ]


def time_by_code(lane: Lane, start: int, end: int) -> dict[str, int]:
    """Plain sum of the time of a lane's stretches in [start, end), one by one."""
    found: Counter[str] = Counter()
    for begin, finish, code in zip(lane.start.tolist(), lane.end.tolist(), lane.code.tolist(), strict=True):
        inside = min(finish, end) - max(begin, start)
        if inside > 0:
            found[CODES[code]] += inside
    return dict(found)


def running(lane: Lane, start: int, end: int) -> int:
    """Stretches of a lane that run, or begin, in [start, end)."""
    pairs = zip(lane.start.tolist(), lane.end.tolist(), strict=True)
    return sum(b < end and (e > start or b >= start) for b, e in pairs)
