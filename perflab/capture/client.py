"""Drives `vllm bench serve` of the installed vLLM, in a host process that imported vLLM once.

See `hosted/bench_host.py`. What goes into the manifest is the equivalent command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perflab.analysis.log.remedies import explained
from perflab.capture.environment import HOSTED
from perflab.capture.probe import Probe
from perflab.capture.process import Group
from perflab.experiment.spec import Experiment

# Importing takes 15 s on two busy cores; a cold disk can take minutes.
_IMPORT_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """How one call ended. `status` is the command's exit status; None: it never came to that."""

    status: int | None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the command ended well."""
        return self.status == 0


class BenchHost:
    """One benchmark client, started when first needed and again after it died.

    Parameters
    ----------
    log
        Takes what the host prints outside of a call (imports, tracebacks).
    run
        The run directory it works for.
    """

    def __init__(
        self, experiment: Experiment, probe: Probe, *, local: bool, log: Path, run: Path | None = None
    ) -> None:
        self._argv = [probe.python, str(HOSTED / "bench_host.py")]
        self._env = probe.engine_environment(offline=local, extra=experiment.engine.env)
        self.log, self._run = log, run
        self._group: Group | None = None
        self._ready = False
        self._buffer = b""
        self._calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._group.pid if self._group is not None and self._group.running else None

    def start(self) -> None:
        """Begin importing vLLM, unless that has been done; returns at once."""
        if self._group is not None and self._group.running:
            return
        self.stop()
        self._group = Group(self._argv, self._env, self.log, piped=True, grace_s=5.0, run=self._run)

    def stop(self) -> None:
        """End it."""
        if self._group is not None:
            # The end of its input is the polite way.
            with contextlib.suppress(OSError):
                if self._group.process.stdin is not None:
                    self._group.process.stdin.close()
            self._group.stop()
        self._group, self._ready, self._buffer = None, False, b""

    def call(
        self,
        argv: Sequence[str],
        printed: Path,
        deadline_s: float,
        meanwhile: Callable[[], str | None] = lambda: None,
    ) -> Outcome:
        """Run one `vllm bench serve`; what it prints goes to `printed`.

        `meanwhile` is called some times a second; the text it may return ends the call as failed (the server
        died, say). A host that dies or runs over the deadline is ended; the next call starts a new one.
        """
        self.start()
        if not self._ready:
            answer = self._answer(_IMPORT_S, meanwhile)
            if isinstance(answer, str):
                return self._failed(f"the benchmark client did not start: {answer}")
            self._ready = True
        self._calls += 1
        self._send({"id": self._calls, "argv": list(argv), "printed": str(printed)})
        answer = self._answer(deadline_s, meanwhile)
        if isinstance(answer, str):
            return self._failed(answer)
        return Outcome(answer["status"], answer["error"])

    def _failed(self, why: str) -> Outcome:
        self.stop()
        return Outcome(None, why)

    def _send(self, request: dict[str, Any]) -> None:
        assert self._group is not None and self._group.process.stdin is not None
        # A broken pipe shows as the end of the answers.
        with contextlib.suppress(OSError):
            self._group.process.stdin.write(json.dumps(request).encode() + b"\n")
            self._group.process.stdin.flush()

    def _answer(self, deadline_s: float, meanwhile: Callable[[], str | None]) -> dict[str, Any] | str:
        """The next answer, or why there is none."""
        assert self._group is not None and self._group.process.stdout is not None
        pipe = self._group.process.stdout.fileno()
        end = time.monotonic() + deadline_s
        while b"\n" not in self._buffer:
            if time.monotonic() > end:
                return f"not done after {deadline_s:g} s (point_deadline_s)"
            if why := meanwhile():
                return why
            if not select.select([pipe], [], [], 0.25)[0]:
                continue
            found = os.read(pipe, 65536)
            if not found:
                return self._why_it_ended()
            self._buffer += found
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _why_it_ended(self) -> str:
        assert self._group is not None
        self._group.wait(5.0)
        if (self._group.exit_status or 0) < 0:
            return f"the benchmark client {self._group.ending}"
        said = explained(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:])
        return f"the benchmark client {self._group.ending}: {said or 'it said nothing'}"
