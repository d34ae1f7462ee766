"""One report over several runs: the notebooks executed, one page made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perflab.errors import InputError
from perflab.messages import say
from perflab.report.execution import execute, find_notebook, parameters_of
from perflab.report.rendering import render
from perflab.runs import Run
from perflab.tasks.find import find_runs
from perflab.tasks.own import own
from perflab.tasks.traces import has_measured_traces, has_several_ranks

LATENCY, BREAKDOWN, RANKS = "02_latency_and_throughput", "03_gpu_time_breakdown", "04_multi_gpu"


def report(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    show_code: bool = False,
    notebooks: Sequence[str | Path] | None = None,
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
    progress: Callable[[int, int, str], None] = lambda done, of, notebook: None,
) -> Path:
    """Write one self-contained HTML report over runs.

    Parameters
    ----------
    paths
        Run directories or names of recorded runs.
    out
        The HTML file. The executed notebooks are kept beside it, in `<name>.notebooks/`.
    title, show_code
        See `render`; the title is that of the run, or tells how many there are.
    notebooks
        Notebooks with a parameter `runs`; by default those of perflab for which the runs hold something: latency
        where there are measured points, breakdown where there are traces.
    rules, thresholds
        The user's own files (`perflab.tasks.own`), for the notebooks that take such a parameter.
    progress
        Told how many of how many notebooks are done, and the name of the one that comes next (empty at the end).

    Raises
    ------
    InputError
        When no run is named, the runs hold neither measured points nor traces, or a notebook fails.
    """
    runs = find_runs(paths)
    own(rules, thresholds)  # what is wrong with them is said before anything runs
    target = Path(out)
    kept = target.parent / f"{target.stem}.notebooks"
    chosen = [(find_notebook(n), runs) for n in notebooks] if notebooks is not None else fitting(runs)
    if not chosen:
        raise InputError(say("report.page.nothing"), path=runs[0].path)
    files = {"rules": rules, "thresholds": thresholds}
    given = {name: Path(path).resolve() for name, path in files.items() if path is not None}
    executed = []
    for done, (notebook, of) in enumerate(chosen):
        progress(done, len(chosen), notebook.stem)
        parameters = {"runs": [run.path.resolve() for run in of], **_taken(notebook, given)}
        executed.append(execute(notebook, parameters, kept / notebook.name))
    progress(len(chosen), len(chosen), "")
    told = runs[0].manifest.title if len(runs) == 1 else say("report.page.title", n=len(runs))
    return render(executed, target, title=title or told, show_code=show_code)


def _taken(notebook: Path, given: Mapping[str, Path]) -> dict[str, Path]:
    """Those of the parameters that the notebook has."""
    known = parameters_of(notebook) if given else {}
    return {name: path for name, path in given.items() if name in known}


def fitting(runs: list[Run]) -> list[tuple[Path, list[Run]]]:
    """Notebook and the runs that have what it needs; notebooks without any such run are left out."""
    measured = [run for run in runs if any(point.bench and point.kind == "serve" for point in run.manifest.points)]
    traced = [run for run in runs if has_measured_traces(run)]
    # One rank says nothing about several, but is what they are set beside.
    ranks = traced if any(has_several_ranks(run) for run in traced) else []
    return [(find_notebook(n), of) for n, of in ((LATENCY, measured), (BREAKDOWN, traced), (RANKS, ranks)) if of]
