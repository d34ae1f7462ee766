"""Loads: throughput and latency over load with the knee, goodput, and what tokens cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perflab.plots import style
from perflab.plots.scales import Floats, digits, limit_line, metric_words, value_axis

_LEAD = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5, "shrinkA": 2, "shrinkB": 4}


@style.styled
def plot_load(
    table: pd.DataFrame,
    *,
    knees: pd.DataFrame | None = None,
    limits: pd.DataFrame | None = None,
    latency: str = "e2el_mean_ms",
    throughput: str = "output_tokens_per_s",
    slo_ms: float | None = None,
    kind: str = "closed",
    colours: Mapping[str, str] | None = None,
    title: str = "",
    of: str = "",
) -> Figure:
    """Throughput (above) and latency (below) over load, a line a run; a ring marks the knee.

    Parameters
    ----------
    table
        `run`, `x` (load), `load` (its label) and the columns `latency` and `throughput`; a row a load.
    knees
        `run`, `x`, `low`, `high`: the load at the knee and its measured neighbours. Of a single run the stretch in
        which the knee lies is shaded.
    limits
        `run`, `x`: the most load within objectives where it is interpolated, drawn as a short line across the curve.
    slo_ms
        A limit on `latency` to draw.
    kind
        `closed` (requests at once) or `open` (requests a second).
    """
    usable = table.dropna(subset=[latency, throughput])
    if usable.empty:
        figure, ax = plt.subplots(layout="constrained")
        style.nothing(ax, "No load has both throughput and latency", "Nothing to draw.", whole=True)
        return figure
    figure, (top, low) = plt.subplots(
        2, 1, sharex=True, figsize=(style.WIDTH, 4.7), layout="constrained", height_ratios=[1, 1]
    )
    runs = list(dict.fromkeys(usable["run"].astype(str)))
    colours = colours or dict(zip(runs, style.series(len(runs)), strict=True))
    (y_name, y_unit), (x_name, x_unit) = metric_words(latency), metric_words(throughput)
    _panel(top, usable, throughput, f"{x_name}\n({x_unit})", None)
    _panel(low, usable, latency, f"{y_name}\n({y_unit})", slo_ms)
    low.set_xlabel(x_words(kind))
    top.tick_params(axis="x", length=0)
    limit_line(low, "y", slo_ms, y_unit)
    style.head_figure(figure, title or load_title(usable, knees, throughput), style.about(of, _about(knees, limits)))
    known = pd.DataFrame(columns=["run", "x", "low", "high"]) if knees is None else knees
    if len(runs) == 1:
        for row in known.dropna(subset=["low", "high"]).itertuples():
            for ax in (top, low):
                ax.axvspan(row.low, row.high, color=style.GRID, alpha=0.45, linewidth=0, zorder=0)
    for run in runs:
        group = usable[usable["run"].astype(str) == run].sort_values("x")
        of_run = known[known["run"].astype(str) == run]
        for ax, column in ((top, throughput), (low, latency)):
            _curve(ax, group, column, colours[run])
            at = group[group["x"].isin(of_run["x"])]
            ax.plot(at["x"], at[column], "o", markersize=12, markeredgewidth=1.8, color=colours[run], fillstyle="none")
        if limits is not None:
            mine = limits[limits["run"].astype(str) == run]
            _mark_limits(low, mine, group, latency, colours[run], named=len(runs) == 1)
    style.settle(top)
    if len(runs) > 1:
        for ax, column in ((top, throughput), (low, latency)):
            _name_runs(ax, usable, column, colours)
    else:
        for ax, column in ((top, throughput), (low, latency)):
            _name_loads(ax, usable.sort_values("x"), column)
    return figure


@style.styled
def plot_goodput(
    table: pd.DataFrame,
    *,
    slos_ms: Mapping[str, float],
    kind: str = "closed",
    colours: Mapping[str, str] | None = None,
    of: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Requests a second that meet every objective over load, and all requests a second (thin) as what they could be.

    Needs `run`, `x`, `load`, `requests_per_s`, `goodput_per_s`; a row a load. Loads whose goodput is not known are
    hollow, on the thin line only.
    """
    whole, ax = ax is None, style.axes(ax, height=3.0)
    usable = table.dropna(subset=["requests_per_s"])
    if usable["goodput_per_s"].isna().all():
        why = "It needs objectives, and results with single requests (`--save-detailed`)."
        return style.nothing(ax, "Goodput is not known of any load", why, whole=whole)
    runs = list(dict.fromkeys(usable["run"].astype(str)))
    colours = colours or dict(zip(runs, style.series(len(runs)), strict=True))
    _panel(ax, usable, "requests_per_s", "requests a second\n(requests/s)", None, from_zero=True)
    ax.set_xlabel(x_words(kind))
    told = ", ".join(f"{metric_words(name)[0]} {limit:g} ms" for name, limit in slos_ms.items())
    text = f"full line: requests that keep {told}; thin: all requests, a hollow dot where no single request is known"
    style.head(ax, goodput_title(usable), style.about(of, text), whole=whole)
    for run in runs:
        group = usable[usable["run"].astype(str) == run].sort_values("x")
        known = group.dropna(subset=["goodput_per_s"])
        ax.plot(group["x"], group["requests_per_s"], "-", color=colours[run], linewidth=0.9, alpha=0.6)
        unknown = group[group["goodput_per_s"].isna()]
        ax.plot(unknown["x"], unknown["requests_per_s"], "o", color=colours[run], fillstyle="none", markersize=5.5)
        ax.fill_between(
            known["x"].to_numpy(float), known["goodput_per_s"].to_numpy(float), known["requests_per_s"].to_numpy(float),
            color=colours[run], alpha=0.1, linewidth=0,
        )  # fmt: skip
        ax.plot(known["x"], known["goodput_per_s"], "o-", color=colours[run], lw=1.9, markersize=5.5, clip_on=False)
    style.settle(ax)
    if len(runs) > 1:
        # Where the last load's goodput is not known, its name stands at the end of the thin line.
        ends = usable["goodput_per_s"].astype(float).fillna(usable["requests_per_s"])
        _name_runs(ax, usable.assign(end=ends), "end", colours)
    else:
        _name_loads(ax, usable.dropna(subset=["goodput_per_s"]).sort_values("x"), "goodput_per_s")
    return ax


@style.styled
def plot_cost(
    table: pd.DataFrame,
    *,
    tokens: str = "output",
    kind: str = "closed",
    price: float | None = None,
    colours: Mapping[str, str] | None = None,
    of: str = "",
    ax: Axes | None = None,
) -> Axes:
    """What a million tokens cost over load, a line a run.

    Needs `run`, `x`, `load` and the column `tokens` (`input`, `output` or `total`).
    """
    whole, ax = ax is None, style.axes(ax, height=2.8)
    usable = table.dropna(subset=[tokens]) if len(table) else table
    if usable.empty:
        return style.nothing(
            ax, "What tokens cost is not known", "It needs a price per GPU hour and the number of GPUs.", whole=whole
        )
    runs = list(dict.fromkeys(usable["run"].astype(str)))
    colours = colours or dict(zip(runs, style.series(len(runs)), strict=True))
    _panel(ax, usable, tokens, f"a million {tokens} tokens\n(currency of the price)", None)
    ax.set_xlabel(x_words(kind))
    asked = f"price {price:g} a GPU hour, " if price is not None else ""
    text = f"{asked}the load kept up all the time, all of the price put on {tokens} tokens"
    style.head(ax, cost_title(usable, tokens), style.about(of, text), whole=whole)
    for run in runs:
        group = usable[usable["run"].astype(str) == run].sort_values("x")
        ax.plot(group["x"], group[tokens], "o-", color=colours[run], linewidth=1.7, markersize=5.5)
    style.settle(ax)
    if len(runs) > 1:
        _name_runs(ax, usable, tokens, colours)
    else:
        _name_values(ax, usable.sort_values("x"), tokens)
    return ax


def x_words(kind: str) -> str:
    """The load axis in words."""
    return "requests in flight at once, at most" if kind == "closed" else "load asked for (requests/s)"


def load_title(table: pd.DataFrame, knees: pd.DataFrame | None, throughput: str) -> str:
    """Where the knee lies, or the highest throughput where none was found."""
    if knees is not None and len(knees):
        several = table["run"].nunique() > 1
        if not several:
            first = knees.iloc[0]
            between = f"{first['low']:g} and {first['high']:g}"
            return f"The knee lies between {between}; best measured load {first['x']:g}"
        best = knees.groupby("x", sort=True)["run"].apply(lambda names: style.join([str(name) for name in names]))
        if len(best) == 1 and len(knees) == table["run"].nunique():
            return f"Best measured load of all {len(knees)} runs: {best.index[0]:g}; their knees lie around it"
        return f"Best measured loads: {'; '.join(f'{x:g} of {names}' for x, names in best.items())}"
    name, unit = metric_words(throughput)
    best = table.loc[table[throughput].idxmax()]
    value = float(best[throughput])
    return f"No knee in these loads; highest {name} {value:,.{digits(value)}f} {unit} at {best['load']}"


def goodput_title(table: pd.DataFrame) -> str:
    """The highest goodput, and at what load."""
    best = table.loc[table["goodput_per_s"].astype(float).idxmax()]
    value, all_of = float(best["goodput_per_s"]), float(best["requests_per_s"])
    whose = f"{best['run']} at {best['load']}" if table["run"].nunique() > 1 else f"load {best['load']}"
    if value == 0:
        return "0 requests a second meet every objective at any measured load"
    return f"Highest goodput: {value:,.{digits(value)}f} of {all_of:,.{digits(all_of)}f} requests/s ({whose})"


def cost_title(table: pd.DataFrame, tokens: str) -> str:
    """From the dearest load to the cheapest."""
    low, high = table.loc[table[tokens].idxmin()], table.loc[table[tokens].idxmax()]
    several = table["run"].nunique() > 1

    def told(row: pd.Series[Any]) -> str:
        value = float(row[tokens])
        return f"{value:,.{digits(value)}f} at {f'{row.run} ' if several else ''}{row.load}"

    if len(table) == 1:
        return f"A million {tokens} tokens cost {told(low)}"
    return f"A million {tokens} tokens cost from {told(high)} down to {told(low)}"


def _about(knees: pd.DataFrame | None, limits: pd.DataFrame | None) -> str:
    told = ["dots are medians over repeats"]
    if knees is not None and len(knees):
        told.append(
            "ring: most throughput for its latency (requests/s over mean E2EL); the knee is between its neighbours"
        )
    if limits is not None and len(limits):
        told.append("bar: most load within the objectives, interpolated")
    return "; ".join(told)


def _panel(
    ax: Axes, table: pd.DataFrame, column: str, label: str, limit: float | None, *, from_zero: bool = False
) -> None:
    value_axis(ax, "x", table["x"].to_numpy(float), None)
    if ax.get_xscale() == "linear" and bool((table["x"] % 1 == 0).all()):
        # Requests at once are whole, and so are the ticks.
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if from_zero:
        ax.set_ylim(0, float(table[column].astype(float).max()) * 1.15 or 1.0)
    else:
        value_axis(ax, "y", table[column].to_numpy(float), limit)
    ax.set_ylabel(label)
    ax.grid(True)
    ax.tick_params(length=0)
    style.bare(ax, "left", "bottom")


def _curve(ax: Axes, group: pd.DataFrame, column: str, colour: str) -> None:
    """Dots, and between them the straight line of the values, which a logarithmic axis bends."""
    x, y = group["x"].to_numpy(float), group[column].to_numpy(float)
    between = [np.linspace(a, b, 60) for a, b in itertools.pairwise(x)]
    dense = np.unique(np.concatenate([x, *between]))
    ax.plot(dense, np.interp(dense, x, y), "-", color=colour, linewidth=1.7)
    ax.plot(x, y, "o", color=colour, markersize=5.5)


def _mark_limits(ax: Axes, limits: pd.DataFrame, curve: pd.DataFrame, column: str, colour: str, *, named: bool) -> None:
    """A short upright line across the curve where the objectives give way."""
    for row in limits.dropna(subset=["x"]).itertuples():
        y = float(np.interp(row.x, curve["x"].to_numpy(float), curve[column].to_numpy(float)))
        ax.plot([row.x], [y], "|", color=colour, markersize=22, markeredgewidth=2.2)
        if not named:
            continue
        ax.annotate(
            f"{row.x:,.3g}", (row.x, y), xytext=(5, -14), textcoords="offset points", color=colour, fontsize=9,
            fontweight="bold",
        )  # fmt: skip


def _name_runs(ax: Axes, table: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    """Names in the right margin, each on a thin line from its curve's last point."""
    last = table.sort_values("x").groupby("run", sort=False).last()
    pixels = pd.Series(
        ax.transData.transform(last[["x", column]].to_numpy(float))[:, 1], index=last.index
    ).sort_values()
    box, dpi = ax.get_window_extent(), style.figure_of(ax).dpi
    for run, y in zip(pixels.index, style.spread(list(pixels), 13.0 * dpi / 72), strict=True):
        point = (float(last.loc[run, "x"]), float(last.loc[run, column]))
        ax.annotate(
            str(run), point, xytext=(1.015, (y - box.y0) / box.height), textcoords="axes fraction", va="center",
            ha="left", color=colours[str(run)], fontsize=9, fontweight="bold", annotation_clip=False,
            arrowprops={**_LEAD, "color": colours[str(run)]},
        )  # fmt: skip


def _name_loads(ax: Axes, table: pd.DataFrame, column: str) -> None:
    _write(ax, table, column, [str(load) for load in table["load"]])


def _name_values(ax: Axes, table: pd.DataFrame, column: str) -> None:
    values: Floats = table[column].to_numpy(float)
    _write(ax, table, column, [f"{v:,.{digits(v)}f}" for v in values])


def _write(ax: Axes, table: pd.DataFrame, column: str, texts: Sequence[str]) -> None:
    for x, y, text in zip(table["x"], table[column], texts, strict=True):
        ax.annotate(
            text, (float(x), float(y)), xytext=(0, 9), textcoords="offset points", ha="center", va="bottom",
            color=style.MUTED, fontsize=9, annotation_clip=False,
        )  # fmt: skip
