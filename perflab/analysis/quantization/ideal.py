"""What the roofline lets quantization gain, by batch and by load: the least time of steps, format against format.

Weights of fewer bits take less time to be read, which counts while a step waits for memory. A format that also computes
in fewer bits has a higher peak besides, which counts in large batches and in prefill. Weights of 4 bits that are
multiplied in 16 have no such peak: from the batch on at which the 16-bit model is bound by computing, nothing is left
of them. No kernel reaches its roof, and nothing here knows the cost of quantizing activations. A ratio of two least
times is no bound either: kernels that come nearer to their roof than the baseline's gain more than it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perflab.analysis.model.step_work import Peaks, peaks_of, step_work
from perflab.analysis.model.workload import Workload
from perflab.knowledge.gpus import GpuSpec

CHUNK = 8192
"""Tokens of a step where the engine's `max_num_batched_tokens` is not told."""


@dataclass(frozen=True)
class Format:
    """A model in one format on a GPU."""

    work: Workload
    peaks: Peaks

    @classmethod
    def on(cls, gpu: GpuSpec, work: Workload) -> Format:
        """The format's work with the peaks that count for it."""
        return cls(work, peaks_of(gpu, work))

    @property
    def balanced_tokens(self) -> float:
        """Tokens of a step from which on linear layers are bound by computing."""
        return self.work.balanced_tokens(self.peaks.linear, self.peaks.memory)


@dataclass(frozen=True)
class Vanishing:
    """The batch at which the linear layers of a format gain less than a share over the baseline's, by the roofline.

    Attributes
    ----------
    tokens
        Tokens of a step; None where the format is faster at any batch.
    best, last
        Ratio of least times, baseline over format: of one token, and of a batch of any size.
    own_balance, baseline_balance
        Tokens from which on each is bound by computing.
    """

    tokens: float | None
    best: float
    last: float
    own_balance: float
    baseline_balance: float

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "tokens": self.tokens, "ratio_of_one_token": self.best, "ratio_of_large_batches": self.last,
            "compute_bound_from_tokens": self.own_balance, "baseline_compute_bound_from_tokens": self.baseline_balance,
        }  # fmt: skip


def linear_ns(one: Format, tokens: float) -> float:
    """Least time of all linear layers of a step: weights and activations moved, against operations."""
    flops = sum(m.flops(tokens) for m in one.work.linear)
    moved = sum(m.weight_bytes + m.activation_bytes(tokens) for m in one.work.linear)
    return one.peaks.limit_ns("linear", flops, moved)[0]


def vanishing(baseline: Format, other: Format, share: float) -> Vanishing:
    """Where `other`'s linear layers gain less than `share` over the baseline's.

    Notes
    -----
    The ratio of least times is that of the weights' bytes for one token, falls once
    `other` is bound by computing while the baseline is not, and is that of the peaks from where both are: it comes
    down to 1 + `share` at most once, which is what the bisection rests on.
    """

    def ratio(tokens: float) -> float:
        return linear_ns(baseline, tokens) / linear_ns(other, tokens)

    large = 1e7
    found = None
    if ratio(1.0) <= 1 + share:
        found = 1.0
    elif ratio(large) <= 1 + share:
        low, high = 1.0, large
        while high / low > 1.0001:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if ratio(middle) > 1 + share else (low, middle)
        found = high
    return Vanishing(found, ratio(1.0), ratio(large), other.balanced_tokens, baseline.balanced_tokens)


def decode_ns(one: Format, batch: int, context: float) -> float:
    """Least time of a step in which so many requests decode a token each, `context` tokens long on average."""
    kv = round(batch * context)
    return _step_ns(one, prefill=(0, 0), decode=batch, kv=kv, pairs=kv, phase="decode")


def prefill_ns(one: Format, prompt: int, requests: int) -> float:
    """Least time of a step that computes so many prompts."""
    pairs = requests * prompt * (prompt + 1) // 2
    return _step_ns(
        one, prefill=(requests, requests * prompt), decode=0, kv=requests * prompt, pairs=pairs, phase="prefill"
    )


def closed_loop(one: Format, concurrency: int, prompt: int, output: int, chunk: int = CHUNK) -> float:
    """The most output tokens a second with so many requests always under way, all of the same lengths.

    Each of c requests needs its prompt computed once and output - 1 steps of decoding, which it shares with the others:
    c * output tokens in c * prefill + (output - 1) * decode(c). Prompts are computed in steps of up to `chunk` tokens.
    """
    together = max(1, min(concurrency, chunk // max(prompt, 1)))
    of_prompt = prefill_ns(one, prompt, together) / together
    of_steps = (output - 1) * decode_ns(one, concurrency, prompt + output / 2)
    return concurrency * output / (concurrency * of_prompt + of_steps) * 1e9


def closed_loop_ratios(
    baseline: Format, other: Format, loads: Sequence[int], prompt: int, output: int, chunk: int = CHUNK
) -> pd.DataFrame:
    """`load`, `throughput` (ratio of most output tokens a second, other over baseline) and `decode` (baseline's least
    decode step over the other's), a row a load.
    """
    rows = [
        (
            load,
            closed_loop(other, load, prompt, output, chunk) / closed_loop(baseline, load, prompt, output, chunk),
            decode_ns(baseline, load, prompt + output / 2) / decode_ns(other, load, prompt + output / 2),
        )
        for load in loads
    ]
    return pd.DataFrame(rows, columns=["load", "throughput", "decode"])


def _step_ns(one: Format, *, prefill: tuple[int, int], decode: int, kv: int, pairs: int, phase: str) -> float:
    requests, tokens = prefill
    step = pd.DataFrame([{
        "rank": 0, "step": 0, "phase": phase, "prefill_requests": requests, "prefill_tokens": tokens,
        "decode_requests": decode, "decode_tokens": decode, "kv_tokens": kv, "kv_pairs": pairs,
    }])  # fmt: skip
    return float(step_work(step, one.work, one.peaks)["limit_ns"].sum(min_count=1))
