"""What `perflab breakdown` prints."""

from __future__ import annotations

from typing import Any

from perflab import units
from perflab.schema import CATEGORIES, GROUPS, PHASES
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown
from perflab.terminal.text import checks, findings, table


def breakdown(report: BreakdownReport) -> str:
    """The trust report, a table per rank, and the findings."""
    sources = dict.fromkeys(check.source for check in report.trust)
    blocks = [
        checks(f"Can it be trusted? {source}", [c for c in report.trust if c.source == source]) for source in sources
    ]
    blocks += [_rank(rank) for rank in report.ranks]
    return "\n\n".join([*blocks, findings(report.findings)]).rstrip()


def _rank(rank: RankBreakdown) -> str:
    place = "idle" if rank.kind == "gpu" else "outside operators (Python, waiting)"
    phases = {"all steps": rank.record} | {
        phase: rank.record["phases"][phase] for phase in PHASES if rank.record["phases"].get(phase, {}).get("steps")
    }
    head = ["share of time", *phases]
    rows = [
        [name, *(_share(sum(_of(record, c) for c in members), record) for record in phases.values())]
        for name, members in GROUPS.items()
    ]
    rows.append([place, *(_share(record["idle_ns"], record) for record in phases.values())])
    rows.append(["", *("" for _ in phases)])
    rows += [
        [f"  {category}", *(_share(_of(record, category), record) for record in phases.values())]
        for category in CATEGORIES
        if any(_of(record, category) for record in phases.values())
    ]
    rows.append(["", *("" for _ in phases)])
    rows.append(
        [
            "steps",
            str(len(rank.steps)),
            *(str(record["steps"]) for name, record in phases.items() if name != "all steps"),
        ]
    )
    rows.append(["time per step", *(_per_step(record, rank) for record in phases.values())])
    what = (
        "GPU time" if rank.kind == "gpu" else "CPU operators of the engine's worker thread; nothing here is about a GPU"
    )
    return f"{rank.run}, rank {rank.rank} on {rank.device}: {what}, window {units.show_time(rank.window_ns)}\n" + table(
        head, rows
    )


def _of(record: dict[str, Any], category: str) -> int:
    return int(record["categories"].get(category, {}).get("exclusive_ns", 0))


def _share(ns: int, record: dict[str, Any]) -> str:
    return units.show_share(ns / record["window_ns"]) if record["window_ns"] else "-"


def _per_step(record: dict[str, Any], rank: RankBreakdown) -> str:
    steps = record.get("steps", len(rank.steps))
    return units.show_time(record["window_ns"] / steps) if steps else "-"
