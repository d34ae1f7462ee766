"""What a config.json leaves unsaid, by its model_type, from `model_types.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """A key of a config.json under any of its names; None where it has none of them or holds null."""
    names = (key, *_table()["aliases"].get(key, ()))
    return next((config[name] for name in names if config.get(name) is not None), None)


def names_of(key: str) -> tuple[str, ...]:
    """The names a key goes by, the usual one first."""
    return key, *_table()["aliases"].get(key, ())


def tied_by_default(model_type: str) -> bool | None:
    """Whether a model_type shares its embedding with its LM head unless it says otherwise; None where not known."""
    table = _table()
    return True if model_type in table["tied"] else False if model_type in table["untied"] else None


def is_gated(model_type: str) -> bool:
    """Whether its MLP has a gate, and so three matrices."""
    return model_type not in _table()["ungated"]


def unmodelled(model_type: str, layer_types: list[str]) -> str | None:
    """The model_type or kind of layer whose work is not attention and MLP alone; None where there is none."""
    table = _table()["unmodelled"]
    if model_type in table["model_types"]:
        return model_type
    return next((kind for kind in layer_types if kind in table["layer_types"]), None)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return shipped_toml("model_types.toml")
