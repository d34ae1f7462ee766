"""Contrast of every pair of colours that meet on a page, light and dark, on paper and in figures (WCAG 2.2 AA)."""

import re

import pytest

from perflab.plots import style
from perflab.plots.attribution import RUNG_COLOURS
from perflab.plots.collectives import PART_COLOURS
from perflab.plots.request_path import CAUSE_COLOURS
from perflab.report.palette import DARK, LIGHT, PRINT, colours_css

SCHEMES = {"light": LIGHT, "dark": DARK, "print": PRINT}
TEXT = [
    *((ink, page) for ink in ("ink", "muted", "link", "alert") for page in ("paper", "card")),
    ("ink", "idle"), ("ink", "warn-bg"), ("ink", "bad-bg"), ("ink", "info-bg"), ("ink", "good-bg"),
    ("warn", "warn-bg"), ("alert", "bad-bg"), ("good", "good-bg"), ("info", "info-bg"),
]  # fmt: skip
SHAPES = ["line", "other", "alert", "focus", "warn-edge", "bad-edge", "good-edge", "info-edge"]
FIGURES = {
    **{f"category {name}": colour for name, colour in style.CATEGORY_COLOURS.items()},
    **{f"series {number}": colour for number, colour in enumerate(style.SERIES)},
    **{f"rung {name}": colour for name, colour in RUNG_COLOURS.items()},
    **{f"cause {name}": colour for name, colour in CAUSE_COLOURS.items()},
    **{f"part {name}": colour for name, colour in PART_COLOURS.items()},
}
NAME_OF = {colour: name for name, colour in style.INTERFACE.items()}
GROUND = {"category idle", "rung none"}
"""What nothing ran in: the ground of a bar, told by its label; it has no contrast of its own."""


def shown(colour: str, scheme: str) -> str:
    """A figure's colour as the page shows it."""
    return SCHEMES[scheme][NAME_OF[colour]] if colour in NAME_OF else colour


def mixed(colour: str, page: str, alpha: float) -> str:
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(page[1:]), strict=True)
    return "#" + "".join(f"{round(alpha * a + (1 - alpha) * b):02x}" for a, b in pairs)


def test_contrast_is_what_wcag_says() -> None:
    assert style.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert style.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # WCAG's own example of a near miss


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read(scheme: str) -> None:
    colours = SCHEMES[scheme]
    low = {pair: style.contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXT}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_means_something_without_words_can_be_seen(scheme: str) -> None:
    colours = SCHEMES[scheme]
    low = {name: style.contrast(colours[name], colours["paper"]) for name in SHAPES}
    assert {name: ratio for name, ratio in low.items() if ratio < 3} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_of_figures_stand_out_from_the_page(scheme: str) -> None:
    page = SCHEMES[scheme]["paper"]
    ratios = {name: style.contrast(shown(colour, scheme), page) for name, colour in FIGURES.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio < 3 and name not in GROUND} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_labels_on_full_and_faded_fills_can_be_read(scheme: str) -> None:
    colours, low = SCHEMES[scheme], {}
    for name, colour in FIGURES.items():
        for alpha in (1.0, *([] if name in GROUND else [style.FADE])):
            ink = shown(style.readable_on(colour, alpha), scheme)
            fill = mixed(shown(colour, scheme), colours["paper"], alpha)
            low[name, alpha] = style.contrast(ink, fill)
    assert {what: ratio for what, ratio in low.items() if ratio < 4.5} == {}


def test_every_scheme_sets_every_variable_and_the_style_uses_no_other(root: object) -> None:
    assert set(LIGHT) == set(DARK) == set(PRINT) >= set(style.INTERFACE)
    css = colours_css()
    for colours in SCHEMES.values():
        assert all(f"--{name}: {colour}" in css for name, colour in colours.items())
    from perflab.report.rendering import page_css

    text = page_css()
    assert set(re.findall(r"var\(--([\w-]+)\)", text)) - {"mono"} <= set(LIGHT)
    own = text.replace(css, "")
    assert not re.search(r"#[0-9a-f]{3,8}\b(?!\w)", re.sub(r"#[a-z]+[\w-]*", "", own)), "colours live in palette.py"
