"""Questions with a right answer that is computed from recorded runs, and what wrong ones are usually made of.

An answer is judged by what it comes from: each typical mistake is computed too, so that whoever made it is told what
it was, and never what would have been right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perflab.messages import catalogue, say
from perflab.workshop.answers import Kind, Reading, Unusable, is_open, readings, show, word

EXACT = 2e-4
"""Numbers this near to one another, relatively, are the same computation; further off they may be rounded."""

State = Literal["pass", "not_yet", "open"]


@dataclass(frozen=True)
class Verdict:
    """What is said of an answer.

    Attributes
    ----------
    state
        `open`: nothing was answered yet.
    texts
        Paragraphs.
    mistakes
        Names of the typical mistakes it may be.
    """

    question: str
    state: State
    texts: tuple[str, ...]
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Number:
    """A question for one number.

    Attributes
    ----------
    name, about
        `about` is the table of the catalogue that holds its sentences: `right`, `hint_1`, ..., and one a mistake.
    right, mistakes
        From the lesson's facts; times in nanoseconds.
    tolerance
        How far, relatively, an answer may be off: what rounding to two or three digits does.
    """

    name: str
    about: str
    kind: Kind
    right: Callable[[Any], float]
    mistakes: Callable[[Any], Mapping[str, float]]
    tolerance: float = 0.015

    def judge(self, answer: Any, facts: Any, fields: Mapping[str, str]) -> Verdict:
        """Right, a typical mistake, or otherwise wrong, and in which unit it was taken."""
        if is_open(answer):
            return Verdict(self.name, "open", (say("workshop.answer.open", question=self.name),))
        ways = readings(answer, self.kind)
        if isinstance(ways, Unusable):
            told = say(f"workshop.answer.{ways.why}", unit=say(f"workshop.unit.{self.kind}"))
            return Verdict(self.name, "not_yet", (told,))
        right, mistakes = self.right(facts), self.mistakes(facts)
        for within in (EXACT, self.tolerance):
            if way := next((way for way in ways if _near(way.value, right, within)), None):
                return Verdict(self.name, "pass", (*self._unit_note(way), _told(self, "right", fields)))
            if found := _mistakes(ways, mistakes, within):
                return self._mistaken(found, fields)
        return Verdict(self.name, "not_yet", (self._otherwise(ways, right),))

    def difference(self, guess: Any, facts: Any) -> str:
        """How far a prediction was off, in words; empty where none was made."""
        ways = None if is_open(guess) else readings(guess, self.kind)
        if not ways or isinstance(ways, Unusable):
            return ""
        right = self.right(facts)
        value = self._plausible(ways).value
        how = "near" if _near(value, right, 0.1) else "high" if value > right else "low"
        return say(f"workshop.guess.{how}", guess=show(value, self.kind), right=show(right, self.kind))

    def _mistaken(self, found: list[str], fields: Mapping[str, str]) -> Verdict:
        texts = [_told(self, name, fields) for name in found]
        if len(texts) > 1:
            texts = [say("workshop.answer.one_of"), "\n".join(f"- {text}" for text in texts)]
        return Verdict(self.name, "not_yet", tuple(texts), tuple(found))

    def _unit_note(self, way: Reading) -> tuple[str, ...]:
        if way.asked:
            return ()
        return (say("workshop.answer.in_unit", unit=way.unit, asked=say(f"workshop.unit.{self.kind}")),)

    def _otherwise(self, ways: list[Reading], right: float) -> str:
        way = self._plausible(ways)
        if way.value < 0 or (self.kind == "share" and way.value > 1):
            return say("workshop.answer.impossible", unit=say(f"workshop.unit.{self.kind}"))
        for power in (10, 100, 1000, 1e6, 1e9):
            if any(_near(way.value, right * by, self.tolerance) for by in (power, 1 / power)):
                return say("workshop.answer.power", question=self.name)
        side = "large" if way.value > right else "small"
        return say(f"workshop.answer.too_{side}", question=self.name, taken=show(way.value, self.kind))

    def _plausible(self, ways: list[Reading]) -> Reading:
        """As a share up to 1, else as percent; other kinds as asked."""
        return ways[1] if self.kind == "share" and len(ways) > 1 and abs(ways[0].value) > 1 else ways[0]


@dataclass(frozen=True)
class Choice:
    """A question for a word.

    Attributes
    ----------
    right
        Pattern of the accepted words, as `perflab.workshop.answers.word` writes them.
    mistakes
        Patterns of wrong ones by the name of what is said to them; tried first.
    """

    name: str
    about: str
    right: str
    mistakes: Mapping[str, str]

    def judge(self, answer: Any, facts: Any, fields: Mapping[str, str]) -> Verdict:
        """Right, wrong for a reason that can be told, or a word that is none of those asked for."""
        if is_open(answer):
            return Verdict(self.name, "open", (say("workshop.answer.open", question=self.name),))
        given = word(answer)
        if isinstance(given, Unusable):
            return Verdict(self.name, "not_yet", (say(f"workshop.answer.{given.why}"),))
        for name, pattern in self.mistakes.items():
            if re.fullmatch(pattern, given):
                return Verdict(self.name, "not_yet", (_told(self, name, fields),), (name,))
        if re.fullmatch(self.right, given):
            return Verdict(self.name, "pass", (_told(self, "right", fields),))
        return Verdict(self.name, "not_yet", (say("workshop.answer.other_word", question=self.name),))

    def difference(self, guess: Any, facts: Any) -> str:
        """Words are not more or less off."""
        return ""


Question = Number | Choice


def hints(question: Question) -> list[str]:
    """Names of its hints, in order."""
    prefix = f"{question.about}.hint_"
    return sorted(name for name in catalogue() if name.startswith(prefix))


def _told(question: Question, name: str, fields: Mapping[str, str]) -> str:
    return say(f"{question.about}.{name}", **fields)


def _near(value: float, other: float, within: float) -> bool:
    return abs(value - other) <= within * abs(other)


def _mistakes(ways: list[Reading], mistakes: Mapping[str, float], within: float) -> list[str]:
    """The mistakes a number may come from, the nearest first."""
    off = {name: min(abs(way.value - value) / abs(value) for way in ways) for name, value in mistakes.items() if value}
    return [name for name in sorted(off, key=lambda name: off[name]) if off[name] <= within]
