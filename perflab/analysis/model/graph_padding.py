"""Sizes CUDA graphs were captured for: a batch between two of them is padded to the larger, and that is work too."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SIZES = re.compile(r"cudagraph_capture_sizes\W{1,4}\[([\d,\s]*)\]")
_MODE = re.compile(r"cudagraph_mode\W{1,6}(?:CUDAGraphMode\.)?([A-Z_]+)")
_KEYS = ("cudagraph_capture_sizes", "compilation_config.cudagraph_capture_sizes")
_MODES = ("cudagraph_mode", "compilation_config.cudagraph_mode")


@dataclass(frozen=True)
class CaptureSizes:
    """Tokens graphs were captured for, ascending; none where the engine runs without graphs.

    `decode_only`: steps with prefill run outside graphs whatever their size.
    """

    sizes: tuple[int, ...] = ()
    decode_only: bool = False

    def padded(self, tokens: int, phase: str) -> int:
        """Tokens a step computes: its own, or those of the smallest graph that holds them."""
        if self.decode_only and phase != "decode":
            return tokens
        at = bisect_left(self.sizes, tokens)
        return self.sizes[at] if at < len(self.sizes) else tokens


def capture_sizes(settings: Mapping[str, Any]) -> CaptureSizes | None:
    """The sizes by the engine's settings, its own log line included; None where these do not tell.

    Settings are read as vLLM's log prints them (`compilation_config.cudagraph_capture_sizes`) and as its configuration
    object reads as text.
    """
    if str(settings.get("enforce_eager")).lower() == "true":
        return CaptureSizes()
    text = str(settings.get("compilation_config") or "")
    mode = next((str(settings[key]) for key in _MODES if settings.get(key)), None)
    if mode is None and (found := _MODE.search(text)):
        mode = found[1]
    mode = (mode or "").removeprefix("CUDAGraphMode.")
    if mode == "NONE":
        return CaptureSizes()
    sizes = next((settings[key] for key in _KEYS if isinstance(settings.get(key), list)), None)
    if sizes is None and (found := _SIZES.search(text)):
        sizes = [part for part in found[1].split(",") if part.strip()]
    if not sizes and isinstance(settings.get("cuda_graph_sizes"), list):
        sizes = _of_one(settings["cuda_graph_sizes"])
    whole = {int(size) for size in sizes or () if str(size).strip().isdecimal()}
    return CaptureSizes(tuple(sorted(whole)), "DECODE_ONLY" in mode) if whole else None


def _of_one(sizes: list[Any]) -> list[Any]:
    """vLLM 0.10's `cuda_graph_sizes`: a single number stands for 1, 2, 4 and every eighth up to it."""
    if len(sizes) != 1 or not str(sizes[0]).strip().isdecimal():
        return sizes
    return [1, 2, 4, *range(8, int(sizes[0]) + 1, 8)]
