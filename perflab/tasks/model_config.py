"""The config.json of the model whose passes are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.read.files import read_text, sniff
from perflab.runs import Run
from perflab.tasks.traces import PassSource

_BESIDE = ("config.json", "model_config.json", "config.json.xz", "model_config.json.xz")
_MOST = 16 << 20


def config_of(source: PassSource) -> dict[str, Any] | None:
    """The config a run keeps, or one that lies beside trace files or a folder above; None where there is none.

    A file that cannot be read as a config is an empty one: it lacks every key, and that is said.
    """
    if source.home is not None:
        return run_config(source.home)
    return config_beside(source.files)


def config_beside(files: Sequence[Path]) -> dict[str, Any] | None:
    """The config that lies beside files or a folder above; None where there is none."""
    folders = {folder: None for file in files for folder in (file.parent, file.parent.parent)}
    for path in (folder / name for folder in folders for name in _BESIDE):
        if path.is_file() and path.stat().st_size < _MOST and sniff(path) == "model_config":
            return _read(path)
    return None


def run_config(run: Run) -> dict[str, Any] | None:
    """The config a run keeps; None where it keeps none."""
    name = run.manifest.model_config
    return _read(run.file(name)) if name else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path)[0])
    except (InputError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_config(path: Path) -> dict[str, Any]:
    """A config.json that was given.

    Raises
    ------
    InputError
        When it cannot be read, or is none.
    """
    try:
        found = json.loads(read_text(path)[0])
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", path=path) from error
    if not isinstance(found, dict):
        raise InputError("is no config of a model: it has to be a JSON object", path=path)
    return found
