"""How much of a speed-up is the kernels', and how much comes of larger batches: KV bytes pinned against free.

Smaller weights leave room that vLLM gives to the KV cache, so that more requests run at once. With the KV bytes
pinned to the same size on both sides only the kernels differ; with them free both do. On logarithms the two add up:
whole = kernels x batches, so batches = whole / kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perflab.analysis.quantization.estimate import Estimate, contrast


@dataclass(frozen=True)
class KvSplit:
    """One metric at one load, turned so that a factor above 1 is faster.

    Attributes
    ----------
    whole
        With the KV cache free: what a user gets.
    kernels
        With the same KV bytes on both sides.
    batches
        What is left: the effect of a larger KV cache. Its interval rests on all four groups of runs.
    n
        Runs of servers: baseline pinned, candidate pinned, baseline free, candidate free.
    """

    whole: Estimate
    kernels: Estimate
    batches: Estimate
    n: tuple[int, int, int, int]

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        parts = {name: getattr(self, name).to_json() for name in ("whole", "kernels", "batches")}
        return {**parts, "server_runs": list(self.n)}


def kv_split(
    pinned: tuple[Sequence[float], Sequence[float]],
    free: tuple[Sequence[float], Sequence[float]],
    *,
    lower_is_better: bool = False,
) -> KvSplit:
    """Split a ratio.

    Parameters
    ----------
    pinned, free
        Baseline's and candidate's values, one a run of a server, above 0.
    lower_is_better
        Of a latency: factors are turned round.
    """
    sign = -1.0 if lower_is_better else 1.0
    (pinned_base, pinned_other), (free_base, free_other) = pinned, free
    return KvSplit(
        whole=contrast([(-sign, free_base), (sign, free_other)]),
        kernels=contrast([(-sign, pinned_base), (sign, pinned_other)]),
        batches=contrast([(sign, pinned_base), (-sign, pinned_other), (-sign, free_base), (sign, free_other)]),
        n=(len(pinned_base), len(pinned_other), len(free_base), len(free_other)),
    )
