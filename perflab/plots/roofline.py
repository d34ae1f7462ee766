"""The roofline: work of each phase against what the GPU can do, and the share of its peaks that is reached."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from perflab import schema, units
from perflab.plots import bars, style

BOUND_WORDS = {
    "memory": "bound by memory bandwidth", "compute": "bound by compute", "communication": "bound by communication",
    "overhead": "bound by idle time", "kernels": "bound by its kernels, far from both peaks",
    "ranks": "bound differently on each rank",
}  # fmt: skip
_PART_WORDS = {"gemm": "matmuls", "moe": "experts", "attention": "attention"}
_NOTHING = "The model's config.json, the GPU's peaks or the tokens of the steps are not known."
_PEAKS = ("memory bandwidth", "compute")
_SHARES = ("bytes_share", "flops_share")
_PEAK_COLOURS = {"memory bandwidth": style.GROUP_COLOURS["memory"], "compute": style.GROUP_COLOURS["compute"]}
_SIZE = 7.5
"""Points of the marker of a whole step."""
_MARKERS = {"prefill": "s", "mixed": "D", "decode": "o"}


@style.styled
def plot_roofline(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Operations a second over operations a byte, both logarithmic, below the roofs of the GPU.

    Full markers are kernels over their own time, the larger the more of the step they take; hollow ones whole steps:
    what lies between is idle time, communication and small kernels. Of several runs only the largest kernels of each
    phase are shown. Ranks of a run are taken together.

    Parameters
    ----------
    table
        From `perflab.analysis.roofline_table.roofline_table`.
    """
    whole, ax = ax is None, style.axes(ax, height=4.4)
    points = _points(table)
    if points.empty:
        return style.nothing(ax, "No roofline", _NOTHING, whole=whole)
    low, high = _limits(points)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*low)
    ax.set_ylim(*high)
    colours = _colours(points)
    _roofs(ax, points, low)
    for (key, phase), mine in points.groupby(["key", "phase"], sort=False):
        _phase_points(ax, mine, _MARKERS[str(phase)], colours[str(key)])
    ax.xaxis.set_major_formatter(FuncFormatter(_plain))
    ax.yaxis.set_major_formatter(FuncFormatter(_plain))
    ax.set_xlabel("intensity (operations a byte)")
    ax.set_ylabel("TFLOP/s")
    ax.grid(True, axis="both")
    ax.tick_params(which="both", length=0)
    style.bare(ax, "top", "right", "left", "bottom")
    style.head(ax, roofline_title(table), _measured(points), whole=whole)
    _labels(ax, points, colours)
    _legend(ax, points, colours, whole=whole)
    _slopes(ax, points)
    return ax


@style.styled
def plot_peak_shares(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Two bars a run and phase: the share of peak bandwidth and of peak compute that known work needs.

    The full bar is over the whole step, the pale one over the time of the kernels that do the work. Ranks are taken
    together.

    Parameters
    ----------
    table
        From `perflab.analysis.roofline_table.roofline_table`.
    """
    whole, ax = ax is None, style.axes(ax)
    points = _mean_of_ranks(table)
    if points.empty:
        return style.nothing(ax, "Shares of the GPU's peaks are not known", _NOTHING, whole=whole)
    steps = points[points["part"] == "step"]
    several = steps["run"].nunique() > 1
    heads = {(r.run, r.phase): _row_head(r, several) for r in steps.itertuples()}
    places = bars.rows([(heads[r.run, r.phase], peak) for r in steps.itertuples() for peak in _PEAKS], titled=True)
    bars.frame(ax, places, [peak for _, peak in places], whole=whole, titled=True)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x * 100:.0f}"))
    ax.set_xlabel("share of the peak (%)")
    for row in steps.itertuples():
        mine = points[(points["run"] == row.run) & (points["phase"] == row.phase)]
        for peak, column in zip(_PEAKS, _SHARES, strict=True):
            place = places[heads[row.run, row.phase], peak]
            share, main = float(getattr(row, column)), _main_kernel(mine)
            own = float(main[column]) if main is not None else share
            strong = (row.bound, peak) in {("memory", "memory bandwidth"), ("compute", "compute")}
            colour = _PEAK_COLOURS[peak]
            ax.barh(place, own, height=bars.BAR, color=colour, alpha=0.22)
            ax.barh(place, share, height=bars.BAR, color=colour, alpha=1.0 if strong else style.FADE + 0.15)
            text = units.show_share(share)
            if main is not None:
                text += f" of a step, {units.show_share(own)} in {_PART_WORDS.get(str(main['part']), main['part'])}"
            ax.annotate(
                text, (max(own, share), place), xytext=(6, 0), textcoords="offset points", va="center_baseline",
                color=style.INK if strong else style.MUTED, fontsize=9, annotation_clip=False,
            )  # fmt: skip
    return style.head(ax, shares_title(steps), _shares_measured(points), whole=whole)


def shares_title(steps: pd.DataFrame) -> str:
    """How much of its GPU each phase of one run uses, or decode of several: of the peak it comes nearer to."""
    if steps["run"].nunique() == 1:
        nearer = [
            max((float(getattr(row, column)), peak) for column, peak in zip(_SHARES, _PEAKS, strict=True))
            for row in steps.itertuples()
        ]
        told = [
            f"{phase} uses {units.show_share(share)} of {peak}"
            for phase, (share, peak) in zip(steps["phase"], nearer, strict=True)
        ]
        return style.capital(style.join(told))
    phase = next(p for p in ("decode", "mixed", "prefill") if p in set(steps["phase"]))
    mine = steps[steps["phase"] == phase].set_index("run")
    # All runs by one peak, or their shares would not compare.
    peak, column = max(zip(_PEAKS, _SHARES, strict=True), key=lambda one: mine[one[1]].median())
    least, most = mine[column].idxmin(), mine[column].idxmax()
    return style.capital(
        f"of {peak}, {phase} uses {units.show_share(mine.loc[least, column])} ({least}) "
        f"to {units.show_share(mine.loc[most, column])} ({most})"
    )


def roofline_title(table: pd.DataFrame) -> str:
    """What bounds each phase of one run, or decode of several."""
    steps = _mean_of_ranks(table)
    steps = steps[steps["part"] == "step"] if len(steps) else steps
    if steps.empty:
        return "No roofline"
    if steps["run"].nunique() == 1:
        told = [f"{row.phase} is {_bound(row.bound)}" for row in steps.itertuples()]
        return style.capital(style.join(told))
    phase = next(p for p in ("decode", "mixed", "prefill") if p in set(steps["phase"].astype(str)))
    mine = steps[steps["phase"] == phase]
    if mine["bound"].nunique(dropna=False) == 1:
        return style.capital(f"{phase} is {_bound(mine['bound'].iloc[0])} in all {len(mine)} runs")
    counts = mine["bound"].fillna("open").value_counts(sort=False).sort_values(ascending=False, kind="stable")
    told = [f"{_bound(bound)} in {count}" for bound, count in counts.items()]
    return style.capital(f"{phase} is {told[0]} of {len(mine)} runs, {style.join(told[1:])}")


def _bound(bound: object) -> str:
    return BOUND_WORDS.get(str(bound), "not decided")


def _mean_of_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """One row a run, phase and part, in reading order; ranks of different verdict have none."""
    if table.empty:
        return table
    frame = table.assign(
        run=pd.Categorical(table["run"], list(dict.fromkeys(table["run"]))),
        phase=pd.Categorical(table["phase"].astype(str), list(schema.PHASES)),
    )
    first = ["steps", "tokens", "gpu", "dtype", "peak_flops", "peak_bytes", "withheld"]
    mean = ["time_ns", "flops", "bytes", "limit_ns", "intensity", "flops_share", "bytes_share"]
    groups = frame.groupby(["run", "phase", "part"], observed=True, sort=True)
    found = groups[first].first().join(groups[mean].mean())
    found["bound"] = groups["bound"].agg(lambda of: of.iloc[0] if of.nunique(dropna=False) == 1 else "ranks")
    found["ranks"] = groups["rank"].nunique()
    return found.reset_index().astype({"run": str, "phase": str})


def _points(table: pd.DataFrame) -> pd.DataFrame:
    """What can be placed: parts with work on both axes, whole steps among them."""
    frame = _mean_of_ranks(table)
    if frame.empty:
        return frame.assign(rate=[], key=[])
    known = frame[(frame["flops"] > 0) & (frame["bytes"] > 0) & (frame["time_ns"] > 0)].copy()
    known["rate"] = known["flops"] / known["time_ns"] * 1e9 / 1e12
    if known["run"].nunique() > 1:
        main = known[known["part"].isin(tuple(_PART_WORDS))].groupby(["run", "phase"], sort=False)["time_ns"].idxmax()
        return known[(known["part"] == "step") | known.index.isin(main)].assign(key=known["run"])
    return known.assign(key=known["phase"])


def _limits(points: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    peak = float(points["peak_flops"].max()) / 1e12
    ridge = float((points["peak_flops"] / points["peak_bytes"]).max())
    left = min(float(points["intensity"].min()) / 2.5, ridge / 30)
    right = max(float(points["intensity"].max()) * 3, ridge * 6)
    bottom = min(float(points["rate"].min()) / 5, left * float(points["peak_bytes"].min()) / 1e12 * 1.5)
    return (left, right), (bottom, peak * 2.2)


def _colours(points: pd.DataFrame) -> dict[str, str]:
    keys = list(dict.fromkeys(points["key"]))
    return dict(zip(keys, style.series(len(keys)), strict=True))


def _phase_points(ax: Axes, rows: pd.DataFrame, marker: str, colour: str) -> None:
    """A hollow marker for the step, and a full one for each kind of kernels, joined to it."""
    step = rows[rows["part"] == "step"].iloc[0]
    for row in rows.itertuples():
        whole_step = row.part == "step"
        if not whole_step:
            ax.plot(
                [step["intensity"], row.intensity], [step["rate"], row.rate], color=colour, alpha=0.3, linewidth=1.1,
                zorder=2,
            )  # fmt: skip
        size = _SIZE if whole_step else max(3.5, _SIZE * 1.1 * float(np.sqrt(row.time_ns / step["time_ns"])))
        ax.plot(
            row.intensity, row.rate, marker, color=colour, markersize=size, zorder=3,
            markerfacecolor=style.PAPER if whole_step else colour, markeredgewidth=1.5,
        )  # fmt: skip


def _roofs(ax: Axes, points: pd.DataFrame, limits: tuple[float, float]) -> None:
    """The slope of the memory and the plateau of each number format, labelled on the lines."""
    roofs = points[points["part"] == "step"][["gpu", "dtype", "peak_flops", "peak_bytes"]].drop_duplicates()
    for roof in roofs.itertuples():
        ridge = roof.peak_flops / roof.peak_bytes
        xs = np.array([limits[0], ridge, limits[1]])
        ax.plot(xs, np.minimum(xs * roof.peak_bytes, roof.peak_flops) / 1e12, color=style.LINE, linewidth=1.4, zorder=1)
        ax.annotate(
            f"{roof.gpu}, {str(roof.dtype).upper()}: {roof.peak_flops / 1e12:,.0f} TFLOP/s from {ridge:,.0f} on",
            (ridge, roof.peak_flops / 1e12), xytext=(-12, 2), textcoords="offset points", ha="right", va="bottom",
            color=style.MUTED, fontsize=9,
        )  # fmt: skip


def _slopes(ax: Axes, points: pd.DataFrame) -> None:
    """The memory's bandwidth written along its roof; after the layout, since the angle is that of the picture."""
    style.settle(ax)
    roofs = points[["gpu", "peak_bytes"]].drop_duplicates()
    left = ax.get_xlim()[0]
    for gpu, rate in roofs.itertuples(index=False):
        ends = ax.transData.transform([(left, left * rate / 1e12), (left * 10, left * rate / 1e11)])
        angle = float(np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1])))
        whose = f" ({gpu})" if len(roofs) > 1 else ""
        ax.annotate(
            f"memory {rate / 1e12:g} TB/s{whose}", (left * 1.6, left * 1.6 * rate / 1e12),
            xytext=(-3, 4), textcoords="offset points", color=style.MUTED, fontsize=9, rotation=angle,
            rotation_mode="anchor",
        )  # fmt: skip


def _labels(ax: Axes, points: pd.DataFrame, colours: dict[str, str]) -> None:
    """Below each phase its name and how near its largest kernels come to their peak; only where one run is shown."""
    if points["run"].nunique() > 1:
        return
    for (_, phase), mine in points.groupby(["key", "phase"], sort=False):
        main = _main_kernel(mine)
        if main is None:
            continue
        memory = float(main["bytes_share"]) > float(main["flops_share"])
        share = float(main["bytes_share"] if memory else main["flops_share"])
        near = mine[mine["part"].isin(("step", main["part"]))]
        low = near.loc[near["rate"].idxmin()]
        part = _PART_WORDS.get(str(main["part"]), str(main["part"]))
        ax.annotate(
            f"{phase}\n{part} at {units.show_share(share)}\nof {'bandwidth' if memory else 'compute'}",
            (float(low["intensity"]), float(low["rate"])), xytext=(0, -8), textcoords="offset points",
            color=colours[str(main["key"])], fontsize=9, ha="center", va="top", linespacing=1.25,
        )  # fmt: skip
        for row in mine[~mine["part"].isin(("step", main["part"]))].itertuples():
            ax.annotate(
                _PART_WORDS.get(str(row.part), str(row.part)), (row.intensity, row.rate),
                xytext=(7, 0) if row.intensity > low["intensity"] else (-7, 0), textcoords="offset points",
                color=style.MUTED, fontsize=8.5, va="center_baseline",
                ha="left" if row.intensity > low["intensity"] else "right",
            )  # fmt: skip


def _legend(ax: Axes, points: pd.DataFrame, colours: dict[str, str], *, whole: bool) -> None:
    handles = [
        Line2D([], [], marker="o", linestyle="", color=style.MUTED, markersize=7, label="kernels, over their own time"),
        Line2D([], [], marker="o", linestyle="", color=style.MUTED, markerfacecolor=style.PAPER, markersize=7,
               markeredgewidth=1.5, label="whole steps"),
    ]  # fmt: skip
    if points["run"].nunique() > 1:
        handles += [Line2D([], [], marker=_MARKERS[p], linestyle="", color=style.MUTED, markersize=7, label=p)
                    for p in schema.PHASES if p in set(points["phase"])]  # fmt: skip
        handles += [
            Line2D([], [], marker="o", linestyle="", color=c, markersize=9, label=run) for run, c in colours.items()
        ]
    look = {"handles": handles, "labelcolor": style.MUTED, "handletextpad": 0.5, "columnspacing": 1.3}
    columns = 2
    if whole:
        style.figure_of(ax).legend(loc="outside lower left", ncols=columns, **look)
        style.grow(style.figure_of(ax), 0.1 + 0.19 * -(-len(handles) // columns))
    else:
        ax.legend(loc="lower right", **look)


def _main_kernel(rows: pd.DataFrame) -> pd.Series | None:
    """The kernels of known work that take most of a phase's time."""
    known = rows[(rows["part"].isin(tuple(_PART_WORDS))) & rows["flops"].notna()]
    return known.loc[known["time_ns"].idxmax()] if len(known) else None


def _row_head(row: object, several: bool) -> str:
    run, phase, steps = (getattr(row, name) for name in ("run", "phase", "steps"))
    told = f"{phase}, {steps} step{'s' if steps != 1 else ''}: {_bound(getattr(row, 'bound'))}"  # noqa: B009
    return f"{run}, {told}" if several else told


def _measured(points: pd.DataFrame) -> str:
    text = "Work of a step by the model's shape, against the time it took: of its kernels alone, and of the whole step"
    return text + _without(points)


def _shares_measured(points: pd.DataFrame) -> str:
    text = (
        "Work a step needs by the model's shape; full bars: over the whole step, pale ones: over the kernels' own time"
    )
    return text + _without(points)


def _without(points: pd.DataFrame) -> str:
    return "; attention's work is not known and not in it" if bool(points["withheld"].any()) else ""


def _plain(value: float, _: object) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
