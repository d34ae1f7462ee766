"""What JupyterLab shows of an output: perflab's own look, in the theme that the reader chose.

A report lays the same HTML out with its own style; `undressed` gives it back as it was.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files

from perflab.report import palette, svg

_DRESSED = re.compile(r'<div class="pl-out"><style>.*?</style>(.*)</div>', re.DOTALL)
_DARK = 'body[data-jp-theme-light="false"] .pl-out, body.vscode-dark .pl-out'


def dressed(text: str) -> str:
    """HTML with the style it needs: an output stands alone, whatever was shown before it."""
    return f'<div class="pl-out"><style>{_css()}</style>{text}</div>'


def undressed(text: str) -> str:
    """The HTML that `dressed` got; any other as it is."""
    found = _DRESSED.fullmatch(text.strip())
    return found.group(1) if found else text


def figure_html(document: str, alt: str) -> str:
    """A figure that follows the theme and has a text alternative, neither of which JupyterLab gives to an SVG output.

    Of a notebook that the reader has not trusted JupyterLab drops drawings and styles: then a picture takes their
    place, which the style hides.
    """
    unique = "f" + hashlib.sha256(document.encode()).hexdigest()[:10]
    drawing = svg.inline_svg(document, unique, alt)
    source = base64.b64encode(document.encode()).decode("ascii")
    picture = f'<img alt="{html.escape(alt, quote=True)}" src="data:image/svg+xml;base64,{source}">'
    return dressed(f"<figure>{drawing}</figure>{picture}")


@cache
def _css() -> str:
    # The page is JupyterLab's, so is the paper that figures are drawn on.
    paper = "--paper: var(--jp-layout-color0, {})"
    light, dark = (
        "; ".join([*(f"--{name}: {colour}" for name, colour in colours.items() if name != "paper"),
                   paper.format(colours["paper"])])
        for colours in (palette.LIGHT, palette.DARK)
    )  # fmt: skip
    rules = (files(__package__) / "notebook.css").read_text(encoding="utf-8")
    return f".pl-out {{ {light} }} {_DARK} {{ {dark} }} {' '.join(rules.split())}"
