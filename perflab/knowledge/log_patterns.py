"""Lines of vLLM's log, from `log_patterns.toml`, each with the versions it was seen in."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml


@lru_cache(maxsize=1)
def log_patterns() -> dict[str, Any]:
    """The tables of log_patterns.toml."""
    return shipped_toml("log_patterns.toml")
