"""Exercises out of authored solutions: what an attendee has to find is taken out, and dots are put in its place.

In a code cell the solution stands between two marks; the first tells what stands there instead:

    # BEGIN SOLUTION answer = ...  # your turn
    answer = 42
    # END SOLUTION

A cell with the tag `solution` is left out of the exercise altogether. Both kinds of notebook come without outputs, and
the same solution always gives the same bytes.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

from perflab.errors import InputError

TAG = "solution"
_BEGIN = re.compile(r"\s*# BEGIN SOLUTION\b ?(?P<stub>.*)")
_END = re.compile(r"\s*# END SOLUTION\s*")


def exercise(notebook: dict[str, Any]) -> dict[str, Any]:
    """The exercise of an authored solution; a notebook without marks comes back as it is, without outputs.

    Parameters
    ----------
    notebook
        As read from JSON; it is not changed.

    Raises
    ------
    InputError
        For marks that do not pair, or that say nothing to put in place of the solution; it names the cell.
    """
    return _made(notebook, solved=False)


def solved(notebook: dict[str, Any]) -> dict[str, Any]:
    """The solution as an attendee gets it: without the marks."""
    return _made(notebook, solved=True)


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook file.

    Raises
    ------
    InputError
        Where it is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"is not a notebook: {error}", path=path) from error
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list):
        raise InputError("is not a notebook: it has no cells", path=path)
    return found


def notebook_text(notebook: dict[str, Any]) -> str:
    """A notebook as the text of its file, as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _made(notebook: dict[str, Any], *, solved: bool) -> dict[str, Any]:
    kept = [cell for cell in notebook["cells"] if solved or TAG not in cell["metadata"].get("tags", [])]
    return {**copy.deepcopy(notebook), "cells": [_cell(cell, solved=solved) for cell in kept]}


def _cell(cell: dict[str, Any], *, solved: bool) -> dict[str, Any]:
    made = copy.deepcopy(cell)
    if cell["cell_type"] != "code":
        return made
    text = "".join(cell["source"])
    source = _replaced(text.splitlines(), str(cell.get("id", "")), solved=solved)
    made |= {"source": "\n".join(source).splitlines(keepends=True), "outputs": [], "execution_count": None}
    return made


def _replaced(lines: list[str], cell: str, *, solved: bool) -> list[str]:
    kept: list[str] = []
    inside = False
    for line in lines:
        begin = _BEGIN.fullmatch(line)
        if (begin and inside) or (_END.fullmatch(line) and not inside):
            raise InputError(f"cell {cell}: `{line.strip()}` does not pair with the mark before it")
        if begin:
            inside = True
            if not begin["stub"].strip():
                raise InputError(f"cell {cell}: `# BEGIN SOLUTION` is not followed by what stands there instead")
            if not solved:
                kept.append(line[: len(line) - len(line.lstrip())] + begin["stub"].strip())
        elif _END.fullmatch(line):
            inside = False
        elif solved or not inside:
            kept.append(line)
    if inside:
        raise InputError(f"cell {cell}: a `# BEGIN SOLUTION` has no `# END SOLUTION`")
    return kept
