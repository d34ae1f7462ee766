"""Sampled values over time: engine gauges, GPU and host telemetry."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from perflab import units
from perflab.plots import style

_UNITS: tuple[tuple[str, str, float], ...] = (
    ("_bytes", "GiB", 1 / units.GIB), ("_perc", "%", 100.0), ("_percent", "%", 1.0), ("_ratio", "%", 100.0),
    ("_mhz", "MHz", 1.0), ("_watts", "W", 1.0), ("_w", "W", 1.0), ("_celsius", "°C", 1.0), ("_c", "°C", 1.0),
    ("_seconds", "s", 1.0),
)  # fmt: skip
_MOST = 8
_GAP = 5.0
"""A pause this many times the usual interval breaks the line: nothing was sampled in it."""


def metric_label(metric: str) -> tuple[str, str, float]:
    """A metric's name in words, its unit, and the factor that turns its values into that unit."""
    stem = metric.split(":")[-1]
    for suffix, unit, factor in _UNITS:
        if stem.endswith(suffix):
            return stem.removesuffix(suffix).replace("_", " "), unit, factor
    return stem.replace("_", " "), "", 1.0


@style.styled
def plot_samples(samples: pd.DataFrame, *, metric: str, origin_ns: int | None = None, ax: Axes | None = None) -> Axes:
    """One metric over time, a line a set of labels; its smallest and largest value written at the right.

    Needs table `samples`. `origin_ns` is the time shown as zero (default: the first sample).
    """
    whole, ax = ax is None, style.axes(ax, height=1.9)
    word, unit, _ = metric_label(metric)
    chosen = samples[samples["metric"] == metric]
    if chosen.empty:
        return style.nothing(ax, f"No samples of {word}", "The metric was not recorded.", whole=whole)
    origin = int(chosen["t_ns"].min()) if origin_ns is None else origin_ns
    _lines(ax, chosen, metric, origin)
    ax.set_xlabel("time (s)")
    ax.set_ylabel(f"{word} ({unit})" if unit else word)
    return style.head(ax, samples_title(chosen, metric), f"{len(chosen):,} samples", whole=whole)


@style.styled
def plot_telemetry(
    samples: pd.DataFrame,
    *,
    metrics: Mapping[str, str] | None = None,
    spans: pd.DataFrame | None = None,
    title: str = "",
    of: str = "",
) -> Figure:
    """Several metrics on one time axis, a panel each.

    Parameters
    ----------
    samples
        `samples`.
    metrics
        Metric -> words beside its panel, in order (default: those there are, under their own names); at most eight.
    spans
        `load`, `start_ns`, `end_ns`: what was measured when, shaded, and named where there is room.
    title
        The finding; the range of the first metric unless given.
    """
    there = set(samples["metric"])
    names = [m for m in (metrics or dict.fromkeys(samples["metric"])) if m in there][:_MOST]
    if not names:
        figure, ax = plt.subplots(layout="constrained")
        style.nothing(ax, "No telemetry was recorded", "There is nothing to draw.", whole=True)
        return figure
    figure, panels = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(style.WIDTH, 0.82 * len(names) + 0.35), layout="constrained"
    )
    chosen = samples[samples["metric"].isin(names)]
    origin = int(chosen["t_ns"].min())
    for ax, name in zip(panels[:, 0], names, strict=True):
        _lines(ax, chosen[chosen["metric"] == name], name, origin)
        word, unit, _ = metric_label(name)
        word = (metrics or {}).get(name) or word
        ax.set_ylabel(f"{word}\n({unit})" if unit else word, rotation=0, ha="right", va="center")
    for ax in panels[:-1, 0]:
        ax.tick_params(axis="x", length=0)
    panels[-1, 0].set_xlabel("time since the first sample (s)")
    seconds = (int(chosen["t_ns"].max()) - origin) / units.NS_PER_S
    style.head_figure(
        figure,
        title or samples_title(chosen[chosen["metric"] == names[0]], names[0]),
        style.about(
            of, f"{len(chosen):,} samples over {seconds:,.0f} s" + ("; shaded: measured" if spans is not None else "")
        ),
    )
    if spans is not None:
        _shade(list(panels[:, 0]), spans, origin)
    return figure


def _shade(panels: list[Axes], spans: pd.DataFrame, origin: int) -> None:
    """Bands behind the lines while something was measured; neighbours of the same load share a label."""
    limits = panels[0].get_xlim()
    times = [
        (str(row.load), (row.start_ns - origin) / units.NS_PER_S, (row.end_ns - origin) / units.NS_PER_S)
        for row in spans.itertuples()
    ]
    for ax in panels:
        for _, start, end in times:
            ax.axvspan(start, end, color=style.GRID, linewidth=0, zorder=0)
    panels[0].set_xlim(limits)
    style.settle(panels[0])
    for load, start, end in times:
        artist = panels[0].annotate(
            load, ((start + end) / 2, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, color=style.MUTED, annotation_clip=True,
        )  # fmt: skip
        if not style.fits(artist, panels[0], end - start, padding=0):
            artist.remove()


def samples_title(samples: pd.DataFrame, metric: str) -> str:
    """The range of a metric in words."""
    word, unit, factor = metric_label(metric)
    low, high = float(samples["value"].min()) * factor, float(samples["value"].max()) * factor
    unit = f" {unit}" if unit else ""
    if math.isclose(low, high):
        return style.capital(f"{word} stays at {high:,.4g}{unit}")
    return style.capital(f"{word} from {low:,.4g} to {high:,.4g}{unit}")


def _lines(ax: Axes, chosen: pd.DataFrame, metric: str, origin: int) -> None:
    _, _, factor = metric_label(metric)
    groups = list(chosen.groupby("labels", sort=True))
    ends = []
    for (labels, part), colour in zip(groups, style.series(len(groups)), strict=True):
        ordered = _with_breaks(part.sort_values("t_ns"))
        seconds, values = (ordered["t_ns"] - origin) / units.NS_PER_S, ordered["value"] * factor
        ax.plot(seconds, values, color=colour, linewidth=1.5, marker="." if len(part) < 3 else "")
        ends.append((float(values.iloc[-1]), str(labels), colour))
    high = float(chosen["value"].max()) * factor
    ax.set_ylim(0, high * 1.15 if high > 0 else 1.0)
    ax.margins(x=0.01)
    ax.tick_params(axis="y", length=0)
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    style.bare(ax, "left")
    style.grid(ax, "y")
    if len(ends) > 1:
        _name_lines(ax, sorted(ends))


def _with_breaks(ordered: pd.DataFrame) -> pd.DataFrame:
    """A row without value in the middle of each long pause."""
    steps = ordered["t_ns"].diff()
    pauses = ordered[steps > _GAP * steps.median()] if len(ordered) > 2 else ordered.head(0)
    empty = pauses.assign(t_ns=pauses["t_ns"] - steps[pauses.index] // 2, value=float("nan")).astype({"t_ns": "int64"})
    return (
        pd.concat([ordered, empty], ignore_index=True).sort_values("t_ns", ignore_index=True) if len(empty) else ordered
    )


def _name_lines(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Labels in the right margin, in the order of the lines' last values and apart from one another."""
    bottom, top = ax.get_ylim()
    gap = (top - bottom) * 10.5 / 72 / (ax.get_window_extent().height / style.figure_of(ax).dpi)
    for (_, labels, colour), y in zip(ends, style.spread([end[0] for end in ends], gap), strict=True):
        ax.annotate(
            labels, (1, y), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
            va="center", color=colour, fontsize=8.5, annotation_clip=False,
        )  # fmt: skip
