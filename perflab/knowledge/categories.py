"""Loads the rules that say what a kernel, a copy or a CPU operator is for.

The rules are data: `kernel_categories.toml` holds them with the evidence for each. Applying them is
`perflab.analysis.kernels`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.knowledge.toml import read_toml, shipped_text
from perflab.schema import CATEGORIES

KINDS: tuple[str, ...] = ("kernel", "memcpy", "memset", "cpu_op")
_KEYS = frozenset({"category", "pattern", "applies_to", "evidence"})
_FILE = "kernel_categories.toml"
_HEAD = re.compile(r"\s*\[\[\s*rule\s*\]\]")


@dataclass(frozen=True)
class Rule:
    """One rule: activities of kind `applies_to` whose name `pattern` finds are `category`."""

    category: str
    pattern: re.Pattern[str]
    applies_to: str
    evidence: str


@dataclass(frozen=True)
class Rules:
    """Rules in the order they are tried; the first match decides, and no match means `other`.

    The first `users` of them are a user's, from the file `source`.
    """

    rules: tuple[Rule, ...]
    users: int = 0
    source: Path | None = None

    def rule_for(self, name: str, kind: str = "kernel") -> Rule | None:
        """The rule that decides for a name, or None."""
        for rule in self.rules:
            if rule.applies_to == kind and rule.pattern.search(name):
                return rule
        return None

    def category(self, name: str, kind: str = "kernel") -> str:
        """The category of a name; `other` when no rule knows it."""
        rule = self.rule_for(name, kind)
        return "other" if rule is None else rule.category

    def is_users(self, name: str, kind: str = "kernel") -> bool:
        """Whether a rule of the user's decides for a name."""
        return any(rule.applies_to == kind and rule.pattern.search(name) for rule in self.rules[: self.users])


def load_rules(extra: Path | None = None) -> Rules:
    """The rules that come with perflab, after those of a user's file.

    Parameters
    ----------
    extra
        A TOML file of `[[rule]]` tables with `category`, `pattern`, `applies_to` (default `kernel`) and
        `evidence` (optional). Its rules are tried first.

    Raises
    ------
    InputError
        When the file cannot be read or a rule in it is not valid; the message names the rule by its number and line.
    """
    if extra is None:
        return _own_rules()
    try:
        text = extra.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a file of kernel rules: {error}", path=extra) from error
    own = _parse(text, extra)
    return Rules(own + _own_rules().rules, len(own), extra)


@lru_cache(maxsize=1)
def _own_rules() -> Rules:
    return Rules(_parse(shipped_text(_FILE), Path(_FILE)))


def _parse(text: str, path: Path) -> tuple[Rule, ...]:
    table = read_toml(text, path)
    entries = table.get("rule")
    if not isinstance(entries, list) or not entries:
        raise InputError("holds no [[rule]] tables", path=path)
    if unknown := sorted(set(table) - {"rule"}):
        raise InputError(f"has {unknown[0]!r} beside its [[rule]] tables; it may hold nothing else", path=path)
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if _HEAD.match(line)]
    # Inline tables (`rule = [{...}]`) have no heads to point at.
    at = lines if len(lines) == len(entries) else [None] * len(entries)
    return tuple(
        _rule(entry, number, path, line) for number, (entry, line) in enumerate(zip(entries, at, strict=True), start=1)
    )


def _rule(entry: Any, number: int, path: Path, line: int | None) -> Rule:
    def wrong(what: str) -> InputError:
        return InputError(f"rule {number}{what}", path=path, line=line)

    if not isinstance(entry, dict):
        raise wrong(" is not a table; write [[rule]]")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise wrong(f" has unknown key {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}")
    fields = {"applies_to": "kernel", "evidence": "", **entry}
    for key in ("category", "pattern", "applies_to", "evidence"):
        if not isinstance(fields.get(key), str):
            raise wrong(f" lacks {key}, or it is not text")
    if fields["category"] not in CATEGORIES:
        raise wrong(f": category {fields['category']!r} is not one of {', '.join(CATEGORIES)}")
    if fields["applies_to"] not in KINDS:
        raise wrong(f": applies_to {fields['applies_to']!r} is not one of {', '.join(KINDS)}")
    try:
        pattern = re.compile(fields["pattern"])
    except re.error as error:
        raise wrong(f": pattern is not a regular expression: {error}") from error
    return Rule(fields["category"], pattern, fields["applies_to"], fields["evidence"])
