"""Did the change help? Two sides: what differs, whether they compare, what requests saw, and where time changed.

A side is a run or several. Of what requests saw, all runs of a side are evidence (`perflab.tasks.compare_runs`); of
where time changed, one profiling pass a side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.check import Check
from perflab.analysis.compare.checks import comparison_checks, varied_check
from perflab.analysis.compare.differences import Differences
from perflab.analysis.compare.findings import comparison_findings
from perflab.analysis.compare.metric_findings import metric_findings
from perflab.analysis.compare.metrics import MetricRow
from perflab.analysis.compare.traces import PhaseComparison, RankTrace, compare_phases
from perflab.analysis.finding import Finding
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import sniff
from perflab.runs import Run
from perflab.schema import CATEGORIES, PHASES
from perflab.tasks.breakdown import PassBreakdown, pass_breakdown
from perflab.tasks.compare_facts import run_differences
from perflab.tasks.compare_runs import MetricComparison, Side, compare_metrics, find_side
from perflab.tasks.own import Own, own
from perflab.tasks.traces import PassSource, Role, alike, pass_sources, run_passes

SIDES = ("baseline", "candidate")
_PROFILERS = {"nsys": "Nsight Systems"}
_NAMES = ("family", "baseline_name", "candidate_name")


@dataclass(frozen=True)
class CompareSide:
    """One side of a comparison.

    Attributes
    ----------
    name
        The name of the run directory, or of the file; of several runs what they were asked for by.
    run
        The one whose trace and settings are compared; None where files were given.
    runs
        All of them.
    passed
        The profiling pass compared; None where no trace is there.
    """

    name: str
    path: str
    run: Run | None
    passed: PassBreakdown | None
    runs: tuple[Run, ...] = ()

    @property
    def title(self) -> str:
        """Title of the run; the name where there is none, or several."""
        if len(self.runs) > 1:
            return say("compare.sides.several", n=len(self.runs), title=self.runs[0].manifest.title)
        return self.run.manifest.title if self.run else self.name


@dataclass(frozen=True)
class CompareReport:
    """What `compare` answers.

    Attributes
    ----------
    differences
        What the two tell of themselves, differently.
    checks
        Of the comparison; `trust` has those of both traces before them.
    phases
        Empty where a side has no trace or no steps.
    missing
        What could not be compared, and why.
    metrics
        What requests saw: a row a metric and point, with interval and verdict, the one that decides first.
    metric_findings
        What that comes to; before `findings` in the document.
    measured
        The points behind `metrics`, and why that one decides.
    """

    baseline: CompareSide
    candidate: CompareSide
    differences: Differences
    checks: list[Check]
    phases: list[PhaseComparison]
    findings: list[Finding]
    missing: list[str] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    metric_findings: list[Finding] = field(default_factory=list)
    measured: MetricComparison = field(default_factory=MetricComparison)

    @property
    def primary(self) -> MetricRow | None:
        """The row that decides; None where nothing was measured on both sides."""
        return next((row for row in self.metrics if row.primary), None)

    @property
    def sides(self) -> tuple[CompareSide, CompareSide]:
        """Both."""
        return (self.baseline, self.candidate)

    @property
    def trust(self) -> list[Check]:
        """The checks of both traces, then those of the comparison."""
        traces = [check for side in self.sides if side.passed for check in side.passed.checks]
        return [*traces, *self.checks, *self.measured.checks]

    def gate(self, fail_on: Sequence[str]) -> tuple[int, str]:
        """The exit status for `--fail-on`, and one line why; 0 and nothing where nothing was asked for.

        1 where the metric that decides is worse; with `undecided`, also where there is no verdict. 2 where nothing was
        measured on both sides: then a regression could not even be looked for.
        """
        if not fail_on:
            return 0, ""
        row = self.primary
        if row is None:
            return 2, say("compare.gate.nothing")
        fields = {"metric": row.metric.name, "point": row.point, "reason": row.reason}
        if row.verdict == "worse":
            return 1, say("compare.gate.worse", **fields)
        if row.verdict in ("undecided", "withheld"):
            return int("undecided" in fail_on), say(f"compare.gate.{row.verdict}", **fields)
        return 0, ""

    def window_shares(self) -> dict[str, tuple[float, float]]:
        """Where steps are not known on both sides: shares of the whole window by category and idle, mean over ranks.

        Empty where there are phases, or a side has no activity.
        """
        sides = [
            [rank.record for rank in side.passed.ranks if rank.window_ns] if side.passed else [] for side in self.sides
        ]
        if self.phases or not all(sides):
            return {}
        found = {}
        for category in (*CATEGORIES, "idle"):
            pair = [sum(_share(record, category) for record in mine) / len(mine) for mine in sides]
            if any(pair):
                found[category] = (pair[0], pair[1])
        return found

    def to_json(self) -> dict[str, Any]:
        """The `compare` document of the JSON contract."""
        return {
            "schema": 1,
            "inputs": [side.path for side in self.sides],
            "trust": [check.to_json() for check in self.trust],
            "differences": [one.to_json() for one in self.differences.found],
            "untold": list(self.differences.untold),
            "metrics": [row.to_json() for row in self.metrics],
            "primary": self.measured.why or None,
            "categories": _categories(self),
            "phases": [_phase(one) for one in self.phases],
            "kernels": [row for one in self.phases for row in _kernels(one)],
            "missing": self.missing,
            "findings": [finding.to_json() for finding in (*self.metric_findings, *self.findings)],
            "user_rules": [s.passed.user_rules.to_json() for s in self.sides if s.passed and s.passed.user_rules],
        }


def compare(
    baseline: str | Path | Sequence[str | Path],
    candidate: str | Path | Sequence[str | Path],
    *,
    varied: Sequence[str] = (),
    primary: str | None = None,
    point: str | None = None,
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
) -> CompareReport:
    """Compare two sides: a run each (by path or recorded name), several, or traces or results in files or folders.

    Parameters
    ----------
    baseline, candidate
        Several runs are a sequence, one text with commas, or the folder that holds them.
    varied
        Names of settings that were meant to differ; see `perflab.analysis.compare.differences.differences`.
    primary, point
        The metric that decides, as `ttft_p99_ms`, and where, as `512/128 c32` or `c32`; by default the median time per
        output token, at the point with most runs.
    rules, thresholds
        The user's own files; see `perflab.tasks.own.own`.

    Raises
    ------
    InputError
        When a side is neither run, trace nor result; when a GPU's trace meets a CPU engine's, or a teacher
        pass a measured one; when nothing of the name `primary` or `point` was measured on both sides; when a file of
        the user's cannot be used.
    """
    users = own(rules, thresholds)
    found = [find_side(asked) for asked in (baseline, candidate)]
    metrics = compare_metrics(found[0], found[1], users.thresholds, primary=primary, point=point)
    by_role = [_passes(side) for side in found]
    role = _role(by_role, (found[0].asked, found[1].asked))
    chosen = [_traced(passes, role) for passes in by_role]
    pair = _pair(*(sources for _, sources in chosen))
    sides = [
        CompareSide(
            _name(side, run),
            side.asked,
            run,
            pass_breakdown(source, users, attribution=False) if source else None,
            side.runs,
        )
        for side, (run, _), source in zip(found, chosen, pair, strict=True)
    ]
    report = _compared(sides[0], sides[1], [sources for _, sources in chosen], varied, users)
    return _with_metrics(report, metrics, users)


def _with_metrics(report: CompareReport, metrics: MetricComparison, users: Own) -> CompareReport:
    """The report with what requests saw; without points on either side it is as it was."""
    if not metrics.rows and not metrics.checks:
        missing = [] if any(side.passed for side in report.sides) else [say("compare.metrics.nothing")]
        return replace(report, missing=[*report.missing, *missing])
    told = any(check.check == "one_difference" for check in report.checks)
    both = all(side.run is not None and bool(side.run.manifest.engine.settings) for side in report.sides)
    checks = metrics.checks if told else (varied_check(report.differences, told=both), *metrics.checks)
    several = [
        say("compare.metrics.several", side=name, n=len(side.runs), run=side.run.path.resolve().name)
        for name, side in zip(SIDES, report.sides, strict=True)
        if len(side.runs) > 1 and side.run is not None and side.passed is not None
    ]
    inputs = (report.baseline.path, report.candidate.path)
    return replace(
        report,
        metrics=list(metrics.rows),
        metric_findings=metric_findings(metrics.rows, report.differences, users.thresholds, inputs),
        measured=replace(metrics, checks=tuple(checks)),
        missing=[*report.missing, *several],
    )


def _compared(
    baseline: CompareSide, candidate: CompareSide, sources: list[list[PassSource]], varied: Sequence[str], users: Own
) -> CompareReport:
    sides = (baseline, candidate)
    passes = [side.passed.source.profile if side.passed else None for side in sides]
    differing = run_differences([side.run for side in sides], passes, varied)
    told = all(side.run is not None and bool(side.run.manifest.engine.settings) for side in sides)
    missing = [
        text for name, side in zip(SIDES, sides, strict=True) if side.passed is None for text in _missing(name, side)
    ]
    ranks = [_ranks(side) for side in sides]
    phases: list[PhaseComparison] = []
    checks: list[Check] = []
    findings: list[Finding] = []
    if all(ranks):
        if {one.kind for one in ranks[0]} != {one.kind for one in ranks[1]}:
            raise InputError(say("compare.kinds"), path=candidate.path)
        missing += _chosen(sides, sources)
        steps_known = tuple(all(len(one.steps) for one in mine) for mine in ranks)
        phases = compare_phases(*ranks) if all(steps_known) else []
        stacks = (_has_stacks(baseline), _has_stacks(candidate))
        profilers = (_profiler(baseline), _profiler(candidate))
        checks = comparison_checks(
            phases,
            differing,
            stacks=stacks,
            profilers=profilers,
            told=told,
            steps_known=(steps_known[0], steps_known[1]),
        )
        trust = [*(check for side in sides if side.passed for check in side.passed.checks), *checks]
        findings = comparison_findings(phases, differing, trust, _engine(candidate), users.thresholds)
        missing += _one_sided(sides, phases)
    missing += [
        say("compare.no_activity", side=f"{name} ({side.name})")
        for name, side, mine in zip(SIDES, sides, ranks, strict=True)
        if side.passed and not mine
    ]
    return CompareReport(baseline, candidate, differing, checks, phases, findings, missing)


_ByRole = dict[Role, list[tuple[Run | None, list[PassSource]]]]


def _passes(side: Side) -> _ByRole:
    """Passes of a side by role, with the run each is of: the runs that have some, and files outside runs."""
    found: _ByRole = {"measured": [], "teacher": []}
    for run in side.runs:
        for role, of in found.items():
            if sources := run_passes(run, role):
                of.append((run, sources))
    for path in side.others:
        found["measured"].append((None, pass_sources(path)))
    if not any(found.values()):
        found["measured"].append((side.runs[0] if side.runs else None, []))
    return found


def _traced(passes: _ByRole, role: Role) -> tuple[Run | None, list[PassSource]]:
    """The first run of a side with a pass of this role; without any, the first run."""
    every = [one for of in passes.values() for one in of]
    return passes[role][0] if passes[role] else (every[0][0], [])


def _role(found: list[_ByRole], names: tuple[str, str]) -> Role:
    have = [{role for role, of in by_role.items() if any(sources for _, sources in of)} for by_role in found]
    if all(have) and not have[0] & have[1]:
        teacher, measured = (0, 1) if "teacher" in have[0] else (1, 0)
        raise InputError(say("compare.roles", baseline=names[teacher], candidate=names[measured]), path=names[1])
    return "teacher" if have[0] == have[1] == {"teacher"} else "measured"


def _pair(first: list[PassSource], second: list[PassSource]) -> tuple[PassSource | None, PassSource | None]:
    """What is compared; the first of a side where the other has none."""
    if first and second:
        return alike(first, second)
    return (first[0] if first else None), (second[0] if second else None)


def _name(side: Side, run: Run | None) -> str:
    several = len(side.runs) + len(side.files) + len(side.others) > 1
    return run.path.resolve().name if run and not several else Path(side.asked).name


def _missing(name: str, side: CompareSide) -> list[str]:
    only_teacher = side.run is not None and bool(run_passes(side.run, "teacher"))
    what = say("compare.no_trace_teacher") if only_teacher else say("compare.no_trace_record")
    return [say("compare.no_trace", side=f"{name} ({side.name})", what=what)]


def _chosen(sides: tuple[CompareSide, CompareSide], sources: list[list[PassSource]]) -> list[str]:
    return [
        say("compare.pass_chosen", side=side.name, n=len(mine), id=side.passed.source.profile.id)
        for side, mine in zip(sides, sources, strict=True)
        if len(mine) > 1 and side.passed and side.passed.source.profile
    ]


def _one_sided(sides: tuple[CompareSide, CompareSide], phases: Sequence[PhaseComparison]) -> list[str]:
    both = {one.phase for one in phases}
    found = []
    for name, side in zip(SIDES, sides, strict=True):
        there = {str(phase) for one in _ranks(side) for phase in one.steps["phase"]}
        found += [say("compare.one_side", phase=phase, side=name) for phase in PHASES if phase in there - both]
    return found


def _ranks(side: CompareSide) -> list[RankTrace]:
    return rank_traces(side.passed) if side.passed else []


def rank_traces(passed: PassBreakdown) -> list[RankTrace]:
    """The ranks of a pass on which something was recorded, as `compare_phases` takes them."""
    return [
        RankTrace(one.rank, one.kind, one.table, one.kernels, one.steps, one.gaps, one.ranges, _waits(passed, one.rank))
        for one in passed.ranks
        if one.window_ns
    ]


def _waits(passed: PassBreakdown, rank: int) -> pd.DataFrame | None:
    """Waiting in the collectives of a rank that were found on others too, by its own steps."""
    if passed.communication is None:
        return None
    mine = passed.communication.matched
    mine = mine[(mine["rank"] == rank) & mine["wait_ns"].notna()]
    return pd.DataFrame({"step": mine["own_step"].astype("int64"), "wait_ns": mine["wait_ns"].astype("int64")})


def _has_stacks(side: CompareSide) -> bool:
    checks = side.passed.checks if side.passed else []
    return any(check.check == "profiler_overhead" and check.status == "warn" for check in checks)


def _profiler(side: CompareSide) -> str:
    files = side.passed.source.files if side.passed else []
    return _PROFILERS.get(sniff(files[0]) or "", "torch") if files else "torch"


def _engine(side: CompareSide) -> Any:
    assert side.passed is not None
    return side.passed.source.engine


def _categories(report: CompareReport) -> list[dict[str, Any]]:
    """Per phase and category: over all steps, as in the breakdowns, and over steps of like batches (null: none)."""
    rows: list[dict[str, Any]] = []
    for one in report.phases:
        every, like = (
            {} if view is None else {row["category"]: row for row in view.categories.to_dict("records")}
            for view in (one.every, one.like)
        )
        for category in [c for c in (*CATEGORIES, "idle") if c in every or c in like]:
            row: dict[str, Any] = {"category": category, "phase": one.phase}
            for prefix, view, table in (("", one.every, every), ("like_", one.like, like)):
                for side in SIDES:
                    ns = None if view is None else int(table[category][f"{side}_ns"]) if category in table else 0
                    row[f"{prefix}{side}_ns_per_step"] = ns
            shown = (like or every).get(category, {})
            share = shown.get("share_of_change")
            row["change_ns_per_step"] = shown.get("change_ns", 0)
            row["share_of_change"] = None if share is None or math.isnan(share) else share
            rows.append(row)
    for category, pair in report.window_shares().items():
        times = {f"{prefix}{side}_ns_per_step": None for prefix in ("", "like_") for side in SIDES}
        shares = {f"{side}_share": share for side, share in zip(SIDES, pair, strict=True)}
        nothing = {"change_ns_per_step": None, "share_of_change": None}
        rows.append({"category": category, "phase": "all", **times, **nothing, **shares})
    return rows


def _share(record: Mapping[str, Any], category: str) -> float:
    ns = record["idle_ns"] if category == "idle" else record["categories"][category]["exclusive_ns"]
    return float(ns) / float(record["window_ns"])


def _phase(one: PhaseComparison) -> dict[str, Any]:
    view = one.shown
    return {
        "phase": one.phase,
        "batches": one.alike,
        "change_ns_per_step": view.change_ns,
        "change": view.change,
        "gpu_change": view.gpu_change,
        "baseline": _time(view.baseline),
        "candidate": _time(view.candidate),
        "all_steps": {"baseline_ns_per_step": one.every.baseline.ns, "candidate_ns_per_step": one.every.candidate.ns},
        "idle_causes": view.causes.to_dict("records"),
    }


def _time(time: Any) -> dict[str, Any]:
    return {
        "steps": time.steps,
        "ns_per_step": time.ns,
        "late_launches_ns": time.late_ns,
        "waiting_ns": time.wait_ns,
        "median_ns": time.median_ns,
        "low_ns": time.low_ns,
        "high_ns": time.high_ns,
        "rank_low_ns": time.rank_low_ns,
        "rank_high_ns": time.rank_high_ns,
        "tokens_per_step": time.tokens,
        "kv_tokens_per_step": time.kv_tokens,
    }


def _kernels(one: PhaseComparison) -> list[dict[str, Any]]:
    return [
        {
            "phase": one.phase,
            "category": row["category"],
            **{key: row[key] if isinstance(row[key], str) else None for key in _NAMES},
            "change": row["change"],
            "baseline_ns_per_step": round(row["baseline_ns"]),
            "candidate_ns_per_step": round(row["candidate_ns"]),
            "baseline_calls_per_step": row["baseline_calls"],
            "candidate_calls_per_step": row["candidate_calls"],
        }
        for row in one.shown.kernels.to_dict("records")
    ]
