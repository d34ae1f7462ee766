"""Lines of vLLM's log, from `log_patterns.toml`, each with the versions it was seen in."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def log_patterns() -> dict[str, Any]:
    """The tables of log_patterns.toml."""
    return tomllib.loads(files(__package__).joinpath("log_patterns.toml").read_text(encoding="utf-8"))
