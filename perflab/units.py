"""Conversion and display of times, bytes and rates. Nowhere else.

Inside, times are integer nanoseconds and sizes integer bytes. These functions make numbers for people.
"""

from __future__ import annotations

from decimal import Decimal

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
GIB = 1024**3

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"))
_BYTE_STEPS = ((1024**4, "TiB"), (GIB, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def ns_from_us(text: str | int | float | Decimal) -> int:
    """Microseconds as written in a trace -> integer nanoseconds, exact for decimal text.

    A binary float has lost its nanoseconds at epoch size; pass text or `Decimal` where they matter.
    Digits below a nanosecond are rounded half to even.
    """
    return int((Decimal(text) * NS_PER_US).to_integral_value())


def ns_from_seconds(seconds: float) -> int:
    """Float seconds -> nearest integer nanosecond."""
    return round(seconds * NS_PER_S)


def ms(ns: float) -> float:
    """Nanoseconds -> milliseconds."""
    return ns / NS_PER_MS


def seconds(ns: float) -> float:
    """Nanoseconds -> seconds."""
    return ns / NS_PER_S


def gib(n_bytes: float) -> float:
    """Bytes -> GiB."""
    return n_bytes / GIB


def bytes_from_gib(n_gib: float) -> int:
    """GiB -> nearest whole byte."""
    return round(n_gib * GIB)


def show_time(ns: float) -> str:
    """A duration with three significant digits and the unit that suits it: `12.3 ms`."""
    return _show(ns, _TIME_STEPS, "ns")


def show_bytes(n_bytes: float) -> str:
    """A size with three significant digits and a binary unit: `15.0 GiB`."""
    return _show(n_bytes, _BYTE_STEPS, "B")


def show_share(share: float) -> str:
    """A share between 0 and 1 as percent: `12.3 %`; what is small but not nothing is `< 0.1 %`."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %"


def show_count(n: float) -> str:
    """A count with thousands separators: `1,962,048`."""
    return f"{n:,.0f}"


def _show(value: float, steps: tuple[tuple[int, str], ...], smallest: str) -> str:
    for size, unit in steps:
        if abs(value) >= size:
            scaled = value / size
            digits = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:,.{digits}f} {unit}"
    return f"{value:,.0f} {smallest}"
