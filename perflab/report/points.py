"""Measured points, cut to what one table or figure shows; see `perflab.report.views` for what pieces are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.checks import Check
from perflab.analysis.finding import Finding
from perflab.analysis.latency import latency_values
from perflab.plots import style
from perflab.read.bench_result import VLLM
from perflab.report.views import Pieces, run_name
from perflab.runs import Run
from perflab.tasks.latency import LatencyReport
from perflab.tasks.machines import in_order, machine_at
from perflab.tasks.observed import observed
from perflab.tasks.observed import spans as measured_spans

_POINT_COLUMNS = {
    "run": "run", "load": "load", "repeat": "repeat", "completed": "requests", "failed": "failed",
    "ttft_p50_ms": "TTFT p50 (ms)", "ttft_p99_ms": "TTFT p99 (ms)", "tpot_p50_ms": "TPOT p50 (ms)",
    "itl_p99_ms": "ITL p99 (ms)", "e2el_p50_ms": "E2EL p50 (ms)", "output_tokens_per_s": "output tokens/s",
    "client": "client", "differs": "not as in vLLM",
}  # fmt: skip
_ONLY_IF_ANY = ("repeat", "failed")


def points_table(report: LatencyReport) -> pd.DataFrame:
    """A row a measured point, by run, workload and load: the latencies and rates a reader looks at first.

    Where another client than vLLM's measured, it is named, and so are the metrics it does not define as vLLM does.
    Where the runs come from several machines, `machine` tells them apart, those of one together.
    """
    points = named_points(report)
    points["load"] = points["lengths"] + " " + points["load"]
    points["repeat"] = points["repeat"] + 1
    own = {"client": (points["client"] != VLLM).any(), "differs": points["differs"].notna().any()}
    shown = [
        name
        for name in _POINT_COLUMNS
        if (own[name] if name in own else name not in _ONLY_IF_ANY or points[name].nunique() > 1)
    ]
    table = points[shown].rename(columns=_POINT_COLUMNS)
    machines = points["machine"]
    if machines.nunique() < 2:
        return table
    order = sorted(range(len(table)), key=lambda row: in_order(machines).index(machines.iloc[row]))
    return table.assign(machine=machines).iloc[order].reset_index(drop=True)


def named_points(report: LatencyReport) -> pd.DataFrame:
    """`LatencyReport.points` with `run` the directory's name, `machine`, and `lengths`, what was sent: `512/128`.

    Runs and workloads come in the order given, loads by how many requests they put on the server.
    """
    points = report.points.assign(
        run=[run_name(measured.source) for measured in report.runs],
        lengths=_workloads(report),
        machine=[machine_at(measured.source) for measured in report.runs],
    )
    points["place"] = range(len(points))
    points["group"] = points.groupby(["run", "lengths"])["place"].transform("min")
    points["run_place"] = points.groupby("run")["place"].transform("min")
    order = ["run_place", "group", "rate", "concurrency", "repeat"]
    return points.sort_values(order, na_position="first", kind="stable", ignore_index=True).drop(
        columns=["place", "group", "run_place"]
    )


def validity_checks(report: LatencyReport) -> list[Check]:
    """The checks of all points, each with its point as its source (and its run, where there are several)."""
    several = len({measured.run for measured in report.runs}) > 1
    return [
        dataclasses.replace(
            check, source=f"{run_name(measured.source)}, {measured.point.id}" if several else measured.point.id
        )
        for measured in report.runs
        for check in measured.validity
    ]


def point_findings(report: LatencyReport) -> list[Finding]:
    """The findings of all points, each once a run even if several points show it, and of the load curves."""
    found = {(measured.run, f.id, f.title): f for measured in report.runs for f in measured.findings}
    found |= {(answer.curve.run, f.id, f.title): f for answer in report.load for f in answer.findings}
    return list(found.values())


def limits(report: LatencyReport, **given: float | None) -> dict[str, float | None]:
    """SLOs by metric: those given, else what the runs' experiments asked for where they agree."""
    asked = [frozenset(measured.point.slos.items()) for measured in report.runs]
    agreed = dict(asked[0]) if len(set(asked)) == 1 else {}
    return {
        name: value if value is not None else agreed.get(f"{name}_ms", agreed.get(name))
        for name, value in given.items()
    }


def throughput_pieces(report: LatencyReport) -> Pieces:
    """For `plot_throughput_latency`: the runs of a machine together, a figure a workload with more than one point."""
    points = named_points(report)
    colours = _colours(points["run"])
    return [
        {"points": group, "of": _apart(points, str(lengths), str(machine)), "colours": colours}
        for (lengths, machine), group in points.groupby(["lengths", "machine"], sort=False)
        if len(group[["run", "load"]].drop_duplicates()) > 1
    ]


def latency_pieces(report: LatencyReport) -> Pieces:
    """For `plot_latency_distributions`: values of single requests.

    Where several runs of one machine share a workload and load, a figure for that with a curve a run; for the other
    runs a figure each with a curve a workload and load.
    """
    values = _values(report)
    points = named_points(report)
    loads = list(dict.fromkeys(points["lengths"] + " " + points["load"]))
    values = values.sort_values("load", key=lambda column: column.map(loads.index), kind="stable")
    colours = _colours(points["run"]) | _colours(loads)
    shared = values.groupby(["load", "machine"])["run"].transform("nunique") > 1
    compared = set(values.loc[shared, "run"])
    alone = values[~values["run"].isin(compared)]
    return [
        {"values": group.assign(series=group[series]), "of": told, "colours": colours}
        for part, by, series in ((values[shared], "load", "run"), (alone, "run", "load"))
        for (of, machine), group in part.groupby([by, "machine"], sort=False)
        for told in [_apart(values, str(of), str(machine)) if by == "load" else str(of)]
    ]


def request_pieces(report: LatencyReport) -> Pieces:
    """For `plot_load_over_time`: of each run the detailed point with most requests."""
    best: dict[str, tuple[int, dict[str, Any]]] = {}
    for measured, workload in zip(report.runs, _workloads(report), strict=True):
        name, requests, chunks = run_name(measured.source), measured.requests, measured.chunks
        if requests is not None and chunks is not None and len(requests) > best.get(name, (0, {}))[0]:
            of = f"{name}, {workload} {measured.point.load.label}"
            best[name] = (len(requests), {"requests": requests, "chunks": chunks, "of": of})
    return [piece for _, piece in best.values()]


def _apart(frame: pd.DataFrame, of: str, machine: str) -> str:
    """What a figure is of, with its machine where there are several."""
    return f"{of}, {machine}" if frame["machine"].nunique() > 1 else of


def _colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same in all figures of a report."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, style.series(len(distinct)), strict=True))


def _values(report: LatencyReport) -> pd.DataFrame:
    tables = [
        latency_values(measured.requests, measured.chunks).assign(
            run=run_name(measured.source),
            load=f"{workload} {measured.point.load.label}",
            machine=machine_at(measured.source),
        )
        for measured, workload in zip(report.runs, _workloads(report), strict=True)
        if measured.requests is not None
    ]
    columns = ["metric", "value_ms", "run", "load", "machine"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({name: [] for name in columns})


def _workloads(report: LatencyReport) -> list[str]:
    """What each point sent, short: `512/128` tokens in and out, with the kind of data unless it is random.

    The workload's name stands before it where workloads of one run would otherwise look the same.
    """
    points = [measured.point for measured in report.runs]
    short = [
        " ".join(
            part
            for part in (
                f"{p.input_len}/{p.output_len}" if p.input_len and p.output_len else p.workload,
                "" if p.data in ("random", "unknown") else p.data,
            )
            if part
        )
        for p in points
    ]
    keys = [(m.run, label, p.load.label) for m, label, p in zip(report.runs, short, points, strict=True)]
    names: dict[tuple[str, str, str], set[str]] = {}
    for key, p in zip(keys, points, strict=True):
        names.setdefault(key, set()).add(p.workload)
    alike = {(run, label) for (run, label, _), workloads in names.items() if len(workloads) > 1}
    return [
        f"{p.workload} {label}" if key[:2] in alike and p.workload not in label else label
        for key, label, p in zip(keys, short, points, strict=True)
    ]


_OBSERVED = {
    "vllm:num_requests_running": "requests running", "vllm:num_requests_waiting": "requests waiting",
    "vllm:kv_cache_usage_perc": "KV cache in use", "gpu_power_watts": "GPU power",
    "gpu_utilization_percent": "GPU not idle", "gpu_sm_clock_mhz": "SM clock",
    "engine_cpu_percent": "engine's CPU", "client_cpu_percent": "client's CPU",
}  # fmt: skip


def telemetry_pieces(runs: Sequence[Run]) -> Pieces:
    """For `plot_telemetry`: what gauges and telemetry say of each run that was sampled, while it was measured."""
    found: Pieces = []
    for run in runs:
        samples, spans = observed(run), measured_spans(run)
        if samples.empty or spans.empty:
            continue
        margin = 2 * units.NS_PER_S
        during = samples["t_ns"].between(spans["start_ns"].min() - margin, spans["end_ns"].max() + margin)
        if during.any():
            found.append({
                "samples": samples[during], "spans": spans, "metrics": _OBSERVED, "of": run.path.name,
                "title": _observed_title(samples[during]),
            })  # fmt: skip
    return found


def _observed_title(samples: pd.DataFrame) -> str:
    """The most that ran, waited and was in use at once; empty where gauges were not scraped."""
    most = samples.groupby("metric")["value"].max()
    told = [
        text.format(most[metric] * factor)
        for metric, text, factor in (
            ("vllm:num_requests_running", "{:,.0f} requests running", 1),
            ("vllm:num_requests_waiting", "{:,.0f} waiting", 1),
            ("vllm:kv_cache_usage_perc", "{:.1f} % of the KV cache in use", 100),
        )
        if metric in most.index
    ]
    return f"At most {style.join(told)} at a time" if told else ""
