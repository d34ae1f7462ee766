"""Where a rank's time goes: stacked bars by phase, time per step, largest kernels, causes of idle time."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from perflab import schema, units
from perflab.analysis.kernel_names import short_kernel_names
from perflab.plots import bars, style

PHASES = ("all", *schema.PHASES)
_GROUP_OF = {c: group for group, members in schema.GROUPS.items() for c in members} | {"idle": "idle"}
_ORDER = {
    "group": (*schema.GROUPS, "idle"),
    "category": (*(c for members in schema.GROUPS.values() for c in members), "idle"),
}
_COLOURS = {"group": style.GROUP_COLOURS, "category": style.CATEGORY_COLOURS}
_WORDS = {"group": style.GROUP_WORDS, "category": style.WORDS}
_OUTSIDE = "outside operators"
"""What `idle` is for a CPU engine: Python and other host code, not a device that waits."""

IDLE_WORDS = {
    "between_steps": "between steps", "within_steps": "within a step", "outside": "before and after the steps",
    "host_bound": "launched late by the host", "not_started": "launched but not started",
    "in_graph": "inside a CUDA graph replay", "no_request": "no running request", "unknown": "not known",
}  # fmt: skip


def parts_of_phases(table: pd.DataFrame, by: str = "category") -> pd.DataFrame:
    """Time by run and phase, taken over steps and ranks: what the bars show.

    Parameters
    ----------
    table
        `breakdown`, with a column `run` where there are several.
    by
        `category`, or `group` for the groups of `schema.GROUPS` and idle.

    Returns
    -------
    DataFrame
        A row a run x phase x part, in reading order: `run`, `phase`, `part`, `share` (of the phase's window),
        `steps` (of one rank), `step_ns` (the part's mean time a step on one rank). Phases without time are left out.
    """
    frame = pd.DataFrame({
        "run": table["run"].astype(str) if "run" in table else "",
        "phase": pd.Categorical(table["phase"].astype(str), PHASES),
        "part": pd.Categorical(table["category"].astype(str).map(_GROUP_OF if by == "group" else str), _ORDER[by]),
        "ns": table["exclusive_ns"],
        "rank": table["rank"],
        "step": table["step"],
    })  # fmt: skip
    frame["run"] = pd.Categorical(frame["run"], list(dict.fromkeys(frame["run"])))
    phases = frame.groupby(["run", "phase"], observed=True).agg(
        window=("ns", "sum"), ranks=("rank", "nunique"), rank_steps=("step", "size")
    )
    steps = frame.drop_duplicates(["run", "phase", "rank", "step"]).groupby(["run", "phase"], observed=True).size()
    phases["rank_steps"] = steps
    out = (
        frame.groupby(["run", "phase", "part"], observed=True)["ns"]
        .sum()
        .reset_index()
        .join(phases, on=["run", "phase"])
    )
    out = out[out["window"] > 0].reset_index(drop=True)
    return pd.DataFrame({
        "run": out["run"].astype(str), "phase": out["phase"].astype(str), "part": out["part"].astype(str),
        "share": out["ns"] / out["window"], "steps": out["rank_steps"] // out["ranks"],
        "step_ns": out["ns"] / out["rank_steps"],
    })  # fmt: skip


@style.styled
def plot_breakdown(table: pd.DataFrame, *, by: str = "category", device: str = "GPU", ax: Axes | None = None) -> Axes:
    """One bar a run and phase, 0 to 100 % of the time of its steps; the largest part of each in full colour.

    Parameters
    ----------
    table
        `breakdown`; with a column `run` where there are several. Ranks are taken together.
    by
        `category`, or `group`.
    device
        Whose time it is, as the heading says it: `GPU`, or `CPU` for the operators of a CPU engine.
    """
    whole, ax = ax is None, style.axes(ax)
    parts = parts_of_phases(table, by)
    if parts.empty:
        return style.nothing(
            ax, f"No {device} time to break down", "There are no steps with time in them.", whole=whole
        )
    groups = {(str(run), str(phase)): frame for (run, phase), frame in parts.groupby(["run", "phase"], sort=False)}
    titled = parts["run"].nunique() > 1
    places = bars.rows(groups, titled=titled)
    labels = [_row_label(phase, int(groups[run, phase]["steps"].iloc[0])) for run, phase in places]
    bars.frame(ax, places, labels, whole=whole, titled=titled)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x * 100:.0f}"))
    ax.set_xlabel(f"share of {device} time (%)")
    for key, place in places.items():
        _at_end(ax, 1, place, _length_text(key[1], float(groups[key]["step_ns"].sum())))
    style.head(ax, breakdown_title(parts, device), _measured(table, parts, device), whole=whole)
    segments = {
        places[key]: [
            bars.Segment(r.part, r.share, units.show_share(r.share)) for r in frame.itertuples() if r.share > 0
        ]
        for key, frame in groups.items()
    }
    strong = {places[key]: _largest(frame) for key, frame in groups.items()}
    named = bars.stack(ax, segments, _COLOURS[by], strong=strong, words=_words(by, device), floor=0.004)
    style.key(ax, _unnamed(parts, named, by), _COLOURS[by], words=_words(by, device), whole=whole)
    return ax


@style.styled
def plot_step_time(table: pd.DataFrame, *, by: str = "category", device: str = "GPU") -> Figure:
    """Mean time of a step, one panel a phase (their scales differ), one bar a run, split by category.

    Needs `breakdown`, with a column `run` where there are several; ranks are taken together.
    """
    parts = parts_of_phases(table, by)
    phases = [phase for phase in PHASES if phase in set(parts["phase"])]
    count = [parts[parts["phase"] == phase]["run"].nunique() for phase in phases]
    figure, panels = plt.subplots(
        max(len(phases), 1), 1, squeeze=False, layout="constrained", height_ratios=[n + 0.6 for n in count] or [1],
        figsize=(style.WIDTH, sum(bars.ROW * n + 0.62 for n in count) + 0.1),
    )  # fmt: skip
    if parts.empty:
        style.nothing(panels[0, 0], "No steps to compare", "There are no steps with time in them.", whole=True)
        return figure
    style.head_figure(
        figure, step_time_title(parts), f"Mean {device} time of a step, n steps; each phase has a scale of its own"
    )
    named: set[str] = set()
    for ax, phase in zip(panels[:, 0], phases, strict=True):
        named |= _phase_panel(ax, parts[parts["phase"] == phase], phase, by, device)
    style.key(panels[-1, 0], _unnamed(parts, named, by), _COLOURS[by], words=_words(by, device))
    return figure


@style.styled
def plot_top_kernels(
    top: pd.DataFrame, *, limit: int = 12, device: str = "GPU", of: str = "", ax: Axes | None = None
) -> Axes:
    """The kernels (or operators) that take most time, longest first, in the colour of their category.

    Needs a row a name: `name`, `category`, `count`, `dur_ns` (sum over its calls), `share` (of the sum over all).
    """
    whole, ax = ax is None, style.axes(ax)
    kind = "kernel" if device == "GPU" else "operator"
    if top.empty:
        return style.nothing(ax, f"No {kind}s recorded", f"The trace holds no {device} activity.", whole=whole)
    shown = top.sort_values("dur_ns", ascending=False, kind="stable").head(limit)
    categories = shown["category"].astype(str).tolist()
    names = short_kernel_names(shown["name"].astype(str))
    unit_ns, unit = bars.scale(float(shown["dur_ns"].max()))
    places = {("", str(name)): float(i) for i, name in enumerate(shown["name"])}
    bars.frame(ax, places, [names[name] for _, name in places], whole=whole, titled=False)
    longest = float(shown["dur_ns"].max()) / unit_ns
    ax.set_xlim(0, longest * 1.3)
    ax.set_xlabel(f"total time ({unit})")
    for place, row in enumerate(shown.itertuples()):
        category = categories[place]
        alpha = style.opacity(category, category == categories[0])
        ax.barh(place, row.dur_ns / unit_ns, height=bars.BAR, color=style.CATEGORY_COLOURS[category], alpha=alpha)
        calls = f"{units.show_count(row.count)} × {units.show_time(row.dur_ns / row.count)}"
        _at_end(ax, row.dur_ns / unit_ns, place, f"{units.show_share(row.share)}   {calls}")
    style.head(
        ax, _top_title(shown, kind),
        style.about(of, f"sum over all calls, share of all {kind} time, calls and their mean; {len(top)} names in all"),
        whole=whole,
    )  # fmt: skip
    style.key(ax, dict.fromkeys(categories), style.CATEGORY_COLOURS, strong=categories[0], whole=whole)
    return ax


@style.styled
def plot_idle(idle: pd.DataFrame, *, device: str = "GPU", of: str = "", ax: Axes | None = None) -> Axes:
    """Idle time of one rank by place and by cause; each of the two adds up to the idle time.

    Needs `split` (`place` or `cause`), `name` (as in `IDLE_WORDS`) and `ns`.
    """
    whole, ax = ax is None, style.axes(ax)
    total = float(idle.loc[idle["split"] == "place", "ns"].sum())
    if total <= 0:
        return style.nothing(
            ax, f"No idle {device} time within the window", "There is nothing to explain.", whole=whole
        )
    shown = idle[(idle["ns"] > 0) | (idle["split"] == "place")]
    ordered = shown.sort_values(["split", "ns"], ascending=[False, False], kind="stable")
    heads = {"place": "where it is", "cause": "why it is"}
    places = bars.rows(
        [(heads[r.split], r.name) for r in ordered[["split", "name"]].itertuples(index=False)], titled=True
    )
    bars.frame(ax, places, [IDLE_WORDS.get(name, name) for _, name in places], whole=whole, titled=True)
    unit_ns, unit = bars.scale(float(ordered["ns"].max()))
    tops = set(ordered.groupby("split")["ns"].idxmax())
    for (index, row), place in zip(ordered.iterrows(), places.values(), strict=True):
        ax.barh(place, row["ns"] / unit_ns, height=bars.BAR, color=style.IDLE_STRONG if index in tops else style.IDLE)
        _at_end(ax, row["ns"] / unit_ns, place, f"{units.show_time(row['ns'])}   {units.show_share(row['ns'] / total)}")
    ax.set_xlim(0, float(ordered["ns"].max()) / unit_ns * 1.15)
    ax.set_xlabel(f"idle time ({unit})")
    return style.head(
        ax, idle_title(idle, device), whole=whole,
        subtitle=style.about(of, f"{units.show_time(total)} idle from the first step's start to the last one's end"),
    )  # fmt: skip


def breakdown_title(parts: pd.DataFrame, device: str = "GPU") -> str:
    """The finding of a breakdown in one sentence: what takes most of each phase, or of decode in every run."""
    tops = {key: frame.loc[frame["share"].idxmax()] for key, frame in parts.groupby(["run", "phase"], sort=False)}
    runs = parts["run"].nunique()
    if runs == 1:
        told = [f"{units.show_share(top.share)} of {_of_phase(phase)}" for (_, phase), top in tops.items()]
        if len({top.part for top in tops.values()}) == 1:
            return style.capital(f"{_takes(next(iter(tops.values())).part, device)} {style.join(told)}")
        return style.capital(
            style.join([f"{_takes(top.part, device)} {text}" for top, text in zip(tops.values(), told, strict=True)])
        )
    phase = next(p for p in ("decode", "all", "mixed", "prefill") if p in set(parts["phase"]))
    there = {run: top for (run, of), top in tops.items() if of == phase}
    by_part: dict[str, list[str]] = {}
    for run, top in there.items():
        by_part.setdefault(top.part, []).append(run)
    if len(by_part) == 1:
        low, high = min(t.share for t in there.values()), max(t.share for t in there.values())
        where = "both runs" if len(there) == 2 else f"all {len(there)} runs"
        what = style.capital(_noun(next(iter(by_part)), device))
        return (
            f"{what} is the largest part of {_of_phase(phase)} in {where}: "
            f"{units.show_share(low)} to {units.show_share(high)}"
        )
    told = [f"{_noun(part, device)} in {style.join(names)}" for part, names in by_part.items()]
    return f"Largest part of {_of_phase(phase)}: {'; '.join(told)}"


def idle_title(idle: pd.DataFrame, device: str = "GPU") -> str:
    """The main cause of idle time, or that it is not known."""
    causes = idle[idle["split"] == "cause"].groupby("name", sort=False)["ns"].sum()
    if not causes.sum():
        return f"Idle {device} time by place"
    main, share = str(causes.idxmax()), units.show_share(causes.max() / causes.sum())
    if main == "unknown":
        return f"The cause of {share} of idle {device} time is not known"
    return f"{share} of idle {device} time: {IDLE_WORDS.get(main, main)}"


def step_time_title(parts: pd.DataFrame) -> str:
    """Which run has the shortest and which the longest step, by phase; for one run its step times."""
    phase = next(p for p in ("decode", "all", "mixed", "prefill") if p in set(parts["phase"]))
    totals = parts[parts["phase"] == phase].groupby("run", sort=False)["step_ns"].sum().sort_values()
    if len(totals) == 1:
        return f"A {phase} step takes {units.show_time(totals.iloc[0])}"
    return (
        f"A {phase} step takes {units.show_time(totals.iloc[0])} in {totals.index[0]} "
        f"and {units.show_time(totals.iloc[-1])} in {totals.index[-1]}"
    )


def _phase_panel(ax: Axes, parts: pd.DataFrame, phase: str, by: str, device: str) -> set[str]:
    groups = {(str(run), phase): frame for run, frame in parts.groupby("run", sort=False)}
    places = {key: float(i) for i, key in enumerate(groups)}
    totals = {key: float(frame["step_ns"].sum()) for key, frame in groups.items()}
    unit_ns, unit = bars.scale(max(totals.values()))
    labels = [f"{run}  n = {groups[run, phase]['steps'].iloc[0]}".strip() for run, _ in places]
    bars.frame(ax, places, labels, whole=False, titled=False)
    ax.set_xlim(0, max(totals.values()) / unit_ns)
    ax.set_xlabel(f"time of a {phase} step ({unit})" if phase != "all" else f"whole window ({unit})")
    for key, place in places.items():
        _at_end(ax, totals[key] / unit_ns, place, units.show_time(totals[key]))
    segments = {
        places[key]: [
            bars.Segment(r.part, r.step_ns / unit_ns, units.show_time(r.step_ns))
            for r in frame.itertuples()
            if r.step_ns > 0
        ]
        for key, frame in groups.items()
    }
    strong = {places[key]: _largest(frame) for key, frame in groups.items()}
    floor = 0.004 * max(totals.values()) / unit_ns
    return bars.stack(ax, segments, _COLOURS[by], strong=strong, words=_words(by, device), floor=floor)


def _largest(frame: pd.DataFrame) -> str:
    return str(frame.loc[frame["share"].idxmax(), "part"])


def _unnamed(parts: pd.DataFrame, named: set[str], by: str) -> list[str]:
    seen = set(parts.loc[parts["share"] >= 0.001, "part"])
    return [part for part in _ORDER[by] if part in seen - named]


def _row_label(phase: str, steps: int) -> str:
    if phase == "all":
        return "whole window"
    return f"{phase}, {steps} step{'s' if steps != 1 else ''}"


def _length_text(phase: str, ns: float) -> str:
    return units.show_time(ns) + ("" if phase == "all" else " a step")


def _measured(table: pd.DataFrame, parts: pd.DataFrame, device: str) -> str:
    ranks = table.groupby(table["run"])["rank"].nunique() if "run" in table else pd.Series([table["rank"].nunique()])
    told = f"{device} time of the steps of each phase, every instant counted once"
    if ranks.max() > 1:
        told += ", ranks taken together"
    return told + "; the largest part of each bar in full colour"


def _of_phase(phase: str) -> str:
    return "the window" if phase == "all" else f"{phase} time"


def _words(by: str, device: str) -> Mapping[str, str]:
    return {**_WORDS[by], "idle": _OUTSIDE} if device == "CPU" else _WORDS[by]


def _noun(part: str, device: str) -> str:
    if part == "idle":
        return f"time {_OUTSIDE}" if device == "CPU" else f"idle {device} time"
    return style.word(part)


def _takes(part: str, device: str) -> str:
    if part == "idle":
        return "Python and other code outside operators takes" if device == "CPU" else f"the {device} is idle for"
    return f"{style.word(part)} takes"


def _top_title(shown: pd.DataFrame, kind: str) -> str:
    covered, first = units.show_share(float(shown["share"].sum())), units.show_share(float(shown["share"].iloc[0]))
    if len(shown) == 1:
        return f"One {kind} takes {covered} of all {kind} time"
    return f"{len(shown)} {kind}s take {covered} of all {kind} time, the first alone {first}"


def _at_end(ax: Axes, x: float, y: float, text: str) -> None:
    ax.annotate(
        text, (x, y), xytext=(6, 0), textcoords="offset points", va="center_baseline", color=style.MUTED, fontsize=9,
        annotation_clip=False,
    )  # fmt: skip
