"""Executed notebooks -> one HTML file that needs nothing else: no network, no script, no font, no picture beside it."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from perflab import __version__
from perflab.errors import InputError
from perflab.messages import say
from perflab.report.palette import colours_css

_TEMPLATES = Path(str(files(__package__) / "templates"))
_STYLES = ("style.css", "print.css")
_EMPTY = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def render(
    executed: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    show_code: bool = False,
    names: Mapping[str, str] | None = None,
) -> Path:
    """Write executed notebooks as one self-contained HTML page, a section each.

    At the head stand title, what ran, and the findings; then the notebooks' text, tables and figures without code
    (`show_code` brings it back). Widgets and parameter cells are left out. It follows the reader's light or dark
    setting and prints well. `names` are what paths of this machine are called on it.

    Raises
    ------
    InputError
        When a file is not a notebook.
    """
    paths = [executed] if isinstance(executed, str | Path) else list(executed)
    from perflab.report.page import build_page

    page = build_page([read_notebook(Path(path)) for path in paths], title, show_code=show_code)
    return write_page("index.html.j2", out, {"page": page}, names)


def write_page(
    template: str, out: str | Path, resources: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> Path:
    """Write a page laid out by one of our templates; see `render`."""
    text = without_paths(page_text(template, resources), names or {})
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def page_html(notebooks: list[Any], *, title: str | None = None, show_code: bool = False) -> str:
    """The page as text; `notebooks` are nbformat nodes."""
    from perflab.report.page import build_page

    return page_text("index.html.j2", {"page": build_page(notebooks, title, show_code=show_code)})


def page_text(template: str, resources: Mapping[str, Any]) -> str:
    """A page laid out by one of our templates, as text."""
    import nbformat
    from nbconvert.exporters.templateexporter import TemplateExporter

    make, node = cast(Any, TemplateExporter), cast(Any, nbformat.from_dict)
    exporter = make(template_name="perflab", template_file=template, extra_template_basedirs=[str(_TEMPLATES)])
    told = {
        **resources, "say": say, "version": __version__, "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "css": page_css(),
    }  # fmt: skip
    text, _ = exporter.from_notebook_node(node(_EMPTY), resources=told)
    return str(text)


def without_paths(text: str, names: Mapping[str, str]) -> str:
    """A text with the paths of this machine called by their names, and the home folder `~`."""
    for path in sorted(names, key=len, reverse=True):
        name = html.escape(names[path]).replace("\\", r"\\")
        text = re.sub(re.escape(html.escape(path)) + r"(?![\w.-])", name, text)
    for base, short in ((Path.cwd(), ""), (Path.home(), "~/")):
        if len(base.parts) > 1:
            text = text.replace(f"{html.escape(str(base))}/", short)
    return text


def page_css() -> str:
    """The style sheet of every page: colours, screen, print."""
    folder = _TEMPLATES / "perflab"
    return "\n".join([colours_css(), *((folder / name).read_text(encoding="utf-8") for name in _STYLES)])


def read_notebook(path: Path) -> Any:
    """An executed notebook."""
    import nbformat

    read: Any = nbformat.read
    try:
        return read(str(path), as_version=4)
    except FileNotFoundError as error:
        raise InputError("no such notebook", path=path) from error
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, AttributeError) as error:
        raise InputError("is not a Jupyter notebook", path=path) from error
