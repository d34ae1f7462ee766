"""Communication that no computation hides: is it transfer or waiting, who is waited for, and what would help."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding, Severity, bench_command, is_on
from perflab.analysis.ranks.communication import Communication
from perflab.analysis.rules.facts import PassFacts, RankFacts
from perflab.messages import say
from perflab.schema import CATEGORIES

_FUSED = "fuse_allreduce_rms"
_HOSTS = 0.5
"""Share of the waiting at the first collective of a step from which on the hosts are what the ranks wait for."""
_TELLS = 0.005
"""Difference of two shares from which on it is told why there are two."""
_ASYNC = ("enable_sp", "fuse_gemm_comms")
"""Passes of vLLM's compilation (`pass_config`)."""

_CUSTOM_ON = {"disable_custom_all_reduce": False}
_CUSTOM_SAVES = 0.41
"""Recorded on 2 H200: 64 KiB take vLLM's kernel 4.16 us and NCCL 7.01 us."""


@dataclass(frozen=True)
class _Cause:
    """What the exposed time is, how sure that is, what of it a change could save (ns a step), and the change.

    `share` is that of a step without the profiler where that is known; `most` the gravest that can be said.
    """

    name: str
    confidence: float
    share: float
    saving_ns: float
    evidence: tuple[str, ...]
    change: str
    most: Severity = "critical"
    settings: Mapping[str, Any] = field(default_factory=dict)


def exposed_communication(facts: PassFacts) -> Finding | None:
    """In the phase where it takes the largest share."""
    phases = facts.phases()
    if not phases:
        return None
    shares = {phase: [rank.share("communication", phase) for rank in facts.ranks] for phase in phases}
    phase = max(phases, key=lambda p: sum(shares[p]))
    found = shares[phase]
    if facts.severity(sum(found) / len(found), "exposed_communication") is None:
        return None
    step = sum(rank.step_ns(phase) for rank in facts.ranks) / len(found)
    cause = _cause(facts, phase, found, step)
    severity = facts.severity(cause.share, "exposed_communication")
    if severity is None:
        return None
    order: tuple[Severity, ...] = ("critical", "warning", "info")
    evidence = [
        say(
            "finding.communication.shares",
            least=units.show_share(min(found)),
            most=units.show_share(max(found)),
            phase=phase,
            ranks=len(found),
        ),
        *(
            [say("finding.communication.shares_without", share=units.show_share(cause.share))]
            if abs(cause.share - sum(found) / len(found)) > _TELLS
            else []
        ),
        say("finding.communication.exposed"),
        *cause.evidence,
    ]
    return Finding(
        id="exposed_communication",
        severity=max(severity, cause.most, key=order.index),
        confidence=cause.confidence,
        title=say(f"finding.communication.title_{cause.name}", share=units.show_share(cause.share), phase=phase),
        impact={"value": cause.saving_ns / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(evidence),
        change=cause.change,
        check=bench_command(facts.engine),
        run=facts.run,
        settings=cause.settings,
    )


def _cause(facts: PassFacts, phase: str, shares: Sequence[float], step: float) -> _Cause:
    """The likeliest cause; `shares` are the ranks' shares of exposed communication in a mean step of `step` ns."""
    known = facts.communication
    mean = sum(shares) / len(shares)
    off = is_on(facts.engine.settings.get("disable_custom_all_reduce"))
    if known is None or len(known.ranks) < 2 or not len(rows := _of_phase(known.matched, phase)):
        why = (say("finding.communication.custom_off"),) if off else ()
        change = say("finding.communication.change_custom") if off else say("finding.communication.change")
        settings = _CUSTOM_ON if off else {}
        return _Cause("unknown", 0.8 if off else 0.4, mean, min(shares) * step, why, change, settings=settings)
    steps = rows["step"].nunique()
    transfer = float(rows.drop_duplicates("seq")["transfer_ns"].sum()) / steps
    waits = {int(str(rank)): float(ns) / steps for rank, ns in rows.groupby("rank")["wait_ns"].sum().items()}
    waiting = sum(waits.values()) / len(waits)
    split = say(
        "finding.communication.split",
        transfer=units.show_time(transfer),
        waits=", ".join(f"{units.show_time(ns)} (rank {rank})" for rank, ns in waits.items()),
        phase=phase,
    )
    # What overlaps with compute is not exposed; the split is taken to be the same there.
    exposed = min(1.0, mean * step / (transfer + waiting)) if transfer + waiting else 0.0
    hosts, own, length, more = _own_waiting(facts, known, phase, waiting * exposed, step)
    share = (transfer * exposed + own) / length
    sizes = _of_phase(known.sizes, phase)
    said = (split, *more, *_sizes_said(known, sizes), *_straggler_said(facts, known, phase))
    if own <= transfer * exposed:
        return _transfer(facts, sizes, share, transfer * exposed, said, off)
    change = say("finding.communication.change_hosts" if hosts else "finding.communication.change_imbalance")
    if hosts and facts.unprofiled is None:
        return _Cause("waiting", 0.4, share, own, said, change, most="info")
    straggler = known.straggler(phase)
    named = straggler is not None and straggler.verdict == "straggler"
    return _Cause("waiting", 0.8 if named else 0.6, share, own, said, change)


def _own_waiting(
    facts: PassFacts, known: Communication, phase: str, waiting: float, step: float
) -> tuple[bool, float, float, list[str]]:
    """Whether the hosts make the ranks wait; waiting and step without what the profiler made; what to say of it.

    A rank whose host the profiler slows comes late to the first collective of a step, or, without CUDA graphs, to all
    of them after idling. Kernels take as long with it as without, so what a profiled step is longer by is such
    waiting, or waiting for the host itself.
    """
    straggler = known.straggler(phase)
    if straggler is None:
        return False, waiting, step, []
    first, idle = straggler.first_share or 0.0, _longer(facts, straggler.rank, phase, ("idle",))
    if first > _HOSTS:
        said = [say("finding.communication.hosts", share=units.show_share(first))]
    elif idle is not None and straggler.lag_ns > 0 and idle[1] > _HOSTS * straggler.lag_ns:
        said = [say("finding.communication.hosts_idle", rank=straggler.rank, time=units.show_time(idle[1]))]
    else:
        return False, waiting, step, []
    if phase != "decode" or facts.unprofiled is None:
        return True, waiting, step, said
    excess = facts.unprofiled.excess_ns(step)
    own = max(0.0, waiting - excess)
    said.append(
        say(
            "finding.communication.bounded" if own else "finding.communication.bounded_none",
            measured=units.show_time(facts.unprofiled.step_ns),
            concurrency=facts.unprofiled.concurrency,
            point=facts.unprofiled.point,
            **({"left": units.show_time(own)} if own else {}),
        )
    )
    return True, own, step - excess, said


def _transfer(
    facts: PassFacts, sizes: pd.DataFrame, share: float, exposed: float, said: tuple[str, ...], off: bool
) -> _Cause:
    reduces = sizes[sizes["op"] == "all_reduce"]
    main = reduces.loc[(reduces["count"] * reduces["transfer_ns"]).idxmax()] if len(reduces) else None
    bound, by = (None, None) if main is None else (main["bound"], main["by"])
    if bound == "bandwidth":
        change = say("finding.communication.change_bandwidth")
        if any(_pass_setting(facts, name) is False for name in _ASYNC):
            change += " " + say("finding.communication.change_async")
        return _Cause("bandwidth", 0.7, share, exposed, said, change)
    name = "latency" if bound == "latency" else "transfer"
    if off and by in ("nccl", None):
        said = (*said, say("finding.communication.custom_off"))
        change = say("finding.communication.change_custom")
        confidence = 0.9 if bound else 0.8
        return _Cause(name, confidence, share, _CUSTOM_SAVES * exposed, said, change, settings=_CUSTOM_ON)
    if bound is None:
        return _Cause(name, 0.5, share, exposed, said, say("finding.communication.change"))
    if by == "nccl":
        said = (*said, say("finding.communication.nccl_small"))
        change = say("finding.communication.change_nccl")
        return _Cause(name, 0.7, share, _CUSTOM_SAVES * exposed, said, change)
    change = say("finding.communication.change_latency")
    if _pass_setting(facts, _FUSED) and not (reduces["by"] == "flashinfer").any():
        said = (*said, say("finding.communication.not_fused"))
        change = f"{say('finding.communication.change_fused')} {change}"
    return _Cause(name, 0.6, share, exposed, said, change)


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
    fields = {"rank": str(found.rank), "phase": phase, "steps": str(found.steps), "least": str(found.least_steps)}
    lag = {
        name: units.show_time(ns)
        for name, ns in (("lag", found.lag_ns), ("low", found.low_ns), ("high", found.high_ns))
    }
    said = [say(f"finding.communication.straggler_{found.verdict}", **fields, **lag)]
    if found.verdict == "straggler" and (more := _longer(facts, found.rank, phase)) is not None:
        category, ns = more
        said.append(say("finding.communication.longer", rank=found.rank, category=category, time=units.show_time(ns)))
    return said


def _longer(
    facts: PassFacts, rank: int, phase: str, among: Sequence[str] = (*CATEGORIES, "idle")
) -> tuple[str, float] | None:
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
        for category in among
        if category != "communication"
    }
    category = max(more, key=lambda name: more[name])
    return (say(f"category.{category}"), more[category]) if more[category] > 0 else None


def _pass_setting(facts: PassFacts, name: str) -> bool | None:
    """A pass of vLLM's compilation, as its log prints the settings or as they read as text; None where not told."""
    settings = facts.engine.settings
    if (told := settings.get(f"compilation_config.pass_config.{name}")) is not None:
        return is_on(told)
    found = re.search(rf"{name}\W{{1,4}}(True|False|true|false)", str(settings.get("compilation_config") or ""))
    return is_on(found[1]) if found else None


def _of_phase(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[table["phase"].astype(str) == phase]
