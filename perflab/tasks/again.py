"""How a captured run can be made once more."""

from __future__ import annotations

from pathlib import Path

from perflab.analysis.finding import Again
from perflab.runs import Run


def again(run: Run | None) -> Again | None:
    """The experiment and the run, named from the current directory; None where the run does not say what made it."""
    if run is None or run.manifest.experiment is None:
        return None
    here = Path.cwd()
    path = run.path.relative_to(here) if run.path.is_relative_to(here) else run.path
    return Again(run.manifest.experiment, str(path))
