"""What a notebook may hold: a few short cells that call perflab, no logic, no output, no path of some machine."""

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_CELLS, MOST_LINES = 15, 8
FORBIDDEN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.AsyncFor, ast.Try, ast.With,
    ast.Lambda, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp,
)  # fmt: skip
ABSOLUTE = re.compile(r"""(^|["'(=\s])(/[A-Za-z]|~/|[A-Z]:\\)""")

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def problems(code: str) -> list[str]:
    """What is wrong with the code of one cell."""
    found = [
        f"{type(node).__name__} in line {node.lineno}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, FORBIDDEN)
    ]
    lines = [line for line in code.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        found.append(f"{len(lines)} lines")
    if ABSOLUTE.search(code):
        found.append("an absolute path")
    return found


def test_cells_are_few_short_and_without_logic(path: Path) -> None:
    code = cells(path, "code")
    assert 0 < len(code) <= MOST_CELLS
    assert {cell["id"]: problems(source(cell)) for cell in code if problems(source(cell))} == {}


def test_it_asks_a_question_then_takes_parameters(path: Path) -> None:
    notebook = json.loads(path.read_text())
    first = notebook["cells"][0]
    assert first["cell_type"] == "markdown" and source(first).startswith("# ")
    tagged = [cell["id"] for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert tagged == ["parameters"]
    assert cells(path, "code")[0]["id"] == "parameters"


def test_trust_comes_before_the_first_figure(path: Path) -> None:
    code = "\n".join(source(cell) for cell in cells(path, "code"))
    if "show_each" in code:
        body = code.split("show_runs(", 1)[1]
        assert body.index("show_trust(") < body.index("show_each(")


def test_it_is_committed_without_outputs_and_with_ids_a_person_chose(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in cells(path, "code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    assert all(
        re.fullmatch(r"[a-z][a-z0-9-]*", cell_id) and not re.fullmatch(r"[0-9a-f]{8,}", cell_id) for cell_id in ids
    )
    assert "version" not in notebook["metadata"].get("language_info", {})
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_prose_holds_no_measured_number(path: Path) -> None:
    """Numbers in prose go stale: they are computed. Names of notebooks and formats are no measurements."""
    for cell in cells(path, "markdown"):
        text = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\b0\d_\w+", "", source(cell))
        assert not re.search(r"\d+(\.\d+)?\s*(%|ms|µs|GiB|MB|tokens/s|x\b|times)", text), text


def test_sentences_it_names_are_in_the_catalogue(path: Path) -> None:
    catalogue = tomllib.loads((FOLDER.parent / "perflab" / "messages" / "en.toml").read_text(encoding="utf-8"))
    for cell in cells(path, "code"):
        for name in re.findall(r'"(notebook\.[a-z_.]+)"', source(cell)):
            at: Any = catalogue
            for part in name.split("."):
                at = at[part]
            assert isinstance(at, str)


def test_the_check_itself_finds_what_it_forbids(path: Path) -> None:
    for code in ("def f():\n    pass", "for i in x:\n    i", "class A: ...", "y = [i for i in x]", "open('/data/x')"):
        assert problems(code), code
    assert problems("\n".join(["a = 1"] * 9)) == ["9 lines"]
    assert problems("show(plot(table), caption='a/b')") == []
