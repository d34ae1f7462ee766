"""Communication that no computation hides: is it transfer or waiting, who is waited for, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perflab import units
from perflab.analysis.communication import Communication
from perflab.analysis.finding import Finding, bench_command, is_on
from perflab.analysis.rules.facts import PassFacts, RankFacts
from perflab.messages import say
from perflab.schema import CATEGORIES

_FUSED = "compilation_config.pass_config.fuse_allreduce_rms"
_ASYNC = ("compilation_config.pass_config.enable_sp", "compilation_config.pass_config.fuse_gemm_comms")


@dataclass(frozen=True)
class _Cause:
    """What the exposed time is, how sure that is, what of it a change could save (ns a step), and the change."""

    name: str
    confidence: float
    saving_ns: float | None
    evidence: tuple[str, ...]
    change: str


def exposed_communication(facts: PassFacts) -> Finding | None:
    """In the phase where it takes the largest share."""
    phases = facts.phases()
    if not phases:
        return None
    shares = {phase: [rank.share("communication", phase) for rank in facts.ranks] for phase in phases}
    phase = max(phases, key=lambda p: sum(shares[p]))
    found = shares[phase]
    mean = sum(found) / len(found)
    severity = facts.severity(mean, "exposed_communication")
    if severity is None:
        return None
    step = sum(rank.step_ns(phase) for rank in facts.ranks) / len(found)
    cause = _cause(facts, phase, [share * step for share in found])
    evidence = [
        say(
            "finding.communication.shares",
            least=units.show_share(min(found)),
            most=units.show_share(max(found)),
            phase=phase,
            ranks=len(found),
        ),
        say("finding.communication.exposed"),
        *cause.evidence,
    ]
    saving = min(found) * step if cause.saving_ns is None else cause.saving_ns
    return Finding(
        id="exposed_communication",
        severity=severity,
        confidence=cause.confidence,
        title=say(f"finding.communication.title_{cause.name}", share=units.show_share(mean), phase=phase),
        impact={"value": saving / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=cause.change,
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _cause(facts: PassFacts, phase: str, exposed_ns: Sequence[float]) -> _Cause:
    """The likeliest cause; `exposed_ns` is a rank's exposed communication in a mean step."""
    known = facts.communication
    off = is_on(facts.engine.settings.get("disable_custom_all_reduce"))
    off_said = (say("finding.communication.custom_off"),) if off else ()
    if known is None or len(known.ranks) < 2 or not len(rows := _of_phase(known.matched, phase)):
        change = say("finding.communication.change_custom") if off else say("finding.communication.change")
        return _Cause("unknown", 0.8 if off else 0.4, None, off_said, change)
    steps = rows["step"].nunique()
    transfer = float(rows.drop_duplicates("seq")["transfer_ns"].sum()) / steps
    waits = {int(str(rank)): float(ns) / steps for rank, ns in rows.groupby("rank")["wait_ns"].sum().items()}
    waiting = sum(waits.values()) / len(waits)
    # What overlaps with compute is not exposed; the split is taken to be the same there.
    hidden = min(1.0, sum(exposed_ns) / len(exposed_ns) / (transfer + waiting)) if transfer + waiting else 0.0
    split = say(
        "finding.communication.split",
        transfer=units.show_time(transfer),
        waits=", ".join(f"{units.show_time(ns)} (rank {rank})" for rank, ns in waits.items()),
        phase=phase,
    )
    sizes = _of_phase(known.sizes, phase)
    said = (split, *_sizes_said(known, sizes), *_straggler_said(facts, known, phase))
    if waiting > transfer:
        return _waiting(known, phase, waiting * hidden, said)
    return _transfer(facts, known, sizes, transfer * hidden, (*said, *off_said), off)


def _waiting(known: Communication, phase: str, saving: float, said: tuple[str, ...]) -> _Cause:
    straggler = known.straggler(phase)
    first = straggler is not None and straggler.first_share is not None and straggler.first_share > 0.5
    named = straggler is not None and straggler.verdict == "straggler"
    change = say("finding.communication.change_hosts" if first else "finding.communication.change_imbalance")
    return _Cause("waiting", 0.8 if named else 0.6, saving, said, change)


def _transfer(
    facts: PassFacts, known: Communication, sizes: pd.DataFrame, saving: float, said: tuple[str, ...], off: bool
) -> _Cause:
    reduces = sizes[sizes["op"] == "all_reduce"]
    main = reduces.loc[(reduces["count"] * reduces["transfer_ns"]).idxmax()] if len(reduces) else None
    if main is None or main["bound"] is None:
        change = say("finding.communication.change_custom") if off else say("finding.communication.change")
        return _Cause("transfer", 0.8 if off else 0.5, saving, said, change)
    if main["bound"] == "bandwidth":
        change = say("finding.communication.change_bandwidth")
        if any(key in facts.engine.settings for key in _ASYNC):
            change += " " + say("finding.communication.change_async")
        return _Cause("bandwidth", 0.7, saving, said, change)
    if main["by"] == "nccl":
        if off:
            return _Cause("latency", 0.9, saving, said, say("finding.communication.change_custom"))
        nccl = say("finding.communication.nccl_small")
        return _Cause("latency", 0.7, saving, (*said, nccl), say("finding.communication.change_nccl"))
    fused = is_on(facts.engine.settings.get(_FUSED)) and not (reduces["by"] == "flashinfer").any()
    if fused:
        said = (*said, say("finding.communication.not_fused"))
        change = f"{say('finding.communication.change_fused')} {say('finding.communication.change_latency')}"
        return _Cause("latency", 0.6, saving, said, change)
    return _Cause("latency", 0.6, saving, said, say("finding.communication.change_latency"))


def _sizes_said(known: Communication, sizes: pd.DataFrame) -> list[str]:
    """The sizes that take most of the time, two at most, each with what bounds it."""
    said = []
    time = sizes["count"] * sizes["transfer_ns"]
    kept = sizes[time >= 0.2 * time.sum()].assign(time=time).sort_values("time", ascending=False)
    for row in kept.head(2).to_dict("records"):
        if row["bound"] is None or known.link is None:
            continue
        said.append(
            say(
                f"finding.communication.size_{row['bound']}",
                op=say(f"finding.communication.op.{row['op']}"),
                n=units.show_count(row["count"]),
                by=say(f"finding.communication.by.{row['by']}"),
                size=units.show_bytes(int(row["bytes"])),
                source=say(f"finding.communication.source.{row['bytes_source']}"),
                time=units.show_time(row["transfer_ns"]),
                bandwidth=f"{row['bus_bandwidth'] / 1e9:.0f}",
                share=units.show_share(row["of_peak"]),
                link=known.link.kind,
                peak=f"{known.link.among(int(row['ranks'])) / 1e9:.0f}",
                least=units.show_time(row["transfer_ns"] * row["of_peak"]),
            )
        )
    return said


def _straggler_said(facts: PassFacts, known: Communication, phase: str) -> list[str]:
    found = known.straggler(phase)
    if found is None or found.verdict == "too_few_steps" or not found.least_steps:
        return []
    fields = {
        "rank": str(found.rank), "phase": phase, "steps": str(found.steps), "least": str(found.least_steps),
        "lag": units.show_time(found.lag_ns), "low": units.show_time(found.low_ns),
        "high": units.show_time(found.high_ns),
    }  # fmt: skip
    said = [say(f"finding.communication.straggler_{found.verdict}", **fields)]
    if found.verdict == "straggler" and (more := _longer(facts, found.rank, phase)) is not None:
        category, ns = more
        said.append(say("finding.communication.longer", rank=found.rank, category=category, time=units.show_time(ns)))
    return said


def _longer(facts: PassFacts, rank: int, phase: str) -> tuple[str, float] | None:
    """What the rank spends more time a step on than the others do on average, and how much; None without them."""
    own = next((one for one in facts.ranks if one.rank == rank), None)
    others = [one for one in facts.ranks if one.rank != rank]
    if own is None or not others:
        return None

    def per_step(one: RankFacts, category: str) -> float:
        record = one.phase(phase)
        ns = record["idle_ns"] if category == "idle" else record["categories"][category]["exclusive_ns"]
        return float(ns) / float(record["steps"])

    more = {
        category: per_step(own, category) - sum(per_step(one, category) for one in others) / len(others)
        for category in (*CATEGORIES, "idle")
        if category != "communication"
    }
    category = max(more, key=lambda name: more[name])
    return (say(f"category.{category}"), more[category]) if more[category] > 0 else None


def _of_phase(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[table["phase"].astype(str) == phase]
