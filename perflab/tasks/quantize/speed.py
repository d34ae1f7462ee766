"""The servers of a study: which are yet to be measured, how long each takes, and measuring one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from perflab.errors import InputError
from perflab.experiment import Experiment, Plan
from perflab.experiment.study import KvMode, Study, Variant
from perflab.messages import say
from perflab.runs import Manifest, Run
from perflab.tasks.capture import run_experiment
from perflab.tasks.capture_records import Progress
from perflab.tasks.quantize.experiments import pairs, variant_experiment
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.joined import join_runs, manifest_of

ATTEMPTS = 2
"""How often a server that came to nothing is tried, over all visits."""


@dataclass(frozen=True)
class Job:
    """One server to start afresh, and the points to measure on it; `of` is how many such a server has in all."""

    variant: Variant
    mode: KvMode
    server_run: int
    points: tuple[str, ...]
    profiles: bool
    estimate_s: float
    of: int = 0

    @property
    def name(self) -> str:
        """As its run directory begins: `fp8-pinned-s0`."""
        return f"{self.variant.name}-{self.mode}-s{self.server_run}"

    @property
    def pair(self) -> tuple[str, KvMode]:
        """The run it is a part of."""
        return self.variant.name, self.mode


@dataclass(frozen=True)
class Schedule:
    """What is left of a study, in order; `done` servers are complete, `given_up` came to nothing too often."""

    jobs: tuple[Job, ...]
    done: int
    given_up: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def estimate_s(self) -> float:
        """About how long all of it takes, one server after the other."""
        return sum(job.estimate_s for job in self.jobs)


Planner = Callable[[Experiment], Plan]


def schedule(
    study: Study,
    folder: StudyFolder,
    planner: Planner,
    version: str | None,
    *,
    variants: Iterable[str] = (),
    only_memory: bool = False,
    retry: bool = False,
    planned: bool = False,
) -> Schedule:
    """What is yet to be measured.

    Parameters
    ----------
    planner
        The plan of an experiment on this machine.
    variants
        Names of the only ones wanted; empty: all.
    only_memory
        One start a variant with one short point: enough for what vLLM says of its memory.
    retry
        Try again what came to nothing too often.
    planned
        Nothing will be started, so that checkpoints need not be there yet.
    """
    wanted = set(variants)
    plans: dict[tuple[str, KvMode], Plan] = {}
    refused: dict[str, str] = {}
    given_up: dict[str, str] = {}
    jobs: list[Job] = []
    done = 0
    past = Experience.of(folder, study)
    for server_run, mode, variant in pairs(study):
        if (wanted and variant.name not in wanted) or variant.name in refused:
            continue
        if only_memory and (server_run or mode != study.kv.modes[-1]):
            continue
        try:
            plan = plans.get((variant.name, mode)) or planner(
                variant_experiment(study, variant, mode, folder, version, planned=planned)
            )
        except InputError as error:
            refused[variant.name] = error.what
            continue
        plans[variant.name, mode] = plan
        parts = [one for path in folder.parts(variant.name, mode) if (one := manifest_of(path)) is not None]
        ids = [point.id for point in plan.of_server(server_run)]
        ids = _smallest(plan, ids) if only_memory else ids
        missing = [one for one in ids if one not in _complete(parts)]
        profiles = server_run == 0 and not only_memory and not _profiled(plan, parts)
        if not missing and not profiles:
            done += 1
            continue
        failed = [one for one in parts if _came_to_nothing(one, server_run)]
        if len(failed) >= ATTEMPTS and not retry:
            given_up[f"{variant.name}-{mode}-s{server_run}"] = failed[-1].reason or ""
            continue
        part = plan.part(missing, profiles=profiles)
        estimate = past.estimate(variant.name, mode, part, of=len(ids))
        jobs.append(Job(variant, mode, server_run, tuple(missing), profiles, estimate, len(ids)))
    return Schedule(tuple(jobs), done, given_up, refused)


def run_job(
    study: Study,
    job: Job,
    folder: StudyFolder,
    version: str | None,
    progress: Callable[[Progress], None],
    *,
    notes: Sequence[str] = (),
) -> Run:
    """Start the server of a job and measure its points; the run directory is a part of the variant's.

    Raises
    ------
    InputError, CaptureError
        As `run_experiment`: nothing was written.
    """
    experiment = variant_experiment(study, job.variant, job.mode, folder, version)
    out = folder.new_part(job.variant.name, job.mode, job.server_run)
    out.parent.mkdir(parents=True, exist_ok=True)
    return run_experiment(
        experiment, out, progress, part=lambda plan: plan.part(job.points, profiles=job.profiles), notes=notes
    )


def join(study: Study, folder: StudyFolder, names: Iterable[tuple[str, KvMode]] | None = None) -> list[Run]:
    """Make the run directory of each variant anew from its parts."""
    found: list[Run] = []
    wanted = names if names is not None else [(one.name, mode) for one in study.variants for mode in study.kv.modes]
    for name, mode in wanted:
        parts = folder.parts(name, mode)
        per_server = max((_asked(one) for path in parts if (one := manifest_of(path)) is not None), default=0)
        run = join_runs(parts, folder.run(name, mode), points=_expected(study, mode) or per_server)
        found += [run] if run is not None else []
    return found


def _expected(study: Study, mode: KvMode) -> int:
    """How many points a variant has in all."""
    wanted = {load.concurrency for load in study.kv.free_loads} if mode == "free" else set()
    total = 0
    for workload in study.workloads:
        loads = [load for load in workload.loads if not wanted or (load.rate is None and load.concurrency in wanted)]
        total += len(workload.input_lens) * len(workload.output_lens) * len(loads) * workload.repeats
    return total * study.server_runs_of(mode)


def _asked(manifest: Manifest) -> int:
    asked = manifest.asked.get("points")
    return asked if isinstance(asked, int) else len(manifest.points)


def _smallest(plan: Plan, ids: Sequence[str]) -> list[str]:
    """The point that takes the least time."""
    estimates = {point.id: point.estimate_s for point in plan.points}
    return sorted(ids, key=lambda one: estimates[one])[:1]


def _complete(parts: Sequence[Manifest]) -> set[str]:
    return {point.id for one in parts for point in one.points if point.status == "complete"}


def _profiled(plan: Plan, parts: Sequence[Manifest]) -> bool:
    """Whether each pass was made, or cannot be made here."""
    settled = {one.id for part in parts for one in part.profiles if one.status in ("complete", "partial", "skipped")}
    return all(one.spec.id in settled for one in plan.profiles)


def _came_to_nothing(manifest: Manifest, server_run: int) -> bool:
    """Whether nothing was measured on a server, and not because somebody ended the visit."""
    numbers = {point.server_run for point in manifest.points} or {one.server_run for one in manifest.servers}
    cut = (say("capture.not_closed"), say("capture.interrupted"), say("capture.perflab_died"))
    return server_run in numbers and manifest.status == "failed" and manifest.reason not in cut


@dataclass(frozen=True)
class Experience:
    """How long servers of this study took, from first to last, by variant and comparison."""

    walls: Mapping[tuple[str, KvMode], tuple[tuple[int, float], ...]]
    startups: tuple[float, ...]

    @classmethod
    def of(cls, folder: StudyFolder, study: Study) -> Experience:
        """From the parts there are."""
        walls: dict[tuple[str, KvMode], tuple[tuple[int, float], ...]] = {}
        startups: list[float] = []
        for variant in study.variants:
            for mode in study.kv.modes:
                found: list[tuple[int, float]] = []
                for path in folder.parts(variant.name, mode):
                    manifest = manifest_of(path)
                    if manifest is None:
                        continue
                    startups += [seconds for one in manifest.servers if (seconds := _seconds(one.started, one.ready))]
                    measured = sum(point.status == "complete" for point in manifest.points)
                    ends = [one.ended for one in manifest.servers if one.ended]
                    wall = _seconds(manifest.created, max(ends)) if ends else None
                    if measured and wall and manifest.status == "complete":
                        found.append((measured, wall))
                walls[variant.name, mode] = tuple(found)
        return cls(walls, tuple(startups))

    def estimate(self, variant: str, mode: KvMode, part: Plan, *, of: int) -> float:
        """Seconds a server takes: as the same one took before, else as others of that comparison, else as planned."""
        found = self.measured(variant, mode, len(part.points), of=of)
        if found is not None:
            return found
        if self.startups:
            return part.estimate_s + (statistics.median(self.startups) - part.startup_s) * part.servers_in_all
        return part.estimate_s

    def measured(self, variant: str, mode: KvMode, points: int, *, of: int) -> float | None:
        """Seconds by servers that were measured whole; None where there is none of that comparison."""
        for known in (self.walls.get((variant, mode), ()), self._others(mode)):
            whole = [wall for count, wall in known if count == of]
            if whole:
                start = statistics.median(self.startups) if self.startups else 0.0
                return start + (max(whole) - start) * points / of if max(whole) > start else max(whole)
        return None

    def _others(self, mode: KvMode) -> tuple[tuple[int, float], ...]:
        return tuple(one for (_, other), known in self.walls.items() if other == mode for one in known)


def _seconds(first: str | None, last: str | None) -> float | None:
    if not first or not last:
        return None
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
