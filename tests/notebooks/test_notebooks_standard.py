"""One standard for all notebooks (docs/notebooks.md): the same order, the same words, links that lead somewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ANSWERING = [path for path in NOTEBOOKS if path.stem[:2] not in ("00", "01")]
"""Those that answer from runs; 00 leads to them, and 01 makes runs."""
LINK = re.compile(r"\]\(([^)#\s]+)\)")
VERBS = {
    "show", "show_answer", "show_caution", "show_command", "show_each", "show_file", "show_findings", "show_message",
    "show_runs", "show_trust",
}  # fmt: skip


def cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def headings(path: Path) -> list[str]:
    lines = [line for cell in cells(path) if cell["cell_type"] == "markdown" for line in source(cell).splitlines()]
    return [line for line in lines if re.match(r"#{1,3} ", line)]


def section(path: Path, heading: str) -> str:
    """All code below a heading of the second level, up to the next."""
    found, inside = [], False
    for cell in cells(path):
        first = source(cell).splitlines()[0]
        if cell["cell_type"] == "markdown" and first.startswith("## "):
            inside = re.fullmatch(heading, first) is not None
        elif inside and cell["cell_type"] == "code":
            found.append(source(cell))
    return "\n".join(found)


def links(path: Path) -> list[str]:
    return [link for cell in cells(path) if cell["cell_type"] == "markdown" for link in LINK.findall(source(cell))]


@pytest.mark.parametrize("path", ANSWERING, ids=lambda p: p.stem)
def test_question_what_ran_trust_answer_evidence_meaning_next(path: Path) -> None:
    found = headings(path)
    assert found[0].startswith("# ") and found[0].endswith("?")
    second = [line for line in found if line.startswith("## ")]
    assert second[0] == "## What ran"
    assert re.fullmatch(r"## Can (the \w+|it) be trusted.*\?", second[1])
    assert second[2] == "## The answer in short"
    assert second[-2:] == ["## What it means", "## What next"]
    assert len(second) > 5, "evidence lies between the answer and its meaning"
    assert all(line.endswith("?") or "chosen" not in line for line in second)


@pytest.mark.parametrize("path", ANSWERING, ids=lambda p: p.stem)
def test_each_section_shows_what_its_heading_says(path: Path) -> None:
    assert "show_runs(" in section(path, "## What ran")
    assert "show_trust(" in section(path, "## Can .*")
    answer = section(path, "## The answer in short")
    assert "show_answer(" in answer and "show_each(" not in answer
    assert "show_findings(" in section(path, "## What it means")
    code = "\n".join(source(cell) for cell in cells(path) if cell["cell_type"] == "code")
    assert code.count("show_answer(") == 1 and code.count("show_trust(") == 1
    order = [code.index(f"{verb}(") for verb in ("show_runs", "show_trust", "show_answer")]
    assert order == sorted(order) and order[-1] < code.index("show_each(")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_leads_on_and_back_to_the_map(path: Path) -> None:
    assert headings(path)[-1] == "## What next"
    last = cells(path)[-1]
    assert last["cell_type"] == "markdown" and last["id"] == "next"
    assert last["metadata"]["tags"] == ["next"], "a report has a next step of its own"
    onward = set(LINK.findall(source(last)))
    if path.stem[:2] != "00":
        assert "00_start_here.ipynb" in onward and len(onward) > 1
    for link in links(path):
        assert (FOLDER / link).is_file(), link


def test_the_map_has_every_notebook_with_its_question_and_what_it_needs() -> None:
    start = NOTEBOOKS[0]
    table = next(source(cell) for cell in cells(start) if cell["id"] == "map")
    rows = [row for row in table.splitlines() if row.startswith("| ") and ".ipynb" in row]
    assert [LINK.findall(row)[0] for row in rows] == [path.name for path in NOTEBOOKS[1:]]
    for row in rows:
        question, _, needs = (part.strip() for part in row.strip("|").split("|"))
        assert question.endswith("?") and needs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_widgets_are_in_cells_of_their_own_tagged_interactive(path: Path) -> None:
    for cell in cells(path):
        if cell["cell_type"] != "code":
            continue
        tags, code = cell["metadata"].get("tags", []), source(cell)
        widgets = re.search(r"perflab\.(start|widgets|explorer|variant_picker)\b", code) is not None
        assert widgets == ("interactive" in tags), cell["id"]
        if widgets:
            assert "show(" not in code and set(tags) <= {"interactive"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_parameter_is_explained_and_named_alike(path: Path) -> None:
    parameters = next(source(cell) for cell in cells(path) if cell["id"] == "parameters")
    for line in parameters.splitlines():
        assert re.fullmatch(r"[a-z0-9_]+ = [^#]+(# .+)?", line), line
    names = set(re.findall(r"^([a-z0-9_]+) =", parameters, flags=re.MULTILINE))
    sources = {"runs", "baseline", "studies", "experiment", "own_runs"}
    assert names & sources, "a user's own runs by one parameter"
    assert len(names & sources) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_shown_is_shown_by_the_same_verbs(path: Path) -> None:
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert set(re.findall(r"\b(show\w*)\(", source(cell))) <= VERBS
            assert not re.search(r"\b(print|display|plt|pyplot|matplotlib|pd|pandas)\b", source(cell))
