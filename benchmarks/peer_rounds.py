"""Tasks by turns, each in a process of its own; medians of the ratios of a round. Imports little: see `run`."""

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """What one process took: from its start to its end, its processor time, and its largest resident memory."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    work_s: float = 0.0
    """Without starting Python and importing; told by the task itself."""


def run(command: Sequence[str], log: Path) -> Cost:
    """Run a command to its end.

    The peak counts from before `exec` on, when memory is still this process's: so nothing large may be imported
    here. Of a task with processes of its own it is the largest one's, not their sum.
    """
    with log.open("wb") as said:
        begun = time.perf_counter()
        child = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}:\n{log.read_text()[-3000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


def turns(names: Sequence[str], rounds: int) -> list[list[str]]:
    """The order of each round: every second one backwards, so that a slow drift of the machine favours no one."""
    return [list(names) if number % 2 == 0 else list(reversed(names)) for number in range(rounds)]


@dataclass(frozen=True)
class Ratio:
    """How many times as much as the other, in rounds of the same run."""

    median: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(costs: Mapping[str, Sequence[Cost]], of: str, to: str, what: str) -> Ratio:
    """The ratio of two tasks' costs, round by round: neighbours in time, so that other work slows both alike."""
    each = [getattr(a, what) / getattr(b, what) for a, b in zip(costs[of], costs[to], strict=True)]
    return Ratio(statistics.median(each), min(each), max(each), len(each))


def median(costs: Sequence[Cost], what: str) -> float:
    return statistics.median(getattr(cost, what) for cost in costs)
