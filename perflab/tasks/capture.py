"""Runs an experiment: prepares the model, starts vLLM, measures every point, profiles, and records all of it.

The run directory is written as the run goes on. A point that fails does not lose the others; a run that is
cut short keeps what it has and says why.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from perflab import __version__
from perflab.capture.arguments import check_arguments
from perflab.capture.arriving import arriving_traces
from perflab.capture.attached import AttachedServer, attach
from perflab.capture.client import BenchHost
from perflab.capture.clock import Anchor, write_anchors
from perflab.capture.engine import Server, ServerGoneError, start_server
from perflab.capture.environment import shown_environment
from perflab.capture.hardware import hardware
from perflab.capture.launch import Launch, launch_for
from perflab.capture.models import ReadyModel, ready_model
from perflab.capture.ncu import Ncu, run_ncu
from perflab.capture.nsys import collect, end_server
from perflab.capture.offline import measure_offline
from perflab.capture.point import Bench, begun, measure
from perflab.capture.probe import Probe, engine_python, has_vllm, probe
from perflab.capture.process import ends_on_signals
from perflab.capture.telemetry import TelemetrySampler
from perflab.capture.torch_profile import profile, profile_begun
from perflab.errors import CaptureError, InputError
from perflab.experiment import Experiment, Plan, PlannedPoint, PlannedProfile, plan
from perflab.experiment.plan import profile_groups, rides_along
from perflab.experiment.secrets import redact_data, secret_values
from perflab.messages import say
from perflab.runs import SCHEMA, Engine, Hardware, Manifest, Run, RunWriter, now, open_run
from perflab.tasks.capture_profiles import skipped, tools, top_kernels
from perflab.tasks.capture_records import Manuscript, Outlook, Progress

_RESTARTS = 1
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def timestamp() -> str:
    """The local time, as part of a file name."""
    return time.strftime("%Y%m%d-%H%M%S")


def dry_run(experiment: Experiment) -> Plan:
    """The plan; nothing is started.

    Where vLLM is installed its arguments are checked as for a real run, and the flavour decides the estimate.
    """
    python = engine_python(experiment.engine.python)
    if not has_vllm(python):
        return plan(experiment, "gpu" if hardware().gpus else "cpu")
    engine = probe(experiment.engine.python)
    check_arguments(experiment, engine)
    return plan(experiment, engine.flavour, serve=engine.arguments["serve"])


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    part: Callable[[Plan], Plan] = lambda steps: steps,
    notes: Sequence[str] = (),
) -> Run:
    """Run an experiment into the directory `out`, which must be new or empty.

    Parameters
    ----------
    progress
        Called with what is happening and how long is left, some times a second while a point runs.
    part
        Which part of the plan to carry out, as `Plan.part` gives it; all of it.
    notes
        Remarks that a reader of the run needs.

    Returns
    -------
    The run. Its status is complete, partial (something failed, `reason` says what) or failed (nothing was
    measured).

    Raises
    ------
    InputError, CaptureError
        Before anything was written: the experiment does not fit the installed vLLM, or there is none.
    KeyboardInterrupt
        When stopped; the run directory is complete as far as it went, and nothing is left running.
    """
    with ends_on_signals():
        outlook = Outlook(progress)
        attached = None
        if experiment.engine.url is not None:
            outlook.say("prepare", say("capture.attaching", url=experiment.engine.url))
            attached = attach(experiment)
            # Its name for the model is what counts.
            experiment = replace(experiment, model=replace(experiment.model, served_name=attached.served_name))
        outlook.say("prepare", say("capture.probing"))
        engine = probe(experiment.engine.python)
        remarks = [*notes, *check_arguments(experiment, engine)]
        steps = part(plan(experiment, engine.flavour, serve=engine.arguments["serve"]))
        writer = RunWriter(Path(out).resolve(), _manifest(experiment, engine, steps, remarks, attached))
        record = Manuscript(experiment, writer)
        outlook.expect(steps)
        try:
            _run(experiment, engine, steps, record, outlook, attached)
        except CaptureError as error:
            record.close(steps, str(error))
        except OSError as error:
            if error.errno not in _DISK:
                record.close(steps, f"{type(error).__name__}: {error}")
                raise
            _close_on_full_disk(record, steps, error)
        except BaseException as error:
            # A bug must not leave a manifest that says "running" either.
            stopped = isinstance(error, KeyboardInterrupt)
            record.close(steps, say("capture.interrupted") if stopped else f"{type(error).__name__}: {error}")
            raise
        else:
            record.close(steps, None)
        outlook.say("done", say("capture.finished"))
        return open_run(writer.path)


def _close_on_full_disk(record: Manuscript, steps: Plan, error: OSError) -> None:
    """Use the room that was kept for this."""
    why = say("capture.disk_full", what=(error.strerror or str(error)).lower(), path=record.writer.path)
    record.writer.use_reserve()
    try:
        record.close(steps, why)
    except OSError as again:
        raise CaptureError(why) from again


def _manifest(
    experiment: Experiment, engine: Probe, steps: Plan, remarks: list[str], attached: AttachedServer | None
) -> Manifest:
    notes = list(remarks)
    if attached is not None:
        notes += attached.notes({workload.data.kind for workload in experiment.workloads})
    if engine.broken:
        names = ", ".join(sorted(engine.broken))
        notes.append(say("capture.hidden", names=names, torch=engine.torch_version))
    return Manifest(
        schema=SCHEMA,
        id=uuid4().hex[:12],
        title=experiment.title,
        origin="captured",
        created=now(),
        perflab_version=__version__,
        notes=notes,
        asked={
            "experiment": experiment.name,
            "model": experiment.model.served_name if experiment.model.kind == "path" else experiment.model.name,
            "engine_args": redact_data(dict(experiment.engine.args), secret_values(os.environ)),
            "prefix_caching": experiment.prefix_caching if attached is None else None,
            "server_runs": experiment.server_runs,
            "points": len(steps.points),
            "profiles": len(steps.profiles),
            "seed": experiment.seed,
        },
        engine=_engine(experiment, engine, attached),
        hardware=hardware() if attached is None or attached.is_local else Hardware(),
    )


def _engine(experiment: Experiment, engine: Probe, attached: AttachedServer | None) -> Engine:
    model = experiment.model.served_name
    if attached is not None:
        return Engine(flavour="attached", vllm_version=attached.version, model=model, settings=attached.settings())
    return Engine(
        flavour=engine.flavour,
        vllm_version=engine.vllm_version,
        torch_version=engine.torch_version,
        python_version=engine.python_version,
        model=model,
    )


def _run(
    experiment: Experiment,
    engine: Probe,
    steps: Plan,
    record: Manuscript,
    outlook: Outlook,
    attached: AttachedServer | None,
) -> None:
    writer = record.writer
    model = ready_model(experiment.model, engine, lambda text: outlook.say("prepare", text))
    for note in model.notes:
        writer.note(note)
    if model.config is not None:
        shutil.copyfile(model.config, writer.path / "model_config.json")
        writer.update(model_config="model_config.json")
    outlook.begin_measuring()
    telemetry = TelemetrySampler(writer.path / "telemetry.jsonl", experiment.telemetry_interval_s)
    session = _Session(experiment, engine, record, outlook, model, telemetry, attached)
    with telemetry:
        try:
            session.run(steps)
        finally:
            session.finish()
    if telemetry.failures:
        writer.note(say("capture.telemetry_lost", count=telemetry.failures, why=telemetry.last_failure))


@dataclass
class _Session:
    """The part of a run in which processes of vLLM exist."""

    experiment: Experiment
    engine: Probe
    record: Manuscript
    outlook: Outlook
    model: ReadyModel
    telemetry: TelemetrySampler
    attached: AttachedServer | None = None
    anchors: list[Anchor] = field(default_factory=list)
    servers: int = 0
    programs: dict[str, str] = field(default_factory=dict)

    @property
    def writer(self) -> RunWriter:
        return self.record.writer

    def run(self, steps: Plan) -> None:
        for planned in steps.offline:
            self._measure_offline(planned)
        programs, reasons = tools(steps.profiles, self.engine)
        for one in steps.profiles:
            if one.spec.kind in reasons:
                self.record.excuse(skipped(profile_begun(one, 0), reasons[one.spec.kind]))
                self.outlook.forget(f"profile {one.spec.id}", startups=int(one.spec.kind == "nsys"))
        self.programs = programs
        groups = [group for group in _grouped(steps) if group[0].spec.kind not in reasons]
        self._on_servers(steps, groups)
        for one in steps.profiles:
            if one.spec.kind == "ncu" and one.spec.kind not in reasons:
                self._kernels(one)

    def _on_servers(self, steps: Plan, groups: list[list[PlannedProfile]]) -> None:
        if not steps.servers and not groups:
            return
        log = self.writer.path / "client.log"
        host = BenchHost(self.experiment, self.engine, local=self.model.local, log=log, run=self.writer.path)
        with host:
            if self.attached is not None:
                self._on_attached(host, self.attached, steps)
                return
            runs = steps.server_runs or [0]
            for server_run in runs:
                last = server_run == runs[-1]
                rides = groups and (not steps.servers or rides_along([one.spec for one in groups[0]]))
                profiles = groups.pop(0) if last and rides else []
                self._on_server(host, server_run, steps.of_server(server_run), profiles)
            for profiles in groups:
                self._on_server(host, server_run, [], profiles)

    def finish(self) -> None:
        if self.anchors:
            write_anchors(self.writer.path / "clock.json", self.anchors)
            self.writer.update(clock="clock.json")
        if self.telemetry.file.is_file():
            self.writer.update(telemetry=self.writer.relative(self.telemetry.file))

    def _measure_offline(self, planned: PlannedPoint) -> None:
        message = say("capture.measuring", id=planned.id, prompts=planned.request.num_prompts)
        self.writer.put_point(begun(planned))
        with self.outlook.job(planned.id, planned.estimate_s, "measure", message) as tick:
            point, command, anchors = measure_offline(
                self.experiment,
                self.engine,
                self.writer,
                planned,
                model=self.model.name,
                local=self.model.local,
                tick=lambda: tick(message),
            )
        self.anchors += anchors
        self.record.point(point, command, self._environment())

    def _on_attached(self, host: BenchHost, server: AttachedServer, steps: Plan) -> None:
        """All points on a server that runs already, then profiles where it has a profiler."""
        bench = Bench(self.experiment, self.engine, self.writer, host, server, self.model.name)
        host.start()
        for index, planned in enumerate(steps.points):
            try:
                self._measure(bench, planned)
            except ServerGoneError as gone:
                self.record.skip([*steps.points[index:], *steps.profiles], 0, say("capture.not_reached", why=gone))
                return
        source = self.experiment.engine.trace_dir
        if not steps.profiles or source is None or not server.profiles:
            why = "no_profiler" if steps.profiles and not server.profiles else "traces_elsewhere"
            self.record.skip(list(steps.profiles), 0, say(f"attached.{why}"))
            return
        for one in steps.profiles:
            incoming = self.writer.folder(f"profile/.{one.spec.id}")
            try:
                with arriving_traces(source, incoming):
                    self._profile(bench, one, incoming, 0)
            except ServerGoneError as gone:
                self.record.skip([one], 0, say("capture.not_reached", why=gone))
            finally:
                shutil.rmtree(incoming, ignore_errors=True)

    def _on_server(
        self, host: BenchHost, server_run: int, points: list[PlannedPoint], profiles: list[PlannedProfile]
    ) -> None:
        """One server with its points, then its profiles; started again once if it ends by itself."""
        waiting: list[PlannedPoint | PlannedProfile] = [*points, *profiles]
        why = ""
        for attempt in range(1 + _RESTARTS):
            if attempt:
                self.writer.note(say("capture.server_restarted", id=_name(waiting[0]), ending=why))
            try:
                waiting, why = self._until_server_ends(host, server_run, waiting, profiles)
            except CaptureError as error:
                # Between the choice of a free port and its use, another program can take it.
                if attempt < _RESTARTS and "address already in use" in str(error).lower():
                    why = str(error)
                    continue
                self.record.skip(waiting, server_run, say("capture.no_server", why=error))
                return
            if not waiting:
                return
        self.record.skip(waiting, server_run, say("capture.not_reached", why=why))

    def _until_server_ends(
        self,
        host: BenchHost,
        server_run: int,
        waiting: list[PlannedPoint | PlannedProfile],
        profiles: list[PlannedProfile],
    ) -> tuple[list[PlannedPoint | PlannedProfile], str]:
        """Work through `waiting`; what is left of it when the server ended by itself, and how that was."""
        incoming = self.writer.folder(f"profile/.server-{self.servers}") if profiles else None
        launch = launch_for(self.experiment, profiles, incoming, self.programs)
        try:
            with self._server(host, server_run, launch) as bench:
                for index, planned in enumerate(waiting):
                    try:
                        if isinstance(planned, PlannedPoint):
                            self._measure(bench, planned)
                        elif incoming is not None:
                            self._profile(bench, planned, incoming, server_run)
                    except ServerGoneError as gone:
                        return waiting[index:], str(gone)
            return [], ""
        finally:
            if incoming is not None:
                for one in profiles:
                    self._reports(one, incoming)
                shutil.rmtree(incoming, ignore_errors=True)

    @contextlib.contextmanager
    def _server(self, host: BenchHost, server_run: int, launch: Launch) -> Iterator[Bench]:
        log = self.writer.path / ("server.log" if self.servers == 0 else f"server-{self.servers}.log")
        steps = self.writer.path / log.name.replace("server", "step_records").replace(".log", ".jsonl")
        # What a server does under a profiler of its own is not what is measured.
        records = steps if self.experiment.step_records and launch.measured else None
        self.servers += 1
        message = say("capture.starting")
        with self.outlook.job(f"server {log.name}", None, "start", message) as tick:
            server = start_server(
                launch.experiment,
                self.engine,
                model=self.model.name,
                local=self.model.local,
                log=log,
                profiler=launch.profiler,
                step_records=records,
                under=launch.under,
                more=launch.more,
            )
            kept = self.record.server_started(server, server_run, self._environment())
            try:
                # Both import vLLM for a while; side by side they are ready sooner.
                host.start()
                self.telemetry.watch("engine", server.group.pid)
                self.telemetry.watch("client", host.pid)
                deadline_s = self.experiment.engine.startup_deadline_s or self.model.startup_deadline_s
                server.wait_ready(deadline_s, lambda phase: tick(say(f"capture.phase_{phase}")))
            except BaseException as error:
                server.stop()
                self.record.server_ended(server, kept, str(error))
                raise
        kept = self.record.server_ready(server, kept)
        tokenizer = str(self.experiment.engine.args.get("tokenizer") or self.model.name)
        bench = Bench(self.experiment, self.engine, self.writer, host, server, tokenizer)
        try:
            yield bench
        finally:
            reason = None if server.healthy else bench.trouble() or say("capture.unhealthy", cause=server.cause())
            self.outlook.say("stop", say("capture.stopping"))
            self.telemetry.watch("engine", None)
            (end_server if launch.under else Server.stop)(server)
            self.record.server_ended(server, kept, reason)
            if records is not None:
                self.record.step_records(records, server_run)

    def _measure(self, bench: Bench, planned: PlannedPoint) -> None:
        self.telemetry.watch("client", bench.host.pid)
        message = say("capture.measuring", id=planned.id, prompts=planned.request.num_prompts)
        self.writer.put_point(begun(planned))
        with self.outlook.job(planned.id, planned.estimate_s, "measure", message) as tick:
            point, command, anchors, remarks = measure(
                bench,
                planned,
                lambda done, asked: tick(say("capture.progress", id=planned.id, done=done, asked=asked)),
            )
        self.anchors += anchors
        for remark in remarks:
            self.writer.note(remark)
        self.record.point(point, command, {})

    def _profile(self, bench: Bench, planned: PlannedProfile, incoming: Path, server_run: int) -> None:
        message = say("capture.profiling", id=planned.spec.id, kind=planned.spec.kind)
        self.writer.put_profile(profile_begun(planned, server_run))
        with self.outlook.job(f"profile {planned.spec.id}", planned.estimate_s, "profile", message):
            found, command = profile(
                bench, planned, incoming, server_run=server_run, ranks=_ranks(self.writer.manifest.engine)
            )
        self.record.profile(found, command)

    def _reports(self, planned: PlannedProfile, incoming: Path) -> None:
        """What nsys wrote of a pass, once its server has ended."""
        made = [one for one in self.writer.manifest.profiles if one.id == planned.spec.id]
        if planned.spec.kind == "nsys" and made and made[0].status in ("complete", "partial"):
            self.record.profile(collect(self.writer, made[0], incoming, self.programs["nsys"]), None)

    def _kernels(self, planned: PlannedProfile) -> None:
        """A pass under ncu, which builds its own engine."""
        record = profile_begun(planned, 0)
        try:
            names = top_kernels(Run(self.writer.path, self.writer.manifest), planned.spec)
        except InputError as error:
            self.record.excuse(skipped(record, str(error)))
            return
        self.writer.put_profile(record)
        message = say("capture.profiling", id=planned.spec.id, kind="ncu")
        with self.outlook.job(f"profile {planned.spec.id}", planned.estimate_s, "profile", message) as tick:
            found, command = run_ncu(
                self.experiment,
                self.engine,
                self.writer,
                planned,
                record,
                Ncu(self.programs["ncu"], names),
                model=self.model.name,
                local=self.model.local,
                tick=lambda: tick(message),
            )
        self.record.profile(found, command)

    def _environment(self) -> dict[str, str]:
        extra = self.experiment.engine.env
        return shown_environment(self.engine.engine_environment(offline=self.model.local, extra=extra), extra)


def _name(planned: PlannedPoint | PlannedProfile) -> str:
    return planned.id if isinstance(planned, PlannedPoint) else planned.spec.id


def _grouped(steps: Plan) -> list[list[PlannedProfile]]:
    by_id = {planned.spec.id: planned for planned in steps.profiles}
    groups = profile_groups(tuple(planned.spec for planned in steps.profiles))
    return [[by_id[spec.id] for spec in group] for group in groups]


def _ranks(engine: Engine) -> int:
    """How many workers the engine has, each of which writes a trace."""
    sizes = [engine.settings.get(f"{name}_parallel_size", 1) for name in ("tensor", "pipeline", "data")]
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size > 0 else 1
    return product
