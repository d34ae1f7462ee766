"""Figures as SVG that follows the page's theme, with ids of their own and a text alternative."""

from __future__ import annotations

import html
import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perflab.plots import style
from perflab.report.alternative import describe as describe
from perflab.report.compact import Glyphs, compact

_MARKS, _VERTICES = 700, 4000
"""More marks or corners than these are drawn as pixels."""
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|xlink:href="#|\bhref="#)([^")]+)')
_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)pt"')
_THEMED = re.compile("|".join(re.escape(colour) for colour in style.INTERFACE.values()), re.IGNORECASE)
_VARIABLE = {colour.lower(): f"var(--{name})" for name, colour in style.INTERFACE.items()}


def svg_of(figure: Figure) -> str:
    """The figure as an SVG document without date, the same for the same figure; text as outlines.

    What consists of thousands of marks becomes a picture within the drawing, since a page would hold each of them.
    """
    buffer = io.StringIO()
    _flatten(figure)
    with mpl.rc_context({**style.rc(), "svg.hashsalt": "perflab"}):
        # On paper, not transparent: JupyterLab's dark theme lays nothing light under an SVG.
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _flatten(figure: Figure) -> None:
    """Have large collections and long lines drawn as pixels, at 200 to the inch."""
    for artist in figure.findobj():
        found: Any = artist
        if isinstance(artist, Collection):
            marks = max(len(found.get_offsets()), len(found.get_paths()))
            vertices = sum(len(path.vertices) for path in found.get_paths()[:_MARKS])
            many = marks > _MARKS or vertices > _VERTICES
        elif isinstance(artist, Line2D):
            marker = artist.get_marker() not in (None, "", "None", " ")
            many = len(found.get_xdata()) > (_MARKS if marker else _VERTICES)
        else:
            continue
        if many:
            artist.set_rasterized(True)


def inline_svg(document: str, prefix: str, alt: str, glyphs: Glyphs | None = None) -> str:
    """An SVG document made fit to stand in an HTML page.

    Ids get a prefix (several figures share a page), interface colours become CSS variables (light and dark), and
    the element bears its text alternative. Width and height go; the drawing's own width becomes its CSS width. With
    `glyphs` letters are drawn from what the page holds once.
    """
    start = document.index("<svg")
    body = re.sub(r"<metadata>.*?</metadata>", "", document[start:], flags=re.DOTALL)
    body = _ID.sub(lambda m: f'id="{prefix}-{m.group(1)}"', body)
    body = _REFERENCE.sub(lambda m: f"{m.group(1)}{prefix}-{m.group(2)}", body)
    body = _THEMED.sub(lambda m: _VARIABLE[m.group().lower()], body)
    size = _SIZE.search(body)
    width = f"{float(size.group(1)) / 72:.2f}in" if size else "100%"
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(?:width|height|xmlns(?::\w+)?|version)="[^"]*"', "", head)
    label = html.escape(alt, quote=True)
    whole = f'{head} role="img" aria-label="{label}" style="width:{width}">{rest}'.strip()
    return whole if glyphs is None else compact(whole, glyphs)
