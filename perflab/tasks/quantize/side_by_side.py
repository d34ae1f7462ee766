"""Several servers of a study at once, each on GPUs and cores of its own, in a process of its own.

What they share (the host's memory, its disk, what is left of its power) can still show, so each run says that it had
neighbours. Over its starts a variant takes turns on the GPUs, so that a slower GPU is no variant's alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from perflab.errors import InputError, PerflabError
from perflab.experiment.study import Study
from perflab.messages import say
from perflab.runs import Run, open_run
from perflab.tasks.capture_records import Progress
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.speed import Job, run_job

_POLL_S = 0.2
_PATIENCE_S = 90.0


@dataclass(frozen=True)
class Seat:
    """What one server gets: the GPUs it sees and the cores it may use."""

    gpus: tuple[str, ...]
    cpus: tuple[int, ...]

    @property
    def label(self) -> str:
        """`GPU 1`, or `GPUs 2,3`."""
        return f"GPU{'s' if len(self.gpus) > 1 else ''} {','.join(self.gpus)}"


def seats(gpus: Sequence[str], each: int, cpus: Sequence[int]) -> list[Seat]:
    """GPUs in groups of `each`, and cores in as many parts; hyperthreads of a core stay together.

    Raises
    ------
    InputError
        When a GPU is named twice, or they do not make whole groups.
    """
    if len(set(gpus)) < len(gpus) or not gpus:
        raise InputError(say("quantize.gpus_twice", gpus=",".join(gpus)))
    if len(gpus) % each:
        raise InputError(say("quantize.gpus_groups", n=len(gpus), each=each))
    count = len(gpus) // each
    cores = _cores(cpus)
    found = []
    for index in range(count):
        part = cores[index * len(cores) // count : (index + 1) * len(cores) // count]
        found.append(
            Seat(tuple(gpus[index * each : (index + 1) * each]), tuple(sorted(cpu for core in part for cpu in core)))
        )
    return found


def _cores(cpus: Sequence[int]) -> list[list[int]]:
    """Processors of each core, cores of one package next to each other."""
    by_core: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        by_core.setdefault(_place(cpu), []).append(cpu)
    return [by_core[key] for key in sorted(by_core)]


def _place(cpu: int) -> tuple[int, int]:
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    return 0, cpu


def next_job(waiting: Sequence[Job], busy: Sequence[Job], seat: int, count: int, order: Sequence[str]) -> Job | None:
    """The job a free seat takes: the first whose turn it is there, else the first, of no run that is being measured."""
    pairs = {one.pair for one in busy}
    free = [one for one in waiting if one.pair not in pairs]
    due = [one for one in free if (order.index(one.variant.name) + one.server_run) % count == seat]
    return next(iter(due or free), None)


@dataclass
class _Running:
    job: Job
    seat: int
    process: BaseProcess
    pipe: Connection
    path: str | None = None
    why: str | None = None


@dataclass
class SideBySide:
    """Works through jobs on several seats.

    Attributes
    ----------
    fits, take, fail, said
        Whether a job would be done in time; what to do with a run, and with a failure; where progress goes.
    """

    study: Study
    folder: StudyFolder
    version: str | None
    seats: Sequence[Seat]
    fits: Callable[[Job], bool]
    take: Callable[[Job, Run], bool]
    fail: Callable[[Job, str], None]
    said: Callable[[Job, str, Progress], None]

    def measure(self, jobs: Sequence[Job]) -> list[Job]:
        """All of them; returns what was not begun, without what belongs to a run that came to nothing."""
        waiting, running = list(jobs), list[_Running]()
        broken: set[tuple[str, str]] = set()
        order = [one.name for one in self.study.variants]
        try:
            while True:
                for seat in range(len(self.seats)):
                    if any(one.seat == seat for one in running):
                        continue
                    able = [job for job in waiting if job.pair not in broken and self.fits(job)]
                    job = next_job(able, [one.job for one in running], seat, len(self.seats), order)
                    if job is not None:
                        waiting.remove(job)
                        running.append(self._start(job, seat))
                if not running:
                    return [job for job in waiting if job.pair not in broken]
                time.sleep(_POLL_S)
                for one in [one for one in running if self._ended(one)]:
                    running.remove(one)
                    if not self._outcome(one):
                        broken.add(one.job.pair)
        except BaseException:
            _end(running)
            for one in running:
                self._ended(one)
                self._outcome(one)
            raise

    def _start(self, job: Job, seat: int) -> _Running:
        mine = self.seats[seat]
        others = ", ".join(one.label for one in self.seats if one is not mine)
        notes = [] if not others else [say("quantize.neighbours", mine=mine.label, n=len(mine.cpus), others=others)]
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=work, args=(self.study, job, self.folder.path, self.version, mine, notes, theirs, os.getpid())
        )
        process.start()
        theirs.close()
        return _Running(job, seat, process, ours)

    def _ended(self, one: _Running) -> bool:
        """Hear what a process says; whether it is over."""
        with contextlib.suppress(EOFError, OSError):
            while one.pipe.poll():
                kind, what = one.pipe.recv()
                if kind == "progress":
                    self.said(one.job, self.seats[one.seat].label, what)
                elif kind == "run":
                    one.path = what
                else:
                    one.why = what
        return not one.process.is_alive()

    def _outcome(self, one: _Running) -> bool:
        self._ended(one)
        one.process.join()
        if one.path is not None:
            return self.take(one.job, open_run(one.path))
        self.fail(one.job, one.why or say("quantize.worker_died", status=one.process.exitcode))
        return False


def work(
    study: Study,
    job: Job,
    folder: Path,
    version: str | None,
    seat: Seat,
    notes: Sequence[str],
    pipe: Connection,
    parent: int,
) -> None:
    """What a process does: one job, seen by its GPUs and cores only. Ends with the process that started it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(seat.gpus)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, seat.cpus)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()

    def tell(kind: str, what: object) -> None:
        with contextlib.suppress(OSError):
            pipe.send((kind, what))

    try:
        run = run_job(study, job, StudyFolder(folder), version, lambda event: tell("progress", event), notes=notes)
        tell("run", str(run.path))
    except PerflabError as error:
        tell("failed", str(error))
    except KeyboardInterrupt:
        tell("failed", say("capture.interrupted"))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _end(running: Sequence[_Running]) -> None:
    """Ask all to end, as Ctrl-C would, and wait for their servers to be gone."""
    for one in running:
        if one.process.is_alive() and one.process.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(one.process.pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE_S
    for one in running:
        one.process.join(max(until - time.monotonic(), 0.1))
        if one.process.is_alive():
            one.process.kill()
            one.process.join()
