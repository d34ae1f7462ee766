"""What vLLM's log says when a quantization runs otherwise than hoped, from `quantization_log.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class QuantizationLine:
    """One kind of line; group `what` of its expression, where there is one, is what it is about."""

    name: str
    regex: re.Pattern[str]
    severity: Literal["info", "warning", "critical"]
    source: str


@lru_cache(maxsize=1)
def quantization_lines() -> tuple[QuantizationLine, ...]:
    """All kinds."""
    return tuple(
        QuantizationLine(one["name"], re.compile(one["regex"]), one["severity"], one["source"])
        for one in shipped_toml("quantization_log.toml")["line"]
    )
