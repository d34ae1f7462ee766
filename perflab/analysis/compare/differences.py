"""What differs between two runs besides their results, and whether that is what was meant to differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflab.knowledge.settings_follow import follows, is_unimportant

LOAD = "load: "
"""Begins the keys of facts about what was sent; a difference there is never what was varied unless it is named."""


@dataclass(frozen=True)
class Difference:
    """One fact that both runs tell, differently.

    Attributes
    ----------
    expected
        It is what was varied, or follows from it.
    follows
        The difference it follows from; None where it stands for itself.
    """

    key: str
    baseline: Any
    candidate: Any
    expected: bool
    follows: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As the JSON contract has it."""
        found = {"key": self.key, "baseline": self.baseline, "candidate": self.candidate, "expected": self.expected}
        return found | ({"follows": self.follows} if self.follows else {})


@dataclass(frozen=True)
class Differences:
    """All of them.

    Attributes
    ----------
    found
        Those that stand for themselves first.
    untold
        Facts that only one of the two tells: not a difference, but not known to be none.
    """

    found: tuple[Difference, ...]
    untold: tuple[str, ...]

    @property
    def own(self) -> tuple[Difference, ...]:
        """Those that do not follow from another."""
        return tuple(one for one in self.found if one.follows is None)

    @property
    def varied(self) -> tuple[Difference, ...]:
        """What was varied."""
        return tuple(one for one in self.own if one.expected)

    @property
    def unexpected(self) -> tuple[Difference, ...]:
        """What differs beside that."""
        return tuple(one for one in self.own if not one.expected)


def differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any], varied: Sequence[str] = ()) -> Differences:
    """Compare the facts of two runs.

    Parameters
    ----------
    baseline, candidate
        Facts by name. A name that is absent is not told; None is a value.
    varied
        Names of what was meant to differ. Where none is given, a single difference that stands for itself (and is
        not one of the load) is taken for it; of several, none is.
    """
    both = [key for key in baseline if key in candidate and not is_unimportant(key)]
    changed = [key for key in both if baseline[key] != candidate[key]]
    # A group of settings (`compilation_config`) may be told as one text and in parts.
    origin = {key: next((other for other in changed if _brings(other, key, changed)), None) for key in changed}
    own = [key for key in changed if origin[key] is None and not follows("*", key)]
    inner = [key for key in own if not key.startswith(LOAD)]
    meant = set(varied) if varied else set(inner if len(inner) == 1 else [])
    found = []
    for key in sorted(changed, key=lambda k: (k not in own, k)):
        root = _root(key, origin)
        expected = root in meant or key in meant or (key not in own and origin[key] is None)
        via = None if key in own else root if root != key else "the rest"
        found.append(Difference(key, baseline[key], candidate[key], expected, via))
    untold = sorted(key for key in baseline.keys() ^ candidate.keys() if not is_unimportant(key))
    return Differences(tuple(found), tuple(untold))


def _brings(other: str, key: str, changed: Sequence[str]) -> bool:
    """Whether `key` follows from `other`; of two that bring each other, the one listed first stands for itself."""
    if other == key or not follows(other, key):
        return False
    return not follows(key, other) or changed.index(other) < changed.index(key)


def _root(key: str, origin: Mapping[str, str | None]) -> str:
    seen: set[str] = set()
    while (above := origin[key]) is not None and key not in seen:
        seen.add(key)
        key = above
    return key
