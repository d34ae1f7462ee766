"""The host's side of a Kineto trace: operators, module frames, launch calls. Read only for attribution.

A trace with Python stacks has ten frames for every operator. Kept are modules and the functions that
`perflab.knowledge.modules` names, so that memory grows with the operators and not with the stacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perflab.analysis.attribution.host import HostSide
from perflab.knowledge.modules import module_rules
from perflab.read.files import BLOCK
from perflab.read.kineto import base_of
from perflab.read.trace_columns import Extract, Rows, argument, processes, threads
from perflab.read.trace_events import Event, EventStream, Scalar

_CALLS = re.compile(r"Launch|Memcpy|Memset|BeginCapture|EndCapture", re.IGNORECASE)
_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
_OPERATORS = frozenset(("cpu_op", "operator"))


def read_host_side(path: str | Path, *, block: int = BLOCK) -> HostSide:
    """Read what attribution needs of a trace besides its kernels.

    Raises
    ------
    InputError
        When the file is no such trace.
    """
    stream = EventStream(path, block)
    gathered = _Gathered()
    for events in stream:
        gathered.add(events)
    return gathered.host_side(base_of(stream.header))


class _Texts:
    """Texts as codes, so that they can be kept among whole numbers."""

    def __init__(self, get: Callable[[Event], str]) -> None:
        self._get = get
        self.codes: dict[str, int] = {}

    def __call__(self, events: list[Event]) -> list[Scalar]:
        return [self.codes.setdefault(self._get(event), len(self.codes)) for event in events]


def _shapes(event: Event) -> str:
    return "" if event.args is None else bytes(event.args.shapes).decode(errors="replace")


def _kernel(event: Event) -> str:
    text = b"" if event.args is None else bytes(event.args.kernel)
    found = msgspec.json.decode(text) if text[:1] == b'"' else None
    return found if isinstance(found, str) else ""


class _Gathered:
    """Sorts events into the tables of a `HostSide`."""

    def __init__(self) -> None:
        place: dict[str, Extract] = {"process": processes, "thread": threads}
        external, correlation = argument("external_id"), argument("correlation")
        self._shapes, self._kernels = _Texts(_shapes), _Texts(_kernel)
        self._operators = Rows({**place, "external_id": external, "shapes": self._shapes})
        self._frames, self._labels = Rows(place), Rows(place)
        self._calls = Rows({**place, "correlation_id": correlation, "kernel": self._kernels})
        self._links = Rows({"correlation_id": correlation, "external_id": external})
        self._told: dict[str, bool] = {}

    def add(self, events: list[Event]) -> None:
        """Keep of a batch what tells something."""
        sorts: dict[str, list[Event]] = {}
        for event in events:
            if event.ph == "X":
                sorts.setdefault((event.cat or "").lower(), []).append(event)
        for category, some in sorts.items():
            if category in _OPERATORS:
                self._operators.add(some, 0)
            elif category == "python_function":
                self._frames.add([event for event in some if self._tells(str(event.name))], 0)
            elif category == "user_annotation":
                self._labels.add(some, 0)
                self._frames.add([event for event in some if module_rules().nvtx_path.search(str(event.name))], 0)
            elif category in _DEVICE:
                self._links.add([event for event in some if event.args and event.args.external_id is not None], 0)
            elif category.endswith(("runtime", "driver")):
                self._calls.add([event for event in some if _CALLS.search(str(event.name))], 0)

    def _tells(self, name: str) -> bool:
        told = self._told.get(name)
        if told is None:
            told = self._told[name] = module_rules().frame(name)
        return told

    def host_side(self, base: int) -> HostSide:
        """The tables, with absolute times."""
        shapes, kernels = list(self._shapes.codes), list(self._kernels.codes)
        operators = _table(self._operators, base)
        calls = _table(self._calls, base)
        return HostSide(
            operators=operators.assign(shapes=_texts(operators["shapes"], shapes)),
            frames=_table(self._frames, base),
            calls=calls.assign(kernel=_texts(calls["kernel"], kernels)),
            links=_table(self._links, base)[["correlation_id", "external_id"]],
            labels=_table(self._labels, base),
        )


def _table(rows: Rows, base: int) -> pd.DataFrame:
    frame = rows.frame()
    return frame.drop(columns="label").assign(start_ns=frame["start_ns"].to_numpy(np.int64) + np.int64(base))


def _texts(codes: pd.Series[Any], texts: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(codes.to_numpy(), categories=pd.Index(texts, dtype=object))
