"""Runs an experiment in a process of its own, for a notebook that watches: `python -m perflab.tasks.live_host ...`.

The same as `perflab run`, except that what is happening is kept in a file, replaced whole at every change. It ends
with perflab's exit statuses. A signal ends it as Ctrl-C would: what was measured is kept.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from perflab.errors import PerflabError
from perflab.experiment import read_experiment
from perflab.messages import say
from perflab.tasks.capture import run_experiment
from perflab.tasks.capture_records import Progress


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is happening, as `perflab.tasks.capture_records.Progress`, when it was told, and why it ended early."""

    stage: str = "prepare"
    done: int = 0
    total: int = 0
    elapsed_s: float = 0.0
    remaining_s: float | None = None
    message: str = ""
    at: float = 0.0
    error: str | None = None


def main(experiment: str, out: str, told: str) -> int:
    """Run the file `experiment` into the directory `out`; `told` takes what is happening."""
    file = Path(told)
    try:
        run = run_experiment(read_experiment(experiment), out, lambda progress: _tell(file, progress))
    except PerflabError as error:
        _write(file, Told(stage="done", error=str(error), at=time.time()))
        return 2
    except KeyboardInterrupt:
        _write(file, Told(stage="done", message=say("capture.interrupted"), at=time.time()))
        return 130
    return 0 if run.manifest.status == "complete" else 2


def _tell(file: Path, progress: Progress) -> None:
    _write(file, msgspec.convert({**vars(progress), "at": time.time()}, Told))


def _write(file: Path, told: Any) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}")
    # The watcher may be gone, and its folder with it; the run is what counts.
    with contextlib.suppress(OSError):
        part.write_bytes(msgspec.json.encode(told))
        part.replace(file)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
