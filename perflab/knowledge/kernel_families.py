"""Which library or generator a kernel comes from, from `kernel_families.toml`."""

from __future__ import annotations

import re
from functools import lru_cache

from perflab.knowledge.toml import shipped_toml


def kernel_family(name: str) -> str | None:
    """The family of a name; None where no pattern knows it."""
    return next((family for pattern, family in _families() if pattern.search(name)), None)


@lru_cache(maxsize=1)
def _families() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(entry["pattern"]), entry["name"]) for entry in shipped_toml("kernel_families.toml")["family"]
    )
