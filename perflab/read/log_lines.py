"""The lines of a file that is a vLLM log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perflab.analysis.log.lines import LogLine, parse_lines
from perflab.read.files import read_lines


def log_lines(path: str | Path) -> Iterator[LogLine]:
    """The lines that say something, without vLLM's prefix; parts between carriage returns count as lines."""
    return parse_lines(read_lines(path))
