"""TOML of users: what is wrong with it in one line, with the line it is on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from perflab.errors import InputError

_WHERE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


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
