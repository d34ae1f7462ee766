"""The visual language of every figure: colours with one meaning each, fonts, titles, direct labels.

A category has the same colour in every figure. Idle is light grey. Where one category is the finding, it alone
is drawn in full colour and the others step back (`faded`). The title says the finding, the line under it says
what was measured and how often. Colours start from Okabe and Ito's set (2008), which people with the common colour
vision deficiencies tell apart; the light ones are darkened until each has a contrast of 3 : 1 (WCAG 2.2, 1.4.11) on a
white page and on a dark one alike.

Interface colours (ink, grid, paper, idle) are exact constants: the report replaces them in the SVG with CSS
variables, so that one figure suits a light and a dark page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import ScalarFormatter

from perflab.messages import capital as capital

INK, MUTED, LINE, GRID, PAPER, IDLE = "#1f2328", "#57606a", "#8c959f", "#e6e9ed", "#ffffff", "#d8dde3"
OTHER = "#4b5563"
ALERT = "#b3261e"
"""A broken limit. Never a category."""

INTERFACE = MappingProxyType({
    "ink": INK, "muted": MUTED, "line": LINE, "grid": GRID, "paper": PAPER, "idle": IDLE, "other": OTHER,
    "alert": ALERT,
})  # fmt: skip
"""Interface colours by the name of the CSS variable that replaces them in a report."""

CATEGORY_COLOURS = MappingProxyType({
    "attention": "#d55e00",
    "gemm": "#0072b2",
    "moe": "#2a93cf",
    "communication": "#c46a9c",
    "kv_cache": "#009e73",
    "memory": "#5c9a94",
    "norm_act": "#ae8200",
    "quantize": "#7f8f1a",
    "sampling": "#7b61a8",
    "embedding": "#9a6a3a",
    "graph_opaque": "#2f747c",
    "other": OTHER,
    "idle": IDLE,
})  # fmt: skip

GROUP_COLOURS = MappingProxyType({
    "attention": CATEGORY_COLOURS["attention"],
    "compute": CATEGORY_COLOURS["gemm"],
    "memory": CATEGORY_COLOURS["kv_cache"],
    "communication": CATEGORY_COLOURS["communication"],
    "idle": IDLE,
})  # fmt: skip

IDLE_STRONG = "#5b6b7c"
"""The main place or cause of idle time, where idle time itself is the subject."""

COMPONENT_COLOURS = MappingProxyType({
    "weights": CATEGORY_COLOURS["gemm"],
    "kv_cache": CATEGORY_COLOURS["kv_cache"],
    "peak_activation": CATEGORY_COLOURS["norm_act"],
    "cuda_graphs": CATEGORY_COLOURS["graph_opaque"],
    "non_torch": CATEGORY_COLOURS["other"],
    "free": IDLE,
})  # fmt: skip
"""Components of device memory, in the colour of the category that uses them."""

SERIES = (
    "#0072b2", "#d55e00", "#009e73", "#7b61a8", "#ae8200", "#2a93cf", "#9a6a3a", OTHER,
    "#c46a9c", "#2f747c", "#7d8f12", "#b3576b",
)  # fmt: skip
"""Runs and loads, in the order in which they come; never beside categories in one figure."""

WORDS = MappingProxyType({
    "gemm": "GEMM", "moe": "MoE", "kv_cache": "KV cache", "norm_act": "norm, activation", "memory": "copy, set",
    "graph_opaque": "inside CUDA graph", "peak_activation": "peak activation", "cuda_graphs": "CUDA graphs",
    "non_torch": "outside torch",
})  # fmt: skip
"""How categories and components are written where it is not simply their name."""

GROUP_WORDS = MappingProxyType({"memory": "memory (KV cache writes, copies)"})

FADE = 0.42
"""Opacity of what is not the finding."""

WIDTH = 9.2
"""Inches; the width of a report's column."""
_MARGIN = 0.06
_HEADING = "heading"
FIXED_WHITE, FIXED_BLACK = "#fffffe", "#000001"
"""Text on a full colour: the same on a light and on a dark page."""

_FONTS = ("Inter", "Source Sans 3", "Noto Sans", "Open Sans", "Helvetica Neue", "Arial", "Liberation Sans")
_FALLBACK_FONTS = ("Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "DejaVu Sans")

P = ParamSpec("P")
R = TypeVar("R", bound=Artist)


@functools.lru_cache(maxsize=1)
def rc() -> Any:
    """The style sheet, with the best font this machine has (a missing one would warn at every draw)."""
    params: dict[Any, Any] = dict(
        mpl.rc_params_from_file(str(files(__package__) / "perflab.mplstyle"), use_default_template=False)
    )
    have = set(font_manager.get_font_names())
    first = next((name for name in _FONTS if name in have), "DejaVu Sans")
    params["font.family"] = [first, *(name for name in _FALLBACK_FONTS if name in have and name != first)]
    return params


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function under the perflab style, whatever the reader's own settings are."""

    @functools.wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(rc()):
            drawn = draw(*args, **kwargs)
            _group_thousands(figure_of(drawn))
            return drawn

    return inner


class _Grouped(ScalarFormatter):
    """Ticks as matplotlib writes them, whole thousands with the separators that all other numbers have."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        told = str(super().__call__(x, pos))
        if abs(x) < 1000 or not told.lstrip("\N{MINUS SIGN}-").isdecimal():
            return told
        return f"{x:,.0f}".replace("-", "\N{MINUS SIGN}")


def _group_thousands(figure: Figure) -> None:
    for axis in (one for ax in figure.axes for one in (ax.xaxis, ax.yaxis)):
        # What a figure formats itself stays; shared axes share a formatter, which may have been replaced already.
        if type(axis.get_major_formatter()) is ScalarFormatter and axis.get_scale() == "linear":
            axis.set_major_formatter(_Grouped(useOffset=False))


def axes(ax: Axes | None, width: float = WIDTH, height: float = 3.0) -> Axes:
    """`ax`, or the axes of a new figure of this size in inches (its heading comes on top of the height)."""
    if ax is not None:
        return ax
    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def figure_of(artist: Artist) -> Figure:
    """The figure an artist is in, the whole one where there are subfigures."""
    figure: Any = artist.figure
    assert figure is not None
    whole: Figure = figure.figure
    return whole


def word(name: str) -> str:
    """A category, component or phase as a reader reads it."""
    return WORDS.get(name, name)


def join(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def about(of: str, text: str) -> str:
    """What was measured, after the name of what it was measured on if that is not plain from the figure."""
    return f"{of}: {text}" if of else capital(text)


def head(ax: Axes, title: str, subtitle: str = "", *, whole: bool) -> Axes:
    """Title (the finding) and under it, quieter, what was measured.

    `whole`: the axes are all there is in the figure; the heading then starts at the figure's left edge and the
    figure grows by its height. Otherwise it stands above the axes, as a panel's.
    """
    if whole:
        head_figure(figure_of(ax), title, subtitle)
        return ax
    ax.set_title("\n".join(filter(None, (title, subtitle))), fontsize=10)
    return ax


def head_figure(figure: Figure, title: str, subtitle: str = "") -> None:
    """Heading of a whole figure, wrapped to its width; the figure grows by the heading's height."""
    width, height = figure.get_size_inches()
    top = _MARGIN
    heading = []
    for text, size, weight, colour in ((title, 11.5, "bold", INK), (subtitle, 9.0, "normal", MUTED)):
        if text:
            artist = figure.text(0, 0, text, fontsize=size, fontweight=weight, color=colour, va="top", linespacing=1.2)
            # A page draws SVG text in its reader's own font, which may run wider than the one measured here.
            wrap(artist, 0.94 * (width - 2 * _MARGIN))
            artist.set_in_layout(False)
            artist.set_gid(_HEADING)
            heading.append((artist, top))
            top += size_of(artist)[1] + 0.03
    top += 0.05
    for artist, offset in heading:
        artist.set_position((_MARGIN / width, 1 - offset / height))
    figure.set_label(title)
    grow(figure, top, heading=True)


def grow(figure: Figure, inches: float, *, heading: bool = False) -> None:
    """Make a figure taller without moving its heading from the top; the new room belongs to the heading or the axes."""
    width, height = figure.get_size_inches()
    engine: Any = figure.get_layout_engine()
    used = height * (1 - engine.get()["rect"][3]) if engine is not None else 0.0
    total = height + inches
    figure.set_size_inches(width, total)
    for artist in figure.texts:
        if artist.get_gid() == _HEADING:
            x, y = artist.get_position()
            artist.set_position((x, 1 - (1 - y) * height / total))
    if engine is not None:
        engine.set(rect=(0, 0, 1, 1 - (used + inches * heading) / total))


def wrap(artist: Text, inches: float) -> None:
    """Break a text at spaces so that it is no wider than this, by its real width."""
    words, lines = artist.get_text().split(), [""]
    for item in words:
        longer = f"{lines[-1]} {item}".strip()
        artist.set_text(longer)
        if lines[-1] and size_of(artist)[0] > inches:
            lines.append(item)
        else:
            lines[-1] = longer
    artist.set_text("\n".join(lines))


def title_of(figure: Figure) -> str:
    """The finding a figure states: its heading, or the first panel's."""
    return str(figure.get_label()) or next(
        (t for ax in figure.axes if (t := ax.get_title("left") or ax.get_title())), ""
    )


def nothing(ax: Axes, title: str, why: str, *, whole: bool) -> Axes:
    """Say inside the figure that there is nothing to draw, instead of drawing an empty frame."""
    ax.set_axis_off()
    if whole:
        figure_of(ax).set_size_inches(WIDTH, 0.4)
    ax.text(0.0, 0.5, why, transform=ax.transAxes, color=MUTED, fontsize=9.5, va="center", ha="left")
    return head(ax, title, whole=whole)


def readable_on(colour: str, alpha: float = 1.0) -> str:
    """Ink that stands out on a fill, on a light page and on a dark one.

    On a full colour the page does not matter, so the ink is fixed; a faded fill and the greys follow the page.
    """
    if alpha < 0.9 or colour == IDLE:
        return INK
    if colour == OTHER:
        return PAPER
    return max((FIXED_WHITE, FIXED_BLACK), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21: (L1 + 0.05) / (L2 + 0.05) of their relative luminances (WCAG 2.2)."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def size_of(artist: Text) -> tuple[float, float]:
    """Width and height of a text in inches, as it will be drawn."""
    figure = figure_of(artist)
    box = artist.get_window_extent()
    return float(box.width / figure.dpi), float(box.height / figure.dpi)


def settle(ax: Axes) -> None:
    """Do the layout now, so that data coordinates mean their final pixels and labels can be fitted."""
    figure = figure_of(ax)
    figure.draw_without_rendering()


def fits(artist: Text, ax: Axes, data_width: float, padding: float = 4.0) -> bool:
    """Whether a text is narrower than a stretch of the x axis, less `padding` points on both sides."""
    left, right = ax.transData.transform([(0, 0), (data_width, 0)])[:, 0]
    figure = figure_of(ax)
    return bool(size_of(artist)[0] + 2 * padding / 72 <= abs(right - left) / figure.dpi)


def opacity(name: str, strong: bool) -> float:
    """How strongly a part is drawn: in full if it is the finding (or already light), else faded."""
    return 1.0 if strong or name in ("idle", "free") else FADE


def key(
    ax: Axes, names: Iterable[str], colours: Mapping[str, str], *, strong: str | None = None,
    words: Mapping[str, str] = WORDS, faded: bool = True, whole: bool = True,
) -> None:  # fmt: skip
    """Swatches with names for what had no room for a label of its own.

    They stand under the figure, which grows by their height, or (not `whole`) under the axes of a panel.
    """
    handles = [
        Patch(facecolor=colours[name], alpha=opacity(name, name == strong or not faded), label=words.get(name, name))
        for name in names
    ]
    if not handles:
        return
    lines = -(-len(handles) // 8)
    look: dict[str, Any] = {
        "handles": handles, "ncols": -(-len(handles) // lines), "handlelength": 0.9, "handleheight": 0.9,
        "handletextpad": 0.5, "columnspacing": 1.3, "labelcolor": MUTED, "borderaxespad": 0.2,
    }  # fmt: skip
    if whole:
        figure_of(ax).legend(loc="outside lower left", **look)
        grow(figure_of(ax), 0.1 + 0.19 * lines)
    else:
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0), **{**look, "borderaxespad": 3.2})


def grid(ax: Axes, axis: Literal["x", "y"]) -> None:
    """Quiet lines to read values along one axis, which then needs no ticks."""
    ax.grid(True, axis=axis)
    ax.tick_params(axis=axis, length=0)


def bare(ax: Axes, *sides: str) -> None:
    """Remove spines."""
    for side in sides:
        ax.spines[side].set_visible(False)


def close(figure: Figure) -> None:
    """Forget a figure that has been drawn."""
    plt.close(figure)


def series(count: int) -> list[str]:
    """As many colours for runs or loads; they repeat after twelve."""
    return [SERIES[i % len(SERIES)] for i in range(count)]


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions at least `gap` apart, in the order given (ascending), moved as little as possible as a whole."""
    at: list[float] = []
    for position in wanted:
        at.append(max(position, at[-1] + gap) if at else position)
    shift = sum(a - w for a, w in zip(at, wanted, strict=True)) / max(len(at), 1)
    return [position - shift for position in at]
