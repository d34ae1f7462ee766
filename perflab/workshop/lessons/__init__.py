"""The lessons: a module each, found here by number, name or question."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflab import places
from perflab.errors import InputError
from perflab.workshop.questions import Question


@dataclass(frozen=True)
class Lesson:
    """A lesson.

    Attributes
    ----------
    number
        What `--lesson` takes.
    name
        Its notebook is `<name>.ipynb`, of which the authored solution is in `notebooks/workshop/solutions`.
    title, minutes
        What it asks, and about how long it takes.
    facts
        What its answers are computed from; read when first asked for, and then kept.
    fields
        Numbers of its sentences, formatted, from the facts.
    """

    number: int
    name: str
    title: str
    minutes: int
    questions: tuple[Question, ...]
    facts: Callable[[], Any]
    fields: Callable[[Any], Mapping[str, str]]

    @property
    def solution(self) -> Path:
        """The authored notebook."""
        return places.notebooks() / "workshop" / "solutions" / f"{self.name}.ipynb"


def all_lessons() -> list[Lesson]:
    """Every lesson, in order."""
    from perflab.workshop.lessons.eager import LESSON

    return [LESSON]


def find_lesson(number: int) -> Lesson:
    """A lesson by number.

    Raises
    ------
    InputError
        When there is none; the message lists those there are.
    """
    known = {lesson.number: lesson for lesson in all_lessons()}
    if number in known:
        return known[number]
    raise InputError(f"there is no lesson {number}; there are: {', '.join(map(str, known))}")


def find_question(name: str) -> tuple[Lesson, Question] | list[str]:
    """A question and its lesson; where there is none of that name, the names that come near it (or all)."""
    known = {question.name: (lesson, question) for lesson in all_lessons() for question in lesson.questions}
    if name in known:
        return known[name]
    return difflib.get_close_matches(str(name), known, n=2) or list(known)
