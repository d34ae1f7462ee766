"""A real `vllm serve` on the loopback address: started, waited for, and ended with everything it started."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perflab.analysis.log.remedies import explained
from perflab.capture import http
from perflab.capture.environment import with_step_records
from perflab.capture.metrics import cache_config
from perflab.capture.probe import Probe
from perflab.capture.process import Group, free_port
from perflab.capture.serverlog import phase_of, settings
from perflab.errors import CaptureError
from perflab.experiment.commands import HOST, serve_argv
from perflab.experiment.spec import Experiment
from perflab.messages import say

Said = Callable[[str], None]
_POLL_S = 0.2


class ServerGoneError(CaptureError):
    """The server ended by itself, outside of a measurement."""


class Server:
    """A running server. Use as a context manager: leaving it ends the server.

    Attributes
    ----------
    argv
        The command, as `vllm serve ...`.
    phases
        Seconds from the start to the first log line of each phase of start-up.
    """

    def __init__(self, argv: list[str], command: list[str], env: Mapping[str, str], log: Path, port: int) -> None:
        self.argv, self.log, self.port = argv, log, port
        self.phases: dict[str, float] = {}
        self._read = 0
        self._rest = b""
        self._started = time.monotonic()
        self.group = Group(command, env, log, run=log.parent)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.group.running

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return self.group.ending

    @property
    def healthy(self) -> bool:
        """Whether it runs and says that its engine does (a dead engine's server lingers for a moment)."""
        return self.running and http.answers(f"{self.url}/health", timeout_s=10.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self, deadline_s: float, said: Said) -> None:
        """Wait until it answers; `said` hears the name of each phase as it begins.

        Raises
        ------
        CaptureError
            It ended early, or the deadline passed; the message carries the cause from its log.
        """
        while True:
            for line in self._new_lines():
                phase = phase_of(line)
                if phase is not None and phase not in self.phases:
                    self.phases[phase] = round(time.monotonic() - self._started, 3)
                    said(phase)
            if not self.running:
                raise CaptureError(f"vllm serve {self.group.ending}: {self.cause()}")
            if http.answers(f"{self.url}/health"):
                self.phases["ready"] = round(time.monotonic() - self._started, 3)
                # All its processes are there now: known from here on, even if one leaves the group.
                self.group.members()
                said("ready")
                return
            if time.monotonic() - self._started > deadline_s:
                last = max(self.phases, key=self.phases.__getitem__, default="started")
                raise CaptureError(
                    f"vllm serve did not answer within {deadline_s:g} s (engine.startup_deadline_s sets another limit);"
                    f" it came as far as: {say(f'capture.phase_{last}')}; last in its log: {self.cause()}"
                )
            time.sleep(_POLL_S)

    def cause(self) -> str:
        """What its log says went wrong."""
        return explained(self._lines()) or "its log is empty"

    def settings(self) -> dict[str, Any]:
        """The engine's settings as it reports them: its log, and the labels of `vllm:cache_config_info`."""
        found = settings(self._lines())
        try:
            text = http.get(f"{self.url}/metrics")
        except OSError:
            return found
        return {**cache_config(text), **found}

    def stop(self) -> None:
        """End it and everything it started."""
        self.group.stop()

    def _lines(self) -> list[str]:
        try:
            return self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    def _new_lines(self) -> list[str]:
        with self.log.open("rb") as file:
            file.seek(self._read)
            found = file.read()
        self._read += len(found)
        *whole, self._rest = (self._rest + found).split(b"\n")
        # Progress bars redraw their line: what follows the last carriage return counts.
        return [line.decode("utf-8", errors="replace") for line in whole]


def start_server(
    experiment: Experiment,
    probe: Probe,
    *,
    model: str,
    local: bool,
    log: Path,
    profiler: Mapping[str, Any] | None = None,
    step_records: Path | None = None,
    under: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
) -> Server:
    """Start `vllm serve`; it is not ready yet.

    Parameters
    ----------
    model
        What to serve: a folder, or an id.
    local
        Whether it is all on this machine, so that nothing has to be asked of Hugging Face.
    log
        The file that takes what the server prints.
    profiler
        vLLM's profiler configuration. A configured profiler costs nothing before it is first started: the
        worker makes it on the first `/start_profile`.
    step_records
        The file the server writes a line to for each of its steps; None: it has no such plugin.
    under, more
        A program that starts it, with that program's arguments, and further environment variables.
    """
    port = free_port()
    argv = serve_argv(experiment, model=model, port=port, known=probe.arguments["serve"], profiler=profiler)
    env = {**probe.engine_environment(offline=local, extra=experiment.engine.env), **(more or {})}
    if step_records is not None:
        env = with_step_records(env, step_records)
    return Server([*under, *argv], [*under, *probe.vllm_command(argv)], env, log, port)
