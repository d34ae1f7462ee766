"""Which differences between two runs follow from another one, from `settings_follow.toml`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml


def follows(setting: str, other: str) -> bool:
    """Whether `other` changes by itself when `setting` does."""
    return any(
        fnmatchcase(setting, entry["setting"]) and any(fnmatchcase(other, pattern) for pattern in entry["brings"])
        for entry in _table()["follows"]
    )


def is_unimportant(setting: str) -> bool:
    """Whether a fact says nothing about how the engine computes."""
    return any(fnmatchcase(setting, pattern) for pattern in _table()["unimportant"]["names"])


def moves_the_host(setting: str) -> bool:
    """Whether a setting decides how long the host takes to launch a step."""
    return any(fnmatchcase(setting, pattern) for pattern in _table()["host"]["names"])


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return shipped_toml("settings_follow.toml")
