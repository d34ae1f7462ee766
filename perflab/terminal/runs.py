"""What `perflab run` and `perflab import` print: the plan, the progress, the outcome."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from perflab.experiment import Plan
from perflab.runs import Run
from perflab.tasks.capture_records import Progress
from perflab.tasks.provenance import provenance
from perflab.terminal.text import minutes


def plan(steps: Plan) -> str:
    """The commands in the order they run, the number of points, and about how long it all takes."""
    lines = [
        f"{len(steps.points)} points, {len(steps.profiles)} profiling passes, {steps.servers_in_all} server starts,"
        f" about {steps.estimated_minutes:.0f} minutes (without preparing the model)"
    ]
    lines += [f"\n{len(steps.offline)} points without a server"] if steps.offline else []
    lines += [_command(point.id, point.argv, point.estimate_s) for point in steps.offline]
    for number in steps.server_runs:
        lines += [f"\nserver {number + 1}", f"  {shlex.join(steps.serve_argv) or 'runs already'}"]
        lines += [_command(point.id, point.argv, point.estimate_s) for point in steps.of_server(number)]
    lines += ["\nprofiling, after measuring"] if steps.profiles else []
    lines += [_command(one.spec.id, one.argv, one.estimate_s) for one in steps.profiles]
    return "\n".join(lines)


def _command(name: str, argv: Sequence[str], estimate_s: float) -> str:
    return f"  {name} (about {minutes(estimate_s)})\n    {shlex.join(argv)}"


def run_outcome(run: Run) -> str:
    """Where the run is, what came of it, and what to do next."""
    facts = provenance([run])[0]
    ended = f"{run.path}: {facts.status}" + (f", {facts.reason}" if facts.reason else "")
    passes = [one.status in ("complete", "partial") for one in run.manifest.profiles]
    done = f"{facts.points - facts.failed_points} of {facts.points} points, {sum(passes)} of {len(passes)} passes"
    notes = [f"  note: {note}" for note in facts.notes]
    return "\n".join([f"{ended} ({done})", *notes, f"next: perflab report {run.path} -o report.html"])


class ProgressPrinter:
    """Prints the progress events of a run: one line that renews itself on a terminal, lines elsewhere."""

    def __init__(self, stream: TextIO = sys.stderr, every_s: float = 5.0) -> None:
        self.stream = stream
        self.every_s = every_s
        self.renews = stream.isatty()
        self._last: tuple[str, int, str] | None = None
        self._printed = -math.inf

    def __call__(self, event: Progress) -> None:
        """Show one event; elsewhere than on a terminal a line per stage and job, and one every few seconds."""
        left = "" if event.remaining_s is None else f", about {minutes(event.remaining_s)} left"
        text = f"[{minutes(event.elapsed_s)}{left}] {event.message}"
        job = (event.stage, event.done, event.message.partition(":")[0])
        if self.renews:
            self.stream.write(f"\r\033[K{text}")
        elif job != self._last or time.monotonic() - self._printed >= self.every_s:
            self.stream.write(text + "\n")
            self._printed = time.monotonic()
        self._last = job
        self.stream.flush()

    def close(self) -> None:
        """End the line that renews itself."""
        if self.renews and self._last:
            self.stream.write("\n")
            self.stream.flush()
