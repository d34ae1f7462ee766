"""Where capture keeps what is slow to get: probes of an engine, converted models."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from perflab.errors import CaptureError


def cache_folder(name: str) -> Path:
    """A folder under the user's cache (`$XDG_CACHE_HOME/perflab`, or `~/.cache/perflab`), made if need be."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    folder = root / "perflab" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaptureError(
            f"cannot make {folder}: {error.strerror}; set XDG_CACHE_HOME to a folder you may write to"
        ) from error
    return folder


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    part = Path(name)
    part.chmod(0o644)
    part.replace(path)
