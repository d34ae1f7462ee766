"""Copies of perflab's notebooks with runs filled in, beside the runs: a user's own, to change as they like."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perflab import places
from perflab.runs import Run

_RUNS = re.compile(r"^runs = [^#\n]*?(\s*#.*)?$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|#|/)([^)\s]+\.ipynb)\)")


def filled_notebooks(runs: Sequence[Run], notebooks: Sequence[Path], folder: Path) -> list[Path]:
    """Write a copy of each notebook into `folder` whose parameter `runs` names these runs.

    Paths are relative to `folder`, which can so be moved together with the runs. A copy that is there already is the
    user's by now and stays as it is. Links to notebooks without a copy lead to perflab's own.

    Returns
    -------
    The notebooks in `folder`, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [os.path.relpath(run.path.resolve(), folder.resolve()) for run in runs]
    made = []
    for notebook in notebooks:
        target = folder / notebook.name
        if not target.exists():
            beside = {path.name for path in notebooks}
            text = _filled(json.loads(notebook.read_text(encoding="utf-8")), names, beside, folder)
            target.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        made.append(target)
    return made


def _filled(notebook: dict[str, Any], names: list[str], beside: set[str], folder: Path) -> dict[str, Any]:
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", []):
            text = _RUNS.sub(lambda found: f"runs = {json.dumps(names, ensure_ascii=False)}{found[1] or ''}", text)
        elif cell["cell_type"] == "markdown":
            text = _LINK.sub(lambda found: f"]({_where(found[1], beside, folder)})", text)
        cell["source"] = text.splitlines(keepends=True)
    return notebook


def _where(link: str, beside: set[str], folder: Path) -> str:
    if link in beside:
        return link
    return os.path.relpath(places.notebooks() / link, folder.resolve()).replace(os.sep, "/")
