"""The measured points of one side of a comparison: runs, folders of runs, or result files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from perflab import units
from perflab.analysis.check import Check
from perflab.analysis.compare.checks import SOURCE, show_difference
from perflab.analysis.compare.metrics import (
    METRICS,
    PRIMARY,
    REQUESTS,
    Measured,
    MetricRow,
    comparison_rows,
    fewest_servers,
    primary_metric,
    primary_point,
    server_values,
    shared_points,
)
from perflab.analysis.compare.sent import BURSTINESS, CLIENT, HITS, OUTPUT, PROMPT, REQUESTS_SENT, sent_checks
from perflab.analysis.metrics import prefix_hit_share
from perflab.errors import InputError
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.read.files import sniff
from perflab.read.results import READERS
from perflab.runs import Run, is_run
from perflab.tasks.compare_facts import run_differences
from perflab.tasks.find import find_runs
from perflab.tasks.imports.points import one_length
from perflab.tasks.latency import LatencyReport, MeasuredPoint, latency
from perflab.tasks.result_files import result_files

_REPEAT = re.compile(r"^run=\d+$")
_SHOWN = 4


@dataclass(frozen=True)
class Side:
    """What one side is made of.

    Attributes
    ----------
    asked
        As given.
    runs
        Run directories, each once.
    files
        Result files outside run directories.
    others
        Paths that are neither: traces, or folders of them.
    """

    asked: str
    runs: tuple[Run, ...] = ()
    files: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class SideMeasured:
    """The points of a side, as they were read and as they are compared.

    Attributes
    ----------
    report
        From `perflab.tasks.latency`; None where nothing was measured.
    measured
        A row a point of `report`, in its order.
    """

    report: LatencyReport | None = None
    measured: tuple[Measured, ...] = ()
    points: tuple[MeasuredPoint, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class MetricComparison:
    """What requests saw on two sides.

    Attributes
    ----------
    rows
        A row a metric and point, the one that decides first; empty where no point is on both sides.
    checks
        Of the runs and of what was sent.
    why
        Which metric decides, where, and why that one.
    """

    baseline: SideMeasured = field(default_factory=SideMeasured)
    candidate: SideMeasured = field(default_factory=SideMeasured)
    rows: tuple[MetricRow, ...] = ()
    checks: tuple[Check, ...] = ()
    why: str = ""


def compare_metrics(
    baseline: Side,
    candidate: Side,
    thresholds: Thresholds,
    *,
    primary: str | None = None,
    point: str | None = None,
) -> MetricComparison:
    """Every metric of every point that both sides measured; empty where one measured nothing.

    Raises
    ------
    InputError
        When `primary` or `point` was asked for and not measured on both sides.
    """
    measured = (measured_side(baseline, thresholds.source), measured_side(candidate, thresholds.source))
    return compare_measured(baseline, candidate, measured, thresholds, primary=primary, point=point)


def compare_measured(
    baseline: Side,
    candidate: Side,
    measured: tuple[SideMeasured, SideMeasured],
    thresholds: Thresholds,
    *,
    primary: str | None = None,
    point: str | None = None,
) -> MetricComparison:
    """The same of sides that were read already, as where one baseline meets several candidates."""
    sides = told_apart(*measured)
    first, second = (side.measured for side in sides)
    if not first or not second:
        if primary is not None or point is not None:
            empty = baseline.asked if not first else candidate.asked
            raise InputError(say("compare.metrics.none", side=empty), path=empty)
        return MetricComparison(*sides)
    where = _point(first, second, point)
    metric = None if where is None else _metric(first, second, where, primary)
    checks = [*side_checks((baseline, candidate)), *_skipped(sides)]
    checks += sent_checks(first, second, thresholds, point=where, metric=metric)
    checks = [replace(check, source=SOURCE) for check in checks]
    rows = comparison_rows(first, second, checks, thresholds, primary=metric, point=where)
    why = "" if where is None or metric is None else _why(first, second, where, metric, primary, point)
    return MetricComparison(*sides, tuple(rows), tuple(checks), why)


def _skipped(sides: Sequence[SideMeasured]) -> list[Check]:
    """Points that gave no result: what is compared is then only what went well."""
    found = []
    for name, side in zip(("baseline", "candidate"), sides, strict=True):
        skipped = [] if side.report is None else side.report.skipped
        if skipped:
            shown = "; ".join(skipped[:_SHOWN]) + (
                say("compare.more", n=len(skipped) - _SHOWN) if len(skipped) > _SHOWN else ""
            )
            found.append(
                Check("all_measured", "warn", say("compare.sides.skipped", side=name, n=len(skipped), shown=shown))
            )
    return found


def _point(first: Sequence[Measured], second: Sequence[Measured], asked: str | None) -> str | None:
    known = shared_points(first, second)
    if asked is None:
        return primary_point(first, second)
    fitting = [one for one in known if asked == one] or [one for one in known if asked == one.rpartition(" ")[2]]
    if len(fitting) != 1:
        raise InputError(say("compare.metrics.unknown_point", name=asked, known=", ".join(known) or "none"))
    return fitting[0]


def _metric(first: Sequence[Measured], second: Sequence[Measured], point: str, asked: str | None) -> str | None:
    if asked is None:
        return primary_metric(first, second, point)
    sides = [[one for one in side if one.point == point] for side in (first, second)]
    known = [metric.name for metric in METRICS if all(server_values(side, metric) for side in sides)]
    if asked not in known:
        text = say("compare.metrics.unknown_primary", name=asked, point=point, known=", ".join(known) or "none")
        raise InputError(text)
    return asked


def _why(
    first: Sequence[Measured],
    second: Sequence[Measured],
    where: str,
    metric: str,
    primary: str | None,
    point: str | None,
) -> str:
    """Why that metric at that point decides."""
    if primary is not None:
        reasons = [say("compare.metrics.asked")]
    else:
        reasons = [say(f"compare.metrics.{'default_metric' if metric == PRIMARY[0] else 'default_metric_next'}")]
    if point is None and len(shared_points(first, second)) > 1:
        counts = [fewest_servers(first, second, one) for one in shared_points(first, second)]
        key = "default_point" if counts.count(max(counts)) == 1 else "default_point_first"
        reasons.append(say(f"compare.metrics.{key}"))
    return say("compare.metrics.why_primary", metric=metric, point=where, why="; ".join(reasons))


def find_side(asked: str | Path | Sequence[str | Path]) -> Side:
    """What a side names: one or several paths or recorded names, several in one text separated by commas.

    A folder of run directories stands for all of them.

    Raises
    ------
    InputError
        When something of that name is neither there nor a recorded run.
    """
    shown = ",".join(map(str, asked)) if not isinstance(asked, str | Path) else str(asked)
    runs: dict[Path, Run] = {}
    files: list[Path] = []
    others: list[Path] = []
    for part in _parts(asked):
        path = Path(part)
        if not path.exists() or is_run(path) or _holds_runs(path):
            for run in find_runs([part]):
                runs.setdefault(run.path.resolve(), run)
        elif path.is_file() and sniff(path) in READERS:
            files.append(path)
        else:
            inside = _results_in(path)
            files += inside
            others += [] if inside and not _holds_others(path, inside) else [path]
    if not runs and not files and not others:
        raise InputError("no run was named; give run directories or names of recorded runs", path=shown or None)
    return Side(shown, tuple(runs.values()), tuple(dict.fromkeys(files)), tuple(others))


def measured_side(side: Side, thresholds: str | Path | None = None) -> SideMeasured:
    """Every point of `vllm bench serve` on a side; empty where it has none."""
    runs = [run for run in side.runs if any(point.kind == "serve" for point in run.manifest.points)]
    parts = [run.path for run in runs] + list(side.files)
    if not side.files and not any(point.bench for run in runs for point in run.manifest.points):
        return SideMeasured()
    report = latency(parts, thresholds=thresholds)
    by_run = {run.path.resolve(): run for run in runs}
    names = _run_names(list(by_run.values()))
    found = [_measured(point, by_run, names) for point in report.runs]
    return SideMeasured(report, tuple(found), tuple(report.runs))


def told_apart(baseline: SideMeasured, candidate: SideMeasured) -> tuple[SideMeasured, SideMeasured]:
    """The same with the workload's name in front of points that would otherwise look alike."""
    workloads: dict[tuple[str, str], set[str]] = {}
    for side in (baseline, candidate):
        for one, point in zip(side.measured, side.points, strict=True):
            workloads.setdefault((one.server, one.point), set()).add(point.point.workload)
    alike = {label for (_, label), names in workloads.items() if len(names) > 1}

    def named(side: SideMeasured) -> SideMeasured:
        pairs = zip(side.measured, side.points, strict=True)
        return replace(
            side,
            measured=tuple(
                replace(one, point=f"{point.point.workload} {one.point}") if one.point in alike else one
                for one, point in pairs
            ),
        )

    return named(baseline), named(candidate)


def side_checks(sides: Sequence[Side]) -> list[Check]:
    """Whether the runs of each side are repeats of one engine, and whether files tell of which server they are."""
    found = []
    for name, side in zip(("baseline", "candidate"), sides, strict=True):
        for other in side.runs[1:]:
            own = run_differences((side.runs[0], other)).own
            if own:
                shown = ", ".join(show_difference(one) for one in own[:_SHOWN])
                shown += say("compare.more", n=len(own) - _SHOWN) if len(own) > _SHOWN else ""
                found.append(
                    Check("uniform_sides", "fail", say("compare.load.uniform", side=name, shown=shown), (REQUESTS,))
                )
                break
        if side.files:
            found.append(Check("servers_told", "warn", say("compare.servers.files", side=name)))
    several = any(len(side.runs) > 1 for side in sides)
    if several and not any(check.check == "uniform_sides" for check in found):
        found.insert(0, Check("uniform_sides", "pass", say("compare.load.uniform_pass")))
    return found


def _parts(asked: str | Path | Sequence[str | Path]) -> list[str]:
    if isinstance(asked, Path):
        return [str(asked)]
    if isinstance(asked, str):
        return [asked] if Path(asked).exists() else [part.strip() for part in asked.split(",") if part.strip()]
    return [part for one in asked for part in _parts(one)]


def _holds_runs(path: Path) -> bool:
    return path.is_dir() and any(is_run(inner) for inner in path.iterdir() if inner.is_dir())


def _results_in(folder: Path) -> list[Path]:
    return [one.path for one in result_files(folder)] if folder.is_dir() else []


def _holds_others(folder: Path, results: Sequence[Path]) -> bool:
    """Whether a folder with results holds traces too."""
    rest = [file for file in folder.rglob("*") if file.is_file() and file not in results]
    return any(sniff(file) in ("kineto", "nsys_sqlite") for file in rest)


def _run_names(runs: Sequence[Run]) -> dict[Path, str]:
    """What each run is called: its directory's name, or its path where two share that."""
    names = [run.path.resolve().name for run in runs]
    return {
        run.path.resolve(): name if names.count(name) == 1 else str(run.path)
        for run, name in zip(runs, names, strict=True)
    }


def _measured(found: MeasuredPoint, runs: dict[Path, Run], names: dict[Path, str]) -> Measured:
    home = next((folder for folder in found.source.resolve().parents if folder in runs), None)
    if home is None:
        server = str(found.source.parent if _REPEAT.match(found.source.stem.split(".")[0]) else found.source)
    else:
        several = len({point.server_run for point in runs[home].manifest.points}) > 1
        server = f"{names[home]}, server {found.point.server_run}" if several else names[home]
    return Measured(
        server=server,
        point=_label(found),
        metrics=found.metrics,
        started_ns=_started(found),
        checks=tuple(found.validity),
        sent=_sent(found),
        digest=hashlib.sha256(found.source.read_bytes()).hexdigest(),
    )


def _label(found: MeasuredPoint) -> str:
    """What both sides have to share: `512/128 c32`, with the kind of data unless that is random or not told."""
    point, result = found.point, found.result
    sent = point.input_len or one_length(result.total_input_tokens, result.completed)
    made = point.output_len or one_length(result.total_output_tokens, result.completed)
    lengths = f"{sent}/{made}" if sent and made else ""
    data = "" if point.data in ("random", "unknown") else point.data
    return " ".join(part for part in (lengths, data, point.load.label) if part)


def _sent(found: MeasuredPoint) -> dict[str, Any]:
    result, point = found.result, found.point
    completed = result.completed
    facts = {
        PROMPT: result.total_input_tokens / completed if result.total_input_tokens and completed else None,
        OUTPUT: result.total_output_tokens / completed if result.total_output_tokens and completed else None,
        REQUESTS_SENT: point.num_prompts or result.meta.num_prompts,
        # Of arrivals at a rate; requests that are all sent at once, or wait for one another, have none.
        BURSTINESS: result.meta.burstiness if point.load.rate is not None else None,
        CLIENT: result.client,
        HITS: prefix_hit_share(found.server.deltas),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _started(found: MeasuredPoint) -> int | None:
    started = found.point.started
    if started is not None:
        return units.ns_from_seconds(datetime.fromisoformat(started).timestamp())
    date = found.result.meta.date
    try:
        return None if date is None else units.ns_from_seconds(datetime.strptime(date, "%Y%m%d-%H%M%S").timestamp())
    except ValueError:
        return None
