"""Answers of the tasks, cut to what one table or figure shows.

Functions named for figures return pieces: keyword arguments of the plot, one mapping a figure, for `show_each`.
Runs are called by the name of their directory, which is short; their titles stand where it is told what ran.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perflab import places
from perflab.errors import InputError
from perflab.experiment import Plan
from perflab.messages import say
from perflab.plots.timeline import span_of_step
from perflab.runs import Run, is_run, open_run
from perflab.schema import PHASES
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown
from perflab.tasks.traces import exports

Pieces = list[dict[str, Any]]

_ALIKE = 0.01
"""Ranks whose components differ by less than this share are filled alike."""


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


def pass_names(report: BreakdownReport) -> list[str]:
    """What each pass of a report is called: as its ranks are."""
    names = dict(zip(map(id, report.ranks), _names(report.ranks), strict=True))
    return [names[id(one.ranks[0])] if one.ranks else one.source.run for one in report.passes]


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
    """For `plot_memory`: all runs on GPUs of a `memory_table`; none where nothing is known.

    Ranks that agree in all that they both tell are one bar, `each of 2 ranks`: the engine logs some components, as the
    KV cache, only once, and gives every rank the same. Ranks that differ have a bar each, with what each of them told.
    """
    on_gpu = memory[memory["device"] == "GPU"]
    if on_gpu.empty:
        return []
    return [{"memory": pd.concat([_ranks_of(group) for _, group in on_gpu.groupby("run", sort=False)])}]


def _ranks_of(memory: pd.DataFrame) -> pd.DataFrame:
    """One run's memory, alike ranks taken as one; `run` says for how many ranks its rows hold."""
    ranks = memory["rank"].nunique()
    if ranks < 2:
        return memory
    sizes = memory.groupby("component")["bytes"]
    alike = bool(((sizes.max() - sizes.min()) <= _ALIKE * sizes.max()).all())
    name = str(memory["run"].iloc[0])
    if alike:
        return memory.drop_duplicates("component").assign(rank=0, run=say("memory.each_rank", run=name, n=ranks))
    return memory.assign(run=[say("memory.rank", run=name, rank=rank) for rank in memory["rank"]])


def runs_in(folder: str | Path) -> list[Run]:
    """The run directories in a folder (from here, or from where the user works), by name; none where there is none."""
    path = next((path for path in (Path(folder), places.work() / folder) if path.is_dir()), Path(folder))
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
            sum(p.bench is not None for p in run.manifest.points),
            sum(len(p.traces) + len(exports(p)) for p in run.manifest.profiles),
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
