"""Exercises generated from solutions: what goes, what stays, and that marks which do not pair are refused."""

import copy
import json
from typing import Any

import pytest

from perflab.errors import InputError
from perflab.workshop.exercise import exercise, notebook_text, solved
from perflab.workshop.lessons import all_lessons


def book(*sources: str, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    cells = [
        {
            "cell_type": "code", "id": f"c{i}", "metadata": {"tags": list(tags)} if tags else {},
            "source": text.splitlines(keepends=True), "outputs": [{"output_type": "stream"}], "execution_count": 3,
        }
        for i, text in enumerate(sources)
    ]  # fmt: skip
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def code(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"]]


WORK = "a = 1\n# BEGIN SOLUTION b = ...  # your turn\nc = 41\nb = c + a\n# END SOLUTION\nprint(b)"


def test_the_solution_goes_and_dots_stand_in_its_place() -> None:
    assert code(exercise(book(WORK))) == ["a = 1\nb = ...  # your turn\nprint(b)"]
    assert code(solved(book(WORK))) == ["a = 1\nc = 41\nb = c + a\nprint(b)"]


def test_indented_and_several_solutions_in_one_cell() -> None:
    text = "if x:\n    # BEGIN SOLUTION y = ...\n    y = 2\n    # END SOLUTION\n" + WORK
    assert code(exercise(book(text))) == ["if x:\n    y = ...\na = 1\nb = ...  # your turn\nprint(b)"]


def test_outputs_go_and_cells_with_the_tag_too() -> None:
    made = exercise(book(WORK))
    assert made["cells"][0]["outputs"] == [] and made["cells"][0]["execution_count"] is None
    assert exercise(book(WORK, tags=("solution",)))["cells"] == []
    assert len(solved(book(WORK, tags=("solution",)))["cells"]) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# BEGIN SOLUTION a = ...\na = 1", "no `# END SOLUTION`"),
        ("a = 1\n# END SOLUTION", "does not pair"),
        ("# BEGIN SOLUTION a = ...\n# BEGIN SOLUTION b = ...\n# END SOLUTION", "does not pair"),
        ("# BEGIN SOLUTION\na = 1\n# END SOLUTION", "not followed by what stands there instead"),
    ],
)
def test_marks_that_do_not_pair_are_refused_with_the_cell(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        exercise(book("x = 1", text))
    assert "cell c1" in str(caught.value)


@pytest.mark.parametrize("lesson", all_lessons(), ids=lambda one: one.name)
def test_a_lesson_always_gives_the_same_exercise_without_its_solution(lesson: Any) -> None:
    authored = json.loads(lesson.solution.read_text(encoding="utf-8"))
    before = copy.deepcopy(authored)
    made = exercise(authored)
    assert authored == before, "what was given is not changed"
    assert notebook_text(exercise(authored)) == notebook_text(made)
    assert notebook_text(exercise(made)) == notebook_text(made), "an exercise is its own exercise"
    text = notebook_text(made)
    assert "SOLUTION" not in text
    kept = {line.strip() for source in code(made) for line in source.splitlines()}
    taken = [
        line.strip()
        for source in code(solved(authored))
        for line in source.splitlines()
        if line.strip() not in kept and line.strip()
    ]
    stubs = [line for line in kept if " = ...  # your turn" in line]
    assert len(stubs) >= len(lesson.questions) and len(taken) >= len(stubs)
    assert not [line for line in taken if line in text]


@pytest.mark.parametrize("lesson", all_lessons(), ids=lambda one: one.name)
def test_no_answer_stands_in_the_exercise(lesson: Any) -> None:
    """Neither a number, in any form the checks accept, nor an accepted word in code."""
    text = notebook_text(exercise(json.loads(lesson.solution.read_text(encoding="utf-8"))))
    facts = lesson.facts()
    for question in lesson.questions:
        if hasattr(question, "kind"):
            right = question.right(facts) / (1e6 if question.kind == "time" else 1)
            forms = {f"{right:.3f}", f"{right:.2f}", f"{right * 100:.1f}", f"{right * 100:.2f}"}
            assert not [form for form in forms if form in text], question.name
            continue
        source = "\n".join(code(exercise(json.loads(lesson.solution.read_text(encoding="utf-8")))))
        words = [part.strip("\"'") for part in source.replace("=", " ").split() if part.startswith(('"', "'"))]
        passing = [one for one in words if question.judge(one, facts, lesson.fields(facts)).state == "pass"]
        # The choices a cell offers by name ("prefill", "decode" or "mixed") are not an answer.
        assert set(passing) <= {"mixed"}, question.name
