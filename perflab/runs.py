"""The run directory: what was asked, what ran, what came of it.

A run directory holds `manifest.json` and the files it names, each by a path relative to the directory::

    manifest.json      schema 1, see `Manifest`; rewritten whole (atomically) at every change
    experiment.yaml    the experiment as given, changes applied (captured runs)
    server.log         the engine's own log
    bench/             one result of `vllm bench` per point, and what the client printed
    metrics/           /metrics before and after each point, and sampled during it
    step_records.jsonl one line per engine step, written by the server
    telemetry.jsonl    GPU or host telemetry, one sample a line
    profile/           traces of the profiling pass
    clock.json         clock anchors: the client's clock against the epoch

Text files may be stored compressed (`.gz`, `.xz`). Writers create everything through `RunWriter`, so a run
that stops anywhere is readable and says how far it came.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import psutil

from perflab.errors import InputError
from perflab.experiment.spec import Load as Load
from perflab.messages import say

SCHEMA = 1
MANIFEST = "manifest.json"
_RESERVE = ".reserve"
_RESERVE_BYTES = 1 << 18

T = TypeVar("T")
Status = Literal["running", "complete", "partial", "failed", "skipped"]


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement: a workload's lengths and load, one repeat on one server.

    `model` is set only where it is not the engine's (imports of files that do not belong together).
    """

    id: str
    workload: str
    data: str = "random"
    kind: Literal["serve", "latency", "throughput", "startup", "forward"] = "serve"
    input_len: int | None = None
    output_len: int | None = None
    load: Load = Load()
    num_prompts: int | None = None
    slos: dict[str, float] = {}
    repeat: int = 0
    server_run: int = 0
    seed: int | None = None
    status: Status = "running"
    reason: str | None = None
    bench: str | None = None
    printed: str | None = None
    metrics_before: str | None = None
    metrics_after: str | None = None
    samples: str | None = None
    started: str | None = None
    ended: str | None = None
    model: str | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One profiling pass: apart from measuring, short, and never a source of latency figures.

    `role` is `teacher` where the engine ran otherwise than it was measured (without CUDA graphs), so that the times
    are not those of the measured engine. `traces` are of torch, `reports` what nsys or ncu wrote.
    """

    id: str
    kind: Literal["torch", "nsys", "ncu"] = "torch"
    role: Literal["measured", "teacher"] = "measured"
    status: Status = "running"
    reason: str | None = None
    traces: list[str] = []
    reports: list[str] = []
    frontend_traces: list[str] = []
    tables: list[str] = []
    bench: str | None = None
    input_len: int | None = None
    output_len: int | None = None
    load: Load = Load()
    server_run: int = 0


class StepRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line per engine step that a server wrote about itself, and what that cost it.

    `mean_ns` is what picking a record took on the thread that serves requests, `flush_ns` per record what writing
    took beside it. None: the server did not come to say so.
    """

    file: str
    server_run: int = 0
    records: int | None = None
    dropped: int | None = None
    mean_ns: float | None = None
    flush_ns: float | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that was started, as its argument list; secrets are replaced before they get here."""

    purpose: str
    argv: list[str]
    env: dict[str, str] = {}
    started: str | None = None
    ended: str | None = None
    exit_status: int | None = None


class Server(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of the engine. `phases` are seconds from its start to where each phase was first logged."""

    server_run: int
    log: str
    started: str | None = None
    ready: str | None = None
    ended: str | None = None
    phases: dict[str, float] = {}
    reason: str | None = None


class Engine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The engine as it described itself. `settings` are vLLM's own names and resolved values."""

    flavour: Literal["gpu", "cpu", "attached", "unknown"] = "unknown"
    vllm_version: str | None = None
    torch_version: str | None = None
    python_version: str | None = None
    model: str | None = None
    settings: dict[str, Any] = {}


class Process(msgspec.Struct, frozen=True):
    """The process that writes a run: `began` tells it from a later one of the same number."""

    host: str
    pid: int
    began: str


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU."""

    name: str
    memory_bytes: int | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine the engine ran on; what is not known is absent."""

    gpus: list[Gpu] = []
    driver: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    os: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `manifest.json` holds. Keys may be added, never renamed; unknown keys are ignored.

    `process` is there while the run is being written; `experiment` is the file's name as it was given.
    """

    schema: int
    id: str
    title: str
    origin: Literal["captured", "imported"]
    created: str
    perflab_version: str
    status: Status = "running"
    reason: str | None = None
    notes: list[str] = []
    asked: dict[str, Any] = {}
    experiment: str | None = None
    engine: Engine = Engine()
    hardware: Hardware = Hardware()
    commands: list[Command] = []
    servers: list[Server] = []
    points: list[Point] = []
    profiles: list[Profile] = []
    log: str | None = None
    metrics: list[str] = []
    step_records: list[StepRecords] = []
    telemetry: str | None = None
    clock: str | None = None
    model_config: str | None = None
    other_files: list[str] = []
    process: Process | None = None


class Run(msgspec.Struct, frozen=True):
    """A run directory opened for reading."""

    path: Path
    manifest: Manifest

    def file(self, relative: str) -> Path:
        """The path of a file the manifest names.

        Raises
        ------
        InputError
            When the name leads out of the run directory, or no such file is there.
        """
        full = (self.path / relative).resolve()
        if not full.is_relative_to(self.path.resolve()):
            raise InputError(f"names a file outside the run directory: {relative}", path=self.path / MANIFEST)
        if not full.is_file():
            raise InputError(
                f"names {relative}, which is missing; copy the whole run directory", path=self.path / MANIFEST
            )
        return full


def is_run(path: str | Path) -> bool:
    """Whether `path` is a run directory."""
    return (Path(path) / MANIFEST).is_file()


def open_run(path: str | Path) -> Run:
    """Open a run directory.

    A run that says it is running while the process that wrote it is gone is shown as what it became; the directory
    itself is left as it is.

    Raises
    ------
    InputError
        When there is no manifest, it is not valid, or a newer perflab wrote it.
    """
    root = Path(path)
    if not is_run(root):
        raise InputError("is not a run directory (no manifest.json); see `perflab import`", path=root)
    file = root / MANIFEST
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"is not a valid manifest: {error}", path=file) from error
    if manifest.schema > SCHEMA:
        raise InputError(
            f"has schema {manifest.schema}, newer than this perflab reads ({SCHEMA}); upgrade perflab",
            path=file,
        )
    if manifest.status == "running" and manifest.process is not None and is_gone(manifest.process):
        manifest = as_ended(manifest, say("capture.not_closed"))
    return Run(root, manifest)


def as_ended(manifest: Manifest, reason: str) -> Manifest:
    """A manifest nobody will go on writing: partial where something was measured, else failed.

    `hosted/supervise.py` does the same to the file, without perflab.
    """
    points = [_ended(point, reason) for point in manifest.points]
    profiles = [_ended(one, reason) for one in manifest.profiles]
    statuses = {point.status for point in points} | {one.status for one in profiles}
    measured = bool(statuses & {"complete", "partial"})
    status: Status = "partial" if measured else "failed"
    return msgspec.structs.replace(
        manifest, status=status, reason=reason, process=None, points=points, profiles=profiles
    )


P = TypeVar("P", Point, Profile)


def _ended(one: P, reason: str) -> P:
    return msgspec.structs.replace(one, status="failed", reason=reason) if one.status == "running" else one


def this_process() -> Process:
    """The process that runs perflab."""
    return Process(platform.node(), os.getpid(), _began(os.getpid()) or "")


def is_gone(process: Process) -> bool:
    """Whether a process has ended; False where that cannot be told, as of another machine's."""
    return process.host == platform.node() and process.began != "" and _began(process.pid) != process.began


def _began(pid: int) -> str | None:
    """When a process began, None where there is none (or only what its parent has not yet taken leave of)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # On Linux in ticks since a boot with a name: the time of day may be set anew in between.
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return f"{_boot()}/{stat.rpartition(')')[2].split()[19]}"
        return f"{process.create_time():.0f}"
    except psutil.Error:
        return None


@lru_cache(maxsize=1)
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def now() -> str:
    """The current time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunWriter:
    """Writes a run directory as the run goes on: every `update` leaves a whole, valid manifest behind."""

    def __init__(self, path: str | Path, manifest: Manifest) -> None:
        self.path = Path(path)
        try:
            if self.path.exists() and any(self.path.iterdir()):
                raise InputError("exists and is not empty; choose another directory with -o", path=self.path)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot be made: {error.strerror}; choose another directory with -o", path=self.path
            ) from error
        self.manifest = manifest
        if manifest.status == "running":
            self.manifest = msgspec.structs.replace(manifest, process=this_process())
            # Room for the last manifest: where the disk is full, that one has to say so.
            (self.path / _RESERVE).write_bytes(b" " * _RESERVE_BYTES)
        self._save()

    def update(self, **changes: Any) -> None:
        """Replace top-level fields of the manifest and save it."""
        self.manifest = msgspec.structs.replace(self.manifest, **changes)
        if self.manifest.status != "running":
            self.manifest = msgspec.structs.replace(self.manifest, process=None)
            self.use_reserve()
        self._save()

    def use_reserve(self) -> None:
        """Give up the room kept for the end."""
        (self.path / _RESERVE).unlink(missing_ok=True)

    def put_point(self, point: Point) -> None:
        """Add a point, or replace the one with its id."""
        self.update(points=_put(self.manifest.points, point, lambda p: p.id))

    def put_profile(self, profile: Profile) -> None:
        """Add a profiling pass, or replace the one with its id."""
        self.update(profiles=_put(self.manifest.profiles, profile, lambda p: p.id))

    def put_server(self, server: Server) -> None:
        """Add a start of the engine, or replace the one with its log."""
        self.update(servers=_put(self.manifest.servers, server, lambda s: s.log))

    def add_command(self, command: Command) -> None:
        """Record a process that was started."""
        self.update(commands=[*self.manifest.commands, command])

    def note(self, text: str) -> None:
        """Record a remark a reader of the run needs."""
        if text not in self.manifest.notes:
            self.update(notes=[*self.manifest.notes, text])

    def folder(self, name: str) -> Path:
        """A subdirectory of the run, made if need be."""
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def relative(self, path: Path) -> str:
        """`path` as the manifest names it."""
        return path.resolve().relative_to(self.path.resolve()).as_posix()

    def _save(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self.manifest), indent=1)
        handle, name = tempfile.mkstemp(dir=self.path, prefix=".manifest-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(self.path / MANIFEST)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _put(items: list[T], item: T, key: Callable[[T], str]) -> list[T]:
    if any(key(other) == key(item) for other in items):
        return [item if key(other) == key(item) else other for other in items]
    return [*items, item]
