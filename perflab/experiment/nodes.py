"""YAML read with line numbers: every complaint names the line it is about.

`Table` wraps one mapping of the file. Its getters check the type of a value and return it as Python's;
what the file does not have comes back as the default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from perflab.errors import InputError


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> list[str]:
    """The names of `known` most like `name`, best first; the whole of `known` where it is short."""
    names = sorted(set(known))
    found = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    return found or (names if len(names) <= 12 else [])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?`, or nothing where no name is close."""
    found = closest(name, known)
    return f"; did you mean {', '.join(found)}?" if found else ""


class Source:
    """The file being read."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def root(self) -> yaml.MappingNode:
        """The file's one mapping."""
        try:
            node = yaml.compose(self.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            problem = " ".join(str(error.problem or error.context or "syntax error").split())
            raise InputError(f"is not valid YAML: {problem}", path=self.path, line=line) from error
        except yaml.YAMLError as error:
            text = " ".join(str(error).split())
            raise InputError(f"is not valid YAML: {text}", path=self.path) from error
        if node is None:
            raise InputError("is empty; see docs/experiment-file.md", path=self.path)
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, "must be a mapping of keys to values; see docs/experiment-file.md")
        return node

    def complain(self, node: yaml.Node | None, what: str) -> NoReturn:
        """Raise `InputError` about `node`."""
        raise InputError(what, path=self.path, line=line_of(node))


def line_of(node: yaml.Node | None) -> int | None:
    """The line `node` starts on, from 1."""
    return None if node is None or node.start_mark is None else int(node.start_mark.line) + 1


def plain(node: yaml.Node) -> Any:
    """A node as plain Python data."""
    return yaml.SafeLoader("").construct_object(node, deep=True)


class Table:
    """One mapping of the file.

    Parameters
    ----------
    source, node
        The file, and the mapping in it.
    where
        Its dotted place, for messages: empty for the file itself.
    known
        The keys it may have; None: any.
    """

    def __init__(self, source: Source, node: yaml.Node, where: str, known: Iterable[str] | None) -> None:
        self.source, self.where, self.node = source, where, node
        if not isinstance(node, yaml.MappingNode):
            source.complain(node, f"{where or 'the file'} must be a mapping of keys to values")
        yaml.SafeLoader("").flatten_mapping(node)
        self.nodes: dict[str, yaml.Node] = {}
        self.lines: dict[str, int] = {}
        names = None if known is None else set(known)
        for key, value in node.value:
            name = str(plain(key)) if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                source.complain(key, f"a key of {where or 'the file'} must be a name")
            if names is not None and name not in names:
                source.complain(key, f"unknown key {self.place(name)}{did_you_mean(name, names)}")
            if name in self.nodes:
                source.complain(key, f"{self.place(name)} is given twice")
            self.nodes[name] = value
            self.lines[name] = line_of(key) or 0

    def place(self, key: str) -> str:
        """The dotted place of a key."""
        return f"{self.where}.{key}" if self.where else key

    def complain(self, key: str, what: str) -> NoReturn:
        """Raise `InputError` about a key, at its own line, or at the mapping's where it is absent."""
        line = self.lines.get(key) or line_of(self.node)
        raise InputError(f"{self.place(key)} {what}", path=self.source.path, line=line)

    def __contains__(self, key: str) -> bool:
        return key in self.nodes

    def value(self, key: str) -> Any:
        """The plain value of a key that is there; an empty one is refused."""
        found = plain(self.nodes[key])
        if found is None:
            self.complain(key, "has no value")
        return found

    def text(self, key: str, default: str | None = None) -> str | None:
        """A string."""
        if key not in self:
            return default
        found = self.value(key)
        if not isinstance(found, str) or not found.strip():
            self.complain(key, f"must be text, not {_kind(found)}")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        if key not in self:
            return default
        found = self.value(key)
        if not isinstance(found, bool):
            self.complain(key, f"must be true or false, not {_kind(found)}")
        return found

    def integer(self, key: str, default: int, at_least: int = 1) -> int:
        """A whole number of `at_least`."""
        return self._integer(key, self.value(key), at_least) if key in self else default

    def number(self, key: str, default: float, above: float = 0.0) -> float:
        """A number greater than `above`."""
        return self._number(key, self.value(key), above) if key in self else default

    def maybe_number(self, key: str) -> float | None:
        """A positive number, or None where the key is absent."""
        return self._number(key, self.value(key), 0.0) if key in self else None

    def choice(self, key: str, default: str, known: tuple[str, ...]) -> str:
        """One of the names in `known`."""
        found = self.text(key, default)
        if found not in known:
            self.complain(key, f"is {found!r}; it can be {', '.join(known)}")
        return found

    def integers(self, key: str, at_least: int = 1) -> tuple[int, ...]:
        """Whole numbers: one, or a list of at least one, each given once."""
        return tuple(self._integer(key, item, at_least) for item in self._items(key))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Positive numbers: one, or a list of at least one, each given once."""
        return tuple(self._number(key, item, 0.0) for item in self._items(key))

    def table(self, key: str, known: Iterable[str] | None) -> Table:
        """The mapping under a key; an empty one where the key is absent."""
        node = self.nodes.get(key)
        if node is None:
            node = yaml.MappingNode("tag:yaml.org,2002:map", [], self.node.start_mark, self.node.end_mark)
        elif isinstance(node, yaml.ScalarNode) and plain(node) is None:
            self.complain(key, "has no value")
        return Table(self.source, node, self.place(key), known)

    def sequence(self, key: str) -> list[yaml.Node]:
        """The items of a list that must not be empty; none where the key is absent."""
        node = self.nodes.get(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.complain(key, "must be a list (each item starts with '- ')")
        if not node.value:
            self.complain(key, "is an empty list")
        return list(node.value)

    def _items(self, key: str) -> list[Any]:
        found = self.value(key)
        items = found if isinstance(found, list) else [found]
        if not items:
            self.complain(key, "is an empty list, so nothing would be measured")
        if len({repr(item) for item in items}) < len(items):
            self.complain(key, "names the same value twice; use `repeats` to measure again")
        return items

    def _integer(self, key: str, found: Any, at_least: int) -> int:
        if isinstance(found, bool) or not isinstance(found, int):
            self.complain(key, f"must be a whole number, not {_kind(found)}")
        if found < at_least:
            self.complain(key, f"is {found}; it must be at least {at_least}")
        return found

    def _number(self, key: str, found: Any, above: float) -> float:
        if isinstance(found, str):
            # YAML 1.1 reads 1e-3 as text.
            try:
                found = float(found)
            except ValueError:
                self.complain(key, f"must be a number, not {_kind(found)}")
        if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
            self.complain(key, f"must be a number, not {_kind(found)}")
        if found <= above:
            self.complain(key, f"is {found:g}; it must be more than {above:g}")
        return float(found)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, int | float):
        return f"the number {value:g}"
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), repr(value))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def checked_name(table: Table, key: str, default: str) -> str:
    """A name that can be part of a file name."""
    found = table.text(key, default) or default
    if not _NAME.fullmatch(found):
        table.complain(key, f"is {found!r}; use letters, digits, '.', '_' and '-' only, at most 64")
    return found
