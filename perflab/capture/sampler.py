"""A background thread that writes what it sees, line by line, and never breaks the run it watches."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class Sampler:
    """Calls `sample` at an even interval and appends the lines to a file.

    A sample that fails is left out and counted; every line is written whole and flushed, so that a run that
    is cut off leaves at most one incomplete line.
    """

    def __init__(self, file: Path, interval_s: float) -> None:
        self.file, self.interval_s = file, interval_s
        self.failures = 0
        self.last_failure: str | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=type(self).__name__, daemon=True)

    def sample(self) -> list[str]:
        """The lines of one sample."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what was opened for sampling."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        # A scrape that hangs must not hold up the run; the thread is a daemon.
        self._thread.join(timeout=10.0)

    def _loop(self) -> None:
        with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8") as out:
            due = time.monotonic()
            while not self._end.is_set():
                try:
                    lines = self.sample()
                except Exception as error:
                    self.failures += 1
                    self.last_failure = f"{type(error).__name__}: {error}"
                    lines = []
                if lines:
                    out.write("\n".join(lines) + "\n")
                    out.flush()
                due = max(due + self.interval_s, time.monotonic())
                self._end.wait(due - time.monotonic())
        self.close()
