"""Two traces side by side: from the baseline's step to the candidate's, category by category, and kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab import units
from perflab.analysis.compare.findings import category_changes, signed_time
from perflab.analysis.compare.traces import PhaseComparison, View
from perflab.analysis.kernel_names import short_kernel_names
from perflab.plots import bars, style

_LEAST = 0.005
"""Changes below this share of the baseline's step are drawn together."""
_ORDER = ("decode", "mixed", "prefill")


@style.styled
def plot_step_change(
    comparison: PhaseComparison, *, baseline: str = "baseline", candidate: str = "candidate", ax: Axes | None = None
) -> Axes:
    """From the baseline's mean step to the candidate's: a bar for each, and between them what each category changed.

    Parameters
    ----------
    comparison
        One phase, from `perflab.analysis.compare.traces.compare_phases`; steps of like batches where there are some.
    baseline, candidate
        What the two are called.
    """
    whole, ax = ax is None, style.axes(ax)
    view = comparison.shown
    parts, rest = _parts(view)
    labels = [baseline, *(style.word(name) for name, _ in parts), *(["the rest"] if rest else []), candidate]
    places = {("", str(i)): float(i) for i in range(len(labels))}
    bars.frame(ax, places, labels, whole=whole, titled=False)
    unit_ns, unit = bars.scale(float(max(view.baseline.ns, view.candidate.ns)))
    ax.set_xlabel(f"time of a {comparison.phase} step ({unit})")
    strongest = max(parts, key=lambda part: abs(part[1]))[0] if parts else None
    at = float(view.baseline.ns)
    reach = at
    _total(ax, 0, at, unit_ns)
    for place, (name, change) in enumerate([*parts, *([("rest", rest)] if rest else [])], start=1):
        _step(ax, place, at, at + change, unit_ns, name, strong=name == strongest)
        at += change
        reach = max(reach, at)
    _total(ax, len(labels) - 1, float(view.candidate.ns), unit_ns)
    ax.plot([at / unit_ns] * 2, [len(labels) - 2, len(labels) - 1], color=style.LINE, linewidth=0.8, zorder=1)
    ax.set_xlim(0, max(reach, view.candidate.ns) / unit_ns * 1.17)
    return style.head(ax, step_change_title(comparison), _measured(comparison), whole=whole)


@style.styled
def plot_step_changes(
    comparisons: Sequence[PhaseComparison], *, baseline: str = "baseline", candidate: str = "candidate"
) -> Figure:
    """`plot_step_change` of every phase, one panel each; their scales differ.

    Needs at least one phase; the figure says so where there is none.
    """
    phases = sorted(comparisons, key=lambda one: _ORDER.index(one.phase))
    counts = [len(_parts(one.shown)[0]) + bool(_parts(one.shown)[1]) + 2 for one in phases]
    figure, panels = plt.subplots(
        max(len(phases), 1), 1, squeeze=False, layout="constrained", height_ratios=[n + 2.4 for n in counts] or [1],
        figsize=(style.WIDTH, sum(bars.ROW * n + 1.0 for n in counts) + 0.1),
    )  # fmt: skip
    if not phases:
        style.nothing(panels[0, 0], "Nothing to compare", "No phase has steps in both traces.", whole=True)
        return figure
    style.head_figure(figure, step_change_title(phases[0]), _changes_subtitle(phases))
    for ax, one in zip(panels[:, 0], phases, strict=True):
        plot_step_change(one, baseline=baseline, candidate=candidate, ax=ax)
        gpu = f", without late launches and waiting {_percent(one.shown.gpu_change)}"
        tells = abs(one.shown.gpu_change - one.shown.change) > 0.02
        ax.set_title(f"{one.phase}: {_steps(one)}{gpu if tells else ''}", fontsize=9.5, fontweight="bold", loc="left")
    return figure


@style.styled
def plot_kernel_changes(comparison: PhaseComparison, *, limit: int = 10, ax: Axes | None = None) -> Axes:
    """The kernels whose time a step changed most: a ring for the baseline, a dot for the candidate.

    Parameters
    ----------
    comparison
        One phase, from `perflab.analysis.compare.traces.compare_phases`.
    limit
        How many kernels are shown, by the size of their change.
    """
    whole, ax = ax is None, style.axes(ax)
    view = comparison.shown
    large = view.kernels[(view.kernels["change"] != "same") & (view.kernels["change_ns"].abs() > 0)]
    if large.empty:
        title = f"No kernel of a {comparison.phase} step changed"
        return style.nothing(ax, title, "Names, calls and times are alike in both traces.", whole=whole)
    shown = large.head(limit)
    rows = shown.to_dict("records")
    names = [
        str(row["candidate_name"] if isinstance(row["candidate_name"], str) else row["baseline_name"]) for row in rows
    ]
    short = short_kernel_names(names)
    places = {("", str(i)): float(i) for i in range(len(rows))}
    bars.frame(ax, places, [short[name] for name in names], whole=whole, titled=False)
    longest = float(shown[["baseline_ns", "candidate_ns"]].to_numpy().max())
    unit_ns, unit = bars.scale(longest)
    ax.set_xlim(-0.015 * longest / unit_ns, longest / unit_ns * 1.42)
    ax.set_xlabel(f"time in a {comparison.phase} step ({unit})")
    for place, row in enumerate(rows):
        _dumbbell(ax, place, row, unit_ns)
    style.key(ax, dict.fromkeys(str(row["category"]) for row in rows), style.CATEGORY_COLOURS, faded=False, whole=whole)
    return style.head(ax, kernel_change_title(comparison), _kernels_subtitle(view, len(large), len(shown)), whole=whole)


def step_change_title(comparison: PhaseComparison) -> str:
    """By how much a step changed, and what did most of it."""
    view = comparison.shown
    times = f"{units.show_time(view.baseline.ns)} to {units.show_time(view.candidate.ns)}"
    if abs(view.change) < _LEAST:
        return f"A {comparison.phase} step takes the same time: {times}"
    word = "shorter" if view.change < 0 else "longer"
    parts = [
        f"{style.word(str(row.category))} {_minus(signed_time(row.change_ns))}"
        for row in category_changes(view).head(2).itertuples()
    ]
    told = f": {style.join(parts)}" if parts else ""
    return f"A {comparison.phase} step is {units.show_share(abs(view.change))} {word}, {times}{told}"


def kernel_change_title(comparison: PhaseComparison) -> str:
    """How much of a step's kernel time appeared and vanished, by library."""
    view = comparison.shown
    kernels = view.kernels
    went, came = (
        _main_family(kernels, change, side) for change, side in (("vanished", "baseline"), ("appeared", "candidate"))
    )
    least = _LEAST * view.baseline.ns
    if went[1] > least and came[1] > least and went[0] == came[0]:
        times = f"{units.show_time(went[1])} gone, {units.show_time(came[1])} new"
        return f"In a {comparison.phase} step: other kernels of {went[0]} ({times})"
    told = [
        f"{name} {verb} ({units.show_time(ns)})" for (name, ns), verb in ((went, "gone"), (came, "new")) if ns > least
    ]
    if told:
        return f"In a {comparison.phase} step: {style.join(told)}"
    first = kernels[kernels["change"] != "same"].iloc[0]
    name = str(first["family"]) if isinstance(first["family"], str) else "one kernel"
    change = _minus(signed_time(first["change_ns"]))
    return f"The kernels of a {comparison.phase} step are the same; most changed {name} ({change})"


def _main_family(kernels: pd.DataFrame, change: str, side: str) -> tuple[str, float]:
    """The library with most time among kernels that appeared or vanished, and that time."""
    sums = kernels[kernels["change"] == change].groupby("family")[f"{side}_ns"].sum()
    return (str(sums.idxmax()), float(sums.max())) if len(sums) else ("", 0.0)


def _parts(view: View) -> tuple[list[tuple[str, float]], float]:
    """Categories that changed, what grew shorter first, so that bars do not cross; and the sum of the others."""
    large = category_changes(view, _LEAST)
    parts = [(str(row.category), float(row.change_ns)) for row in large.itertuples()]
    parts = sorted([p for p in parts if p[1] < 0], key=lambda p: p[1]) + [p for p in parts if p[1] > 0]
    return parts, float(view.change_ns) - sum(change for _, change in parts)


def _total(ax: Axes, place: int, ns: float, unit_ns: int) -> None:
    ax.barh(place, ns / unit_ns, height=bars.BAR, color=style.LINE)
    _text(ax, ns / unit_ns, place, units.show_time(ns), bold=True)


def _step(ax: Axes, place: int, start: float, end: float, unit_ns: int, name: str, *, strong: bool) -> None:
    colour = style.OTHER if name == "rest" else style.CATEGORY_COLOURS[name]
    if name == "idle" and strong:
        colour = style.IDLE_STRONG
    alpha = style.opacity(name, strong)
    ax.plot([start / unit_ns] * 2, [place - 1, place], color=style.LINE, linewidth=0.8, zorder=1)
    ax.barh(place, (end - start) / unit_ns, left=start / unit_ns, height=bars.BAR, color=colour, alpha=alpha, zorder=2)
    _text(ax, max(start, end) / unit_ns, place, _minus(signed_time(end - start)), bold=strong)


def _dumbbell(ax: Axes, place: int, row: dict[str, object], unit_ns: int) -> None:
    before, after = float(str(row["baseline_ns"])) / unit_ns, float(str(row["candidate_ns"])) / unit_ns
    colour = style.CATEGORY_COLOURS[str(row["category"])]
    ax.plot([before, after], [place, place], color=colour, alpha=0.55, linewidth=2.4, solid_capstyle="butt", zorder=2)
    ax.plot(
        before,
        place,
        "o",
        markersize=7,
        markerfacecolor=style.PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.6,
        zorder=3,
    )
    ax.plot(after, place, "o", markersize=7.6, color=colour, zorder=4)
    calls = [f"{float(str(row[f'{side}_calls'])):.3g}" for side in ("baseline", "candidate")]
    told = calls[0] if calls[0] == calls[1] else f"{calls[0]} → {calls[1]}"
    change = _minus(signed_time(float(str(row["change_ns"]))))
    _text(ax, max(before, after), place, f"{change}   {told} calls", bold=False, offset=9)


def _text(ax: Axes, x: float, y: float, text: str, *, bold: bool, offset: float = 6) -> None:
    ax.annotate(
        text, (x, y), xytext=(offset, 0), textcoords="offset points", va="center_baseline", fontsize=9,
        color=style.INK if bold else style.MUTED, fontweight="bold" if bold else "normal", annotation_clip=False,
    )  # fmt: skip


def _percent(change: float) -> str:
    return _minus(f"{change * 100:+.1f}\N{NO-BREAK SPACE}%")


def _minus(text: str) -> str:
    return text.replace("-", "−", 1)


def _steps(one: PhaseComparison) -> str:
    view = one.shown
    counts = [f"{time.steps:g}" for time in (view.baseline, view.candidate)]
    if counts[0] == counts[1]:
        return f"{counts[0]} step{'s' if counts[0] != '1' else ''} on each side"
    return f"{counts[0]} against {counts[1]} steps"


def _measured(one: PhaseComparison) -> str:
    kind = {"same": "batches alike", "partly": "of like batches only", "none": "batches differ: not a verdict"}[
        one.alike
    ]
    text = f"Mean of {_steps(one)}, {kind}; every instant counted once; one profiling pass a side"
    if abs(one.shown.gpu_change - one.shown.change) > 0.02:
        text += f"; without late launches and waiting {_percent(one.shown.gpu_change)}"
    return text


def _changes_subtitle(phases: Sequence[PhaseComparison]) -> str:
    alike = {one.alike for one in phases}
    text = "From the baseline's mean step to the candidate's; every instant counted once; one profiling pass a side"
    if "partly" in alike:
        text += "; steps of like batches only"
    if "none" in alike:
        text += (
            f"; batches differ in {style.join([one.phase for one in phases if one.alike == 'none'])}: no verdict there"
        )
    return text


def _kernels_subtitle(view: View, changed: int, shown: int) -> str:
    more = f", the largest {shown} of {changed} changes" if changed > shown else ""
    total = pd.to_numeric(view.kernels["change_ns"]).sum()
    return f"Ring: baseline, dot: candidate{more}; all kernels together {_minus(signed_time(float(total)))} a step"
