"""Versions as numbers that can be compared."""

from __future__ import annotations

import re


def release(version: str) -> tuple[int, ...]:
    """`0.25.1+cu130` -> (0, 25, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])
