"""Copying files into a run directory: never over another, always under a name every system accepts."""

from __future__ import annotations

import lzma
import os
import re
import shutil
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from perflab.read.files import Blocks, read_head, read_text
from perflab.runs import RunWriter
from perflab.tasks.imports.cleaning import cleaned

MOST_OTHER = 64 << 20
"""Files that are not understood are kept up to this size: model weights may lie beside results."""

_BINARY = (b"SQLite format 3\0", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")


def shown(path: Path) -> str:
    """A file's name as text, bytes that are no UTF-8 as `\\xNN`."""
    return os.fsencode(path.name).decode("utf-8", errors="backslashreplace")


T = TypeVar("T")


def valid(value: T) -> T:
    """The same with text that a manifest can hold: a JSON file may name half a surrogate pair."""
    found: Any = value
    if isinstance(found, str):
        found = found.encode("utf-8", errors="backslashreplace").decode()
    elif isinstance(found, list):
        found = [valid(item) for item in found]
    elif isinstance(found, dict):
        found = {valid(key): valid(item) for key, item in found.items()}
    elif isinstance(found, msgspec.Struct):
        found = msgspec.structs.replace(found, **valid(msgspec.structs.asdict(found)))
    return cast(T, found)


class Copier:
    """Copies into one run; with `pack`, text and traces are stored xz-compressed."""

    def __init__(self, writer: RunWriter, pack: bool) -> None:
        self.writer = writer
        self.pack = pack
        self.cleaned: list[str] = []
        self._done: dict[tuple[Path, str], str] = {}

    def copy(self, source: Path, folder: str, name: str | None = None, *, clean: bool = False) -> str:
        """Copy a file to `folder` (of the run; empty: its root); returns its name in the manifest.

        With `clean`, secrets in a text are replaced; `self.cleaned` names the files in which there were some.
        """
        if (source, folder) in self._done:
            return self._done[source, folder]
        if clean and (text := _without_secrets(source)) is not None:
            plain = (name or shown(source)).removesuffix(".gz").removesuffix(".xz")
            self.cleaned.append(shown(source))
            self._done[source, folder] = self.write(text, folder, plain + (".xz" if self.pack else ""))
            return self._done[source, folder]
        target = self._target(folder, name or shown(source))
        if self.pack and not read_head(source, 16).startswith(_BINARY):
            target = _free(target.with_name(target.name.removesuffix(".gz").removesuffix(".xz") + ".xz"))
            if source.suffix == ".xz":
                shutil.copyfile(source, target)
            else:
                with lzma.open(target, "wb", preset=6) as file:
                    file.writelines(Blocks(source))
        else:
            target = _free(target)
            shutil.copyfile(source, target)
        self._done[source, folder] = self.writer.relative(target)
        return self._done[source, folder]

    def write(self, text: str, folder: str, name: str) -> str:
        """Write a file of its own; returns its name in the manifest."""
        target = self._target(folder, name)
        data = text.encode("utf-8", errors="surrogateescape")
        if self.pack:
            target = target.with_name(target.name.removesuffix(".xz") + ".xz")
            data = lzma.compress(data, preset=6)
        target = _free(target)
        target.write_bytes(data)
        return self.writer.relative(target)

    def _target(self, folder: str, name: str) -> Path:
        place = self.writer.path / folder
        place.mkdir(parents=True, exist_ok=True)
        return place / safe_name(name)


def _without_secrets(source: Path) -> str | None:
    """The text of a file with its secrets replaced; None where there are none, or it is no text."""
    if source.stat().st_size > MOST_OTHER or b"\x00" in (head := read_head(source, 1 << 16)) or not head:
        return None
    text = read_text(source)[0]
    clean = cleaned(text)
    return clean if clean != text else None


def safe_name(name: str) -> str:
    """A file name without separators, control characters, or a leading dot; at most 200 bytes."""
    clean = re.sub(r"[\x00-\x1f/\\:]+", "_", name).lstrip(".") or "file"
    while len(clean.encode("utf-8", errors="replace")) > 200:
        stem, dot, suffix = clean.rpartition(".")
        clean = f"{stem[:-1]}{dot}{suffix}" if len(stem) > 1 else clean[:-1]
    return clean


def _free(target: Path) -> Path:
    if not target.exists():
        return target
    stem, dot, suffix = target.name.partition(".")
    return next(path for i in range(2, 10**6) if not (path := target.with_name(f"{stem}-{i}{dot}{suffix}")).exists())
