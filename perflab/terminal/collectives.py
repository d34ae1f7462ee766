"""What `perflab breakdown` prints about the communication of ranks."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.ranks.communication import Communication
from perflab.analysis.ranks.stragglers import Straggler
from perflab.terminal.text import table

_COLUMNS = 4
"""Ranks that have a column of their own; of more only the least and the most waiting is shown."""

_ORDER = ("decode", "mixed", "prefill", "all")

_VERDICTS = {
    "straggler": "rank {rank}, in {least} of {steps} steps, by {lag}",
    "even": "no rank consistently",
    "too_few_steps": "too few steps to say",
    "clocks": "not certain by the clocks",
    "disagree": "not certain: who waits least is not last",
}
_BOUNDS = {"latency": "latency", "bandwidth": "bandwidth", "implausible": "size or link is wrong"}


def collectives(found: Communication, run: str) -> str:
    """Transfer and waiting by phase, then the sizes of messages; empty where only one rank has collectives."""
    if len(found.ranks) < 2 or found.matched.empty:
        return ""
    lines = [f"{run}: collectives of {len(found.ranks)} ranks, time per step", _waiting(found)]
    if len(found.sizes):
        lines += ["", _sizes(found)]
    return "\n".join(lines)


def _waiting(found: Communication) -> str:
    totals = found.totals()
    many = len(found.ranks) > _COLUMNS
    waits = ["least waiting", "most waiting"] if many else [f"rank {rank} waits" for rank in found.ranks]
    rows = []
    for phase in _ORDER:
        of_phase = totals[totals["phase"] == phase].set_index("rank")
        if of_phase.empty:
            continue
        rows_of = found.matched[found.matched["phase"] == phase]
        steps = max(int(rows_of["step"].nunique()), 1)
        once = rows_of.drop_duplicates("seq")
        by_rank = {int(str(rank)): float(ns) / steps for rank, ns in of_phase["wait_ns"].items()}
        cells = [units.show_time(by_rank[rank]) if rank in by_rank else "-" for rank in found.ranks]
        if many:
            ends = (min(by_rank, key=lambda r: by_rank[r]), max(by_rank, key=lambda r: by_rank[r]))
            cells = [f"{units.show_time(by_rank[rank])} (rank {rank})" for rank in ends]
        rows.append([
            "whole window" if phase == "all" else phase, str(steps), f"{len(once) / steps:g}",
            units.show_time(float(once["transfer_ns"].sum()) / steps), *cells, _waited_for(found.straggler(phase)),
        ])  # fmt: skip
    return table(["", "steps", "collectives", "transfer", *waits, "waited for"], rows)


def _waited_for(found: Straggler | None) -> str:
    if found is None:
        return "-"
    return _VERDICTS[found.verdict].format(
        rank=found.rank, least=found.least_steps, steps=found.steps, lag=units.show_time(found.lag_ns)
    )


def _sizes(found: Communication) -> str:
    peak = found.link
    head = ["op", "by", "in", "size", "n", "time each", "bus GB/s", "of link", "bound by"]
    rows = [
        [
            str(row["op"]), str(row["by"]), str(row["phase"]), _size(row), units.show_count(row["count"]),
            units.show_time(row["transfer_ns"]), _gb(row["bus_bandwidth"]),
            "-" if _none(row["of_peak"]) else units.show_share(row["of_peak"]), _BOUNDS.get(row["bound"] or "", "-"),
        ]
        for row in sorted(found.sizes.to_dict("records"), key=lambda row: _ORDER.index(row["phase"]))
    ]  # fmt: skip
    said = table(head, rows, left=3)
    if peak is not None:
        said += f"\n  {peak.kind} carries {peak.bytes_per_s / 1e9:.0f} GB/s in one direction; ~ is an inferred size"
    return said


def _size(row: dict[str, Any]) -> str:
    if _none(row["bytes"]):
        return "-"
    return ("~" if row["bytes_source"] == "inferred" else "") + units.show_bytes(int(row["bytes"]))


def _gb(value: Any) -> str:
    return "-" if _none(value) else f"{value / 1e9:,.1f}"


def _none(value: Any) -> bool:
    return value is None or bool(pd.isna(value))
