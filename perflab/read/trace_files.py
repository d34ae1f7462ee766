"""Any file that holds traces -> its traces, whatever the format."""

from __future__ import annotations

from pathlib import Path

from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import refusal, sniff
from perflab.read.kineto import read_kineto
from perflab.read.nsys_sqlite import read_nsys
from perflab.read.trace import Trace

KINDS: tuple[str, ...] = ("kineto", "nsys")
"""What `perflab.read.files.sniff` calls the files read here."""


def read_traces(path: str | Path) -> list[Trace]:
    """The traces in a file: one of a torch profiler trace, one a rank of an export of Nsight Systems.

    Raises
    ------
    InputError
        When the file is no trace, or one that has to be exported first; the message holds the command.
    """
    kind = sniff(path)
    if kind == "nsys":
        return read_nsys(path)
    if kind == "nsys_report":
        raise needs_export(path)
    if kind == "sqlite":
        raise refusal(path, "nsys")
    return [read_kineto(path)]


def needs_export(path: str | Path) -> InputError:
    """An error that says how a report of Nsight Systems is exported."""
    file = Path(path)
    before = "nsys.import_report" if file.suffix == ".qdstrm" else "nsys.export_report"
    return InputError(say(before, name=file.name, stem=file.stem), path=file)
