"""Columns that grow batch by batch from trace events: numbers in numpy arrays, names as codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflab.read.exact_time import exact_ns
from perflab.read.trace_events import Event, Scalar

MISSING = -1
Extract = Callable[[list[Event]], list[Scalar]]
_Array = npt.NDArray[Any]


def argument(name: str) -> Extract:
    """The values of one argument of events."""

    def values(events: list[Event]) -> list[Scalar]:
        return [getattr(event.args, name, None) for event in events]

    return values


def processes(events: list[Event]) -> list[Scalar]:
    """The process of each event."""
    return [event.pid for event in events]


def threads(events: list[Event]) -> list[Scalar]:
    """The thread of each event."""
    return [event.tid for event in events]


class Rows:
    """Rows of one table.

    Parameters
    ----------
    fields
        Whole numbers by column: a function from events to their values; what is none becomes -1.

    Attributes
    ----------
    length
        Rows so far.
    without_duration, without_start
        Events whose `dur` is no number (kept, 0), and whose `ts` is none (left out).
    """

    def __init__(self, fields: Mapping[str, Extract]) -> None:
        self._fields = fields
        self._parts: dict[str, list[_Array]] = {name: [] for name in ("label", "name", "start_ns", "dur_ns", *fields)}
        self._codes: dict[str, int] = {}
        self.length = 0
        self.without_duration = 0
        self.without_start = 0

    def add(self, events: list[Event], label: int) -> None:
        """Append events; `label` says what they are and comes back as the column `label`."""
        start, has_start = exact_ns([event.ts for event in events])
        if not has_start.all():
            self.without_start += int((~has_start).sum())
            events = [event for event, has in zip(events, has_start, strict=True) if has]
            start = start[has_start]
        dur, has_dur = exact_ns([event.dur for event in events])
        self.without_duration += int((~has_dur).sum())
        codes = self._codes
        names = [codes.setdefault(str(event.name), len(codes)) for event in events]
        part: dict[str, _Array] = {
            "label": np.full(len(events), label, dtype=np.int8), "name": np.array(names, dtype=np.int32),
            "start_ns": start, "dur_ns": dur, **{key: integers(get(events)) for key, get in self._fields.items()},
        }  # fmt: skip
        for key, values in part.items():
            self._parts[key].append(values)
        self.length += len(events)

    def frame(self) -> pd.DataFrame:
        """The rows sorted by start, longer ones first, with `name` as categories."""
        columns = {key: np.concatenate(parts) if parts else np.zeros(0, np.int64) for key, parts in self._parts.items()}
        order = np.lexsort((-columns["dur_ns"], columns["start_ns"]))
        columns = {key: values[order] for key, values in columns.items()}
        frame = pd.DataFrame({key: values for key, values in columns.items() if key != "name"})
        return frame.assign(name=categorical(columns["name"], self._codes))


def categorical(codes: _Array, categories: Iterable[str]) -> pd.Categorical:
    """Codes into `categories` as a column."""
    return pd.Categorical.from_codes(codes.astype(np.int32), categories=pd.Index(list(categories), dtype=object))


def integers(values: list[Scalar]) -> npt.NDArray[np.int64]:
    """Values as int64, -1 for what is no whole number; `stream 7` counts as 7."""
    if values.count(None) == len(values):
        return np.full(len(values), MISSING, dtype=np.int64)
    found = np.array(values)
    if found.dtype.kind == "i":
        return found.astype(np.int64, copy=False)
    return np.array([_integer(value) for value in values], dtype=np.int64)


def _integer(value: Scalar) -> int:
    if isinstance(value, str):
        match = re.search(r"(\d{1,18})$", value)
        return int(match[1]) if match else MISSING
    if value is None or (isinstance(value, float) and value != value // 1):
        return MISSING
    return int(value) if abs(value) < 1 << 63 else MISSING
