"""Warnings and errors of a log, and the one error that explains a dead server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from perflab.analysis.log.lines import LogLine, parse_lines
from perflab.knowledge.log_patterns import log_patterns

MAX_TEXT = 600
MAX_KEPT = 200


@dataclass(frozen=True)
class Problem:
    """A message that appears in the log: its text, the first line it stands in (from 1), how often."""

    text: str
    line: int
    count: int = 1


# `RuntimeError: ...`, `torch.OutOfMemoryError: ...`
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout)(?::\s|$)")
_USAGE = re.compile(r"^(?:vllm|[\w.-]+\.py)(?: [\w-]+)*: error: ")
_TORCH = re.compile(r"^(?:\[rank\d+\]:)?\s*\[(?:rank\d+\]:\[)?E\d{3,4} \d\d:\d\d:\d\d\.\d+ [\w.]+:\d+\] (?P<text>.*)")
_CRASH = re.compile(r"^(?:Fatal Python error|Segmentation fault|Killed$|Aborted|terminate called|Out of memory)")
# pydantic: the sentence stands on the line behind `1 validation error for ModelConfig`.
_PYDANTIC = re.compile(r"^\s+(?:Value error|Assertion failed), (?P<text>.*?)(?: \[type=.*)?$")
_FRAMES = re.compile(r"^(?:\s+|Traceback|File |\^+|~+|The above exception|During handling|\[Previous line|raise |$)")
_START = re.compile(r"non-default args: |Initializing (?:a V\d LLM|an LLM) engine")
_LIFE = re.compile(r'Avg prompt throughput|Iteration\(\d+\)|"POST \S+ HTTP/[\d.]+" 200')


# What Python and its extensions print on the way out.
_LEFTOVERS = re.compile(r"leaked|nanobind|resource_tracker|warnings\.warn|Triton is installed|^See https?:")


class Problems:
    """Gathers problems line by line.

    What counts as an error that only points at another, as noise, as a death or a shutdown, is data:
    knowledge/log_patterns.toml.
    """

    def __init__(self) -> None:
        patterns = log_patterns()
        self._wrappers = re.compile(patterns["wrappers"]["regex"])
        self._noise = re.compile(patterns["noise"]["regex"])
        self._told = re.compile(patterns["told"]["regex"])
        self._shutdown = re.compile("|".join(entry["regex"] for entry in patterns["shutdown"]))
        self._death = re.compile("|".join(entry["regex"] for entry in patterns["death"]))
        self._warnings: dict[str, Problem] = {}
        self._errors: dict[str, Problem] = {}
        self._causes: list[tuple[int, str]] = []
        self._last_life = 0
        self._is_stopping = False
        self.saw_death = False

    def take(self, line: LogLine) -> None:
        """Look at one line."""
        text = line.text
        if self._is_stopping and not _START.search(text):
            return
        self._is_stopping = bool(self._shutdown.search(text))
        if line.level == "WARNING":
            if not self._noise.search(text) and not _FRAMES.match(text):
                _note(self._warnings, text, line.number)
        elif line.level in ("ERROR", "CRITICAL") or line.level is None:
            self._take_error(text, line)
        if line.level in (None, "ERROR", "CRITICAL") and self._death.search(text):
            self.saw_death = True
        elif _LIFE.search(text):
            self._last_life = line.number

    def _take_error(self, text: str, line: LogLine) -> None:
        if (match := _PYDANTIC.match(text)) or (match := _TORCH.match(text)):
            self._add(match["text"], line, is_raised=True)
        elif any(p.match(text) for p in (_RAISED, _USAGE, _CRASH)) or (line.level and self._told.search(text)):
            self._add(text, line, is_raised=True)
        elif line.level is not None and not _FRAMES.match(text):
            self._add(text, line, is_raised=False)

    def _add(self, text: str, line: LogLine, *, is_raised: bool) -> None:
        text = text.strip()[:MAX_TEXT]
        if not text or "validation error for" in text:
            return
        _note(self._errors, text, line.number)
        if is_raised and (self._told.search(text) or not self._wrappers.search(text)):
            self._causes.append((line.number, text))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Distinct warnings, in the order of their first appearance."""
        return tuple(self._warnings.values())

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Distinct errors, in the order of their first appearance."""
        return tuple(self._errors.values())

    def cause(self) -> str | None:
        """The error behind a failure: the first since the last sign of life that does not point at another.

        Each process reports the failure of the one below it, so of one failure's errors the first tells most.
        """
        after = [text for number, text in self._causes if number > self._last_life]
        if after:
            return after[0]
        if self._causes:
            return self._causes[-1][1]
        late = [error.text for error in self.errors if error.line > self._last_life]
        return late[0] if late else self.errors[-1].text if self._errors else None


def root_cause(lines: Iterable[str]) -> str | None:
    """The error that explains the end of a log; where there is none, the last line that is not noise."""
    problems = Problems()
    last: str | None = None
    for line in parse_lines(enumerate(lines, start=1)):
        problems.take(line)
        if not _LEFTOVERS.search(line.text):
            last = line.text.strip()[:MAX_TEXT] or last
    return problems.cause() or last


def _note(found: dict[str, Problem], text: str, number: int) -> None:
    text = text.strip()[:MAX_TEXT]
    if text in found:
        found[text] = replace(found[text], count=found[text].count + 1)
    elif text and len(found) < MAX_KEPT:
        found[text] = Problem(text, number)
