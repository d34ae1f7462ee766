"""The profiling passes of runs and folders: which traces belong together, and what is known of what they show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import sniff
from perflab.read.trace import Trace, with_rank
from perflab.read.trace_files import KINDS, needs_export, read_traces
from perflab.runs import Engine, Profile, Run, is_run
from perflab.tasks.find import find_runs

Role = Literal["measured", "teacher"]

_EPOCH = 10**17
"""Times before this (1973) do not count from the epoch."""


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
    read
        The traces, where they had to be read to tell which belong together.
    """

    run: str
    files: list[Path]
    engine: Engine = field(default_factory=Engine)
    profile: Profile | None = None
    home: Run | None = None
    read: tuple[Trace, ...] = ()

    @property
    def asked(self) -> tuple[object, ...] | None:
        """Lengths and load of its requests; None where there is no run."""
        profile = self.profile
        return None if profile is None else (profile.input_len, profile.output_len, profile.load)

    def traces(self) -> list[Trace]:
        """The traces in the files, by rank.

        Raises
        ------
        InputError
            When a file cannot be read, or two files outside a run claim the same rank; both are named.
        """
        traces = list(self.read) or [trace for path in self.files for trace in read_traces(path)]
        traces = _numbered(traces)
        if self.home is None:
            _refuse_twins(traces)
        return sorted(traces, key=lambda trace: trace.rank)


def alike(first: Sequence[PassSource], second: Sequence[PassSource]) -> tuple[PassSource, PassSource]:
    """The first passes of two sides with the same lengths and load; the first of each side where none match."""
    pairs = [(one, other) for one in first for other in second]
    return next(((one, other) for one, other in pairs if one.asked == other.asked), pairs[0])


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
        found = [PassSource(path.name, [path])] if path.is_file() else _in_folder(path)
        if found:
            return found
    return [source for run in find_runs(part) for source in run_passes(run, role)]


def _in_folder(folder: Path) -> list[PassSource]:
    """A pass of the torch traces below a folder, and one of the Nsight Systems exports."""
    kinds = [(path, sniff(path)) for path in sorted(folder.rglob("*")) if path.is_file()]
    by = {kind: [path for path, its in kinds if its == kind] for kind in (*KINDS, "nsys_report")}
    if by["nsys_report"] and not any(by[kind] for kind in KINDS):
        raise needs_export(by["nsys_report"][0])
    several = all(by[kind] for kind in KINDS)
    return [PassSource(f"{folder.name} ({kind})" if several else folder.name, by[kind]) for kind in KINDS if by[kind]]


# SGLang names a trace by its place in each kind of parallelism: 1712.3-TP-1-DP-0.trace.json.gz
_PLACE = re.compile(r"-(DP|PP|TP|EP)-(\d{1,6})(?!\d)")
_OUTER = ("DP", "PP", "TP", "EP")


def _numbered(traces: Sequence[Trace]) -> list[Trace]:
    """Ranks by the order of all places that files' names tell, where the one taken from them is not enough."""
    places = [dict(_PLACE.findall(trace.path.name)) for trace in traces]
    keys = [tuple(int(place.get(kind, 0)) for kind in _OUTER) for place in places]
    by_name = all(trace.rank_source == "file_name" and place for trace, place in zip(traces, places, strict=True))
    if not by_name or len({trace.rank for trace in traces}) == len(traces) or len(set(keys)) < len(keys):
        return list(traces)
    order = sorted(keys)
    return [with_rank(trace, order.index(key)) for trace, key in zip(traces, keys, strict=True)]


def _refuse_twins(traces: Sequence[Trace]) -> None:
    """Two traces of one rank are two passes, or one was copied: no breakdown can be made of both."""
    first: dict[int, Trace] = {}
    for trace in traces:
        if trace.is_frontend:
            continue
        other = first.setdefault(trace.rank, trace)
        if other is not trace:
            what = say("breakdown.twins", rank=trace.rank, one=other.path.name, other=trace.path.name)
            raise InputError(what, path=trace.path.parent)


def all_sources(parts: Sequence[str | Path], role: Role = "measured") -> list[PassSource]:
    """The passes of several, in order. Trace files given one by one are a pass where ranks and times fit.

    Raises
    ------
    InputError
        Also when two of the files recorded one rank at the same time; both are named.
    """
    files = [Path(part) for part in parts if Path(part).is_file()]
    if len(files) < 2:
        return [source for part in parts for source in pass_sources(part, role)]
    rest = [part for part in parts if not Path(part).is_file()]
    return [*_passes_of(files), *(source for part in rest for source in pass_sources(part, role))]


def _passes_of(files: Sequence[Path]) -> list[PassSource]:
    """Files that overlap in time and are of different ranks together; the others one by one."""
    passes: list[list[tuple[Path, list[Trace]]]] = []
    for path in files:
        mine = read_traces(path)
        fitting = next((members for members in passes if _fit([t for _, ts in members for t in ts], mine)), None)
        if fitting is None:
            passes.append([(path, mine)])
        else:
            fitting.append((path, mine))
    return [
        PassSource(
            f"{members[0][0].name} and {len(members) - 1} more" if len(members) > 1 else members[0][0].name,
            [path for path, _ in members],
            read=tuple(trace for _, traces in members for trace in traces),
        )
        for members in passes
    ]


def _fit(known: Sequence[Trace], more: Sequence[Trace]) -> bool:
    """Whether traces are of one pass with others.

    Those that do not say which rank they are, or whose clock is their own, fit nothing.
    """
    both = [*known, *more]
    if any(t.rank_source == "assumed" or _span(t)[0] < _EPOCH for t in both):
        return False
    start, end = zip(*(_span(trace) for trace in both), strict=True)
    if max(start) > min(end):
        return False
    _refuse_twins(both)
    return True


def _span(trace: Trace) -> tuple[int, int]:
    frames = [frame for frame in (trace.kernels, trace.launches, trace.ranges) if len(frame)]
    first = min((int(frame["start_ns"].min()) for frame in frames), default=0)
    return first, max((int((frame["start_ns"] + frame["dur_ns"]).max()) for frame in frames), default=0)


def run_passes(run: Run, role: Role = "measured") -> list[PassSource]:
    """The passes of a run that left traces."""
    profiles = _of_role(run, role)
    parts = [
        (profile, source)
        for profile in profiles
        for source in _exported(run, profile) or [PassSource("", [run.file(name) for name in profile.traces])]
    ]
    title, engine = run.manifest.title, run.manifest.engine
    return [
        replace(
            source,
            run=f"{title} ({_part(profile, source)})" if len(parts) > 1 else title,
            engine=engine,
            profile=profile,
            home=run,
        )
        for profile, source in parts
    ]


def _exported(run: Run, profile: Profile) -> list[PassSource]:
    """The passes in a profile's exports: ranks that were recorded apart belong together, capture ranges do not."""
    files = [run.file(name) for name in exports(profile)]
    return _passes_of(files) if len(files) > 1 else [PassSource("", files)] if files else []


def exports(profile: Profile) -> list[str]:
    """The SQLite exports among what Nsight Systems left of a pass."""
    names = (".sqlite", ".sqlite.gz", ".sqlite.xz")
    return [name for name in profile.reports if profile.kind == "nsys" and name.endswith(names)]


def _part(profile: Profile, source: PassSource) -> str:
    several = len(source.files) < len(exports(profile))
    return f"{profile.id}, {source.files[0].name.partition('.sqlite')[0]}" if several else profile.id


def has_several_ranks(run: Run) -> bool:
    """Whether a pass of the engine as it was measured shows several ranks: in files of their own, or in one export."""
    return any(
        len(source.files) > 1 or (sniff(source.files[0]) != "kineto" and len(source.traces()) > 1)
        for source in run_passes(run)
        if source.files
    )


def has_measured_traces(run: Run) -> bool:
    """Whether a run has a pass of the engine as it was measured."""
    return bool(_of_role(run, "measured"))


def _of_role(run: Run, role: Role) -> list[Profile]:
    return [
        one
        for one in run.manifest.profiles
        if one.role == role and ((one.kind == "torch" and one.traces) or exports(one))
    ]
