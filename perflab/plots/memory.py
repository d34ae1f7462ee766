"""What fills device memory."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from perflab import units
from perflab.plots import bars, style

_ORDER = tuple(style.COMPONENT_COLOURS)


@style.styled
def plot_memory(memory: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """One bar a run and rank, by component; up to all of the device's memory where its size is known.

    Needs table `memory`; a column `run` where there are several.
    """
    whole, ax = ax is None, style.axes(ax)
    frame = pd.DataFrame({
        "run": memory["run"].astype(str) if "run" in memory else "", "rank": memory["rank"],
        "component": memory["component"], "bytes": memory["bytes"],
    })  # fmt: skip
    if frame.empty or frame["bytes"].sum() <= 0:
        return style.nothing(
            ax, "How memory is used is not known", "Neither the log nor the metrics tell.", whole=whole
        )
    groups = {(str(run), str(rank)): part for (run, rank), part in frame.groupby(["run", "rank"], sort=False)}
    several_ranks = frame.groupby("run")["rank"].nunique().max() > 1
    titled = several_ranks and frame["run"].nunique() > 1
    places = bars.rows(groups, titled=bool(titled))
    labels = [f"rank {rank}" if several_ranks or not run else run for run, rank in places]
    bars.frame(ax, places, labels, whole=whole, titled=bool(titled))
    longest = max(float(part["bytes"].sum()) for part in groups.values())
    ax.set_xlim(0, units.gib(longest))
    ax.set_xlabel("device memory (GiB)")
    style.head(ax, memory_title(frame), "By component; sizes as the engine's log and metrics give them", whole=whole)
    segments = {
        places[key]: [
            bars.Segment(name, units.gib(size), units.show_bytes(size))
            for name in _ORDER if (size := int(part.loc[part["component"] == name, "bytes"].sum())) > 0
        ]
        for key, part in groups.items()
    }  # fmt: skip
    strong = {place: _main(parts) for place, parts in segments.items()}
    named = bars.stack(ax, segments, style.COMPONENT_COLOURS, strong=strong, floor=units.gib(longest) * 0.004)
    seen = {segment.name for parts in segments.values() for segment in parts}
    style.key(ax, [name for name in _ORDER if name in seen - named], style.COMPONENT_COLOURS, whole=whole)
    return ax


def memory_title(frame: pd.DataFrame) -> str:
    """What weights and KV cache take, the range where runs differ: shares where all of the memory is accounted for.

    Where no row says how much is free, the size of the device is not known and a share of it would be made up.
    """
    totals = frame.groupby(["run", "rank"])["bytes"].sum()
    whole = set(frame[frame["component"] == "free"].groupby(["run", "rank"]).groups) == set(totals.index)
    told = []
    for component, word in (("weights", "weights take"), ("kv_cache", "the KV cache")):
        sizes = frame[frame["component"] == component].groupby(["run", "rank"])["bytes"].sum()
        values = (sizes / totals).dropna() if whole else sizes
        show = units.show_share if whole else units.show_bytes
        if len(values):
            low, high = show(values.min()), show(values.max())
            told.append(f"{word} {low if low == high else f'{low} to {high}'}")
    return style.capital(f"{style.join(told)}{' of device memory' if whole else ''}") if told else "Device memory"


def _main(parts: list[bars.Segment]) -> str | None:
    used = [segment for segment in parts if segment.name != "free"]
    return max(used, key=lambda segment: segment.length).name if used else None
