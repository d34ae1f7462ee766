"""Processes that are started as a group and ended as a whole group, whatever happens.

vLLM is a tree of processes, and the ones below can outlive the one above. A `Group` is a session of its own, and
between it and perflab stands `hosted/supervise.py`: it finds and reaps every process of the tree, and ends it when
perflab dies without a word. Should that supervisor itself be killed, the program dies with it, and perflab ends what is
left of the session and of the descendants it saw.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

import psutil

from perflab.capture.environment import HOSTED
from perflab.errors import CaptureError
from perflab.experiment.secrets import secret_values
from perflab.messages import say

_live: weakref.WeakSet[Group]
_ENDING = (signal.SIGTERM, signal.SIGHUP)
# Once the program is gone, or everyone was asked: time for the others to end by themselves.
_REST_S = 2.0
_KILL_S = 10.0
_START_S = 60.0


def free_port() -> int:
    """A TCP port that nothing on the loopback address listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Interrupted(KeyboardInterrupt):
    """perflab was told to end by a signal other than Ctrl-C."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """Within: SIGTERM and SIGHUP raise `Interrupted`, so that groups are stopped on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_it(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, raise_it) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back signals: a second Ctrl-C must not cut short the stopping that the first one caused."""
    held = {signal.SIGINT, *_ENDING}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Group:
    """One program and every process it starts.

    Parameters
    ----------
    argv, env
        The argument list (no shell) and the whole environment.
    log
        Where its output goes, appended; None: to nowhere.
    piped
        Give it pipes as stdin and stdout; only its stderr goes to `log` then.
    grace_s
        How long it may take to end when it is asked to.
    run
        The run directory it works for: closed by the supervisor when perflab is killed.

    Attributes
    ----------
    pid
        The program's process.
    process
        The supervisor, whose pipes are the program's.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path | None = None,
        *,
        piped: bool = False,
        grace_s: float = 20.0,
        run: Path | None = None,
    ) -> None:
        self.argv = list(argv)
        self.grace_s = grace_s
        self._seen: dict[int, float] = {}
        self._status: int | None = None
        self._was_forced = False
        self._heard = b""
        self._channel, theirs = socket.socketpair()
        sink: IO[bytes] | int = subprocess.DEVNULL
        with contextlib.ExitStack() as stack:
            stack.enter_context(theirs)
            if log is not None:
                sink = stack.enter_context(log.open("ab"))
            supervisor = [sys.executable, "-I", "-S", str(HOSTED / "supervise.py"), str(theirs.fileno())]
            try:
                self.process = subprocess.Popen(
                    supervisor,
                    env=dict(env),
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else sink,
                    stderr=sink if piped else subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError as error:
                raise CaptureError(f"cannot start {self.argv[0]}: {error.strerror or error}") from error
        self.pid = self.process.pid
        _live.add(self)
        self._order(env, log, run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the program itself has not ended."""
        self._listen()
        return self._status is None and self.process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """Its exit status once it ended; negative: the signal that killed it."""
        self._listen()
        return self._status if self._status is not None else self.process.poll()

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        status = self.exit_status
        if status is None:
            return "is still running"
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def wait(self, seconds: float) -> int | None:
        """Its exit status, as soon as it ended; None if it has not by then."""
        end = time.monotonic() + seconds
        while self.running and time.monotonic() < end:
            self._listen(min(0.1, max(end - time.monotonic(), 0.0)))
        return self.exit_status

    def members(self) -> list[psutil.Process]:
        """The processes of the group that live, the program first; the supervisor is not one of them."""
        self.process.poll()
        self._notice_descendants()
        pids = {pid for pid in psutil.pids() if _session(pid) == self.process.pid} | set(self._seen)
        pids.discard(self.process.pid)
        return [process for pid in sorted(pids) if (process := self._mine(pid)) is not None]

    def stop(self) -> bool:
        """End the whole group: the program is asked, then everyone is, then everyone is killed.

        Returns whether asking was enough. Raises `CaptureError` when something is left even so.
        """
        with _undisturbed():
            asked_only = self._stop()
        _live.discard(self)
        return asked_only

    def _order(self, env: Mapping[str, str], log: Path | None, run: Path | None) -> None:
        """Tell the supervisor what to run, and hear which process that became."""
        order = {
            "argv": self.argv,
            "grace_s": self.grace_s,
            "run": None if run is None else str(run.resolve()),
            "reason": say("capture.perflab_died"),
            "log": None if log is None else str(log.resolve()),
            "secrets": secret_values(env),
        }
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        end = time.monotonic() + _START_S
        while not (first := self._heard.partition(b"\n")[0]).startswith((b"started ", b"failed ")):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise CaptureError(f"cannot start {self.argv[0]}: its supervisor {self.ending}")
            self._listen(0.1)
        word, _, what = first.decode(errors="replace").partition(" ")
        if word == "failed":
            self.stop()
            raise CaptureError(f"cannot start {self.argv[0]}: {what}")
        self.pid = int(what)

    def _listen(self, patience: float = 0.0) -> None:
        """Take in what the supervisor says."""
        try:
            while self._channel.fileno() >= 0 and select.select([self._channel], [], [], patience)[0]:
                found = self._channel.recv(4096)
                if not found:
                    break
                self._heard, patience = self._heard + found, 0.0
        except OSError:
            return
        for line in self._heard.split(b"\n")[:-1]:
            if line.startswith(b"ended "):
                self._status = int(line.split()[1])
            self._was_forced |= line == b"forced"

    def _stop(self) -> bool:
        self._notice_descendants()
        with contextlib.suppress(OSError):
            self._channel.sendall(b"stop\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(self.grace_s + 3 * _REST_S + _KILL_S)
        self._listen()
        if self.process.poll() is not None and not self.members():
            return self._reap()
        # The supervisor was killed, or hangs: what it would have done is done from here.
        self._was_forced = True
        for number, patience in ((signal.SIGTERM, _REST_S), (signal.SIGKILL, _KILL_S)):
            for process in self.members():
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            if self._gone_within(patience):
                return self._reap()
        names = ", ".join(f"{process.pid}" for process in self.members())
        raise CaptureError(f"processes {names} of {Path(self.argv[0]).name} could not be ended; kill them by hand")

    def _reap(self) -> bool:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._channel.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return not self._was_forced

    def _gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.members():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _notice_descendants(self) -> None:
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    self._seen.setdefault(process.pid, process.create_time())

    def _mine(self, pid: int) -> psutil.Process | None:
        """The living process `pid` if it is of this group: not a zombie, not a later process of that number."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            known = self._seen.get(pid)
            if known is not None and process.create_time() != known:
                return None
        except psutil.Error:
            return None
        return process


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


_live = weakref.WeakSet()


@atexit.register
def _stop_what_is_left() -> None:
    for group in list(_live):
        with contextlib.suppress(CaptureError):
            group.stop()
