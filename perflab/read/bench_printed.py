"""What `vllm bench serve` prints at its end: enough of it to find the JSON it belongs to.

Its figures are rounded to two decimals and hold no request, so they are never used as a measurement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perflab.errors import InputError
from perflab.read.bench import BenchResult
from perflab.read.files import read_text, refusal

_FIELDS = (
    ("completed", re.compile(r"^Successful requests:\s+(\d+)", re.MULTILINE)),
    ("duration_s", re.compile(r"^Benchmark duration \(s\):\s+([\d.]+)", re.MULTILINE)),
    ("output_tokens", re.compile(r"^Total generated tokens:\s+(\d+)", re.MULTILINE)),
)


@dataclass(frozen=True)
class Printed:
    """One printed table: requests completed, duration to 10 ms, tokens generated; None where a line is missing."""

    completed: int | None
    duration_s: float | None
    output_tokens: int | None

    def is_of(self, result: BenchResult) -> bool:
        """Whether `result` is what was printed."""
        if self.duration_s is None or result.duration_s is None:
            return False
        same = (self.completed, self.output_tokens) == (result.completed, result.total_output_tokens)
        return same and abs(self.duration_s - result.duration_s) <= 0.00501


def read_printed(path: str | Path) -> list[Printed]:
    """Every table that `vllm bench serve` printed into a file.

    Raises
    ------
    InputError
        When there is none.
    """
    text = read_text(path)[0]
    parts = text.split("= Serving Benchmark Result =")[1:]
    if not parts:
        raise refusal(path, "bench_printed")
    found = [_printed(part) for part in parts]
    if all(printed.duration_s is None for printed in found):
        raise InputError("ends before the figures that `vllm bench serve` prints", path=path)
    return found


def _printed(text: str) -> Printed:
    values = {name: match[1] for name, regex in _FIELDS if (match := regex.search(text))}
    try:
        duration = float(values["duration_s"]) if "duration_s" in values else None
    except ValueError:
        duration = None
    counts = {name: int(values[name]) if name in values else None for name in ("completed", "output_tokens")}
    return Printed(counts["completed"], duration, counts["output_tokens"])
