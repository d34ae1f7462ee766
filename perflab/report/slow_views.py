"""Slow requests, cut to what one table or figure shows; see `perflab.report.views` for what pieces are."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.requests.similar_steps import Similar
from perflab.analysis.requests.slow_tail import Metric
from perflab.messages import say
from perflab.plots.request_path import METRIC_WORDS, Life, cause_words
from perflab.report.views import Pieces, run_name
from perflab.tasks.slow_requests import SlowPoint, SlowReport, profiled_rank, similar_kernels

_SMALL = 0.05
"""Share of a step below which a category is told with the rest."""
_MARGIN = 0.03


def slow_table(report: SlowReport) -> pd.DataFrame:
    """A row a point and metric whose slowest are apart from typical ones: both, and the cause with its share."""
    words = cause_words()
    rows = [
        {
            "run": run_name(point.measured.source), "point": point.name, "metric": METRIC_WORDS[tail.metric],
            "slowest_ms": units.ms(tail.slow_ns), "typical_ms": units.ms(tail.typical_ns),
            "cause": words[tail.cause], "of the difference share": min(tail.cause_share or 0.0, 1.0),
            "without it_ms": None if tail.without_ns is None else units.ms(tail.without_ns),
        }
        for point in report.points
        for tail in point.tails.values()
        if tail.cause is not None
    ]  # fmt: skip
    columns = [
        "run", "point", "metric", "slowest_ms", "typical_ms", "cause", "of the difference share", "without it_ms"
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    return table.drop(columns="run") if table["run"].nunique() < 2 else table


def slow_pieces(report: SlowReport) -> Pieces:
    """For `plot_slow_tail`: of each run the point with most requests."""
    return [
        {"tails": tails_table(point), "of": f"{run_name(point.measured.source)}, {point.name}"}
        for point in _shown(report)
    ]


def path_pieces(report: SlowReport, metric: Metric = "ttft") -> Pieces:
    """For `plot_request_path`: of the same points the slowest request by the metric."""
    return [
        {"life": life(point, slowest(point, metric)), "of": f"{run_name(point.measured.source)}, {point.name}"}
        for point in _shown(report)
    ]


def tails_table(point: SlowPoint) -> pd.DataFrame:
    """The tails of one point as `plot_slow_tail` wants them; delivery, which may be negative, is then left out."""
    rows = [
        (tail.metric, who, row.cause, max(getattr(row, f"{who}_ns"), 0.0), count, tail.cause, tail.percentile)
        for tail in point.tails.values()
        for who, count in (("slow", len(tail.slow)), ("typical", len(tail.typical)))
        for row in tail.parts.itertuples()
        if count
    ]
    return pd.DataFrame(rows, columns=["metric", "who", "cause", "ns", "count", "named", "percentile"])


def slowest(point: SlowPoint, metric: Metric = "ttft") -> int:
    """The request with the largest TTFT or E2EL; of TPOT and ITL the first of the slow."""
    assert point.paths is not None
    if metric not in ("ttft", "e2el"):
        return point.tails[metric].slow[0]
    table = point.paths.ttft if metric == "ttft" else point.paths.e2el
    return int(table.loc[table["total_ns"].idxmax(), "request_id"])


def life(point: SlowPoint, request_id: int) -> Life:
    """What `plot_request_path` shows of one request."""
    strip = point.strip(request_id)
    assert point.join is not None
    begin, end = int(strip["start_ns"].min()), int(strip["end_ns"].max())
    margin = int(_MARGIN * (end - begin))
    steps = point.join.steps
    inside = (steps["end_ns"] >= begin - margin) & (steps["start_ns"].fillna(steps["end_ns"]) <= end + margin)
    chunks = point.measured.chunks
    times = () if chunks is None else tuple(chunks.loc[chunks["request_id"] == request_id, "arrival_ns"].tolist())
    return Life(strip, steps[inside], times, f"request {request_id}")


def similar_steps_table(report: SlowReport, metric: Metric = "ttft") -> pd.DataFrame:
    """Profiled steps like those of the slowest request, a row a kind of step: how near they are, time of each category.

    Not the request's own: the measured pass has no trace. Of each run the point with most requests that has similar
    steps, else that with most requests. Empty where no run was profiled.
    """
    by_run: dict[str, list[SlowPoint]] = {}
    for point in report.points:
        if point.tails:
            by_run.setdefault(run_name(point.measured.source), []).append(point)
    rows: list[dict[str, Any]] = []
    for name, points in by_run.items():
        rank = profiled_rank(points[0].run)
        if rank is None:
            continue
        largest = sorted(points, key=lambda one: -(one.alignment.placed if one.alignment else 0))
        found = [(one, similar_kernels(one, slowest(one, metric), rank)) for one in largest]
        point, similar = next((one for one in found if any(like.steps for like in one[1])), found[0])
        rows += [{"run": name, "point": point.name} | _similar_row(one) for one in similar]
    table = _main_categories(pd.DataFrame(rows))
    return table.drop(columns="run") if len(table) and table["run"].nunique() < 2 else table


def _main_categories(table: pd.DataFrame) -> pd.DataFrame:
    """Categories by their words; those that take little of every step together, so that the table keeps to the page."""
    times = [name for name in table.columns if str(name).endswith("_ns")]
    whole = table[times].sum(axis=1)
    small = [name for name in times if name != "idle_ns" and not (table[name] > _SMALL * whole).any()]
    table = table.rename(columns={name: f"{say(f'category.{name[:-3]}')}_ns" for name in times if name not in small})
    if not small:
        return table
    rest = table[small].sum(axis=1, min_count=1)
    return table.drop(columns=small).assign(**{"the rest_ns": rest})


def _similar_row(found: Similar) -> dict[str, Any]:
    want = found.wanted
    row: dict[str, Any] = {
        "like its": "first-token step" if want.role == "first_token" else "decode steps", "phase": want.phase,
        "batch": want.batch, "prompt tokens": want.prompt_tokens, "similar steps": len(found.steps),
    }  # fmt: skip
    if found.nearest is not None:
        row |= {"nearest batch": found.nearest[0], "nearest prompt tokens": found.nearest[1]}
    return row | {f"{name}_ns": ns for name, ns in found.categories.items()}


def slow_notes(report: SlowReport) -> list[str]:
    """What a reader must know first, a sentence or two a run: how requests were placed, or what is missing."""
    by_run: dict[str, list[SlowPoint]] = {}
    for point in report.points:
        by_run.setdefault(run_name(point.measured.source), []).append(point)
    shown = {run_name(point.measured.source): point for point in _shown(report)}
    told = [f"{name}: {_placed(by_run[name])} {_agrees(point)}".rstrip() for name, point in shown.items()]
    lacking: dict[str, list[str]] = {}
    for name, points in by_run.items():
        reasons = list(dict.fromkeys(point.missing for point in points if point.missing is not None))
        # Without records of the steps, nothing else would help.
        none = say("slow.missing.records")
        for reason in [none] if none in reasons else reasons:
            lacking.setdefault(reason, []).append(name)
    return told + [f"{', '.join(names)}: {reason}" for reason, names in lacking.items()]


def _placed(points: list[SlowPoint]) -> str:
    known = [(point.alignment, point.tie) for point in points if point.paths is not None]
    ties = [tie for _, tie in known if tie is not None]
    alignments = [alignment for alignment, _ in known if alignment is not None]
    apart = max(abs(tie.offset_ns) for tie in ties)
    clock = say("slow.two_clocks", offset=units.show_time(apart)) if apart else say("slow.one_clock")
    return say(
        "slow.aligned",
        placed=units.show_count(sum(one.placed for one in alignments)),
        requests=units.show_count(sum(one.requests for one in alignments)),
        quality=units.show_share(min(one.quality for one in alignments)), clock=clock,
        uncertainty=units.show_time(max(tie.uncertainty_ns for tie in ties)),
    )  # fmt: skip


def _agrees(point: SlowPoint) -> str:
    """How the split compares with the server's histograms; empty where those were not scraped."""
    (queue, server_queue), (prefill, server_prefill) = (point.agreement[name] for name in ("queue", "prefill"))
    if server_queue is None or server_prefill is None:
        return ""
    return say(
        "slow.server_agrees",
        point=point.name, queue=units.show_time(queue), server_queue=units.show_time(server_queue),
        prefill=units.show_time(prefill), server_prefill=units.show_time(server_prefill),
    )  # fmt: skip


def _shown(report: SlowReport) -> list[SlowPoint]:
    best: dict[str, tuple[int, SlowPoint]] = {}
    for point in report.points:
        name, placed = run_name(point.measured.source), 0 if point.alignment is None else point.alignment.placed
        if point.tails and placed > best.get(name, (0, point))[0]:
            best[name] = placed, point
    return [point for _, point in best.values()]
