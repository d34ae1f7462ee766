"""Names and paths -> run directories."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from perflab import places
from perflab.errors import InputError
from perflab.runs import Run, is_run, open_run


def find_runs(names: str | Path | Sequence[str | Path]) -> list[Run]:
    """Open runs by path, or by the name of a recorded run.

    Parameters
    ----------
    names
        One name or path, several separated by commas, or a sequence of them. A path may be a run directory
        or a folder that holds some; those are taken in the order of their names. It may lead from the current
        directory or from the one the user works in (`perflab.places.work`).

    Raises
    ------
    InputError
        When nothing of that name or path is a run; the message lists what there is.
    """
    parts = [names] if isinstance(names, Path) else names.split(",") if isinstance(names, str) else list(names)
    runs = [run for part in parts if str(part).strip() for run in _find(str(part).strip())]
    if not runs:
        raise InputError("no run was named; give run directories or names of recorded runs")
    return runs


def recorded_runs() -> list[Run]:
    """The runs that come with perflab, by name."""
    return _runs_in(places.recorded())


def _find(name: str) -> list[Run]:
    # A notebook runs where it lies; the user's runs lie where they work.
    given = (Path(name), places.work() / name)
    for path in (*given, places.recorded() / name):
        if is_run(path):
            return [open_run(path)]
    for path in given:
        if path.is_dir() and (inside := _runs_in(path)):
            return inside
    known = [run.path.name for run in recorded_runs()]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"recorded runs: {', '.join(known) or 'none'}"
    if Path(name).exists():
        raise InputError(f"is not a run directory; `perflab import {name} -o RUN` makes one", path=name)
    raise InputError(f"no such run directory or recorded run; {hint}", path=name)


def _runs_in(folder: Path) -> list[Run]:
    return [open_run(path) for path in sorted(folder.iterdir()) if is_run(path)]
