"""How one sees in a trace that quantized weights are computed with, from `quantized_kernels.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files


def quantized_kernels(method: str) -> re.Pattern[str] | None:
    """What names of matmul kernels show for a quantization method; None for one that is not known."""
    return next((kernels for asked, kernels in _table() if asked.search(method.lower())), None)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    text = files(__package__).joinpath("quantized_kernels.toml").read_text(encoding="utf-8")
    return tuple((re.compile(one["asked"]), re.compile(one["kernels"])) for one in tomllib.loads(text)["method"])
