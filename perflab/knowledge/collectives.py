"""What kernels of collectives do by their names, how large elements are: `collectives.toml`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml

OPS: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "other")


@lru_cache(maxsize=4096)
def collective_of(kernel: str) -> tuple[str, str]:
    """Which collective a kernel does, and by whom: `("all_reduce", "nccl")`; `("other", "other")` when unknown."""
    for rule in _table()["kernel"]:
        if re.search(rule["pattern"], kernel):
            return rule["op"], rule["by"]
    return "other", "other"


def op_of_call(call: str) -> str | None:
    """The collective a c10d call is; None when unknown."""
    return next((op for op, calls in _table()["calls"].items() if call.lower() in calls), None)


def element_size(dtype: str) -> int | None:
    """Bytes of an element, by the name torch or Kineto writes; None when unknown."""
    return _sizes().get(dtype)


@lru_cache(maxsize=1)
def _sizes() -> dict[str, int]:
    return {name: int(size) for size, names in _table()["element_bytes"].items() for name in names}


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return shipped_toml("collectives.toml")
