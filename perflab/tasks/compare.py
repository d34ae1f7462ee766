"""Did the change help? Two runs side by side: what differs, whether they compare, and where time changed.

The report has room for latency metrics (`metrics`), which are empty as long as nothing fills them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.check import Check
from perflab.analysis.compare_checks import comparison_checks
from perflab.analysis.compare_findings import comparison_findings
from perflab.analysis.differences import Differences, differences
from perflab.analysis.finding import Finding
from perflab.analysis.trace_compare import PhaseComparison, RankTrace, compare_phases
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import sniff
from perflab.runs import Run, is_run
from perflab.schema import CATEGORIES, PHASES
from perflab.tasks.breakdown import PassBreakdown, pass_breakdown
from perflab.tasks.compare_facts import compared_facts
from perflab.tasks.find import find_runs
from perflab.tasks.own import Own, own
from perflab.tasks.traces import PassSource, Role, pass_sources, run_passes

SIDES = ("baseline", "candidate")
_PROFILERS = {"nsys": "Nsight Systems"}
_NAMES = ("family", "baseline_name", "candidate_name")


@dataclass(frozen=True)
class CompareSide:
    """One side of a comparison.

    Attributes
    ----------
    name
        The name of the run directory, or of the file.
    run
        None where files were given.
    passed
        The profiling pass compared; None where no trace is there.
    """

    name: str
    path: str
    run: Run | None
    passed: PassBreakdown | None

    @property
    def title(self) -> str:
        """Title of the run; the name where there is none."""
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
        Rows of the contract's `metrics`: what requests saw, with intervals.
    """

    baseline: CompareSide
    candidate: CompareSide
    differences: Differences
    checks: list[Check]
    phases: list[PhaseComparison]
    findings: list[Finding]
    missing: list[str] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sides(self) -> tuple[CompareSide, CompareSide]:
        """Both."""
        return (self.baseline, self.candidate)

    @property
    def trust(self) -> list[Check]:
        """The checks of both traces, then those of the comparison."""
        return [*(check for side in self.sides if side.passed for check in side.passed.checks), *self.checks]

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
            "metrics": self.metrics,
            "categories": _categories(self),
            "phases": [_phase(one) for one in self.phases],
            "kernels": [row for one in self.phases for row in _kernels(one)],
            "missing": self.missing,
            "findings": [finding.to_json() for finding in self.findings],
            "user_rules": [s.passed.user_rules.to_json() for s in self.sides if s.passed and s.passed.user_rules],
        }


def compare(
    baseline: str | Path,
    candidate: str | Path,
    *,
    varied: Sequence[str] = (),
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
) -> CompareReport:
    """Compare two runs (by path or recorded name), or the traces in two files or folders.

    Parameters
    ----------
    varied
        Names of settings that were meant to differ; see `perflab.analysis.differences.differences`.
    rules, thresholds
        The user's own files; see `perflab.tasks.own.own`.

    Raises
    ------
    InputError
        When a side is no run and no trace, or several runs; when a GPU's trace meets a CPU engine's, or a teacher
        pass a measured one; when a file of the user's cannot be used.
    """
    users = own(rules, thresholds)
    found = [_sources(path) for path in (baseline, candidate)]
    role = _role(found, (str(baseline), str(candidate)))
    pair = _matching([sources[role] for _, sources in found])
    sides = [
        CompareSide(
            _name(path, run), str(path), run, pass_breakdown(source, users, attribution=False) if source else None
        )
        for path, (run, _), source in zip((baseline, candidate), found, pair, strict=True)
    ]
    return _compared(sides[0], sides[1], [sources[role] for _, sources in found], varied, users)


def _compared(
    baseline: CompareSide, candidate: CompareSide, sources: list[list[PassSource]], varied: Sequence[str], users: Own
) -> CompareReport:
    sides = (baseline, candidate)
    facts = [compared_facts(side.run, side.passed.source.profile if side.passed else None) for side in sides]
    differing = differences(facts[0], facts[1], varied)
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


def _sources(path: str | Path) -> tuple[Run | None, dict[Role, list[PassSource]]]:
    """The run a path names, if it is one, and its passes by role."""
    place = Path(path)
    if not place.exists() or is_run(place) or (place.is_dir() and not pass_sources_in(place)):
        runs = find_runs(str(path))
        if len(runs) > 1:
            raise InputError(say("compare.several_runs", n=len(runs)), path=path)
        return runs[0], {role: run_passes(runs[0], role) for role in ("measured", "teacher")}
    return None, {"measured": pass_sources(place), "teacher": []}


def pass_sources_in(folder: Path) -> bool:
    """Whether a folder that is no run holds traces itself, rather than runs."""
    return not any(is_run(inner) for inner in folder.iterdir() if inner.is_dir())


def _role(found: list[tuple[Run | None, dict[Role, list[PassSource]]]], names: tuple[str, str]) -> Role:
    have = [{role for role, sources in by_role.items() if sources} for _, by_role in found]
    if all(have) and not have[0] & have[1]:
        teacher, measured = (0, 1) if "teacher" in have[0] else (1, 0)
        raise InputError(say("compare.roles", baseline=names[teacher], candidate=names[measured]), path=names[1])
    return "teacher" if have[0] == have[1] == {"teacher"} else "measured"


def _matching(sources: list[list[PassSource]]) -> tuple[PassSource | None, PassSource | None]:
    """The first passes with the same lengths and load; the first of each side where none match."""
    pairs = [(one, other) for one in sources[0] for other in sources[1]]
    same = [pair for pair in pairs if _asked(pair[0]) == _asked(pair[1])]
    if pairs:
        return (same or pairs)[0]
    return (sources[0][0] if sources[0] else None), (sources[1][0] if sources[1] else None)


def _asked(source: PassSource) -> Any:
    profile = source.profile
    return None if profile is None else (profile.input_len, profile.output_len, profile.load)


def _name(path: str | Path, run: Run | None) -> str:
    return run.path.resolve().name if run else Path(path).name


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
    if side.passed is None:
        return []
    return [
        RankTrace(
            one.rank, one.kind, one.table, one.kernels, one.steps, one.gaps, one.ranges, _waits(side.passed, one.rank)
        )
        for one in side.passed.ranks
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
