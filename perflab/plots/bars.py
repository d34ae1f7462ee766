"""Stacked horizontal bars with labels inside them: what breakdown, idle and memory figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from perflab import units
from perflab.plots import style

BAR = 0.64
ROW = 0.36
"""Inches a row takes."""

_SCALES = ((units.NS_PER_S, "s"), (units.NS_PER_MS, "ms"), (units.NS_PER_US, "µs"))


@dataclass(frozen=True)
class Segment:
    """One part of a bar: its name (which gives the colour), length on the axis, and value as text."""

    name: str
    length: float
    value: str


def scale(longest_ns: float) -> tuple[int, str]:
    """Nanoseconds in the time unit that suits an axis up to `longest_ns`, and that unit."""
    return next(((size, unit) for size, unit in _SCALES if longest_ns >= size), _SCALES[-1])


def rows(keys: Iterable[tuple[str, str]], *, titled: bool) -> dict[tuple[str, str], float]:
    """A place on the y axis for each (run, row); each run after the first stands apart, with room for its title."""
    places: dict[tuple[str, str], float] = {}
    at, last = (0.55 if titled else 0.0), None
    for run, row in keys:
        if last is not None and run != last:
            at += 0.75 if titled else 0.3
        places[run, row] = at
        at, last = at + 1.0, run
    return places


def frame(
    ax: Axes, places: Mapping[tuple[str, str], float], labels: Sequence[str], *, whole: bool, titled: bool
) -> None:
    """Y axis of such rows: labels at the left, run titles above their first row, height by the number of rows."""
    bottom = max(places.values()) + 0.55
    if whole:
        style.figure_of(ax).set_size_inches(style.WIDTH, 0.6 + ROW * (bottom + 0.5))
    ax.set_ylim(bottom, -0.5)
    ax.set_yticks(list(places.values()), labels)
    ax.tick_params(axis="y", length=0, labelcolor=style.INK)
    style.bare(ax, "left", "bottom")
    style.grid(ax, "x")
    seen: set[str] = set()
    for (run, _), place in places.items():
        if titled and run not in seen:
            ax.annotate(
                run, (0, place - BAR / 2), xytext=(0, 4), textcoords="offset points", va="bottom",
                xycoords=("axes fraction", "data"), fontsize=9.5, fontweight="bold", annotation_clip=False,
            )  # fmt: skip
        seen.add(run)


def stack(
    ax: Axes,
    bars: Mapping[float, Sequence[Segment]],
    colours: Mapping[str, str],
    *,
    strong: Mapping[float, str | None],
    words: Mapping[str, str] = style.WORDS,
    floor: float = 0.0,
) -> set[str]:
    """Draw bars and label the parts that have room: name and value, value alone, or nothing.

    Parameters
    ----------
    bars
        Place on the y axis -> segments from left to right.
    strong
        Place -> the name drawn in full colour; the rest of that bar steps back.
    floor
        Lengths up to this get no outline, so that slivers do not vanish in it.

    Returns
    -------
    set of str
        Names that at least one bar shows in words: what is left needs a key.
    """
    for place, segments in bars.items():
        left = 0.0
        for segment in segments:
            alpha = style.opacity(segment.name, segment.name == strong.get(place))
            ax.barh(
                place, segment.length, left=left, height=BAR, color=colours[segment.name], alpha=alpha,
                edgecolor=style.PAPER, linewidth=0.8 if segment.length > floor else 0,
            )  # fmt: skip
            left += segment.length
    style.settle(ax)
    named: set[str] = set()
    for place, segments in bars.items():
        left = 0.0
        for segment in segments:
            main = segment.name == strong.get(place)
            if _label(ax, place, left, segment, words.get(segment.name, segment.name), colours[segment.name], main):
                named.add(segment.name)
            left += segment.length
    return named


def _label(ax: Axes, place: float, left: float, segment: Segment, word: str, colour: str, main: bool) -> bool:
    """Label one segment; whether its name could be written."""
    ink = style.readable_on(colour, style.opacity(segment.name, main))
    artist = ax.text(
        left + segment.length / 2, place, "", ha="center", va="center_baseline", fontsize=9,
        color=ink, fontweight="bold" if main else "normal",
    )  # fmt: skip
    for text in (f"{word}  {segment.value}", segment.value):
        artist.set_text(text)
        if style.fits(artist, ax, segment.length):
            return text != segment.value
    artist.remove()
    return False
