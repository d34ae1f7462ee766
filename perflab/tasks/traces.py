"""The profiling passes of runs and folders: which traces belong together, and what is known of what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perflab.read.files import sniff
from perflab.read.kineto import read_kineto
from perflab.read.trace import Trace
from perflab.runs import Engine, Profile, Run, is_run
from perflab.tasks.find import find_runs

Role = Literal["measured", "teacher"]


@dataclass(frozen=True)
class PassSource:
    """The trace files of one profiling pass.

    Attributes
    ----------
    run
        Title of the run, with the pass in brackets where it has several; the path where there is no run.
    files
        One a rank, or one that holds several.
    engine
        The engine as the run describes it; unknown where there is no run.
    profile
        The pass; None where there is no run.
    home
        The run; None where there is none.
    """

    run: str
    files: list[Path]
    engine: Engine = field(default_factory=Engine)
    profile: Profile | None = None
    home: Run | None = None

    def traces(self) -> list[Trace]:
        """The traces in the files."""
        return [read_kineto(path) for path in self.files]


def pass_sources(part: str | Path, role: Role = "measured") -> list[PassSource]:
    """The passes of a run (by path or recorded name), of a trace file, or of a folder of either.

    Parameters
    ----------
    role
        `teacher`: the passes that tell what operators kernels belong to, instead of those of the engine as it was
        measured. Files outside a run are taken for measured ones.

    Raises
    ------
    InputError
        When there is no such path or run.
    """
    path = Path(part)
    if path.exists() and not is_run(path):
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        traces = files if path.is_file() else [p for p in files if sniff(p) == "kineto"]
        if traces:
            return [PassSource(path.name, traces)]
    return [source for run in find_runs(part) for source in run_passes(run, role)]


def all_sources(parts: Sequence[str | Path], role: Role = "measured") -> list[PassSource]:
    """The passes of several, in order."""
    return [source for part in parts for source in pass_sources(part, role)]


def run_passes(run: Run, role: Role = "measured") -> list[PassSource]:
    """The passes of a run that left traces."""
    profiles = _of_role(run, role)
    several = len(profiles) > 1
    title = run.manifest.title
    return [
        PassSource(
            f"{title} ({profile.id})" if several else title,
            [run.file(name) for name in profile.traces],
            run.manifest.engine,
            profile,
            run,
        )
        for profile in profiles
    ]


def has_measured_traces(run: Run) -> bool:
    """Whether a run has a pass of the engine as it was measured."""
    return bool(_of_role(run, "measured"))


def _of_role(run: Run, role: Role) -> list[Profile]:
    return [one for one in run.manifest.profiles if one.traces and one.kind == "torch" and one.role == role]
