"""The pictures of docs/gallery.md: its code is run from top to bottom, and below each plot stands what it drew."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab.plots import style
from perflab.report import palette, svg

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def draw(page: Path) -> list[Path]:
    """Put pictures into a page, light and dark; returns the light ones.

    Raises
    ------
    Exception
        Whatever the page's code raises; the line is named in a note.
    """
    folder = page.parent / page.stem
    folder.mkdir(exist_ok=True)
    names: dict[str, Any] = {}
    made: list[Path] = []

    def one(match: re.Match[str]) -> str:
        figure = run(match[1], names)
        if figure is None:
            return match[0]
        stem = f"{len(made):02d}-{_name(match[1])}"
        document, alt = svg.svg_of(figure), svg.describe(figure)["alt"]
        pyplot.close("all")
        made.append(folder / f"{stem}-light.svg")
        made[-1].write_text(document)
        (folder / f"{stem}-dark.svg").write_text(dark(document))
        words = " ".join(alt.split())
        images = [
            f"```{{image}} {page.stem}/{stem}-{side}.svg\n:class: only-{side}\n:alt: {words}\n```\n"
            for side in ("light", "dark")
        ]
        return match[0] + "\n" + "\n".join(images)

    page.write_text(BLOCK.sub(one, page.read_text()))
    return made


def run(code: str, names: dict[str, Any]) -> Figure | None:
    """Run a block among `names`; the figure that its last line is, None where that is no figure."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "<block>", "exec"), names)
        value = (
            eval(compile(ast.Expression(last.value), "<block>", "eval"), names) if isinstance(last, ast.Expr) else None
        )
    except Exception as error:
        error.add_note(f"in the block\n{code}")
        raise
    if isinstance(value, Axes):
        return style.figure_of(value)
    return value if isinstance(value, Figure) else None


def dark(document: str) -> str:
    """The figure in the colours that reports use on a dark page."""
    changed = {colour.lower(): palette.DARK[name] for name, colour in style.INTERFACE.items()}
    either = re.compile("|".join(map(re.escape, changed)), re.IGNORECASE)
    return either.sub(lambda match: changed[match.group().lower()], document)


def _name(code: str) -> str:
    return re.findall(r"\bplot_(\w+)\(", code)[-1].replace("_", "-")
