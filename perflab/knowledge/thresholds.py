"""The figures at which checks warn or fail and findings speak, from `thresholds.toml`, where each has its reason.

They are judgements where nothing was measured, so a user may set others. Whoever reads one is given a `Thresholds`;
there is no state to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perflab.errors import InputError
from perflab.knowledge.toml import read_toml, shipped_toml

_GRAVER: tuple[tuple[str, ...], ...] = (("info", "warning", "critical"), ("warn", "fail"))
_OF_USERS, _MOST = "users", "most"


@dataclass(frozen=True)
class Thresholds:
    """Every figure, by name and level.

    Attributes
    ----------
    values
        A name of which perflab itself has no opinion has no levels until a user sets them.
    changed
        What a user set, as `name.level`, with perflab's own figure (None where it has none).
    source
        The user's file.
    """

    values: Mapping[str, Mapping[str, float]]
    changed: Mapping[str, float | None]
    source: Path | None = None

    def limit(self, name: str, level: str) -> float:
        """One figure. A name or level that is not there is a `KeyError`: a bug."""
        return self.values[name][level]

    def maybe(self, name: str, level: str) -> float | None:
        """One figure, None where the level is not set. A name that is not there is a `KeyError`: a bug."""
        return self.values[name].get(level)


def threshold(name: str, level: str) -> float:
    """One of perflab's own figures: `threshold("other_share", "warn")`. One that is not there is a `KeyError`."""
    return own_thresholds().limit(name, level)


@lru_cache(maxsize=1)
def own_thresholds() -> Thresholds:
    """Perflab's own figures."""
    levels = {
        name: {k: float(v) for k, v in entry.items() if _is_number(v) and k != _MOST}
        for name, entry in _table().items()
    }
    return Thresholds(MappingProxyType({k: MappingProxyType(v) for k, v in levels.items()}), MappingProxyType({}))


def load_thresholds(extra: Path | None = None) -> Thresholds:
    """The figures, those of a user's file before perflab's own.

    Parameters
    ----------
    extra
        A TOML file of tables named as in `thresholds.toml`, each with some of its levels: `[copies]`,
        `warning = 0.2`.

    Raises
    ------
    InputError
        When the file cannot be read, or holds a name, level or figure that cannot be; the message names its line.
    """
    own = own_thresholds()
    if extra is None:
        return own
    try:
        text = extra.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a file of thresholds: {error}", path=extra) from error
    given = read_toml(text, extra)
    if not given:
        raise InputError("holds no thresholds; write [copies] and below it warning = 0.2", path=extra)
    values: dict[str, Mapping[str, float]] = dict(own.values)
    changed: dict[str, float | None] = {}
    for name, entry in given.items():
        levels = _checked(name, entry, text, extra)
        changed |= {f"{name}.{level}": own.values[name].get(level) for level in levels}
        values[name] = MappingProxyType({**own.values[name], **levels})
        _check_order(name, values[name], text, extra)
    return Thresholds(MappingProxyType(values), MappingProxyType(changed), extra)


def _checked(name: str, entry: Any, text: str, path: Path) -> dict[str, float]:
    line = _line_of(text, name)
    if name not in _table():
        raise InputError(f"no threshold is called {name!r}; there are {', '.join(_table())}", path=path, line=line)
    if not isinstance(entry, dict) or not entry:
        raise InputError(f"[{name}] sets nothing; write for instance {_levels(name)[0]} = 0.2", path=path, line=line)
    for level, value in entry.items():
        at = _line_of(text, name, level)
        if level not in _levels(name):
            raise InputError(f"[{name}] has no level {level!r}; it has {', '.join(_levels(name))}", path=path, line=at)
        most = _most(name)
        if not _is_number(value) or not 0 <= value <= most:
            raise InputError(f"[{name}] {level} is {value!r}; it is a number from 0 to {most:g}", path=path, line=at)
    return {level: float(value) for level, value in entry.items()}


def _check_order(name: str, levels: Mapping[str, float], text: str, path: Path) -> None:
    for order in _GRAVER:
        there = [level for level in order if level in levels]
        for lower, higher in pairwise(there):
            if levels[lower] > levels[higher]:
                raise InputError(
                    f"[{name}] {lower} is {levels[lower]:g}, above {higher} ({levels[higher]:g}); set both",
                    path=path, line=_line_of(text, name),
                )  # fmt: skip


def _levels(name: str) -> list[str]:
    """The levels a threshold has, or may be given."""
    entry = _table()[name]
    own = [key for key, value in entry.items() if _is_number(value) and key != _MOST]
    return own + [str(level) for level in entry.get(_OF_USERS, [])]


def _most(name: str) -> float:
    """The largest figure a user may set: 1 for shares, else what the file says, or a thousand times perflab's own."""
    entry = _table()[name]
    largest = max((own_thresholds().limit(name, level) for level in own_thresholds().values[name]), default=1.0)
    return float(entry.get(_MOST, 1.0 if largest <= 1 else 1000 * largest))


def _line_of(text: str, name: str, level: str | None = None) -> int | None:
    """The line of a table's head, or of a key below it; None where it is written otherwise (inline, dotted)."""
    lines = [line.split("#")[0].replace(" ", "").replace("\t", "") for line in text.splitlines()]
    head = next((number for number, line in enumerate(lines, start=1) if line == f"[{name}]"), None)
    if head is None or level is None:
        return head
    below = enumerate(lines[head:], start=head + 1)
    return next((number for number, line in below if line.startswith(f"{level}=")), head)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    return shipped_toml("thresholds.toml")
