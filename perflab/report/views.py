"""Answers of the tasks, cut to what one table or figure shows.

Functions named for figures return pieces: keyword arguments of the plot, one mapping a figure, for `show_each`.
Runs are called by the name of their directory, which is short; their titles stand where it is told what ran.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from perflab import places, units
from perflab.analysis.checks import Check
from perflab.analysis.finding import Finding
from perflab.analysis.latency import latency_values
from perflab.errors import InputError
from perflab.experiment import Plan
from perflab.plots import style
from perflab.plots.breakdown import parts_of_phases
from perflab.plots.timeline import span_of_step
from perflab.runs import Run, is_run, open_run
from perflab.schema import GROUPS, PHASES
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown
from perflab.tasks.latency import LatencyReport
from perflab.tasks.observed import observed
from perflab.tasks.observed import spans as measured_spans

Pieces = list[dict[str, Any]]

_GROUPS = (*GROUPS, "idle")

_POINT_COLUMNS = {
    "run": "run", "load": "load", "repeat": "repeat", "completed": "requests", "failed": "failed",
    "ttft_p50_ms": "TTFT p50 (ms)", "ttft_p99_ms": "p99 (ms)", "tpot_p50_ms": "TPOT p50 (ms)",
    "itl_p99_ms": "ITL p99 (ms)", "e2el_p50_ms": "E2EL p50 (ms)", "output_tokens_per_s": "output tokens/s",
}  # fmt: skip
_ONLY_IF_ANY = ("repeat", "failed")


def run_name(source: Path) -> str:
    """The name of the run directory a file lies in; the file's own name where it lies in none."""
    return next((folder.name for folder in source.resolve().parents if is_run(folder)), source.name)


# Breakdown


def breakdown_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_breakdown` and `plot_step_time`: all runs together, GPUs and CPU engines apart."""
    names = _names(report.ranks)
    found: Pieces = []
    for kind, device in (("gpu", "GPU"), ("cpu", "CPU")):
        tables = [
            rank.table.assign(run=name) for rank, name in zip(report.ranks, names, strict=True) if rank.kind == kind
        ]
        if tables:
            found.append({"table": pd.concat(tables, ignore_index=True), "device": device})
    return found


def breakdown_table(report: BreakdownReport) -> pd.DataFrame:
    """A row a run, rank and phase: steps, mean time of a step, and the share of each group and of idle time.

    For a CPU engine `idle` is what lies outside operators. Rank and device stand where they differ.
    """
    rows = []
    for rank, name in zip(report.ranks, _names(report.ranks), strict=True):
        for phase, parts in parts_of_phases(rank.table, "group").groupby("phase", sort=False):
            shares = dict(zip(parts["part"], parts["share"], strict=True))
            row = {"run": name, "rank": rank.rank, "device": _device(rank), "phase": phase}
            row |= {"steps": int(parts["steps"].iloc[0]), "step_ns": float(parts["step_ns"].sum())}
            rows.append(row | {f"{part}_share": shares.get(part, 0.0) for part in _GROUPS})
    columns = ["run", "rank", "device", "phase", "steps", "step_ns", *(f"{part}_share" for part in _GROUPS)]
    table = pd.DataFrame(rows, columns=columns)
    return table.drop(columns=[name for name in ("rank", "device") if table[name].nunique() < 2])


def kernel_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_top_kernels`: the first rank of each run."""
    return [{"top": rank.top_kernels(), "device": _device(rank), "of": name} for rank, name in _first_ranks(report)]


def idle_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_idle`: the first rank of each run on a GPU. A CPU engine has no device that waits."""
    return [
        {"idle": _idle(rank), "device": "GPU", "of": name} for rank, name in _first_ranks(report) if rank.kind == "gpu"
    ]


def timeline_pieces(report: BreakdownReport, step: int | None = None) -> Pieces:
    """For `plot_timeline`: one step of the first rank of each run; a typical decode step unless a number is given."""
    return [piece for rank, name in _first_ranks(report) for piece in _timeline(rank, name, step)]


def typical_step(steps: pd.DataFrame) -> int | None:
    """The decode step whose duration is the median (of another phase where there is no decode)."""
    for phase in ("decode", *PHASES):
        of = steps[steps["phase"] == phase].sort_values("dur_ns")
        if len(of):
            return int(of["step"].iloc[(len(of) - 1) // 2])
    return None


def _timeline(rank: RankBreakdown, name: str, step: int | None) -> Pieces:
    chosen = typical_step(rank.steps) if step is None else step
    if chosen is None or chosen not in set(rank.steps["step"]):
        return []
    calls = {"launches": rank.launches} if rank.kind == "gpu" else {}
    span = span_of_step(rank.steps, chosen, rank.rank)
    return [{"kernels": rank.kernels, "span": span, "rank": rank.rank, "device": _device(rank), "of": name, **calls}]


def _idle(rank: RankBreakdown) -> pd.DataFrame:
    places = [("place", place, rank.idle.get(f"{place}_ns", 0)) for place in ("between_steps", "within_steps")]
    causes = [("cause", cause, ns) for cause, ns in rank.idle.get("causes", {}).items()]
    return pd.DataFrame([*places, *causes], columns=["split", "name", "ns"])


def _first_ranks(report: BreakdownReport) -> list[tuple[RankBreakdown, str]]:
    first: dict[str, RankBreakdown] = {}
    for rank, name in zip(report.ranks, _names(report.ranks), strict=True):
        if name not in first or rank.rank < first[name].rank:
            first[name] = rank
    return [(rank, name) for name, rank in first.items()]


def _names(ranks: list[RankBreakdown]) -> list[str]:
    """Directory names; where a run has several profiling passes, with the pass the task named in brackets."""
    base = [run_name(rank.source) for rank in ranks]
    titles = {name: {r.run for r, other in zip(ranks, base, strict=True) if other == name} for name in base}
    return [
        f"{name} {rank.run[rank.run.rfind('(') :]}" if len(titles[name]) > 1 and "(" in rank.run else name
        for rank, name in zip(ranks, base, strict=True)
    ]


def _device(rank: RankBreakdown) -> str:
    return rank.kind.upper()


# Latency


def points_table(report: LatencyReport) -> pd.DataFrame:
    """A row a measured point, by run, workload and load: the latencies and rates a reader looks at first."""
    points = named_points(report)
    points["load"] = points["lengths"] + " " + points["load"]
    points["repeat"] = points["repeat"] + 1
    shown = [name for name in _POINT_COLUMNS if name not in _ONLY_IF_ANY or points[name].nunique() > 1]
    return points[shown].rename(columns=_POINT_COLUMNS)


def named_points(report: LatencyReport) -> pd.DataFrame:
    """`LatencyReport.points` with `run` the directory's name and `lengths`, what was sent: `512/128`.

    Runs and workloads come in the order given, loads by how many requests they put on the server.
    """
    points = report.points.assign(
        run=[run_name(measured.source) for measured in report.runs], lengths=_workloads(report)
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
    """The findings of all points, each once a run even if several points show it."""
    found = {(measured.run, f.id, f.title): f for measured in report.runs for f in measured.findings}
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
    """For `plot_throughput_latency`: all runs together, one figure a workload that has more than one point."""
    points = named_points(report)
    colours = _colours(points["run"])
    return [
        {"points": group, "of": str(lengths), "colours": colours}
        for lengths, group in points.groupby("lengths", sort=False)
        if len(group[["run", "load"]].drop_duplicates()) > 1
    ]


def latency_pieces(report: LatencyReport) -> Pieces:
    """For `plot_latency_distributions`: values of single requests.

    Where several runs share a workload and load, a figure for that with a curve a run; for the other runs a figure
    each with a curve a workload and load.
    """
    values = _values(report)
    points = named_points(report)
    loads = list(dict.fromkeys(points["lengths"] + " " + points["load"]))
    values = values.sort_values("load", key=lambda column: column.map(loads.index), kind="stable")
    colours = _colours(points["run"]) | _colours(loads)
    shared = values.groupby("load")["run"].transform("nunique") > 1
    compared = set(values.loc[shared, "run"])
    alone = values[~values["run"].isin(compared)]
    return [
        {"values": group.assign(series=group[series]), "of": str(of), "colours": colours}
        for part, by, series in ((values[shared], "load", "run"), (alone, "run", "load"))
        for of, group in part.groupby(by, sort=False)
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


def _colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same in all figures of a report."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, style.series(len(distinct)), strict=True))


def _values(report: LatencyReport) -> pd.DataFrame:
    tables = [
        latency_values(measured.requests, measured.chunks).assign(
            run=run_name(measured.source), load=f"{workload} {measured.point.load.label}"
        )
        for measured, workload in zip(report.runs, _workloads(report), strict=True)
        if measured.requests is not None
    ]
    columns = ["metric", "value_ms", "run", "load"]
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


# Memory, runs, experiments


def memory_table(memory: pd.DataFrame, runs: list[Run]) -> pd.DataFrame:
    """The tasks' memory table with runs called by the names of their directories, and `device`, GPU or CPU."""
    by_title = {run.manifest.title: run for run in runs}
    of = [by_title.get(str(title)) for title in memory["run"]]
    return memory.assign(
        run=[run.path.name if run else str(title) for run, title in zip(of, memory["run"], strict=True)],
        device=["CPU" if run and run.manifest.engine.flavour == "cpu" else "GPU" for run in of],
    )


def memory_pieces(memory: pd.DataFrame) -> Pieces:
    """For `plot_memory`: the first rank of all runs on GPUs of a `memory_table`; none where nothing is known.

    Ranks are filled alike, and the engine logs some components only once.
    """
    first = memory.groupby("run")["rank"].transform("min") == memory["rank"]
    on_gpu = memory[(memory["device"] == "GPU") & first]
    return [{"memory": on_gpu}] if len(on_gpu) else []


def runs_in(folder: str | Path) -> list[Run]:
    """The run directories in a folder, by name; none where there is no such folder."""
    path = Path(folder)
    return [open_run(p) for p in sorted(path.iterdir()) if is_run(p)] if path.is_dir() else []


def find_experiment(name: str | Path) -> Path:
    """An experiment file by path, or by the name of one that comes with perflab.

    Raises
    ------
    InputError
        When there is none; the message lists those there are.
    """
    if Path(name).is_file():
        return Path(name)
    ours = sorted(places.experiments().glob("*.yaml"))
    found = [path for path in ours if str(name) in (path.stem, path.name)]
    if found:
        return found[0]
    raise InputError(f"no such experiment file; perflab has {', '.join(p.stem for p in ours) or 'none'}", path=name)


def runs_table(runs: list[Run]) -> pd.DataFrame:
    """A row a run directory: what it is and what is in it."""
    rows = [
        (
            run.path.name, run.manifest.title, run.manifest.engine.vllm_version, run.manifest.status,
            sum(p.bench is not None for p in run.manifest.points), sum(len(p.traces) for p in run.manifest.profiles),
        )
        for run in runs
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["run", "title", "vLLM", "status", "points measured", "traces"])


def plan_table(plan: Plan) -> pd.DataFrame:
    """A row a planned point or profiling pass, in order: lengths, load, prompts, about how long."""
    rows = [
        (p.id, p.request.input_len, p.request.output_len, p.request.load.label, p.request.num_prompts, p.estimate_s)
        for p in plan.points
    ]
    rows += [
        (
            f"profile {p.spec.id}",
            p.spec.input_len,
            p.spec.output_len,
            f"c{p.spec.concurrency}",
            p.spec.num_prompts,
            p.estimate_s,
        )
        for p in plan.profiles
    ]
    return pd.DataFrame(rows, columns=["point", "input_len", "output_len", "load", "prompts", "about_s"])


def plan_facts(plan: Plan) -> dict[str, str]:
    """The plan in numbers, as the sentence `notebook.capture.planned` tells them."""
    return {
        "points": str(len(plan.points)),
        "profiles": str(len(plan.profiles)),
        "servers": str(plan.servers_in_all),
        "minutes": f"{max(plan.estimated_minutes, 1):.0f}",
    }
