"""Metrics of two sides: by what ratio they differ, how sure that is, and whether it matters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from perflab.plots import bars, style
from perflab.plots.scales import metric_words

VERDICT_COLOURS = {
    "better": "#009e73",
    "worse": style.ALERT,
    "same": style.INK,
    "undecided": style.MUTED,
    "withheld": style.LINE,
}
_DECIDED = ("better", "worse", "same")
_CHANGES = (1, 2, 5, 10, 20, 30, 50, 100, 200, 400, 900, 1900)
"""Percent by which the candidate may be higher; ticks below 1 mirror them."""


@style.styled
def plot_metric_ratios(table: pd.DataFrame, *, of: str = "", ax: Axes | None = None) -> Axes:
    """A row a metric: candidate over baseline with its 95 % interval, changes that do not matter, and the verdict.

    Parameters
    ----------
    table
        Table `comparison`; rows of one point together. Without an interval a row is a hollow dot.
    of
        What was compared, for the line under the title.
    """
    whole, ax = ax is None, style.axes(ax)
    shown = table[table["ratio"].notna()]
    if shown.empty:
        return style.nothing(ax, "No metric to compare", "Nothing was measured on both sides.", whole=whole)
    rows = shown.to_dict("records")
    several = shown["point"].nunique() > 1
    keys = [(str(row["point"]), str(row["metric"])) for row in rows]
    places = bars.rows(keys, titled=several)
    bars.frame(ax, places, [_label(row) for row in rows], whole=whole, titled=several)
    ax.set_xscale("log")
    ax.set_xlim(*_reach(shown))
    _ticks(ax)
    ax.axvline(1, color=style.LINE, linewidth=1.0, zorder=1)
    for row, place in zip(rows, places.values(), strict=True):
        _row(ax, row, place)
    ax.set_xlabel("candidate against baseline (%)")
    return style.head(ax, metric_ratios_title(table), style.about(of, _subtitle(shown)), whole=whole)


def metric_ratios_title(table: pd.DataFrame) -> str:
    """What the metric that decides comes to; how many have a verdict where none decides."""
    primary = table[table["primary"] & table["ratio"].notna()]
    if primary.empty:
        counts = table["verdict"].value_counts()
        return f"{len(table)} metrics: {style.join([f'{n} {verdict}' for verdict, n in counts.items()])}"
    row = primary.iloc[0].to_dict()
    change = float(row["ratio"]) - 1
    name, unit = metric_words(str(row["metric"]))
    same_metric = table[(table["metric"] == row["metric"]) & table["ratio"].notna()]
    if len(same_metric) > 1:
        changes = [
            f"{_change(one['ratio'])} at {str(one['point']).rpartition(' ')[2]}"
            + (f" ({one['verdict']})" if one["verdict"] in _DECIDED else "")
            for one in same_metric.to_dict("records")
        ]
        return style.capital(f"{name} by load: {style.join(changes)}")
    moved = f"{abs(change) * 100:.1f} % {'higher' if change > 0 else 'lower'}"
    values = f"{_value(row['baseline'])} to {_value(row['candidate'])} {unit}"
    verdict = str(row["verdict"])
    if verdict in ("undecided", "withheld"):
        word = "no verdict" if verdict == "undecided" else "the verdict is withheld"
        return style.capital(f"{name} at {row['point']} was measured {moved}, {values}: {word}")
    if verdict == "same":
        return style.capital(f"{name} at {row['point']} is the same within {_percent(row['threshold'])}: {values}")
    return style.capital(f"{name} at {row['point']} is {verdict}: {moved}, {values}")


def _label(row: dict[Any, Any]) -> str:
    name = style.capital(metric_words(str(row["metric"]))[0])
    return f"{name} ↑" if row["better"] == "higher" else name


def _row(ax: Axes, row: dict[Any, Any], place: float) -> None:
    verdict, band = str(row["verdict"]), 1 + float(row["threshold"])
    colour = VERDICT_COLOURS[verdict]
    ax.barh(place, band - 1 / band, left=1 / band, height=bars.BAR + 0.2, color=style.GRID, zorder=0)
    if not pd.isna(row["ci_low"]):
        ax.plot([row["ci_low"], row["ci_high"]], [place, place], color=colour, linewidth=2.6, solid_capstyle="butt")
    filled = verdict in _DECIDED
    ax.plot(
        row["ratio"], place, "o", markersize=7, markeredgewidth=1.6, markeredgecolor=colour,
        markerfacecolor=colour if filled else style.PAPER, zorder=3,
    )  # fmt: skip
    unit = metric_words(str(row["metric"]))[1]
    change = _change(row["ratio"])
    values = f"{_value(row['baseline'])} → {_value(row['candidate'])} {unit}"
    for offset, text, ink, bold in (
        (10, change, style.INK, False),
        (62, verdict, colour if filled else style.MUTED, verdict in ("better", "worse")),
        (124, values, style.MUTED, False),
    ):
        ax.annotate(
            text, (1, place), xycoords=("axes fraction", "data"), xytext=(offset, 0), textcoords="offset points",
            va="center_baseline", fontsize=9, color=ink, fontweight="bold" if bold else "normal", annotation_clip=False,
        )  # fmt: skip


def _reach(table: pd.DataFrame) -> tuple[float, float]:
    """Ends of the axis: every dot, interval and band, and some room."""
    band = 1 + table["threshold"].max()
    values = table[["ratio", "ci_low", "ci_high"]].to_numpy(dtype=float)
    values = np.append(values[np.isfinite(values)], [1 / band, band])
    low, high = math.log(values.min()), math.log(values.max())
    room = 0.05 * (high - low)
    return math.exp(low - room), math.exp(high + room)


def _ticks(ax: Axes) -> None:
    """Percent at round changes, as many as have room."""
    low, high = ax.get_xlim()
    ups = [1 + change / 100 for change in _CHANGES]
    downs = [1 - change / 100 for change in (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95)]
    least = 0.07 * math.log(high / low)
    kept = [1.0]
    for side in (ups, downs):
        last = 0.0
        # From the far end inwards would crowd the middle; from the middle outwards keeps the small changes.
        for at in side:
            if abs(math.log(at)) - last >= least and low <= at <= high:
                kept.append(at)
                last = abs(math.log(at))
    ax.xaxis.set_major_locator(FixedLocator(sorted(kept)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{(v - 1) * 100:+.0f}".replace("-", "−").replace("+0", "0"))
    )


def _subtitle(table: pd.DataFrame) -> str:
    """How it was measured: unit of evidence, interval, band."""
    counts = table[["n_baseline", "n_candidate"]].drop_duplicates().to_numpy()
    runs = " or ".join(dict.fromkeys(f"{a} and {b}" if a != b else f"{a}" for a, b in counts))
    plural = "" if runs == "1" else "s"
    text = f"{runs} run{plural} of a server a side"
    if table["ci_low"].notna().any():
        text += "; line: 95 % interval over runs"
    else:
        text += "; too few for an interval"
    limits = [_percent(value) for value in sorted(table["threshold"].unique())]
    text += f"; grey: changes below {' or '.join(limits)} do not matter"
    return f"{text}; ↑ more is better" if (table["better"] == "higher").any() else text


def _change(ratio: Any) -> str:
    return f"{(float(ratio) - 1) * 100:+.1f} %".replace("-", "−")


def _percent(share: Any) -> str:
    return f"{float(share) * 100:g}\N{NO-BREAK SPACE}%"


def _value(value: Any) -> str:
    number = float(value)
    digits = 0 if number >= 1000 else 1 if number >= 100 else 2
    return f"{number:,.{digits}f}"
