"""Settings that programs print as Python reprs, read without running anything.

vLLM writes its configuration as `model='m', dtype=torch.bfloat16, compilation_config={'mode': <Mode.X: 3>}, ...`.
Nothing here fails: what cannot be taken apart stays text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

_STRING = re.compile(r"[bruBRU]{0,2}(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)(?=\s*(?:[,)\]}:>]|$))")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_ENUM = re.compile(r"<\w+\.(\w+): ")
_FIELD = re.compile(r"\s*([A-Za-z_]\w*)=")
_NEXT_FIELD = re.compile(r",\s*(?=[A-Za-z_]\w*=)|,\s*$")
_WORDS = {"None": None, "True": True, "False": False}
_MAX_DEPTH = 40


def read_fields(text: str) -> dict[str, Any]:
    """`a=1, b='x', c=C(d=2)` as {'a': 1, 'b': 'x', 'c': {'d': 2}}."""
    out: dict[str, Any] = {}
    at = 0
    while match := _FIELD.match(text, at):
        reader = _Reader(text, match.end())
        value = reader.value(0)
        end = _NEXT_FIELD.match(text, reader.at)
        if end is None and reader.at < len(text):  # not a repr: plain text up to the next field
            end = _NEXT_FIELD.search(text, match.end())
            value = text[match.end() : end.start() if end else len(text)].strip()
        out[match[1]] = value
        if end is None:
            break
        at = end.end()
    return out


def read_value(text: str) -> Any:
    """One repr: numbers, strings, lists, dicts and None as they are; objects as dicts of their fields."""
    reader = _Reader(text.strip(), 0)
    value = reader.value(0)
    return value if reader.at == len(reader.text) else text.strip()


def flattened(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one with dotted names."""
    out: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            out.update(flattened(inner, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = inner
    return out


class _Reader:
    """Reads one value after the other from text."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def value(self, depth: int) -> Any:
        start = self.at
        self._skip(" ")
        if depth > _MAX_DEPTH or self.at >= len(self.text):
            return self._plain(start)
        letter = self.text[self.at]
        if letter in "[(":
            return self._items("]" if letter == "[" else ")", depth)
        if letter == "{":
            return self._pairs(depth)
        if letter == "<":
            return self._angle()
        if match := _STRING.match(self.text, self.at):
            self.at = match.end()
            return _literal(match[0])
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            return _literal(match[0])
        match = _NAME.match(self.text, self.at)
        if match and self.text[match.end() : match.end() + 1] == "(":
            self.at = match.end()
            return self._call(depth)
        if match and self._ends_at(match.end()):
            self.at = match.end()
            return _WORDS.get(match[0], match[0].removeprefix("torch."))
        return self._plain(start)

    def _items(self, close: str, depth: int) -> list[Any]:
        out: list[Any] = []
        self.at += 1
        while not self._closes(close):
            before = self.at
            out.append(self.value(depth + 1))
            self._skip(" ,")
            if self.at == before:
                break
        return out

    def _pairs(self, depth: int) -> dict[str, Any] | list[Any]:
        out: dict[str, Any] = {}
        items: list[Any] = []
        self.at += 1
        while not self._closes("}"):
            before = self.at
            key = self.value(depth + 1)
            self._skip(" ")
            if self.text[self.at : self.at + 1] == ":":
                self.at += 1
                out[str(key)] = self.value(depth + 1)
            else:
                items.append(key)
            self._skip(" ,")
            if self.at == before:
                break
        return out if out or not items else items

    def _call(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        self.at += 1
        while not self._closes(")"):
            before = self.at
            match = _FIELD.match(self.text, self.at)
            if match:
                self.at = match.end()
            out[match[1] if match else str(len(out))] = self.value(depth + 1)
            self._skip(" ,")
            if self.at == before:
                break
        return out

    def _angle(self) -> str:
        """An enum's member by its name; another object as it stands."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            match = _STRING.match(self.text, self.at)
            if match:
                self.at = match.end()
                continue
            depth += {"<": 1, ">": -1}.get(self.text[self.at], 0)
            self.at += 1
            if depth == 0:
                break
        found = self.text[start : self.at]
        member = _ENUM.match(found)
        return member[1] if member else found

    def _plain(self, start: int) -> str:
        """Text up to the next comma or closing bracket."""
        match = re.compile(r"[^,)\]}]*").match(self.text, start)
        self.at = match.end() if match else len(self.text)
        return self.text[start : self.at].strip()

    def _ends_at(self, at: int) -> bool:
        return self.text[at : at + 1] in ("", ",", ")", "]", "}", ":")

    def _closes(self, close: str) -> bool:
        self._skip(" ")
        if self.at >= len(self.text):
            return True
        if self.text[self.at] == close:
            self.at += 1
            return True
        return False

    def _skip(self, letters: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in letters:
            self.at += 1


def _literal(text: str) -> Any:
    if text.lstrip("-") in ("inf", "nan"):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError):
        return text
