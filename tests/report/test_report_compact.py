"""Drawings get smaller and stay what they were; text alternatives tell the numbers of a figure."""

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from perflab.plots import style
from perflab.plots.breakdown import plot_top_kernels
from perflab.report.alternative import LONGEST, describe
from perflab.report.compact import Glyphs, compact
from perflab.report.svg import inline_svg, svg_of

TOP = pd.DataFrame({
    "name": ["a_kernel", "b_kernel"], "category": ["gemm", "attention"], "count": [2, 1],
    "dur_ns": [3_000_000, 1_000_000], "share": [0.75, 0.25],
})  # fmt: skip


@pytest.fixture
def bars() -> Iterator[Figure]:
    figure = style.figure_of(plot_top_kernels(TOP))
    yield figure
    pyplot.close(figure)


def test_letters_stand_once_for_all_figures_and_the_bytes_fall_by_half(bars: Figure) -> None:
    document, glyphs = svg_of(bars), Glyphs()
    plain = [inline_svg(document, prefix, "x") for prefix in ("a", "b")]
    small = [inline_svg(document, prefix, "x", glyphs) for prefix in ("a", "b")]
    assert sum(map(len, small)) + len(glyphs.defs) < sum(map(len, plain)) / 2
    outlines = re.findall(r'id="(y\d+)"', glyphs.defs)
    used = set(re.findall(r'<use href="#(y\d+)"', "".join(small)))
    assert len(outlines) == len(set(outlines)) and used == set(outlines), "every letter used is there, and no other"
    inked = set(re.findall(r'<path id="([^"]+)" d=', plain[0]))
    letters = sum(name in inked for name in re.findall(r'<use xlink:href="#([^"]+)"', plain[0]))
    assert small[0].count("<use ") == letters > 50, "only spaces are gone"


def test_coordinates_move_by_less_than_a_hundredth_of_a_point() -> None:
    drawing = '<svg><path d="M 10.123456 20.5 \nL -0.000001 7 \nz\n" transform="translate(1.987654 2)"/></svg>'
    assert compact(drawing, Glyphs()) == '<svg><path d="M10.12 20.5L-0 7z" transform="translate(1.99 2)"/></svg>'


def test_what_is_referred_to_keeps_its_id() -> None:
    inner = '<g id="line2d_1" clip-path="url(#p1)"><a/></g>'
    drawing = f'<svg><defs><clipPath id="p1"><rect/></clipPath></defs>{inner}</svg>'
    text = compact(drawing, Glyphs())
    assert 'id="p1"' in text and "line2d_1" not in text


def test_thousands_of_marks_become_one_picture() -> None:
    sizes = {}
    for n in (100, 20_000):
        figure, ax = pyplot.subplots()
        ax.scatter(np.linspace(0, 1, n), np.linspace(0, 1, n) ** 2, s=4)
        document = svg_of(figure)
        pyplot.close(figure)
        sizes[n] = len(document)
        assert ("<image" in document) == (n > 1000)
    assert sizes[20_000] < 400_000


def test_the_alternative_of_bars_tells_each_row_with_its_numbers(bars: Figure) -> None:
    svg_of(bars)
    alt = describe(bars)["alt"]
    assert alt.startswith("2 kernels take 100.0 % of all kernel time, the first alone 75.0 %.")
    assert re.search(r"a_kernel: 75\.0 % +2 × 1\.50 ms; b_kernel: 25\.0 % +1 × 1\.00 ms", alt)


def test_the_alternative_of_lines_tells_their_ranges() -> None:
    figure, ax = pyplot.subplots()
    ax.plot([1, 32], [5, 250.0])
    ax.set(xlabel="requests at once", ylabel="TTFT (ms)", title="TTFT grows")
    ax.annotate("c32", (32, 250))
    alt = describe(figure)["alt"]
    pyplot.close(figure)
    assert "TTFT grows" in alt
    assert "requests at once from 1.00 to 32.0; TTFT (ms) from 5.00 to 250; labels: c32" in alt


def test_an_alternative_can_be_listened_to() -> None:
    figure, ax = pyplot.subplots()
    ax.set_title("word " * 400)
    assert len(describe(figure)["alt"]) <= LONGEST + 2
    pyplot.close(figure)
