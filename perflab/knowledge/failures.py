"""What the last error of a dead engine means, from `failures.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class Failure:
    """A known kind of failure, and what the error tells of it."""

    id: str
    fields: dict[str, str]


def failure_of(error: str) -> Failure | None:
    """The kind of failure an error shows; None for one that is not known."""
    for name, regex in _kinds():
        if match := regex.search(error):
            return Failure(name, {key: value for key, value in match.groupdict().items() if value is not None})
    return None


def known_failures() -> list[str]:
    """The names of all kinds."""
    return [name for name, _ in _kinds()]


@lru_cache(maxsize=1)
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    table = shipped_toml("failures.toml")
    return tuple((entry["id"], re.compile(entry["regex"])) for entry in table["failure"])
