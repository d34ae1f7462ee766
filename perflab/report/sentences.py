"""What figures and tables mean, in sentences of the catalogue with their numbers filled in."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab import units
from perflab.messages import say
from perflab.plots import style
from perflab.plots.breakdown import parts_of_phases
from perflab.plots.style import word
from perflab.report.points import named_points
from perflab.report.views import run_name
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown
from perflab.tasks.latency import LatencyReport

_TOLD_PHASES = ("decode", "mixed", "prefill", "all")


def breakdown_sentences(report: BreakdownReport) -> str:
    """A line a rank: how busy it was, how long a step takes, and what takes most of it."""
    return "\n".join(f"- {_of_rank(rank)}" for rank in report.ranks)


def latency_sentences(report: LatencyReport) -> str:
    """A line a run and workload: what more load bought and what it cost; then how often was measured."""
    points = named_points(report)
    lines = [
        _of_loads(str(run), str(lengths), group)
        for (run, lengths), group in points.groupby(["run", "lengths"], sort=False)
    ]
    least = int(points.groupby(["run", "lengths", "load"]).size().min())
    lines.append(say("notebook.latency.once") if least == 1 else say("notebook.latency.repeated", n=least))
    return "\n".join(f"- {line}" for line in lines)


def memory_sentences(memory: pd.DataFrame) -> str:
    """A line a run of a `memory_table`: weights, KV cache and how many tokens it holds, as far as known."""
    if memory.empty:
        return say("notebook.memory.unknown")
    lines = []
    for (run, device), group in memory.groupby(["run", "device"], sort=False):
        sizes = group.groupby("component")["bytes"].max()
        known = [name for name in ("weights", "kv_cache") if name in sizes.index]
        told = style.join([f"{word(name)} {units.show_bytes(sizes[name])}" for name in known])
        tokens = group["kv_cache_tokens"].dropna()
        line = [say(f"notebook.memory.{str(device).lower()}", run=run, sizes=told or say("notebook.not_measured"))]
        if len(tokens):
            line.append(say("notebook.memory.tokens", tokens=units.show_count(tokens.iloc[0])))
        lines.append(" ".join(line))
    return "\n".join(f"- {line}" for line in lines)


def _of_rank(rank: RankBreakdown) -> str:
    parts = parts_of_phases(rank.table)
    where: dict[str, Any] = {"run": run_name(rank.source), "rank": rank.rank, "device": rank.device}
    if parts.empty:
        return say("notebook.breakdown.nothing", **where)
    phase = next(p for p in _TOLD_PHASES if p in set(parts["phase"]))
    of = parts[parts["phase"] == phase].set_index("part")
    busy = of.drop(index="idle", errors="ignore")
    top = str(busy["share"].idxmax()) if len(busy) else "idle"
    return say(
        f"notebook.breakdown.{rank.kind}_{'window' if phase == 'all' else 'step'}",
        **where,
        phase=phase,
        step=units.show_time(float(of["step_ns"].sum())),
        steps=int(of["steps"].iloc[0]),
        part=word(top),
        share=units.show_share(float(of.loc[top, "share"])),
        idle=units.show_share(float(of["share"].get("idle", 0.0))),
        window=units.show_time(rank.window_ns),
    )


def _of_loads(run: str, lengths: str, points: pd.DataFrame) -> str:
    medians = points.groupby("load", sort=False)[["output_tokens_per_s", "tpot_p50_ms", "ttft_p50_ms"]].median()
    medians = medians.dropna(subset=["output_tokens_per_s"]).sort_values("output_tokens_per_s")
    where = {"run": run, "lengths": f" ({lengths})" if lengths else ""}
    if medians.empty:
        return say("notebook.latency.nothing", **where)
    low, high = medians.iloc[0], medians.iloc[-1]
    fields = {
        "low": medians.index[0],
        "high": medians.index[-1],
        "factor": f"{high['output_tokens_per_s'] / low['output_tokens_per_s']:.1f}",
    }
    for name, row in (("low", low), ("high", high)):
        fields[f"{name}_rate"] = units.show_count(row["output_tokens_per_s"])
        fields[f"{name}_tpot"], fields[f"{name}_ttft"] = _ms(row["tpot_p50_ms"]), _ms(row["ttft_p50_ms"])
    return say("notebook.latency.one_load" if len(medians) == 1 else "notebook.latency.loads", **where, **fields)


def _ms(value: float) -> str:
    return say("notebook.not_measured") if pd.isna(value) else units.show_time(value * units.NS_PER_MS)
