"""What a comparison of metrics comes to: one finding about the metric that decides, with the others as its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from perflab import units
from perflab.analysis.compare.checks import show_difference
from perflab.analysis.compare.differences import Differences
from perflab.analysis.compare.metrics import MetricRow
from perflab.analysis.finding import Finding, Severity, severity_of
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say

IDS = {
    "worse": "regression",
    "better": "improvement",
    "same": "no_change",
    "undecided": "change_undecided",
    "withheld": "change_withheld",
}
"""Of the finding, by verdict."""
_OTHERS = 4


def metric_findings(
    rows: Sequence[MetricRow], differences: Differences, thresholds: Thresholds, inputs: tuple[str, str]
) -> list[Finding]:
    """One finding about the row that decides; none where there is none.

    Parameters
    ----------
    rows
        From `comparison_rows`.
    inputs
        Paths or names of baseline and candidate, for the command that would confirm it.
    """
    primary = next((row for row in rows if row.primary), None)
    if primary is None or primary.found is None:
        return []
    found = primary.found
    withheld = primary.verdict == "withheld"
    title = change_title(primary)
    evidence = [
        say(
            "compare.change.runs",
            baseline=found.n_baseline,
            candidate=found.n_candidate,
            method=say(f"compare.change.{found.method}"),
        )
    ]
    evidence += [primary.reason] if primary.reason else []
    evidence += [] if withheld else _others(rows)
    return [
        Finding(
            id=IDS[primary.verdict],
            severity=_severity(primary, thresholds),
            confidence=_confidence(primary, differences),
            title=say("finding.withheld.title", what=title) if withheld else title,
            impact=None if withheld or primary.verdict == "undecided" else _impact(primary),
            evidence=tuple(evidence),
            change=say("finding.withheld.change") if withheld else _change(primary, differences),
            check=say("compare.change.check", baseline=inputs[0], candidate=inputs[1]),
            withheld=withheld,
        )
    ]


def change_title(row: MetricRow) -> str:
    """The change of a metric in one sentence."""
    found = row.found
    assert found is not None
    change = found.ratio - 1
    fields = {
        "metric": metric_word(row.metric.name),
        "point": row.point,
        "change": units.show_share(abs(change)),
        "word": say("compare.change.higher" if change > 0 else "compare.change.lower"),
        "baseline": show_value(found.baseline, row.metric.unit),
        "candidate": show_value(found.candidate, row.metric.unit),
        "threshold": f"{row.threshold * 100:g} %",
    }
    if row.verdict in ("undecided", "withheld") or found.low is None or found.high is None:
        return say("compare.change.undecided" if abs(change) >= 5e-4 else "compare.change.undecided_equal", **fields)
    return say(f"compare.change.{row.verdict}", low=f"{found.low:.3f}", high=f"{found.high:.3f}", **fields)


def metric_word(name: str) -> str:
    """`tpot_p50_ms` -> `TPOT p50`; `output_tokens_per_s` -> `output tokens/s`."""
    if name.endswith("_ms"):
        latency, statistic = name.removesuffix("_ms").split("_")
        return f"{latency.upper()} {statistic}"
    return name.removesuffix("_per_s").replace("_", " ") + "/s"


def show_value(value: float, unit: str) -> str:
    """A value of a metric with its unit, in three to four digits."""
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:,.{digits}f} {unit}"


def show_ratio(ratio: float) -> str:
    """A ratio as a change: `+3.2 %`."""
    return f"{(ratio - 1) * 100:+.1f} %"


def _severity(row: MetricRow, thresholds: Thresholds) -> Severity:
    if row.verdict != "worse" or row.found is None:
        return "info"
    ratio = row.found.ratio
    return severity_of(max(ratio, 1 / ratio) - 1, "run_change", thresholds) or "warning"


def _confidence(row: MetricRow, differences: Differences) -> float:
    """How sure the cause is: what was varied, where that is known and all that differs. Undecided claims nothing."""
    if row.verdict not in ("worse", "better", "same"):
        return 0.0
    return 0.9 if differences.varied and not differences.unexpected else 0.5


def _impact(row: MetricRow) -> dict[str, object] | None:
    found = row.found
    if found is None:
        return None
    unit = f"ms {row.metric.name.split('_')[0].upper()}" if row.metric.unit == "ms" else row.metric.unit
    return {"value": found.candidate - found.baseline, "unit": unit}


def _others(rows: Sequence[MetricRow]) -> list[str]:
    found = []
    for verdict in ("worse", "better"):
        mine = [row for row in rows if row.verdict == verdict and not row.primary and row.found is not None]
        if mine:
            shown = [
                f"{metric_word(row.metric.name)} at {row.point} {show_ratio(row.found.ratio)}"
                for row in mine[:_OTHERS]
                if row.found is not None
            ]
            more = say("compare.more", n=len(mine) - _OTHERS) if len(mine) > _OTHERS else ""
            found.append(say("compare.change.others", verdict=verdict, shown=", ".join(shown) + more))
    return found


def _change(row: MetricRow, differences: Differences) -> str:
    varied = ", ".join(show_difference(one) for one in differences.varied)
    if row.verdict in ("worse", "better"):
        key = "keep" if row.verdict == "better" else "revert"
        return say(f"compare.change.{key}", varied=varied) if varied else say(f"compare.change.{key}_unknown")
    return say("compare.change.nothing" if row.verdict == "same" else "compare.change.measure")
