"""Quantized variants: memory, speed over load with where the advantage ends, and speed against accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison, Ends, Kv, Place, Variant
from perflab.plots import style

METRICS: Mapping[str, str] = {"output_tokens_per_s": "output throughput", "tpot_p50_ms": "TPOT p50"}
KV_WORDS: Mapping[Kv, str] = {"pinned": "KV cache pinned", "free": "KV cache free"}
_LEAD = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5, "shrinkA": 2, "shrinkB": 4}
_TICKS = (0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)


def variant_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour a variant, the same in every figure of a page; the baseline is ink."""
    others = [name for name in dict.fromkeys(names) if name != BASELINE]
    return {BASELINE: style.MUTED, **dict(zip(others, style.series(len(others)), strict=True))}


@style.styled
def plot_gain_over_load(
    comparison: Comparison,
    *,
    metric: str = "output_tokens_per_s",
    kv: Kv = "free",
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Each variant's speed over the baseline's by load: dots with 95 % intervals; dotted, the roofline's ratio.

    A ring marks where the advantage ends, interpolated; the bar through it is its interval, and the variant's name says
    at how many requests. Grey: changes that do not matter.

    Parameters
    ----------
    metric
        `output_tokens_per_s` or `tpot_p50_ms`; above 1 is faster for both.
    """
    whole, ax = ax is None, style.axes(ax, height=3.6)
    curves = {one.name: points for one in comparison.variants if (points := _gains(comparison, one, metric, kv))}
    word = METRICS.get(metric, metric)
    if not curves:
        why = f"No variant and baseline were measured at the same load with the {KV_WORDS[kv]}."
        return style.nothing(ax, f"No ratio of {word}", why, whole=whole)
    colours = colours or variant_colours([one.name for one in comparison.variants])
    labels = {one.name: one.label for one in comparison.variants}
    loads = sorted({load for points in curves.values() for load, _ in points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(loads[0] / 1.15, loads[-1] * 1.15)
    ax.xaxis.set_major_locator(FixedLocator(loads))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.set_xlabel("requests at once (in flight)")
    ax.set_ylabel(f"{word},\nvariant over baseline (x, above 1 is faster)")
    # The roofline knows nothing of room in the cache: where both were measured it is held against kernels alone.
    roofed = bool(comparison.ideal) and (kv == "pinned" or "pinned" not in comparison.kvs)
    ends = [one for one in comparison.ends if one.metric == metric and one.kv == kv]
    level = next((one.measured.level for one in ends), 1.02)
    ax.axhspan(1 / level, level, color=style.GRID, alpha=0.8, linewidth=0, zorder=0)
    ax.axhline(1, color=style.LINE, linewidth=1.0, zorder=1)
    for name, points in curves.items():
        _curve(ax, points, colours[name])
        if roofed:
            _ideal(ax, comparison, name, metric, loads, colours[name])
    for one in ends:
        _mark_end(ax, one, loads, colours.get(one.variant, style.MUTED))
    _gain_axis(ax)
    about = _about_gains(comparison, curves, metric, kv, roofed)
    style.head(ax, gain_title(comparison, metric, kv), about, whole=whole)
    style.settle(ax)
    # Beside the names, where rings that lie close by do not write over each other.
    stops = {one.variant: f", ends at {one.measured.at:.0f}" for one in ends if one.measured.at is not None}
    labels = {name: label + stops.get(name, "") for name, label in labels.items()}
    _name_lines(ax, {name: points[-1] for name, points in curves.items()}, labels, colours)
    return ax


def gain_title(comparison: Comparison, metric: str, kv: Kv) -> str:
    """Which variant leads at the smallest and at the largest load, and by how much; none where the baseline does."""
    labels = {one.name: one.label for one in comparison.variants}
    curves = {one.name: points for one in comparison.variants if (points := _gains(comparison, one, metric, kv))}
    word = style.capital(METRICS.get(metric, metric))
    best: list[tuple[str, float, float]] = []
    loads = sorted({load for points in curves.values() for load, _ in points})
    for at in dict.fromkeys((loads[0], loads[-1])):
        there = {name: gain.value for name, points in curves.items() for load, gain in points if load == at}
        name = max(there, key=lambda name: there[name])
        best.append((labels[name], there[name], at))
    behind = style.join([f"{at:g} (at best {gain:.2f} x)" for _, gain, at in best if gain <= 1])
    best = [one for one in best if one[1] > 1]
    if behind:
        ahead = style.join([f"{label} at {at:g} ({gain:.2f} x)" for label, gain, at in best])
        return f"{word}: no variant beats the baseline at {behind}" + (f", {ahead} does" if ahead else "")
    if len({label for label, _, _ in best}) == 1:
        told = style.join([f"{gain:.2f} x at {at:g}" for _, gain, at in best])
        return f"{word}: {best[0][0]} is the fastest, {told}"
    told = style.join([f"{label} at {at:g} ({gain:.2f} x)" for label, gain, at in best])
    return f"{word}: the fastest is {told}"


def _gains(comparison: Comparison, variant: Variant, metric: str, kv: Kv) -> list[tuple[float, Estimate]]:
    found = variant.speeds(metric, kv, comparison.lengths)
    return [(load, one.gain) for load, one in sorted(found.items()) if one.gain is not None]


def _curve(ax: Axes, points: Sequence[tuple[float, Estimate]], colour: str) -> None:
    x, y = [load for load, _ in points], [gain.value for _, gain in points]
    ax.plot(x, y, "-", color=colour, linewidth=1.7, zorder=3)
    banded = all(gain.low is not None and gain.high is not None for _, gain in points)
    if banded:
        low, high = ([getattr(gain, end) for _, gain in points] for end in ("low", "high"))
        ax.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)
    for load, gain in points:
        if gain.low is not None and gain.high is not None:
            ax.plot([load, load], [gain.low, gain.high], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
    ax.plot(
        x, y, "o", markersize=6, color=colour, markeredgewidth=1.5, zorder=4,
        markerfacecolor=colour if banded else style.PAPER,
    )  # fmt: skip


def _ideal(ax: Axes, comparison: Comparison, name: str, metric: str, loads: Sequence[float], colour: str) -> None:
    rate = metric == "output_tokens_per_s"
    mine = [one for one in comparison.ideal if one.variant == name and loads[0] <= one.load <= loads[-1]]
    ax.plot(
        [one.load for one in mine], [one.throughput if rate else one.decode for one in mine], color=colour,
        linewidth=1.0, linestyle=(0, (1.5, 2)), zorder=2,
    )  # fmt: skip


def _mark_end(ax: Axes, one: Ends, loads: Sequence[float], colour: str) -> None:
    at = one.measured
    if at.at is None:
        return
    if at.banded:
        low, high = at.low or loads[0], at.high or loads[-1]
        ax.plot(
            [low, high], [at.level, at.level], color=colour, linewidth=5, alpha=0.3, solid_capstyle="butt", zorder=3
        )
    ax.plot([at.at], [at.level], "o", markersize=12, markeredgewidth=1.8, color=colour, fillstyle="none", zorder=5)


def _gain_axis(ax: Axes) -> None:
    low, high = ax.get_ylim()
    low, high = min(low, 0.93), max(high, 1.1)
    ax.set_ylim(low / 1.02, high * 1.02)
    room = 0.055 * math.log(high / low)
    ticks: list[float] = [1.0]
    for tick in sorted(_TICKS, key=lambda t: abs(math.log(t))):
        if low <= tick <= high and all(abs(math.log(tick / other)) >= room for other in ticks):
            ticks.append(tick)
    ax.yaxis.set_major_locator(FixedLocator(sorted(ticks)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    style.grid(ax, "y")
    style.bare(ax, "left")


def _about_gains(
    comparison: Comparison, curves: Mapping[str, Sequence[tuple[float, Estimate]]], metric: str, kv: Kv, roofed: bool
) -> str:
    runs = sorted({gain.n for points in curves.values() for _, gain in points})
    n = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    some = any(gain.low is not None for points in curves.values() for _, gain in points)
    interval = "bars: 95 % interval over runs" if some else "too few for an interval"
    plural = "" if n == "1" else "s"
    dotted = "; dotted: by the roofline" if roofed else ""
    share = comparison.memory_share if kv == "free" else None
    room = f" in {share * 100:g} % of the GPU's memory" if share is not None else ""
    where = f"{comparison.place.label}; {KV_WORDS[kv]}{room}, {comparison.lengths} tokens in and out"
    # With more room more requests run at once, and each of their tokens takes longer.
    batches = "; batches differ" if metric == "tpot_p50_ms" and kv == "free" and "pinned" in comparison.kvs else ""
    return f"{where}; {n} server run{plural} a side, {interval}{dotted}{batches}"


def _name_lines(
    ax: Axes, ends: Mapping[str, tuple[float, Estimate]], labels: Mapping[str, str], colours: Mapping[str, str]
) -> None:
    """Names right of the axes, each on a thin line from its curve's last dot."""
    at = {name: (load, gain.value) for name, (load, gain) in ends.items()}
    pixels = {name: float(ax.transData.transform(point)[1]) for name, point in at.items()}
    order = sorted(pixels, key=lambda name: pixels[name])
    box, dpi = ax.get_window_extent(), style.figure_of(ax).dpi
    for name, y in zip(order, style.spread([pixels[one] for one in order], 13.0 * dpi / 72), strict=True):
        ax.annotate(
            labels.get(name, name), at[name], xytext=(1.02, (y - box.y0) / box.height), textcoords="axes fraction",
            va="center", ha="left", color=colours[name], fontsize=9, fontweight="bold", annotation_clip=False,
            arrowprops={**_LEAD, "color": colours[name]},
        )  # fmt: skip


@dataclass(frozen=True)
class ParetoPoint:
    """One variant: what it loses (rise of perplexity, a share) and how fast it is (over the baseline)."""

    name: str
    label: str
    loss: Estimate
    gain: Estimate


@style.styled
def plot_speed_against_accuracy(
    points: Sequence[ParetoPoint],
    *,
    speed_of: Place,
    accuracy_of: Place,
    load: float,
    metric: str = "output_tokens_per_s",
    kv: Kv = "free",
    margin: float | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Speed against accuracy with intervals both ways; the line joins variants that no other beats in both.

    Each axis says what model and machine it is of: where they are two, the figure joins formats, not one model.
    """
    whole, ax = ax is None, style.axes(ax, height=4.0)
    if not points:
        why = "No variant has both speed and accuracy, so they cannot be set against each other."
        return style.nothing(ax, "Speed against accuracy", why, whole=whole)
    colours = colours or variant_colours([one.name for one in points])
    ax.axvline(0, color=style.LINE, linewidth=1.0)
    ax.axhline(1, color=style.LINE, linewidth=1.0)
    if margin is not None:
        ax.axvspan(margin * 100, max(2 * margin * 100, 1e3), color=style.GRID, alpha=0.8, linewidth=0, zorder=0)
    front = [(0.0, 1.0), *((one.loss.value * 100, one.gain.value) for one in pareto_front(points))]
    front = sorted(front) if len(front) > 1 else []
    ax.plot(
        [x for x, _ in front], [y for _, y in front], color=style.LINE, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1
    )
    ends: list[tuple[float, float]] = [(0.0, 1.0)]
    for one in points:
        colour = colours[one.name]
        for estimate, other, upright in ((one.loss, one.gain, False), (one.gain, one.loss, True)):
            if estimate.low is None or estimate.high is None:
                continue
            span, at = [estimate.low, estimate.high], [other.value, other.value]
            xs, ys = ([v * 100 for v in at], span) if upright else ([v * 100 for v in span], at)
            ax.plot(xs, ys, color=colour, linewidth=2.0, alpha=0.8, solid_capstyle="butt", zorder=2)
            ends += list(zip(xs, ys, strict=True))
        sure = one.gain.low is not None
        ax.plot(
            one.loss.value * 100, one.gain.value, "o", markersize=8, color=colour, markeredgewidth=1.6,
            markerfacecolor=colour if sure else style.PAPER, zorder=4,
        )  # fmt: skip
        ends.append((one.loss.value * 100, one.gain.value))
    ax.plot(0, 1, "D", markersize=7, color=style.MUTED, zorder=4)
    for axis, values in (("x", [x for x, _ in ends]), ("y", [y for _, y in ends])):
        low, high = min(values), max(values)
        room = 0.12 * (high - low) or 0.1
        (ax.set_xlim if axis == "x" else ax.set_ylim)(low - room, high + room * 1.6)
    ax.set_xlabel(f"perplexity against the baseline (%)\n{accuracy_of.label}")
    ax.set_ylabel(f"{METRICS.get(metric, metric)} over baseline (x)\n{_short(speed_of)},\n{load:g} at once")
    ax.grid(True)
    ax.tick_params(length=0)
    style.bare(ax, "left", "bottom")
    style.head(ax, pareto_title(points), _about_pareto(points, speed_of, accuracy_of, kv, margin), whole=whole)
    style.settle(ax)
    _name_points(ax, points, colours)
    return ax


def pareto_front(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """Variants that no other beats in both: as little or less lost, as fast or faster (by the estimates)."""
    return [
        one
        for one in points
        if not any(
            other is not one
            and other.loss.value <= one.loss.value
            and other.gain.value >= one.gain.value
            and (other.loss.value, other.gain.value) != (one.loss.value, one.gain.value)
            for other in points
        )
    ]


def pareto_title(points: Sequence[ParetoPoint]) -> str:
    """The variants on the front with their figures."""
    front = pareto_front(points)
    told = [f"{one.label} ({one.gain.value:.2f} x, {one.loss.value * 100:+.1f} %)" for one in front]
    if len(points) == 1:
        return f"Of one variant speed and perplexity are both known: {told[0]}"
    return f"No variant beats {style.join(told)} in both speed and perplexity"


def _about_pareto(
    points: Sequence[ParetoPoint], speed_of: Place, accuracy_of: Place, kv: Kv, margin: float | None
) -> str:
    two = "" if speed_of == accuracy_of else "Two models: a format's speed on one, its accuracy on the other. "
    lines = (
        "lines: 95 % intervals"
        if any(one.gain.low is not None for one in points)
        else "line: 95 % interval of the loss; speed has one server run"
    )
    grey = f"; grey: more than {margin * 100:g} % lost" if margin is not None else ""
    return f"{two}{KV_WORDS[kv]}; {lines}; dashed: what no variant beats{grey}"


def _short(place: Place) -> str:
    weights = ", random weights" if place.random_weights else ""
    return f"{place.model.partition(' (')[0]}{weights};\n{place.machine}"


def _name_points(ax: Axes, points: Sequence[ParetoPoint], colours: Mapping[str, str]) -> None:
    """Names beside dots, moved apart where they would meet."""
    dpi = style.figure_of(ax).dpi
    places = {one.name: ax.transData.transform((one.loss.value * 100, one.gain.value)) for one in points}
    order = sorted(points, key=lambda one: float(places[one.name][1]))
    wanted = [float(places[one.name][1]) + 8 * dpi / 72 for one in order]
    middle = float(np.mean(ax.transAxes.transform([(0, 0), (1, 0)])[:, 0]))
    for one, y in zip(order, style.spread(wanted, 12 * dpi / 72), strict=True):
        x, own = (float(v) for v in places[one.name])
        right = x < middle
        ax.annotate(
            one.label, (one.loss.value * 100, one.gain.value),
            xytext=((9 if right else -9), (y - own) * 72 / dpi), textcoords="offset points",
            ha="left" if right else "right", va="center", color=colours[one.name], fontsize=9, fontweight="bold",
            annotation_clip=False,
        )  # fmt: skip
