"""Stands between perflab and one program, so that the program and all it starts end when perflab does.

Run by path as `python -I -S supervise.py FD`, in a session of its own; FD is a socket to perflab. What to run comes
over it as one JSON line::

    {"argv": [..], "grace_s": 20, "run": DIR or null, "reason": TEXT, "log": FILE or null, "secrets": [..]}

The answers are lines: `started PID` or `failed TEXT`, then `ended STATUS` (as subprocess counts, negative for a
signal) the moment the program ends, `forced` when asking did not do. The line `stop`, SIGTERM, SIGINT and SIGHUP end
the program and all below it; so does the end of the socket, which means that perflab is gone, and then the run
directory is closed too. When the program ends by itself, what it leaves is ended as well. The exit status is the
program's.

Nothing escapes on Linux: this process is the subreaper of all it starts, so that orphans become its children, are found
below it whatever session they made for themselves, and are reaped. Elsewhere only what has a parent is found.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

REST_S = 2.0
KILL_S = 10.0
# perflab being gone, nobody waits for a trace to be written.
ALONE_S = 5.0
_SUBREAPER, _PARENT_DEATH = 36, 1
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """One program, and what there is below this process."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.text = b""
        self.is_alone = False
        self.is_told = False
        self.main: int | None = None
        self.status: int | None = None
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        for number in (*_STOPPING, signal.SIGCHLD):
            signal.signal(number, self._signalled)

    def _signalled(self, number: int, _frame: object) -> None:
        self.is_told |= number in _STOPPING

    def start(self, argv: "list[str]") -> None:
        """Start the program; it dies with this process."""
        _prctl(_SUBREAPER, 1)
        try:
            self.process = subprocess.Popen(argv, preexec_fn=_in_the_child)
        except OSError as error:
            self.say(f"failed {error.strerror or error}")
            sys.exit(127)
        self.main = self.process.pid
        # The program has them now; kept open here, they would never end for whoever reads or writes them.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        self.say(f"started {self.main}")

    def watch(self) -> None:
        """Wait for the end of the program, or a reason to end it."""
        while self.status is None and not self.is_told and not self.is_alone:
            self.look(None)

    def end(self, grace_s: float) -> bool:
        """End all there is; whether asking was enough."""
        if self.status is None and self.main is not None:
            _signal(self.main, signal.SIGTERM)
            self.wait_while(lambda: self.status is None, min(grace_s, ALONE_S) if self.is_alone else grace_s)
        if self.status is not None and not self.wait_while(self.has_children, REST_S):
            return True
        for number, patience in ((signal.SIGTERM, REST_S), (signal.SIGKILL, KILL_S)):
            end = time.monotonic() + patience
            while time.monotonic() < end and (below := descendants()):
                for pid in below:
                    _signal(pid, number)
                # What was started between two looks is met by the next.
                self.wait_while(self.has_children, 0.5)
        return False

    def wait_while(self, going_on: "Callable[[], bool]", seconds: float) -> bool:
        """Wait, at most so long; whether it still goes on."""
        end = time.monotonic() + seconds
        while going_on() and (left := end - time.monotonic()) > 0:
            self.look(min(left, 0.2))
        return going_on()

    def has_children(self) -> bool:
        """Whether anything below still lives or waits to be reaped."""
        self.reap()
        return bool(descendants())

    def look(self, patience: "float | None") -> None:
        """Wait for a signal or a word of perflab."""
        sources: list[Any] = [self.woken] + ([] if self.is_alone else [self.channel])
        ready = select.select(sources, [], [], patience)[0]
        if self.woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.woken, 4096)
        if self.channel in ready:
            try:
                found = self.channel.recv(65536)
            except OSError:
                found = b""
            self.is_alone = not found
            self.text += found
            self.is_told |= b"stop\n" in self.text
        self.reap()

    def reap(self) -> None:
        """Take leave of every child that ended, the program or an orphan."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main and self.status is None:
                self.status = os.waitstatus_to_exitcode(status)
                self.say(f"ended {self.status}")

    def say(self, line: str) -> None:
        """Tell perflab, if it is there."""
        with contextlib.suppress(OSError):
            self.channel.sendall(line.encode() + b"\n")


def descendants() -> "list[int]":
    """The processes below this one that are not zombies, the nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def _processes() -> "list[tuple[int, int]]":
    """Process and parent of all that live."""
    pairs = []
    if os.path.isdir("/proc/self"):  # noqa: PTH112 (pathlib would triple the time this script takes to start)
        for name in os.listdir("/proc"):  # noqa: PTH208
            with contextlib.suppress(OSError, ValueError, IndexError):
                if name.isdigit():
                    with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                        state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state not in (b"Z", b"X"):
                        pairs.append((int(name), int(parent)))
        return pairs
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=False).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [(int(row[0]), int(row[1])) for row in rows if len(row) == 3 and not row[2].startswith("Z")]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _in_the_child() -> None:
    signal.set_wakeup_fd(-1)
    _prctl(_PARENT_DEATH, signal.SIGKILL)


def close_run(folder: "str | None", reason: str) -> None:
    """Settle a manifest that says "running" although nobody writes it any more; replaced whole, or left alone."""
    # Nobody is there to hear of a failure, and there is more to do.
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        if folder:
            _close(folder, reason)


def _close(folder: str, reason: str) -> None:
    file = os.path.join(folder, "manifest.json")  # noqa: PTH118
    with open(file, encoding="utf-8") as source:  # noqa: PTH123
        manifest = json.load(source)
    if manifest.get("status", "running") != "running":
        return
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017
    ended = [*manifest.get("points", []), *manifest.get("profiles", [])]
    measured = any(one.get("status", "running") in ("complete", "partial") for one in ended)
    for one in ended:
        if one.get("status", "running") == "running":
            one.update(status="failed", reason=reason)
    for server in manifest.get("servers", []):
        if "ended" not in server:
            server.update(ended=at, reason=reason)
    manifest.pop("process", None)
    manifest.update(status="partial" if measured else "failed", reason=reason)
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, ".reserve"))  # noqa: PTH108, PTH118
    part = os.path.join(folder, f".closing-{os.getpid()}")  # noqa: PTH118
    with open(part, "w", encoding="utf-8") as out:  # noqa: PTH123
        json.dump(manifest, out, indent=1, ensure_ascii=False)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, file)  # noqa: PTH105


def hide(log: "str | None", secrets: "list[str]") -> None:
    """Take secret values out of a log that nobody writes any more."""
    with contextlib.suppress(OSError):
        if log and secrets:
            _hide(log, secrets)


def _hide(log: str, secrets: "list[str]") -> None:
    with open(log, "rb") as source:  # noqa: PTH123
        text = source.read()
    cleaned = text
    for value in sorted(secrets, key=len, reverse=True):
        cleaned = cleaned.replace(value.encode(), b"***")
    if cleaned != text:
        with open(log, "wb") as out:  # noqa: PTH123
            out.write(cleaned)


def _end_as(status: int) -> None:
    """End as the program ended, so that whoever waits sees what happened to it."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def main() -> None:
    """Take the order, carry it out, leave nothing."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    # Whoever starts this may have held signals back for a moment; the program must not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with channel.makefile("rb") as source:
        line = source.readline()
    if not line.endswith(b"\n"):
        return
    order = json.loads(line)
    supervisor = Supervisor(channel)
    supervisor.start(order["argv"])
    supervisor.watch()
    if supervisor.is_alone:
        close_run(order["run"], order["reason"])
    if not supervisor.end(order["grace_s"]):
        supervisor.say("forced")
    supervisor.look(0.0)
    if supervisor.is_alone:
        close_run(order["run"], order["reason"])
        hide(order["log"], order["secrets"])
    _end_as(1 if supervisor.status is None else supervisor.status)


if __name__ == "__main__":
    main()
