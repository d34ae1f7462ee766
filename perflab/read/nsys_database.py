"""A SQLite export of Nsight Systems as a source of columns: opened for reading only, trusted in nothing.

What a table holds differs by version, tables without rows are not written, and anybody can make such a file. So only
plain tables are read, by named columns, in pieces; a value of the wrong type, damage, or a file that is something
else ends in one clear `InputError`.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import Blocks, read_head, refusal
from perflab.read.trace_columns import MISSING

MAX_UNPACKED = 16 << 30
"""A compressed export may be this large once unpacked (to a temporary file)."""

MAX_NAME = 8192
"""Characters of a name that are kept."""

MAX_TIME = 1 << 62
"""Times beyond this many nanoseconds are no times."""

# What sqlite3 raises over a damaged file: names of columns, too, may be no text.
_FAILURES = (sqlite3.Error, UnicodeDecodeError, ValueError, OverflowError)
_CHUNK = 1 << 16
_MAGIC = b"SQLite format 3\0"
_OWN_TABLES = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "NVTX_EVENTS", "StringIds", "META_DATA_EXPORT")

Ints = npt.NDArray[np.int64]


class Database:
    """One export, open; a context manager.

    Parameters
    ----------
    path
        The export, plain or compressed.

    Attributes
    ----------
    tables
        Columns by table, of plain tables only.

    Raises
    ------
    InputError
        When the file is not such an export or is damaged; also from every method.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        plain = self._plain()
        try:
            uri = f"file:{quote(str(plain.resolve()))}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            self._connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
            self.tables = self._tables()
        except _FAILURES as error:
            self.close()
            raise self._damaged(error) from error
        if not any(name.startswith(_OWN_TABLES) for name in self.tables):
            self.close()
            raise InputError(say("nsys.not_an_export"), path=self.path)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, and remove what was unpacked."""
        if hasattr(self, "_connection"):
            self._connection.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _plain(self) -> Path:
        """The file itself, or an unpacked copy that goes away with this object."""
        if not read_head(self.path, len(_MAGIC)).startswith(_MAGIC):
            raise refusal(self.path, "nsys")
        with self.path.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                return self.path
        self._folder = tempfile.TemporaryDirectory(prefix="perflab-")
        target = Path(self._folder.name) / "export.sqlite"
        room = min(MAX_UNPACKED, shutil.disk_usage(self._folder.name).free // 2)
        blocks, size = Blocks(self.path), 0
        try:
            with target.open("wb") as file:
                for block in blocks:
                    size += len(block)
                    if size > room:
                        raise InputError(say("nsys.too_large", room=room >> 20), path=self.path)
                    file.write(block)
            if blocks.damage is not None:
                raise InputError(say("nsys.cut", why=blocks.damage), path=self.path)
        except BaseException:
            self._folder.cleanup()
            raise
        return target

    def _tables(self) -> dict[str, tuple[str, ...]]:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")
        run("PRAGMA cell_size_check = ON")
        named = run("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        plain = [str(name) for name, sql in named if str(sql).lstrip()[:12].upper() == "CREATE TABLE"]
        return {name: tuple(str(row[1]) for row in run(f"PRAGMA table_info({_quoted(name)})")) for name in plain}

    def _damaged(self, error: Exception) -> InputError:
        return InputError(say("nsys.damaged", why=" ".join(str(error).split())[:200]), path=self.path)

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is a table with these columns."""
        return table in self.tables and all(column in self.tables[table] for column in columns)

    def count(self, table: str) -> int:
        """Rows of a table; 0 where there is none."""
        if table not in self.tables:
            return 0
        return int(next(self._select(f"SELECT count(*) FROM {_quoted(table)}"))[0][0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in pieces; None for a column that the table does not have. Nothing where there is no table."""
        if table not in self.tables:
            return
        there = self.tables[table]
        # In double quotes SQLite would take an unknown column's name for a text.
        asked = ", ".join(_quoted(column) if column in there else "NULL" for column in columns)
        yield from self._select(f"SELECT {asked} FROM {_quoted(table)}")

    def integers(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Ints]]:
        """Whole numbers in pieces, -1 for what is absent.

        Raises
        ------
        InputError
            When a value is something else.
        """
        for rows in self.rows(table, columns):
            values = zip(*rows, strict=True)
            yield {name: self._whole(table, name, list(column)) for name, column in zip(columns, values, strict=True)}

    def table(self, name: str, columns: Sequence[str]) -> dict[str, Ints]:
        """All of a table's whole numbers."""
        parts = list(self.integers(name, columns))
        empty = np.zeros(0, dtype=np.int64)
        return {column: np.concatenate([part[column] for part in parts] or [empty]) for column in columns}

    def texts(self, table: str, columns: Sequence[str], most: int = 100_000) -> list[tuple[str, ...]]:
        """Small tables as text, empty for what is absent; at most `most` rows."""
        found: list[tuple[str, ...]] = []
        for rows in self.rows(table, columns):
            found += [tuple("" if v is None else str(v)[:MAX_NAME] for v in row) for row in rows]
            if len(found) >= most:
                break
        return found[:most]

    def facts(self, table: str) -> dict[str, str]:
        """A table of names and values; of a name that occurs often the last value."""
        return {row[0]: row[1] for row in self.texts(table, ("name", "value"))}

    def strings(self, ids: Iterable[int]) -> dict[int, str]:
        """The texts of these ids from `StringIds`; an id that is not there is left out."""
        wanted = set(ids)
        if not wanted or not self.has("StringIds", "id", "value"):
            return {}
        found: dict[int, str] = {}
        for rows in self._select(f"SELECT id, substr(value, 1, {MAX_NAME}) FROM StringIds"):
            found.update((key, str(value)) for key, value in rows if key in wanted)
        return found

    def _select(self, statement: str) -> Iterator[list[tuple[Any, ...]]]:
        try:
            with contextlib.closing(self._connection.execute(statement)) as cursor:
                while rows := cursor.fetchmany(_CHUNK):
                    yield rows
        except _FAILURES as error:
            raise self._damaged(error) from error

    def _whole(self, table: str, column: str, values: list[Any]) -> Ints:
        if None in values:
            values = [MISSING if value is None else value for value in values]
        found = np.array(values) if all(type(value) is int for value in values) else np.array(values, dtype=object)
        if found.dtype.kind == "i":
            return found.astype(np.int64, copy=False)
        wrong = next(value for value in values if not _is_whole(value)) if not all(map(_is_whole, values)) else None
        if wrong is not None:
            kind = {str: "text", bytes: "bytes", float: "a fraction"}.get(type(wrong), type(wrong).__name__)
            raise InputError(say("nsys.wrong_type", table=table, column=column, kind=kind), path=self.path)
        return np.array([int(value) for value in values], dtype=np.int64)


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and abs(value) < 2**53 and value.is_integer())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
