"""How one sees in a trace that quantized weights are computed with, from `quantized_kernels.toml`."""

from __future__ import annotations

import re
from functools import lru_cache

from perflab.knowledge.toml import shipped_toml


def quantized_kernels(method: str) -> re.Pattern[str] | None:
    """What names of matmul kernels show for a quantization method; None for one that is not known."""
    return next((kernels for asked, kernels in _table() if asked.search(method.lower())), None)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (re.compile(one["asked"]), re.compile(one["kernels"]))
        for one in shipped_toml("quantized_kernels.toml")["method"]
    )
