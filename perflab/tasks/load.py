"""How much load is right? Throughput against latency over the loads of a report, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding
from perflab.analysis.findings import load_findings
from perflab.analysis.load.curve import (
    STATISTICS,
    LoadCurve,
    LoadLimit,
    cost_table,
    load_curves,
    load_limit,
)
from perflab.analysis.load.evidence import LoadEvidence, Reason, reasons
from perflab.analysis.metrics import prefix_hit_share
from perflab.errors import InputError
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say

if TYPE_CHECKING:
    from perflab.tasks.latency import MeasuredPoint


@dataclass(frozen=True)
class LoadAnswer:
    """One curve and what follows from it.

    Attributes
    ----------
    evidence
        By load (`x`), of the repeat whose throughput is the median one.
    reasons
        By load, what limits it.
    limit
        The most load within the objectives; None where there are none.
    cost
        From `cost_table`; None without a price, or where the GPUs are not known.
    """

    curve: LoadCurve
    evidence: Mapping[float, LoadEvidence] = field(default_factory=dict)
    reasons: Mapping[float, Sequence[Reason]] = field(default_factory=dict)
    limit: LoadLimit | None = None
    cost: pd.DataFrame | None = None
    findings: Sequence[Finding] = ()

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `load_curves`."""
        of = self.curve.label
        return self.curve.to_json() | {
            "limits": {of(x): [one.to_json() for one in found] for x, found in self.reasons.items()},
            "within_slos": None if self.limit is None else self.limit.to_json(),
            "cost_per_million_tokens": None if self.cost is None else self.cost.drop(columns="x").to_dict("records"),
            "findings": [finding.to_json() for finding in self.findings],
        }


def load_answers(
    measured: Sequence[MeasuredPoint],
    points: pd.DataFrame,
    *,
    slos: Mapping[str, float],
    statistic: str,
    price_per_gpu_hour: float | None,
    thresholds: Thresholds,
) -> list[LoadAnswer]:
    """An answer a curve. Points that a prefix cache or failures make another load are left out, and named.

    Parameters
    ----------
    measured, points
        Of a `LatencyReport`, in the same order.

    Raises
    ------
    InputError
        When there is no such statistic, or the price is no number above 0.
    """
    if statistic not in STATISTICS:
        raise InputError(say("load.no_statistic", name=statistic, names=", ".join(STATISTICS)))
    if price_per_gpu_hour is not None and not 0 < price_per_gpu_hour < float("inf"):
        raise InputError(say("load.no_price", price=price_per_gpu_hour))
    why = {at: reason for at, one in enumerate(measured) if (reason := contaminated(one, thresholds))}
    gpus = {one.run: one.gpus for one in measured if one.gpus is not None}
    curves = load_curves(points, why, gpus)
    return [_answer(curve, measured, slos, statistic, price_per_gpu_hour, thresholds) for curve in curves]


def contaminated(measured: MeasuredPoint, thresholds: Thresholds) -> str | None:
    """Why a point is no measurement of the load it was meant to be, in a few words; None where it is one."""
    checks = {check.check: check.status for check in measured.validity}
    if checks.get("requests_failed") == "fail":
        return say("load.excluded.failed")
    if checks.get("prefix_cache") in ("warn", "fail"):
        share = prefix_hit_share(measured.server.deltas)
        return say("load.excluded.prefix", share=units.show_share(share or 0.0))
    return None


def _answer(
    curve: LoadCurve,
    measured: Sequence[MeasuredPoint],
    slos: Mapping[str, float],
    statistic: str,
    price: float | None,
    thresholds: Thresholds,
) -> LoadAnswer:
    typical = {x: _typical(curve, x, measured) for x in curve.table["x"]}
    evidence = {x: one.evidence for x, one in typical.items()}
    why = {x: reasons(one.evidence, one.engine.settings, thresholds) for x, one in typical.items()}
    knee = curve.knee
    found: list[Finding] = []
    if knee.load is not None and knee.high is not None:
        past = typical[knee.high]
        found = load_findings(
            curve, why[knee.high], past.engine, at_knee=evidence[knee.load], past=past.evidence, checks=past.validity
        )
    priced = price is not None and curve.gpus and len(curve.table)
    return LoadAnswer(
        curve,
        evidence,
        why,
        load_limit(curve.table, slos, statistic),
        cost_table(curve, price) if priced and price is not None else None,
        found,
    )


def _typical(curve: LoadCurve, x: float, measured: Sequence[MeasuredPoint]) -> MeasuredPoint:
    """Of the repeats of a load the one whose throughput is the (lower) median."""
    rows = curve.points[curve.points["x"] == x].sort_values("requests_per_s", kind="stable")
    ids = rows["point"].tolist()
    at = ids[(len(ids) - 1) // 2]
    return next(one for one in measured if one.run == curve.run and one.point.id == at)
