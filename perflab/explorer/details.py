"""What is said of one activity, of one host call, and of a pass as a whole."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import undermined
from perflab.explorer.rank_times import RankTimes
from perflab.messages import say
from perflab.schema import CATEGORIES
from perflab.tasks.breakdown import PassBreakdown

Facts = list[list[str]]


def activity_facts(times: RankTimes, row: int) -> Facts:
    """Pairs of word and value for an activity of the rank; what is not known is left out."""
    activity = times.rank.kernels.iloc[row]
    lane = "thread" if times.rank.kind == "cpu" else "stream"
    facts = [[lane, str(int(activity["stream"]))]]
    step = int(times.step[row])
    if step >= 0:
        into = int(times.start[row]) - int(times.steps["start_ns"].iloc[step])
        where = say(
            "explorer.in_step",
            step=int(times.steps["step"].iloc[step]), phase=times.steps["phase"].iloc[step], into=units.show_time(into),
        )  # fmt: skip
        facts.append(["step", where])
    if pd.notna(activity["bytes"]):
        facts.append(["bytes", units.show_bytes(int(activity["bytes"]))])
    if times.rank.kind == "cpu":
        facts.append(["own time", units.show_time(int(times.own_ns[row]))])
    if int(activity["graph_id"]) >= 0:
        facts.append(["CUDA graph", f"replay {int(activity['correlation_id'])}"])
    return facts + _attributed(times, row)


def _attributed(times: RankTimes, row: int) -> Facts:
    known = times.rank.attribution
    if known is None:
        return []
    one = known.rows.iloc[row]
    facts = [
        [word, str(one[name])]
        for word, name in (("part", "module"), ("layer", "layer"), ("operator", "operator"))
        if pd.notna(one[name]) and str(one[name])
    ]
    return [*facts, ["known by", say(f"explorer.rung.{one['rung']}")]] if facts else []


def call_facts(times: RankTimes, row: int) -> Facts:
    """Pairs of word and value for a call of the host."""
    call = times.rank.launches.iloc[row]
    facts = [["thread", str(int(call["thread"]))]]
    if int(call["correlation_id"]) >= 0:
        asked_for = int((times.rank.kernels["correlation_id"] == call["correlation_id"]).sum())
        facts.append(["asked for", f"{asked_for:,} activities" if asked_for != 1 else "1 activity"])
    return facts


def cautions(broken: PassBreakdown) -> list[str]:
    """What failed checks say about the pass; empty where the breakdown can be trusted."""
    failed = undermined(broken.checks, of.BREAKDOWN, of.PHASES)
    return [] if failed is None else [say("explorer.caution", why=failed.detail)]


def breakdown_rows(run: int, name: str, broken: PassBreakdown, phase: str) -> list[dict[str, Any]]:
    """A row a rank: time of each category and idle time in a phase (`all`: in every step), and steps."""
    rows = []
    for rank in broken.ranks:
        record = rank.record if phase == "all" else rank.record["phases"].get(phase)
        base = {"run": run, "name": name, "rank": rank.rank, "device": rank.device, "kind": rank.kind}
        if not record or not record.get("window_ns"):
            rows.append(base | {"ns": 0, "parts": {}, "steps": 0})
            continue
        parts = {one: int(record["categories"][one]["exclusive_ns"]) for one in CATEGORIES}
        steps = len(rank.steps) if phase == "all" else int(record["steps"])
        shown = {one: ns for one, ns in parts.items() if ns} | {"idle": int(record["idle_ns"])}
        rows.append(base | {"ns": int(record["window_ns"]), "parts": shown, "steps": steps})
    return rows
