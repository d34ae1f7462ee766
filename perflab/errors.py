"""The exceptions perflab raises on purpose.

Each message is one line that says what is wrong, where, and what to do. The command line turns every
`PerflabError` into that line on stderr and exit status 2; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

from pathlib import Path


class PerflabError(Exception):
    """Base of every error a user can cause or mend."""


class InputError(PerflabError):
    """A file or value that was given cannot be used.

    Parameters
    ----------
    what
        What is wrong and what to do about it, one line.
    path
        The file it concerns; printed first.
    line
        Line in that file, counted from 1.
    """

    def __init__(self, what: str, *, path: str | Path | None = None, line: int | None = None) -> None:
        self.what, self.path, self.line = what, path, line
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{where}{what}")


class SchemaError(PerflabError):
    """A table lacks a column, or a column has the wrong dtype."""


class CaptureError(PerflabError):
    """The engine or the benchmark client could not do what was asked; what was measured is kept."""
