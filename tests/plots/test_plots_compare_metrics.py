"""Figures of compared metrics: dots and lines where the ratios are, a band of what does not matter, the verdict."""

from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes

from perflab import schema
from perflab.plots import style
from perflab.plots.compare_metrics import VERDICT_COLOURS, metric_ratios_title, plot_metric_ratios


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    plain: dict[str, Any] = {
        "metric": "tpot_p50_ms", "point": "512/128 c1", "unit": "ms", "better": "lower", "primary": False,
        "baseline": 10.0, "candidate": 11.0, "ratio": 1.1, "ci_low": 1.08, "ci_high": 1.12, "n_baseline": 5,
        "n_candidate": 5, "method": "welch", "p": 0.01, "p_adjusted": None, "threshold": 0.02, "verdict": "worse",
        "reason": None, "runs_needed": None,
    }  # fmt: skip
    return schema.conform(pd.DataFrame([plain | row for row in rows]), "comparison")


RATE = {
    "metric": "output_tokens_per_s", "unit": "tokens/s", "better": "higher", "baseline": 100.0, "candidate": 125.0,
    "ratio": 1.25, "ci_low": 1.2, "ci_high": 1.3, "verdict": "better",
}  # fmt: skip
ALONE = {"ci_low": None, "ci_high": None, "n_baseline": 1, "n_candidate": 1, "verdict": "undecided"}


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_dots_lines_and_bands_lie_where_the_numbers_are() -> None:
    ax = plot_metric_ratios(table({"primary": True}, RATE))
    dots = {round(float(line.get_xdata()[0]), 6) for line in ax.lines if line.get_marker() == "o"}
    spans = {tuple(map(float, line.get_xdata())) for line in ax.lines if line.get_marker() != "o"}
    assert dots == {1.1, 1.25} and {(1.08, 1.12), (1.2, 1.3)} <= spans
    assert {(round(p.get_x(), 4), round(p.get_x() + p.get_width(), 4)) for p in ax.patches} == {(0.9804, 1.02)}
    assert {"worse", "better", "+10.0 %", "+25.0 %", "10.00 → 11.00 ms", "100.0 → 125.0 tokens/s"} <= set(words(ax))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["TPOT p50", "Output throughput ↑"]


def test_without_an_interval_there_is_a_hollow_dot_and_no_line() -> None:
    ax = plot_metric_ratios(table({**ALONE, "primary": True}))
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() for dot in dots] == [style.PAPER]
    assert len(ax.lines) == 2  # the dot, and the line of no change
    assert "no verdict" in ax.figure.get_label()


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ({"primary": True}, "TPOT p50 at 512/128 c1 is worse: 10.0 % higher, 10.00 to 11.00 ms"),
        ({"primary": True, "verdict": "same"}, "the same within 2"),
        ({"primary": True, "verdict": "withheld"}, "the verdict is withheld"),
        ({}, "1 metrics: 1 worse"),
    ],
)
def test_titles(row: dict[str, Any], title: str) -> None:
    assert title in metric_ratios_title(table(row))


def test_points_get_titles_where_there_are_several() -> None:
    ax = plot_metric_ratios(table({"primary": True}, {"point": "512/128 c32", "ratio": 0.9, "verdict": "undecided"}))
    assert {"512/128 c1", "512/128 c32"} <= set(words(ax))
    assert ax.figure.get_label() == "TPOT p50 by load: +10.0 % at c1 (worse) and −10.0 % at c32"


def test_nothing_measured_is_said() -> None:
    assert plot_metric_ratios(schema.empty("comparison")).figure.get_label() == "No metric to compare"
    unknown = plot_metric_ratios(table({"ratio": None, "baseline": None, "candidate": None}))
    assert unknown.figure.get_label() == "No metric to compare"


def test_every_verdict_has_its_look() -> None:
    assert set(VERDICT_COLOURS) == {"better", "worse", "same", "undecided", "withheld"}
    assert VERDICT_COLOURS["worse"] == style.ALERT
