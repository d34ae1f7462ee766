"""Memory of a variant before it runs, by the model's config: weights of a rank, KV cache, requests that fit.

`OVERHEAD_BYTES` is what a GPU holds besides weights and cache. What the engine later reports stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perflab.analysis.model.quantization import Quantization
from perflab.analysis.model.shape import ModelShape
from perflab.analysis.model.workload import Split, split_of, workload
from perflab.analysis.quantization.layers import Layer, linear_layers
from perflab.knowledge.quantization_formats import Format, int4_kernels

OVERHEAD_BYTES = round(1.5 * 1024**3)
"""Activations at their peak, CUDA graphs and the runtime: 1.3 GiB (8B) to 1.7 GiB (70B over two) on H200 with vLLM
0.25.1's own batch sizes, `data/recorded`. Larger `max_num_batched_tokens` needs more."""
UTILIZATION = 0.92
"""vLLM's own `gpu_memory_utilization` from 0.25.1 on."""
BLOCK_TOKENS = 16
"""Tokens of a block of the cache, unless `block_size` says otherwise."""


@dataclass(frozen=True)
class PredictedMemory:
    """One rank, by the config.

    Attributes
    ----------
    weights_bytes
        As loaded, embedding and LM head included, with scales and zero points.
    baseline_bytes
        The same of 16-bit weights.
    kv_bytes_per_token
        None where the type of the cache is not known.
    kv_bytes, kv_tokens
        What the cache gets; None where neither its size nor the GPU's memory is known.
    max_concurrency
        Requests of `max_model_len` tokens that fit at once.
    source
        How the size of the cache was found: `pinned`, `left` (what weights and overhead leave) or `unknown`.
    """

    weights_bytes: int
    baseline_bytes: int
    kv_bytes_per_token: float | None
    kv_bytes: int | None
    kv_tokens: int | None
    max_concurrency: float | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return dict(self.__dict__)


def predicted_memory(
    kind: Format,
    shape: ModelShape,
    args: Mapping[str, Any],
    *,
    gpu_bytes: int | None = None,
    capability: int | None = None,
    pinned_bytes: int | None = None,
) -> PredictedMemory:
    """What a variant will take of each GPU.

    Parameters
    ----------
    shape
        Of the model as it is before quantization, or of the checkpoint that is served.
    args
        The engine's arguments: parallel sizes, `dtype`, `kv_cache_dtype`, `gpu_memory_utilization`, `max_model_len`.
    gpu_bytes, capability
        Of a GPU; None where they are not known.
    pinned_bytes
        What the cache is given; None: what is left.
    """
    split = split_of(args)
    settings = {**args, "kv_cache_dtype": args.get("kv_cache_dtype") or kind.kv or "auto"}
    plain = workload(replace(shape, quantization=None), split, settings)
    mine = workload(replace(shape, quantization=quantization_of_format(kind) or shape.quantization), split, settings)
    weights = mine.weight_bytes + _scales(kind, shape, split) + _unpacked_zeros(kind, shape, split, capability)
    per_token = mine.kv_bytes_per_token
    cache, source = pinned_bytes, "pinned"
    if cache is None:
        share = args.get("gpu_memory_utilization")
        share = float(share) if isinstance(share, int | float) else UTILIZATION
        left = None if gpu_bytes is None else math.floor(gpu_bytes * share - weights - OVERHEAD_BYTES)
        cache, source = (max(left, 0), "left") if left is not None else (None, "unknown")
    tokens = None if cache is None or not per_token else _whole_blocks(cache / per_token, args)
    longest = args.get("max_model_len")
    fits = tokens / longest if tokens is not None and isinstance(longest, int) and longest > 0 else None
    return PredictedMemory(
        weights_bytes=round(weights),
        baseline_bytes=round(plain.weight_bytes),
        kv_bytes_per_token=per_token,
        kv_bytes=cache,
        kv_tokens=tokens,
        max_concurrency=fits,
        source=source,
    )


def quantization_of_format(kind: Format) -> Quantization | None:
    """A format as what it makes of weights; None where it leaves them."""
    weights = kind.weights
    if weights is None:
        return None
    # The scales of blocks are counted apart: a square of weights shares one.
    group = weights.group if weights.group > 0 and not weights.block else None
    return Quantization(
        kind.name, weights.bits, group, kind.activations, zero_points=weights.zero_points, source="settings"
    )


def _scales(kind: Format, shape: ModelShape, split: Split) -> float:
    """Bytes of scales that are one a row or one a block; those of groups are part of a weight's bits."""
    weights = kind.weights
    if weights is None or not (weights.per_row or weights.block):
        return 0.0
    total = 0.0
    for layer in linear_layers(shape, split.tensor):
        scales = layer.width
        if weights.block:
            scales = math.ceil(layer.inputs / weights.block) * math.ceil(layer.width / weights.block)
        total += _count(layer, shape) * scales * weights.scale_bits / 8
    return total / split.pipeline


def _unpacked_zeros(kind: Format, shape: ModelShape, split: Split, capability: int | None) -> float:
    """Machete keeps zero points as 16-bit numbers, where a checkpoint has them in 4 bits."""
    weights = kind.weights
    if weights is None or not weights.zero_points or weights.group <= 0 or capability is None:
        return 0.0
    first = int4_kernels()[0]
    total = 0.0
    for layer in linear_layers(shape, split.tensor):
        if first.takes(capability, weights.group, round(layer.inputs), round(layer.width)):
            total += _count(layer, shape) * layer.inputs / weights.group * layer.width * (16 - weights.bits) / 8
    return total / split.pipeline


def _count(layer: Layer, shape: ModelShape) -> int:
    """How many of a kind of layer a model has; experts of all its layers that have some."""
    mixed = len(shape.expert_layers)
    if layer.name.startswith("expert"):
        return mixed * (shape.moe.experts if shape.moe else 1)
    if layer.name.startswith("shared expert"):
        return mixed
    return shape.layers - mixed if layer.name.startswith("mlp") else shape.layers


def _whole_blocks(tokens: float, args: Mapping[str, Any]) -> int:
    block = args.get("block_size")
    size = block if isinstance(block, int) and block > 0 else BLOCK_TOKENS
    return math.floor(tokens / size) * size


@dataclass(frozen=True)
class ReportedMemory:
    """What the engine said of a rank: the largest weights of its ranks, and the smallest cache."""

    weights_bytes: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    kv_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return dict(self.__dict__)


def difference(predicted: float | None, reported: float | None) -> float | None:
    """By what share a prediction is above what was reported; None where one is not known."""
    return predicted / reported - 1 if predicted is not None and reported else None
