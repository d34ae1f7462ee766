"""Decimal microseconds as text -> integer nanoseconds, exactly and many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt
from msgspec import Raw

from perflab.units import ns_from_us

_COMMA, _DOT, _MINUS, _ZERO, _NINE = b",.-09"
_SCALE = np.array([1000, 100, 10, 1], dtype=np.int64)


def exact_ns(texts: Sequence[Raw | bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Nanoseconds of microseconds given as JSON numbers, and which texts were numbers at all.

    Up to three decimals are read as integers; the rest (more decimals, exponents, quotes) one by one through
    `Decimal`, rounded half to even. What is no number, or out of int64's range, becomes 0 and False.
    """
    if not len(texts):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    joined = b",".join(texts)
    data = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(data == _COMMA), len(data))
    if len(ends) != len(texts):  # commas within a text
        return _one_by_one(texts)
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots = np.flatnonzero(data == _DOT)
    owner = np.searchsorted(ends, dots)
    decimals = np.zeros(len(texts), dtype=np.int64)
    decimals[owner] = ends[owner] - dots - 1
    other = np.flatnonzero(~((data >= _ZERO) & (data <= _NINE) | (data == _COMMA) | (data == _DOT) | (data == _MINUS)))
    # 16 digits, as microseconds since the epoch have, fit into int64 once brought to three decimals, but not all.
    digits = ends - starts - decimals - (decimals > 0)
    fits = (digits <= 15) | ((digits == 16) & (np.append(data, _COMMA)[starts] < _NINE))
    plain = (decimals <= 3) & (ends > starts) & fits
    plain[np.searchsorted(ends, other)] = False
    if plain.all():
        values = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=",")
        return values * _SCALE[decimals], plain
    easy, odd = np.flatnonzero(plain), np.flatnonzero(~plain)
    ns, good = np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=bool)
    if len(easy):
        ns[easy] = exact_ns([texts[int(i)] for i in easy])[0]
    ns[odd], good[odd] = _one_by_one([texts[int(i)] for i in odd])
    return ns, good


def _one_by_one(texts: Sequence[Raw | bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    found = [_ns(bytes(text)) for text in texts]
    return np.array([ns or 0 for ns in found], dtype=np.int64), np.array([ns is not None for ns in found])


def _ns(text: bytes) -> int | None:
    try:
        number = Decimal(text.strip(b'"').decode("ascii"))
        # The check comes first: the integer of 1e999999 would fill the memory.
        if not number.is_finite() or number.adjusted() > 15:
            return None
        ns = ns_from_us(number)
        return ns if abs(ns) < 1 << 63 else None
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None
