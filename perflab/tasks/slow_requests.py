"""Why were the slowest requests slow? Measured requests, the engine steps they lived through, similar profiled ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding, is_on, number
from perflab.analysis.requests.clock import ClockTie, clock_tie
from perflab.analysis.requests.path import Paths, split_paths, strip
from perflab.analysis.requests.similar_steps import Similar, Wanted, similar_steps
from perflab.analysis.requests.slow_tail import METRICS, Metric, PromptSteps, Tail, prompt_steps, tail
from perflab.analysis.requests.steps import Alignment, StepJoin, one_engine, step_join
from perflab.analysis.rules.slow_tail import TailFacts, slow_tail
from perflab.errors import InputError
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.read.clock import ClockFile, read_clock
from perflab.read.step_records import read_step_records
from perflab.runs import Run
from perflab.tasks.again import again
from perflab.tasks.breakdown import RankBreakdown, breakdown
from perflab.tasks.find import find_runs
from perflab.tasks.latency import MeasuredPoint, latency
from perflab.tasks.own import user_thresholds

_MARGIN_NS = units.NS_PER_S
_PREFILL = "request_prefill_time_seconds"
_SEVERAL = 2
_QUEUE = "request_queue_time_seconds"


@dataclass(frozen=True)
class SlowPoint:
    """One measured point with its requests placed into steps, or why they could not be.

    Attributes
    ----------
    measured
        As `latency` has it.
    missing
        What is missing and how to record it; None where requests were placed.
    tails, findings
        By metric, those that could be told, and the findings of those that have a cause.
    agreement
        Means over requests, ns, by the steps and by the server's own histograms, which are independent of each other:
        `queue` and `prefill` (from scheduled to first token), each (ours, the server's or None).
    """

    run: Run
    measured: MeasuredPoint
    missing: str | None = None
    tie: ClockTie | None = None
    alignment: Alignment | None = None
    join: StepJoin | None = None
    paths: Paths | None = None
    tails: Mapping[Metric, Tail] = field(default_factory=dict)
    findings: Mapping[Metric, Finding] = field(default_factory=dict)
    agreement: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The point's id."""
        return self.measured.point.id

    def strip(self, request_id: int) -> pd.DataFrame:
        """One request's life in order; see `perflab.analysis.requests.path.strip`.

        Raises
        ------
        InputError
            When the request was not placed.
        """
        if self.join is None or self.paths is None or request_id not in set(self.paths.facts["request_id"]):
            raise InputError(self.missing or f"request {request_id} of {self.name} was not placed into steps")
        assert self.measured.requests is not None
        return strip(self.join, self.paths, self.measured.requests, request_id)

    def to_json(self) -> dict[str, Any]:
        """The point in key `slow_requests` of the `latency` document."""
        found: dict[str, Any] = {
            "run": self.measured.run, "point": self.name, "missing": self.missing,
            "tails": {name: one.to_json() for name, one in self.tails.items()},
            "findings": [finding.to_json() for finding in self.findings.values()],
        }  # fmt: skip
        if self.tie is not None and self.alignment is not None:
            found["clock"] = {
                "offset_ns": self.tie.offset_ns, "uncertainty_ns": self.tie.uncertainty_ns,
                "one_clock": self.tie.is_one_clock,
            }  # fmt: skip
            found["alignment"] = {
                "requests": self.alignment.requests, "placed": self.alignment.placed,
                "quality": self.alignment.quality, "delay_ns": self.alignment.delay_ns,
            }  # fmt: skip
        found["agreement"] = {
            name: {"steps_ns": round(ours), "server_ns": None if theirs is None else round(theirs)}
            for name, (ours, theirs) in self.agreement.items()
        }
        return found


@dataclass(frozen=True)
class SlowReport:
    """What `slow_requests` answers."""

    percentile: float
    points: list[SlowPoint]

    @property
    def findings(self) -> list[Finding]:
        """Of each run and remedy the one whose slow are slowest against the typical, and where else it shows.

        What a single request of all points shows is an incident and no finding.
        """
        kinds: dict[tuple[str, str, str], list[tuple[Tail, Finding]]] = {}
        for point in self.points:
            for metric, finding in point.findings.items():
                kinds.setdefault((finding.run, finding.id, finding.change), []).append((point.tails[metric], finding))
        found = []
        for alike in kinds.values():
            if sum(len(one.slow) for one, _ in alike) < _SEVERAL:
                continue
            tail, worst = max(alike, key=lambda one: one[0].ratio)
            others = Counter(say(f"slow.metric.{one.metric}") for one, _ in alike if one is not tail)
            where = ", ".join(f"{metric} ({count})" for metric, count in others.items())
            more = (say("slow.finding.elsewhere", where=where),) if others else ()
            found.append(replace(worst, evidence=(*worst.evidence, *more)))
        order = ("critical", "warning", "info")
        return sorted(found, key=lambda finding: (order.index(finding.severity), -finding.confidence))

    def to_json(self) -> list[dict[str, Any]]:
        """Key `slow_requests` of the `latency` document."""
        return [point.to_json() for point in self.points]


def slow_requests(
    paths: str | Path | Sequence[str | Path], *, point: str | None = None, metrics: Sequence[Metric] = METRICS,
    percentile: float = 99.0, thresholds: str | Path | None = None,
) -> SlowReport:  # fmt: skip
    """The slow tail of measured points of runs, by cause.

    Parameters
    ----------
    paths
        Runs by path or recorded name.
    point
        One point's id; all points unless given.
    metrics
        Of ttft, tpot, itl and e2el.
    percentile
        Slow is what reaches it: between 50 and 100.
    thresholds
        The user's own file; see `perflab.tasks.own`.

    Raises
    ------
    InputError
        When a path is no run, the point is not there, or the percentile is out of range.
    """
    if not 50 <= percentile < 100:
        raise InputError(f"percentile {percentile:g} is not from 50 to below 100")
    limits = user_thresholds(thresholds)
    parts = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[SlowPoint] = []
    for run in find_runs([str(part) for part in parts]):
        records, clock = _records(run), _clock(run)
        points = [
            _slow_point(run, measured, records, clock, metrics, percentile, limits)
            for measured in latency(run.path, thresholds=thresholds).runs
            if point in (None, measured.point.id)
        ]
        found += _with_findings(points, limits)
    if not found:
        raise InputError(f"no measured point is called {point!r}", path=str(parts[0]) if parts else None)
    return SlowReport(percentile, found)


def profiled_rank(run: Run) -> RankBreakdown | None:
    """The first rank of the run's profiling pass; None where the run was not profiled."""
    if not any(one.traces and one.role == "measured" for one in run.manifest.profiles):
        return None
    return min(breakdown(run.path, attribution=False).ranks, key=lambda one: one.rank, default=None)


def similar_kernels(point: SlowPoint, request_id: int, rank: RankBreakdown | None = None) -> list[Similar]:
    """Profiled steps like the request's own first-token step and its decode steps, from the run's profiling pass.

    Parameters
    ----------
    rank
        From `profiled_rank`; read unless given.

    Returns
    -------
    list of Similar
        Empty where the run was not profiled. They are of similar steps, never the request's own.
    """
    rank = profiled_rank(point.run) if rank is None else rank
    if point.join is None or point.paths is None or rank is None:
        return []
    fact = point.paths.facts.set_index("request_id").loc[request_id]
    first = point.join.steps.iloc[int(fact["first_step"])]
    batch = int(first["batch"])
    wanted = [Wanted("first_token", "mixed" if batch else "prefill", batch, int(first["prompt_tokens"]))]
    if fact["last_step"] > fact["first_step"]:
        wanted.append(Wanted("decode", "decode", round(float(fact["batch"])), 0))
    return [similar_steps(one, rank.steps, rank.table) for one in wanted]


def _records(run: Run) -> dict[int, pd.DataFrame]:
    """Step records by server run."""
    found: dict[int, list[pd.DataFrame]] = {}
    for one in run.manifest.step_records:
        found.setdefault(one.server_run, []).append(read_step_records(run.file(one.file)).table)
    return {server: pd.concat(tables, ignore_index=True) for server, tables in found.items()}


def _clock(run: Run) -> ClockFile | None:
    return None if run.manifest.clock is None else read_clock(run.file(run.manifest.clock))


def _slow_point(
    run: Run, measured: MeasuredPoint, records: Mapping[int, pd.DataFrame], clock: ClockFile | None,
    metrics: Sequence[Metric], percentile: float, limits: Thresholds,
) -> SlowPoint:  # fmt: skip
    requests, chunks = measured.requests, measured.chunks
    empty = SlowPoint(run, measured)
    if requests is None:
        return replace(empty, missing=say("slow.missing.detail"))
    if measured.result.clock != "client":
        return replace(empty, missing=say("slow.missing.arrivals"))
    of_server = records.get(measured.point.server_run)
    if of_server is None or of_server.empty:
        return replace(empty, missing=say("slow.missing.records"))
    anchors = () if clock is None else clock.of_point(measured.point.id)
    if clock is None or not anchors:
        return replace(empty, missing=say("slow.missing.anchors"))
    if not clock.is_shared:
        return replace(empty, missing=say("slow.missing.clock", clock=clock.clock or "unknown"))
    begin, end = (a.time_ns for a in (min(anchors, key=_when), max(anchors, key=_when)))
    during = of_server[of_server["t_ns"].between(begin - _MARGIN_NS, end + _MARGIN_NS)]
    tie = clock_tie([(a.offset_ns, a.width_ns) for a in anchors], during)
    if tie is None:
        return replace(empty, missing=say("slow.missing.records"))
    if not one_engine(during):
        count = len(during[["engine", "front_end"]].drop_duplicates())
        return replace(empty, missing=say("slow.missing.engines", count=count))
    budget = number(run.manifest.engine.settings.get("max_num_batched_tokens"))
    ahead = run.manifest.engine.settings.get("async_scheduling")
    join = step_join(
        requests, during, tie, token_budget=int(budget) if budget else None,
        schedules_ahead=is_on(ahead) if ahead is not None else None,
    )  # fmt: skip
    least = limits.limit("request_alignment", "fail")
    if join.alignment.quality < least:
        what, worst = _worst(join.alignment)
        told = say(
            "slow.missing.align", quality=units.show_share(worst), what=say(f"slow.align.{what}"),
            least=units.show_share(least),
        )  # fmt: skip
        return replace(empty, missing=told, tie=tie, alignment=join.alignment)
    return _with_tails(
        replace(empty, tie=tie, alignment=join.alignment, join=join), metrics, percentile, limits, chunks
    )


def _with_tails(
    point: SlowPoint, metrics: Sequence[Metric], percentile: float, limits: Thresholds, chunks: pd.DataFrame | None
) -> SlowPoint:
    requests, join = point.measured.requests, point.join
    assert requests is not None
    assert join is not None
    settings, means = point.run.manifest.engine.settings, point.measured.server.means
    budget, prefill = number(settings.get("max_num_batched_tokens")), means.get(_PREFILL)
    paths = split_paths(
        join, requests, chunks, token_budget=int(budget) if budget else None,
        server_prefill_ns=None if prefill is None else prefill * units.NS_PER_S,
    )  # fmt: skip
    found = {
        name: tail(join, paths, requests, chunks, name, percentile=percentile, thresholds=limits) for name in metrics
    }
    tails = {name: one for name, one in found.items() if one is not None}
    return replace(point, paths=paths, tails=tails, agreement=_agreement(paths, means))


def _with_findings(points: Sequence[SlowPoint], limits: Thresholds) -> list[SlowPoint]:
    """The points of one run with their findings; how long steps with prompts take is told by all of them together."""
    joins = [point.join.steps for point in points if point.join is not None]
    known = prompt_steps(pd.concat(joins, ignore_index=True)) if joins else None
    return [
        replace(point, findings=_findings(point, known, limits)) if point.tails else point for point in points
    ]  # fmt: skip


def _findings(point: SlowPoint, known: PromptSteps | None, limits: Thresholds) -> dict[Metric, Finding]:
    join, paths = point.join, point.paths
    assert join is not None
    assert paths is not None
    facts = [
        TailFacts(
            one, point.run.manifest.engine, join.alignment.quality, requests=join.alignment.placed,
            least=int(limits.limit("slow_tail", "least")), most_running=_most_running(join, paths, one.slow),
            point=point.name, run=point.measured.run, again=again(point.run), prompt_steps=known,
        )
        for one in point.tails.values()
    ]  # fmt: skip
    return {one.tail.metric: finding for one in facts if (finding := slow_tail(one)) is not None}


def _when(anchor: Any) -> int:
    return int(anchor.time_ns)


def _worst(alignment: Alignment) -> tuple[str, float]:
    shares = {
        "placed": alignment.placed / alignment.requests if alignment.requests else 0.0, "prompts": alignment.prompts,
        "tokens": alignment.tokens, "steps": alignment.steps, "order": alignment.order,
    }  # fmt: skip
    return min(shares.items(), key=lambda item: item[1])


def _most_running(join: StepJoin, paths: Paths, slow: Sequence[int]) -> int | None:
    """The most requests running in the counts that have a slow one waiting."""
    facts = paths.facts[paths.facts["request_id"].isin(slow) & (paths.facts["waited_steps"] > 0)]
    running = join.steps["running"].to_numpy(np.int64)
    places = join.requests.set_index("request_id").loc[facts["request_id"]]
    spans = zip(places["entered_step"], places["scheduled_step"], strict=True)
    return max((int(running[begin:end].max()) for begin, end in spans if end > begin), default=None)


def _agreement(paths: Paths, means: Mapping[str, float]) -> dict[str, tuple[float, float | None]]:
    ours = {
        "queue": paths.ttft["queued"], "prefill": paths.ttft[["behind_step", "prefill", "others_prefill"]].sum(axis=1)
    }  # fmt: skip
    theirs = {"queue": means.get(_QUEUE), "prefill": means.get(_PREFILL)}
    return {
        name: (float(values.mean()), None if (told := theirs[name]) is None else told * units.NS_PER_S)
        for name, values in ours.items()
    }
