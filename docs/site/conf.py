"""Sphinx's settings. docs/site/build.py copies this beside the pages it has put together."""

import re
from typing import Any

import perflab
from perflab.report import palette

project = "perflab"
author = "the perflab authors"
copyright = "the perflab authors, Apache-2.0"
version = release = perflab.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["files"]
# Headings get the anchors that forges give them, so that a link works in both places.
myst_heading_anchors = 4
default_role = "literal"
suppress_warnings = ["ref.python"]

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
toc_object_entries = False

# Everything is served from the site itself: no web fonts, no scripts of others.
html_theme = "furo"
html_title = "perflab"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Summaries of results are fetched, which a browser refuses to pages that are files.
html_show_search_summary = False
html_last_updated_fmt = None
pygments_style = "friendly"
pygments_dark_style = "native"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": palette.LIGHT["link"],
        "color-brand-content": palette.LIGHT["link"],
    },
    "dark_css_variables": {
        "color-brand-primary": palette.DARK["link"],
        "color-brand-content": palette.DARK["link"],
        # What figures are drawn on.
        "color-background-primary": palette.DARK["paper"],
        "color-background-secondary": palette.DARK["card"],
    },
}


def _plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write code as Markdown does, in single backticks, with double ones around what holds a backtick."""
    marks = re.compile(r"`` (`[^`]*`) ``|(?<![:`\w])`([^`]+)`(?![`_])")
    lines[:] = [marks.sub(lambda m: f"``{(m[1] or m[2]).strip()}``", line) for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _plain)
