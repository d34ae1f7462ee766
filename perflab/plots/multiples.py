"""Many runs at a glance: a small panel each, all with the same scales."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perflab.plots import style

_COLUMNS = 4
_PANEL = 1.55


@style.styled
def plot_run_multiples(loads: pd.DataFrame, *, of: str = "") -> Figure:
    """Throughput against time per token, a panel a run; the other runs stand grey behind it.

    Parameters
    ----------
    loads
        `run`, `load`, `output_tokens_per_s`, `tpot_p50_ms`; a row a run and load (medians over repeats).
    of
        What was sent, and on which machine: panels of different ones have no common scale.
    """
    known = loads.dropna(subset=["output_tokens_per_s", "tpot_p50_ms"]).sort_values(["run", "output_tokens_per_s"])
    runs = [str(run) for run in dict.fromkeys(loads["run"]) if (known["run"] == run).any()]
    columns = min(_COLUMNS, max(len(runs), 1))
    rows = max(-(-len(runs) // columns), 1)
    figure, panels = plt.subplots(
        rows, columns, squeeze=False, sharex=True, sharey=True, layout="constrained",
        figsize=(style.WIDTH, _PANEL * rows + 0.3),
    )  # fmt: skip
    if not runs:
        for ax in panels.flat[1:]:
            ax.set_axis_off()
        style.nothing(panels[0, 0], "Nothing was measured", "No run has a throughput and a latency.", whole=True)
        return figure
    for ax, run in zip(panels.flat, runs, strict=False):
        _panel(ax, known, run)
    for ax in panels.flat[len(runs) :]:
        ax.set_axis_off()
    figure.supxlabel("output throughput (tokens/s)", fontsize=9, color=style.MUTED)
    figure.supylabel("TPOT p50 (ms)", fontsize=9, color=style.MUTED)
    told = "each run's loads from lightest to heaviest, medians over repeats; all panels have the same logarithmic axes"
    style.head_figure(figure, multiples_title(known), style.about(of, told))
    return figure


def multiples_title(known: pd.DataFrame) -> str:
    """The runs with the most throughput and with the shortest time per token."""
    most = known.loc[known["output_tokens_per_s"].idxmax()]
    least = known.loc[known["tpot_p50_ms"].idxmin()]
    return (
        f"Most tokens: {most['run']}, {most['output_tokens_per_s']:,.0f} a second; "
        f"shortest time per token: {least['run']}, {least['tpot_p50_ms']:.2f} ms"
    )


def _panel(ax: Axes, known: pd.DataFrame, run: str) -> None:
    for other, group in known.groupby("run", sort=False):
        mine = str(other) == run
        look: dict[str, Any] = {"color": style.SERIES[0] if mine else style.LINE, "zorder": 3 if mine else 1}
        ax.plot(
            group["output_tokens_per_s"], group["tpot_p50_ms"], marker="o", markersize=4.5 if mine else 0,
            linewidth=1.8 if mine else 0.7, alpha=1 if mine else 0.45, **look,
        )  # fmt: skip
    mine = known[known["run"] == run]
    last = mine.iloc[-1]
    ax.annotate(
        f"{last['output_tokens_per_s']:,.0f} at {last['load']}", (last["output_tokens_per_s"], last["tpot_p50_ms"]),
        xytext=(-2, 6), textcoords="offset points", ha="right", fontsize=8, color=style.INK,
    )  # fmt: skip
    ax.set_title(run, fontsize=9, fontweight="bold")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid(True)
    ax.tick_params(length=0, labelsize=8)
    style.bare(ax, "left", "bottom")
    for axis, values in ((ax.xaxis, known["output_tokens_per_s"]), (ax.yaxis, known["tpot_p50_ms"])):
        span = math.log10(float(np.max(values)) / max(float(np.min(values)), 1e-9)) if len(values) else 1
        axis.set_major_locator(LogLocator(subs=(1.0,) if span > 1.5 else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.margins(0.12, 0.22)
