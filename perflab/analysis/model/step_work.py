"""Operations and bytes of every step, part by part, and the least time a GPU needs for them.

A part is bound by the slower of its two roofs: operations over the peak of its number format, bytes over the memory's
bandwidth (Williams, Waterman and Patterson, 2009). Parts run one after another, so their least times add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.model.graph_padding import CaptureSizes
from perflab.analysis.model.workload import Workload
from perflab.knowledge.gpus import GpuSpec

PARTS = MappingProxyType({
    "linear": "gemm", "lm_head": "gemm", "experts": "moe", "attention": "attention", "kv_write": "kv_cache",
})  # fmt: skip
"""Parts of a step, and the category of the kernels that do them."""

COLUMNS = ("rank", "step", "phase", "part", "category", "flops", "bytes", "limit_ns", "side")


@dataclass(frozen=True)
class Peaks:
    """What a GPU does at most for a workload: bytes a second, and operations a second in linear layers and in 16 bits.

    Attention and an LM head that is not quantized multiply in 16 bits whatever the linear layers do.
    """

    linear: float
    sixteen: float
    memory: float
    dtype: str

    def limit_ns(self, part: str, flops: float, moved: float) -> tuple[float, str | None]:
        """The least time of a part, and the roof that sets it: `compute` or `memory`."""
        compute = flops / (self.linear if part in ("linear", "experts") else self.sixteen)
        memory = moved / self.memory
        return max(compute, memory) * 1e9, "compute" if compute > memory else "memory"


def peaks_of(gpu: GpuSpec, work: Workload) -> Peaks:
    """The peaks that count: of the format the linear layers multiply in where the GPU has it, else of 16 bits."""
    sixteen = gpu.peak("bf16") or 0.0
    own = gpu.peak(work.peak_dtype)
    return Peaks(own or sixteen, sixteen, gpu.memory_bytes_per_s, work.peak_dtype if own else "bf16")


def step_work(steps: pd.DataFrame, work: Workload, peaks: Peaks) -> pd.DataFrame:
    """The work of each step of one rank.

    Parameters
    ----------
    steps
        Table `steps` of one rank, and column `kv_pairs` of `perflab.analysis.steps` where it is known.
    work
        The rank's part of the model.

    Returns
    -------
    DataFrame
        A row a step and part: `rank`, `step`, `phase`, `part`, `category` (of the kernels that do it), `flops`,
        `bytes`, `limit_ns`, `side` (the roof: compute or memory). Attention has NA in the first three where the step
        does not tell its KV tokens, and no `side` unless the step only decodes: whatever their number, a decoding token
        does as many operations for each byte of the cache it reads. Steps that do not tell their tokens have no rows.

    Notes
    -----
    Linear layers: 2 * tokens * parameters operations, all weights once, each activation in and out. LM head: a row a
    sampled token. Attention: 2 * heads * (key + value length) for each pair of query and key under the causal mask, KV
    of all requests once. Experts: as many as uniform routing is expected to touch.
    """
    rows: list[dict[str, Any]] = []
    for step in steps.to_dict("records"):
        prefill, decode = step["prefill_tokens"], step["decode_tokens"]
        if pd.isna(prefill) or pd.isna(decode) or prefill + decode == 0:
            continue
        for part, (flops, moved) in _parts(step, work).items():
            if flops is None or moved is None:
                limit, side = np.nan, _decode_side(step, work, peaks)
            else:
                limit, side = peaks.limit_ns(part, flops, moved)
            rows.append({
                "rank": step["rank"], "step": step["step"], "phase": step["phase"], "part": part,
                "category": PARTS[part], "flops": flops, "bytes": moved, "limit_ns": limit, "side": side,
            })  # fmt: skip
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"flops": "float64", "bytes": "float64", "limit_ns": "float64"})


def padding(steps: pd.DataFrame, work: Workload, sizes: CaptureSizes) -> pd.DataFrame:
    """What graphs add to each step: `step`, `phase`, `tokens`, `padded_tokens`, `extra_flops` of linear layers.

    Steps that do not tell their tokens have no row.
    """
    known = steps[steps["prefill_tokens"].notna() & steps["decode_tokens"].notna()]
    tokens = (known["prefill_tokens"] + known["decode_tokens"]).astype("int64").to_numpy()
    phases = known["phase"].astype(str).to_numpy()
    padded = np.array([sizes.padded(int(n), phase) for n, phase in zip(tokens, phases, strict=True)], dtype=np.int64)
    return pd.DataFrame(
        {
            "step": known["step"].to_numpy(),
            "phase": phases,
            "tokens": tokens,
            "padded_tokens": padded,
            "extra_flops": (padded - tokens) * work.flops_per_token,
        }
    )


def _parts(step: dict[str, Any], work: Workload) -> dict[str, tuple[float | None, float | None]]:
    tokens = float(step["prefill_tokens"] + step["decode_tokens"])
    found: dict[str, tuple[float | None, float | None]] = {
        "linear": (
            sum(one.flops(tokens) for one in work.linear),
            sum(one.weight_bytes + one.activation_bytes(tokens) for one in work.linear),
        )
    }
    if work.lm_head:
        # A request in prefill has one row of logits; in decode each of its tokens has (several when speculating).
        sampled = float(step["prefill_requests"] + step["decode_tokens"])
        head = work.lm_head
        found["lm_head"] = head.flops(sampled), head.weight_bytes + head.activation_bytes(sampled)
    if experts := work.experts:
        moved = experts.weight_bytes(tokens) + experts.activation_bytes(tokens)
        found["experts"] = experts.flops(tokens), moved
    found["attention"] = _attention(step, work)
    if work.kv_bytes_per_token is not None:
        found["kv_write"] = 0.0, tokens * work.kv_bytes_per_token
    return found


def _attention(step: dict[str, Any], work: Workload) -> tuple[float | None, float | None]:
    kv, pairs = step["kv_tokens"], step.get("kv_pairs", pd.NA)
    if pd.isna(pairs) and step["prefill_tokens"] == 0 and step["decode_tokens"] == step["decode_requests"]:
        pairs = kv  # one query a request: it meets every token of its request
    if pd.isna(kv) or pd.isna(pairs) or work.kv_bytes_per_token is None:
        return None, None
    requests = step["prefill_requests"] + step["decode_requests"]
    seen = _seen(work, float(kv) / float(requests))
    queries = float(step["prefill_tokens"] + step["decode_tokens"])
    flops = 2 * work.layers * work.heads * (work.qk_dim + work.v_dim) * float(pairs) * seen
    activations = 2 * 2 * work.layers * work.heads * work.v_dim * queries
    return flops, float(kv) * work.kv_bytes_per_token * seen + activations


def _seen(work: Workload, length: float) -> float:
    """The share of a request's tokens its layers look at, windows regarded; requests are taken for equally long."""
    if not work.window or not work.window_layers:
        return 1.0
    inside = min(1.0, work.window / length)
    return 1 - work.window_layers / work.layers * (1 - inside)


def decode_attention_intensity(work: Workload) -> float | None:
    """Operations a byte of KV cache that a decoding token does; None where the cache's format is not known."""
    if not work.kv_bytes_per_token:
        return None
    return 2 * work.layers * work.heads * (work.qk_dim + work.v_dim) / work.kv_bytes_per_token


def _decode_side(step: dict[str, Any], work: Workload, peaks: Peaks) -> str | None:
    intensity = decode_attention_intensity(work)
    if step["phase"] != "decode" or step["decode_tokens"] != step["decode_requests"] or intensity is None:
        return None
    return "compute" if intensity > peaks.sixteen / peaks.memory else "memory"
