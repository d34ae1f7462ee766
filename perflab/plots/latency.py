"""Measured points: every repeat as a dot, and what more load buys and costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from perflab.plots import bars, style
from perflab.plots.scales import Floats, digits, limit_line, metric_words, value_axis

_LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5, "shrinkA": 2, "shrinkB": 5}


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
    value_axis(ax, "x", known[~np.isnan(known)], slo)
    ax.set_xlabel(f"{name} ({unit})")
    colours = dict(zip(runs, style.series(len(runs)), strict=True))
    for key, place in places.items():
        _dots(ax, groups[key], place, colours[key[0]], unit)
    limit_line(ax, "x", slo, unit)
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
    value_axis(ax, "x", usable[throughput].to_numpy(float), None)
    value_axis(ax, "y", usable[latency].to_numpy(float), slo_ms)
    ax.set_xlabel(f"{x_name} ({x_unit})")
    ax.set_ylabel(f"{y_name} ({y_unit})")
    ax.grid(True)
    ax.tick_params(length=0)
    style.bare(ax, "left", "bottom")
    runs = list(dict.fromkeys(usable["run"].astype(str)))
    colours = colours or dict(zip(runs, style.series(len(runs)), strict=True))
    limit_line(ax, "y", slo_ms, y_unit)
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


def points_title(groups: Mapping[tuple[str, str], Floats], name: str, unit: str) -> str:
    """The lowest and the highest median among the points."""
    medians = {key: float(np.nanmedian(data)) for key, data in groups.items() if not np.isnan(data).all()}
    if not medians:
        return f"{name} was not measured"
    several = len({run for run, _ in groups}) > 1
    told = [
        f"{medians[key]:,.{digits(medians[key])}f} {unit} at {' '.join(key) if several else key[1]}"
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
    return f"Highest throughput: {x:,.{digits(x)}f} {x_unit} ({whose}), with {y_name} {y:,.{digits(y)}f} {y_unit}"


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
        f"{median:,.{digits(median)}f} {unit}", (float(known.max()), place), xytext=(9, 0), textcoords="offset points",
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
    """One label for all points of a load that lie together, beside the lowest of them and where no line runs."""
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
    places += [(9, 0, "left", "center"), (-9, 0, "right", "center")]
    around = [(k * dx, k * dy, ha, va) for k in (1, 2, 3) for dx, dy, ha, va in places]
    lines = [line.get_transform().transform_path(line.get_path()) for line in ax.lines]
    for clear in (True, False):
        for dx, dy, ha, va in around:
            artist = ax.annotate(
                text, point, xytext=(dx, dy), textcoords="offset points", ha=ha, va=va, color=style.MUTED, fontsize=9,
                annotation_clip=False,
            )  # fmt: skip
            box = artist.get_window_extent()
            crossed = clear and any(line.intersects_bbox(box.padded(4), filled=False) for line in lines)
            free = not any(box.overlaps(other) for other in blocked)
            if free and not crossed and box.y0 >= ax.get_window_extent().y0:
                taken.append(box)
                return
            artist.remove()


def _legend_of_loads(points: pd.DataFrame) -> str:
    """What the labels of loads mean, by one example of each kind."""
    examples: dict[tuple[bool, bool], str] = {}
    for row in points.sort_values("concurrency").to_dict("records"):
        limited, paced = pd.notna(row.get("concurrency")), pd.notna(row.get("rate"))
        told = f"at most {row['concurrency']:g} requests at once" if limited else ""
        told += f"{', ' if limited else ''}{row['rate']:g} requests/s" if paced else ""
        examples[limited, paced] = f"load {row['load']}: {told or 'all requests at once'}"
    return "; ".join(examples.values())
