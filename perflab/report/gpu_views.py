"""The answer about GPU time, and what it rests on: rooflines, parts of the model, memory (see `report.views`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perflab.analysis.attribution.summary import layer_table, module_table, rung_table
from perflab.analysis.roofline.bound import Verdict
from perflab.analysis.roofline.phases import RankRoofline
from perflab.analysis.roofline.table import roofline_table
from perflab.messages import say
from perflab.plots import style
from perflab.plots.breakdown import parts_of_phases
from perflab.report.views import Pieces, pass_names
from perflab.runs import Run
from perflab.tasks.breakdown import BreakdownReport, PassBreakdown, RankBreakdown
from perflab.tasks.kv_pressure import PREEMPTED, USE, WAITING, KvPressure, kv_pressure
from perflab.tasks.observed import spans

_SHORT = ("norm_act", "quantize", "sampling", "embedding", "graph_opaque", "other")


def answer_table(report: BreakdownReport) -> pd.DataFrame:
    """The answer in a row a run and phase: mean step, the share of each kind of work, and what bounds the phase.

    Ranks are taken together. Communication is what no computation hides; `memory` is the KV cache's writes, copies
    and sets. On a CPU engine `idle` is what lies outside operators.
    """
    rows = []
    for one, name in zip(report.passes, pass_names(report), strict=True):
        bounds = [rank.roofline for rank in one.ranks if rank.roofline is not None]
        tables = [rank.table for rank in one.ranks if len(rank.table)]
        if not tables:
            continue
        parts = parts_of_phases(pd.concat(tables))
        for phase, of in parts.groupby("phase", sort=False):
            share = dict(zip(of["part"], of["share"], strict=True))
            rows.append(
                {
                    "run": name,
                    "phase": phase,
                    "steps": int(of["steps"].iloc[0]),
                    "step_ns": float(of["step_ns"].sum()),
                    "GEMM share": share.get("gemm", 0.0),
                    "MoE share": share.get("moe", 0.0),
                    "attention share": share.get("attention", 0.0),
                    "other compute share": sum(share.get(part, 0.0) for part in _SHORT),
                    "KV and copies share": share.get("kv_cache", 0.0) + share.get("memory", 0.0),
                    "comm. share": share.get("communication", 0.0),
                    "idle share": share.get("idle", 0.0),
                    "bound by": _bound(bounds, str(phase)),
                    "reached share": _reach(bounds, str(phase)),
                }
            )
    table = pd.DataFrame(rows)
    unused = [name for name in ("MoE share", "comm. share") if name in table and not table[name].any()]
    return table.drop(columns=unused)


def first_steps(report: BreakdownReport) -> str:
    """A line a run: the gravest finding and what to try first; that nothing stands out where there is none."""
    lines = []
    for one, name in zip(report.passes, pass_names(report), strict=True):
        told = [finding for finding in one.findings if not finding.withheld]
        if told:
            fields = {"run": name, "title": told[0].title, "change": told[0].change}
            lines.append(say("notebook.breakdown.first", **fields))
        else:
            lines.append(say("notebook.breakdown.nothing_first", run=name))
    return "\n".join(f"- {line}" for line in lines)


def _verdicts(rooflines: Sequence[RankRoofline], phase: str) -> list[Verdict]:
    return [roof.phases[phase].verdict for roof in rooflines if phase in roof.phases]


def _bound(rooflines: Sequence[RankRoofline], phase: str) -> str | None:
    """What bounds the phase, in words; None where no rank has a roofline."""
    found = {verdict.bound for verdict in _verdicts(rooflines, phase)}
    if not found:
        return None
    if len(found) > 1:
        return say("notebook.breakdown.bound.differs")
    return say(f"notebook.breakdown.bound.{found.pop() or 'open'}")


def _reach(rooflines: Sequence[RankRoofline], phase: str) -> float | None:
    """How near the kernels that bound the phase come to their roof, on the rank where they come least near."""
    reached = [verdict.reach for verdict in _verdicts(rooflines, phase) if verdict.reach is not None]
    return min(reached, default=None)


# What bounds a phase


def rooflines(report: BreakdownReport) -> pd.DataFrame:
    """For `plot_roofline` and `plot_peak_shares`: `roofline_table` with runs called by their directories."""
    named = [
        (name, rank.roofline)
        for one, name in zip(report.passes, pass_names(report), strict=True)
        for rank in one.ranks
        if rank.roofline is not None
    ]
    return roofline_table(named)


def roofline_sentences(report: BreakdownReport) -> str:
    """What keeps rooflines from being drawn, or leaves a part of them out; empty where nothing does."""
    lines: dict[str, None] = {}
    for one, name in zip(report.passes, pass_names(report), strict=True):
        for rank in one.ranks:
            if rank.roofline is None:
                continue
            withheld = [text for phase in rank.roofline.phases.values() for text in phase.withheld]
            for text in dict.fromkeys([*rank.roofline.missing, *withheld]):
                lines[f"- {name}: {text}"] = None
    return "\n".join(lines)


def bandwidth_table(report: BreakdownReport) -> pd.DataFrame:
    """Memory as bandwidth: the share of a step's time in kernels that wait for memory, KV writes, and copies."""
    rows = []
    for one, name in zip(report.passes, pass_names(report), strict=True):
        rank = next((r for r in one.ranks if r.roofline is not None and r.roofline.phases), None)
        for phase in rank.roofline.phases.values() if rank and rank.roofline else ():
            view = phase.memory
            rows.append(
                {
                    "run": name,
                    "phase": phase.phase,
                    "bandwidth-bound kernels share": view.bandwidth_bound,
                    "KV cache writes share": view.kv_writes,
                    "copies and sets share": view.copies,
                    "in all share": view.total,
                    "not known share": view.unknown,
                    "at_least_moved_bytes": phase.bytes,
                }
            )
    return pd.DataFrame(rows)


# Operators, layers and parts of the model


def rungs(report: BreakdownReport) -> pd.DataFrame:
    """For `plot_rungs`: how it is known where kernels belong, a bar a run (its first rank)."""
    tables = [rung_table(rank.attribution).assign(run=name) for rank, name in _attributed(report)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["rung", "share", "run"])


def module_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_modules`: time by part of the model, the first rank of each run."""
    return [{"table": module_table(rank.attribution), "run": name} for rank, name in _attributed(report)]


def layer_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_layers`: time by layer, the first rank of each run that shows layers."""
    tables = [(layer_table(rank.attribution), name) for rank, name in _attributed(report)]
    return [{"table": table, "run": name} for table, name in tables if table["layer"].notna().any()]


def _attributed(report: BreakdownReport) -> list[tuple[Any, str]]:
    found = []
    for one, name in zip(report.passes, pass_names(report), strict=True):
        rank = _first(one)
        if rank is not None and rank.attribution is not None and rank.busy_ns:
            found.append((rank, name))
    return found


def _first(one: PassBreakdown) -> RankBreakdown | None:
    return min(one.ranks, key=lambda rank: rank.rank, default=None)


# Memory over time


def pressure_pieces(runs: Sequence[Run]) -> Pieces:
    """For `plot_telemetry`: use of the KV cache, requests waiting for room, and preemptions, of each run that tells."""
    pieces: Pieces = []
    for run in runs:
        known = kv_pressure(run)
        if known is None:
            continue
        told = spans(run)
        shown = {USE: "KV cache in use", WAITING: "requests waiting", PREEMPTED: "preempted so far"}
        pieces.append(
            {
                "samples": known.samples,
                # A panel of zeros tells no more than the title does.
                "metrics": {name: word for name, word in shown.items() if name == USE or known.most(name)},
                "spans": told if len(told) and known.source != "log" else None,
                "title": _pressure_title(known),
                "of": f"{run.path.name}, {say(f'notebook.memory.from_{known.source}')}",
            }
        )
    return pieces


def _pressure_title(known: KvPressure) -> str:
    told = [f"{(known.most(USE) or 0) * 100:.1f} % of the KV cache in use"]
    if (waiting := known.most(WAITING)) is not None:
        told.append(f"{waiting:,.0f} requests waiting")
    if (lost := known.most(PREEMPTED)) is not None:
        told.append(f"{lost:,.0f} preempted")
    return f"At most {style.join(told)}"
