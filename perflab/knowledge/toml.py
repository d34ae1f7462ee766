"""TOML: what comes with this package, and what users give, with what is wrong with it in one line."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from perflab.errors import InputError

_WHERE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


def shipped_text(name: str) -> str:
    """A file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def shipped_toml(name: str) -> dict[str, Any]:
    """A file of this folder as a document."""
    return tomllib.loads(shipped_text(name))


def read_toml(text: str, path: Path) -> dict[str, Any]:
    """The document.

    Raises
    ------
    InputError
        When it is not valid TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _WHERE.search(str(error))
        line = int(found[1]) if found and found[1] else len(text.splitlines()) if found else None
        raise InputError(f"is not valid TOML: {_WHERE.sub('', str(error))}", path=path, line=line) from error
