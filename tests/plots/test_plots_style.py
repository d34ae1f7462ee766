import itertools
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from perflab import schema
from perflab.plots import style
from perflab.plots.breakdown import plot_top_kernels


def test_every_category_and_group_has_a_colour_of_its_own() -> None:
    assert set(style.CATEGORY_COLOURS) == {*schema.CATEGORIES, "idle"}
    assert set(style.GROUP_COLOURS) == {*schema.GROUPS, "idle"}
    for a, b in itertools.combinations(style.CATEGORY_COLOURS.items(), 2):
        distance = sum((x - y) ** 2 for x, y in zip(to_rgb(a[1]), to_rgb(b[1]), strict=True)) ** 0.5
        assert distance > 0.15, (a, b)


def test_interface_colours_are_no_colour_of_a_kernel_category() -> None:
    """The report replaces them by CSS variables: a category that shared one would change with the theme."""
    shared = set(style.INTERFACE.values()) & set(style.CATEGORY_COLOURS.values())
    assert shared == {style.IDLE, style.OTHER}
    fixed = {style.FIXED_WHITE, style.FIXED_BLACK}
    assert not fixed & set(style.INTERFACE.values())


def test_text_stands_out_on_every_fill() -> None:
    for colour in (*style.CATEGORY_COLOURS.values(), *style.COMPONENT_COLOURS.values(), *style.SERIES):
        assert style.contrast(style.readable_on(colour), colour) >= 4.5, colour


def test_drawing_leaves_the_readers_settings_alone() -> None:
    before = dict(mpl.rcParams)
    plot_top_kernels(pd.DataFrame({"name": ["a"], "category": ["gemm"], "count": [1], "dur_ns": [5], "share": [1.0]}))
    assert dict(mpl.rcParams) == before


def test_thousands_are_told_alike_on_all_axes() -> None:
    @style.styled
    def draw() -> Any:
        ax = style.axes(None)
        ax.plot([0, 1500], [0.0, 2.5])
        return ax

    ax = draw()
    style.figure_of(ax).canvas.draw()
    assert {"0", "1,000"} <= {text.get_text() for text in ax.get_xticklabels()}
    assert "2.5" in {text.get_text() for text in ax.get_yticklabels()}


def test_a_name_with_dollar_signs_is_no_formula() -> None:
    top = pd.DataFrame({"name": ["cost_$x^2$_kernel"], "category": ["gemm"], "count": [1], "dur_ns": [5], "share": [1]})
    ax = plot_top_kernels(top)
    style.figure_of(ax).canvas.draw()
    assert ax.get_yticklabels()[0].get_parse_math() is False


def test_a_long_heading_is_wrapped_and_pushes_the_axes_down() -> None:
    figure, ax = pyplot.subplots(figsize=(4, 2), layout="constrained")
    style.head(ax, "A finding that is much too long to fit into the width of such a narrow figure", "n = 3", whole=True)
    figure.canvas.draw()
    title, subtitle = figure.texts[:2]
    assert "\n" in title.get_text()
    assert title.get_window_extent().y0 > subtitle.get_window_extent().y1
    assert subtitle.get_window_extent().y0 > ax.get_window_extent().y1
    assert title.get_window_extent().x1 <= figure.bbox.x1
    assert style.title_of(figure).startswith("A finding")


def test_a_key_makes_room_for_itself() -> None:
    figure, ax = pyplot.subplots(figsize=(6, 1), layout="constrained")
    style.head(ax, "Title", whole=True)
    height = figure.get_size_inches()[1]
    style.key(ax, ["gemm", "attention"], style.CATEGORY_COLOURS)
    figure.canvas.draw()
    assert figure.get_size_inches()[1] > height
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["GEMM", "attention"]
    assert figure.legends[0].get_window_extent().y1 < ax.get_window_extent().y0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0.5, 20))
def test_spread_labels_keep_order_distance_and_centre(wanted: list[float], gap: float) -> None:
    wanted = sorted(wanted)
    at = style.spread(wanted, gap)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(at))
    assert sum(at) == pytest.approx(sum(wanted), abs=1e-6)


def test_words_are_joined_as_one_writes_them() -> None:
    assert [style.join(list(words)) for words in ((), "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
