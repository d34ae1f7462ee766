"""The message catalogue: every sentence a reader of a report or a finding sees.

Sentences live in one TOML file a language (`en.toml`), grouped by table, with `{name}` fields. Code names
them: `say("idle.host_bound.title", share="35 %")`. Text inside figures stays English and lives with the plot.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

DEFAULT_LANGUAGE = "en"


@lru_cache(maxsize=4)
def catalogue(language: str = DEFAULT_LANGUAGE) -> dict[str, str]:
    """All sentences of a language by dotted name."""
    text = files(__package__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return dict(_flatten(tomllib.loads(text)))


def say(name: str, /, language: str = DEFAULT_LANGUAGE, **fields: Any) -> str:
    """One sentence with its fields filled in.

    Raises `KeyError` for a name or field the catalogue does not have: that is a bug, and a test looks for it.
    """
    return catalogue(language)[name].format(**fields).strip()


def capital(sentence: str) -> str:
    """The sentence with a capital first letter, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def _flatten(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in tree.items():
        pairs += _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return pairs
