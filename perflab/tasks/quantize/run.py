"""`perflab quantize run`: makes what is missing, measures what is left, judges accuracy.

A visit may end at any time; the next one goes on where it ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from perflab.capture.hardware import hardware
from perflab.capture.probe import Probe, probe
from perflab.capture.process import ends_on_signals
from perflab.errors import InputError, PerflabError
from perflab.experiment.study import Study, Variant
from perflab.messages import say
from perflab.runs import Run, now
from perflab.tasks.capture_records import Progress
from perflab.tasks.quantize.accuracy import measure_accuracy
from perflab.tasks.quantize.folder import StudyFolder, Visit, begin
from perflab.tasks.quantize.machine import this_machine
from perflab.tasks.quantize.make import make_checkpoints
from perflab.tasks.quantize.plan import plan_variant, planner_for, told_variants
from perflab.tasks.quantize.shapes import make_shape, needs_shape
from perflab.tasks.quantize.side_by_side import SideBySide, seats
from perflab.tasks.quantize.speed import Experience, Job, Schedule, join, run_job, schedule

Only = Literal["speed", "accuracy", "memory"]


@dataclass
class Outcome:
    """What a visit did.

    Attributes
    ----------
    did, failed, refused
        Servers measured, what failed with why, variants that cannot be measured with why.
    left
        Servers yet to be measured, and about how many seconds they take.
    runs
        The joined run directory of each variant and comparison.
    """

    folder: Path
    did: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    left: tuple[Job, ...] = ()
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Seconds that what is left takes."""
        return sum(job.estimate_s for job in self.left)

    def to_json(self) -> dict[str, Any]:
        """Everything a script needs; times in seconds."""
        return {
            "schema": 1,
            "folder": str(self.folder),
            "measured": self.did,
            "failed": self.failed,
            "left_out": self.refused,
            "left": [{"name": job.name, "estimate_s": round(job.estimate_s, 1)} for job in self.left],
            "runs": [{"path": str(run.path), "status": run.manifest.status} for run in self.runs],
            "notes": self.notes,
        }


def run_study(
    study: Study,
    folder: str | Path,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    only: Only | None = None,
    variants: Sequence[str] = (),
    max_minutes: float | None = None,
    retry: bool = False,
    gpus: Sequence[str] = (),
    anyway: bool = False,
) -> Outcome:
    """Carry out a study, or go on with it.

    What is complete is not measured again. A variant that fails does not keep others from being measured. No server is
    started that would not be done by `max_minutes`.

    Parameters
    ----------
    gpus
        GPUs to be used at once, a server of its own on each; empty: one server after the other, on what there is.
    anyway
        Measure also what is known not to fit.

    Raises
    ------
    InputError, CaptureError
        Before anything was started: a variant that is not in the study, another study in the folder, no vLLM.
    KeyboardInterrupt
        When stopped; what was measured is joined.
    """
    began = time.monotonic()
    _known(study, variants)
    engine = probe(study.engine.python)
    machine = this_machine(engine.flavour)
    plans = [plan_variant(study, one, machine, engine.vllm_version) for one in study.variants]
    place = begin(study, folder, lambda: told_variants(plans))
    asked = {"only": only, "variants": list(variants), "max_minutes": max_minutes, "gpus": list(gpus)}
    visit = Visit.begun(place, hardware(), engine.vllm_version, asked)
    outcome = Outcome(place.path)
    limit = None if max_minutes is None else began + 60 * max_minutes
    if not anyway:
        outcome.refused = {
            one.variant.name: say("quantize.not_fitting", why="; ".join(one.suitability.reasons))
            for one in plans
            if not one.suitability.runs and (not variants or one.variant.name in variants)
        }
    wanted = [
        one for one in study.variants if (not variants or one.name in variants) and one.name not in outcome.refused
    ]

    def said(text: str) -> None:
        progress(Progress("prepare", 0, 0, time.monotonic() - began, None, text))

    with ends_on_signals():
        try:
            _make(study, wanted, place, outcome, visit, said)
            if only in (None, "speed", "memory"):
                names = [one.name for one in wanted if one.name not in outcome.refused]
                session = Session(study, place, engine, visit, outcome, progress, limit)
                session.measure(names, only_memory=only == "memory", retry=retry, gpus=gpus)
            if only in (None, "accuracy"):
                # Also of variants that no server here can take: what cannot be judged is said there.
                _accuracy(study, variants, place, outcome, visit, limit, said)
            visit.log(left=len(outcome.left))
        finally:
            outcome.runs = join(study, place)
            visit.log(ended=now())
    return outcome


@dataclass
class Session:
    """The measuring part of a visit."""

    study: Study
    folder: StudyFolder
    engine: Probe
    visit: Visit
    outcome: Outcome
    progress: Callable[[Progress], None]
    limit: float | None

    def measure(self, names: Sequence[str], *, only_memory: bool, retry: bool, gpus: Sequence[str]) -> None:
        """Work through what is left."""
        found = self._schedule(names, only_memory, retry)
        self.outcome.refused |= dict(found.refused)
        self.outcome.failed |= {
            name: say("quantize.given_up", why=why or say("capture.no_error_text"))
            for name, why in found.given_up.items()
        }
        waiting = list(found.jobs)
        waiting = self._side_by_side(waiting, gpus) if gpus else self._in_turn(waiting)
        self.outcome.left = tuple(waiting)
        if self.outcome.left and self.limit is not None:
            self.outcome.notes.append(say("quantize.time_is_up", n=len(self.outcome.left)))

    def _in_turn(self, jobs: Sequence[Job]) -> list[Job]:
        """One after the other; returns what was not begun, without what belongs to a run that came to nothing."""
        waiting = list(jobs)
        broken: set[tuple[str, str]] = set()
        while True:
            job = next((one for one in waiting if one.pair not in broken and self.fits(one)), None)
            if job is None:
                return [one for one in waiting if one.pair not in broken]
            waiting.remove(job)
            if not self.one(job, f"{len(jobs) - len(waiting)}/{len(jobs)}"):
                broken.add(job.pair)

    def _side_by_side(self, jobs: Sequence[Job], gpus: Sequence[str]) -> list[Job]:
        each = self.study.engine.args.get("tensor_parallel_size")
        places = seats(gpus, each if isinstance(each, int) and each > 0 else 1, sorted(os.sched_getaffinity(0)))
        both = SideBySide(
            self.study,
            self.folder,
            self.engine.vllm_version,
            places,
            fits=self.fits,
            take=self.take,
            fail=self.note_failure,
            said=lambda job, seat, event: self._said(job, seat)(event),
        )
        return both.measure(jobs)

    def one(self, job: Job, place: str) -> bool:
        """Measure one server; False where nothing came of it."""
        try:
            run = run_job(self.study, job, self.folder, self.engine.vllm_version, self._said(job, place))
        except PerflabError as error:
            self.note_failure(job, str(error))
            return False
        return self.take(job, run)

    def take(self, job: Job, run: Run) -> bool:
        """Record what came of a job."""
        join(self.study, self.folder, [job.pair])
        if run.manifest.status == "failed":
            self.note_failure(job, run.manifest.reason or "")
            return False
        self.outcome.did.append(job.name)
        self.visit.did(job.name)
        if run.manifest.status != "complete":
            self.note_failure(job, run.manifest.reason or "")
        return True

    def note_failure(self, job: Job, why: str) -> None:
        """Record that a job failed, wholly or partly."""
        self.outcome.failed[job.name] = why
        self.visit.failed(job.name, why)

    def fits(self, job: Job) -> bool:
        """Whether a job would be done in time, by what servers took so far."""
        if self.limit is None:
            return True
        past = Experience.of(self.folder, self.study)
        known = past.measured(job.variant.name, job.mode, len(job.points), of=job.of)
        return time.monotonic() + (job.estimate_s if known is None else known) <= self.limit

    def _schedule(self, names: Sequence[str], only_memory: bool, retry: bool) -> Schedule:
        return schedule(
            self.study,
            self.folder,
            planner_for(self.engine, this_machine(self.engine.flavour)),
            self.engine.vllm_version,
            # No names: none is left, which must not mean all.
            variants=names or ("",),
            only_memory=only_memory,
            retry=retry,
        )

    def _said(self, job: Job, place: str) -> Callable[[Progress], None]:
        return lambda event: self.progress(replace(event, message=f"{place} {job.name}: {event.message}"))


def _known(study: Study, variants: Sequence[str]) -> None:
    for name in variants:
        if study.variant(name) is None:
            known = ", ".join(one.name for one in study.variants)
            raise InputError(say("quantize.no_variant", name=name, known=known))


def _make(
    study: Study,
    wanted: Sequence[Variant],
    folder: StudyFolder,
    outcome: Outcome,
    visit: Visit,
    said: Callable[[str], None],
) -> None:
    """What has to be there before a server can be started."""
    for variant in wanted:
        if needs_shape(study, variant):
            try:
                make_shape(study, variant, folder)
            except InputError as error:
                outcome.refused[variant.name] = error.what
    to_make = [
        one
        for one in wanted
        if one.format.how == "make" and one.checkpoint is None and not needs_shape(study, one)
        if not (folder.checkpoint(one.name) / "config.json").is_file()
    ]
    if not to_make:
        return
    try:
        made = make_checkpoints(study, folder.path, said, variants=[one.name for one in to_make])
    except PerflabError as error:
        failed = {one.name: str(error) for one in to_make}
    else:
        failed = made.failed
        if made.made:
            visit.did(f"make {', '.join(made.made)}")
    for name, why in failed.items():
        visit.failed(f"make {name}", why)
        outcome.failed[f"make {name}"] = why


def _accuracy(
    study: Study,
    names: Sequence[str],
    folder: StudyFolder,
    outcome: Outcome,
    visit: Visit,
    limit: float | None,
    said: Callable[[str], None],
) -> None:
    if study.accuracy is None:
        return
    if study.is_shape_only:
        outcome.notes.append(say("quantize.no_accuracy_of_shapes"))
        return
    if limit is not None and time.monotonic() > limit:
        return
    try:
        found = measure_accuracy(study, folder.path, said, variants=names, deadline=limit)
    except PerflabError as error:
        visit.failed("accuracy", str(error))
        outcome.failed["accuracy"] = str(error)
        return
    if found.judged:
        visit.did(f"accuracy {', '.join(found.judged)}")
    if found.asked:
        visit.did(f"tasks {', '.join(found.asked)}")
    outcome.notes += [say("quantize.not_judged", name=name, why=why) for name, why in found.left_out.items()]
    for name, why in found.failed.items():
        visit.failed(f"accuracy {name}", why)
        outcome.failed[f"accuracy {name}"] = why
