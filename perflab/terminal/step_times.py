"""Where the time of a step goes: one table for all ranks of a profiling pass, and the kernels behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.compare.findings import category_word
from perflab.analysis.compare.kernel_steps import kernel_steps, worker_thread
from perflab.analysis.kernel_names import short_kernel_names
from perflab.schema import CATEGORIES, GROUPS
from perflab.tasks.breakdown import PassBreakdown, RankBreakdown
from perflab.terminal.text import table

_PHASES = ("decode", "mixed", "prefill")
_SIDE_BY_SIDE = 2
"""Ranks that have a column of their own; of more only the mean, the least and the most are shown."""
_KERNELS = 4
_OTHERS = 3
_CAUSES = {
    "host_bound": "launched late by the host",
    "not_started": "launched, not started",
    "in_graph": "inside a graph replay",
    "no_request": "no request",
    "unknown": "unknown cause",
}
_OUTSIDE = "outside operators (Python, waiting)"

Record = Mapping[str, Any]


def step_times(one: PassBreakdown) -> str:
    """Milliseconds a step and share of the phase, groups first, the categories in them below; ranks side by side."""
    ranks = [rank for rank in one.ranks if rank.window_ns]
    gone = [_nothing(rank) for rank in one.ranks if not rank.window_ns]
    if not ranks:
        return "\n".join(gone)
    phases = [name for name in _PHASES if all(_steps(rank.record["phases"].get(name, {})) for rank in ranks)]
    records = {name: [rank.record["phases"][name] for rank in ranks] for name in phases} or {
        "whole window": [rank.record for rank in ranks]
    }
    numbers = [rank.rank for rank in ranks]
    rows = [_step_row(records), *_rows(records, ranks), *_idle_rows(records, ranks, bool(phases))]
    body = table(_head(records, numbers), rows)
    return "\n".join([_title(one, ranks), body, *_after(ranks, phases), *gone])


def top_kernels(one: PassBreakdown) -> str:
    """The names that take most of a step of each phase, of the first rank."""
    ranks = sorted((rank for rank in one.ranks if rank.window_ns and len(rank.steps)), key=lambda rank: rank.rank)
    if not ranks:
        return ""
    rank = ranks[0]
    times = kernel_steps(rank.kernels, rank.steps, worker_thread(rank.ranges) if rank.kind == "cpu" else None)
    phase_of = rank.steps.set_index("step")["phase"].astype("object")
    counts = phase_of.value_counts()
    times = times.assign(phase=times["step"].map(phase_of))
    sums = times.groupby(["phase", "category", "name"])[["exclusive_ns", "calls"]].sum().reset_index()
    shown = [phase for phase in _PHASES if counts.get(phase, 0)]
    rows: list[list[str]] = []
    names = short_kernel_names(sums["name"].astype(str), limit=46)
    for phase in shown:
        mine = sums[sums["phase"] == phase].sort_values("exclusive_ns", ascending=False).head(_KERNELS)
        window = float(rank.record["phases"][phase]["window_ns"])
        rows += [
            [
                phase if position == 0 else "",
                names[str(row["name"])],
                category_word(str(row["category"])),
                f"{row['calls'] / counts[phase]:,.3g}",
                f"{units.ms(row['exclusive_ns'] / counts[phase]):,.3f}",
                units.show_share(row["exclusive_ns"] / window),
            ]
            for position, row in enumerate(mine.to_dict("records"))
        ]
    what = "operators" if rank.kind == "cpu" else "kernels"
    of = f" of rank {rank.rank}" if len(one.ranks) > 1 else ""
    return f"Largest {what}{of}\n" + table(["", "", "", "calls", "ms a step", "share"], rows, left=3)


def _nothing(rank: RankBreakdown) -> str:
    return f"{rank.run}, rank {rank.rank}: no {rank.kind.upper()} activity was recorded, so there is no share to tell"


def _title(one: PassBreakdown, ranks: Sequence[RankBreakdown]) -> str:
    devices = " and ".join(dict.fromkeys(rank.device for rank in ranks))
    steps = len(ranks[0].steps)
    of = f"{steps} steps" if steps else "the whole trace"
    of += f" on each of {len(ranks)} ranks" if len(ranks) > 1 else ""
    if ranks[0].kind == "cpu":
        return f"{one.source.run}: operators on the engine's worker thread of a CPU, {of}; nothing here is about a GPU"
    return f"{one.source.run}: GPU time of {of}, {devices}; every instant counted once"


def _head(records: Mapping[str, Sequence[Record]], ranks: Sequence[int]) -> list[str]:
    head = ["ms a step, share" if "whole window" not in records else "ms, share"]
    for phase in records:
        if len(ranks) == 1:
            head += [phase, ""]
        elif len(ranks) <= _SIDE_BY_SIDE:
            head += [f"{phase} r{ranks[0]}", *(f"r{rank}" for rank in ranks[1:]), "mean"]
        else:
            head += [f"{phase} mean", "least", "most", ""]
    return head


def _cells(values: Sequence[float], windows: Sequence[float]) -> list[str]:
    """Milliseconds a step of each rank (or mean, least, most), then the mean share."""
    share = sum(v / w for v, w in zip(values, windows, strict=True)) / len(values)
    if not any(values):
        return [*["-"] * (len(values) if len(values) <= _SIDE_BY_SIDE else 3), ""]
    many = len(values) > _SIDE_BY_SIDE
    shown = [sum(values) / len(values), min(values), max(values)] if many else list(values)
    return [*(f"{units.ms(value):,.3f}" for value in shown), units.show_share(share)]


def _step_row(records: Mapping[str, Sequence[Record]]) -> list[str]:
    row = ["step" if "whole window" not in records else "window"]
    for mine in records.values():
        steps = _steps(mine[0])
        row += [*_cells(*_both(mine, lambda record: float(record["window_ns"])))[:-1], f"n = {steps}" if steps else ""]
    return row


def _both(records: Sequence[Record], of: Any) -> tuple[list[float], list[float]]:
    """A time and the window of each rank, a step."""
    counts = [_steps(record) or 1 for record in records]
    values = [of(record) / n for record, n in zip(records, counts, strict=True)]
    return values, [record["window_ns"] / n for record, n in zip(records, counts, strict=True)]


def _rows(records: Mapping[str, Sequence[Record]], ranks: Sequence[RankBreakdown]) -> list[list[str]]:
    there = [c for c in CATEGORIES if any(_of(record, c) for mine in records.values() for record in mine)]
    rows = []
    for group, members in GROUPS.items():
        mine = [c for c in members if c in there]
        if not mine:
            continue
        rows.append([group, *_line(records, lambda record, mine=mine: sum(_of(record, c) for c in mine))])
        if mine != [group]:
            rows += [[f"  {category_word(c)}", *_line(records, lambda record, c=c: _of(record, c))] for c in mine]
    return rows


def _line(records: Mapping[str, Sequence[Record]], of: Any) -> list[str]:
    return [cell for mine in records.values() for cell in _cells(*_both(mine, of))]


def _idle_rows(
    records: Mapping[str, Sequence[Record]], ranks: Sequence[RankBreakdown], by_phase: bool
) -> list[list[str]]:
    """Idle time, and below it the causes that take 0.1 % of a phase or more."""
    rows = [["idle" if ranks[0].kind == "gpu" else _OUTSIDE, *_line(records, lambda record: float(record["idle_ns"]))]]
    for cause, word in _CAUSES.items():
        cells: list[str] = []
        largest = 0.0
        for phase, mine in records.items():
            found = [
                float(
                    (rank.idle.get("phases", {}).get(phase, {}) if by_phase else rank.idle)
                    .get("causes", {})
                    .get(cause, 0)
                )
                for rank in ranks
            ]
            counts = [_steps(record) or 1 for record in mine]
            values = [ns / n for ns, n in zip(found, counts, strict=True)]
            windows = [record["window_ns"] / n for record, n in zip(mine, counts, strict=True)]
            largest = max([largest, *(v / w for v, w in zip(values, windows, strict=True))])
            cells += _cells(values, windows)
        rows += [[f"  {word}", *cells]] if largest >= 0.001 else []
    return rows


def _after(ranks: Sequence[RankBreakdown], phases: Sequence[str]) -> list[str]:
    """What of the pass the table leaves out, and what `other` consists of."""
    lines = []
    total = sum(rank.record["categories"]["other"]["exclusive_ns"] for rank in ranks)
    if total:
        names = pd.concat([rank.top_kernels().query("category == 'other'") for rank in ranks])
        largest = names.groupby("name", observed=True)["dur_ns"].sum().sort_values(ascending=False)
        short = short_kernel_names(largest.index.astype(str)[:_OTHERS], limit=60)
        more = f" and {len(largest) - _OTHERS} more" if len(largest) > _OTHERS else ""
        lines.append(f"  other is: {', '.join(short.values())}{more}")
    outside = max((int(rank.idle.get("outside_ns", 0)) for rank in ranks), default=0)
    if outside:
        lines.append(
            f"  outside the steps (in no share): {units.show_time(outside)} idle before the first and after the last"
        )
    left = {str(phase) for rank in ranks for phase in rank.steps["phase"]} - set(phases)
    lines += [f"  not on every rank, so not shown: {', '.join(sorted(left))}"] if left else []
    return lines


def _steps(record: Record) -> int:
    return int(record.get("steps", 0))


def _of(record: Record, category: str) -> int:
    return int(record["categories"].get(category, {}).get("exclusive_ns", 0))
