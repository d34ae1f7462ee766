"""Figures as SVG that follows the page's theme, with ids of their own and a text alternative."""

from __future__ import annotations

import html
import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from perflab.plots import style

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|xlink:href="#|\bhref="#)([^")]+)')
_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)pt"')
_THEMED = re.compile("|".join(re.escape(colour) for colour in style.INTERFACE.values()), re.IGNORECASE)
_VARIABLE = {colour.lower(): f"var(--{name})" for name, colour in style.INTERFACE.items()}


def svg_of(figure: Figure) -> str:
    """The figure as an SVG document without date, the same for the same figure; text as outlines."""
    buffer = io.StringIO()
    with mpl.rc_context({**style.rc(), "svg.hashsalt": "perflab"}):
        # On paper, not transparent: JupyterLab's dark theme lays nothing light under an SVG.
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def png_of(figure: Figure) -> bytes:
    """The figure as PNG at twice the screen's usual resolution."""
    buffer = io.BytesIO()
    with mpl.rc_context(style.rc()):
        figure.savefig(buffer, format="png", dpi=192)
    return buffer.getvalue()


def inline_svg(document: str, prefix: str, alt: str) -> str:
    """An SVG document made fit to stand in an HTML page.

    Ids get a prefix (several figures share a page), interface colours become CSS variables (light and dark), and
    the element bears its text alternative. Width and height go; the drawing's own width becomes its CSS width.
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
    return f'{head} role="img" aria-label="{label}" style="width:{width}">{rest}'.strip()


def describe(figure: Figure) -> dict[str, Any]:
    """What a figure shows, in words: `title`, the `axes` with their labels, and `alt`, one sentence of all."""
    axes = [{"x": ax.get_xlabel(), "y": ax.get_ylabel().replace("\n", " ")} for ax in figure.axes if ax.axison]
    title = style.title_of(figure)
    labels = list(dict.fromkeys(label for ax in axes for label in ax.values() if label))
    alt = f"{title}. Axes: {'; '.join(labels)}." if labels else f"{title}."
    return {"title": title, "axes": axes, "alt": alt}
