from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab import units


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("100.7", 100_700),
        ("0.2", 200),
        ("5195260253603.454", 5195260253603454),
        (3, 3000),
        ("1.7e3", 1_700_000),
    ],
)
def test_microseconds_become_exact_nanoseconds(text: str, ns: int) -> None:
    assert units.ns_from_us(text) == ns


@given(st.integers(0, 2**62))
def test_every_nanosecond_survives_the_way_through_decimal_microseconds(ns: int) -> None:
    whole, part = divmod(ns, 1000)
    assert units.ns_from_us(f"{whole}.{part:03d}") == ns
    assert units.ns_from_us(Decimal(ns) / 1000) == ns


@pytest.mark.parametrize(
    ("ns", "shown"),
    [(0, "0 ns"), (999, "999 ns"), (1_500, "1.50 µs"), (12_345_678, "12.3 ms"), (140 * 10**9, "140 s")],
)
def test_times_are_shown_with_three_digits(ns: int, shown: str) -> None:
    assert units.show_time(ns) == shown


def test_sizes_and_shares() -> None:
    assert units.show_bytes(units.bytes_from_gib(14.96)) == "15.0 GiB"
    assert units.show_share(0.354) == "35.4 %"
    assert units.show_share(0.0004) == "< 0.1 %"
    assert units.show_share(0) == "0.0 %"
