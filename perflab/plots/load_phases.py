"""One measured point over time with its warm-up, steady state and drain; and its time to first token in parts."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab import units
from perflab.analysis.load.phases import LoadPhases, in_flight_over_time, rate_over_time
from perflab.analysis.load.ttft_split import PARTS, TtftSplit
from perflab.plots import bars, style
from perflab.plots.scales import milliseconds, quiet

_LINE = style.SERIES[0]
_SPLIT = {"queue": style.SERIES[1], "prefill": style.SERIES[0], "front_end": style.SERIES[4], "outside": style.OTHER}
_SPLIT_WORDS = {"front_end": "front end", "outside": "outside the server"}


@style.styled
def plot_load_phases(
    requests: pd.DataFrame, chunks: pd.DataFrame | None, phases: LoadPhases, *, of: str = ""
) -> Figure:
    """Requests in flight and output tokens a second over time; what is not the steady state is shaded and named.

    Parameters
    ----------
    requests, chunks
        Tables of one point; without chunks there are no tokens over time.
    phases
        From `load_phases` of the same tables.
    """
    over_time = in_flight_over_time(requests)
    if phases.status == "unknown" or over_time.empty:
        figure, ax = plt.subplots(layout="constrained")
        style.nothing(
            ax, "What happened over time is not known", "The result has no times of single requests.", whole=True
        )
        return figure
    rate = None if chunks is None else rate_over_time(requests, chunks)
    rows = 1 if rate is None else 2
    figure, panels = plt.subplots(
        rows, 1, sharex=True, squeeze=False, figsize=(style.WIDTH, 1.25 * rows + 0.55), layout="constrained"
    )
    top = panels[0, 0]
    seconds = (over_time["t_ns"] - int(over_time["t_ns"].iloc[0])) / units.NS_PER_S
    top.step(seconds, over_time["in_flight"], where="post", color=_LINE, linewidth=1.4)
    quiet(top, "requests\nin flight", float(over_time["in_flight"].max()))
    if rate is not None:
        low = panels[1, 0]
        low.stairs(rate[0], rate[1], color=_LINE, fill=True, alpha=style.FADE, linewidth=0)
        low.stairs(rate[0], rate[1], color=_LINE, linewidth=1.1)
        quiet(low, "output tokens/s", float(rate[0].max()))
        _mean_lines(low, phases)
    panels[-1, 0].set_xlabel("time since the first request (s)")
    top.set_xlim(0, float(seconds.max()) or 1.0)
    style.head_figure(figure, phases_title(phases), style.about(of, _about(phases, len(requests))))
    _shade(list(panels[:, 0]), phases)
    return figure


@style.styled
def plot_ttft_split(splits: Sequence[tuple[str, str, TtftSplit]], *, of: str = "", ax: Axes | None = None) -> Axes:
    """Mean time to first token of each load in parts, by the server's own histograms.

    Parameters
    ----------
    splits
        (run, load, split) a bar, in order.
    """
    whole, ax = ax is None, style.axes(ax)
    if not splits:
        why = "No point has the server's /metrics from before and after it."
        return style.nothing(ax, "The time to first token cannot be split", why, whole=whole)
    several = len({run for run, _, _ in splits}) > 1
    places = bars.rows([(run, load) for run, load, _ in splits], titled=several)
    labels = [load for _, load, _ in splits]
    bars.frame(ax, places, labels, whole=whole, titled=several)
    stacked = {
        place: [
            bars.Segment(name, value, milliseconds(value))
            for name in PARTS
            if (value := max(split.part(name) or 0.0, 0.0)) > 0
        ]
        for place, (_, _, split) in zip(places.values(), splits, strict=True)
    }
    longest = max(sum(part.length for part in parts) for parts in stacked.values())
    ax.set_xlim(0, longest * 1.1)
    ax.set_xlabel("mean time to first token (ms)")
    style.head(ax, split_title(splits), style.about(of, "means; percentiles of parts do not add up"), whole=whole)
    strong: dict[float, str | None] = {
        place: split.largest for place, (_, _, split) in zip(places.values(), splits, strict=True)
    }
    words = {**style.WORDS, **_SPLIT_WORDS}
    named = bars.stack(ax, stacked, _SPLIT, strong=strong, words=words, floor=longest * 0.004)
    style.key(ax, [name for name in PARTS if name not in named], _SPLIT, words=words, whole=whole)
    return ax


def phases_title(phases: LoadPhases) -> str:
    """What kind of load it was, and what the steady part says beside the whole."""
    begin, end, last = phases.steady_from_s or 0.0, phases.steady_to_s or 0.0, phases.end_s or 0.0
    if phases.status == "too_short":
        turned = f"the load turns over {phases.turnovers or 0:.1f} times between start and drain"
        return f"No steady state in {last:,.1f} s: {turned}"
    if phases.status == "growing":
        return f"Requests in flight grow {phases.growth or 0:.1f} times: more come than end"
    middle, whole = phases.of("steady", "output_tokens_per_s"), phases.of("whole", "output_tokens_per_s")
    rates = f": {middle:,.0f} output tokens/s in it, {whole:,.0f} over all" if middle and whole else ""
    if phases.status == "waves":
        return f"{phases.level or 0:.0f} requests run in waves from {begin:,.1f} to {end:,.1f} s{rates}"
    return f"Steady from {begin:,.1f} to {end:,.1f} of {last:,.1f} s{rates}"


def split_title(splits: Sequence[tuple[str, str, TtftSplit]]) -> str:
    """The largest part of the longest bar."""
    several = len({run for run, _, _ in splits}) > 1
    run, load, split = max(splits, key=lambda one: one[2].client_ms or one[2].server_ms)
    whole = split.client_ms if split.client_ms is not None else split.server_ms
    share = (split.part(split.largest) or 0.0) / whole if whole else 0.0
    word = _SPLIT_WORDS.get(split.largest, split.largest)
    whose = f"{run} {load}" if several else load
    return f"Of {milliseconds(whole)} to the first token at {whose}, {units.show_share(share)} is {word}"


def _mean_lines(ax: Axes, phases: LoadPhases) -> None:
    for row in phases.table.itertuples():
        if row.phase in ("steady", "middle") and pd.notna(row.output_tokens_per_s):
            ax.plot([row.start_s, row.end_s], [row.output_tokens_per_s] * 2, color=style.INK, linewidth=1.4)


def _shade(panels: Sequence[Axes], phases: LoadPhases) -> None:
    """Grey over what is not the middle, and the phases' names above where there is room."""
    for row in phases.table[phases.table["phase"] != "whole"].itertuples():
        if row.phase in ("warm-up", "drain"):
            for ax in panels:
                ax.axvspan(row.start_s, row.end_s, color=style.GRID, alpha=0.9, linewidth=0, zorder=0)
    style.settle(panels[0])
    for row in phases.table[phases.table["phase"] != "whole"].itertuples():
        artist = panels[0].annotate(
            "waves" if row.phase == "steady" and phases.status == "waves" else str(row.phase),
            ((row.start_s + row.end_s) / 2, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", va="bottom", fontsize=9, color=style.MUTED,
        )  # fmt: skip
        if not style.fits(artist, panels[0], row.end_s - row.start_s, padding=0):
            artist.remove()


def _about(phases: LoadPhases, requests: int) -> str:
    told = f"{requests:,} requests of one measured point; shaded: warm-up and drain, which all other figures include"
    return told + ("; line: mean of the part between" if phases.of("steady", "output_tokens_per_s") else "")
