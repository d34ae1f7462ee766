"""Aggregates as `vllm bench serve` names them, and what in them was never measured."""

from __future__ import annotations

import re
from collections.abc import Mapping

LATENCY = re.compile(r"(mean|median|std|p\d+(?:\.\d+)?)_(\w+)_ms")
"""The name of a statistic of a latency: `p99_ttft_ms`."""

_OF_STREAMS = ("ttft", "tpot", "itl")
_NEARLY = 0.95


def without_empty_families(reported: Mapping[str, float | None]) -> dict[str, float | None]:
    """None for latency families that are 0 throughout: clients write 0 where nothing was measured."""
    families: dict[str, list[float | None]] = {"rtfx": [reported.get("rtfx")]}
    for key, value in reported.items():
        if match := LATENCY.fullmatch(key):
            families.setdefault(match[2], []).append(value)
    empty = {name for name, values in families.items() if not any(values)}
    return {
        key: None if key in empty or ((m := LATENCY.fullmatch(key)) and m[2] in empty) else value
        for key, value in reported.items()
    }


def is_streamed(reported: Mapping[str, float | None], completed: int | None, output_tokens: int | None) -> bool:
    """False where figures show that answers of several tokens came whole: no gaps, and TTFT is the whole latency.

    Such a server does not stream; clients then report TTFT = E2EL, TPOT of 0 or -0.00, and ITL of 0.
    """
    if not completed or (output_tokens or 0) <= 1.5 * completed or "mean_itl_ms" not in reported:
        return True
    if any(reported.get(f"{name}_itl_ms") for name in ("mean", "median", "p99")):
        return True
    ttft, e2el = reported.get("median_ttft_ms"), reported.get("median_e2el_ms")
    tpot = reported.get("median_tpot_ms")
    whole = ttft is not None and e2el is not None and ttft >= _NEARLY * e2el
    return not (whole or (ttft is not None and tpot is not None and tpot <= 0))


def without_streaming(reported: Mapping[str, float | None]) -> dict[str, float | None]:
    """The same with TTFT, TPOT and ITL not measured."""
    return {
        key: None if (match := LATENCY.fullmatch(key)) and match[2] in _OF_STREAMS else value
        for key, value in reported.items()
    }
