"""What the kernels of linear layers multiply in, from `matmul_kernels.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perflab.knowledge.toml import shipped_toml

Gain = Literal["none", "bytes", "operations"]


@dataclass(frozen=True)
class MatmulKernel:
    """A family of kernels. `computes`: the format products are made in; `gain`: what quantization can save with it."""

    name: str
    computes: str
    gain: Gain
    evidence: str


def matmul_of_family(family: str | None) -> MatmulKernel | None:
    """By the family of a kernel's name (`perflab.knowledge.kernel_families`); None for one that is not known."""
    return next((kernel for by_family, _, kernel in _table() if family and by_family.search(family)), None)


def matmul_of_log(line: str) -> MatmulKernel | None:
    """By the class a line of vLLM's log names, as `MacheteLinearKernel for AutoAWQMarlinLinearMethod`."""
    named = line.partition(" for ")[0]
    return next((kernel for _, by_log, kernel in _table() if by_log.search(named)), None)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[re.Pattern[str], re.Pattern[str], MatmulKernel], ...]:
    return tuple(
        (
            re.compile(one["family"], re.IGNORECASE),
            re.compile(one["log"]),
            MatmulKernel(one["name"], one["computes"], one["gain"], one["evidence"]),
        )
        for one in shipped_toml("matmul_kernels.toml")["kernel"]
    )
