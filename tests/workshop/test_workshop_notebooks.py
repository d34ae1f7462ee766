"""Lessons executed as attendees have them: open at first, right once the solution parts are put in."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from page_references import external_references

from perflab.report import execute, render
from perflab.report.show import MEDIA
from perflab.workshop.exercise import exercise, notebook_text, read_notebook, solved
from perflab.workshop.folder import make_folder
from perflab.workshop.lessons import all_lessons

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(600)]

LESSONS = all_lessons()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attendee's folder, and each lesson in it executed: as it is, and with the solution parts put in."""
    place = tmp_path_factory.mktemp("attendee") / "workshop"
    make_folder(place)
    for lesson in LESSONS:
        given = place / f"{lesson.name}.ipynb"
        filled = place / f"{lesson.name}.filled.ipynb"
        filled.write_text(notebook_text(put_in(read_notebook(given), read_notebook(lesson.solution))), encoding="utf-8")
        for path in (given, filled):
            execute(path, {}, path.with_suffix(".executed.ipynb"))
    return place


def put_in(given: dict[str, Any], authored: dict[str, Any]) -> dict[str, Any]:
    """An exercise whose line with dots was replaced, in each cell, by what the author wrote for it."""
    for cell, other in zip(given["cells"], authored["cells"], strict=True):
        lines = "".join(other["source"]).splitlines()
        for start, line in enumerate(lines):
            if line.startswith("# BEGIN SOLUTION "):
                stub = line.removeprefix("# BEGIN SOLUTION ")
                inside = lines[start + 1 : lines.index("# END SOLUTION", start)]
                text = "".join(cell["source"])
                assert text.splitlines().count(stub) == 1
                cell["source"] = text.replace(stub, "\n".join(inside)).splitlines(keepends=True)
    return given


def outputs(path: Path) -> list[Any]:
    notebook = nbformat.read(str(path), as_version=4)
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def states(path: Path) -> dict[str, str]:
    found = [output["data"].get(MEDIA, {}) for output in outputs(path)]
    return {one["question"]: one["state"] for one in found if one.get("kind") == "lesson"}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_as_it_is_every_question_is_open_and_nothing_breaks(folder: Path, lesson: Any) -> None:
    path = folder / f"{lesson.name}.executed.ipynb"
    assert {output["output_type"] for output in outputs(path)} == {"display_data"}
    assert states(path) == {question.name: "open" for question in lesson.questions}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_with_the_solution_put_in_every_check_passes(folder: Path, lesson: Any) -> None:
    path = folder / f"{lesson.name}.filled.executed.ipynb"
    assert {output["output_type"] for output in outputs(path)} == {"display_data"}
    assert states(path) == {question.name: "pass" for question in lesson.questions}
    figures = [len([1 for o in outputs(p) if o["data"].get(MEDIA, {}).get("kind") == "figure"]) for p in
               (folder / f"{lesson.name}.executed.ipynb", path)]  # fmt: skip
    assert figures[1] > figures[0], "some figures come only with a right answer"
    text = "\n".join(output["data"]["text/plain"] for output in outputs(path))
    assert "{" not in text.replace("{lambda", "") and "nan" not in text.split()


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_what_passed_is_the_authored_solution(folder: Path, lesson: Any) -> None:
    authored = json.loads(lesson.solution.read_text(encoding="utf-8"))
    assert read_notebook(folder / f"{lesson.name}.filled.ipynb") == solved(authored)
    assert read_notebook(folder / f"{lesson.name}.ipynb") == exercise(authored)


@pytest.mark.browser
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
@pytest.mark.parametrize("kind", ["executed", "filled.executed"])
def test_as_a_page_it_looks_right(folder: Path, lesson: Any, kind: str, tmp_path: Path) -> None:
    from browser.screenshots import VIEWS, chromium, look_at

    page = render([folder / f"{lesson.name}.{kind}.ipynb"], tmp_path / "lesson.html", show_code=True)
    assert external_references(page.read_text(encoding="utf-8")) == []
    if chromium() is None:
        pytest.skip("needs chromium or google-chrome on the path")
    looks = look_at(page, tmp_path / "shots", (VIEWS[0], VIEWS[-1]))
    assert {look.view.name: look.problems for look in looks if look.problems} == {}
