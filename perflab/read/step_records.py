"""Step records (`step_records.jsonl`), written by a server with perflab's plugin -> table `iterations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from perflab import schema
from perflab.errors import InputError
from perflab.read.files import read_lines
from perflab.units import NS_PER_MS

FORMAT = 1
# Name in the file -> column. What a line lacks is NA, except that these are always written.
_ALWAYS = {
    "t": "t_ns", "m": "monotonic_ns", "engine": "engine", "generated": "generated_tokens", "prompt": "prompt_tokens",
    "preempted": "preemptions", "finished": "finished", "ns": "record_ns",
}  # fmt: skip
_MAYBE = {
    "running": "running", "waiting": "waiting", "deferred": "deferred", "kv": "kv_usage", "computed": "computed_tokens",
    "cached": "cached_tokens", "scheduled": "scheduled_tokens", "prefill_requests": "prefill_requests",
    "prefill_tokens": "prefill_tokens", "decode_requests": "decode_requests", "decode_tokens": "decode_tokens",
    "engine_ms": "engine_ms", "graph": "graph",
}  # fmt: skip


@dataclass(frozen=True)
class StepRecordFile:
    """What one file holds.

    Attributes
    ----------
    table
        Table `iterations`, in the order written.
    complete
        Whether the server came to write its last line; else up to half a second of records is missing.
    dropped, flush_ns
        Records given up because the disk did not keep up, and what writing took beside serving, in all; None where
        the last line is missing.
    notes
        What could not be read.
    """

    path: Path
    table: pd.DataFrame
    complete: bool = False
    dropped: int | None = None
    flush_ns: int | None = None
    notes: list[str] = field(default_factory=list)


def read_step_records(path: str | Path) -> StepRecordFile:
    """Read one file. A last line that was cut short is left out and noted.

    Raises
    ------
    InputError
        When it is not such a file, has a newer format, or a line in the middle is damaged.
    """
    file = Path(path)
    rows: list[dict[str, Any]] = []
    end: dict[str, Any] | None = None
    notes: list[str] = []
    front_end = None
    cut: tuple[int, InputError] | None = None
    for number, line in read_lines(file):
        if cut is not None:
            raise cut[1]
        if not line.strip():
            continue
        try:
            record = _object(line, file, number)
        except InputError as error:
            # A server that was killed leaves its last line short; in the middle it would be damage.
            cut = (number, error)
            continue
        if front_end is None:
            front_end = _head(record, file)
        elif "end" in record:
            end = record
        else:
            rows.append(record)
            if missing := _ALWAYS.keys() - record.keys():
                raise InputError(f"a step lacks {', '.join(sorted(missing))}", path=file, line=number)
    if cut is not None:
        if front_end is None:
            raise cut[1]
        notes.append(f"line {cut[0]} is cut short and left out")
    if front_end is None:
        raise InputError("holds no step records; a server with perflab's plugin writes them", path=file)
    return StepRecordFile(
        path=file,
        table=_table(rows, front_end),
        complete=end is not None,
        dropped=None if end is None else int(end["dropped"]),
        flush_ns=None if end is None else int(end["flush_ns"]),
        notes=notes,
    )


def _object(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise InputError(f"is not a step record: {error}", path=file, line=number) from error
    if not isinstance(found, dict):
        raise InputError("is not a step record: not an object", path=file, line=number)
    return found


def _head(record: dict[str, Any], file: Path) -> int:
    version, process = record.get("format"), record.get("pid")
    if not isinstance(version, int) or not isinstance(process, int):
        raise InputError("is not a file of step records: its first line has no format", path=file, line=1)
    if version > FORMAT:
        raise InputError(f"has format {version}, newer than this perflab reads ({FORMAT}); upgrade perflab", path=file)
    return process


def _table(rows: list[dict[str, Any]], front_end: int) -> pd.DataFrame:
    if not rows:
        return schema.empty("iterations")
    frame = pd.DataFrame(rows).reindex(columns=[*_ALWAYS, *_MAYBE]).rename(columns={**_ALWAYS, **_MAYBE})
    frame["front_end"] = front_end
    for name in ("running", "waiting", "deferred", "computed_tokens", "cached_tokens", "scheduled_tokens",
                 "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"):  # fmt: skip
        frame[name] = pd.array(pd.to_numeric(frame[name]), dtype="Int64")
    took = pd.to_numeric(frame["engine_ms"]) * NS_PER_MS
    frame["engine_ns"] = pd.array(took.round(), dtype="Int64")
    frame["graph"] = frame["graph"].astype("object").where(frame["graph"].notna(), None)
    return schema.conform(frame, "iterations")
