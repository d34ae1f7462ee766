"""A run that is started from a notebook, watched while it goes on, and stopped: a process of its own, in good hands.

Between the notebook's Python and the run stands the capture layer's supervisor: where the kernel is restarted or
killed, the run is stopped as by Ctrl-C, its directory is closed, and no server is left.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perflab.capture.process import Group
from perflab.errors import InputError
from perflab.messages import say
from perflab.runs import Run, is_run, open_run
from perflab.tasks.live_host import Told

_WINDOW_NS = 5_000_000_000
_TAIL_BYTES = 1 << 16
_GRACE_S = 90.0
"""A run that is stopped ends its server first, which may have a trace to write."""


@dataclass(frozen=True)
class Serving:
    """What the engine did in the last seconds, by its own records of steps; None: not told."""

    tokens_per_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True)
class LiveState:
    """How a run stands.

    Attributes
    ----------
    going
        Whether its process lives.
    told
        What it said last.
    elapsed_s
        Since it was started.
    log
        The last lines of the server's log.
    serving
        What the engine does, while it is measured.
    run
        The run directory as it stands; None before there is one.
    """

    going: bool
    told: Told
    elapsed_s: float
    log: list[str]
    serving: Serving
    run: Run | None

    @property
    def share(self) -> float | None:
        """How far it is, by points and passes done and the time they were to take; None before that is known."""
        if not self.told.total:
            return None
        spent, left = self.told.elapsed_s, self.told.remaining_s
        by_time = spent / (spent + left) if left is not None and spent else 0.0
        return min(max(by_time, self.told.done / self.told.total), 1.0)


class LiveRun:
    """A run of an experiment file into a new run directory.

    Parameters
    ----------
    experiment
        The file.
    out
        The run directory; must not be there.

    Raises
    ------
    InputError
        When `out` is there already.
    CaptureError
        When the process cannot be started.
    """

    def __init__(self, experiment: Path, out: Path) -> None:
        if out.exists():
            raise InputError(say("live.exists"), path=out)
        self.experiment, self.out = experiment.resolve(), out.resolve()
        self.began = time.monotonic()
        self.ended: float | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="perflab-live-")
        self._told, self._printed = Path(self._scratch.name) / "told.json", Path(self._scratch.name) / "printed.txt"
        words = [str(self.experiment), str(self.out), str(self._told)]
        # What the run needs of the environment is what `perflab run` in a terminal would have; it is no notebook.
        env = {name: value for name, value in os.environ.items() if name not in ("MPLBACKEND", "JPY_PARENT_PID")}
        argv = [sys.executable, "-m", "perflab.tasks.live_host", *words]
        self.group = Group(argv, env, self._printed, grace_s=_GRACE_S, run=self.out)

    @property
    def going(self) -> bool:
        """Whether its process lives."""
        return self.group.running

    def stop(self) -> None:
        """End it as Ctrl-C would: what was measured is kept, nothing is left running. Returns when that is so."""
        self.group.stop()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long; whether it has ended."""
        return self.group.wait(seconds) is not None

    def state(self) -> LiveState:
        """How it stands now."""
        going = self.going
        if not going and self.ended is None:
            self.ended = time.monotonic()
            # Nothing is left of it, whatever it was that ended it.
            self.group.stop()
        run = None
        with contextlib.suppress(InputError, OSError):
            run = open_run(self.out) if is_run(self.out) else None
        told = self._last_told()
        if not going and told.error is None and run is None:
            told = msgspec.structs.replace(told, error=self._last_printed())
        measuring = going and told.stage in ("measure", "profile")
        return LiveState(
            going, told, (self.ended or time.monotonic()) - self.began, _log_tail(self.out),
            _serving(self.out) if measuring else Serving(), run,
        )  # fmt: skip

    def _last_told(self) -> Told:
        try:
            return msgspec.json.decode(self._told.read_bytes(), type=Told)
        except (OSError, msgspec.MsgspecError):
            return Told(message=say("live.starting"))

    def _last_printed(self) -> str:
        lines = [line.strip() for line in _tail(self._printed) if line.strip()]
        return lines[-1] if lines else say("live.no_word", ending=self.group.ending)


def _log_tail(out: Path, lines: int = 6) -> list[str]:
    logs = sorted(out.glob("server*.log"), key=lambda path: path.stat().st_mtime) if out.is_dir() else []
    return [line.rstrip() for line in _tail(logs[-1]) if line.strip()][-lines:] if logs else []


def _serving(out: Path) -> Serving:
    files = sorted(out.glob("step_records*.jsonl"), key=lambda path: path.stat().st_mtime)
    steps = []
    for line in _tail(files[-1]) if files else []:
        with contextlib.suppress(msgspec.DecodeError):
            steps.append(msgspec.json.decode(line, type=_Step))
    steps = [step for step in steps if step.generated is not None]
    # Older than that, and the server waits for the next point.
    if not steps or time.time_ns() - steps[-1].t > _WINDOW_NS:
        return Serving()
    window = [step for step in steps if step.t > steps[-1].t - _WINDOW_NS]
    last, span_ns = window[-1], window[-1].t - window[0].t
    tokens = sum(step.generated or 0 for step in window[1:])
    return Serving(tokens / (span_ns / 1e9) if span_ns else None, last.running, last.waiting, last.kv)


class _Step(msgspec.Struct, frozen=True):
    t: int
    generated: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv: float | None = None


def _tail(path: Path) -> list[str]:
    """The last lines of a file that may still be written; bars that redraw themselves as they stand last."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    lines = text.split("\n")[1 if size > _TAIL_BYTES else 0 :]
    return [line.rpartition("\r")[2] for line in lines]
