"""Which library or generator a kernel comes from, from `kernel_families.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files


def kernel_family(name: str) -> str | None:
    """The family of a name; None where no pattern knows it."""
    return next((family for pattern, family in _families() if pattern.search(name)), None)


@lru_cache(maxsize=1)
def _families() -> tuple[tuple[re.Pattern[str], str], ...]:
    text = files(__package__).joinpath("kernel_families.toml").read_text(encoding="utf-8")
    return tuple((re.compile(entry["pattern"]), entry["name"]) for entry in tomllib.loads(text)["family"])
