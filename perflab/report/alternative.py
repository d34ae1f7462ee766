"""The text alternative of a figure: what it states, what it shows, and the main numbers in it."""

from __future__ import annotations

import math
import re
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from perflab.plots import style

LONGEST = 700
"""Characters; a screen reader reads it in one go."""
_MOST_ROWS = 12
_MOST_LABELS = 8
_NUMBER = re.compile(r"^[\s\d.,+−-]*$")


def describe(figure: Figure) -> dict[str, Any]:
    """What a drawn figure shows, in words: `title`, the `axes` with their labels, and `alt`, all of it as one text.

    The numbers are those a reader sees: the rows of a bar chart with the labels in and beside them, else the range of
    either axis and the labels in the plot. The figure must have been drawn, since rows are told apart by where they
    stand.
    """
    shown = [ax for ax in figure.axes if ax.axison]
    axes = [{"x": ax.get_xlabel(), "y": ax.get_ylabel().replace("\n", " ")} for ax in shown]
    title = _flat(style.title_of(figure))
    subtitle = next((_flat(text.get_text()) for text in figure.texts[1:2]), "")
    labels = list(dict.fromkeys(label for ax in axes for label in ax.values() if label))
    parts = [title, subtitle if subtitle != title else "", f"Axes: {'; '.join(labels)}" if labels else ""]
    parts += [told for ax in shown if (told := _numbers(ax))]
    if not shown:
        parts += [_flat(text.get_text()) for ax in figure.axes for text in ax.texts]
    alt = " ".join(f"{part.rstrip('.')}." for part in parts if part)
    return {"title": title, "axes": axes, "alt": _cut(alt)}


def _numbers(ax: Axes) -> str:
    rows = _rows(ax)
    texts = [text for text in ax.texts if text.get_visible() and text.get_text().strip()]
    if not rows:
        return _ranges(ax, [_flat(text.get_text()) for text in texts])
    height = min((abs(a - b) for a, b in zip(list(rows)[1:], list(rows), strict=False)), default=40.0)
    told: dict[str, list[tuple[float, str]]] = {name: [] for name in rows.values()}
    for text in texts:
        x, y = _centre(text)
        nearest = min(rows, key=lambda at: abs(at - y))
        if abs(nearest - y) <= max(height * 0.5, 4.0):
            told[rows[nearest]].append((x, _flat(text.get_text())))
    found = [f"{name}: {', '.join(label for _, label in sorted(of))}" for name, of in told.items() if of]
    panel = _flat(ax.get_title("left") or ax.get_title())
    rest = len(found) - _MOST_ROWS
    more = f" and {rest} more rows" if rest > 0 else ""
    return f"{panel + ': ' if panel else ''}{'; '.join(found[:_MOST_ROWS])}{more}" if found else ""


def _rows(ax: Axes) -> dict[float, str]:
    """Rows of a chart whose y axis has names, by their height on the canvas, from above."""
    ticks = [tick for tick in ax.yaxis.get_major_ticks() if tick.label1.get_visible()]
    found = {_centre(tick.label1)[1]: _flat(tick.label1.get_text()) for tick in ticks if tick.label1.get_text().strip()}
    if not found or all(_NUMBER.match(name) for name in found.values()):
        return {}
    return dict(sorted(found.items(), reverse=True))


def _ranges(ax: Axes, labels: list[str]) -> str:
    box = ax.dataLim
    told = []
    for name, low, high in ((ax.get_xlabel(), box.x0, box.x1), (ax.get_ylabel(), box.y0, box.y1)):
        if name and all(map(math.isfinite, (low, high))):
            told.append(f"{_flat(name)} from {_short(low)} to {_short(high)}")
    panel = _flat(ax.get_title("left") or ax.get_title())
    named = list(dict.fromkeys(labels))[:_MOST_LABELS]
    if named:
        told.append(f"labels: {', '.join(named)}")
    return f"{panel + ': ' if panel else ''}{'; '.join(told)}" if told else ""


def _centre(text: Text) -> tuple[float, float]:
    box = text.get_window_extent()
    return float(box.x0 + box.x1) / 2, float(box.y0 + box.y1) / 2


def _short(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST].rpartition(' ')[0].rstrip(',;:')} …"
