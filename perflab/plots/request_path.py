"""From a slow request to its cause: one request's life above the engine's steps, and the slow tail by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from perflab import units
from perflab.analysis.requests.path import CAUSES
from perflab.plots import bars, style
from perflab.plots.scales import quiet

CAUSE_COLOURS = MappingProxyType({
    "arriving": "#9a6a3a", "queued": "#ae8200", "behind_step": "#7f8f1a", "prefill": "#2a93cf",
    "others_prefill": "#d55e00", "decode": "#0072b2", "slow_steps": "#c46a9c", "preempted": "#7b61a8",
    "delivery": "#009e73",
})  # fmt: skip
CAUSE_WORDS = MappingProxyType({
    "arriving": "way into the engine", "queued": "waiting in the engine", "behind_step": "behind a running step",
    "prefill": "own prompt", "others_prefill": "others' prompts", "slow_steps": "slow steps", "delivery": "delivery",
})  # fmt: skip
_IN_SENTENCE = MappingProxyType({
    "arriving": "the way into the engine", "behind_step": "waiting behind a running step",
    "prefill": "their own prompt", "decode": "decode steps", "preempted": "preemption",
    "delivery": "delivery of tokens",
})  # fmt: skip
METRIC_WORDS = MappingProxyType({"ttft": "TTFT", "tpot": "TPOT", "itl": "gap between chunks", "e2el": "E2EL"})
_SLIVER = 0.004
_OUTLINED = 60
_STEP = style.CATEGORY_COLOURS["gemm"]
_PROMPT = CAUSE_COLOURS["others_prefill"]


@dataclass(frozen=True)
class Life:
    """What one request's figure shows.

    Attributes
    ----------
    strip
        `cause`, `start_ns`, `end_ns` on the client's clock, from its sending to its finish.
    steps
        Steps of the engine, with `start_ns`, `end_ns`, `batch`, `prompt_tokens`, `waiting`, `kv_usage`.
    tokens_ns
        When its chunks came.
    what
        The request, as `request 37`.
    """

    strip: pd.DataFrame
    steps: pd.DataFrame
    tokens_ns: tuple[int, ...]
    what: str


@style.styled
def plot_slow_tail(tails: pd.DataFrame, *, of: str = "") -> Figure:
    """The slowest against typical requests, one panel a metric with a scale of its own, split by cause.

    Parameters
    ----------
    tails
        A row a metric, who and cause: `metric` (ttft, tpot, itl or e2el), `who` (slow or typical), `cause`, `ns`,
        `count` (requests), `named` (the tail's cause or None), `percentile`.
    """
    metrics = [name for name in METRIC_WORDS if name in set(tails["metric"])]
    figure, panels = plt.subplots(
        max(len(metrics), 1), 1, squeeze=False, layout="constrained",
        figsize=(style.WIDTH, 1.28 * max(len(metrics), 1) + 0.1),
    )  # fmt: skip
    if not metrics:
        style.nothing(panels[0, 0], "No slow tail", "No requests could be placed into engine steps.", whole=True)
        return figure
    style.head_figure(figure, tail_title(tails), style.about(of, _tail_about(tails)))
    named: set[str] = set()
    for ax, metric in zip(panels[:, 0], metrics, strict=True):
        named |= _tail_panel(ax, tails[tails["metric"] == metric], metric)
    shown = tails[tails["ns"] > _SLIVER * tails.groupby(["metric", "who"])["ns"].transform("sum")]["cause"]
    left = [cause for cause in CAUSES if cause in set(shown) and cause not in named]
    style.key(panels[-1, 0], left, CAUSE_COLOURS, words=CAUSE_WORDS, faded=False)
    return figure


def tail_title(tails: pd.DataFrame) -> str:
    """The first named cause, in the order TTFT, TPOT, gap, E2EL, with its share of the difference."""
    for metric, word in METRIC_WORDS.items():
        rows = tails[tails["metric"] == metric]
        if len(rows) and rows["named"].iloc[0] is not None:
            cause = str(rows["named"].iloc[0])
            total = rows.groupby("who")["ns"].sum()
            by_who = rows[rows["cause"] == cause].set_index("who")["ns"]
            share = min(float(by_who["slow"] - by_who["typical"]) / float(total["slow"] - total["typical"]), 1.0)
            slow, typical = (units.show_time(float(total[who])) for who in ("slow", "typical"))
            why = _IN_SENTENCE.get(cause, CAUSE_WORDS.get(cause, cause))
            end = f"{share * 100:.0f} % of the difference is {why}"
            return style.capital(f"{word} of the slowest is {slow} against {typical}; {end}")
    return "The slowest requests have no single cause"


@style.styled
def plot_request_path(life: Life, *, of: str = "") -> Figure:
    """One request's life as a strip, and below it the engine's steps meanwhile, on one axis of time.

    Panels: the life by cause with its chunks as ticks; requests that decode in each step; prompt tokens each step
    computed; requests waiting; share of the KV cache in use.
    """
    figure, panels = plt.subplots(
        5, 1, sharex=True, figsize=(style.WIDTH, 4.9), layout="constrained", height_ratios=[1.15, 1, 1, 0.8, 0.8]
    )
    origin = int(life.strip["start_ns"].min())
    total = int(life.strip["end_ns"].max()) - origin
    scale, unit = bars.scale(total)
    panels[0].set_xlim(-0.02 * total / scale, 1.02 * total / scale)
    style.head_figure(figure, path_title(life), style.about(of, _path_about(life)))
    steps = life.steps.dropna(subset=["start_ns"])
    edges = [(steps[name].to_numpy(np.float64) - origin) / scale for name in ("start_ns", "end_ns")]
    for ax, column, label in (
        (panels[1], "batch", "requests\ndecoding"),
        (panels[2], "prompt_tokens", "prompt tokens\nin the step"),
        (panels[3], "waiting", "requests\nwaiting"),
    ):
        _draw_steps(ax, edges, steps, column, label)
    _draw_kv(panels[4], edges, steps)
    panels[4].set_xlabel(f"time since it was sent ({unit})")
    for ax in panels[:4]:
        ax.tick_params(axis="x", length=0)
    left = _draw_life(panels[0], life, origin, scale)
    style.key(panels[4], left, CAUSE_COLOURS, words=CAUSE_WORDS, faded=False)
    return figure


def path_title(life: Life) -> str:
    """What most of its life went to, and how long it was."""
    length = (life.strip["end_ns"] - life.strip["start_ns"]).groupby(life.strip["cause"]).sum()
    first = life.tokens_ns[0] - int(life.strip["start_ns"].min()) if life.tokens_ns else 0
    before = life.strip[life.strip["start_ns"] < (life.tokens_ns[0] if life.tokens_ns else 0)]
    spans = (before["end_ns"] - before["start_ns"]).groupby(before["cause"]).sum().drop("decode", errors="ignore")
    total = units.show_time(float(length.sum()))
    if spans.empty:
        return style.capital(f"{life.what}: {total}")
    most = str(spans.idxmax())
    word, took = CAUSE_WORDS.get(most, most), units.show_time(float(spans.max()))
    until = f"first token after {units.show_time(first)}, {took} of it {word}"
    return style.capital(f"{life.what}: {until}; done after {total}")


def _tail_panel(ax: Axes, rows: pd.DataFrame, metric: str) -> set[str]:
    """Two bars; returns the causes written inside them."""
    totals = rows.groupby("who")["ns"].sum()
    scale, unit = bars.scale(float(totals.max()))
    named = rows["named"].iloc[0]
    segments: dict[float, list[bars.Segment]] = {}
    labels = []
    for place, who in enumerate(("slow", "typical")):
        mine = rows[rows["who"] == who]
        segments[float(place)] = [
            bars.Segment(str(r.cause), r.ns / scale, units.show_time(r.ns))
            for r in mine.itertuples() if r.ns > _SLIVER * totals.max()
        ]  # fmt: skip
        count = int(mine["count"].iloc[0])
        labels.append(
            f"{count:,} typical" if who == "typical" else "the slowest" if count == 1 else f"{count:,} slowest"
        )
    ax.set_ylim(1.6, -0.6)
    ax.set_yticks([0, 1], labels)
    ax.tick_params(axis="y", length=0, labelcolor=style.INK)
    ax.set_xlim(0, float(totals.max()) / scale * 1.1)
    style.bare(ax, "left", "bottom")
    style.grid(ax, "x")
    ax.set_title(f"{style.capital(METRIC_WORDS[metric])} ({unit})", fontsize=9.5, loc="left")
    for place, who in enumerate(("slow", "typical")):
        length = sum(segment.length for segment in segments[float(place)])
        ax.annotate(
            units.show_time(float(totals[who])), (length, place), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=9, color=style.MUTED,
        )  # fmt: skip
    strong = {0.0: named, 1.0: named}
    if named is None:
        strong = {place: max(parts, key=lambda one: one.length).name for place, parts in segments.items() if parts}
    return bars.stack(ax, segments, CAUSE_COLOURS, strong=strong, words=CAUSE_WORDS)


def _tail_about(tails: pd.DataFrame) -> str:
    percentile = f"{float(tails['percentile'].iloc[0]):g}"
    return (
        f"means of the slowest (from p{percentile} on) and of those between the quartiles, by engine step; "
        "steps are found by counting tokens"
    )


def _path_about(life: Life) -> str:
    return f"{len(life.tokens_ns):,} chunks came (ticks); steps are found by counting tokens, records name no request"


def _draw_life(ax: Axes, life: Life, origin: int, scale: int) -> list[str]:
    """The strip and the chunks' ticks; returns causes that had no room for their name."""
    ax.set_ylim(0, 1)
    ax.set_yticks([0.7, 0.17], ["its life by cause", "chunks"])
    ax.tick_params(axis="y", length=0, labelcolor=style.INK)
    style.bare(ax, "left", "bottom", "top", "right")
    for cause, rows in life.strip.groupby("cause"):
        begin, end = ((rows[name].to_numpy(np.float64) - origin) / scale for name in ("start_ns", "end_ns"))
        boxes = [[(b, 0.42), (b, 0.98), (e, 0.98), (e, 0.42)] for b, e in zip(begin, end, strict=True)]
        ax.add_collection(PolyCollection(boxes, facecolors=CAUSE_COLOURS[str(cause)], linewidths=0))
    ticks = (np.asarray(life.tokens_ns, dtype=np.float64) - origin) / scale
    ax.vlines(ticks, 0.06, 0.28, color=style.MUTED, linewidth=0.6)
    if len(ticks):
        ax.annotate(
            "first token", (ticks[0], 0.17), xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
            fontsize=8.5, color=style.MUTED,
        )  # fmt: skip
    return _name_stretches(ax, life.strip, origin, scale)


def _name_stretches(ax: Axes, strip: pd.DataFrame, origin: int, scale: int) -> list[str]:
    style.settle(ax)
    written: set[str] = set()
    longest = strip.assign(length=strip["end_ns"] - strip["start_ns"]).sort_values("length", ascending=False)
    for row in longest.drop_duplicates("cause").itertuples():
        cause = str(row.cause)
        middle, width = (row.start_ns + row.length / 2 - origin) / scale, row.length / scale
        ink = style.readable_on(CAUSE_COLOURS[cause])
        artist = ax.text(middle, 0.7, "", ha="center", va="center_baseline", fontsize=9, color=ink)
        for text in (f"{CAUSE_WORDS.get(cause, cause)}  {units.show_time(row.length)}", CAUSE_WORDS.get(cause, cause)):
            artist.set_text(text)
            if style.fits(artist, ax, width):
                written.add(cause)
                break
        else:
            artist.remove()
    return [cause for cause in CAUSES if cause in set(strip["cause"]) and cause not in written]


def _draw_steps(ax: Axes, edges: list[np.ndarray], steps: pd.DataFrame, column: str, label: str) -> None:
    """A box a step as high as its count; steps that computed prompts have the colour of prompts."""
    height = steps[column].to_numpy(np.float64)
    prompt = steps["has_prefill"].to_numpy(bool)
    if column == "waiting":
        prompt = np.zeros(len(steps), dtype=bool)
    for mask, colour in ((~prompt, style.MUTED if column == "waiting" else _STEP), (prompt, _PROMPT)):
        boxes = [
            [(b, 0), (b, h), (e, h), (e, 0)]
            for b, e, h in zip(edges[0][mask], edges[1][mask], height[mask], strict=True) if h > 0
        ]  # fmt: skip
        # Few steps are told apart; many would only show the seams between them.
        edge = style.PAPER if mask.sum() <= _OUTLINED else colour
        ax.add_collection(PolyCollection(boxes, facecolors=colour, edgecolors=edge, linewidths=0.4))
    top = float(height.max()) if len(height) else 0.0
    quiet(ax, f"{label}\n(at most {top:,.0f})", top, least_ticks=1)


def _draw_kv(ax: Axes, edges: list[np.ndarray], steps: pd.DataFrame) -> None:
    use = steps["kv_usage"].to_numpy(np.float64) * 100
    if np.isnan(use).all() or not len(use):
        quiet(ax, "KV cache\n(not recorded)", 1.0, least_ticks=1)
        return
    ax.step(edges[1], use, where="pre", color=style.CATEGORY_COLOURS["kv_cache"], linewidth=1.4)
    quiet(ax, f"KV cache (%)\n(at most {np.nanmax(use):.1f})", float(np.nanmax(use)), least_ticks=1)


def cause_words() -> Mapping[str, str]:
    """Causes as figures name them."""
    return {cause: CAUSE_WORDS.get(cause, cause) for cause in CAUSES}
