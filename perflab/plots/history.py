"""One figure of many runs over time, with the levels it had and where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from perflab.analysis.history import Levels
from perflab.plots import style

_TICKS = 7


def metric_words(metric: str) -> tuple[str, str]:
    """A metric in words, and its unit: `TTFT p50`, `ms`; `output tokens`, `1/s`."""
    if metric.endswith("_ms"):
        name, _, statistic = metric.removesuffix("_ms").partition("_")
        return f"{name.upper()} {statistic}".strip(), "ms"
    return metric.removesuffix("_per_s").replace("_", " "), "1/s"


@style.styled
def plot_history(rows: pd.DataFrame, found: Levels, *, name: str = "", ax: Axes | None = None) -> Axes:
    """Each run's value, a line for each level, and at each change how the level moved.

    Parameters
    ----------
    rows
        One a run in order of time: `created` (ISO 8601), `value`, `metric`, `vllm_version`.
    found
        What `perflab.analysis.history.levels` says of the values.
    name
        What was measured.
    """
    whole, ax = ax is None, style.axes(ax, height=2.6)
    if rows.empty:
        return style.nothing(ax, "No runs", "No run here has this figure.", whole=whole)
    metric = str(rows["metric"].iloc[0])
    words, unit = metric_words(metric)
    values = rows["value"].to_numpy(np.float64)
    order = np.arange(len(values))
    ax.plot(order, values, linestyle="none", marker="o", markersize=3.5, color=style.MUTED, alpha=0.8)
    _levels(ax, values, found)
    ax.set_ylabel(f"{words} ({unit})")
    ax.set_xlim(-0.5, len(values) - 0.5)
    ax.set_ylim(0, values.max() * 1.18 if values.max() > 0 else 1)
    _dates(ax, rows["created"].astype(str).tolist())
    style.grid(ax, "y")
    _versions(ax, rows["vllm_version"].tolist())
    return style.head(ax, history_title(rows, found), style.about(name, f"{len(rows)} runs, a dot each"), whole=whole)


def history_title(rows: pd.DataFrame, found: Levels) -> str:
    """The finding: the last change, else the drift, else that there is none."""
    words, _ = metric_words(str(rows["metric"].iloc[0]))
    words = style.capital(words)
    if found.too_few:
        return f"{words}: too few runs to tell changes from chance ({found.n})"
    if found.changes:
        last = found.changes[-1]
        since = str(rows["created"].iloc[last.at])[:10]
        more = f", the last of {len(found.changes)} changes" if len(found.changes) > 1 else ""
        return f"{words} {_moved(last.before, last.after)} on {since}{more}"
    if found.trend is not None:
        return f"{words} drifts by {found.trend.slope:+.2%} a run"
    return f"{words} shows no change over {found.n} runs"


def _moved(before: float, after: float) -> str:
    if not before:
        return f"went from 0 to {after:.4g}"
    return f"{'rose' if after > before else 'fell'} by {abs(after / before - 1):.1%}"


def _levels(ax: Axes, values: np.ndarray, found: Levels) -> None:
    bounds = found.bounds
    for place, (start, end) in enumerate(pairwise(bounds)):
        middle = float(np.median(values[start:end]))
        last = place == len(bounds) - 2
        ax.hlines(middle, start - 0.5, end - 0.5, color=style.SERIES[0], linewidth=2.0, alpha=1.0 if last else 0.5)
    for change in found.changes:
        ax.axvline(change.at - 0.5, color=style.LINE, linewidth=0.8)
        ax.annotate(
            f"{change.after / change.before - 1:+.1%}" if change.before else "from 0",
            (change.at - 0.5, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -3), textcoords="offset points",
            va="top", fontsize=8.5, color=style.INK,
        )  # fmt: skip


def _dates(ax: Axes, created: Sequence[str]) -> None:
    """Runs are as far apart as their order says, not as time does; a few of them are dated."""
    at = np.unique(np.linspace(0, len(created) - 1, min(_TICKS, len(created))).round().astype(int))
    ax.set_xticks(at, [created[i][:10] for i in at])
    ax.set_xlabel("runs in order of time")


def _versions(ax: Axes, versions: Sequence[str | None]) -> None:
    """vLLM's version where it first differs from the run before."""
    before: str | None = None
    for place, version in enumerate(versions):
        if version is not None and not pd.isna(version) and version != before:
            ax.annotate(
                f"vLLM {version}", (place - 0.5, 0.0), xycoords=("data", "axes fraction"), xytext=(3, 4),
                textcoords="offset points", fontsize=8, color=style.MUTED,
            )  # fmt: skip
            before = version
