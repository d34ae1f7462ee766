"""Axes of latencies and rates: their words, their scale, limits drawn across them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from perflab.plots import style

METRICS: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}
"""vLLM's latency metrics, as a reader knows them."""

_LOG_FROM = 15.0
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


def value_axis(ax: Axes, axis: str, values: Floats, limit: float | None, from_zero: bool = True) -> None:
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


def limit_line(ax: Axes, axis: str, limit: float | None, unit: str) -> None:
    """Draw an SLO across the axes and name it; nothing where there is none."""
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


def milliseconds(value: float) -> str:
    """A latency with three significant digits."""
    return f"{value:,.{digits(value)}f} ms"


def digits(value: float) -> int:
    """Decimals that make three significant digits."""
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0


def quiet(ax: Axes, label: str, top: float, least_ticks: int = 2) -> None:
    """A small panel over time: from 0 to a little above `top`, few ticks, its words beside it.

    Ticks are whole numbers unless there were fewer than `least_ticks` then.
    """
    ax.set_ylim(0, top * 1.15 or 1.0)
    ax.set_ylabel(label, rotation=0, ha="right", va="center")
    ax.tick_params(axis="y", length=0)
    style.bare(ax, "left")
    style.grid(ax, "y")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=True, min_n_ticks=least_ticks))
