"""Reports: the notebooks that have something to say executed, and one page made of them, or a folder of pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perflab import places
from perflab.errors import InputError
from perflab.messages import say
from perflab.report.choosing import Given, chosen, given
from perflab.report.execution import execute, find_notebook, parameters_of
from perflab.report.rendering import render
from perflab.runs import Run
from perflab.tasks.own import own

Progress = Callable[[int, int, str], None]


def report(
    paths: str | Path | Sequence[str | Path] = (),
    out: str | Path = "report.html",
    *,
    compare: tuple[str | Path, str | Path] | None = None,
    title: str | None = None,
    show_code: bool = False,
    notebooks: Sequence[str | Path] | None = None,
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
    progress: Progress = lambda done, of, notebook: None,
) -> Path:
    """Write one self-contained HTML report over runs.

    Parameters
    ----------
    paths
        Run directories or names of recorded runs; quantization studies.
    out
        The HTML file. The executed notebooks are kept beside it, in `<name>.notebooks/`.
    compare
        Two sides as `perflab.tasks.compare.compare` takes them: did the change help?
    title, show_code
        See `render`; the title is that of the run, or tells what there is.
    notebooks
        Notebooks with a parameter `runs`; by default those of perflab that have something to say about what is given
        (`perflab.report.choosing`).
    rules, thresholds
        The user's own files (`perflab.tasks.own`), for the notebooks that take such a parameter.
    progress
        Told how many of how many notebooks are done, and the name of the one that comes next (empty at the end).

    Raises
    ------
    InputError
        When nothing is named, what is named holds neither measured points nor traces, or a notebook fails.
    """
    asked = given(paths, compare)
    own(rules, thresholds)  # what is wrong with them is said before anything runs
    target = Path(out)
    taken = _chosen(asked, notebooks)
    files = {"rules": rules, "thresholds": thresholds}
    more = {name: Path(path).resolve() for name, path in files.items() if path is not None}
    kept = target.parent / f"{target.stem}.notebooks"
    executed = []
    for done, (notebook, parameters) in enumerate(taken):
        progress(done, len(taken), notebook.stem)
        executed.append(execute(notebook, parameters | known_parameters(notebook, more), kept / notebook.name))
    progress(len(taken), len(taken), "")
    return render(executed, target, title=title or _title(asked), show_code=show_code, names=shown_names(asked))


def fitting(runs: Sequence[Run]) -> list[tuple[Path, list[Run]]]:
    """Notebooks that have something to say about runs, each with the runs that have what it needs."""
    by_path = {run.path.resolve(): run for run in runs}
    return [
        (notebook, [by_path[path] for path in parameters["runs"]])
        for notebook, parameters in chosen(Given(tuple(runs)))
        if "runs" in parameters
    ]


def shown_names(asked: Given) -> dict[str, str]:
    """What a page calls the folders that it is about, by their paths on this machine, which it must not tell.

    Recorded runs go by their names, those below the current directory by the path from there, others by their own name:
    as far as possible what a reader can type.
    """
    here, recorded = Path.cwd().resolve(), places.recorded().resolve()
    names = {}
    for folder in asked.folders:
        path = folder.resolve()
        base = next((base for base in (recorded, here) if path.is_relative_to(base) and path != base), path.parent)
        names[str(path)] = path.relative_to(base).as_posix()
    return names


def _chosen(asked: Given, notebooks: Sequence[str | Path] | None) -> list[tuple[Path, dict[str, Any]]]:
    if notebooks is not None:
        runs = [run.path.resolve() for run in asked.runs]
        return [(find_notebook(name), {"runs": runs}) for name in notebooks]
    found = chosen(asked)
    if not found:
        raise InputError(say("report.page.nothing"), path=asked.folders[0] if asked.folders else None)
    return found


def known_parameters(notebook: Path, more: Mapping[str, Path]) -> dict[str, Path]:
    """Those of the parameters `more` that the notebook has."""
    known = parameters_of(notebook) if more else {}
    return {name: path for name, path in more.items() if name in known}


def _title(asked: Given) -> str:
    if asked.sides is not None:
        baseline, candidate = (_short(side) for side in asked.sides)
        return say("report.page.compared", baseline=baseline, candidate=candidate)
    if asked.studies and not asked.runs:
        return say("report.page.study", names=", ".join(path.name for path in asked.studies))
    if len(asked.runs) == 1:
        return asked.runs[0].manifest.title
    return say("report.page.title", n=len(asked.runs))


def _short(side: str) -> str:
    return ", ".join(Path(part).name for part in side.split(","))
