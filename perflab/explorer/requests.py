"""Single requests of measured points: when they came, how they fared, and where the time of chosen ones went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.latency import request_latencies
from perflab.analysis.requests.path import CAUSES, Paths
from perflab.analysis.requests.similar_steps import Wanted, similar_steps
from perflab.errors import InputError
from perflab.explorer.sources import Entry
from perflab.messages import say
from perflab.report.slow_views import life as life_of
from perflab.tasks.breakdown import RankBreakdown
from perflab.tasks.slow_requests import SlowPoint, SlowReport, slow_requests
from perflab.units import NS_PER_MS

Reply = tuple[dict[str, Any], list[bytes]]
METRICS = ("ttft", "e2el", "tpot")
MOST_LINES = 100
_STEP_COUNTS = ("batch", "prompt_tokens", "waiting")


class RequestViews:
    """The measured points of runs, worked out when a run's are first asked for.

    Parameters
    ----------
    given
        From `perflab.tasks.slow_requests`, where it was worked out already; other runs are worked out when asked.
    """

    def __init__(self, given: SlowReport | None = None) -> None:
        self._given = [] if given is None else given.points
        self._of_run = lru_cache(maxsize=None)(self._work_out)

    def has(self, entry: Entry) -> bool:
        """Whether an entry is a run with a measured result."""
        return entry.home is not None and any(point.bench is not None for point in entry.home.manifest.points)

    def of(self, entry: Entry) -> list[SlowPoint]:
        """The points of a run with single requests.

        Raises
        ------
        InputError
            When it has none.
        """
        if entry.home is None:
            raise InputError(say("explorer.no_requests"))
        found = [one for one in self._of_run(str(entry.home.path)) if one.measured.requests is not None]
        if not found:
            raise InputError(say("explorer.no_requests"), path=entry.home.path)
        return found

    def _work_out(self, path: str) -> list[SlowPoint]:
        known = [point for point in self._given if str(point.run.path) == path]
        return known or slow_requests(path).points

    def point(self, entry: Entry, name: str) -> SlowPoint:
        """One point of a run by its id."""
        found = next((one for one in self.of(entry) if one.name == name), None)
        if found is None:
            raise InputError(say("explorer.no_point", point=name))
        return found


def points_reply(points: Sequence[SlowPoint]) -> Reply:
    """What can be chosen: points with their requests, and what is missing to tell causes."""
    rows = [
        {
            "id": one.name, "label": one.measured.point.load.label, "workload": one.measured.point.workload,
            "requests": 0 if one.measured.requests is None else len(one.measured.requests),
            "repeat": one.measured.point.repeat, "missing": one.missing, "placed": one.paths is not None,
        }
        for one in points
    ]  # fmt: skip
    # The most requests with causes first: that is where there is most to see.
    best = max(range(len(rows)), key=lambda at: (rows[at]["placed"], rows[at]["requests"]), default=0)
    return {"points": rows, "best": best}, []


def requests_reply(point: SlowPoint) -> Reply:
    """Every request: number (int32), sent (ns since the first), TTFT, E2EL, TPOT (ns or NaN), tokens in and out."""
    requests = point.measured.requests
    assert requests is not None
    latencies = request_latencies(requests).set_index("request_id")
    known = requests[requests["arrival_ns"].notna() & requests["request_id"].isin(latencies.index)]
    of = latencies.loc[known["request_id"]]
    arrival = known["arrival_ns"].to_numpy(np.int64)
    sent = arrival - arrival.min() if len(arrival) else arrival
    tokens = [known[name].to_numpy(np.int64, na_value=-1) for name in ("prompt_tokens", "output_tokens")]
    reply = {
        "missing": point.missing, "left_out": len(requests) - len(known), "clock": point.measured.result.clock,
        "tail": {name: list(tail.slow) for name, tail in point.tails.items() if name in METRICS},
        "percentile": next((tail.percentile for tail in point.tails.values()), None),
    }  # fmt: skip
    return reply, [
        known["request_id"].to_numpy(np.int32).tobytes(), sent.astype(np.float64).tobytes(),
        *((of[f"{name}_ms"].to_numpy(np.float64) * NS_PER_MS).tobytes() for name in METRICS),
        *(one.astype(np.int32).tobytes() for one in tokens),
    ]  # fmt: skip


def cause_reply(point: SlowPoint, ids: Sequence[int], metric: str) -> Reply:
    """Where the time of chosen requests went, against all others of the point: means by cause, and each of them.

    Raises
    ------
    InputError
        When causes are not known, with what is missing.
    """
    paths = _placed(point)
    table = _parts(paths, metric)
    chosen = table.index.isin(list(ids))
    mine, others = table[chosen], table[~chosen]
    who = [
        {"who": name, "count": len(rows), "parts": _means(rows)}
        for name, rows in (("chosen", mine), ("others", others))
        if len(rows)
    ]
    usual = others[list(CAUSES)].mean() if len(others) else mine[list(CAUSES)].mean() * 0
    excess = mine[list(CAUSES)] - usual
    lines = []
    for number, row in mine.sort_values("total_ns", ascending=False).head(MOST_LINES).iterrows():
        over = excess.loc[number]
        lines.append(
            {
                "id": int(str(number)), "ns": int(row["total_ns"]), "cause": str(over.idxmax()),
                "excess_ns": float(over.max()),
            }
        )  # fmt: skip
    mean = excess.mean() if len(mine) else excess.sum()
    return {
        "who": who, "lines": lines, "not_placed": len(set(ids)) - len(mine),
        "cause": str(mean.idxmax()) if len(mine) and float(mean.max()) > 0 else None,
        "excess_ns": float(mean.max()) if len(mine) else None,
    }, []  # fmt: skip


def life_reply(point: SlowPoint, request: int) -> Reply:
    """One request's life by cause, its chunks, and the engine's steps meanwhile; times since it was sent."""
    _placed(point)
    known = life_of(point, request)
    origin = int(known.strip["start_ns"].min())
    steps = known.steps.dropna(subset=["start_ns"])
    strip = [[str(row.cause), int(row.start_ns) - origin, int(row.end_ns) - origin] for row in known.strip.itertuples()]
    return {
        "strip": strip, "ns": int(known.strip["end_ns"].max()) - origin,
        "tokens": [int(time) - origin for time in known.tokens_ns],
        "steps": {
            "row": [int(str(row)) for row in steps.index],
            **{name: (steps[f"{name}_ns"].to_numpy(np.int64) - origin).tolist() for name in ("start", "end")},
            **{name: steps[name].fillna(0).to_numpy(np.int64).tolist() for name in _STEP_COUNTS},
            "kv": [None if pd.isna(one) else float(one) for one in steps["kv_usage"]],
        },
    }, []  # fmt: skip


def similar_reply(point: SlowPoint, step: int, rank: RankBreakdown) -> Reply:
    """Profiled steps like one that measured requests lived through; never that step itself, which has no trace."""
    _placed(point)
    assert point.join is not None
    row = point.join.steps.loc[step]
    batch, prompts = int(row["batch"]), int(row["prompt_tokens"])
    phase = "decode" if not bool(row["has_prefill"]) else "mixed" if batch else "prefill"
    found = similar_steps(Wanted("step", phase, batch, prompts), rank.steps, rank.table)
    mine = rank.steps.set_index("step").loc[list(found.steps)]
    return {
        "phase": phase, "batch": batch, "prompt_tokens": prompts, "rank": rank.rank, "steps": list(found.steps),
        "step_ns": [int(ns) for ns in mine["dur_ns"]],
        "nearest": None if found.nearest is None else list(found.nearest), "categories": found.categories,
    }, []  # fmt: skip


def _placed(point: SlowPoint) -> Paths:
    if point.paths is None:
        raise InputError(point.missing or say("explorer.no_requests"))
    return point.paths


def _parts(paths: Paths, metric: str) -> pd.DataFrame:
    if metric not in METRICS:
        raise InputError(say("explorer.no_metric", metric=metric))
    table = {"ttft": paths.ttft, "e2el": paths.e2el, "tpot": paths.decoding}[metric]
    return table.set_index("request_id")


def _means(rows: pd.DataFrame) -> Mapping[str, float]:
    """Means by cause; delivery, which may be a negative change, is then left out, as in the report's figures."""
    means = rows[list(CAUSES)].mean()
    return {str(cause): float(ns) for cause, ns in means.items() if ns > 0}
