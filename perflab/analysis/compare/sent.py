"""Was the same sent to both sides, to enough servers, by turns? Checks of the runs behind compared metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.compare.metrics import (
    METRICS,
    REQUESTS,
    Measured,
    at,
    fewest_servers,
    runs,
    server_values,
    shared_points,
)
from perflab.analysis.compare.run_statistics import FEWEST_FOR_INTERVAL, FEWEST_FOR_VERDICT
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say

PROMPT, OUTPUT, REQUESTS_SENT, BURSTINESS, CLIENT, HITS = (
    "prompt tokens a request", "output tokens a request", "requests", "burstiness", "client", "prefix cache hits",
)  # fmt: skip
"""Names of facts in `Measured.sent`."""
_NAMES = ("baseline", "candidate")
_DRIFT_P = 0.05
_SHOWN = 4

Sides = tuple[Sequence[Measured], Sequence[Measured]]


def sent_checks(
    baseline: Sequence[Measured],
    candidate: Sequence[Measured],
    thresholds: Thresholds,
    *,
    point: str | None = None,
    metric: str | None = None,
) -> list[Check]:
    """Every check of what was measured on both sides, in reading order; none where a side measured nothing.

    Parameters
    ----------
    point, metric
        What decides the comparison; a drift is looked for there.
    """
    sides = (baseline, candidate)
    if not all(sides):
        return []
    found = [*_points(sides), *_copies(sides)]
    if point is not None:
        found += [_servers(sides, point), *_order(sides, point, metric)]
    for place in shared_points(baseline, candidate):
        here = tuple([one for one in side if one.point == place] for side in sides)
        found += _same_load((here[0], here[1]), place, thresholds)
    return found


def _points(sides: Sides) -> list[Check]:
    both = shared_points(*sides)
    alone = [
        say("compare.points.alone", side=name, points=_listed(list(dict.fromkeys(p for p in mine if p not in both))))
        for name, mine in zip(_NAMES, [[one.point for one in side] for side in sides], strict=True)
        if set(mine) - set(both)
    ]
    if not both:
        return [Check("points_matched", "fail", " ".join([say("compare.points.none"), *alone]), (REQUESTS,))]
    told = say("compare.points.pass", points=_listed(both))
    return [Check("points_matched", "warn" if alone else "pass", " ".join([told, *alone]))]


def _copies(sides: Sides) -> list[Check]:
    """One file counted twice looks like two runs that agree to the last digit."""
    for name, side in zip(_NAMES, sides, strict=True):
        servers: dict[str, set[str]] = {}
        for one in side:
            if one.digest:
                servers.setdefault(one.digest, set()).add(one.server)
        twice = next((sorted(names) for names in servers.values() if len(names) > 1), None)
        if twice is not None:
            detail = say("compare.copies.within", side=name, first=twice[0], second=twice[1])
            return [Check("distinct_runs", "fail", detail, (REQUESTS,))]
    both = {one.digest for one in sides[0] if one.digest} & {one.digest for one in sides[1]}
    return [Check("distinct_runs", "fail", say("compare.copies.across"), (REQUESTS,))] if both else []


def _servers(sides: Sides, point: str) -> Check:
    counts = [len({one.server for one in side if one.point == point}) for side in sides]
    repeats = max(
        Counter((i, one.server) for i, side in enumerate(sides) for one in side if one.point == point).values()
    )
    told = [say("compare.servers.counts", baseline=runs(counts[0]), candidate=runs(counts[1]), point=point)]
    if repeats > 1:
        told.append(say("compare.servers.averaged", n=repeats))
    fewest = min(counts)
    if fewest < FEWEST_FOR_INTERVAL:
        told.append(say("compare.servers.no_interval", least=FEWEST_FOR_INTERVAL, verdict=FEWEST_FOR_VERDICT))
    elif fewest < FEWEST_FOR_VERDICT:
        told.append(say("compare.servers.no_verdict", verdict=FEWEST_FOR_VERDICT))
    return Check("server_runs", "pass" if fewest >= FEWEST_FOR_VERDICT else "warn", " ".join(told))


def _order(sides: Sides, point: str, metric: str | None) -> list[Check]:
    """Whether the sides were measured by turns, and whether their values wander with time."""
    if fewest_servers(*sides, point) < 2:
        return []
    starts = [_starts(side, point) for side in sides]
    moments = [start for side in starts for start in side.values()]
    if not all(starts) or len(set(moments)) < len(moments):
        return [Check("interleaved", "not_applicable", say("compare.order.unknown"))]
    order = [i for _, i in sorted((start, i) for i, side in enumerate(starts) for start in side.values())]
    changes = sum(a != b for a, b in pairwise(order))
    by_turns = changes >= min(len(side) for side in starts)
    shown = "".join("BC"[i] for i in order) if len(order) <= 40 else ""
    key = "compare.order.pass" if by_turns else "compare.order.warn"
    found = [Check("interleaved", "pass" if by_turns else "warn", say(key, order=shown).replace(" ()", ""))]
    return found + ([] if metric is None else _drift(sides, starts, point, metric, by_turns))


def _drift(sides: Sides, starts: Sequence[dict[str, int]], point: str, metric: str, by_turns: bool) -> list[Check]:
    """Kendall's S of the values against time within each side, both added up (so that the sides may differ)."""
    spec = next(one for one in METRICS if one.name == metric)
    total, variance = 0.0, 0.0
    for side, start in zip(sides, starts, strict=True):
        values = server_values([one for one in side if one.point == point], spec)
        ordered = [values[server] for server in sorted(start, key=lambda s: start[s]) if server in values]
        n = len(ordered)
        total += sum(math.copysign(1, b - a) for i, a in enumerate(ordered) for b in ordered[i + 1 :] if a != b)
        variance += n * (n - 1) * (2 * n + 5) / 18
    if fewest_servers(*sides, point) < FEWEST_FOR_VERDICT:
        return []
    p = 2 * float(special.ndtr(-max(abs(total) - 1, 0) / math.sqrt(variance)))
    if p > _DRIFT_P:
        return [Check("drift", "pass", say("compare.drift.pass", metric=metric))]
    word = say("compare.drift.rise" if total > 0 else "compare.drift.fall")
    key = "compare.drift.warn" if by_turns else "compare.drift.fail"
    detail = say(key, metric=metric, word=word, p=f"{p:.2g}")
    return [Check("drift", "warn" if by_turns else "fail", detail, (REQUESTS,))]


def _starts(side: Sequence[Measured], point: str) -> dict[str, int]:
    """When each server first measured a point; empty where one does not tell."""
    found: dict[str, int] = {}
    for one in side:
        if one.point != point:
            continue
        if one.started_ns is None:
            return {}
        found[one.server] = min(found.get(one.server, one.started_ns), one.started_ns)
    return found


def _same_load(sides: Sides, point: str, thresholds: Thresholds) -> list[Check]:
    everything = (at(REQUESTS, point),)
    found = []
    for name, level in ((PROMPT, "prompt"), (OUTPUT, "output")):
        before, after = (_mean(side, name) for side in sides)
        if before and after and abs(math.log(after / before)) > math.log1p(thresholds.limit("same_load", level)):
            fields = {"fact": name, "baseline": f"{before:,.1f}", "candidate": f"{after:,.1f}", "point": point}
            found.append(Check("same_load", "fail", say("compare.load.tokens", **fields), everything))
    for name, conclusions in (
        (BURSTINESS, everything),
        (CLIENT, everything),
        (REQUESTS_SENT, (at(of.THROUGHPUT, point), at(of.TAIL, point))),
    ):
        values = [sorted({one.sent[name] for one in side if one.sent.get(name) is not None}) for side in sides]
        if all(values) and values[0] != values[1]:
            fields = {"point": point, "baseline": _listed(values[0]), "candidate": _listed(values[1])}
            key = {BURSTINESS: "burstiness", CLIENT: "client", REQUESTS_SENT: "requests"}[name]
            found.append(Check(f"same_{key}", "fail", say(f"compare.load.{key}", **fields), conclusions))
    hits = [_mean(side, HITS) for side in sides]
    if hits[0] is not None and hits[1] is not None and abs(hits[1] - hits[0]) > thresholds.limit("prefix_hits", "warn"):
        shares = {name: units.show_share(share) for name, share in zip(_NAMES, hits, strict=True) if share is not None}
        detail = say("compare.load.prefix_hits", point=point, **shares)
        found.append(Check("same_prefix_hits", "fail", detail, everything))
    return found


def _mean(side: Sequence[Measured], name: str) -> float | None:
    values = [float(one.sent[name]) for one in side if one.sent.get(name) is not None]
    return float(np.mean(values)) if values else None


def _listed(values: Sequence[Any]) -> str:
    more = say("compare.more", n=len(values) - _SHOWN) if len(values) > _SHOWN else ""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values[:_SHOWN]) + more
