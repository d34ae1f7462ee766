"""What ran when: device activity by stream over a stretch of time, with the host's launches above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import FuncFormatter

from perflab import units
from perflab.analysis.kernel_names import short_kernel_name
from perflab.plots import bars, style

_LANE, _ROW_INCHES = 0.74, 0.5
_VECTOR_LIMIT = 300
_HAIRLINE = 1 / 1600
_WAITS = ("synchronize", "eventquery")


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Span:
    """A stretch of time to look at, and what it is: `step 3 (decode, 8 requests)`."""

    start_ns: int
    dur_ns: int
    what: str

    @property
    def end_ns(self) -> int:
        """Its end."""
        return self.start_ns + self.dur_ns

    def part(self, first: float, last: float) -> Span:
        """A part of it, from and to as shares between 0 and 1: how a reader zooms in."""
        first, last = max(0.0, min(first, last)), min(1.0, max(first, last))
        if last - first <= 0:
            return self
        start, dur = self.start_ns + round(first * self.dur_ns), round((last - first) * self.dur_ns)
        return Span(start, max(dur, 1), f"{self.what}, from {first * 100:.0f} to {last * 100:.0f} % of it")


def span_of_step(steps: pd.DataFrame, step: int, rank: int = 0) -> Span:
    """The stretch of one step of table `steps`.

    Raises
    ------
    KeyError
        When the rank has no such step.
    """
    found = steps[(steps["step"] == step) & (steps["rank"] == rank)]
    if found.empty:
        raise KeyError(f"rank {rank} has no step {step}")
    row = found.iloc[0]
    counts = {"in prefill": row["prefill_requests"], "in decode": row["decode_requests"]}
    there = {word: int(n) for word, n in counts.items() if pd.notna(n) and n}
    told = [f"{n} {word}" for word, n in there.items()]
    if len(there) == 1:
        told = [f"{n} request{'s' if n != 1 else ''}" for n in there.values()]
    return Span(int(row["start_ns"]), int(row["dur_ns"]), f"step {step} ({', '.join([str(row['phase']), *told])})")


@style.styled
def plot_timeline(
    kernels: pd.DataFrame,
    span: Span,
    *,
    launches: pd.DataFrame | None = None,
    rank: int = 0,
    device: str = "GPU",
    of: str = "",
    ax: Axes | None = None,
) -> Axes:
    """One lane a stream, coloured by category; where a lane is blank, nothing ran on it.

    Parameters
    ----------
    kernels
        `kernels`.
    span
        What to show; see `span_of_step`.
    launches
        `launches`, for a lane of the host's calls; those that wait for the device are hatched.
    rank
        The rank whose activity is shown.
    device
        `GPU`, or `CPU` for the operators of a CPU engine (lanes are then threads).
    of
        The run, to stand before what the heading says of it.
    """
    whole, ax = ax is None, style.axes(ax)
    inside = _within(kernels[kernels["rank"] == rank], span)
    if inside.empty:
        return style.nothing(ax, f"Nothing ran on the {device} in {span.what}", "The lane would be blank.", whole=whole)
    lanes = _lanes(inside)
    calls = _within(launches[launches["rank"] == rank], span) if launches is not None else None
    rows = len(lanes) + (calls is not None and not calls.empty)
    if whole:
        style.figure_of(ax).set_size_inches(style.WIDTH, 0.62 + _ROW_INCHES * rows)
    unit_ns, unit = bars.scale(span.dur_ns)
    ax.set_xlim(0, span.dur_ns / unit_ns)
    ax.set_ylim(rows - 0.45, -0.55)
    ax.set_xlabel(f"time since the start of what is shown ({unit})")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    labels = []
    if rows > len(lanes):
        assert calls is not None
        _draw_calls(ax, calls, span, unit_ns)
        labels.append("host calls")
    lane_word = "stream" if device == "GPU" else "thread"
    for stream in lanes:
        _draw_lane(ax, inside[inside["stream"] == stream], len(labels), span, unit_ns)
        labels.append(f"{lane_word} {stream}")
    ax.set_yticks(range(rows), labels)
    ax.tick_params(axis="y", length=0, labelcolor=style.INK)
    style.bare(ax, "left")
    style.head(
        ax,
        _title(span, _covered(inside, span), device),
        style.about(of, _contents(inside, device, labels)),
        whole=whole,
    )
    style.settle(ax)
    for place, stream in enumerate(lanes, start=rows - len(lanes)):
        _name_long_ones(ax, inside[inside["stream"] == stream], "name", place, span, unit_ns)
    if rows > len(lanes) and calls is not None:
        _name_long_ones(ax, calls, "api_name", 0, span, unit_ns)
    by_time = inside.groupby(inside["category"].astype(str))["dur_ns"].sum().sort_values(ascending=False)
    style.key(ax, by_time.index, style.CATEGORY_COLOURS, faded=False, whole=whole)
    return ax


def _within(frame: pd.DataFrame, span: Span) -> pd.DataFrame:
    ends = frame["start_ns"] + frame["dur_ns"]
    return frame[(frame["start_ns"] < span.end_ns) & (ends > span.start_ns)].sort_values("start_ns")


def _lanes(inside: pd.DataFrame) -> list[int]:
    """Streams, the busiest first, at most eight."""
    return [int(s) for s in inside.groupby("stream")["dur_ns"].sum().sort_values(ascending=False).index[:8]]


def _edges(frame: pd.DataFrame, span: Span, unit_ns: int) -> tuple[Floats, Floats]:
    start = np.maximum(frame["start_ns"].to_numpy() - span.start_ns, 0)
    end = np.minimum(frame["start_ns"].to_numpy() + frame["dur_ns"].to_numpy() - span.start_ns, span.dur_ns)
    # What is too short to be seen is widened to a hairline: it did run.
    return start / unit_ns, np.maximum(end, start + span.dur_ns * _HAIRLINE) / unit_ns


def _boxes(left: Floats, right: Floats, place: float, height: float) -> list[Floats]:
    low, high = np.full(len(left), place - height / 2), np.full(len(left), place + height / 2)
    corners = ((left, low), (right, low), (right, high), (left, high))
    return list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1))


def _draw_lane(ax: Axes, lane: pd.DataFrame, place: int, span: Span, unit_ns: int) -> None:
    left, right = _edges(lane, span, unit_ns)
    colours = [style.CATEGORY_COLOURS[str(c)] for c in lane["category"]]
    boxes = PolyCollection(_boxes(left, right, place, _LANE), facecolors=colours, edgecolors="none", linewidths=0)
    # Thousands of rectangles are smaller as a picture than as paths; text stays sharp.
    boxes.set_rasterized(len(lane) > _VECTOR_LIMIT)
    ax.add_collection(boxes)


def _draw_calls(ax: Axes, calls: pd.DataFrame, span: Span, unit_ns: int) -> None:
    waits = calls["api_name"].astype(str).str.contains("|".join(_WAITS), case=False)
    for part, colour, hatch in ((calls[~waits], style.LINE, ""), (calls[waits], style.GRID, "////")):
        left, right = _edges(part, span, unit_ns)
        boxes = PolyCollection(
            _boxes(left, right, 0, _LANE * 0.6), facecolors=colour, edgecolors=style.LINE if hatch else "none",
            linewidths=0, hatch=hatch,
        )  # fmt: skip
        boxes.set_rasterized(len(part) > _VECTOR_LIMIT)
        ax.add_collection(boxes)


def _name_long_ones(ax: Axes, lane: pd.DataFrame, column: str, place: int, span: Span, unit_ns: int) -> None:
    """Write names into the few activities of a lane wide enough to hold them."""
    lane = lane.nlargest(40, "dur_ns")
    for row, left, right in zip(lane.to_dict("records"), *_edges(lane, span, unit_ns), strict=True):
        waits = "category" not in row and any(word in str(row[column]).lower() for word in _WAITS)
        colour = style.CATEGORY_COLOURS[str(row["category"])] if "category" in row else style.LINE
        artist = ax.text(
            (left + right) / 2, place, "", ha="center", va="center_baseline", fontsize=8,
            color=style.MUTED if waits else style.readable_on(colour),
        )  # fmt: skip
        if waits:
            artist.set_bbox({"facecolor": style.PAPER, "linewidth": 0, "pad": 1.5})
        for limit in (40, 28, 20):
            artist.set_text(short_kernel_name(str(row[column]), limit))
            if style.fits(artist, ax, right - left):
                break
        else:
            artist.remove()


def _covered(inside: pd.DataFrame, span: Span) -> float:
    """Share of the span in which at least one activity runs: for the heading only, streams overlapped once."""
    left = np.maximum(inside["start_ns"].to_numpy(), span.start_ns)
    right = np.minimum((inside["start_ns"] + inside["dur_ns"]).to_numpy(), span.end_ns)
    reached = np.maximum.accumulate(np.concatenate(([span.start_ns], right)))
    return float(np.maximum(right - np.maximum(left, reached[:-1]), 0).sum() / span.dur_ns)


def _title(span: Span, busy: float, device: str) -> str:
    who = "the GPU is busy" if device == "GPU" else "operators run for"
    return f"{style.capital(span.what)}: {who} {units.show_share(busy)} of {units.show_time(span.dur_ns)}"


def _contents(inside: pd.DataFrame, device: str, labels: list[str]) -> str:
    what = "kernels and copies" if device == "GPU" else "operators"
    told = f"{units.show_count(len(inside))} {what}, coloured by category; blank: nothing ran"
    return told + ("; hatched host calls wait for the device" if "host calls" in labels else "")
