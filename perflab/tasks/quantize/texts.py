"""Text that any machine has, or the user's own, as documents: to score, and to calibrate with.

`english` to score is `pydoc_data.topics` of Python itself: what `help()` prints on a topic, one document each.
`english` to calibrate with are docstrings of the standard library, one document a module: other text, the same tongue.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.experiment.study import TextSpec
from perflab.messages import say

_LEAST = 200
_SHINGLE = 100
_TEXT_KEYS = ("text", "content", "prompt", "document")


@dataclass(frozen=True)
class Document:
    """One text, and where it is from."""

    name: str
    text: str


@dataclass(frozen=True)
class Text:
    """Documents of one source; `what` says in words which."""

    what: str
    documents: tuple[Document, ...]

    @property
    def sha256(self) -> str:
        """Of all texts in order: two texts with the same hash are the same documents."""
        digest = hashlib.sha256()
        for one in self.documents:
            digest.update(hashlib.sha256(one.text.encode()).digest())
        return digest.hexdigest()

    def texts(self) -> list[str]:
        """The texts alone."""
        return [one.text for one in self.documents]


def text_to_score(spec: TextSpec) -> Text:
    """The documents to score.

    Raises
    ------
    InputError
        When a file cannot be read, or holds no text.
    """
    return _topics() if spec.english else _own(spec.paths)


def text_to_calibrate(spec: TextSpec, scored: Text) -> tuple[Text, int]:
    """The documents to calibrate with, without those that share a passage with what is scored; and how many those were.

    Raises
    ------
    InputError
        When nothing is left.
    """
    found = _docstrings() if spec.english else _own(spec.paths)
    passages = set().union(*(_passages(one.text) for one in scored.documents))
    kept = tuple(one for one in found.documents if passages.isdisjoint(_passages(one.text)))
    if not kept:
        raise InputError(say("quantize_text.all_scored"), path=spec.paths[0] if spec.paths else None)
    return Text(found.what, kept), len(found.documents) - len(kept)


def _passages(text: str) -> set[str]:
    """Every passage of `_SHINGLE` characters that begins a word, spaces and case apart."""
    plain = re.sub(r"\s+", " ", text).strip().lower()
    if len(plain) <= _SHINGLE:
        return {plain}
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S", plain)]
    return {plain[at : at + _SHINGLE] for at in starts if at + _SHINGLE <= len(plain)}


def _topics() -> Text:
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    documents = tuple(
        Document(name, text.strip()) for name, text in sorted(topics.items()) if len(text.strip()) >= _LEAST
    )
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Text(say("quantize_text.topics", version=version), documents)


def _docstrings() -> Text:
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in [*folder.glob("*.py"), *folder.glob("*/*.py")] if _counts(path.relative_to(folder)))
    documents = tuple(
        Document(str(path.relative_to(folder)), text) for path in files if len(text := _docstrings_of(path)) >= _LEAST
    )
    if not documents:
        raise InputError(say("quantize_text.no_library"), path=folder)
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Text(say("quantize_text.docstrings", version=version), documents)


def _counts(path: Path) -> bool:
    """Neither what others installed, nor tests, nor the topics themselves."""
    return not {"site-packages", "dist-packages", "test", "tests", "idlelib", "pydoc_data", "lib2to3"} & set(path.parts)


def _docstrings_of(path: Path) -> str:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(one for one in found if one and len(one.split()) >= 8)


def _own(paths: Sequence[Path]) -> Text:
    documents: list[Document] = []
    for path in paths:
        documents += _read(path)
    if not documents:
        raise InputError(say("quantize_text.empty", least=_LEAST), path=paths[0] if paths else None)
    return Text(say("quantize_text.own", names=", ".join(path.name for path in paths)), tuple(documents))


def _read(path: Path) -> Iterable[Document]:
    """A text file is one document; of a JSONL file each line is one."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(say("quantize_text.not_utf8"), path=path) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if path.suffix not in (".jsonl", ".ndjson"):
        return [Document(path.name, text.strip())] if len(text.strip()) >= _LEAST else []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            one = _line(path, number, line).strip()
            if len(one) >= _LEAST:
                found.append(Document(f"{path.name}:{number}", one))
    return found


def _line(path: Path, number: int, line: str) -> str:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise InputError(say("quantize_text.not_json"), path=path, line=number) from error
    if isinstance(row, str):
        return row
    for key in _TEXT_KEYS:
        if isinstance(row, dict) and isinstance(row.get(key), str):
            return str(row[key])
    raise InputError(say("quantize_text.no_key", keys=", ".join(_TEXT_KEYS)), path=path, line=number)
