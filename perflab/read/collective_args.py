"""What a trace says about the sizes of collectives: arguments of c10d calls, and shapes of vLLM's own operators.

torch writes `In msg nelems`, `dtype` and the process group on `record_param_comms`, and later versions on the kernel
itself. vLLM's pynccl and custom all-reduce go round c10d; with `record_shapes` their operators (`vllm::all_reduce`)
bear the shape, and the kernel the operator's `External id`. Kernels that a CUDA graph replays have neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pandas as pd

from perflab.knowledge.collectives import element_size
from perflab.read.trace_columns import integers
from perflab.read.trace_events import Args, Event
from perflab.schema import conform

_OPERATOR = re.compile(
    r"record_param_comms|(^|::)_?\w*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)", re.IGNORECASE
)
_KERNEL = re.compile(
    r"nccl|rccl|all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE
)


class Messages:
    """Gathers, event by event, what kernels and operators say about the messages they send."""

    def __init__(self) -> None:
        self._by_external: dict[int, dict[str, Any]] = {}
        self._rows: list[dict[str, Any]] = []
        self._waiting: list[tuple[int, int]] = []
        self._known: dict[tuple[bool, str], bool] = {}

    def add_operators(self, events: list[Event]) -> None:
        """Look at operators on the host."""
        for event, args in self._named(events, is_kernel=False):
            external = _number(args.external_id)
            found = _from_args(args) or _from_shapes(str(event.name), args)
            if external is not None and found is not None:
                self._by_external[external] = found

    def add_kernels(self, events: list[Event]) -> None:
        """Look at device activities."""
        for _, args in self._named(events, is_kernel=True):
            if args.external_id is None and not bytes(args.collective):
                continue  # of a graph replay, as most are
            correlation, external = _number(args.correlation), _number(args.external_id)
            if correlation is None:
                continue
            found = _from_args(args)
            if found is not None:
                self._rows.append({"correlation_id": correlation, **found})
            elif external is not None:
                self._waiting.append((correlation, external))

    def frame(self, rank: int) -> pd.DataFrame:
        """The table `messages`: one row a kernel whose message is known."""
        linked = [
            {"correlation_id": correlation, **self._by_external[external]}
            for correlation, external in self._waiting
            if external in self._by_external
        ]
        rows = sorted([*self._rows, *linked], key=lambda row: int(row["correlation_id"]))
        table = pd.DataFrame(rows, columns=["correlation_id", *_FIELDS]).assign(rank=rank)
        table = table.drop_duplicates("correlation_id")
        return conform(
            table.astype(dict.fromkeys(("in_bytes", "out_bytes", "tokens", "group_size"), "Int64")), "messages"
        )

    def _named(self, events: list[Event], *, is_kernel: bool) -> Iterator[tuple[Event, Args]]:
        pattern = _KERNEL if is_kernel else _OPERATOR
        for event in events:
            name = str(event.name)
            known = self._known.get((is_kernel, name))
            if known is None:
                known = self._known[is_kernel, name] = bool(pattern.search(name))
            if known and event.args is not None:
                yield event, event.args


_FIELDS = ("call", "in_bytes", "out_bytes", "tokens", "group", "group_size", "source")


def _from_args(args: Args) -> dict[str, Any] | None:
    """From c10d's arguments; None where there are none."""
    call, dtype = _json(args.collective), _json(args.dtype)
    size = element_size(str(dtype))
    if not isinstance(call, str) or size is None:
        return None
    sent, received = _json(args.in_elements), _json(args.out_elements)
    if not isinstance(sent, int) or not isinstance(received, int):
        return None
    members = re.findall(r"\d+", str(_json(args.group_ranks) or ""))
    whole = _json(args.group_size)
    return {
        "call": call, "in_bytes": sent * size, "out_bytes": received * size, "tokens": None,
        # A group of many ranks is written with dots in the middle; then its members are not known.
        "group": ",".join(members) if members and len(members) == whole else "",
        "group_size": whole if isinstance(whole, int) else None, "source": "arguments",
    }  # fmt: skip


def _from_shapes(name: str, args: Args) -> dict[str, Any] | None:
    """From the first tensor of an operator; None where shapes were not recorded."""
    shapes, types = _json(args.shapes), _json(args.types)
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    for shape, dtype in zip(shapes, types, strict=False):
        size = element_size(str(dtype))
        if size is None or not isinstance(shape, list) or not shape or not all(isinstance(n, int) for n in shape):
            continue
        elements = 1
        for n in shape:
            elements *= n
        return {
            "call": name, "in_bytes": elements * size, "out_bytes": None,
            "tokens": shape[0] if len(shape) == 2 else None, "group": "", "group_size": None, "source": "shape",
        }  # fmt: skip
    return None


def _json(value: msgspec.Raw) -> Any:
    text = bytes(value)
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _number(value: Any) -> int | None:
    found = int(integers([value])[0])
    return found if found >= 0 else None
