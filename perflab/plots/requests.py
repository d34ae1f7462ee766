"""The requests of one measured point over time: who waited, who streamed, how many tokens came out."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from perflab import units
from perflab.plots import style
from perflab.plots.scales import quiet

_WAIT, _STREAM = style.CATEGORY_COLOURS["norm_act"], style.CATEGORY_COLOURS["gemm"]
_BINS = 60


@style.styled
def plot_requests(requests: pd.DataFrame, *, of: str = "", ax: Axes | None = None) -> Axes:
    """A line a request, by arrival: waiting for the first token, then streaming; failed ones are crosses.

    Needs table `requests`. Those without an arrival time cannot be placed and are left out, which the heading says.
    """
    whole, ax = ax is None, style.axes(ax, height=2.6)
    known = requests.dropna(subset=["arrival_ns"]).sort_values("arrival_ns", kind="stable")
    if known.empty:
        return style.nothing(
            ax, "When requests were sent was not recorded", "The result holds summaries only.", whole=whole
        )
    _draw_requests(ax, known)
    ax.set_xlabel("time since the first request (s)")
    return style.head(ax, requests_title(known), style.about(of, _about(known, len(requests))), whole=whole)


@style.styled
def plot_load_over_time(requests: pd.DataFrame, chunks: pd.DataFrame, *, of: str = "") -> Figure:
    """Requests over time, and below it requests in flight and output tokens per second on the same axis.

    Needs tables `requests` and `chunks` of one point. A chunk is not a token: where a chunk's tokens are not known,
    the request's output tokens are spread evenly over its chunks, and left out where those are not known either.
    """
    known = requests.dropna(subset=["arrival_ns"]).sort_values("arrival_ns", kind="stable")
    if known.empty or chunks.empty:
        return style.figure_of(plot_requests(requests, of=of))
    figure, panels = plt.subplots(
        3, 1, sharex=True, figsize=(style.WIDTH, 4.6), layout="constrained", height_ratios=[2.4, 1, 1]
    )
    _draw_requests(panels[0], known)
    origin = int(known["arrival_ns"].min())
    _draw_in_flight(panels[1], known, origin)
    _draw_tokens(panels[2], requests, chunks, origin)
    for ax in panels[:2]:
        ax.tick_params(axis="x", length=0)
    panels[2].set_xlabel("time since the first request (s)")
    told = _about(known, len(requests))
    if chunks["token_count"].isna().any():
        told += "; a request's tokens are spread evenly over its chunks"
    style.head_figure(figure, requests_title(known), style.about(of, told))
    return figure


def requests_title(requests: pd.DataFrame) -> str:
    """How long requests waited for their first token as a share of their life."""
    ok = requests[requests["status"] == "ok"].dropna(subset=["first_token_ns", "finish_ns"])
    failed = int((requests["status"] == "failed").sum())
    end = f"; {failed} failed" if failed else ""
    if ok.empty:
        return f"No request finished{end}"
    wait = (ok["first_token_ns"] - ok["arrival_ns"]).astype(float)
    life = (ok["finish_ns"] - ok["arrival_ns"]).astype(float)
    share = units.show_share(float((wait / life).median()))
    return f"Requests spend {share} of their life waiting for the first token (median){end}"


def _draw_requests(ax: Axes, known: pd.DataFrame) -> None:
    origin = int(known["arrival_ns"].min())
    times = (known[["arrival_ns", "first_token_ns", "finish_ns"]].astype("Float64") - origin) / units.NS_PER_S
    rows = times.to_numpy(float, na_value=np.nan)
    place = np.arange(len(rows), dtype=float)
    ax.set_ylim(len(rows) - 0.2, -0.8)
    width = float(np.clip(150 / len(rows), 0.8, 5))
    for first, last, colour in ((0, 1, _WAIT), (1, 2, _STREAM)):
        lines = [[(row[first], y), (row[last], y)] for row, y in zip(rows, place, strict=True)]
        drawn = LineCollection(lines, colors=colour, linewidths=width, capstyle="butt")
        drawn.set_rasterized(len(lines) > 600)
        ax.add_collection(drawn)
    failed = (known["status"] == "failed").to_numpy()
    ax.plot(rows[failed, 0], place[failed], "x", color=style.ALERT, markersize=5)
    ax.set_xlim(0, float(np.nanmax(rows)) * 1.01 or 1.0)
    ax.set_ylabel("requests, by arrival")
    ends = sorted({0, len(rows) - 1})
    ax.set_yticks(ends, [f"{end + 1:,}" for end in ends])
    ax.tick_params(axis="y", length=0)
    style.bare(ax, "left")
    style.grid(ax, "x")
    for text, colour, offset in (("waiting", _WAIT, -62), ("streaming", _STREAM, 0)):
        ax.annotate(
            text, (1, 1), xycoords="axes fraction", xytext=(offset, 3), textcoords="offset points", ha="right",
            va="bottom", fontsize=9, fontweight="bold", color=colour,
        )  # fmt: skip


def _draw_in_flight(ax: Axes, known: pd.DataFrame, origin: int) -> None:
    done = known.dropna(subset=["finish_ns"])
    events = pd.concat([
        pd.Series(1, index=known["arrival_ns"].astype("int64")), pd.Series(-1, index=done["finish_ns"].astype("int64"))
    ]).sort_index().groupby(level=0).sum().cumsum()  # fmt: skip
    ax.step((events.index.to_numpy() - origin) / units.NS_PER_S, events.to_numpy(), where="post", color=style.MUTED)
    quiet(ax, f"in flight\n(at most {int(events.max())})", float(events.max()))


def tokens_of_chunks(requests: pd.DataFrame, chunks: pd.DataFrame) -> pd.Series[float]:
    """Tokens of each chunk: as recorded, else an even share of its request's output tokens, else NaN."""
    outputs = requests.set_index("request_id")["output_tokens"].astype("Float64")
    of_request = chunks["request_id"].map(outputs).astype("Float64")
    count = chunks.groupby("request_id")["chunk_index"].transform("size")
    return chunks["token_count"].astype("Float64").fillna(of_request / count).astype(float)


def _draw_tokens(ax: Axes, requests: pd.DataFrame, chunks: pd.DataFrame, origin: int) -> None:
    tokens = tokens_of_chunks(requests, chunks)
    if tokens.isna().all():
        quiet(ax, "output tokens/s\n(not measured)", 0.0)
        return
    at = (chunks["arrival_ns"].to_numpy() - origin) / units.NS_PER_S
    end = float(at.max()) or 1.0
    total, edges = np.histogram(at, bins=_BINS, range=(0, end), weights=tokens.fillna(0.0).to_numpy())
    rate = total / np.diff(edges)
    ax.stairs(rate, edges, color=_STREAM, fill=True, alpha=style.FADE)
    ax.stairs(rate, edges, color=_STREAM, linewidth=1.2)
    quiet(ax, f"output tokens/s\n(mean {tokens.sum() / end:,.0f})", float(rate.max()))


def _about(known: pd.DataFrame, total: int) -> str:
    left_out = total - len(known)
    told = f"{len(known):,} requests of one measured point, client's clock"
    return told + (f"; {left_out} without arrival time are not shown" if left_out else "")
