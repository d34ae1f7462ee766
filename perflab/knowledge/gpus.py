"""What a GPU can do at most, from `gpus.toml`: dense peaks by format, memory bandwidth, links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class Link:
    """How a GPU reaches its peers, bytes a second and one direction.

    `bytes_per_s` is all links of the GPU together, `pair_bytes_per_s` what two GPUs have between them: in a mesh one
    link, through a switch all of it. `note` says when that holds.
    """

    kind: str
    bytes_per_s: float
    pair_bytes_per_s: float
    note: str

    def among(self, gpus: int) -> float:
        """What one GPU can send to the others of a group of so many, bytes a second."""
        return min(self.bytes_per_s, max(gpus - 1, 1) * self.pair_bytes_per_s)


@dataclass(frozen=True)
class GpuSpec:
    """One GPU by its data sheet.

    Attributes
    ----------
    peaks
        Dense operations a second by format: `bf16` (and FP16, which is as fast on all of these), `tf32`, `int8`, and
        `fp8` and `fp4` where the GPU computes in them.
    sparse_halved
        What the sheet gives with 2:4 sparsity, where a peak is half of that.
    memory_bytes_per_s, memory_gb
        Peak memory bandwidth, and the size as sold.
    """

    name: str
    peaks: Mapping[str, float]
    sparse_halved: Mapping[str, float]
    memory_bytes_per_s: float
    memory_gb: float
    link: Link
    source: str

    def peak(self, dtype: str) -> float | None:
        """Dense operations a second in `bf16`, `fp16`, `tf32`, `fp8`, `int8` or `fp4`; None without such units."""
        return self.peaks.get("bf16" if dtype == "fp16" else dtype)


def gpu_spec(device: str | None) -> GpuSpec | None:
    """The GPU of that name as CUDA, NVML, ROCm or a trace prints it; None where the table has none such."""
    if not device:
        return None
    return next((spec for pattern, spec in _table() if pattern.fullmatch(device.strip())), None)


def known_gpus() -> list[str]:
    """Names of all GPUs in the table."""
    return [spec.name for _, spec in _table()]


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[re.Pattern[str], GpuSpec], ...]:
    entries = shipped_toml("gpus.toml")["gpu"]
    return tuple((re.compile(entry["match"]), _spec(entry)) for entry in entries)


def _spec(entry: dict[str, Any]) -> GpuSpec:
    sparse = {dtype: rate * 1e12 for dtype, rate in entry.get("sparse", {}).items()}
    dense = {dtype: rate * 1e12 for dtype, rate in entry.get("dense", {}).items()}
    link = entry["link"]
    return GpuSpec(
        name=entry["name"],
        peaks=MappingProxyType({dtype: rate / 2 for dtype, rate in sparse.items()} | dense),
        sparse_halved=MappingProxyType(sparse),
        memory_bytes_per_s=entry["memory_gb_per_s"] * 1e9,
        memory_gb=float(entry["memory_gb"]),
        link=Link(link["kind"], link["gb_per_s"] * 1e9, link["pair_gb_per_s"] * 1e9, link["note"]),
        source=entry["source"],
    )
