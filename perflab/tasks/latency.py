"""How fast is it? Latency and throughput of every measured point, by vLLM's definitions, with what can be doubted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.checks import Check, bench_checks
from perflab.analysis.finding import Finding
from perflab.analysis.findings import server_findings
from perflab.analysis.goodput import Goodput, objectives
from perflab.analysis.latency import (
    latency_metrics,
    metrics_from_reported,
    request_goodput,
)
from perflab.analysis.load.consistency import LoadFacts, consistency_checks
from perflab.analysis.load.evidence import LoadEvidence
from perflab.analysis.load.phases import LoadPhases, busy_share, load_phases, mean_in_flight
from perflab.analysis.load.ttft_split import TtftSplit, ttft_split
from perflab.analysis.metrics import counter_deltas, gauge_statistics, histogram_counts, histogram_means
from perflab.analysis.own import own_checks
from perflab.analysis.token_times import with_token_times
from perflab.errors import InputError
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.read.bench_result import BenchResult
from perflab.read.prometheus import read_metrics, read_samples
from perflab.read.results import read_results
from perflab.runs import Engine, Load, Point, Run, is_run
from perflab.tasks.find import find_runs
from perflab.tasks.load import LoadAnswer, load_answers
from perflab.tasks.load_evidence import RunRecords, gpus_of, load_evidence
from perflab.tasks.measured_facts import bench_facts, definitions
from perflab.tasks.own import user_thresholds
from perflab.tasks.point_rows import per_gpu, point_rows
from perflab.tasks.result_files import KnownFile, result_files


@dataclass(frozen=True)
class ServerView:
    """What /metrics told about a point; empty where it was not scraped.

    Attributes
    ----------
    deltas
        How counters grew from before to after, by name without `vllm:` and `_total`.
    means
        Means of histograms over the point, seconds or as the metric's name says.
    kv_usage
        The largest share of the KV cache in use that was scraped during the point, 0 to 1.
    counts
        How many values those means are of.
    """

    deltas: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    kv_usage: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured point: what was asked, the file, and what it says.

    Attributes
    ----------
    metrics
        In the shape of the JSON contract; None where it was not measured.
    requests, chunks
        Tables, None where the result is not detailed.
    server
        What the server's own metrics say about the point.
    goodput
        None without objectives or single requests.
    over_time
        Warm-up, steady state and drain.
    ttft_split
        None without the server's histograms.
    evidence
        What may limit the point's load.
    gpus
        That the engine used; None where it is not known.
    """

    run: str
    source: Path
    point: Point
    result: BenchResult
    metrics: dict[str, Any]
    validity: list[Check]
    server: ServerView
    findings: list[Finding] = field(default_factory=list)
    goodput: Goodput | None = None
    over_time: LoadPhases = field(default_factory=lambda: LoadPhases("unknown"))
    ttft_split: TtftSplit | None = None
    evidence: LoadEvidence = field(default_factory=LoadEvidence)
    engine: Engine = field(default_factory=Engine)
    gpus: int | None = None

    @property
    def requests(self) -> pd.DataFrame | None:
        """Table `requests`, None where the result is not detailed."""
        return self.result.requests

    @property
    def chunks(self) -> pd.DataFrame | None:
        """Table `chunks`, None where the result is not detailed."""
        return self.result.chunks

    def to_json(self) -> dict[str, Any]:
        """The point as the JSON contract has it."""
        return {
            "source": str(self.source),
            "run": self.run,
            "point": self.point.id,
            "client": self.result.client,
            "definitions": definitions(self.result),
            "completed": self.result.completed,
            "failed": self.result.failed,
            "request_rate": self.point.load.rate,
            "max_concurrency": self.point.load.concurrency,
            "metrics": self.metrics,
            "per_gpu": {"gpus": self.gpus, **per_gpu(self.metrics, self.gpus)},
            "goodput": None if self.goodput is None else self.goodput.to_json(),
            "over_time": self.over_time.to_json(),
            "ttft_split": None if self.ttft_split is None else self.ttft_split.to_json(),
            "evidence": self.evidence.to_json(),
            "validity": [check.to_json() for check in self.validity],
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True)
class OfflinePoint:
    """A result of `vllm bench latency`, `throughput`, `startup` or `forward`: an engine of its own, no single requests.

    `metrics` holds vLLM's own figures: latencies of a whole batch in seconds, or rates.
    """

    run: str
    source: Path
    point: Point
    result: BenchResult

    @property
    def metrics(self) -> dict[str, float | None]:
        """What vLLM reported, under its own names."""
        return dict(self.result.reported)

    def to_json(self) -> dict[str, Any]:
        """The point in the document of the `latency` command."""
        where = {"source": str(self.source), "run": self.run, "point": self.point.id, "kind": self.result.kind}
        return where | {"metrics": self.metrics}


@dataclass(frozen=True)
class LatencyReport:
    """What `latency` answers. `skipped` names points without a result, and why; `load` has an answer a load curve."""

    inputs: list[str]
    runs: list[MeasuredPoint]
    skipped: list[str] = field(default_factory=list)
    offline: list[OfflinePoint] = field(default_factory=list)
    load: list[LoadAnswer] = field(default_factory=list)
    slos: Mapping[str, float] = field(default_factory=dict)
    price_per_gpu_hour: float | None = None

    @property
    def points(self) -> pd.DataFrame:
        """One row a measured point.

        Columns: `run`, `point`, `workload`, `data`, `input_len`, `output_len`, `load`, `concurrency`, `rate`, `repeat`,
        `server_run`, `num_prompts`, `completed`, `failed`, `duration_s`, `client`, `differs` (what
        the client does not define as vLLM), then
        `<metric>_<statistic>_ms` for ttft, tpot, itl and e2el with mean, p50, p90, p95, p99, then the rates, then
        `gpus` and the rates of tokens per GPU, then `source` (computed or reported). NA where not measured.
        """
        return point_rows(self.runs)

    def to_json(self) -> dict[str, Any]:
        """The `latency` document of the JSON contract."""
        return {
            "schema": 1,
            "inputs": self.inputs,
            "runs": [measured.to_json() for measured in self.runs],
            "offline": [point.to_json() for point in self.offline],
            "load_curves": [answer.to_json() for answer in self.load],
            "skipped": self.skipped,
        }


def latency(
    paths: str | Path | Sequence[str | Path],
    *,
    thresholds: str | Path | None = None,
    slos: Mapping[str, float | None] | None = None,
    statistic: str = "p99",
    price_per_gpu_hour: float | None = None,
) -> LatencyReport:
    """Latency and throughput of runs (by path or recorded name), or of result files of any client.

    Parameters
    ----------
    thresholds
        The user's own file; see `perflab.tasks.own`.
    slos
        Objectives in milliseconds (`ttft_ms`, `tpot_ms`, `e2el_ms`, `itl_ms`) instead of those of the experiment.
    statistic
        Of each latency, that a load has to keep within the objectives: mean, p50, p90, p95 or p99.
    price_per_gpu_hour
        For the cost of tokens, in any currency.

    Raises
    ------
    InputError
        When a path is neither, nothing measured is there, the file of thresholds cannot be used, or an objective,
        statistic or price is none.
    """
    asked = _Asked(user_thresholds(thresholds), objectives(slos or {}))
    parts = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[MeasuredPoint | OfflinePoint] = []
    skipped: list[str] = []
    for part in parts:
        if Path(part).is_file():
            found += _of_file(Path(part), asked)
        elif files := _known_files(Path(part)):
            found += [point for file in files for point in _of_file(file.path, asked, file.results)]
        else:
            for run in find_runs(part):
                measured, missed = _of_run(run, asked)
                found += measured
                skipped += missed
    if not found:
        reasons = f": {'; '.join(skipped[:3])}" if skipped else ""
        raise InputError(say("latency.nothing_measured", reasons=reasons), path=str(parts[0]) if parts else None)
    points = [point for point in found if isinstance(point, MeasuredPoint)]
    report = LatencyReport(
        [str(part) for part in parts],
        points,
        skipped,
        [point for point in found if isinstance(point, OfflinePoint)],
        slos=asked.slos or _agreed(points),
        price_per_gpu_hour=price_per_gpu_hour,
    )
    answers = load_answers(
        points, report.points, slos=report.slos, statistic=statistic, price_per_gpu_hour=price_per_gpu_hour,
        thresholds=asked.thresholds,
    )  # fmt: skip
    return replace(report, load=answers)


@dataclass(frozen=True)
class _Asked:
    """What a caller asked for, for every point."""

    thresholds: Thresholds
    slos: Mapping[str, float]


def _agreed(measured: Sequence[MeasuredPoint]) -> dict[str, float]:
    """The objectives of the experiments where all have the same."""
    known = [objectives(one.point.slos) for one in measured]
    return known[0] if known and all(one == known[0] for one in known) else {}


def _known_files(folder: Path) -> list[KnownFile]:
    """The benchmark results in a folder that is no run."""
    return result_files(folder) if folder.is_dir() and not is_run(folder) else []


def _of_file(
    path: Path, asked: _Asked, results: Sequence[BenchResult] | None = None
) -> list[MeasuredPoint | OfflinePoint]:
    found: list[MeasuredPoint | OfflinePoint] = []
    for number, result in enumerate(read_results(path) if results is None else results):
        load = Load(concurrency=result.meta.max_concurrency, rate=result.meta.request_rate)
        name = path.stem if number == 0 else f"{path.stem}#{number + 1}"
        point = Point(id=name, workload=name, load=load, num_prompts=result.meta.num_prompts, status="complete")
        found.append(_measured(path.stem, path, point, result, ServerView(), None, asked))
    return found


def _of_run(run: Run, asked: _Asked) -> tuple[list[MeasuredPoint | OfflinePoint], list[str]]:
    found: list[MeasuredPoint | OfflinePoint] = []
    missed: list[str] = []
    records = RunRecords(run)
    for point in run.manifest.points:
        if point.bench is None:
            reason = point.reason or point.status
            missed.append(say("latency.skipped", run=run.manifest.title, point=point.id, reason=reason))
            continue
        path = run.file(point.bench)
        result = read_results(path)[0]
        found.append(_measured(run.manifest.title, path, point, result, _server(run, point), records, asked))
    return found, [*missed, *records.problems]


def _server(run: Run, point: Point) -> ServerView:
    deltas: Mapping[str, float] = {}
    means: Mapping[str, float] = {}
    counts: Mapping[str, float] = {}
    if point.metrics_before is not None and point.metrics_after is not None:
        before, after = (read_metrics(run.file(name), 0) for name in (point.metrics_before, point.metrics_after))
        deltas, means = counter_deltas(before, after), histogram_means(before, after)
        counts = histogram_counts(before, after)
    kv_usage = None
    if point.samples is not None:
        gauges = gauge_statistics(read_samples(run.file(point.samples)))
        use = gauges.loc[gauges["metric"] == "kv_cache_usage_perc", "largest"]
        kv_usage = float(use.iloc[0]) if len(use) else None
    return ServerView(deltas, means, kv_usage, counts)


def measured_metrics(result: BenchResult, slos: Mapping[str, float]) -> dict[str, Any]:
    """The metrics of one result in the shape of the JSON contract, computed where it is detailed, else as reported."""
    if result.requests is None:
        return with_token_times(metrics_from_reported(result.reported, result.completed), None, None, result.reported)
    metrics = latency_metrics(result.requests, result.chunks, result.duration_s, slos)
    if result.latency_from_gaps:
        # Rebuilt latencies are a microsecond long; vLLM's own figure, where it wrote one, is the right one.
        reported = metrics_from_reported(result.reported, result.completed)["e2el_ms"]
        metrics["e2el_ms"] = reported or metrics["e2el_ms"]
    return with_token_times(metrics, result.requests, result.chunks, result.reported)


def _measured(
    run: str,
    path: Path,
    point: Point,
    result: BenchResult,
    server: ServerView,
    records: RunRecords | None,
    asked: _Asked,
) -> MeasuredPoint | OfflinePoint:
    if result.kind != "serve":
        return OfflinePoint(run, path, point, result)
    manifest = records.manifest if records else None
    engine = manifest.engine if manifest else Engine()
    slos = asked.slos or objectives(point.slos)
    metrics = measured_metrics(result, slos)
    evidence = LoadEvidence()
    if records is not None:
        evidence = load_evidence(
            records, point, result.requests, metrics, deltas=server.deltas, means=server.means, settings=engine.settings
        )
    facts = bench_facts(
        point, result, metrics, deltas=server.deltas, means=server.means, records=records, thresholds=asked.thresholds
    )
    checks = [
        *bench_checks(facts),
        *consistency_checks(_load_facts(point, result, metrics, evidence, asked.thresholds)),
        *own_checks(None, asked.thresholds),
    ]
    found = server_findings(
        server.deltas, engine, data=point.data, kv_usage=server.kv_usage, checks=checks, run=run,
        thresholds=asked.thresholds,
    )  # fmt: skip
    client = (metrics["ttft_ms"] or {}).get("mean")
    return MeasuredPoint(
        run, path, point, result, metrics, checks, server, found,
        goodput=_goodput(result, slos),
        over_time=load_phases(result.requests, result.chunks, concurrency=point.load.concurrency),
        ttft_split=ttft_split(server.means, server.counts, client_ms=client, completed=result.completed),
        evidence=evidence,
        engine=engine,
        gpus=gpus_of(engine, manifest.hardware) if manifest else None,
    )  # fmt: skip


def _load_facts(
    point: Point, result: BenchResult, metrics: Mapping[str, Any], evidence: LoadEvidence, thresholds: Thresholds
) -> LoadFacts:
    requests = result.requests
    held = None if requests is None else mean_in_flight(requests, result.duration_s)
    server = evidence.in_flight_over_all(None if requests is None else busy_share(requests))
    return LoadFacts(metrics, point.load.concurrency, held, server, thresholds)


def _goodput(result: BenchResult, slos: Mapping[str, float]) -> Goodput | None:
    if result.requests is None:
        return None
    return request_goodput(result.requests, result.chunks, slos, result.duration_s)
