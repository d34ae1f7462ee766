"""Distributions of latencies: what share of requests (of gaps, for ITL) stays below a value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from perflab.plots import style
from perflab.plots.scales import METRICS, Floats, digits, limit_line, milliseconds, value_axis

ENOUGH_FOR_P99 = 100
"""With fewer values the 99th percentile lies between the two largest: it is drawn hollow and written in brackets."""

_CURVE_POINTS = 600


@style.styled
def plot_ecdf(
    values: pd.DataFrame, *, metric: str = "ttft", slo_ms: float | None = None, ax: Axes | None = None
) -> Axes:
    """Share of values up to a latency, one curve a series; p50 and p99 marked on the curve and written.

    Parameters
    ----------
    values
        `series` (what one curve stands for) and `value_ms`; a row a request (TTFT, TPOT, E2EL) or a gap between
        tokens (ITL). NA values are left out.
    metric
        One of `METRICS`.
    slo_ms
        A limit to draw.
    """
    whole, ax = ax is None, style.axes(ax, height=3.1)
    word = METRICS.get(metric, metric)
    groups = _sorted_values(values)
    if not groups:
        return style.nothing(
            ax, f"{word} was not measured for single requests", "The results hold summaries only.", whole=whole
        )
    _ecdf(ax, groups, metric, dict(zip(groups, style.series(len(groups)), strict=True)), slo_ms)
    return style.head(ax, ecdf_title(groups, word, slo_ms), _counted(groups, metric), whole=whole)


@style.styled
def plot_latency_distributions(
    values: pd.DataFrame,
    *,
    slos_ms: Mapping[str, float | None] | None = None,
    colours: Mapping[str, str] | None = None,
    of: str = "",
) -> Figure:
    """The latency metrics side by side, one curve a series; see `plot_ecdf`.

    Needs `metric` (of `METRICS`), `series` and `value_ms`; `slos_ms` are limits by metric, `colours` those of the
    series where other figures beside this one show them too.
    """
    by_metric = {m: _sorted_values(values[values["metric"] == m]) for m in METRICS}
    by_metric = {metric: groups for metric, groups in by_metric.items() if groups}
    if not by_metric:
        figure, ax = plt.subplots(layout="constrained")
        style.nothing(ax, "No latency was measured for single requests", "The results hold summaries only.", whole=True)
        return figure
    rows, columns = -(-len(by_metric) // 2), min(len(by_metric), 2)
    tall = 2.35 + 0.175 * max(len(groups) for groups in by_metric.values())
    figure, panels = plt.subplots(
        rows, columns, squeeze=False, figsize=(style.WIDTH, tall * rows), layout="constrained"
    )
    names = list(dict.fromkeys(itertools.chain.from_iterable(by_metric.values())))
    colours = colours or dict(zip(names, style.series(len(names)), strict=True))
    for ax, (metric, groups) in zip(panels.flat, by_metric.items(), strict=False):
        _ecdf(ax, groups, metric, colours, (slos_ms or {}).get(metric))
        ax.set_title(METRICS[metric], fontsize=10, pad=4)
    for ax in list(panels.flat)[len(by_metric) :]:
        ax.set_axis_off()
    first = next(iter(by_metric))
    style.head_figure(
        figure,
        ecdf_title(by_metric[first], METRICS[first], None),
        style.about(of, f"share of values up to a latency. {_counted(by_metric[first], first)}"),
    )
    return figure


def ecdf_title(groups: Mapping[str, Floats], word: str, slo_ms: float | None) -> str:
    """The spread of a latency in words, or what share of each series meets the limit."""
    if slo_ms is not None:
        met = [f"{np.mean(data <= slo_ms) * 100:.0f} % at {series}" for series, data in groups.items()]
        return f"{word} within {slo_ms:g} ms: {style.join(met)}"
    medians = {series: float(np.median(data)) for series, data in groups.items()}
    low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    if low == high:
        return f"Half of all {word} values are within {milliseconds(medians[low])}"
    return f"Median {word}: {milliseconds(medians[low])} at {low}, {milliseconds(medians[high])} at {high}"


def _sorted_values(values: pd.DataFrame) -> dict[str, Floats]:
    groups = {str(s): np.sort(g["value_ms"].dropna().to_numpy(float)) for s, g in values.groupby("series", sort=False)}
    return {series: data for series, data in groups.items() if len(data)}


def _ecdf(
    ax: Axes, groups: Mapping[str, Floats], metric: str, colours: Mapping[str, str], slo_ms: float | None
) -> None:
    word = METRICS.get(metric, metric)
    # The first hundredth may reach far towards zero (tokens that arrive together): it would stretch a log axis.
    bounds = [np.percentile(data, (1, 100)) for data in groups.values()]
    value_axis(ax, "x", np.concatenate(bounds), slo_ms, from_zero=False)
    ax.set_xlabel(f"{word} (ms)")
    ax.set_ylim(0, 1.03)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 0.99])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y * 100:.0f}"))
    ax.set_ylabel("gaps up to it (%)" if metric == "itl" else "requests up to it (%)")
    style.grid(ax, "y")
    style.bare(ax, "left")
    for series, data in groups.items():
        shown = _thinned(data)
        share = np.searchsorted(data, shown, side="right") / len(data)
        ax.step(np.r_[shown[0], shown], np.r_[0, share], where="post", color=colours[series])
        for p in (50, 99):
            hollow = p == 99 and len(data) < ENOUGH_FOR_P99
            ax.plot(
                np.percentile(data, p), p / 100, "o", markersize=5.5, color=colours[series], markeredgewidth=1.4,
                markerfacecolor=style.PAPER if hollow else colours[series], zorder=3,
            )  # fmt: skip
    limit_line(ax, "x", slo_ms, "ms")
    _readout(ax, groups, colours)


def _readout(ax: Axes, groups: Mapping[str, Floats], colours: Mapping[str, str]) -> None:
    """p50 and p99 of each curve in its colour, in rows above the panel."""
    lines = [("", "p50", "p99", style.MUTED)]
    for series, data in groups.items():
        p50, p99 = (f"{v:,.{digits(v)}f}" for v in np.percentile(data, (50, 99)))
        lines.append((series, p50, p99 if len(data) >= ENOUGH_FOR_P99 else f"({p99})", colours[series]))
    for row, (*cells, colour) in enumerate(reversed(lines)):
        for text, right in zip(cells, (-98, -49, 0), strict=True):
            ax.annotate(
                text, (1, 1), xycoords="axes fraction", xytext=(right - 2, 5 + 12.5 * row), textcoords="offset points",
                ha="right", va="bottom", fontsize=9, color=colour, annotation_clip=False,
                fontweight="normal" if colour == style.MUTED else "bold",
            )  # fmt: skip


def _thinned(data: Floats) -> Floats:
    """The distinct values, and of very many an even choice that keeps both ends."""
    values = np.unique(data)
    if len(values) <= _CURVE_POINTS:
        return values
    return np.asarray(values[np.unique(np.linspace(0, len(values) - 1, _CURVE_POINTS).round().astype(int))])


def _counted(groups: Mapping[str, Floats], metric: str) -> str:
    what = "gaps between chunks" if metric == "itl" else "requests"
    n = style.join([f"{len(data):,} at {series}" for series, data in groups.items()])
    hollow = any(len(data) < ENOUGH_FOR_P99 for data in groups.values())
    told = f"Dots: p50 and p99 in ms; {what}: {n}"
    return told + (f"; hollow: under {ENOUGH_FOR_P99} values, too few for a p99" if hollow else "")
