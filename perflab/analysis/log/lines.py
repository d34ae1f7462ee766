"""The lines of a vLLM log: who wrote each, when, how serious it is, and what it says. Text only; files are `read`'s."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

# (EngineCore_DP1 pid=12) INFO 11-30 15:22:11 [core.py:114] text; before 0.8 without brackets and with `core.py:114]`.
# Progress bars and other processes' prefixes may stand before it.
_HEAD = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<date>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.\d+)? "
    r"\[?(?P<file>[\w./-]+):\d+\] ?(?P<text>.*)"
)
_PROCESS = re.compile(r"\((?P<process>[^()\s]{1,60}) pid=(?P<pid>\d+)\)")
_YEAR = 366 * 86400  # of 2000, which has every date
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class LogLine:
    """One line. `level`, `seconds` (since the first time stamp) and `process` are None where the line lacks them."""

    number: int
    text: str
    level: str | None = None
    seconds: float | None = None
    process: str | None = None
    pid: int | None = None


def parse_lines(numbered: Iterable[tuple[int, str]]) -> Iterator[LogLine]:
    """The lines that say something, without vLLM's prefix; parts between carriage returns count as lines."""
    clock = _Clock()
    waiting: deque[tuple[str, int]] = deque(maxlen=64)
    for number, line in numbered:
        for part in _COLOUR.sub("", line).split("\r"):
            if part.strip():
                yield _log_line(number, part, clock, waiting)


def _log_line(number: int, part: str, clock: _Clock, waiting: deque[tuple[str, int]]) -> LogLine:
    head = _HEAD.search(part)
    before = part if head is None else part[: head.start()]
    writers = [(match["process"], int(match["pid"])) for match in _PROCESS.finditer(before[:400])]
    if head is None:
        text = _PROCESS.sub("", part, count=1).lstrip() if part.startswith("(") and writers else part
        process, pid = writers[0] if writers and part.startswith("(") else (None, None)
        return LogLine(number, text.rstrip(), process=process, pid=pid)
    if writers:
        # Two processes writing at once leave `(A) (B) INFO b's text`, and a's text without a prefix on the next line.
        waiting.extend(writers[:-1])
        process, pid = writers[-1]
    else:
        process, pid = waiting.popleft() if waiting else (None, None)
    return LogLine(
        number, head["text"].rstrip(), head["level"], clock.seconds(head["date"], head["time"]), process, pid
    )


class _Clock:
    """Seconds since the first time stamp. vLLM's have no year; a step back by months is the turn of the year."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._years = 0
        self._last = 0.0

    def seconds(self, date: str, time: str) -> float | None:
        try:
            stamp = datetime.strptime(f"2000-{date} {time}", "%Y-%m-%d %H:%M:%S")
        except ValueError:
            return None
        self._first = self._first or stamp
        found = (stamp - self._first).total_seconds() + self._years * _YEAR
        if found < self._last - _YEAR / 2:
            self._years += 1
            found += _YEAR
        self._last = found
        return found
