"""Opening what users hand over: plain or compressed, whole or cut short; and telling what it is.

Compression is recognised by content, not by name. A file that ends early or whose compressed data are
damaged is read as far as it goes, and the reader is told (`Blocks.damage`, second value of `read_text`).
"""

from __future__ import annotations

import contextlib
import lzma
import re
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from perflab.errors import InputError
from perflab.read.kinds import IN_ARRAYS, NAMES, OBJECTS

BLOCK = 4 << 20
"""Decompressed bytes a block holds at most."""

HEAD = 1 << 20
"""Decompressed bytes that `sniff` looks at."""

MAX_TEXT = 1 << 30
"""Files read whole must be smaller than this once decompressed."""

_COMPRESSED_CHUNK = 1 << 18
_GZ, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


class Blocks:
    """The decompressed content of a file, block by block.

    Parameters
    ----------
    path
        A plain, gzip or xz file.
    size
        Bytes a block holds at most; bounds the memory whatever the compression ratio.

    Attributes
    ----------
    damage
        After the iteration: why the content ends early, or None when it is whole.
    """

    def __init__(self, path: str | Path, size: int = BLOCK) -> None:
        self.path = Path(path)
        self.size = size
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.damage = None
        try:
            with self.path.open("rb") as file:
                magic = file.read(6)
                file.seek(0)
                if magic.startswith(_GZ):
                    yield from self._unpacked(file, _Gunzip, _GZ)
                elif magic.startswith(_XZ):
                    yield from self._unpacked(file, _Unxz, _XZ)
                else:
                    while block := file.read(self.size):
                        yield block
        except FileNotFoundError as error:
            raise InputError("no such file", path=self.path) from error
        except IsADirectoryError as error:
            raise InputError("is a directory, not a file", path=self.path) from error
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", path=self.path) from error

    def _unpacked(self, file: BinaryIO, make: type[_Gunzip | _Unxz], magic: bytes) -> Iterator[bytes]:
        """Content of all members of a compressed file, as far as they are sound."""
        member, data = make(), b""
        while True:
            if member.needs_input and not data:
                data = file.read(_COMPRESSED_CHUNK)
                if not data:
                    self.damage = "the compressed file ends early"
                    return
            try:
                out = member.step(data, self.size)
            except (zlib.error, lzma.LZMAError) as error:
                yield member.salvaged(data, self.size)
                self.damage = f"the compressed data are damaged ({error})"
                return
            data = b""
            if out:
                yield out
            if member.eof:
                data = member.unused.lstrip(b"\0") or file.read(_COMPRESSED_CHUNK).lstrip(b"\0")
                if not data.startswith(magic):
                    return
                member = make()


class _Member(Protocol):
    needs_input: bool
    eof: bool
    unused: bytes

    def step(self, data: bytes, size: int) -> bytes: ...

    def salvaged(self, data: bytes, size: int) -> bytes: ...


class _Gunzip(_Member):
    """One gzip member."""

    def __init__(self) -> None:
        self._unzip = zlib.decompressobj(wbits=31)
        self._before = self._unzip
        self._left = b""
        self.needs_input, self.eof, self.unused = True, False, b""

    def step(self, data: bytes, size: int) -> bytes:
        """The next piece; `data` is b"" unless input is needed."""
        self._before = self._unzip.copy()
        out = self._unzip.decompress(self._left + data, size)
        self._left = self._unzip.unconsumed_tail
        self.needs_input, self.eof, self.unused = not self._left, self._unzip.eof, self._unzip.unused_data
        return out

    def salvaged(self, data: bytes, size: int) -> bytes:
        """What the failed step would have given up to the damage."""
        data, out = self._left + data, b""
        try:
            for at in range(0, len(data), 64):
                if len(out) >= size:
                    break
                out += self._before.decompress(data[at : at + 64])
        except zlib.error:
            pass
        return out


class _Unxz(_Member):
    """One xz stream."""

    def __init__(self) -> None:
        self._unzip = lzma.LZMADecompressor()
        self.needs_input, self.eof, self.unused = True, False, b""

    def step(self, data: bytes, size: int) -> bytes:
        """The next piece; `data` is b"" unless input is needed."""
        out = self._unzip.decompress(data, size)
        self.needs_input, self.eof = self._unzip.needs_input, self._unzip.eof
        self.unused = self._unzip.unused_data
        return out

    def salvaged(self, data: bytes, size: int) -> bytes:
        """Nothing: xz checks whole blocks."""
        return b""


def read_head(path: str | Path, size: int = HEAD) -> bytes:
    """The first `size` decompressed bytes, fewer when the file is shorter."""
    parts, length = [], 0
    for block in Blocks(path, size=min(size, BLOCK)):
        parts.append(block)
        length += len(block)
        if length >= size:
            break
    return b"".join(parts)[:size]


def read_text(path: str | Path) -> tuple[str, str | None]:
    """The whole text of a file, and why it ends early (None when it is whole).

    UTF-8, or UTF-16 with a byte order mark as PowerShell writes it. Bytes that are neither become U+FFFD.

    Raises
    ------
    InputError
        When the file cannot be opened or is too large to be read whole.
    """
    blocks, parts, length = Blocks(path), [], 0
    for block in blocks:
        parts.append(block)
        length += len(block)
        if length > MAX_TEXT:
            raise InputError(f"is larger than {MAX_TEXT >> 20} MiB unpacked; give the part that matters", path=path)
    return decoded(b"".join(parts)), blocks.damage


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that are not blank, with their numbers from 1, in bounded memory.

    A file that ends early gives its last line as far as it goes.
    """
    number, rest = 0, b""
    for block in Blocks(path):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield number, decoded(line)
    if rest.strip():
        yield number + 1, decoded(rest)


def decoded(data: bytes) -> str:
    """Bytes as text, see `read_text`."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


# From one bracket to the next: strings are passed over whole, for they may hold brackets. A string that is cut off,
# or the end, ends the text.
_TO_BRACKET = re.compile(rb'((?:[^"{}\[\]]++|"(?:[^"\\]|\\.)*+")*+)(.?)', re.DOTALL)
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*+)"\s*:', re.DOTALL)

_LOG_LINE = re.compile(
    r"^(?:\x1b\[[\d;]*m)*(?:\((?:APIServer|EngineCore|Worker|MainProcess)\S* pid=\d+\)"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    r"|vllm(?: [\w-]+)*: error: |\s+File \"[^\"\n]*/vllm/)"
    # Another process' prefix, or a progress bar, may stand before what vLLM writes.
    r"|\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]+\.py:\d+\] ",
    re.MULTILINE,
)
_METRIC_LINE = re.compile(
    r"\s*(?:# (?:HELP|TYPE) [A-Za-z_:][\w:]* |[A-Za-z_:][\w:]*(?:\{[^}\n]*\})? (?:[-+]?[\d.]|NaN)\S*\s*$)", re.MULTILINE
)
_CSV_HEAD = re.compile(r"\s*Metric,(?:avg|Value)\b")
_GUIDELLM_ALONE = re.compile(rb'\s*\{\s*"benchmarks"\s*:\s*\[\s*\{\s*"type_"\s*:\s*"\w*benchmark"')
_AIPERF_RECORD = re.compile(rb'\s*\{\s*"metadata"\s*:\s*\{[^{}]*"request_start_ns"[^{}]*\}\s*,\s*"metrics"\s*:')
_FRONTEND_CATEGORIES = frozenset((b"python_function", b"Trace"))


def sniff(path: str | Path) -> str | None:
    """What a file is, by its content: one of `NAMES`, or None when it is none of these.

    Looks at the first `HEAD` bytes of its decompressed content. The name serves only to tell a front-end
    trace of vLLM, which may hold nothing of its own, from a worker's, and for reports of Nsight Systems, whose
    format is its own.
    """
    head = read_head(path)
    if head.startswith(b"SQLite format 3\0"):
        return "nsys" if _is_nsys(Path(path), head) else "sqlite"
    if Path(path).suffix in REPORTS:
        return "nsys_report"
    if head[257:262] == b"ustar" or head.startswith((b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        return "archive"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        kind = _json_kind(head)
        if kind == "kineto":
            return "kineto_frontend" if _is_frontend(Path(path), head) else kind
        if kind is not None:
            return kind
        if _GUIDELLM_ALONE.match(head):
            return "guidellm"
        if _AIPERF_RECORD.match(head):
            return "aiperf_records"
    return _text_kind(decoded(head))


REPORTS = frozenset((".nsys-rep", ".qdrep", ".qdstrm"))
"""Suffixes of what Nsight Systems writes itself; `.qdstrm` is what it recorded, before its importer ran."""

_NSYS_TABLE = re.compile(rb"CREATE TABLE [\"'`\[]?(?:CUPTI_ACTIVITY_KIND_|NVTX_EVENTS|StringIds|TARGET_INFO_)")


def _is_nsys(path: Path, head: bytes) -> bool:
    """Whether a database has tables of Nsight Systems; of a compressed one only the beginning is looked at."""
    if _NSYS_TABLE.search(head):
        return True
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        ) as file:
            names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchmany(1000)
    except (sqlite3.Error, ValueError):
        return False
    return any(str(name).startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "StringIds")) for (name,) in names)


def refusal(path: str | Path, wanted: str) -> InputError:
    """An error that says what a file seems to be instead of `wanted` (a key of `NAMES`)."""
    found = sniff(path)
    if found is None or found == wanted:
        return InputError(f"is not {NAMES[wanted]}", path=path)
    return InputError(f"is {NAMES[found]}, not {NAMES[wanted]}", path=path)


def outline(head: bytes) -> tuple[str, list[str]]:
    """The shape of a JSON text by its beginning.

    Returns
    -------
    tuple
        `object` and its keys; `objects` (an array of them) and the keys of the first; `array`; or `other`.
    """
    shape, depth, wanted, keys = "other", 0, 1, []
    for match in _TO_BRACKET.finditer(head):
        if depth == wanted:
            keys += [key.decode("utf-8", errors="replace") for key in _KEY.findall(match[1])]
        bracket = match[2]
        if bracket in (b"{", b"["):
            depth += 1
            if depth == 1:
                shape, wanted = ("object", 1) if bracket == b"{" else ("array", 2)
            elif depth == 2 and shape == "array":
                if bracket == b"[":
                    break
                shape = "objects"
        elif bracket in (b"}", b"]"):
            depth -= 1
            if depth < wanted:
                break
        else:
            break
    return shape, keys


def _json_kind(head: bytes) -> str | None:
    shape, found = outline(head)
    if shape == "array":
        return "memory_timeline" if re.match(rb"\s*\[\s*\[", head) else None
    keys = frozenset(found)
    known = OBJECTS if shape == "object" else IN_ARRAYS
    return next((kind for kind, needed in known if needed <= keys), None)


def _is_frontend(path: Path, head: bytes) -> bool:
    if ".async_llm." in path.name:
        return True
    categories = frozenset(re.findall(rb'"cat"\s*:\s*"([^"]*)"', head))
    return b'"distributedInfo"' not in head and b"python_function" in categories <= _FRONTEND_CATEGORIES


def _text_kind(text: str) -> str | None:
    text = text.replace("\r", "\n")  # progress bars
    first = text[:20_000]
    if "Self CPU" in first and re.match(r"\s*-{3,}(?: +-{3,})+ *$", first, re.MULTILINE):
        return "profiler_table"
    if "= Serving Benchmark Result =" in text:
        return "bench_printed"
    if _CSV_HEAD.match(first):
        return "aiperf_csv"
    if _METRIC_LINE.match(text):
        return "metrics"
    if text.startswith("usage: vllm ") and "error: " not in text[:4000]:
        return "vllm_help"
    if re.match(r"(?:#[^\n]*\n)*version: '?0\.\d+'?", first) and re.search(r"^(?:scenario|run):", first, re.MULTILINE):
        return "llmd_report"
    return "server_log" if _LOG_LINE.search(text) else None
