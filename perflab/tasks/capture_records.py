"""What a running capture tells: its progress to whoever watches, its outcome to the run directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perflab.capture.engine import Server
from perflab.capture.point import begun
from perflab.capture.torch_profile import profile_begun
from perflab.errors import InputError
from perflab.experiment import Experiment, Plan, PlannedPoint, PlannedProfile
from perflab.experiment.secrets import redact_argv, redact_data, redact_text, secret_values
from perflab.messages import say
from perflab.read.step_records import read_step_records
from perflab.runs import Command, Point, Profile, RunWriter, Status, StepRecords, now
from perflab.runs import Server as ServerRecord

_TICK_S = 0.5


@dataclass(frozen=True)
class Progress:
    """What is happening. `done` of `total` points and profiles; `remaining_s` is None before it is known.

    `stage` is prepare, start, measure, profile, stop or done.
    """

    stage: str
    done: int
    total: int
    elapsed_s: float
    remaining_s: float | None
    message: str


class Outlook:
    """Says what is happening and how long is left; what was measured so far corrects the estimate."""

    def __init__(self, hear: Callable[[Progress], None]) -> None:
        self._hear = hear
        self._begin = time.monotonic()
        self._waiting: dict[str, float] = {}
        self._startups_left = 0
        self._startup_s = 0.0
        self._estimated = self._measured = 0.0
        self._total = self._done = 0
        self._job: tuple[float, float] | None = None

    def expect(self, steps: Plan) -> None:
        """Take in the plan."""
        self._waiting = {point.id: point.estimate_s for point in steps.points}
        self._waiting |= {f"profile {one.spec.id}": one.estimate_s for one in steps.profiles}
        self._total = len(self._waiting)
        self._startup_s = steps.startup_s
        self._startups_left = steps.servers_in_all

    def forget(self, name: str, startups: int = 0) -> None:
        """A point or profile of the plan will not be made, nor the servers started that only it would need."""
        if self._waiting.pop(name, None) is not None:
            self._total -= 1
        self._startups_left = max(self._startups_left - startups, 0)

    def begin_measuring(self) -> None:
        """The model is ready: preparing it is not part of the time the plan foresaw."""
        self._begin = time.monotonic()

    def say(self, stage: str, message: str) -> None:
        """Tell what is happening."""
        self._hear(
            Progress(stage, self._done, self._total, time.monotonic() - self._begin, self.remaining_s(), message)
        )

    def remaining_s(self) -> float | None:
        """About how long is left; None before the plan is known."""
        if not self._total:
            return None
        ratio = self._measured / self._estimated if self._estimated > 0 else 1.0
        left = ratio * sum(self._waiting.values()) + self._startup_s * self._startups_left
        if self._job is not None:
            began, expected = self._job
            # A job that takes longer than expected has, as far as anyone knows, a little left.
            left += max(expected * ratio - (time.monotonic() - began), 0.1 * expected)
        return left

    @contextlib.contextmanager
    def job(self, name: str, estimate_s: float | None, stage: str, message: str) -> Iterator[Callable[[str], None]]:
        """One point, profile or start (`estimate_s` None) while it goes on; yields a way to say how far it is."""
        start = estimate_s is None
        expected = self._waiting.pop(name, estimate_s or 0.0) if not start else self._startup_s
        if start:
            self._startups_left = max(self._startups_left - 1, 0)
        began, told = time.monotonic(), 0.0
        self._job = (began, expected)
        self.say(stage, message)

        def tick(text: str) -> None:
            nonlocal told
            if start or time.monotonic() - told > _TICK_S:
                told = time.monotonic()
                self.say(stage, text)

        try:
            yield tick
        finally:
            took = time.monotonic() - began
            self._job = None
            if start:
                self._startup_s = took
            else:
                self._done += 1
                self._estimated += expected
                self._measured += took


class Manuscript:
    """The run directory as it is written: every record cleaned of secrets, the outcome counted."""

    def __init__(self, experiment: Experiment, writer: RunWriter) -> None:
        self.writer = writer
        self._secrets = secret_values(os.environ)
        self.last_reason = ""
        self._excused: set[str] = set()
        text = redact_text(experiment.text, self._secrets)
        (writer.path / "experiment.yaml").write_text(text, encoding="utf-8")
        writer.update(other_files=["experiment.yaml"], experiment=str(experiment.path))

    def command(self, command: Command, env: dict[str, str]) -> None:
        """Record a command that was run; paths inside the run are shown relative to it."""
        if command.argv:
            argv = [self._shown(argument) for argument in redact_argv(command.argv, self._secrets)]
            self.writer.add_command(msgspec.structs.replace(command, argv=argv, env=env))

    def point(self, point: Point, command: Command, env: dict[str, str]) -> None:
        """Record a point that ended."""
        self.writer.put_point(msgspec.structs.replace(point, reason=self._reason(point.reason)))
        self.command(command, env)
        self._clean(point.printed)

    def profile(self, profile: Profile, command: Command | None) -> None:
        """Record a pass that ended."""
        if profile.status == "skipped":
            self.excuse(profile)
            return
        self.writer.put_profile(msgspec.structs.replace(profile, reason=self._reason(profile.reason)))
        if command is not None:
            self.command(command, {})

    def server_started(self, server: Server, server_run: int, env: dict[str, str]) -> ServerRecord:
        """Record a server that was started."""
        record = ServerRecord(server_run=server_run, log=self.writer.relative(server.log), started=now())
        self.writer.put_server(record)
        self.writer.update(log=self.writer.manifest.log or record.log)
        purpose = say("capture.purpose_server", run=server_run)
        self.command(Command(purpose=purpose, argv=server.argv, started=record.started), env)
        return record

    def server_ready(self, server: Server, record: ServerRecord) -> ServerRecord:
        """Record that a server answers, and the settings it reports."""
        record = msgspec.structs.replace(record, ready=now(), phases=dict(server.phases))
        self.writer.put_server(record)
        if not self.writer.manifest.engine.settings:
            told = redact_data(server.settings(), self._secrets)
            found = {name: self._shown(v) if isinstance(v, str) else v for name, v in told.items()}
            self.writer.update(engine=msgspec.structs.replace(self.writer.manifest.engine, settings=found))
        return record

    def server_ended(self, server: Server, record: ServerRecord, reason: str | None) -> None:
        """Record the end of a server; `reason` where it was not perflab that ended it."""
        ended = msgspec.structs.replace(record, ended=now(), phases=dict(server.phases), reason=self._reason(reason))
        self.writer.put_server(ended)
        self._clean(record.log)

    def excuse(self, profile: Profile) -> None:
        """Record a pass that this machine cannot make; that is no fault of the run, which can be complete without."""
        reason = self._reason(profile.reason)
        self.writer.put_profile(msgspec.structs.replace(profile, status="skipped", reason=reason))
        self.writer.note(say("capture.pass_skipped", id=profile.id, why=reason))
        self._excused.add(profile.id)

    def step_records(self, file: Path, server_run: int) -> None:
        """Record what a server wrote about its steps; several front ends write a file each."""
        found = [self._step_records(one, server_run) for one in sorted(file.parent.glob(f"{file.stem}*{file.suffix}"))]
        known = {one.file for one in self.writer.manifest.step_records}
        found = [one for one in found if one.file not in known]
        if not found:
            self.writer.note(say("capture.no_step_records"))
        self.writer.update(step_records=[*self.writer.manifest.step_records, *found])

    def _step_records(self, file: Path, server_run: int) -> StepRecords:
        relative = self.writer.relative(file)
        try:
            read = read_step_records(file)
        except InputError as error:
            self.writer.note(self._shown(str(error)))
            return StepRecords(file=relative, server_run=server_run)
        count = len(read.table)
        if read.dropped:
            self.writer.note(say("capture.step_records_dropped", file=relative, count=read.dropped))
        return StepRecords(
            file=relative,
            server_run=server_run,
            records=count,
            dropped=read.dropped,
            mean_ns=round(float(read.table["record_ns"].mean()), 1) if count else None,
            flush_ns=round(read.flush_ns / count, 1) if count and read.flush_ns is not None else None,
        )

    def skip(self, planned: Sequence[PlannedPoint | PlannedProfile], server_run: int, why: str) -> None:
        """Record what was not reached."""
        why = self._reason(why) or ""
        for one in planned:
            if isinstance(one, PlannedPoint):
                point = msgspec.structs.replace(begun(one), status="skipped", reason=why, started=None)
                self.writer.put_point(point)
            else:
                record = profile_begun(one, server_run)
                self.writer.put_profile(msgspec.structs.replace(record, status="skipped", reason=why))

    def close(self, steps: Plan, trouble: str | None) -> None:
        """Settle the run's status; `trouble` is what ended it early."""
        why = self._reason(trouble)
        self._settle_open_ones(steps, why or say("capture.no_error_text"))
        manifest = self.writer.manifest
        outcomes = [(point.id, point.status, point.reason) for point in manifest.points]
        outcomes += [(one.id, one.status, one.reason) for one in manifest.profiles if one.id not in self._excused]
        bad = [f"{name}: {reason}" for name, status, reason in outcomes if status != "complete"]
        measured = any(point.status in ("complete", "partial") for point in manifest.points)
        measured = measured or any(one.status in ("complete", "partial") for one in manifest.profiles)
        status: Status = "complete" if not bad and why is None else "partial" if measured else "failed"
        if why is None and bad:
            name = "capture.points_failed" if measured else "capture.nothing_measured"
            why = say(name, failed=len(bad), all=len(outcomes), first=bad[0])
        logs = [server.log for server in manifest.servers if server.log != manifest.log]
        kept = [name for name in ("client.log", *logs) if (self.writer.path / name).is_file()]
        self._clean("client.log")
        self.writer.update(status=status, reason=why, other_files=[*manifest.other_files, *kept])

    def _settle_open_ones(self, steps: Plan, why: str) -> None:
        for point in self.writer.manifest.points:
            if point.status == "running":
                self.writer.put_point(msgspec.structs.replace(point, status="failed", reason=why, ended=now()))
        for one in self.writer.manifest.profiles:
            if one.status == "running":
                self.writer.put_profile(msgspec.structs.replace(one, status="failed", reason=why))
        known = {point.id for point in self.writer.manifest.points}
        passes = {one.id for one in self.writer.manifest.profiles}
        left: list[PlannedPoint | PlannedProfile] = [point for point in steps.points if point.id not in known]
        left += [one for one in steps.profiles if one.spec.id not in passes]
        self.skip(left, 0, say("capture.not_reached", why=why))

    def _reason(self, text: str | None) -> str | None:
        if text is None:
            return None
        self.last_reason = self._shown(redact_text(" ".join(text.split()), self._secrets))
        return self.last_reason

    def _shown(self, text: str) -> str:
        """Text without this machine's folders: the run's own is left out, the home folder becomes `~`."""
        text = text.replace(f"{self.writer.path}/", "").replace(str(self.writer.path), ".")
        home = str(Path.home())
        return text.replace(f"{home}/", "~/") if len(home) > 1 else text

    def _clean(self, relative: str | None) -> None:
        """Take secrets out of a text file that another program wrote."""
        if relative is None or not (file := self.writer.path / relative).is_file():
            return
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        cleaned = redact_text(text, self._secrets)
        if cleaned != text:
            file.write_text(cleaned, encoding="utf-8", errors="surrogateescape")
