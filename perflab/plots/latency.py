"""Latency and throughput of what was measured: distributions, points with their repeats, the price of load."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import Bbox

from perflab.plots import bars, style

METRICS: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}
"""vLLM's latency metrics, as a reader knows them."""

ENOUGH_FOR_P99 = 100
"""With fewer values the 99th percentile lies between the two largest: it is drawn hollow and written in brackets."""

_CURVE_POINTS = 600
_LOG_FROM = 15.0
_LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5, "shrinkA": 2, "shrinkB": 5}
_RATES = {
    "output_tokens_per_s": ("output throughput", "tokens/s"),
    "total_tokens_per_s": ("total throughput", "tokens/s"),
    "requests_per_s": ("request throughput", "requests/s"),
    "goodput_per_s": ("goodput", "requests/s"),
}

Floats = npt.NDArray[np.float64]


def metric_words(column: str) -> tuple[str, str]:
    """A column of points in words, and its unit: `ttft_p50_ms` -> (`TTFT p50`, `ms`)."""
    if column in _RATES:
        return _RATES[column]
    stem, _, unit = column.rpartition("_")
    metric, _, statistic = stem.partition("_")
    return f"{METRICS.get(metric, metric)} {statistic}".strip(), unit


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


@style.styled
def plot_points(
    points: pd.DataFrame, *, metric: str = "ttft_p50_ms", slo: float | None = None, ax: Axes | None = None
) -> Axes:
    """Every measured point with every repeat as a dot and their median as a bar.

    Parameters
    ----------
    points
        `run`, `load` and the column `metric`; a row a repeat. NA is shown as not measured.
    metric
        `<latency>_<statistic>_ms`, or a rate per second.
    slo
        A limit to draw, in the metric's unit.
    """
    whole, ax = ax is None, style.axes(ax)
    name, unit = metric_words(metric)
    groups = {
        (str(run), str(load)): group[metric].to_numpy(float, na_value=np.nan)
        for (run, load), group in points.groupby(["run", "load"], sort=False)
    }
    if not groups:
        return style.nothing(ax, f"No points to show {name} of", "Nothing was measured.", whole=whole)
    runs = list(dict.fromkeys(run for run, _ in groups))
    places = bars.rows(groups, titled=len(runs) > 1)
    bars.frame(
        ax, places, [_repeats(load, groups[run, load]) for run, load in places], whole=whole, titled=len(runs) > 1
    )
    known = np.concatenate(list(groups.values()))
    _value_axis(ax, "x", known[~np.isnan(known)], slo)
    ax.set_xlabel(f"{name} ({unit})")
    colours = dict(zip(runs, style.series(len(runs)), strict=True))
    for key, place in places.items():
        _dots(ax, groups[key], place, colours[key[0]], unit)
    _limit(ax, "x", slo, unit)
    return style.head(ax, points_title(groups, name, unit), "Each dot is one repeat, the bar their median", whole=whole)


@style.styled
def plot_throughput_latency(
    points: pd.DataFrame,
    *,
    latency: str = "tpot_p50_ms",
    throughput: str = "output_tokens_per_s",
    slo_ms: float | None = None,
    colours: Mapping[str, str] | None = None,
    of: str = "",
    ax: Axes | None = None,
) -> Axes:
    """What more load buys and what it costs: throughput against latency, one line a run through its loads.

    Needs `run`, `load`, `rate` and the two columns; a row a repeat. Dots are medians over repeats, crosses reach
    from the smallest to the largest. Points with a fixed request rate are diamonds, apart from the line.
    """
    whole, ax = ax is None, style.axes(ax, height=3.7)
    (y_name, y_unit), (x_name, x_unit) = metric_words(latency), metric_words(throughput)
    usable = points.dropna(subset=[latency, throughput]).reset_index(drop=True)
    if usable.empty:
        return style.nothing(ax, f"No point has both {x_name} and {y_name}", "Nothing to draw.", whole=whole)
    _value_axis(ax, "x", usable[throughput].to_numpy(float), None)
    _value_axis(ax, "y", usable[latency].to_numpy(float), slo_ms)
    ax.set_xlabel(f"{x_name} ({x_unit})")
    ax.set_ylabel(f"{y_name} ({y_unit})")
    ax.grid(True)
    ax.tick_params(length=0)
    style.bare(ax, "left", "bottom")
    runs = list(dict.fromkeys(usable["run"].astype(str)))
    colours = colours or dict(zip(runs, style.series(len(runs)), strict=True))
    _limit(ax, "y", slo_ms, y_unit)
    style.head(
        ax,
        throughput_title(usable, latency, throughput),
        style.about(of, f"{_legend_of_loads(usable)}. Dots are medians over repeats, crosses reach over all of them"),
        whole=whole,
    )
    style.settle(ax)
    medians = usable.groupby(["run", "load"], sort=False)[[throughput, latency]].median().astype(float)
    for run in runs:
        _run_line(ax, usable[usable["run"].astype(str) == run], latency, throughput, colours[run])
    taken = _label_runs(ax, medians, colours) if len(runs) > 1 else []
    _label_loads(ax, medians, taken)
    return ax


def ecdf_title(groups: Mapping[str, Floats], word: str, slo_ms: float | None) -> str:
    """The spread of a latency in words, or what share of each series meets the limit."""
    if slo_ms is not None:
        met = [f"{np.mean(data <= slo_ms) * 100:.0f} % at {series}" for series, data in groups.items()]
        return f"{word} within {slo_ms:g} ms: {style.join(met)}"
    medians = {series: float(np.median(data)) for series, data in groups.items()}
    low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    if low == high:
        return f"Half of all {word} values are within {_ms(medians[low])}"
    return f"Median {word}: {_ms(medians[low])} at {low}, {_ms(medians[high])} at {high}"


def points_title(groups: Mapping[tuple[str, str], Floats], name: str, unit: str) -> str:
    """The lowest and the highest median among the points."""
    medians = {key: float(np.nanmedian(data)) for key, data in groups.items() if not np.isnan(data).all()}
    if not medians:
        return f"{name} was not measured"
    several = len({run for run, _ in groups}) > 1
    told = [
        f"{medians[key]:,.{_digits(medians[key])}f} {unit} at {' '.join(key) if several else key[1]}"
        for key in (min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__))
    ]
    return f"{name}: {told[0]}" if len(medians) == 1 else f"{name} from {told[0]} to {told[1]}"


def throughput_title(points: pd.DataFrame, latency: str, throughput: str) -> str:
    """Which run reaches the highest throughput (median of its repeats), and at what latency."""
    medians = points.groupby(["run", "load"], sort=False)[[throughput, latency]].median().astype(float)
    (run, load), best = medians[throughput].idxmax(), medians.loc[medians[throughput].idxmax()]
    (y_name, y_unit), (_, x_unit) = metric_words(latency), metric_words(throughput)
    x, y = float(best[throughput]), float(best[latency])
    whose = f"{run} at {load}" if points["run"].nunique() > 1 else f"load {load}"
    return f"Highest throughput: {x:,.{_digits(x)}f} {x_unit} ({whose}), with {y_name} {y:,.{_digits(y)}f} {y_unit}"


def _sorted_values(values: pd.DataFrame) -> dict[str, Floats]:
    groups = {str(s): np.sort(g["value_ms"].dropna().to_numpy(float)) for s, g in values.groupby("series", sort=False)}
    return {series: data for series, data in groups.items() if len(data)}


def _ecdf(
    ax: Axes, groups: Mapping[str, Floats], metric: str, colours: Mapping[str, str], slo_ms: float | None
) -> None:
    word = METRICS.get(metric, metric)
    # The first hundredth may reach far towards zero (tokens that arrive together): it would stretch a log axis.
    bounds = [np.percentile(data, (1, 100)) for data in groups.values()]
    _value_axis(ax, "x", np.concatenate(bounds), slo_ms, from_zero=False)
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
    _limit(ax, "x", slo_ms, "ms")
    _readout(ax, groups, colours)


def _readout(ax: Axes, groups: Mapping[str, Floats], colours: Mapping[str, str]) -> None:
    """p50 and p99 of each curve in its colour, in rows above the panel."""
    lines = [("", "p50", "p99", style.MUTED)]
    for series, data in groups.items():
        p50, p99 = (f"{v:,.{_digits(v)}f}" for v in np.percentile(data, (50, 99)))
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


def _dots(ax: Axes, data: Floats, place: float, colour: str, unit: str) -> None:
    known = data[~np.isnan(data)]
    if not len(known):
        ax.annotate(
            "not measured", (0, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", color=style.MUTED, fontsize=9,
        )  # fmt: skip
        return
    median = float(np.median(known))
    ax.plot([median, median], [place - 0.3, place + 0.3], color=colour, linewidth=2.2, solid_capstyle="butt")
    ax.plot(known, np.full(len(known), place), "o", color=colour, alpha=0.65, markersize=6, markeredgewidth=0)
    ax.annotate(
        f"{median:,.{_digits(median)}f} {unit}", (float(known.max()), place), xytext=(9, 0), textcoords="offset points",
        va="center_baseline", color=style.INK, fontsize=9, annotation_clip=False,
    )  # fmt: skip


def _repeats(load: str, data: Floats) -> str:
    measured = int((~np.isnan(data)).sum())
    return f"{load}   n = {measured}" if measured == len(data) else f"{load}   n = {measured} of {len(data)}"


def _run_line(ax: Axes, group: pd.DataFrame, latency: str, throughput: str, colour: str) -> None:
    """The dots of one run with their crosses, and the line through those without a fixed rate."""
    stats = group.groupby("load", sort=False).agg(
        x=(throughput, "median"), x0=(throughput, "min"), x1=(throughput, "max"),
        y=(latency, "median"), y0=(latency, "min"), y1=(latency, "max"), paced=("rate", lambda r: r.notna().any()),
    ).astype(float).sort_values("x")  # fmt: skip
    line = stats[stats["paced"] == 0]
    ax.plot(line["x"], line["y"], color=colour, linewidth=1.6, alpha=0.8)
    for row in stats.itertuples():
        ax.plot([row.x0, row.x1], [row.y] * 2, color=colour, linewidth=1)
        ax.plot([row.x] * 2, [row.y0, row.y1], color=colour, linewidth=1)
        ax.plot(row.x, row.y, "D" if row.paced else "o", color=colour, markersize=6, zorder=3)


def _label_runs(ax: Axes, medians: pd.DataFrame, colours: Mapping[str, str]) -> list[Bbox]:
    """Names of runs in the right margin, each on a line from its last point, in the order of those points."""
    figure = style.figure_of(ax)
    last = medians.groupby(level=0, sort=False).apply(lambda g: g.loc[g.iloc[:, 0].idxmax()])
    pixels = pd.Series(ax.transData.transform(last.to_numpy())[:, 1], index=last.index).sort_values()
    at = style.spread(list(pixels), 13.5 * figure.dpi / 72)
    box, boxes = ax.get_window_extent(), []
    for run, y in zip(pixels.index, at, strict=True):
        x_end, y_end = last.loc[run]
        fraction = (y - box.y0) / box.height
        artist = ax.annotate(
            str(run), (x_end, y_end), xytext=(1.015, fraction), textcoords="axes fraction", va="center", ha="left",
            color=colours[str(run)], fontsize=9, fontweight="bold", annotation_clip=False,
            arrowprops={**_LEADER, "color": colours[str(run)]},
        )  # fmt: skip
        boxes.append(artist.get_window_extent())
    return boxes


def _label_loads(ax: Axes, medians: pd.DataFrame, taken: list[Bbox]) -> None:
    """One label for all points of a load that lie together, beside the lowest of them."""
    style.settle(ax)
    figure = style.figure_of(ax)
    reach = 45 * figure.dpi / 72
    dots = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in ax.transData.transform(medians.to_numpy())]
    for load, group in medians.groupby(level=1, sort=False):
        rest = [(float(x), float(y)) for x, y in group.sort_values(group.columns[1]).to_numpy()]
        while rest:
            first = ax.transData.transform(rest[0])
            near = [p for p in rest if np.hypot(*(ax.transData.transform(p) - first)) <= reach]
            _place_label(ax, str(load), near[0], [*taken, *dots], taken)
            rest = [p for p in rest if p not in near]


def _place_label(ax: Axes, text: str, point: tuple[float, float], blocked: list[Bbox], taken: list[Bbox]) -> None:
    places = [(0, -8, "center", "top"), (8, -4, "left", "top"), (-8, 4, "right", "bottom"), (0, 8, "center", "bottom")]
    for dx, dy, ha, va in [*places, *((2 * dx, 2 * dy, ha, va) for dx, dy, ha, va in places)]:
        artist = ax.annotate(
            text, point, xytext=(dx, dy), textcoords="offset points", ha=ha, va=va, color=style.MUTED, fontsize=9,
            annotation_clip=False,
        )  # fmt: skip
        box = artist.get_window_extent()
        if not any(box.overlaps(other) for other in blocked) and box.y0 >= ax.get_window_extent().y0:
            taken.append(box)
            return
        artist.remove()


def _value_axis(ax: Axes, axis: str, values: Floats, limit: float | None, from_zero: bool = True) -> None:
    """Linear from zero, or logarithmic with plain numbers where values differ by more than a factor."""
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    high = max(high, limit or 0.0)
    set_limits, side = (ax.set_xlim, ax.xaxis) if axis == "x" else (ax.set_ylim, ax.yaxis)
    if low > 0 and high / low > _LOG_FROM:
        (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
        set_limits(low / 1.25, high * 1.35)
        side.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high / low < 400 else (1.0,)))
        side.set_minor_locator(NullLocator())
    elif from_zero or high <= low:
        set_limits(0, high * 1.12 if high > 0 else 1.0)
    else:
        set_limits(max(0.0, low - 0.06 * (high - low)), high + 0.06 * (high - low))
    side.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))


def _limit(ax: Axes, axis: str, limit: float | None, unit: str) -> None:
    if limit is None:
        return
    draw = ax.axvline if axis == "x" else ax.axhline
    draw(limit, color=style.ALERT, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2)
    at, where = ((limit, 0), ("data", "axes fraction")) if axis == "x" else ((0, limit), ("axes fraction", "data"))
    left = axis == "x" and ax.transAxes.inverted().transform(ax.transData.transform((limit, 0)))[0] > 0.7
    ax.annotate(
        f"SLO {limit:,g} {unit}", at, xycoords=where, xytext=(-4 if left else 4, 3), textcoords="offset points",
        ha="right" if left else "left", color=style.ALERT, fontsize=9,
    )  # fmt: skip


def _legend_of_loads(points: pd.DataFrame) -> str:
    """What the labels of loads mean, by one example of each kind."""
    examples: dict[tuple[bool, bool], str] = {}
    for row in points.sort_values("concurrency").to_dict("records"):
        limited, paced = pd.notna(row.get("concurrency")), pd.notna(row.get("rate"))
        told = f"at most {row['concurrency']:g} requests at once" if limited else ""
        told += f"{', ' if limited else ''}{row['rate']:g} requests/s" if paced else ""
        examples[limited, paced] = f"load {row['load']}: {told or 'all requests at once'}"
    return "; ".join(examples.values())


def _counted(groups: Mapping[str, Floats], metric: str) -> str:
    what = "gaps between chunks" if metric == "itl" else "requests"
    n = style.join([f"{len(data):,} at {series}" for series, data in groups.items()])
    hollow = any(len(data) < ENOUGH_FOR_P99 for data in groups.values())
    told = f"Dots: p50 and p99 in ms; {what}: {n}"
    return told + (f"; hollow: under {ENOUGH_FOR_P99} values, too few for a p99" if hollow else "")


def _ms(value: float) -> str:
    return f"{value:,.{_digits(value)}f} ms"


def _digits(value: float) -> int:
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
