"""Why a GPU's clocks are held down, in words, from `throttle_reasons.toml`."""

from __future__ import annotations

from functools import lru_cache

from perflab.knowledge.toml import shipped_toml

POWER_CAP = 0x4
"""The bit of the power limit that the GPU or its owner set."""


@lru_cache(maxsize=1)
def throttle_reasons() -> dict[int, str]:
    """NVML's bits that slow a busy GPU, with what they mean."""
    return {int(bit, 16): words for bit, words in shipped_toml("throttle_reasons.toml")["reasons"].items()}
