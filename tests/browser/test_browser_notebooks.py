"""Every notebook as a person has it: opened in JupyterLab, Run All, looked at in both themes, wide and narrow.

The pictures are kept in tests/browser/artifacts.
"""

import json

import pytest
from browser.lab import NARROW_DARK, WIDE, Lab, Notebook

from perflab import places
from perflab.report.show import MEDIA
from perflab.workshop.exercise import solved
from perflab.workshop.folder import make_folder
from perflab.workshop.lessons import Lesson, all_lessons

pytestmark = [pytest.mark.browser, pytest.mark.notebooks, pytest.mark.timeout(900)]

NAMES = sorted(path.stem for path in places.notebooks().glob("*.ipynb"))


def figures(notebook: Notebook) -> list[str]:
    """The text alternatives of the figures that were shown."""
    shown = [one["output"].get("data", {}).get(MEDIA, {}) for one in notebook.outputs()]
    return [one["alt"] for one in shown if one.get("kind") == "figure"]


def alternatives(notebook: Notebook) -> list[str]:
    """The text alternatives of the pictures that can be seen, as a screen reader finds them."""
    pictures = notebook.page.locator(".jp-Cell .jp-OutputArea-output").get_by_role("img")
    return [one.get_attribute("alt") or one.get_attribute("aria-label") or "" for one in pictures.all()]


def looked_at(notebook: Notebook) -> dict[str, list[str]]:
    """What is wrong in each window, and a picture of each."""
    wrong = {}
    for window in (WIDE, NARROW_DARK):
        notebook.view(window)
        wrong[window.name] = notebook.looks()
        notebook.shoot()
    return {name: said for name, said in wrong.items() if said}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_looks_right(lab: Lab, name: str) -> None:
    with lab.notebook(f"{name}.ipynb") as notebook:
        notebook.run_all()
        assert notebook.problems() == []
        shown, seen = figures(notebook), alternatives(notebook)
        assert [alt for alt in shown if alt not in seen] == []
        assert looked_at(notebook) == {}
        assert notebook.problems() == []


@pytest.mark.parametrize("lesson", all_lessons(), ids=lambda one: one.name)
def test_an_exercise_says_so_when_an_answer_is_right(lab: Lab, lesson: Lesson) -> None:
    folder = lab.server.root / "workshop"
    if not folder.exists():
        make_folder(folder)
    name = lesson.questions[0].name
    with lab.notebook(folder / f"{lesson.name}.ipynb") as notebook:
        notebook.run_all()
        assert notebook.problems() == []
        assert set(states(notebook).values()) == {"open"}
        assert looked_at(notebook) == {}
        notebook.set_cell(*filled(lesson, name))
        notebook.run_all()
        assert (notebook.problems(), states(notebook)[name]) == ([], "pass")
        notebook.shoot("answered")


def states(notebook: Notebook) -> dict[str, str]:
    """What is said of each question of the exercise."""
    shown = [one["output"].get("data", {}).get(MEDIA, {}) for one in notebook.outputs()]
    return {one["question"]: one["state"] for one in shown if one.get("kind") == "lesson"}


def filled(lesson: Lesson, question: str) -> tuple[str, str]:
    """The cell that takes the answer to a question, and its source with the author's."""
    authored = json.loads(lesson.solution.read_text(encoding="utf-8"))
    pairs = zip(authored["cells"], solved(authored)["cells"], strict=True)
    begin = f"# BEGIN SOLUTION {question} ="
    return next((cell["id"], "".join(done["source"])) for cell, done in pairs if begin in "".join(cell["source"]))
