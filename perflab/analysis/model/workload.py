"""What one rank multiplies, reads and writes in a step, by the model's shape and how it is split over GPUs.

Two operations a multiply-add. Weights count once a step whatever the batch; activations are read and written at 16
bits; biases and norms are left out (below a thousandth).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perflab.analysis.model.quantization import Quantization, kv_element_bytes
from perflab.analysis.model.shape import DTYPE_BITS, ModelShape

VOCAB_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this before it is split (VocabParallelEmbedding)."""


@dataclass(frozen=True)
class Split:
    """How the engine splits a model: tensor, pipeline and expert parallel, and which pipeline stage this rank is.

    `expert` is the number of ranks the experts are spread over; 1 where every rank has a slice of all of them. Tokens
    of all `data` parallel ranks meet at such experts.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    stage: int = 0
    data: int = 1

    def of_rank(self, rank: int) -> Split:
        """The split as seen by a rank: vLLM numbers tensor parallel ranks first, then pipeline stages."""
        return replace(self, stage=(rank // self.tensor) % self.pipeline)


def split_of(settings: Mapping[str, Any]) -> Split:
    """The split by the engine's settings (`tensor_parallel_size` and so on; what is not said is 1)."""
    tensor, pipeline, data = (_count(settings.get(f"{name}_parallel_size")) for name in ("tensor", "pipeline", "data"))
    on = str(settings.get("enable_expert_parallel")).lower() == "true"
    return Split(tensor, pipeline, tensor * data if on else 1, data=data)


@dataclass(frozen=True)
class Matmul:
    """`count` products of rows with a matrix of `inner` by `outer`, of `bits` a weight."""

    name: str
    count: float
    inner: int
    outer: float
    bits: float

    @property
    def weight_bytes(self) -> float:
        """All matrices together."""
        return self.count * self.inner * self.outer * self.bits / 8

    def flops(self, rows: float) -> float:
        """Operations for so many rows."""
        return 2 * rows * self.count * self.inner * self.outer

    def activation_bytes(self, rows: float) -> float:
        """Input read and output written, 16 bits each."""
        return 2 * rows * self.count * (self.inner + self.outer)


@dataclass(frozen=True)
class Experts:
    """The expert layers of a rank.

    `local` of a layer's `all_experts` are here, a token goes to `per_token` of all; `ranks` ranks send this one as
    many tokens each as it has itself. `matrices` are those of all local experts of all `layers`.
    """

    layers: int
    all_experts: int
    local: float
    per_token: int
    ranks: int
    matrices: tuple[Matmul, ...]

    def expected_touched(self, tokens: float) -> float:
        """Experts of a layer here that at least one token goes to, expected under uniform routing.

        Each token picks `per_token` of `all_experts` without repetition, tokens independently of one another:
        local * (1 - (1 - per_token/all_experts)^tokens). Real routers are not uniform and touch fewer.
        """
        missed = float((1.0 - self.per_token / self.all_experts) ** (tokens * self.ranks))
        return self.local * (1.0 - missed)

    def expected_rows(self, tokens: float) -> float:
        """Rows of tokens that a layer's experts here work on, expected: each token counts once an expert."""
        return tokens * self.ranks * self.per_token * self.local / self.all_experts

    def flops(self, tokens: float) -> float:
        """Operations, expected."""
        return self.expected_rows(tokens) / self.local * sum(one.flops(1) for one in self.matrices)

    def weight_bytes(self, tokens: float) -> float:
        """Weights of the experts that are touched, expected."""
        return self.expected_touched(tokens) / self.local * sum(one.weight_bytes for one in self.matrices)

    def activation_bytes(self, tokens: float) -> float:
        """Rows read and written by the experts, expected."""
        return self.expected_rows(tokens) / self.local * sum(one.activation_bytes(1) for one in self.matrices)


@dataclass(frozen=True)
class Workload:
    """One rank's part of the model.

    Attributes
    ----------
    layers
        How many are on this rank's pipeline stage.
    linear
        Matrices every token is multiplied with; `lm_head`: only rows whose logits are wanted, last stage only.
    embedding_bytes
        The embedding, first stage only; 0 where the LM head on the same stage is the same matrix.
    heads, kv_heads, qk_dim, v_dim
        Attention of this rank: heads, heads whose keys and values are cached, and the lengths of the dot products
        (of queries with keys, of weights with values).
    kv_bytes_per_token
        A token in this rank's KV cache, all its layers; None where the cache's dtype is not known.
    peak_dtype
        What the linear layers multiply in where the GPU can; else they do in 16 bits.
    """

    layers: int
    linear: tuple[Matmul, ...]
    lm_head: Matmul | None
    experts: Experts | None
    embedding_bytes: float
    heads: float
    kv_heads: float
    qk_dim: int
    v_dim: int
    kv_bytes_per_token: float | None
    window: int | None
    window_layers: int
    peak_dtype: str

    @property
    def weight_bytes(self) -> float:
        """All weights of the rank, embedding included: what loading takes.

        vLLM's own figure of the recorded runs agrees to 0.1 % in BF16, 0.4 % in FP8. With AWQ it is 2 % more: Machete
        keeps zero points as 16-bit numbers, where a checkpoint has 4 bits.
        """
        dense = sum(one.weight_bytes for one in self.linear)
        head = self.lm_head.weight_bytes if self.lm_head else 0.0
        experts = sum(one.weight_bytes for one in self.experts.matrices) if self.experts else 0.0
        return dense + head + experts + self.embedding_bytes

    @property
    def read_weight_bytes(self) -> float:
        """Weights a step reads whatever its batch: linear layers and LM head. Experts depend on the tokens."""
        return sum(one.weight_bytes for one in (*self.linear, *([self.lm_head] if self.lm_head else [])))

    def balanced_tokens(self, flops_per_s: float, bytes_per_s: float) -> float:
        """The batch at which linear layers take as long to compute as their weights take to be read."""
        weights = sum(one.weight_bytes for one in self.linear)
        return weights / bytes_per_s * flops_per_s / sum(one.flops(1) for one in self.linear)

    @property
    def flops_per_token(self) -> float:
        """Operations of the layers' matrices for one token, experts included, LM head and attention not."""
        dense = sum(one.flops(1) for one in self.linear)
        if self.experts is None:
            return dense
        return dense + self.experts.flops(1)


def workload(shape: ModelShape, split: Split = Split(), settings: Mapping[str, Any] | None = None) -> Workload:
    """One rank's part.

    Parameters
    ----------
    shape
        With the quantization that counts (`perflab.analysis.quantization.with_settings`).
    split
        Of this rank.
    settings
        The engine's: its `dtype` and `kv_cache_dtype` count where they are given.
    """
    settings = settings or {}
    dtype = _engine_dtype(settings, shape.dtype)
    bits = float(DTYPE_BITS.get(dtype, 16))
    quantized = shape.quantization
    mine = stage_layers(shape.layers, split.pipeline, split.stage)
    with_experts = len(set(mine) & set(shape.expert_layers))
    weight = quantized.bits if quantized else bits
    of_attention = weight if quantized is None or quantized.attention else bits
    linear = [*_attention(shape, split, len(mine), of_attention), *_mlp(shape, split, len(mine) - with_experts, weight)]
    experts = None
    if shape.moe and with_experts:
        linear.append(Matmul("router", with_experts, shape.hidden, shape.moe.experts, bits))
        if shape.moe.shared_intermediate:
            linear += _pair("shared expert", shape, with_experts, shape.moe.shared_intermediate / split.tensor, weight)
        experts = _experts(shape, split, with_experts, weight)
    vocab = math.ceil(shape.vocab / VOCAB_PADDING) * VOCAB_PADDING
    table = Matmul("LM head", 1, shape.hidden, vocab / split.tensor, _head_bits(quantized, bits))
    first, last = split.stage == 0, split.stage == split.pipeline - 1
    element = kv_element_bytes(settings, dtype)
    kv_heads = max(1.0, shape.kv_heads / split.tensor)
    cached = shape.mla.kv_lora_rank + shape.mla.qk_rope_head_dim if shape.mla else 2 * kv_heads * shape.head_dim
    return Workload(
        layers=len(mine),
        linear=tuple(linear),
        lm_head=table if last else None,
        experts=experts,
        embedding_bytes=shape.hidden * vocab / split.tensor * bits / 8 if first and not (shape.tied and last) else 0.0,
        heads=shape.heads / split.tensor,
        kv_heads=1 if shape.mla else kv_heads,
        qk_dim=shape.mla.kv_lora_rank + shape.mla.qk_rope_head_dim if shape.mla else shape.head_dim,
        v_dim=shape.mla.kv_lora_rank if shape.mla else shape.head_dim,
        kv_bytes_per_token=None if element is None else len(mine) * cached * element,
        window=shape.sliding_window,
        window_layers=round(shape.sliding_layers * len(mine) / shape.layers),
        peak_dtype=(quantized.activations if quantized else None) or ("tf32" if dtype == "float32" else "bf16"),
    )


def stage_layers(layers: int, stages: int, stage: int) -> range:
    """The layers of a pipeline stage: as even as can be, what is left over to the later stages but the last.

    As vLLM's `get_pp_indices` deals them out.
    """
    sizes = [layers // stages] * stages
    for extra in range(layers % stages):
        sizes[-2 - extra] += 1
    start = sum(sizes[:stage])
    return range(start, start + sizes[stage])


def _attention(shape: ModelShape, split: Split, layers: int, bits: float) -> list[Matmul]:
    heads = shape.heads / split.tensor
    if mla := shape.mla:
        q_out = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        down = mla.kv_lora_rank + mla.qk_rope_head_dim + (mla.q_lora_rank or 0)
        return [
            # The projections down to the latent are on every rank.
            Matmul("qkv down", layers, shape.hidden, down, bits),
            Matmul("q up", layers, mla.q_lora_rank or shape.hidden, q_out, bits),
            Matmul("kv up", layers, mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim), bits),
            Matmul("o", layers, round(heads * mla.v_head_dim), shape.hidden, bits),
        ]
    kv_heads = max(1.0, shape.kv_heads / split.tensor)
    return [
        Matmul("qkv", layers, shape.hidden, (heads + 2 * kv_heads) * shape.head_dim, bits),
        Matmul("o", layers, round(heads * shape.head_dim), shape.hidden, bits),
    ]


def _mlp(shape: ModelShape, split: Split, layers: int, bits: float) -> list[Matmul]:
    return _pair("mlp", shape, layers, shape.intermediate / split.tensor, bits) if layers else []


def _pair(name: str, shape: ModelShape, count: float, width: float, bits: float) -> list[Matmul]:
    return [
        Matmul(f"{name} up", count, shape.hidden, (2 if shape.gated else 1) * width, bits),
        Matmul(f"{name} down", count, round(width), shape.hidden, bits),
    ]


def _experts(shape: ModelShape, split: Split, layers: int, bits: float) -> Experts | None:
    moe = shape.moe
    if moe is None:
        return None
    local = moe.experts / split.expert
    width = moe.intermediate if split.expert > 1 else moe.intermediate / split.tensor
    matrices = _pair("experts", shape, layers * local, width, bits)
    ranks = split.data if split.expert > 1 else 1
    return Experts(layers, moe.experts, local, moe.per_token, ranks, tuple(matrices))


def _head_bits(quantized: Quantization | None, bits: float) -> float:
    return quantized.bits if quantized and quantized.lm_head else bits


def _engine_dtype(settings: Mapping[str, Any], own: str) -> str:
    asked = str(settings.get("dtype") or "auto").removeprefix("torch.")
    found = own if asked == "auto" else {"half": "float16", "float": "float32"}.get(asked, asked)
    # With `auto` vLLM runs a float32 model in 16 bits.
    return "bfloat16" if found == "float32" and asked == "auto" else found


def _count(value: Any) -> int:
    try:
        return max(1, int(value))
    except (TypeError, ValueError):
        return 1
