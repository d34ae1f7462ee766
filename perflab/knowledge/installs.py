"""Commands that bring what is missing, from `installs.toml`, where each has its source."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml


def commands(name: str, **fields: str) -> dict[str, str]:
    """The commands for one thing by the tool that runs them (`pip`, `apt`, `conda`, `docker`, `shell`)."""
    return {tool: text.format(**fields) for tool, text in _table()[name].items() if tool != "source"}


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    return shipped_toml("installs.toml")
