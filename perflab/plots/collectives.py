"""Collectives of several ranks: waiting against transfer, time against message size, who is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TypeAlias

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from perflab import units
from perflab.analysis.ranks.sizes import bus_factor
from perflab.analysis.ranks.stragglers import Straggler
from perflab.knowledge.gpus import Link
from perflab.plots import bars, style

PHASE_ORDER = ("decode", "mixed", "prefill", "all")
PART_COLOURS: Mapping[str, str] = {"transfer": style.CATEGORY_COLOURS["communication"], "waiting": "#90527c"}
"""Transfer is what communication is there for and has its colour; waiting is a darker one of the same family."""

_OP_COLOURS: Mapping[str, str] = {
    "all_reduce": style.SERIES[0], "all_gather": style.SERIES[1], "reduce_scatter": style.SERIES[2],
    "all_to_all": style.SERIES[3], "broadcast": style.SERIES[4], "send_recv": style.SERIES[5], "other": style.SERIES[7],
}  # fmt: skip
_BY_WORDS: Mapping[str, str] = {
    "custom": "vLLM's kernel", "nccl": "NCCL", "symm_mem": "symmetric memory", "multimem": "NVLink switch",
    "flashinfer": "FlashInfer", "quick": "quick all-reduce", "deep_ep": "expert-parallel library",
    "other": "unknown kernel",
}  # fmt: skip
_PLACES = (
    (-9, 4, "right"), (9, 4, "left"), (9, -14, "left"), (-9, -14, "right"), (0, 9, "center"), (-9, 16, "right"),
    (9, 16, "left"), (0, -20, "center"),
)  # fmt: skip
"""Where a point's label may stand, best first: points right and up of it, and its alignment."""
_APART = 18.0
"""Pixels between a label and another point above or below of it, where there is room."""

Box: TypeAlias = tuple[float, float, float, float]

_LEAST_NS = 50.0
"""Where the axis of waiting begins; the device's clock ticks in 32 ns."""


def waiting_by_phase(collectives: pd.DataFrame) -> pd.DataFrame:
    """Transfer and waiting per step.

    Parameters
    ----------
    collectives
        Table `collectives`; what was matched counts.

    Returns
    -------
    DataFrame
        One row a phase and rank, in reading order: `phase`, `rank`, `steps`, `collectives` (of all steps), and
        `transfer_ns`, `wait_ns` of a mean step.
    """
    matched = collectives[collectives["seq"] >= 0]
    steps = matched.groupby(["phase", "rank"], observed=True)["step"].nunique()
    sums = matched.groupby(["phase", "rank"], observed=True).agg(
        collectives=("seq", "size"), transfer_ns=("transfer_ns", "sum"), wait_ns=("wait_ns", "sum")
    )
    found = sums.assign(steps=steps).reset_index().astype({"phase": str})
    for column in ("transfer_ns", "wait_ns"):
        found[column] = found[column].astype("float64") / found["steps"]
    order = found["phase"].map(PHASE_ORDER.index)
    return found.assign(order=order).sort_values(["order", "rank"], ignore_index=True).drop(columns="order")


@style.styled
def plot_waiting(collectives: pd.DataFrame, *, of: str = "") -> Figure:
    """What a rank's collectives do in a mean step: one panel a phase (scales differ), one bar a rank.

    Needs table `collectives`.
    """
    parts = waiting_by_phase(collectives)
    phases = [phase for phase in PHASE_ORDER if phase in set(parts["phase"])]
    ranks = parts["rank"].nunique()
    figure, panels = plt.subplots(
        max(len(phases), 1), 1, squeeze=False, layout="constrained",
        figsize=(style.WIDTH, max(len(phases), 1) * (bars.ROW * ranks + 0.62) + 0.1),
    )  # fmt: skip
    if parts.empty:
        style.nothing(panels[0, 0], "No collective was matched", "Nothing tells waiting from transfer.", whole=True)
        return figure
    style.head_figure(
        figure, waiting_title(parts),
        style.about(of, "time of a mean profiled step in collectives, by rank. Transfer is the duration on the rank "
                        "that came last, waiting what a rank's own kernels took longer; each phase has its own scale"),
    )  # fmt: skip
    named: set[str] = set()
    for ax, phase in zip(panels[:, 0], phases, strict=True):
        named |= _waiting_panel(ax, parts[parts["phase"] == phase], phase)
    style.key(panels[-1, 0], [part for part in PART_COLOURS if part not in named], PART_COLOURS, faded=False)
    return figure


@style.styled
def plot_message_sizes(sizes: pd.DataFrame, link: Link | None, *, of: str = "", ax: Axes | None = None) -> Axes:
    """Time of a collective against what each GPU has to send, with the least that the link allows.

    Parameters
    ----------
    sizes
        From `perflab.analysis.collective_sizes.by_size`; messages of unknown size cannot be placed.
    link
        What a GPU's links carry; None where the GPU is not known, and then there is no line.
    """
    whole, ax = ax is None, style.axes(ax, height=3.9)
    points = _points(sizes)
    if points.empty:
        return style.nothing(ax, "Message sizes are not known", "Neither the trace nor the model tells.", whole=whole)
    _size_axes(ax, points, link)
    if link is not None:
        _link_line(ax, link, int(points["ranks"].max()))
    for op, some in points.groupby("op", sort=False):
        colour = _OP_COLOURS[str(op)]
        for row in some.itertuples():
            ax.plot([row.sent] * 2, [row.low_ns, row.high_ns], color=colour, linewidth=1.2, alpha=0.6)
            guessed = row.bytes_source == "inferred"
            ax.plot(row.sent, row.transfer_ns, "o", markersize=7, color=colour, markeredgewidth=1.6,
                    markerfacecolor=style.PAPER if guessed else colour)  # fmt: skip
    style.head(ax, sizes_title(points, link), style.about(of, _about_sizes(points)), whole=whole)
    style.settle(ax)
    _name_ops(ax, list(dict.fromkeys(points["op"].astype(str))))
    _label_points(ax, points, link)
    return ax


@style.styled
def plot_arrivals(
    collectives: pd.DataFrame, *, phase: str = "decode", straggler: Straggler | None = None, of: str = ""
) -> Figure:
    """How long each rank waited in each collective of a phase, in order: a row a rank, steps set apart.

    Parameters
    ----------
    collectives
        Table `collectives`.
    straggler
        What `perflab.analysis.ranks.stragglers` says of the phase; the title says no more than that.
    """
    matched = collectives[(collectives["seq"] >= 0) & (collectives["phase"].astype(str) == phase)]
    ranks = sorted(matched["rank"].unique().tolist())
    rows = max(len(ranks), 1)
    figure, panels = plt.subplots(
        rows, 1, squeeze=False, sharex=True, sharey=True, layout="constrained", figsize=(style.WIDTH, 0.5 + 1.15 * rows)
    )
    if matched.empty:
        style.nothing(panels[0, 0], f"No collective of {phase} was matched", "There is nothing to compare.", whole=True)
        return figure
    order = matched.drop_duplicates("seq").sort_values("seq").reset_index(drop=True)
    place = pd.Series(np.arange(len(order), dtype=float), index=order["seq"])
    bounds = np.flatnonzero(np.diff(order["step"].to_numpy())) + 0.5
    top = float(matched["wait_ns"].max())
    named = straggler.rank if straggler is not None and straggler.verdict == "straggler" else None
    for ax, rank in zip(panels[:, 0], ranks, strict=True):
        mine = matched[matched["rank"] == rank]
        _arrival_row(ax, mine, place, bounds, rank, top, named=rank == named)
    which = (
        f"{len(bounds) + 1} {phase} steps" if len(bounds) else "whole window" if phase == "all" else f"one {phase} step"
    )
    panels[-1, 0].set_xlabel(f"collectives of the {which}, in order".replace("the one", "one"))
    about = "how long a rank's kernel took beyond that of the rank that came last; a dot a collective"
    about += "; lines part the steps" if len(bounds) else ""
    if straggler is not None and len(bounds) and (straggler.first_share or 0) > 0.5:
        about += f". {units.show_share(straggler.first_share or 0)} of all waiting is at the first collective of a step"
    style.head_figure(figure, arrivals_title(matched, phase, straggler), style.about(of, about))
    return figure


def waiting_title(parts: pd.DataFrame) -> str:
    """How much of the ranks' communication is waiting, by phase."""
    sums = parts.groupby("phase", sort=False)[["transfer_ns", "wait_ns"]].sum()
    shares = sums["wait_ns"] / (sums["transfer_ns"] + sums["wait_ns"])
    told = [f"{units.show_share(share)} of {phase}" for phase, share in shares.items()]
    return f"Ranks wait for one another during {style.join(told)} communication"


def sizes_title(points: pd.DataFrame, link: Link | None) -> str:
    """Up to which size latency decides, and how much of the link the largest messages reach."""
    if link is None or points["of_peak"].isna().all():
        largest = points.loc[points["bytes"].idxmax()]
        return f"Messages of {units.show_bytes(largest['bytes'])} take {units.show_time(largest['transfer_ns'])}"
    if (points["bound"] == "implausible").any():
        return f"Some messages would be faster than {link.kind}: their size or the link is not what it is taken for"
    best = points.loc[points["bus_bandwidth"].idxmax()]
    reached = f"{units.show_bytes(best['bytes'])} reach {units.show_share(best['of_peak'])} of {link.kind}"
    slow = points[points["bound"] == "latency"]
    if len(slow) == len(points):
        return f"All messages are small: latency decides, and the largest reach {units.show_share(best['of_peak'])}"
    if slow.empty:
        return f"Messages of {reached}"
    return f"Latency decides up to {units.show_bytes(slow['bytes'].max())}; messages of {reached}"


def arrivals_title(matched: pd.DataFrame, phase: str, straggler: Straggler | None) -> str:
    """Who is waited for, if that can be said."""
    if straggler is None:
        return f"Waiting in the collectives of {phase}, rank by rank"
    steps = f"{straggler.least_steps} of {straggler.steps} {phase} steps"
    lag = units.show_time(straggler.lag_ns)
    if straggler.verdict == "straggler":
        others = matched["rank"].nunique() - 1
        who = "The other rank waits" if others == 1 else f"The other {others} ranks wait"
        return f"{who} for rank {straggler.rank} in {steps}, by {lag} in the median step"
    if straggler.verdict == "too_few_steps":
        if straggler.steps == 1:
            return f"In the one {phase} step rank {straggler.rank} waits least, by {lag}; one step names no straggler"
        few = f"{straggler.steps} {phase} steps are too few to name a straggler"
        return f"Rank {straggler.rank} waits least, by {lag} in the median step, but {few}"
    if straggler.verdict == "even":
        return f"No rank is waited for consistently in {phase}: rank {straggler.rank} waits least in {steps}"
    why = "the clocks are not sure enough" if straggler.verdict == "clocks" else "it does not arrive last"
    return f"Rank {straggler.rank} waits least in {steps}, but {why} to call it the straggler"


def _waiting_panel(ax: Axes, parts: pd.DataFrame, phase: str) -> set[str]:
    places = {("", str(rank)): float(i) for i, rank in enumerate(parts["rank"])}
    totals = (parts["transfer_ns"] + parts["wait_ns"]).tolist()
    unit_ns, unit = bars.scale(max(totals))
    bars.frame(ax, places, [f"rank {rank}" for _, rank in places], whole=False, titled=False)
    ax.set_xlim(0, max(totals) / unit_ns or 1.0)
    steps, each = int(parts["steps"].iloc[0]), parts["collectives"].iloc[0] / parts["steps"].iloc[0]
    count = "one step" if steps == 1 else f"mean of {steps} steps"
    where = "whole window" if phase == "all" else f"{phase}, {count}"
    ax.set_xlabel(
        f"{where}, {each:,.0f} collectives each ({unit})" if steps > 1 else f"{where}, {each:,.0f} collectives ({unit})"
    )
    segments, strong = {}, {}
    for place, row in enumerate(parts.itertuples()):
        pair = {"transfer": float(row.transfer_ns), "waiting": float(row.wait_ns)}
        segments[float(place)] = [
            bars.Segment(name, ns / unit_ns, units.show_time(ns)) for name, ns in pair.items() if ns > 0
        ]
        strong[float(place)] = max(pair, key=lambda name: pair[name])
        ax.annotate(
            units.show_time(sum(pair.values())), (sum(pair.values()) / unit_ns, place), xytext=(6, 0),
            textcoords="offset points", va="center_baseline", color=style.MUTED, fontsize=9, annotation_clip=False,
        )  # fmt: skip
    return bars.stack(ax, segments, PART_COLOURS, strong=strong, words={}, floor=0.004 * max(totals) / unit_ns)


def _points(sizes: pd.DataFrame) -> pd.DataFrame:
    """One point an op, implementation and size, phases taken together, with `sent`: bytes each GPU has to send."""
    known = sizes[sizes["bytes"].notna()]
    if known.empty:
        return known.assign(sent=[])
    rows = []
    for (op, by, size, ranks), some in known.groupby(["op", "by", "bytes", "ranks"], sort=False):
        main = some.loc[some["count"].idxmax()]
        factor = bus_factor(str(op), int(ranks), in_network=bool(main["in_network"]))
        if factor is None:
            continue
        rows.append({
            **main.to_dict(), "op": op, "by": by, "bytes": int(size), "count": int(some["count"].sum()),
            "sent": float(size) * factor, "low_ns": float(some["low_ns"].min()),
            "high_ns": float(some["high_ns"].max()),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*known.columns, "sent"]).sort_values("sent", ignore_index=True)


def _size_axes(ax: Axes, points: pd.DataFrame, link: Link | None) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    low, high = float(points["sent"].min()), float(points["sent"].max())
    ax.set_xlim(low / 2.2, high * 6)
    least = float(points["low_ns"].min())
    if link is not None:
        # The line of the link is what the small messages lie above: show where it is, but not all of it.
        least = min(least, max(low / link.among(int(points["ranks"].max())) * 1e9, least / 10))
    ax.set_ylim(least / 1.6, float(points["high_ns"].max()) * 2)
    step = max(1, int(np.ceil(np.log2(high / low) / 9)))
    ticks = 2.0 ** np.arange(np.floor(np.log2(low)), np.log2(high) + 2, step)
    ax.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _short_bytes(v)))
    ax.yaxis.set_major_locator(LogLocator(10))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _short_time(v)))
    for side in (ax.xaxis, ax.yaxis):
        side.set_minor_locator(NullLocator())
    ax.set_xlabel("bytes each GPU has to send")
    ax.set_ylabel("time of a collective")
    ax.grid(True)
    ax.tick_params(length=0)
    style.bare(ax, "left", "bottom")


def _link_line(ax: Axes, link: Link, ranks: int) -> None:
    x = np.array(ax.get_xlim())
    peak = link.among(ranks)
    ax.plot(x, x / peak * 1e9, color=style.MUTED, linewidth=1.2, linestyle=(0, (4, 3)), scalex=False, scaley=False)
    bottom, top = ax.get_ylim()
    at = float(np.sqrt(max(x[0], bottom * peak / 1e9) * min(x[1], top * peak / 1e9)))
    ax.annotate(
        f"{link.kind}, {peak / 1e9:,.0f} GB/s: the least time", (at, at / peak * 1e9), xytext=(8, -3),
        textcoords="offset points", va="top", color=style.MUTED, fontsize=9,
    )  # fmt: skip


def _label_points(ax: Axes, points: pd.DataFrame, link: Link | None) -> None:
    """Beside each point who did it, how long it took and how fast that is; of points close together what has room."""
    figure = style.figure_of(ax)
    frame, taken = ax.get_window_extent(), list[Box]()
    dots = avoid = ax.transData.transform(points[["sent", "transfer_ns"]].to_numpy(float))
    if link is not None:
        x = np.geomspace(*ax.get_xlim(), 200)
        line = np.column_stack([x, x / link.among(int(points["ranks"].max())) * 1e9])
        avoid = np.vstack([avoid, ax.transData.transform(line)])
    rows = points.assign(weight=points["count"] * points["transfer_ns"]).sort_values("weight", ascending=False)
    for row in rows.itertuples():
        speed = "" if pd.isna(row.bus_bandwidth) else f", {row.bus_bandwidth / 1e9:,.0f} GB/s"
        text = f"{_BY_WORDS.get(str(row.by), str(row.by))}: {units.show_time(row.transfer_ns)}{speed}"
        own = np.abs(dots - ax.transData.transform((row.sent, row.transfer_ns))).max(axis=1) <= 1
        others = dots[~own & (points["op"] == row.op).to_numpy()]
        # First where nobody takes it for that of another point in its colour, above or below of which it would stand.
        for apart, (across, up, side) in product((_APART, 2), _PLACES):
            artist = ax.annotate(
                text, (row.sent, row.transfer_ns), xytext=(across, up), textcoords="offset points", ha=side,
                fontsize=9, color=_OP_COLOURS[str(row.op)],
            )  # fmt: skip
            box = artist.get_window_extent()
            # With air about it: drawn at another resolution, text is a little wider and higher.
            edge = (box.x0 - 2, box.y0 - 1, box.x1 + 2, box.y1 + 1)
            inside = box.x0 >= frame.x0 and box.x1 <= figure.bbox.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            hit = any(box.x0 - 3 <= x <= box.x1 + 3 and box.y0 - 2 <= y <= box.y1 + 2 for x, y in avoid)
            hit |= any(box.x0 <= x <= box.x1 and box.y0 - apart <= y <= box.y1 + apart for x, y in others)
            if inside and not hit and not any(_meet(edge, other) for other in taken):
                taken.append(edge)
                break
            artist.remove()


def _name_ops(ax: Axes, ops: list[str]) -> None:
    """The ops in their colours, above the axes at the right."""
    offset = 0.0
    for op in reversed(ops):
        artist = ax.annotate(
            _op_word(op), (1, 1), xycoords="axes fraction", xytext=(-offset, 3), textcoords="offset points", ha="right",
            va="bottom", fontsize=9, fontweight="bold", color=_OP_COLOURS[op],
        )  # fmt: skip
        offset += style.size_of(artist)[0] * 72 + 12


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _arrival_row(
    ax: Axes, mine: pd.DataFrame, place: pd.Series, bounds: np.ndarray, rank: int, top: float, *, named: bool
) -> None:  # fmt: skip
    waits = mine["wait_ns"].to_numpy(np.float64)
    x = place.reindex(mine["seq"]).to_numpy()
    ax.set_yscale("log")
    ax.set_ylim(_LEAST_NS, max(top, 10 * _LEAST_NS) * 2)
    ax.set_xlim(-0.5, len(place) - 0.5)
    for bound in bounds:
        ax.axvline(bound, color=style.GRID, linewidth=0.9, zorder=0)
    seen = waits >= _LEAST_NS
    dots = ax.plot(
        x[seen], waits[seen], "o", markersize=3, color=PART_COLOURS["waiting"], alpha=0.75, markeredgewidth=0
    )
    dots[0].set_rasterized(int(seen.sum()) > 600)
    ax.yaxis.set_major_locator(LogLocator(10, numticks=6))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _short_time(v)))
    ax.tick_params(axis="both", length=0)
    style.grid(ax, "y")
    style.bare(ax, "left")
    steps = max(mine["step"].nunique(), 1)
    told = (
        f"waits in {units.show_share(float((waits > 0).mean()))} of them, {units.show_time(waits.sum() / steps)} a step"
    )
    name = f"rank {rank}, waited for" if named else f"rank {rank}"
    ax.annotate(
        name, (0, 1), xycoords="axes fraction", xytext=(0, 2), textcoords="offset points", va="bottom",
        fontsize=9.5, fontweight="bold",
    )  # fmt: skip
    ax.annotate(
        told, (1, 1), xycoords="axes fraction", xytext=(0, 2), textcoords="offset points", va="bottom", ha="right",
        fontsize=9, color=style.MUTED,
    )  # fmt: skip


def _about_sizes(points: pd.DataFrame) -> str:
    told = "median over all collectives of a size, lines from the 5th to the 95th percentile"
    return told + ("; hollow: size inferred, not recorded" if (points["bytes_source"] == "inferred").any() else "")


def _op_word(op: str) -> str:
    return "send and receive" if op == "send_recv" else op.replace("_", "-")


def _short_bytes(value: float) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{value / size:,.3g} {unit}"
    return f"{value:,.3g} B"


def _short_time(ns: float) -> str:
    for size, unit in ((units.NS_PER_S, "s"), (units.NS_PER_MS, "ms"), (units.NS_PER_US, "µs")):
        if ns >= size:
            return f"{ns / size:,.3g} {unit}"
    return f"{ns:,.3g} ns"
