"""Two orders of kernels laid beside each other: which kernel of one is which of the other."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints, as_ints

_SAME, _LIKE, _GAP = 4, 1, -1
"""Same name; same category with another name (autotuned variants); left out. Other categories are never paired."""

_PLAIN = re.compile(r"^(?:void |std::enable_if<.*?>::type )?")
_WRAPPERS = ("cutlass::device_kernel<", "flash::enable_sm90_or_later<")
_VARIANT = re.compile(r"(?:_(?:splitK|bz|v|h))+(?=_|$)")
_SIZES = re.compile(r"\d+")


@functools.lru_cache(maxsize=65536)
def plain_name(name: str) -> str:
    """A kernel's name without what tuning changes: template arguments, parameters, tile sizes, numbers.

    Examples
    --------
    >>> plain_name("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT") == plain_name("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT")
    True
    """
    text = _PLAIN.sub("", name).replace("(anonymous namespace)::", "")
    while text.startswith(_WRAPPERS):
        text = text.split("<", 1)[1]
    return _SIZES.sub("#", _VARIANT.sub("_", re.split(r"[<(]", text, maxsplit=1)[0]))


def align(first: Sequence[int], second: Sequence[int], groups: NDArray[np.int64]) -> Ints:
    """For each element of `first`, the position in `second` it is paired with, -1 where there is none.

    The pairing of highest score that keeps both orders (Needleman and Wunsch 1970), by anti-diagonals.

    Parameters
    ----------
    first, second
        Codes of names.
    groups
        By code: its category. Elements of other categories are never paired.
    """
    a, b = as_ints(first), as_ints(second)
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    found = np.full(len(a), -1, dtype=np.int64)
    found[:start] = np.arange(start)
    if end:
        found[len(a) - end :] = np.arange(len(b) - end, len(b))
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    if len(middle_a) and len(middle_b):
        inner = _needleman(middle_a, middle_b, groups)
        found[start : len(a) - end] = np.where(inner >= 0, inner + start, -1)
    return as_ints(found)


def _common(a: Ints, b: Ints) -> int:
    """How many elements the two have in common from the start."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def _needleman(a: Ints, b: Ints, groups: NDArray[np.int64]) -> Ints:
    n, m = len(a), len(b)
    # Which way each cell was reached: 0 paired, 1 an element of `a` left out, 2 one of `b`.
    way = np.zeros((n + 1, m + 1), dtype=np.int8)
    way[1:, 0], way[0, 1:] = 1, 2
    never = np.int64(-(10**9))
    before2, before = np.array([0], dtype=np.int64), np.array([_GAP, _GAP], dtype=np.int64)
    # Diagonal d holds cells (i, d - i) for i from max(0, d - m) to min(d, n); `low` is the first i.
    low2, low1 = 0, 0
    for d in range(2, n + m + 1):
        low, high = max(0, d - m), min(d, n)
        i = np.arange(low, high + 1)
        j = d - i
        scores = np.full(len(i), d * _GAP, dtype=np.int64)
        inner = (i > 0) & (j > 0)
        ii, jj = i[inner], j[inner]
        same = a[ii - 1] == b[jj - 1]
        pair = np.where(same, _SAME, np.where(groups[a[ii - 1]] == groups[b[jj - 1]], _LIKE, never))
        diagonal = before2[ii - 1 - low2] + pair
        skip_a = before[ii - 1 - low1] + _GAP
        skip_b = before[ii - low1] + _GAP
        best = np.maximum(diagonal, np.maximum(skip_a, skip_b))
        way[ii, jj] = np.where(diagonal == best, 0, np.where(skip_a == best, 1, 2))
        scores[inner] = best
        before2, before, low2, low1 = before, scores, low1, low
    return _trace_back(way, n, m)


def _trace_back(way: NDArray[np.int8], n: int, m: int) -> Ints:
    found = np.full(n, -1, dtype=np.int64)
    i, j = n, m
    while i > 0 and j > 0:
        if way[i, j] == 0:
            i, j = i - 1, j - 1
            found[i] = j
        elif way[i, j] == 1:
            i -= 1
        else:
            j -= 1
    return as_ints(found)
