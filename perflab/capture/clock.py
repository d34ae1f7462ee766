"""Clock anchors: the benchmark client's clock against the epoch.

vLLM's client stamps requests with `time.perf_counter`, whose origin is arbitrary; traces, scrapes and logs
count from the epoch. The client is another process than the one that writes anchors, which is sound where
`perf_counter` is a clock of the system and not of the process: on Linux it is CLOCK_MONOTONIC. The name of
the clock is recorded so that a reader can check.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from perflab.capture.cache import write_whole

_TRIES = 5


@dataclass(frozen=True)
class Anchor:
    """One moment on both clocks. `width_ns` bounds how far apart the two readings can be."""

    point: str
    when: str
    perf_counter_ns: int
    time_ns: int
    width_ns: int


def anchor(point: str, when: str) -> Anchor:
    """The moment now, `before` or `after` a point; the tightest of a few readings."""
    readings = []
    for _ in range(_TRIES):
        first = time.perf_counter_ns()
        epoch = time.time_ns()
        last = time.perf_counter_ns()
        readings.append((last - first, (first + last) // 2, epoch))
    width, middle, epoch = min(readings)
    return Anchor(point, when, middle, epoch, width)


def write_anchors(path: Path, anchors: list[Anchor]) -> None:
    """Write `clock.json`."""
    info = time.get_clock_info("perf_counter")
    document = {
        "schema": 1,
        "clock": info.implementation,
        "shared_between_processes": "CLOCK_MONOTONIC" in info.implementation,
        "anchors": [asdict(one) for one in anchors],
    }
    write_whole(path, json.dumps(document, indent=1))
