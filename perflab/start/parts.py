"""Small parts of the widgets: panels of HTML in JupyterLab's theme, links it opens, work that says how it ends."""

from __future__ import annotations

import html
import itertools
import os
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ipywidgets
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab.errors import PerflabError
from perflab.messages import say
from perflab.plots import style
from perflab.report import svg

_numbers = itertools.count(1)
WIDE = {"width": "auto", "max_width": "62rem"}
"""As wide as the box it stands in; a width of 100 % would come to more than that with its margins."""


@lru_cache(maxsize=1)
def _css() -> str:
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def panel(content: str = "") -> Any:
    """A widget that shows HTML, which must be escaped already, in perflab's style."""
    made = ipywidgets.HTML(layout=ipywidgets.Layout(**WIDE))
    made.add_class("perflab-panel")
    fill(made, content)
    return made


def fill(widget: Any, content: str) -> None:
    """Show other HTML in a panel; nothing at all where it is empty."""
    widget.value = f'<div class="perflab-start">{content}</div>' if content else ""
    widget.layout.display = None if content else "none"


def stylesheet() -> Any:
    """The style all panels share, as a widget without height; once in each group of widgets."""
    return ipywidgets.HTML(f"<style>{_css()}</style>", layout=ipywidgets.Layout(height="0", margin="0"))


def problem(what: str) -> str:
    """What is wrong, in a line."""
    return f'<p class="problem">{html.escape(" ".join(what.split()))}</p>'


def figure_html(figure: Figure | Axes) -> str:
    """A figure as part of a panel, in the colours of the theme; it is closed."""
    from matplotlib import pyplot

    drawn = style.figure_of(figure) if isinstance(figure, Axes) else figure
    alt = svg.describe(drawn)["alt"]
    text = svg.inline_svg(svg.svg_of(drawn), f"pls{next(_numbers)}", alt)
    pyplot.close(drawn)
    return f"<figure>{text}</figure>"


def show_links(output: Any, lines: Mapping[str, Path]) -> None:
    """Links to files, which JupyterLab opens itself: text -> file; relative to the notebook's folder."""
    here = Path.cwd()
    told = [
        f"- [{_label(text)}]({quote(os.path.relpath(path, here).replace(os.sep, '/'))})" for text, path in lines.items()
    ]
    markdown = "\n".join(told)
    data = {"text/markdown": markdown, "text/plain": "\n".join(f"{t}: {p}" for t, p in lines.items())}
    # Set, not displayed: this also holds outside the thread that runs the cell.
    output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},) if lines else ()


def _label(text: str) -> str:
    """Text as Markdown shows it: brackets and other marks of a file's name are no markup."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>()#+!|~" else letter for letter in text)


def guarded(work: Callable[[], Any], where: Any, *, busy: tuple[Any, ...] = ()) -> Any:
    """Do work of a button; what a user can mend is said in one line, and so is a bug, with its traceback folded away.

    `busy` are controls that rest meanwhile. Returns what the work does, None where it failed.
    """
    for control in busy:
        control.disabled = True
    try:
        return work()
    except PerflabError as error:
        fill(where, problem(str(error)))
    except KeyboardInterrupt:
        fill(where, problem(say("start.interrupted")))
    except Exception as error:
        told = problem(say("start.bug", what=f"{type(error).__name__}: {error}"))
        fill(
            where, f"{told}<details><summary>Python</summary><pre>{html.escape(traceback.format_exc())}</pre></details>"
        )
    finally:
        for control in busy:
            control.disabled = False
    return None


def progress_html(share: float | None, text: str) -> str:
    """A bar (none where it is not known how far) and what is happening."""
    width = (
        "" if share is None else f'<div class="bar"><div style="width:{100 * min(max(share, 0), 1):.0f}%"></div></div>'
    )
    return f"{width}<p>{html.escape(text)}</p>"
