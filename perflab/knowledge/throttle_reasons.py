"""Why a GPU's clocks are held down, in words, from `throttle_reasons.toml`."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files

POWER_CAP = 0x4
"""The bit of the power limit that the GPU or its owner set."""


@lru_cache(maxsize=1)
def throttle_reasons() -> dict[int, str]:
    """NVML's bits that slow a busy GPU, with what they mean."""
    text = files("perflab.knowledge").joinpath("throttle_reasons.toml").read_text(encoding="utf-8")
    return {int(bit, 16): words for bit, words in tomllib.loads(text)["reasons"].items()}
