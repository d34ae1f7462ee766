"""What requests saw, two sides compared: a row a metric and point, with interval and verdict.

A *side* is what was measured with one configuration. Its unit of evidence is the run of a server: repeats of a point on
one server are averaged first (geometric mean), and count once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from perflab import schema
from perflab.analysis import check as of
from perflab.analysis.check import Check, undermined
from perflab.analysis.compare.run_statistics import (
    FEWEST_FOR_INTERVAL,
    FEWEST_FOR_VERDICT,
    MOST_RUNS,
    Better,
    Ratio,
    Verdict,
    holm,
    run_ratio,
    runs_needed,
    verdict,
)
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say

REQUESTS = "what requests saw"
"""The conclusion of a whole comparison of metrics that a check can undermine."""


_DIGITS = re.compile(r"(\d+)")


def at(conclusion: str, point: str) -> str:
    """A conclusion about one point only."""
    return f"{conclusion} at {point}"


@dataclass(frozen=True)
class Metric:
    """A metric of a row: where its value is found, its unit, which way is better, what undermines it."""

    name: str
    unit: str
    better: Better
    of: str
    statistic: str | None
    undermined_by: tuple[str, ...]

    @property
    def is_tail(self) -> bool:
        """A high percentile, which few requests decide."""
        return self.statistic in ("p90", "p95", "p99")

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """Its value among the metrics of one point; None where it was not measured."""
        found = metrics.get(self.of)
        if self.statistic is not None:
            found = (found or {}).get(self.statistic)
        return None if found is None or not math.isfinite(found) else float(found)

    def count(self, metrics: Mapping[str, Any]) -> int | None:
        """How many values it is of; None for a rate, or where that is not known."""
        found = metrics.get(self.of) if self.statistic is not None else None
        return None if found is None else found.get("n")


def _latency(name: str, statistic: str, *more: str) -> Metric:
    tail = (of.TAIL,) if statistic != "p50" else ()
    return Metric(f"{name}_{statistic}_ms", "ms", "lower", f"{name}_ms", statistic, (of.LATENCY, of.LOAD, *tail, *more))


def _rate(name: str, unit: str) -> Metric:
    return Metric(name, unit, "higher", name, None, (of.THROUGHPUT, of.LOAD))


METRICS: tuple[Metric, ...] = (
    _latency("tpot", "p50", of.TPOT),
    _latency("tpot", "p99", of.TPOT),
    _latency("ttft", "p50", of.TTFT),
    _latency("ttft", "p99", of.TTFT),
    _latency("itl", "p50", of.ITL),
    _latency("itl", "p99", of.ITL),
    _latency("e2el", "p50", of.TTFT),
    _latency("e2el", "p99", of.TTFT),
    _rate("output_tokens_per_s", "tokens/s"),
    _rate("total_tokens_per_s", "tokens/s"),
    _rate("requests_per_s", "requests/s"),
    _rate("goodput_per_s", "requests/s"),
)
PRIMARY = ("tpot_p50_ms", "e2el_p50_ms", "ttft_p50_ms", "output_tokens_per_s")
"""The first of them that both sides measured decides, unless another is named."""
_WITHHOLD_AT_A_WARNING = ("streaming",)
"""Checks whose warning is enough: gaps between chunks are no times between tokens, and differ with the chunks."""


@dataclass(frozen=True)
class Measured:
    """One measured point on one server.

    Attributes
    ----------
    server
        Names the run of the server among those of its side.
    point
        What both sides have to share: lengths and load, as a reader has it.
    metrics
        As `latency_metrics` gives them.
    started_ns
        When it began, since the epoch; None where that is not told.
    checks
        Of this point.
    sent
        What was sent and by whom, by name; facts that are not told are absent. See `perflab.analysis.compare.sent`.
    digest
        Of the file, to find copies.
    """

    server: str
    point: str
    metrics: Mapping[str, Any]
    started_ns: int | None = None
    checks: tuple[Check, ...] = ()
    sent: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True)
class MetricRow:
    """One metric at one point; see table `comparison`.

    Attributes
    ----------
    found
        Ratio and interval; None where the runs of a side have no value above 0.
    adjusted
        Holm's p-value among the metrics that are not the primary one; None where it was not tested.
    threshold
        The smallest change that matters, a share.
    reason
        Why the verdict is no answer; empty where it is one.
    needed
        Runs a side that would decide; None where that cannot be told or it is decided.
    """

    metric: Metric
    point: str
    found: Ratio | None
    verdict: Verdict
    threshold: float
    primary: bool = False
    adjusted: float | None = None
    reason: str = ""
    needed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As the JSON contract has it, and more."""
        found = self.found
        return {
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "better": self.metric.better,
            "baseline": found.baseline if found else None,
            "candidate": found.candidate if found else None,
            "ratio": found.ratio if found else None,
            "ci_low": found.low if found else None,
            "ci_high": found.high if found else None,
            "n_baseline": found.n_baseline if found else 0,
            "n_candidate": found.n_candidate if found else 0,
            "verdict": self.verdict,
            "point": self.point,
            "primary": self.primary,
            "method": found.method if found else "none",
            "p": found.p if found else None,
            "p_adjusted": self.adjusted,
            "threshold": self.threshold,
            "reason": self.reason or None,
            "runs_needed": self.needed,
        }


def comparison_rows(
    baseline: Sequence[Measured],
    candidate: Sequence[Measured],
    checks: Sequence[Check],
    thresholds: Thresholds,
    *,
    primary: str | None = None,
    point: str | None = None,
) -> list[MetricRow]:
    """Every metric at every point that both sides have, the primary one first.

    Parameters
    ----------
    checks
        Of the comparison; those of points are taken from the points.
    primary, point
        The metric that decides, and where; see `primary_metric` and `primary_point`.
    """
    where = primary_point(baseline, candidate) if point is None else point
    deciding = primary_metric(baseline, candidate, where) if primary is None else primary
    rows = []
    for place in shared_points(baseline, candidate):
        sides = tuple([one for one in side if one.point == place] for side in (baseline, candidate))
        for metric in METRICS:
            values = [server_values(side, metric) for side in sides]
            if all(values):
                is_primary = (metric.name, place) == (deciding, where)
                rows.append(_row(metric, place, values, [*sides[0], *sides[1]], checks, thresholds, is_primary))
    rows.sort(key=lambda row: (not row.primary, row.point != where))
    return _adjusted(rows)


def comparison_table(rows: Sequence[MetricRow]) -> pd.DataFrame:
    """Table `comparison` of `perflab.schema`."""
    names = schema.TABLES["comparison"].names
    table = pd.DataFrame([row.to_json() for row in rows], columns=names)
    return schema.conform(table, "comparison")


def shared_points(baseline: Sequence[Measured], candidate: Sequence[Measured]) -> list[str]:
    """Points that both sides have, lower loads first: `512/128 c1`, `512/128 c32`, `512/128 r8`."""
    both = {one.point for one in baseline} & {one.point for one in candidate}
    return sorted(both, key=lambda point: [int(part) if part.isdigit() else part for part in _DIGITS.split(point)])


def primary_point(baseline: Sequence[Measured], candidate: Sequence[Measured]) -> str | None:
    """The point with most runs of servers on the side that has fewer; of several the first."""
    points = shared_points(baseline, candidate)
    return max(points, key=lambda point: fewest_servers(baseline, candidate, point), default=None)


def primary_metric(baseline: Sequence[Measured], candidate: Sequence[Measured], point: str | None) -> str | None:
    """The first of `PRIMARY` that both sides measured at a point."""
    by_name = {metric.name: metric for metric in METRICS}
    sides = [[one for one in side if one.point == point] for side in (baseline, candidate)]
    return next((name for name in PRIMARY if all(server_values(side, by_name[name]) for side in sides)), None)


def fewest_servers(baseline: Sequence[Measured], candidate: Sequence[Measured], point: str) -> int:
    """Runs of servers that measured a point, on the side that has fewer."""
    return min(len({one.server for one in side if one.point == point}) for side in (baseline, candidate))


def server_values(side: Sequence[Measured], metric: Metric) -> dict[str, float]:
    """One value a run of a server: the geometric mean over its repeats; NaN where a repeat is not above 0."""
    by_server: dict[str, list[float]] = {}
    for one in side:
        value = metric.value(one.metrics)
        if value is not None:
            by_server.setdefault(one.server, []).append(value)
    return {
        server: float(np.exp(np.mean(np.log(values)))) if min(values) > 0 else math.nan
        for server, values in by_server.items()
    }


def threshold_of(metric: Metric, thresholds: Thresholds) -> float:
    """The smallest change of a metric that matters, a share."""
    return thresholds.limit("run_change", "tail" if metric.is_tail else "practical")


def _row(
    metric: Metric,
    point: str,
    values: Sequence[Mapping[str, float]],
    measured: Sequence[Measured],
    checks: Sequence[Check],
    thresholds: Thresholds,
    is_primary: bool,
) -> MetricRow:
    threshold = threshold_of(metric, thresholds)
    sides = [list(side.values()) for side in values]
    if not all(math.isfinite(value) for side in sides for value in side):
        reason = say("compare.metrics.not_positive")
        return MetricRow(metric, point, None, "withheld", threshold, is_primary, reason=reason)
    found = run_ratio(*sides)
    row = MetricRow(metric, point, found, verdict(found, metric.better, threshold), threshold, is_primary)
    failed = _failed(metric, point, measured, checks, thresholds)
    return replace(row, verdict="withheld", reason=failed) if failed else row


def _failed(
    metric: Metric, point: str, measured: Sequence[Measured], checks: Sequence[Check], thresholds: Thresholds
) -> str:
    """Why no verdict may be given whatever the values say; empty where one may."""
    broken = undermined(checks, REQUESTS, *(at(what, point) for what in (REQUESTS, *metric.undermined_by)))
    if broken is not None:
        return broken.detail
    for one in measured:
        for check in one.checks:
            bad = check.status == "fail" or (check.status == "warn" and check.check in _WITHHOLD_AT_A_WARNING)
            if bad and set(check.undermines) & set(metric.undermined_by):
                return say("compare.metrics.invalid", server=one.server, detail=check.detail)
    if metric.is_tail and metric.statistic is not None:
        least = thresholds.limit("samples", metric.statistic)
        counts = [n for one in measured if (n := metric.count(one.metrics)) is not None]
        if counts and min(counts) < least:
            return say("compare.metrics.few_values", statistic=metric.statistic, n=min(counts), least=f"{least:.0f}")
    return ""


def _adjusted(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """Holm over the metrics that do not decide, and the reason of each row that is no answer.

    Metrics of one point that are each other's multiple (with fixed lengths, requests and tokens a second) are one
    hypothesis; they are known by their p-value.
    """
    tested = [row for row in rows if not row.primary and row.verdict != "withheld" and _can_decide(row)]
    keys = [(row.point, f"{_p(row):.9e}") for row in tested]
    distinct = {key: _p(row) for key, row in zip(keys, tested, strict=True)}
    adjusted = dict(zip(distinct, holm(list(distinct.values())), strict=True))
    by_row = {id(row): adjusted[key] for key, row in zip(keys, tested, strict=True)}
    found = []
    for row in rows:
        p = by_row.get(id(row))
        if row.found is None or row.verdict == "withheld":
            found.append(row)
            continue
        final = verdict(row.found, row.metric.better, row.threshold, p=p)
        needed = runs_needed(row.found, row.threshold) if final == "undecided" else None
        reason = _undecided(row, p, needed) if final == "undecided" else ""
        found.append(replace(row, verdict=final, adjusted=p, reason=reason, needed=needed))
    return found


def _p(row: MetricRow) -> float:
    return 1.0 if row.found is None or row.found.p is None else row.found.p


def _can_decide(row: MetricRow) -> bool:
    return row.found is not None and row.found.p is not None and row.found.fewest >= FEWEST_FOR_VERDICT


def _undecided(row: MetricRow, p: float | None, needed: int | None) -> str:
    found = row.found
    assert found is not None
    n = found.fewest
    if n < FEWEST_FOR_INTERVAL:
        told = say("compare.metrics.no_interval", n=runs(n), least=FEWEST_FOR_INTERVAL, verdict=FEWEST_FOR_VERDICT)
    elif n < FEWEST_FOR_VERDICT:
        told = say("compare.metrics.no_verdict", n=n, verdict=FEWEST_FOR_VERDICT)
    elif p is not None and verdict(found, row.metric.better, row.threshold) != "undecided":
        told = say("compare.metrics.not_among_several", p=f"{p:.2g}")
    else:
        assert found.low is not None and found.high is not None
        key = "straddles" if found.low <= 1 <= found.high else "maybe_small"
        told = say(f"compare.metrics.{key}", threshold=f"{row.threshold * 100:g} %")
    return f"{told} {more_runs(found, needed)}".strip()


def more_runs(found: Ratio, needed: int | None) -> str:
    """How many more runs would decide, and what that assumes."""
    if needed is None:
        return ""
    if needed > MOST_RUNS:
        return say("compare.metrics.too_many", most=MOST_RUNS)
    more = [max(needed - n, 0) for n in (found.n_baseline, found.n_candidate)]
    if not any(more):
        return say("compare.metrics.by_chance", needed=needed)
    shown = runs(more[0]) if more[0] == more[1] else f"{runs(more[0])} and {runs(more[1])}"
    return say("compare.metrics.more_runs", more=shown, needed=needed)


def runs(n: int) -> str:
    """`1 run`, `3 runs`."""
    return say("compare.metrics.run" if n == 1 else "compare.metrics.runs", n=n)
