import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from perflab.plots import style
from perflab.plots.distributions import plot_ecdf, plot_latency_distributions
from perflab.plots.latency import plot_points, plot_throughput_latency
from perflab.plots.scales import metric_words


def values(**series: list[float | None]) -> pd.DataFrame:
    return pd.concat(
        [pd.DataFrame({"series": name, "value_ms": pd.array(data, "Float64")}) for name, data in series.items()]
    )


def heading(ax: Axes) -> str:
    return style.title_of(style.figure_of(ax))


def said(ax: Axes) -> list[str]:
    return [" ".join(t.get_text().split()) for t in [*ax.texts, *style.figure_of(ax).texts]]


def test_a_curve_climbs_to_the_share_of_values() -> None:
    ax = plot_ecdf(values(c8=[10, 20, 30, 40]))
    x, y = ax.lines[0].get_data()
    assert list(zip(x, y, strict=True)) == [(10, 0), (10, 0.25), (20, 0.5), (30, 0.75), (40, 1.0)]
    assert ax.get_xlabel() == "TTFT (ms)" and ax.get_ylabel() == "requests up to it (%)"
    assert heading(ax) == "Half of all TTFT values are within 25.0 ms"


def test_p99_of_few_values_is_hollow_and_in_brackets() -> None:
    few, many = plot_ecdf(values(c8=[1.0] * 20 + [2.0])), plot_ecdf(values(c8=[1.0] * 120 + [2.0] * 5))
    assert any(text == "(1.80)" for text in said(few)) and any("too few for a p99" in text for text in said(few))
    assert any(text == "2.00" for text in said(many)) and not any("hollow" in text for text in said(many))
    dots = [line for line in few.lines if line.get_marker() == "o"]
    assert [d.get_markerfacecolor() == style.PAPER for d in dots] == [False, True]


def test_na_is_left_out_and_not_taken_for_zero() -> None:
    ax = plot_ecdf(values(c8=[None, 10, 30, None]))
    assert ax.lines[0].get_xdata()[0] == 10
    assert any("requests: 2 at c8" in text for text in said(ax))


def test_a_limit_is_drawn_and_the_heading_says_who_meets_it() -> None:
    ax = plot_ecdf(values(c1=[10, 20], c32=[150, 90, 300, 400]), slo_ms=100)
    assert heading(ax) == "TTFT within 100 ms: 100 % at c1 and 25 % at c32"
    assert any("SLO 100 ms" in text for text in said(ax))
    assert any(line.get_xdata()[0] == 100 and line.get_color() == style.ALERT for line in ax.lines)


def test_values_far_apart_get_a_logarithmic_axis_with_plain_numbers() -> None:
    ax = plot_ecdf(values(c1=[1, 2, 3], c256=[900, 1000]))
    assert ax.get_xscale() == "log"
    style.figure_of(ax).canvas.draw()
    assert "1,000" in [t.get_text() for t in ax.get_xticklabels()]
    assert plot_ecdf(values(c1=[10, 20])).get_xscale() == "linear"


def test_without_single_requests_that_is_said() -> None:
    assert heading(plot_ecdf(values(c1=[None]))) == "TTFT was not measured for single requests"
    figure = plot_latency_distributions(pd.DataFrame({"metric": [], "series": [], "value_ms": []}))
    assert style.title_of(figure) == "No latency was measured for single requests"


def test_distributions_show_the_metrics_there_are() -> None:
    frame = pd.concat([values(c8=[1, 2, 3]).assign(metric=m) for m in ("ttft", "itl", "e2el")])
    figure = plot_latency_distributions(frame, slos_ms={"ttft": 2, "tpot": None}, colours={"c8": "#123456"})
    drawn = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_xlabel() for ax in drawn] == ["TTFT (ms)", "ITL (ms)", "E2EL (ms)"]
    assert drawn[1].get_ylabel() == "gaps up to it (%)"
    assert {line.get_color() for line in drawn[1].lines} == {"#123456"}
    assert [any("SLO" in t.get_text() for t in ax.texts) for ax in drawn] == [True, False, False]


def test_a_hundred_thousand_gaps_make_a_small_curve() -> None:
    ax = plot_ecdf(values(c8=list(np.linspace(1, 5, 100_000))), metric="itl")
    x, y = ax.lines[0].get_data()
    assert len(x) <= 601 and (x[-1], y[-1]) == (5.0, 1.0)


POINTS = pd.DataFrame({
    "run": ["a"] * 5 + ["b"] * 2,
    "load": ["c1", "c1", "c32", "c32", "r8", "c1", "c32"],
    "concurrency": pd.array([1, 1, 32, 32, None, 1, 32], "Int64"),
    "rate": pd.array([None] * 4 + [8.0] + [None] * 2, "Float64"),
    "ttft_p50_ms": pd.array([20, 24, 300, 320, 50, None, 200], "Float64"),
    "tpot_p50_ms": [5.0, 5.2, 6.0, 6.4, 5.5, 4.0, 5.0],
    "output_tokens_per_s": [200.0, 204.0, 3600.0, 3700.0, 960.0, 250.0, 4500.0],
})  # fmt: skip


def test_points_show_every_repeat_and_their_median() -> None:
    ax = plot_points(POINTS)
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["c1   n = 2", "c32   n = 2", "r8   n = 1", "c1   n = 0 of 1", "c32   n = 1"]
    dots = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    assert [list(d) for d in dots] == [[20, 24], [300, 320], [50], [200]]
    assert "not measured" in said(ax) and "22.0 ms" in said(ax)
    assert heading(ax) == "TTFT p50 from 22.0 ms at a c1 to 310 ms at a c32"


def test_throughput_against_latency_joins_loads_but_not_paced_ones() -> None:
    ax = plot_throughput_latency(POINTS, slo_ms=10)
    joined = [list(line.get_xdata()) for line in ax.lines if line.get_alpha() == 0.8]
    assert joined == [[202.0, 3650.0], [250.0, 4500.0]]
    assert [line.get_marker() for line in ax.lines if line.get_marker() in "oD"] == ["o", "D", "o", "o", "o"]
    assert {"a", "b"} <= set(said(ax)) and "c32" in said(ax) and "r8" in said(ax)
    assert heading(ax) == "Highest throughput: 4,500 tokens/s (b at c32), with TPOT p50 5.00 ms"
    assert any("Load c32: at most 32 requests at once; load r8: 8 requests/s" in text for text in said(ax))
    assert ax.get_xlabel() == "output throughput (tokens/s)" and ax.get_ylabel() == "TPOT p50 (ms)"


def test_no_line_runs_through_the_word_for_a_load() -> None:
    rows = [("a", "c1", 200, 25), ("a", "c32", 3650, 400), ("a", "c128", 6130, 1600),
            ("b", "c1", 275, 25), ("b", "c32", 5100, 330), ("b", "c256", 8140, 2150)]  # fmt: skip
    named = pd.DataFrame(rows, columns=["run", "load", "output_tokens_per_s", "ttft_p99_ms"])
    ax = plot_throughput_latency(named.assign(concurrency=32.0, rate=np.nan), latency="ttft_p99_ms")
    ax.figure.draw_without_rendering()
    words = [text.get_window_extent() for text in ax.texts if text.get_text() in set(named["load"])]
    lines = [line.get_transform().transform_path(line.get_path()) for line in ax.lines]
    assert len(words) >= 4
    assert not any(line.intersects_bbox(word, filled=False) for line in lines for word in words)


def test_a_point_without_latency_is_left_out() -> None:
    ax = plot_throughput_latency(POINTS[POINTS["run"] == "b"], latency="ttft_p50_ms")
    assert [len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"] == [1]
    empty = plot_throughput_latency(POINTS.assign(ttft_p50_ms=pd.NA), latency="ttft_p50_ms")
    assert heading(empty) == "No point has both output throughput and TTFT p50"


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("ttft_p50_ms", ("TTFT p50", "ms")),
        ("itl_p99_ms", ("ITL p99", "ms")),
        ("output_tokens_per_s", ("output throughput", "tokens/s")),
    ],
)
def test_columns_in_words(column: str, words: tuple[str, str]) -> None:
    assert metric_words(column) == words
