"""What an engine's log says of its profiling: that stopping it took longer than vLLM waits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import read_lines
from perflab.runs import Run, is_run, open_run

# Not the timeout of another call, such as `RPC call to execute_model timed out.`
_TIMEOUT = re.compile(r"^(?!.*RPC call to (?!(?:start_|stop_)?profile\b)).*\b(?:TimeoutError|timed out)\b")
_PROFILE = re.compile(r"\b(?:start_|stop_)?profile(?:_async)?\b(?!r)|/(?:start|stop)_profile\b")
# The lines of a traceback that names the call stand above its last line.
_TRACEBACK = 80


def profile_checks(run: Run | None, *, source: str = "") -> list[Check]:
    """A check of the run's log, where it tells that profiling timed out; none otherwise."""
    line = None if run is None else timed_out(run)
    if line is None:
        return []
    return [Check("profile_ended", "warn", say("profile_log.timed_out", line=line), (of.BREAKDOWN,), source)]


def why_no_trace(parts: Sequence[str | Path]) -> str | None:
    """Why runs have no traces, where the log of one tells."""
    for part in parts:
        line = timed_out(open_run(part)) if is_run(part) else None
        if line is not None:
            return say("profile_log.timed_out", line=line)
    return None


def timed_out(run: Run) -> int | None:
    """The line of the log in which a call to the profiler timed out; None where there is none, or no log."""
    if run.manifest.log is None:
        return None
    try:
        named = -_TRACEBACK
        for number, raw in read_lines(run.file(run.manifest.log)):
            if _PROFILE.search(raw):
                named = number
            if _TIMEOUT.search(raw) and number - named < _TRACEBACK:
                return number
    except InputError:
        return None  # a breakdown needs no log
    return None
