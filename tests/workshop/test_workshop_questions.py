"""Judging answers, on a question small enough to see by eye: 3 of 12 hours are work, so a quarter."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflab.workshop import questions
from perflab.workshop.answers import Unusable, readings, word
from perflab.workshop.questions import Choice, Number, Verdict


@pytest.fixture(autouse=True)
def sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences that say their own name and fields, so that a test sees what would be said."""
    monkeypatch.setattr(questions, "say", lambda name, **fields: f"{name} {sorted(fields.items())}")


QUARTER = Number(
    "quarter", "t.q", "share", lambda hours: hours["work"] / hours["day"],
    lambda hours: {"rest": 1 - hours["work"] / hours["day"], "twice": 0.2525, "other": 0.5, "near_other": 0.502},
)  # fmt: skip
STEP = Number("step", "t.s", "time", lambda _: 5.2e6, lambda _: {"total": 52.5e6}, tolerance=0.01)
FACTOR = Number("factor", "t.f", "factor", lambda _: 2.9, lambda _: {"inverse": 1 / 2.9})
CAUSE = Choice("cause", "t.c", "host_bound|(.*_)?host", {"memory": "memory.*", "true": "enforce_eager_true"})
DAY = {"work": 3, "day": 12}


def judged(answer: Any, question: Any = QUARTER) -> Verdict:
    verdict: Verdict = question.judge(answer, DAY, {})
    assert verdict.texts and all(verdict.texts)
    return verdict


@pytest.mark.parametrize(
    "answer",
    [0.25, 25, "25 %", "0.25", "0,25", "25 per cent", 0.2501, 0.247, np.float64(0.25), np.float32(0.25),
     pd.Series([0.25]), pd.DataFrame({"a": [0.25]}), np.array([[25]]), [0.25]],
)  # fmt: skip
def test_right_however_it_is_written(answer: Any) -> None:
    assert judged(answer).state == "pass"


def test_another_unit_passes_and_is_named() -> None:
    assert judged(5.2, STEP).texts == ("t.s.right []",)
    for answer, unit in ((5_200_000, "ns"), (5200, "µs"), (0.0052, "s")):
        verdict = judged(answer, STEP)
        assert verdict.state == "pass"
        assert verdict.texts[0].startswith("workshop.answer.in_unit") and f"'{unit}'" in verdict.texts[0]
    # A unit that was written is meant: no remark, and no other reading.
    assert judged("5200 us", STEP).texts == ("t.s.right []",)
    assert judged("5.2 s", STEP).state == "not_yet"
    assert judged("5.2 %", STEP).texts[0].startswith("workshop.answer.unit")
    assert judged("2.9x", FACTOR).state == judged("290 %", FACTOR).state == judged(290, FACTOR).state == "pass"


def test_a_mistake_is_named_and_rounding_is_none() -> None:
    assert judged(0.75).mistakes == judged(75).mistakes == judged("75 %").mistakes == ("rest",)
    # 0.2525 is within what rounding may do, but hit exactly it is the mistake; rounded to 0.253 it passes.
    assert judged(0.2525).mistakes == ("twice",)
    assert judged(0.253).state == "pass"
    assert judged(52.5, STEP).mistakes == judged(52_500_000, STEP).mistakes == ("total",)


def test_what_could_be_two_mistakes_lists_both_and_an_exact_one_alone() -> None:
    assert judged(0.5).mistakes == ("other",)
    both = judged(0.501)
    assert set(both.mistakes) == {"other", "near_other"}
    assert both.texts[0].startswith("workshop.answer.one_of") and both.texts[1].count("\n- ") == 1


@pytest.mark.parametrize(
    ("answer", "says", "question"),
    [
        (-0.2, "impossible", QUARTER), (170, "impossible", QUARTER), (0.31, "too_large", QUARTER),
        (11, "too_small", QUARTER), (31, "too_large", QUARTER), (0.0025 * 1.001, "power", QUARTER),
        (29, "power", FACTOR), (4.0, "too_small", STEP), ("many", "text", QUARTER), (True, "no_number", QUARTER),
        ([1, 2], "several", QUARTER), (pd.Series([1.0, 2.0]), "several", QUARTER), ({}, "no_number", QUARTER),
            ({"a": 1}, "no_number", QUARTER),
        (pd.Series([], dtype=float), "no_number", QUARTER), (math.nan, "not_finite", QUARTER),
        (pd.NA, "no_number", QUARTER), (len, "no_number", QUARTER), (2 + 1j, "no_number", QUARTER),
        (3, "no_word", CAUSE), ("weather", "other_word", CAUSE), (pd.Series(["x"]), "no_word", CAUSE),
    ],
)  # fmt: skip
def test_anything_else_gets_an_answer_and_never_an_error(answer: Any, says: str, question: Any) -> None:
    verdict = judged(answer, question)
    assert verdict.state == "not_yet" and verdict.texts[0].startswith(f"workshop.answer.{says} ")


@pytest.mark.parametrize("answer", [..., None, "", "...", " "])
@pytest.mark.parametrize("question", [QUARTER, CAUSE])
def test_no_answer_yet_is_not_a_wrong_one(answer: Any, question: Any) -> None:
    assert judged(answer, question).state == "open"


def test_words_pass_however_they_are_spelt() -> None:
    for answer in ("host_bound", "Host bound", "--host-bound", "the host"):
        assert judged(answer, CAUSE).state == "pass", answer
    assert judged("Memory bandwidth", CAUSE).mistakes == ("memory",)
    assert judged("enforce_eager=True", CAUSE).mistakes == ("true",)
    assert word("--no-enforce_eager = False ") == "no_enforce_eager_false"


def test_a_guess_is_set_beside_the_answer() -> None:
    assert "guess.high" in QUARTER.difference(90, DAY) and "'90.0 %'" in QUARTER.difference(90, DAY)
    assert "guess.low" in QUARTER.difference(0.1, DAY) and "guess.near" in QUARTER.difference(0.26, DAY)
    assert QUARTER.difference(..., DAY) == QUARTER.difference("no idea", DAY) == CAUSE.difference("x", DAY) == ""


def test_readings_say_what_was_asked_first() -> None:
    ways = readings(5, "time")
    assert not isinstance(ways, Unusable)
    assert [(way.unit, way.asked) for way in ways] == [("ms", True), ("ns", False), ("µs", False), ("s", False)]
    assert [way.value for way in ways] == [5e6, 5.0, 5e3, 5e9]
