"""Where does the time go? Traces of runs, or trace files, broken down by category with the trust report first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from perflab.analysis import check as of
from perflab.analysis.attribution import Attribution
from perflab.analysis.attribution.summary import to_json as attribution_json
from perflab.analysis.attribution.trust import with_attribution
from perflab.analysis.breakdown import breakdown as gpu_breakdown
from perflab.analysis.breakdown import cpu_breakdown, self_times, summary
from perflab.analysis.check import undermined
from perflab.analysis.checks import Check, TraceFacts, trace_checks
from perflab.analysis.finding import Finding
from perflab.analysis.findings import effect_findings, gravest_first, pass_findings
from perflab.analysis.idle import idle_gaps, idle_summary
from perflab.analysis.kernels import categorize, name_totals, operators
from perflab.analysis.model.kv_from_load import OneLength
from perflab.analysis.own import RulesUse, own_checks, rules_use
from perflab.analysis.ranks.communication import Communication, communication_checks
from perflab.analysis.roofline.phases import RankRoofline, rank_roofline, withheld_roofline
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.analysis.steps import steps_from_ranges
from perflab.analysis.trust import calls_device
from perflab.analysis.unprofiled import slowdown_check
from perflab.errors import InputError
from perflab.knowledge.categories import Rules
from perflab.knowledge.gpus import gpu_spec
from perflab.messages import say
from perflab.read.trace import Trace
from perflab.tasks.again import again
from perflab.tasks.attribution import Attributor, is_small
from perflab.tasks.collectives import pass_communication
from perflab.tasks.model_config import config_of
from perflab.tasks.own import Own, own
from perflab.tasks.profile_log import profile_checks, why_no_trace
from perflab.tasks.quantize.check import run_effect
from perflab.tasks.traces import PassSource, all_sources
from perflab.tasks.unprofiled import unprofiled_step


@dataclass(frozen=True)
class RankBreakdown:
    """The breakdown of one rank's trace.

    Attributes
    ----------
    source, run
        The trace file, and the title of the run it belongs to.
    kind
        `gpu`: device time. `cpu`: a CPU engine's operators on the worker thread, self time; nothing here is
        about a GPU.
    record
        `window_ns`, `busy_ns`, `idle_ns`, `categories`, `phases` as in the JSON contract.
    table
        Table `breakdown`. `gaps`: from `perflab.analysis.idle.idle_gaps` (empty for `cpu`).
    kernels
        Table `kernels` with categories; for `cpu` the operators, `stream` being the thread.
    roofline
        What the phases did of what the GPU can do; None for `cpu`.
    attribution
        The operator, layer and part of the model of every kernel; None for `cpu`, and where it was not asked for.
    """

    source: Path
    run: str
    rank: int
    device: str
    kind: Literal["gpu", "cpu"]
    record: dict[str, Any]
    table: pd.DataFrame
    kernels: pd.DataFrame
    launches: pd.DataFrame
    ranges: pd.DataFrame
    steps: pd.DataFrame
    gaps: pd.DataFrame
    idle: dict[str, Any]
    roofline: RankRoofline | None = None
    attribution: Attribution | None = None

    @property
    def window_ns(self) -> int:
        """From the first step's start to the end of the last step's work."""
        return int(self.record["window_ns"])

    @property
    def busy_ns(self) -> int:
        """Time in which at least one activity ran."""
        return int(self.record["busy_ns"])

    @property
    def idle_ns(self) -> int:
        """The rest of the window."""
        return int(self.record["idle_ns"])

    def top_kernels(self) -> pd.DataFrame:
        """Names by plain sum of time (of own time for nested operators): `name`, `category`, `kind`, `count`, ..."""
        return name_totals(self.kernels if self.kind == "gpu" else self_times(self.kernels))

    def to_json(self) -> dict[str, Any]:
        """The rank as the JSON contract has it; figures of a rank of which nothing was recorded are null."""
        nothing = {} if self.window_ns else dict.fromkeys(("window_ns", "busy_ns", "idle_ns"))
        return {
            "run": self.run,
            "source": str(self.source),
            "device": self.device,
            **self.record,
            **nothing,
            "idle": self.idle,
            "roofline": self.roofline.to_json() if self.roofline else None,
            "attribution": attribution_json(self.attribution) if self.attribution else None,
        }


@dataclass(frozen=True)
class PassBreakdown:
    """One profiling pass: its ranks, whether they can be trusted, and what follows.

    Attributes
    ----------
    source
        Which traces, and of what engine.
    checks
        From `perflab.analysis.trust.trace_checks`.
    communication
        Collectives, clocks and who is waited for; None where no kernel communicates.
    """

    source: PassSource
    ranks: list[RankBreakdown]
    checks: list[Check]
    findings: list[Finding]
    user_rules: RulesUse | None = None
    communication: Communication | None = None


@dataclass(frozen=True)
class BreakdownReport:
    """What `breakdown` answers."""

    inputs: list[str]
    passes: list[PassBreakdown]

    @property
    def ranks(self) -> list[RankBreakdown]:
        """The ranks of all passes."""
        return [rank for one in self.passes for rank in one.ranks]

    @property
    def trust(self) -> list[Check]:
        """The checks of all passes."""
        return [check for one in self.passes for check in one.checks]

    @property
    def findings(self) -> list[Finding]:
        """The findings of all passes."""
        return [finding for one in self.passes for finding in one.findings]

    def to_json(self) -> dict[str, Any]:
        """The `breakdown` document of the JSON contract."""
        talking = [(one.source.run, one.communication) for one in self.passes if one.communication is not None]
        return {
            "schema": 1,
            "inputs": self.inputs,
            "trust": [check.to_json() for check in self.trust],
            "ranks": [rank.to_json() for rank in self.ranks],
            "collectives": [{**op, "run": run} for run, found in talking for op in found.to_json()],
            "communication": [{"run": run, **found.clocks_json()} for run, found in talking],
            "findings": [finding.to_json() for finding in self.findings],
            "user_rules": [one.user_rules.to_json() for one in self.passes if one.user_rules is not None],
        }


def breakdown(
    paths: str | Path | Sequence[str | Path],
    *,
    teacher: bool = False,
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
    attribution: bool | None = None,
) -> BreakdownReport:
    """Break down the traces of runs (by path or recorded name), of trace files, or of folders with trace files.

    Parameters
    ----------
    teacher
        Take the teacher passes of runs, which tell what operators kernels belong to, instead of those of the engine
        as it was measured. The two are never shown together: without CUDA graphs the times are others.
    rules, thresholds
        The user's own files; see `perflab.tasks.own.own`.
    attribution
        Whether to say which operator, layer and part of the model every kernel belongs to, for which traces are read
        once more. None: where the files are small (`perflab.tasks.attribution.SMALL_BYTES`).

    Raises
    ------
    InputError
        When a path is none of these, no trace is there, or a file of the user's cannot be used.
    """
    users = own(rules, thresholds)
    parts = [paths] if isinstance(paths, str | Path) else list(paths)
    sources = all_sources(parts, "teacher" if teacher else "measured")
    if not any(source.files for source in sources):
        others = all_sources(parts, "measured" if teacher else "teacher")
        why = "no_trace" if not others else "no_teacher" if teacher else "only_teacher"
        told = why_no_trace(parts) or say(f"breakdown.{why}")
        raise InputError(told, path=str(parts[0]) if parts else None)
    return BreakdownReport(
        [str(part) for part in parts], [pass_breakdown(source, users, attribution) for source in sources]
    )


def pass_breakdown(source: PassSource, users: Own, attribution: bool | None = None) -> PassBreakdown:
    """One profiling pass, read and broken down; `attribution` as for `breakdown`."""
    traces = source.traces()
    config = config_of(source)
    broken = [_rank_breakdown(source, trace, users.rules) for trace in traces]
    ranks = [_with_roofline(rank, config, source, users) for rank in broken]
    if is_small(source) if attribution is None else attribution:
        ranks = _attributed(source, traces, ranks, users, config)
    trace_facts = [_facts(trace, rank) for trace, rank in zip(traces, ranks, strict=True)]
    use = rules_use([rank.kernels if rank.kind == "gpu" else self_times(rank.kernels) for rank in ranks], users.rules)
    kind = "CPU" if any(rank.kind == "cpu" for rank in ranks) else "GPU"
    checks = trace_checks(trace_facts, run=source.run, thresholds=users.thresholds)
    checks = with_attribution(checks, [rank.attribution for rank in ranks if rank.attribution is not None])
    checks += own_checks(use, users.thresholds, kind=kind, run=source.run)
    checks += profile_checks(source.home, source=source.run)
    talk = pass_communication(
        traces,
        [rank.kernels for rank in ranks],
        [rank.steps for rank in ranks],
        settings=source.engine.settings,
        config=config,
        thresholds=users.thresholds,
    )
    checks += communication_checks(talk, run=source.run)
    unprofiled = unprofiled_step(source.home, [rank.steps for rank in ranks if rank.kind == "gpu"])
    if source.profile is None or source.profile.role == "measured":
        records = [rank.record for rank in ranks]
        checks += slowdown_check(records, unprofiled, users.thresholds, run=source.run)
    facts = PassFacts(
        ranks=[
            RankFacts(rank.record, rank.idle, rank.kernels, rank.steps, rank.roofline)
            for rank in ranks
            if rank.window_ns
        ],
        engine=source.engine,
        checks=checks,
        run=source.run,
        thresholds=users.thresholds,
        communication=talk,
        unprofiled=unprofiled,
        again=again(source.home),
    )
    findings = gravest_first([*pass_findings(facts), *_of_quantization(source)])
    failed = undermined(checks, of.BREAKDOWN, of.PHASES)
    if failed is not None:
        reason = say("roofline.missing.trust", why=failed.detail)
        ranks = [
            replace(one, roofline=withheld_roofline(one.roofline, reason)) if one.roofline else one for one in ranks
        ]
    return PassBreakdown(source, ranks, checks, findings, use, talk)


def _of_quantization(source: PassSource) -> list[Finding]:
    """Whether a quantization took effect, by what the run's log says of memory and kernels."""
    effect = run_effect(source.home, traces=False) if source.home is not None else None
    return [] if effect is None else effect_findings(effect, source.engine)


def _rank_breakdown(source: PassSource, trace: Trace, rules: Rules) -> RankBreakdown:
    # A host that called for device work of which nothing was recorded is no CPU engine.
    if trace.has_gpu or trace.cpu_ops is None or calls_device(trace.launches):
        kernels = categorize(trace.kernels, rules)
        steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
        table = gpu_breakdown(kernels, steps)
        kind: Literal["gpu", "cpu"] = "gpu"
    else:
        kernels = operators(trace.cpu_ops, rules)
        steps = steps_from_ranges(trace.ranges, kernels)
        table = cpu_breakdown(kernels, trace.ranges)
        kind = "cpu"
    gaps = idle_gaps(kernels, steps, trace.launches, trace.ranges)
    records = summary(table)
    return RankBreakdown(
        source=trace.path,
        run=source.run,
        rank=trace.rank,
        device=trace.device_name or say("breakdown.cpu_device" if kind == "cpu" else "breakdown.unknown_device"),
        kind=kind,
        record=records[0] if records else _nothing(trace.rank, kind),
        table=table,
        kernels=kernels,
        launches=trace.launches,
        ranges=trace.ranges,
        steps=steps,
        gaps=gaps,
        idle=idle_summary(gaps).get(trace.rank, {}) if kind == "gpu" else {},
    )


def _attributed(
    source: PassSource, traces: list[Trace], ranks: list[RankBreakdown], users: Own, config: dict[str, Any] | None
) -> list[RankBreakdown]:
    attributor = Attributor(source, users.rules, users.thresholds, config)
    return [
        replace(rank, attribution=attributor.attribute(trace, rank.kernels, rank.steps))
        if rank.kind == "gpu" and rank.window_ns
        else rank
        for trace, rank in zip(traces, ranks, strict=True)
    ]


def _with_roofline(rank: RankBreakdown, config: dict[str, Any] | None, source: PassSource, users: Own) -> RankBreakdown:
    if rank.kind == "cpu" or not rank.window_ns:
        return rank
    named = [gpu.name for gpu in source.home.manifest.hardware.gpus] if source.home else []
    device = next((name for name in (rank.device, *named) if gpu_spec(name)), rank.device)
    found = rank_roofline(
        rank.rank, device, rank.steps, rank.record,
        config=config, settings=source.engine.settings, lengths=_lengths(source), thresholds=users.thresholds,
    )  # fmt: skip
    return replace(rank, roofline=found)


def _lengths(source: PassSource) -> OneLength | None:
    """What the requests of the pass asked for, where the run says so."""
    profile = source.profile
    if profile is None or not profile.input_len or not profile.output_len:
        return None
    return OneLength(profile.input_len, profile.output_len)


def _nothing(rank: int, kind: str) -> dict[str, Any]:
    """A rank whose trace holds no activity: nothing recorded is not 0 % busy."""
    return {"rank": rank, "kind": kind, "window_ns": 0, "busy_ns": 0, "idle_ns": 0, "categories": {}, "phases": {}}


def _facts(trace: Trace, rank: RankBreakdown) -> TraceFacts:
    return TraceFacts(
        rank=trace.rank,
        world_size=trace.world_size,
        truncated=trace.truncated,
        has_gpu=trace.has_gpu,
        unreadable=trace.unreadable,
        kernels=rank.kernels,
        launches=trace.launches,
        steps=rank.steps,
        table=rank.table,
        rank_source=trace.rank_source,
        notes=trace.notes,
        with_stack=trace.with_stack,
        is_frontend=trace.is_frontend,
        recording=trace.recording,
    )
