"""What a comparison of two traces comes to: by phase, how much the step changed and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check, undermined
from perflab.analysis.compare.checks import CAUSE, CHANGE, change_of, show_difference
from perflab.analysis.compare.differences import Differences
from perflab.analysis.compare.traces import PhaseComparison, StepTime, View
from perflab.analysis.finding import Finding, Severity, bench_command, severity_of, withheld
from perflab.knowledge.settings_follow import moves_the_host
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import capital, say
from perflab.runs import Engine

_CATEGORIES = 3
_TELLS = 0.02
"""A difference of two ways to measure a change that is worth saying, as a share of the step."""
_NEAR = 0.05
"""Up to this difference the change of the whole step stands for that of what the GPU does."""
_FAMILIES = 5


def comparison_findings(
    phases: Sequence[PhaseComparison],
    differences: Differences,
    checks: Sequence[Check],
    engine: Engine,
    thresholds: Thresholds,
) -> list[Finding]:
    """One finding a phase, decode first; withheld where a failed check undermines it.

    Parameters
    ----------
    checks
        Of both traces and of the comparison.
    engine
        The candidate's.
    """
    order = ("decode", "mixed", "prefill")
    found = []
    for one in sorted(phases, key=lambda p: order.index(p.phase)):
        finding = _step_time(one, differences, checks, engine, thresholds)
        failed = undermined(checks, of.BREAKDOWN, of.PHASES, CHANGE, change_of(one.phase))
        found.append(finding if failed is None else withheld(finding, failed))
    return found


def category_changes(view: View, floor: float = 0.005) -> pd.DataFrame:
    """The categories (and idle) whose time changed by more than `floor` of the baseline's step, largest first."""
    table = view.categories[view.categories["change_ns"].abs() > floor * view.baseline.ns]
    order = table["change_ns"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order]


def family_changes(view: View, floor: float = 0.01) -> pd.DataFrame:
    """Libraries and generators whose kernels' time changed by more than `floor` of the baseline's step, by category.

    Returns
    -------
    DataFrame
        `category`, `family`, `baseline_ns`, `candidate_ns`, `change_ns`; largest change first.
    """
    known = view.kernels.assign(family=view.kernels["family"].fillna(say("compare.other_family")))
    sums = known.groupby(["category", "family"])[["baseline_ns", "candidate_ns"]].sum().reset_index()
    sums["change_ns"] = sums["candidate_ns"] - sums["baseline_ns"]
    large = sums[sums["change_ns"].abs() > floor * view.baseline.ns]
    return large.sort_values("change_ns", key=abs, ascending=False, ignore_index=True)


def signed_time(ns: float) -> str:
    """A change of a time: `+0.50 ms`, `-1.65 ms`."""
    return f"{'+' if ns >= 0 else '-'}{units.show_time(abs(ns))}"


def category_word(category: str) -> str:
    """A category as a sentence has it."""
    return say(f"category.{category}")


@dataclass(frozen=True)
class _Verdict:
    """Which change counts, and how the title says it."""

    key: str
    change: float
    change_ns: int
    level: Severity | None


def _verdict(view: View, differences: Differences, thresholds: Thresholds) -> _Verdict:
    """The whole step counts where something that moves the host differs; else the step without what the profiler moves.

    Under a profiler the host is slow, and slower on some days: late launches and ranks that wait for one another then
    differ between two passes of one engine by a third of a step (recorded, TP 2), what the GPU does by under 2 %.
    """

    def level(change: float) -> Severity | None:
        return severity_of(abs(change), "step_change", thresholds)

    shown, gpu = level(view.change), level(view.gpu_change)
    if any(moves_the_host(one.key) for one in differences.own):
        key = "same" if shown is None else "shorter" if view.change < 0 else "longer"
        return _Verdict(key, view.change, view.change_ns, shown)
    gpu_ns = view.candidate.gpu_ns - view.baseline.gpu_ns
    word = "shorter" if gpu_ns < 0 else "longer"
    if gpu is None:
        return _Verdict("same" if shown is None else "host", view.gpu_change, gpu_ns, None)
    plain = shown is not None and (view.change < 0) == (gpu_ns < 0) and abs(view.change - view.gpu_change) <= _NEAR
    return _Verdict(word if plain else f"gpu_{word}", view.gpu_change, gpu_ns, gpu)


def _step_time(
    one: PhaseComparison, differences: Differences, checks: Sequence[Check], engine: Engine, thresholds: Thresholds
) -> Finding:
    view = one.shown
    found = _verdict(view, differences, thresholds)
    few = min(view.baseline.steps, view.candidate.steps) < thresholds.limit("fewest_steps", "count")
    grave = found.level is not None and found.change > 0 and not few
    varied = ", ".join(show_difference(d) for d in differences.varied)
    return Finding(
        id={"same": "step_time_same", "host": "step_time_host"}.get(found.key, "step_time_changed"),
        severity=found.level if grave and found.level else "info",
        confidence=_confidence(one, checks, few=few, host=found.key == "host"),
        title=_title(one, found, thresholds),
        impact={"value": found.change_ns / units.NS_PER_MS, "unit": "ms/step"},
        evidence=tuple(_evidence(one)),
        change=_change(varied, found.key),
        check=bench_command(engine),
    )


def _title(one: PhaseComparison, found: _Verdict, thresholds: Thresholds) -> str:
    view = one.shown
    title = say(
        f"compare.finding.{found.key}",
        phase=one.phase,
        share=units.show_share(abs(view.change)),
        gpu_share=units.show_share(abs(view.gpu_change)),
        word=say("compare.longer" if view.change > 0 else "compare.shorter"),
        limit=units.show_share(thresholds.limit("step_change", "info")),
        baseline=units.show_time(view.baseline.ns),
        candidate=units.show_time(view.candidate.ns),
        gpu_baseline=units.show_time(view.baseline.gpu_ns),
        gpu_candidate=units.show_time(view.candidate.gpu_ns),
    )
    parts = [
        f"{category_word(str(row.category))} {signed_time(row.change_ns)}"
        for row in category_changes(view).head(_CATEGORIES).itertuples()
    ]
    return f"{title} ({', '.join(parts)})" if parts else title


def _change(varied: str, key: str) -> str:
    if key == "host":
        return say("compare.finding.measure")
    if key == "same":
        return say("compare.finding.no_effect", varied=varied) if varied else say("compare.finding.nothing")
    return say("compare.finding.varied", varied=varied) if varied else say("compare.finding.not_known")


def _confidence(one: PhaseComparison, checks: Sequence[Check], *, few: bool, host: bool) -> float:
    no_interval = one.shown.baseline.median_ns is None or one.shown.candidate.median_ns is None
    doubts = any(c.status == "warn" and {CAUSE, CHANGE, change_of(one.phase)} & set(c.undermines) for c in checks)
    return round(0.8 - 0.2 * no_interval - 0.2 * few - 0.2 * (doubts or host), 1)


def _evidence(one: PhaseComparison) -> list[str]:
    view = one.shown
    found = [_spread(view.baseline, view.candidate), *_other_measures(view)]
    for row in family_changes(view).head(_FAMILIES).itertuples():
        fields = {"category": capital(category_word(str(row.category))), "family": row.family}
        before, after = float(row.baseline_ns), float(row.candidate_ns)
        if not before:
            found.append(say("compare.family.came", **fields, candidate=units.show_time(after)))
        elif not after:
            found.append(say("compare.family.went", **fields, baseline=units.show_time(before)))
        else:
            times = {"baseline": units.show_time(before), "candidate": units.show_time(after)}
            found.append(say("compare.family.changed", **fields, **times))
    causes = view.causes[view.causes["change_ns"].abs() > 0.01 * view.baseline.ns]
    for row in causes.sort_values("change_ns", key=abs, ascending=False).head(2).itertuples():
        times = {"baseline": units.show_time(row.baseline_ns), "candidate": units.show_time(row.candidate_ns)}
        found.append(say("compare.idle", cause=say(f"compare.idle_cause.{row.cause}"), **times))
    return found


def _other_measures(view: View) -> list[str]:
    """Median steps, and steps without what the profiler moves, where they tell otherwise than the mean step."""
    found = []
    medians = (view.baseline.median_ns, view.candidate.median_ns)
    if medians[0] and medians[1] and abs(medians[1] / medians[0] - 1 - view.change) > _TELLS:
        found.append(say("compare.median", **_by(medians[1] / medians[0] - 1)))
    if abs(view.gpu_change - view.change) > _TELLS:
        times = {"baseline": units.show_time(view.baseline.gpu_ns), "candidate": units.show_time(view.candidate.gpu_ns)}
        found.append(say("compare.gpu", **times, **_by(view.gpu_change)))
    return found


def _by(change: float) -> dict[str, str]:
    return {"share": units.show_share(abs(change)), "key": say("compare.longer" if change > 0 else "compare.shorter")}


def _spread(baseline: StepTime, candidate: StepTime) -> str:
    def one(time: StepTime) -> str:
        n = f"{time.steps:g}"
        if time.median_ns is None or time.low_ns is None or time.high_ns is None:
            return say("compare.steps_few", n=n)
        low, high = units.show_time(time.low_ns), units.show_time(time.high_ns)
        return say("compare.steps", n=n, median=units.show_time(time.median_ns), low=low, high=high)

    if baseline.median_ns is None and candidate.median_ns is None:
        return say("compare.spread_few", baseline=f"{baseline.steps:g}", candidate=f"{candidate.steps:g}")
    return say("compare.spread", baseline=one(baseline), candidate=one(candidate))
