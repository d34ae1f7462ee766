"""Where kernels belong: the share of time that each rung of the ladder told, time by part of the model, by layer."""

from __future__ import annotations

from types import MappingProxyType

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from perflab import schema, units
from perflab.analysis.attribution.summary import SlowLayers, slow_layers
from perflab.plots import bars, style

_CATEGORY = style.CATEGORY_COLOURS
RUNG_COLOURS = MappingProxyType({
    "launch": "#0072b2", "capture": "#2f747c", "teacher": "#009e73", "position": "#ae8200", "name": style.LINE,
    "none": style.IDLE,
})  # fmt: skip
"""From what is recorded (cold) over what is inferred (warm) to what is not known (grey)."""

RUNG_WORDS = MappingProxyType({
    "launch": "launched one by one", "capture": "capture trace", "teacher": "teacher trace",
    "position": "inferred from order", "name": "category only", "none": "nothing known",
})  # fmt: skip
_WITH_OPERATOR = ("launch", "capture", "teacher")

UNKNOWN = "part not known"
_SMALL = 0.004
"""Parts below this share of every phase are shown together."""

_COLOUR_RULES = (
    (("communication",), "communication"), (("self_attn.attn",), "attention"), (("kv_cache",), "kv_cache"),
    (("mlp.experts",), "moe"), (("proj", "mlp.gate", "lm_head"), "gemm"),
    (("norm", "act_fn", "rotary"), "norm_act"), (("sampler",), "sampling"), (("embed",), "embedding"),
    (("inputs", "outputs"), "memory"),
)  # fmt: skip
_NEAR = 0.05
"""The band around the median within which layers count as alike for the eye."""


@style.styled
def plot_rungs(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """One bar a run, 0 to 100 % of its busy GPU time: how it is known where its kernels belong.

    Parameters
    ----------
    table
        From `perflab.analysis.attribution.summary.rung_table`; with a column `run` where there are several.
    """
    whole, ax = ax is None, style.axes(ax)
    known = table[table["share"].notna()]
    if known.empty:
        return style.nothing(ax, "No GPU time to attribute", "No step has device work in it.", whole=whole)
    runs = known["run"].astype(str) if "run" in known else pd.Series("", index=known.index)
    places = bars.rows([("", run) for run in dict.fromkeys(runs)], titled=False)
    bars.frame(ax, places, [run for _, run in places], whole=whole, titled=False)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x * 100:.0f}")
    ax.set_xlabel("share of busy GPU time (%)")
    style.head(ax, _rung_title(known, runs), "What tells which operator and part of the model a kernel belongs to",
               whole=whole)  # fmt: skip
    segments = {
        place: [
            bars.Segment(row.rung, row.share, units.show_share(row.share))
            for row in known[runs == run].itertuples()
            if row.share > 0
        ]
        for (_, run), place in places.items()
    }
    strong = {place: max(some, key=lambda s: s.length).name for place, some in segments.items()}
    named = bars.stack(ax, segments, RUNG_COLOURS, strong=strong, words=RUNG_WORDS, floor=0.004)
    seen = {segment.name for some in segments.values() for segment in some if segment.length >= 0.001}
    style.key(ax, [r for r in RUNG_COLOURS if r in seen - named], RUNG_COLOURS, words=RUNG_WORDS, whole=whole)
    return ax


@style.styled
def plot_modules(table: pd.DataFrame, *, run: str = "") -> Figure:
    """Time of a step by part of the model, one panel a phase, the same order of parts in all.

    Parameters
    ----------
    table
        From `perflab.analysis.attribution.summary.module_table`, of one rank.
    run
        Goes into the line under the title.
    """
    parts = _shown_parts(table)
    phases = [phase for phase in (*schema.PHASES, "all") if phase in set(parts["phase"])]
    lead = next((phase for phase in ("decode", "all", *schema.PHASES) if phase in phases), None)
    if lead is None:
        figure, panel = plt.subplots(figsize=(style.WIDTH, 0.4), layout="constrained")
        style.nothing(panel, "No GPU time by part of the model", "No step has device work in it.", whole=True)
        return figure
    order = _order(parts, lead)
    figure, panels = plt.subplots(
        1, len(phases), sharey=True, squeeze=False, layout="constrained",
        figsize=(style.WIDTH, 0.62 + 0.25 * len(order)),
    )  # fmt: skip
    top = parts[(parts["phase"] == lead) & (parts["part"] != UNKNOWN)].nlargest(1, "step_ns")
    title = _module_title(parts, phases, str(top["part"].iloc[0]) if len(top) else UNKNOWN)
    style.head_figure(
        figure,
        title,
        style.about(run, "mean GPU time of a step that each part has to itself, and its share of busy time"),
    )
    for panel, phase in zip(panels[0], phases, strict=True):
        _module_panel(panel, parts[parts["phase"] == phase], order, phase)
    return figure


@style.styled
def plot_layers(table: pd.DataFrame, *, phase: str | None = None, run: str = "", ax: Axes | None = None) -> Axes:
    """One dot a layer: its GPU time in a step, with those named that stand out.

    Parameters
    ----------
    table
        From `perflab.analysis.attribution.summary.layer_table`, of one rank.
    phase
        Decode where there is any, unless given.
    run
        Goes into the line under the title.
    """
    whole, ax = ax is None, style.axes(ax, height=2.6)
    layers = table.dropna(subset="layer")
    phases = list(dict.fromkeys(layers["phase"].astype(str)))
    chosen = phase or next((p for p in ("decode", "all", "mixed", "prefill") if p in phases), None)
    mine = layers[layers["phase"].astype(str) == str(chosen)]
    if mine.empty:
        return style.nothing(
            ax, "Layers cannot be told apart", "The order of kernels shows no layers in this trace.", whole=whole
        )
    steps = int(mine["steps"].iloc[0])
    unit_ns, unit = bars.scale(float(mine["step_ns"].max()))
    number, times = mine["layer"].to_numpy(np.int64), mine["step_ns"].to_numpy(np.float64) / unit_ns
    median, odd = float(np.median(times)), mine["outlier"].to_numpy(bool)
    runs = [one for one in slow_layers(table) if one.phase == chosen]
    of = f"a {chosen} step" if chosen != "all" else "the window"
    style.head(
        ax, _layer_title(mine, runs, of),
        style.about(run, f"GPU time that each layer has to itself in {of}"
                    f"{f', mean of {steps} steps' if steps > 1 else '; one step only'}"),
        whole=whole,
    )  # fmt: skip
    ax.axhspan(median * (1 - _NEAR), median * (1 + _NEAR), color=style.GRID, alpha=0.55, linewidth=0, zorder=0)
    ax.axhline(median, color=style.LINE, linewidth=0.9, zorder=1)
    ax.scatter(number[~odd], times[~odd], s=26, color=_CATEGORY["gemm"], zorder=3, linewidth=0)
    ax.scatter(number[odd], times[odd], s=34, color=_CATEGORY["attention"], zorder=4, linewidth=0)
    low, high = min(times.min(), median * 0.9), max(times.max(), median * 1.1)
    ax.set_ylim(low - 0.06 * (high - low), high + 0.16 * (high - low))
    ax.set_xlim(-0.8, number.max() + 0.8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    ax.set_xlabel("layer")
    ax.set_ylabel(f"time ({unit})")
    style.bare(ax, "left", "top", "right")
    style.grid(ax, "y")
    ax.annotate(
        f"median {units.show_time(median * unit_ns)}, band ±{units.show_share(_NEAR)}", (1, median * (1 - _NEAR)),
        xytext=(-2, -3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", va="top",
        fontsize=8.5, color=style.MUTED,
    )  # fmt: skip
    _name_outliers(ax, mine, runs, unit_ns)
    return ax


def module_colour(module: str) -> str:
    """The colour of the category that a part of the model is."""
    if module == UNKNOWN or module.endswith(".other"):
        return style.OTHER
    return next(
        (_CATEGORY[category] for words, category in _COLOUR_RULES if any(word in module for word in words)), style.OTHER
    )


def _rung_title(table: pd.DataFrame, runs: pd.Series[str]) -> str:
    shares = table.assign(run=runs, known=table["share"].where(table["rung"].isin(_WITH_OPERATOR), 0.0))
    operators = shares.groupby("run", sort=False)["known"].sum()
    if len(operators) == 1:
        inferred = float(table.loc[table["rung"] == "position", "share"].sum())
        text = f"The operator is known for {units.show_share(float(operators.iloc[0]))} of busy GPU time"
        return f"{text}, the part of the model inferred for {units.show_share(inferred)}" if inferred >= 0.005 else text
    low, high = float(operators.min()), float(operators.max())
    return (
        f"The operator is known for {units.show_share(low)} of busy GPU time in {operators.idxmin()}, "
        f"for {units.show_share(high)} in {operators.idxmax()}"
    )


def _shown_parts(table: pd.DataFrame) -> pd.DataFrame:
    """Parts with small ones taken together."""
    parts = table.assign(part=[UNKNOWN if pd.isna(module) else str(module) for module in table["module"]])
    largest = parts.groupby("part")["share"].max()
    small = set(largest.index[(largest < _SMALL) & (largest.index != UNKNOWN)])
    if len(small) > 1:
        parts["part"] = [f"{len(small)} smaller parts" if part in small else part for part in parts["part"]]
    sums = parts.groupby(["phase", "part"], sort=False)
    return sums.agg(step_ns=("step_ns", "sum"), share=("share", "sum"), steps=("steps", "first")).reset_index()


def _order(parts: pd.DataFrame, lead: str) -> list[str]:
    """Largest first in the leading phase; what is lumped or unknown comes last."""
    total = parts.groupby("part")["share"].max()
    leading = parts[parts["phase"] == lead].set_index("part")["step_ns"].reindex(total.index).fillna(0)
    last = {part: 2 if part == UNKNOWN else int(part.endswith("smaller parts")) for part in total.index}
    return sorted(total.index, key=lambda part: (last[part], -float(leading[part]), -float(total[part])))


def _module_panel(ax: Axes, parts: pd.DataFrame, order: list[str], phase: str) -> None:
    own = parts.set_index("part").reindex(order)
    lengths = own["step_ns"].fillna(0.0).to_numpy(np.float64)
    unit_ns, _ = bars.scale(float(lengths.max()))
    largest = int(lengths.argmax())
    for place, (part, length, share) in enumerate(zip(order, lengths, own["share"], strict=True)):
        strong = place == largest
        ax.barh(
            place, length / unit_ns, height=0.66, color=module_colour(part),
            alpha=1.0 if strong else 0.62, linewidth=0,
        )  # fmt: skip
        if length > 0:
            ax.annotate(
                f"{units.show_time(length)}  {units.show_share(share)}", (length / unit_ns, place), xytext=(4, 0),
                textcoords="offset points", va="center_baseline", fontsize=8.5,
                color=style.INK if strong else style.MUTED, fontweight="bold" if strong else "normal",
            )  # fmt: skip
    steps = int(parts["steps"].iloc[0])
    text = "whole window" if phase == "all" else f"{phase}, {steps} step{'s' if steps != 1 else ''}"
    ax.set_title(text, fontsize=9.5, loc="left")
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlim(0, max(lengths.max() / unit_ns, 1e-9) * 1.62)
    ax.set_yticks(range(len(order)), order)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0, labelcolor=style.INK, labelsize=9)
    style.bare(ax, "bottom", "top", "right")


def _module_title(parts: pd.DataFrame, phases: list[str], top: str) -> str:
    shares = parts[parts["part"] == top].set_index("phase")["share"]
    told = [
        f"{units.show_share(float(shares[phase]))} of {'the window' if phase == 'all' else phase}"
        for phase in phases
        if phase in shares
    ]
    return f"{top} is {style.join(told)}"


def _layer_title(layers: pd.DataFrame, runs: list[SlowLayers], of: str) -> str:
    if runs:
        worst = max(runs, key=lambda one: (one.last - one.first + 1) * abs(one.ratio - 1))
        takes = "takes" if worst.first == worst.last else "take"
        how = f"{units.show_share(abs(worst.ratio - 1))} {'longer' if worst.ratio > 1 else 'less'}"
        what = f", most of it in {worst.because}" if worst.because else ""
        return f"{style.capital(_which(worst))} of {of} {takes} {how} than the median layer{what}"
    ratio = layers["ratio"].dropna().astype("float64")
    spread = float(ratio.max() - ratio.min()) if len(ratio) else 0.0
    return f"The {len(layers)} layers of {of} are alike: {units.show_share(spread)} between shortest and longest"


def _which(run: SlowLayers) -> str:
    if run.first == run.last:
        return f"layer {run.first}"
    return f"layers {run.first} {'and' if run.last == run.first + 1 else 'to'} {run.last}"


def _name_outliers(ax: Axes, layers: pd.DataFrame, runs: list[SlowLayers], unit_ns: int) -> None:
    """One label a run of outliers, above its highest dot; those that differ most first, none over another."""
    times = layers.set_index(layers["layer"].astype("int64"))["step_ns"]
    style.settle(ax)
    taken: list[Bbox] = []
    for one in sorted(runs, key=lambda run: -abs(run.ratio - 1)):
        sign = "+" if one.ratio > 1 else "\N{MINUS SIGN}"
        middle, last = (one.first + one.last) / 2, float(times.index.max())
        artist = ax.annotate(
            f"{_which(one)}: {sign}{units.show_share(abs(one.ratio - 1))}",
            (middle, max(float(times[n]) for n in range(one.first, one.last + 1)) / unit_ns), xytext=(0, 6),
            textcoords="offset points", va="bottom", fontsize=8.5, color=style.INK,
            ha="right" if middle > 0.85 * last else "left" if middle < 0.1 * last else "center",
        )  # fmt: skip
        box = artist.get_window_extent()
        if any(box.overlaps(other) for other in taken):
            artist.remove()
        else:
            taken.append(box)
