"""Files and folders -> what each file is, read: told by content, whatever its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from perflab import units
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.bench_printed import read_printed_results
from perflab.read.bench_result import BenchResult
from perflab.read.files import read_lines, sniff
from perflab.read.kinds import NAMES
from perflab.read.kineto import read_kineto
from perflab.read.nsys_sqlite import read_nsys
from perflab.read.prometheus import read_metrics
from perflab.read.results import READERS, read_results
from perflab.read.server_log import ServerLog, read_server_log
from perflab.read.trace import Trace
from perflab.runs import MANIFEST, Run, open_run
from perflab.tasks.imports.copying import shown
from perflab.tasks.result_files import KnownFile

SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules"))
_BENCH = tuple(kind for kind in READERS if kind != "bench_printed")
_STAMP = re.compile(r"(?:INFO|WARNING|ERROR|DEBUG) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True)
class TraceFacts:
    """What import needs of a trace made by `tool`. `start`, `end`: of all that was recorded; 0 for an empty one."""

    path: Path
    rank: int
    start: int
    end: int
    vllm_version: str | None
    device_name: str | None
    has_gpu: bool
    tool: Literal["torch", "nsys"] = "torch"


@dataclass(frozen=True)
class LogFile:
    """A log, and its first and last time stamp as (month, day, hour, minute, second); vLLM writes no year."""

    path: Path
    log: ServerLog
    span: tuple[tuple[int, ...], tuple[int, ...]] | None


@dataclass
class Found:
    """Files by what they are, in the order they were found."""

    runs: list[Run] = field(default_factory=list)
    results: list[KnownFile] = field(default_factory=list)
    printed: list[tuple[Path, list[BenchResult]]] = field(default_factory=list)
    traces: list[TraceFacts] = field(default_factory=list)
    frontend: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    metrics: list[Path] = field(default_factory=list)
    telemetry: list[Path] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    other: list[tuple[Path, str]] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def is_of_a_run(self) -> bool:
        """Whether anything can be said of a run of vLLM."""
        return bool(self.runs or self.results or self.printed or self.traces or self.logs or self.metrics)


def sorted_out(paths: Sequence[Path]) -> Found:
    """Look at every file. One that cannot be read, or is damaged beyond use, is in `other` with the reason.

    Raises
    ------
    InputError
        When a path does not exist, or is neither file nor folder.
    """
    found = Found()
    files = files_of(paths)
    for path in files:
        if path.name == MANIFEST and _kind(path) == "manifest":
            _open(found, path)
    taken = {file for run in found.runs for file in adopted(run)}
    for path in files:
        if path.resolve() not in taken:
            _take(found, path)
    return found


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Every file at or below `paths`, once; hidden folders are left out."""
    files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", path=path)
        if not path.is_dir() and not path.is_file():
            raise InputError("is neither a file nor a folder", path=path)
        for file in _below(path) if path.is_dir() else [path]:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _below(folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=folder) from error
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            if not path.name.startswith(".") and path.name not in SKIPPED_FOLDERS:
                yield from _below(path)
        elif path.is_file():
            yield path


def adopted(run: Run) -> set[Path]:
    """Files of a run directory that come with its points and profiles, and its manifest."""
    names: list[str | None] = [MANIFEST, run.manifest.clock]
    for point in run.manifest.points:
        names += [point.bench, point.printed, point.metrics_before, point.metrics_after, point.samples]
    for profile in run.manifest.profiles:
        names += [*profile.traces, *profile.reports, *profile.frontend_traces, *profile.tables, profile.bench]
    names += [records.file for records in run.manifest.step_records]
    return {(run.path / name).resolve() for name in names if name is not None}


def _open(found: Found, path: Path) -> None:
    try:
        found.runs.append(open_run(path.parent))
    except InputError as error:
        found.other.append((path, error.what))


def _kind(path: Path) -> str | None:
    try:
        return sniff(path)
    except InputError:
        return None


def _take(found: Found, path: Path) -> None:
    try:
        kind = sniff(path)
    except InputError as error:
        found.unreadable.append((path, error.what))
        return
    take = _TAKERS.get(kind or "")
    if take is None:
        if kind != "manifest":
            found.other.append((path, _why_not(kind)))
        return
    try:
        take(found, path, cast(str, kind))
    except InputError as error:
        found.other.append((path, say("import.damaged", what=NAMES.get(kind or "", ""), why=error.what)))


def _why_not(kind: str | None) -> str:
    if kind is None:
        return say("import.unknown")
    if kind == "nsys_report":
        return say("import.nsys_report")
    return say("import.samples") if kind == "samples" else say("import.no_use", what=NAMES[kind])


def _results(found: Found, path: Path, kind: str) -> None:
    found.results.append(KnownFile(path, kind, read_results(path)))


def _printed(found: Found, path: Path, kind: str) -> None:
    found.printed.append((path, read_printed_results(path)))


def _trace(found: Found, path: Path, kind: str) -> None:
    traces = read_nsys(path) if kind == "nsys" else [read_kineto(path, cpu_ops=False)]
    facts = [one for trace in traces if (one := _facts(path, trace)).end]
    found.traces += facts
    if not facts:
        found.other.append((path, say("import.empty_trace")))


def _metrics(found: Found, path: Path, kind: str) -> None:
    read_metrics(path, 0)
    found.metrics.append(path)


def _log(found: Found, path: Path, kind: str) -> None:
    found.logs.append(LogFile(path, read_server_log(path), _span(path)))


_TAKERS: dict[str, Callable[[Found, Path, str], Any]] = {
    **dict.fromkeys(_BENCH, _results),
    "bench_printed": _printed,
    "kineto": _trace,
    "nsys": _trace,
    "kineto_frontend": lambda found, path, _: found.frontend.append(path),
    "profiler_table": lambda found, path, _: found.tables.append(path),
    "metrics": _metrics,
    "telemetry": lambda found, path, _: found.telemetry.append(path),
    "server_log": _log,
    "model_config": lambda found, path, _: found.configs.append(path),
}


def _facts(path: Path, trace: Trace) -> TraceFacts:
    frames = [frame for frame in (trace.kernels, trace.launches, trace.ranges) if len(frame)]
    start = min((int(f["start_ns"].min()) for f in frames), default=0)
    end = max((int((f["start_ns"] + f["dur_ns"]).max()) for f in frames), default=0)
    tool: Literal["torch", "nsys"] = "torch" if trace.recording is None else "nsys"
    return TraceFacts(path, trace.rank, start, end, trace.vllm_version, trace.device_name, trace.has_gpu, tool)


def _span(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    stamps = [tuple(int(part) for part in match.groups()) for _, line in read_lines(path)
              if (match := _STAMP.search(line))]  # fmt: skip
    return (stamps[0], stamps[-1]) if stamps else None


def date_ns(result: BenchResult) -> int | None:
    """When a result was written, its local time taken as UTC; None where it does not tell."""
    try:
        moment = datetime.strptime(result.meta.date or "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return units.ns_from_seconds(moment.timestamp())


def named(path: Path, folder: bool = False) -> str:
    """A file as notes name it."""
    return f"{shown(path.parent)}/{shown(path)}" if folder else shown(path)
