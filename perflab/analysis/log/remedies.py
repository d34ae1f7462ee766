"""The end of a log in one sentence: the error that explains it, and what to do."""

from __future__ import annotations

import string
from collections.abc import Iterable

from perflab.analysis.log.problems import root_cause
from perflab.knowledge.failures import failure_of
from perflab.messages import catalogue, say


def explained(lines: Iterable[str]) -> str | None:
    """`CUDA out of memory...; lower max_num_seqs ...`; the error alone where no remedy is known, None without one."""
    cause = root_cause(lines)
    if cause is None:
        return None
    known = remedy(cause)
    return cause if known is None else f"{cause.rstrip('. ')}; {known}"


def remedy(cause: str) -> str | None:
    """What to do about an error; None where that is not known."""
    failure = failure_of(cause)
    if failure is None:
        return None
    name = f"remedy.{failure.id}"
    wanted = {field for _, field, _, _ in string.Formatter().parse(catalogue()[name]) if field}
    # An alternative of the pattern may not tell every field.
    return say(name, **{field: failure.fields.get(field, "?") for field in wanted})
