"""Where other benchmark clients define or count otherwise than vLLM's, from `clients.toml`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class Mark:
    """One difference. `differs` is False where figures were converted; `metrics` is empty where it is about all."""

    code: str
    metrics: tuple[str, ...]
    differs: bool
    source: str


@lru_cache(maxsize=1)
def client_marks() -> dict[str, Mark]:
    """All that are known, by code."""
    return {
        entry["code"]: Mark(entry["code"], tuple(entry["metrics"]), entry["differs"], entry["source"])
        for entry in shipped_toml("clients.toml")["mark"]
    }


def marks_of(codes: Iterable[str]) -> list[Mark]:
    """Marks by their codes; a code that is not there is a `KeyError`: a bug."""
    return [client_marks()[code] for code in codes]
