"""Which versions of vLLM have an argument of `vllm serve`, from `engine_args.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Elsewhere:
    """An argument that other versions have: `last` seen in one and replaced by `use`, or new `since` one."""

    last: str | None = None
    since: str | None = None
    use: str | None = None


def elsewhere(name: str) -> Elsewhere | None:
    """What is known of an argument that the installed version lacks; None where no version listed has it."""
    table = _table()
    if found := table["gone"].get(name):
        return Elsewhere(last=found["last"], use=found.get("use"))
    since = next((version for version, names in table["since"].items() if name in names), None)
    return None if since is None else Elsewhere(since=since)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("engine_args.toml").read_text(encoding="utf-8"))
