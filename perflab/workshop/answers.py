"""What an attendee gave as an answer: one number in a unit that can be told, or a word."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from perflab import units

Kind = Literal["share", "time", "factor"]

_NUMBER = re.compile(
    r"\s*([-+]?\d[\d_]*(?:[.,]\d+)?(?:e[-+]?\d+)?)\s*(%|per cent|percent|ns|us|µs|ms|s|x|times)?\s*", re.I
)
_SIZES = {"ns": 1.0, "µs": units.NS_PER_US, "ms": units.NS_PER_MS, "s": units.NS_PER_S}
_ASKED = {"share": "", "time": "ms", "factor": ""}
_OTHERS = {"share": ("%",), "time": ("ns", "µs", "s"), "factor": ("%",)}


@dataclass(frozen=True)
class Reading:
    """One way to take a number.

    Attributes
    ----------
    value
        In the unit answers are compared in: shares and factors as they are, times in nanoseconds.
    unit
        The unit it was taken to be in; empty where that needs no word.
    asked
        Whether that is the unit asked for, or one the attendee wrote.
    """

    value: float
    unit: str
    asked: bool


@dataclass(frozen=True)
class Unusable:
    """Why no number could be read: names the sentence under `workshop.answer`."""

    why: str


def is_open(answer: Any) -> bool:
    """Whether the answer was left as the exercise has it."""
    return answer is ... or answer is None or (isinstance(answer, str) and answer.strip() in ("", "..."))


def readings(answer: Any, kind: Kind) -> list[Reading] | Unusable:
    """The ways to take an answer as a number, the unit asked for first.

    Text may carry its unit (`"17 %"`, `"5.2 ms"`), which then is the only reading.
    """
    text_unit = ""
    if isinstance(answer, str):
        match = _NUMBER.fullmatch(answer)
        if match is None:
            return Unusable("text")
        answer, text_unit = float(match[1].replace(",", ".").replace("_", "")), _unit(match[2])
    number = _single(answer)
    if isinstance(number, Unusable):
        return number
    if text_unit:
        known = text_unit in (_ASKED[kind], *_OTHERS[kind])
        return [_reading(number, text_unit, kind, asked=True)] if known else Unusable("unit")
    return [
        _reading(number, _ASKED[kind], kind, asked=True),
        *(_reading(number, unit, kind, asked=False) for unit in _OTHERS[kind]),
    ]


def word(answer: Any) -> str | Unusable:
    """A word as answers are compared: small letters, everything else but digits one underscore."""
    if not isinstance(answer, str):
        return Unusable("no_word")
    return re.sub(r"[^a-z0-9]+", "_", answer.lower()).strip("_")


def show(value: float, kind: Kind) -> str:
    """A value for a reader."""
    if kind == "share":
        return units.show_share(value)
    return units.show_time(value) if kind == "time" else f"{value:.2f}"


def _unit(text: str | None) -> str:
    lower = (text or "").lower()
    return {"per cent": "%", "percent": "%", "us": "µs", "x": "", "times": ""}.get(lower, lower)


def _reading(number: float, unit: str, kind: Kind, *, asked: bool) -> Reading:
    if kind == "time":
        return Reading(number * _SIZES[unit], unit, asked)
    return Reading(number / 100 if unit == "%" else number, unit, asked)


def _single(answer: Any) -> float | Unusable:
    """A Python or numpy number, or a list, table or array that holds a single one."""
    if isinstance(answer, bool) or type(answer).__name__ in ("bool_", "NAType", "NaTType"):
        return Unusable("no_number")
    size = len(answer) if isinstance(answer, list | tuple | dict | set) else getattr(answer, "size", 1)
    if isinstance(size, int) and size != 1:
        return Unusable("several" if size else "no_number")
    if isinstance(answer, list | tuple):
        return _single(answer[0])
    values = getattr(answer, "to_numpy", lambda: answer)()
    try:
        number = float(values.item() if hasattr(values, "item") else values)
    except (TypeError, ValueError, OverflowError):
        return Unusable("no_number")
    return number if math.isfinite(number) else Unusable("not_finite")
