"""What is explored: profiling passes of runs, folders, recorded names and loose traces, read when first looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perflab.analysis.finding import Finding
from perflab.errors import InputError
from perflab.explorer.rank_times import RankTimes, first_start, rank_times
from perflab.messages import say
from perflab.report.views import pass_names, run_name
from perflab.runs import Run, is_run
from perflab.tasks.breakdown import BreakdownReport, PassBreakdown, pass_breakdown
from perflab.tasks.find import find_runs
from perflab.tasks.own import own
from perflab.tasks.traces import PassSource, all_sources, pass_sources, run_passes

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class ReadPass:
    """A pass that was read: its breakdown, and the arrays of its ranks, whose times count from `origin` (epoch, ns)."""

    broken: PassBreakdown
    origin: int
    ranks: tuple[RankTimes, ...]

    @property
    def window(self) -> tuple[int, int]:
        """From the first thing recorded on any rank to the last."""
        edges = [times.window for times in self.ranks]
        return (min(low for low, _ in edges), max(high for _, high in edges)) if edges else (0, 1)

    @property
    def findings(self) -> list[Finding]:
        """Of the pass."""
        return self.broken.findings


@dataclass
class Entry:
    """One pass to choose, or a run without any.

    Attributes
    ----------
    home
        The run directory; None for loose traces.
    """

    name: str
    home: Run | None
    load: Callable[[], PassBreakdown] | None
    _read: ReadPass | None = field(default=None, repr=False)

    @property
    def has_trace(self) -> bool:
        """Whether there is a trace to read."""
        return self.load is not None

    @property
    def is_read(self) -> bool:
        """Whether `read` returns at once."""
        return self._read is not None

    def read(self) -> ReadPass:
        """The pass, read at the first call.

        Raises
        ------
        InputError
            When there is no trace, or it cannot be read.
        """
        if self._read is None:
            if self.load is None:
                raise InputError(say("explorer.no_trace"), path=None if self.home is None else self.home.path)
            self._read = read_pass(self.load())
        return self._read


def read_pass(broken: PassBreakdown) -> ReadPass:
    """The arrays of a pass that was broken down."""
    starts = [first for rank in broken.ranks if (first := first_start(rank)) is not None]
    origin = min(starts, default=0)
    return ReadPass(broken, origin, tuple(rank_times(rank, origin) for rank in broken.ranks))


def entries(of: Paths | BreakdownReport) -> list[Entry]:
    """Everything that was named, in order; nothing is read yet but what tells traces from one another.

    Raises
    ------
    InputError
        When a path or name is none of a run, a trace, or a folder with either.
    """
    if isinstance(of, BreakdownReport):
        names = pass_names(of)
        return _distinct([_of_broken(name, one) for name, one in zip(names, of.passes, strict=True)])
    parts = [of] if isinstance(of, str | Path) else list(of)
    found: list[Entry] = []
    files = [part for part in parts if Path(part).is_file()]
    if files:
        found += [_of_source(source) for source in all_sources(files)]
    for part in parts:
        if Path(part).is_file():
            continue
        if Path(part).is_dir() and not is_run(part) and not _holds_runs(Path(part)):
            found += [_of_source(source) for source in pass_sources(part)]
            continue
        for run in find_runs(part):
            sources = run_passes(run)
            found += [_of_source(source) for source in sources] or [Entry(run.path.name, run, None)]
    if not found:
        raise InputError(say("explorer.nothing"))
    return _distinct(found)


def _holds_runs(folder: Path) -> bool:
    return any(is_run(path) for path in folder.iterdir())


def _of_source(source: PassSource) -> Entry:
    name = run_name(source.files[0]) if source.home is not None else source.run
    if source.home is not None and source.run.endswith(")") and source.profile is not None:
        passes = run_passes(source.home)
        name += f" {source.run[source.run.rfind('(') :]}" if len(passes) > 1 else ""
    return Entry(name, source.home, lambda: pass_breakdown(source, own()))


def _of_broken(name: str, broken: PassBreakdown) -> Entry:
    return Entry(name, broken.source.home, lambda: broken)


def _distinct(found: list[Entry]) -> list[Entry]:
    """Entries whose names are told apart by a number where several are called alike."""
    seen: dict[str, int] = {}
    for entry in found:
        seen[entry.name] = seen.get(entry.name, 0) + 1
        if seen[entry.name] > 1:
            entry.name = f"{entry.name} #{seen[entry.name]}"
    return found
