"""Microseconds as text -> nanoseconds."""

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.read.exact_time import exact_ns


def ns(*texts):
    values, good = exact_ns([text.encode() for text in texts])
    return [int(v) if ok else None for v, ok in zip(values, good, strict=True)]


@pytest.mark.parametrize("text, expected", [
    ("100.7", 100_700), ("0.2", 200), ("100", 100_000), ("0", 0), ("0.000", 0), ("0.001", 1), ("-5", -5_000),
    ("-0.5", -500), ("5194301110358.260", 5_194_301_110_358_260), ("1623212388426902", 1_623_212_388_426_902_000),
    ("1712195495406752.812", 1_712_195_495_406_752_812), ("1712195495406752.8125", 1_712_195_495_406_752_812),
    ("1712195495406752.8135", 1_712_195_495_406_752_814), ("1.7e3", 1_700_000), ("1E-3", 1), ("007.5", 7_500),
    ('"12.5"', 12_500), ("", None), ("null", None), ('"x"', None), ("{}", None), ("[1,2]", None), ("1e999999999", None),
    ("12345678901234567890", None), ("9999999999999999", None), ("9223372036854775.807", (1 << 63) - 1),
    ("8999999999999999.999", 8_999_999_999_999_999_999), ("NaN", None), ("Infinity", None), ("true", None),
])  # fmt: skip
def test_one(text, expected):
    assert ns(text) == [expected]
    # Among others the same text goes another way through the code.
    assert ns("1.25", text, "3", text) == [1_250, expected, 3_000, expected]


def test_none():
    assert ns() == []


numbers = st.decimals(min_value=0, max_value=Decimal(10) ** 15, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(numbers, st.integers(0, 6)), min_size=1, max_size=30))
def test_equals_decimal_arithmetic(pairs):
    texts = [f"{number:.{places}f}" for number, places in pairs]
    expected = [int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN)) for text in texts]
    assert ns(*texts) == expected


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=50))
def test_every_nanosecond_comes_back(values):
    assert ns(*(f"{v // 1000}.{v % 1000:03d}" for v in values)) == values
