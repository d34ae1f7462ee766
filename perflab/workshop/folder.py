"""`perflab workshop new`: a folder an attendee can work in."""

from __future__ import annotations

from pathlib import Path

from perflab.errors import InputError
from perflab.messages import say
from perflab.workshop.exercise import exercise, notebook_text, read_notebook, solved
from perflab.workshop.lessons import Lesson, all_lessons, find_lesson


def make_folder(folder: Path, *, lesson: int | None = None, solutions: bool = False) -> list[Path]:
    """Make an attendee's folder: exercises, and a README that says how to begin.

    Parameters
    ----------
    folder
        Must not be there yet, or be empty.
    lesson
        Number of the only lesson wanted (default: all).
    solutions
        Whether to put the solutions beside them, in `solutions`.

    Returns
    -------
    list
        The files made, the first lesson's exercise first.

    Raises
    ------
    InputError
        When the folder is a file or holds something, or there is no such lesson; nothing is made then.
    """
    lessons = all_lessons() if lesson is None else [find_lesson(lesson)]
    if folder.exists() and not folder.is_dir():
        raise InputError(say("workshop.folder.no_folder"), path=folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(say("workshop.folder.not_empty"), path=folder)
    authored = [read_notebook(one.solution) for one in lessons]
    texts = {f"{one.name}.ipynb": notebook_text(exercise(book)) for one, book in zip(lessons, authored, strict=True)}
    texts["README.md"] = _readme(lessons, solutions=solutions)
    if solutions:
        pairs = zip(lessons, authored, strict=True)
        texts |= {f"solutions/{one.name}.ipynb": notebook_text(solved(book)) for one, book in pairs}
    return [_written(folder / name, text) for name, text in texts.items()]


def lesson_lines() -> list[str]:
    """A line a lesson: number, title, and about how long it takes."""
    return [_line(one) for one in all_lessons()]


def _line(one: Lesson) -> str:
    return say("workshop.folder.lesson", number=str(one.number), title=one.title, minutes=str(one.minutes))


def _readme(lessons: list[Lesson], *, solutions: bool) -> str:
    return (
        say(
            "workshop.folder.readme",
            lessons="\n".join(f"- `{one.name}.ipynb`: {one.title} (about {one.minutes} min)" for one in lessons),
            first=f"{lessons[0].name}.ipynb",
            solutions=f"\n{say('workshop.folder.readme_solutions')}\n" if solutions else "",
        )
        + "\n"
    )


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
