"""The events of a Chrome trace (Kineto writes that), batch by batch in bounded memory.

A trace is one JSON object whose `traceEvents` may hold millions of events, or a bare list of events. Blocks of
text are cut behind an event and decoded as a list. JSON leaves no doubt about a cut: what stands before it, put
in brackets, decodes if and only if the cut lies between two events. So cuts are guessed from the end of the
block, and a wrong guess (braces in a string, objects within an event) fails and is followed by an earlier one.

Damaged text is read around: what is not JSON is counted and skipped, the rest is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perflab.errors import InputError
from perflab.read.files import BLOCK, HEAD, Blocks, outline, refusal

Scalar = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that perflab uses; others are skipped."""

    device: Scalar = None
    stream: Scalar = None
    correlation: Scalar = None
    bytes: Scalar = None
    graph_id: Scalar = msgspec.field(default=None, name="graph id")
    external_id: Scalar = msgspec.field(default=None, name="External id")
    # Text, so that no surprise in them costs the event. Of a launch, where the runtime tells (HIP does):
    kernel: msgspec.Raw = msgspec.Raw(b"")
    # Of collectives (`perflab.read.collective_args`):
    collective: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Collective name")
    in_elements: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="In msg nelems")
    out_elements: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Out msg nelems")
    dtype: msgspec.Raw = msgspec.Raw(b"")
    group_size: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Group size")
    group_ranks: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Process Group Ranks")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")


class Event(msgspec.Struct, gc=False):
    """One event. Times stay text (`msgspec.Raw`): as floats they could lose their nanoseconds."""

    ph: str = ""
    cat: str | None = None
    name: Scalar = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    pid: Scalar = None
    tid: Scalar = None
    args: Args | None = None


MAX_EVENT = 8 << 20
"""Text without the end of an event that is longer than this is taken for damaged."""

_MAX_HEADER = 64 << 20
_GUESSES = 6
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_AFTER_OBJECT = re.compile(rb"\}\s*([,\]])")
_LIST_END = re.compile(rb"\]")
_RESUME = re.compile(rb'\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:)')
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_NAN = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\b(?:NaN|nan|Infinity|inf)\b', re.DOTALL)
_C_NUMBER = re.compile(rb"-?(?:nan|inf)\b")
_GAPS = b" \t\r\n,"
_GAP = re.compile(rb"[ \t\r\n,]*")
_SCANNER = json.JSONDecoder(strict=False)


class EventStream:
    """The events of one file; iterate to get lists of `Event`.

    Parameters
    ----------
    path
        A trace, plain or compressed.
    block
        Bytes of text decoded at a time.

    Attributes
    ----------
    header
        The top-level entries besides the events; complete after the iteration, for some come last.
    truncated
        The file ends before it should.
    unreadable
        Stretches of text among the events that could not be decoded and were left out.
    damage
        What was wrong first, and where; None when nothing was.
    """

    def __init__(self, path: str | Path, block: int = BLOCK) -> None:
        self.path = Path(path)
        self.header: dict[str, Any] = {}
        self.truncated = False
        self.unreadable = 0
        self.damage: str | None = None
        self._blocks = Blocks(path, size=block)
        self._offset = 0
        self._is_bare = False

    def __iter__(self) -> Iterator[list[Event]]:
        blocks = iter(self._blocks)
        text = self._open(blocks)
        while True:
            block = next(blocks, None)
            text += block or b""
            ended, progress = False, True
            while progress and not ended:
                before = len(text)
                events, text, ended = self._take(text, last=block is None)
                progress = len(text) < before
                if events:
                    yield events
            if ended:
                self._close(text, blocks)
                break
            if block is None:
                self.truncated = True
                break
        if self._blocks.damage is not None:
            self.truncated = True
            self.damage = self.damage or self._blocks.damage

    def _open(self, blocks: Iterator[bytes]) -> bytes:
        """Read up to the events and return the text read beyond that."""
        text, searched = b"", 0
        for block in blocks:
            text += block
            start = text.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start[:1] == b"[" and re.match(rb"\[\s*(?:\{|\]|$)", start):
                self._is_bare = True
                self._offset = len(text) - len(start) + 1
                return start[1:]
            if (start and start[:1] != b"{") or len(text) > _MAX_HEADER:
                break
            for match in _EVENTS_KEY.finditer(text, searched):
                head = text[: match.start()]
                if _depth(head) == 1:
                    self._add_header(head.lstrip(b"\xef\xbb\xbf") + b'"traceEvents":0}')
                    self._offset = match.end()
                    return text[match.end() :]
            searched = max(0, len(text) - 64)
        if text.lstrip()[:1] == b"{" and "schemaVersion" in outline(text[:HEAD])[1]:
            raise InputError("ends before its events; copy the file again", path=self.path)
        raise refusal(self.path, "kineto")

    def _take(self, text: bytes, last: bool) -> tuple[list[Event], bytes, bool]:
        """Decode the whole events at the beginning of `text`: they, the text behind them, whether the list ended."""
        text = self._rest(text, _past_gaps(text, 0))
        if text[:1] == b"]":
            return [], self._rest(text, 1), True
        limit = len(text)
        for _ in range(_GUESSES):
            cut = _last_cut(text, limit)
            if cut is None:
                break
            end = cut.start() + 1
            try:
                events = _LIST.decode(b"[" + text[:end] + b"]")
            except (msgspec.ValidationError, RecursionError):
                break
            except msgspec.DecodeError as error:
                # Where the decoder says how far the text is sound, no later cut can be right.
                at = _AT_BYTE.search(str(error))
                limit = min(end - 1, int(at[1]) - 1) if at else end - 1
            else:
                return events, self._rest(text, cut.end()), cut[1] == b"]"
        return self._take_singly(text, last)

    def _take_singly(self, text: bytes, last: bool) -> tuple[list[Event], bytes, bool]:
        """As `_take`, event by event and with care, for text that no guess suited."""
        events: list[Event] = []
        scan = text.decode("latin-1")  # a character a byte; only structure matters here
        begin = 0
        while (begin := _past_gaps(text, begin)) < len(text):
            if text[begin : begin + 1] == b"]":
                return events, self._rest(text, begin + 1), True
            end, broken_at = _next_value(scan, begin)
            if end:
                event = _event(text[begin:end])
                if event is None:
                    self._damaged(begin)
                else:
                    events.append(event)
                begin = end
                continue
            if broken_at is not None and _C_NUMBER.match(text, broken_at):
                mended = text[:begin] + _without_nan(text[begin:])
                if mended != text:
                    text, scan = mended, mended.decode("latin-1")
                    continue
            if broken_at is None and len(text) - begin <= MAX_EVENT:
                break  # the beginning of an event
            resumed = _RESUME.search(text, broken_at or begin + 1)
            list_end = None if resumed or not last else _list_end(text, begin)
            if resumed is None and list_end is None and not last and len(text) - begin <= MAX_EVENT:
                break
            self._damaged(begin)
            if list_end is not None:
                return events, self._rest(text, list_end), True
            begin = len(text) if resumed is None else resumed.end()
        return events, self._rest(text, begin), False

    def _close(self, text: bytes, blocks: Iterator[bytes]) -> None:
        """Read what stands behind the events."""
        for block in blocks:
            text += block
            if len(text) > _MAX_HEADER:
                break
        text = text.strip(_GAPS + b"\0")
        if not self._is_bare and text != b"}" and not self._add_header(b"{" + text):
            self.truncated = True

    def _add_header(self, text: bytes) -> bool:
        found = _object(text)
        if found is None:
            self.damage = self.damage or "the entries before or behind the events are not JSON"
            return False
        self.header.update(found)
        self.header.pop("traceEvents", None)
        return True

    def _rest(self, text: bytes, length: int) -> bytes:
        self._offset += length
        return text[length:]

    def _damaged(self, at: int) -> None:
        self.unreadable += 1
        self.damage = self.damage or f"not an event at byte {self._offset + at} of the text"


_LIST = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


def _last_cut(text: bytes, limit: int) -> re.Match[bytes] | None:
    """The last object's end before `limit` that a comma or the list's end follows."""
    while (limit := text.rfind(b"}", 0, max(limit, 0))) >= 0:
        if match := _AFTER_OBJECT.match(text, limit):
            return match
    return None


def _past_gaps(text: bytes, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at


def _next_value(scan: str, at: int) -> tuple[int, int | None]:
    """Where the JSON value that begins at `at` ends, 0 when it does not; then where it is broken, None if only cut."""
    try:
        return _SCANNER.raw_decode(scan, at)[1], None
    except RecursionError:
        return 0, at + 1
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Unterminated string") or error.pos > len(scan) - 16
        return 0, None if is_cut else error.pos


def _list_end(text: bytes, begin: int) -> int | None:
    """Where the list of events ends, if what stands behind that place is the rest of an object."""
    for match in _LIST_END.finditer(text, begin):
        if _object(b"{" + text[match.end() :].lstrip(_GAPS)) is not None:
            return match.end()
    return None


def _event(text: bytes) -> Event | None:
    for mend in (bytes, _mended):
        try:
            return _EVENT.decode(mend(text))
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def _object(text: bytes) -> dict[str, Any] | None:
    for mend in (bytes, _mended):
        try:
            return msgspec.json.decode(mend(text), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def _mended(text: bytes) -> bytes:
    """The text with what other writers leave in JSON replaced: NaN, control characters in strings, bad UTF-8."""
    return re.sub(rb"[\x00-\x1f]", b" ", _without_nan(text).decode("utf-8", errors="replace").encode())


def _without_nan(text: bytes) -> bytes:
    """The text with an empty string for every number JSON does not know; its length stays."""
    return _NAN.sub(lambda match: match[0] if match[0][:1] == b'"' else b'""'.ljust(len(match[0])), text)


def _depth(text: bytes) -> int:
    """How many brackets are open at the end of the text."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(match[0], 0)
    return depth
