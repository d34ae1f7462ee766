"""Outputs as JupyterLab shows them: dressed for it, undressed for a report."""

import re

from perflab.plots import style
from perflab.report import in_notebook, palette

DOCUMENT = (
    '<svg width="72pt" height="72pt" xmlns="http://www.w3.org/2000/svg"><defs><path id="a" d="M0 0"/></defs>'
    f'<use href="#a"/><path style="fill: {style.INTERFACE["ink"]}" d="M0 0H9V9Z"/></svg>'
)


def test_what_was_dressed_comes_back_as_it_was() -> None:
    for text in ("<p>a</p>", '<div class="prose"><p>a</p></div><div>b</div>', "", "<style>p{}</style><p>\n</p>"):
        assert in_notebook.undressed(in_notebook.dressed(text)) == text
        assert in_notebook.undressed(text) == text


def test_every_rule_keeps_to_our_outputs_and_every_colour_is_known() -> None:
    css = in_notebook.dressed("").partition("<style>")[2].partition("</style>")[0]
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", css) for one in rule.split(",")]
    assert len(selectors) > 40 and all(".pl-out" in one for one in selectors)
    used = set(re.findall(r"var\(--([a-z-]+)\)", css)) - {"mono"}
    assert used <= set(palette.LIGHT) and "</" not in css


def test_a_figure_says_what_it_shows_and_follows_the_theme() -> None:
    shown = in_notebook.figure_html(DOCUMENT, 'A "title" <b>')
    assert 'role="img" aria-label="A &quot;title&quot; &lt;b&gt;"' in shown
    assert "fill: var(--ink)" in shown
    name = re.search(r'<path id="(\w+)-a"', shown)
    assert name and f'href="#{name[1]}-a"' in shown, "ids are its own, two figures share a page"
    assert '<img alt="A &quot;title&quot; &lt;b&gt;" src="data:image/svg+xml;base64,' in shown
