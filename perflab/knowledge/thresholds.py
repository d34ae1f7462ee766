"""The figures at which checks warn or fail and findings speak, from `thresholds.toml`, where each has its reason."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any


def threshold(name: str, level: str) -> float:
    """One figure: `threshold("other_share", "warn")`. A name the file lacks is a `KeyError`: a bug."""
    return float(_table()[name][level])


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("thresholds.toml").read_text(encoding="utf-8"))
