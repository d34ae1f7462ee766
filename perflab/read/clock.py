"""Clock anchors (`clock.json`), written by a capture: the client's clock against the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from perflab.errors import InputError
from perflab.read.files import read_text


class Anchor(msgspec.Struct, frozen=True):
    """One moment on both clocks. `width_ns` bounds how far apart the two readings can be."""

    point: str
    when: str
    perf_counter_ns: int
    time_ns: int
    width_ns: int

    @property
    def offset_ns(self) -> int:
        """The epoch's clock less the client's."""
        return self.time_ns - self.perf_counter_ns


class _Document(msgspec.Struct, frozen=True):
    anchors: list[Anchor]
    clock: str = ""
    shared_between_processes: bool = False


@dataclass(frozen=True)
class ClockFile:
    """What `clock.json` holds.

    Attributes
    ----------
    clock
        Name of the clock behind `time.perf_counter`.
    is_shared
        Whether that clock is the system's: only then do anchors of one process hold for another.
    """

    path: Path
    clock: str
    is_shared: bool
    anchors: tuple[Anchor, ...]

    def of_point(self, point: str) -> tuple[Anchor, ...]:
        """The anchors taken before and after one point."""
        return tuple(anchor for anchor in self.anchors if anchor.point == point)


def read_clock(path: str | Path) -> ClockFile:
    """Read one file.

    Raises
    ------
    InputError
        When it does not hold clock anchors.
    """
    file = Path(path)
    text, damage = read_text(file)
    try:
        found = msgspec.json.decode(text.encode(), type=_Document)
    except msgspec.MsgspecError as error:
        raise InputError(f"does not hold clock anchors: {damage or error}", path=file) from error
    return ClockFile(file, found.clock, found.shared_between_processes, tuple(found.anchors))
