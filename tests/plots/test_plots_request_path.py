"""A request's life and the slow tail as figures."""

import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from perflab.analysis.requests.path import CAUSES
from perflab.plots import style
from perflab.plots.request_path import CAUSE_COLOURS, Life, path_title, plot_request_path, plot_slow_tail, tail_title

MS = 1_000_000


def tails(*, named: str | None = "queued", metric: str = "ttft") -> pd.DataFrame:
    rows = [
        (metric, "slow", "arriving", 10.0 * MS, 3, named, 99.0),
        (metric, "slow", "queued", 80.0 * MS, 3, named, 99.0),
        (metric, "slow", "prefill", 10.0 * MS, 3, named, 99.0),
        (metric, "typical", "arriving", 10.0 * MS, 40, named, 99.0),
        (metric, "typical", "queued", 20.0 * MS, 40, named, 99.0),
        (metric, "typical", "prefill", 10.0 * MS, 40, named, 99.0),
    ]
    return pd.DataFrame(rows, columns=["metric", "who", "cause", "ns", "count", "named", "percentile"])


def life(kv: float = 0.1) -> Life:
    parts = [("arriving", 0, 5), ("queued", 5, 60), ("prefill", 60, 80), ("decode", 80, 120), ("delivery", 120, 121)]
    strip = pd.DataFrame([(c, b * MS, e * MS) for c, b, e in parts], columns=["cause", "start_ns", "end_ns"])
    steps = pd.DataFrame({
        "start_ns": pd.array([None, 5 * MS, 60 * MS, 80 * MS, 100 * MS], "Int64"),
        "end_ns": [5 * MS, 60 * MS, 80 * MS, 100 * MS, 120 * MS],
        "batch": [1, 2, 2, 3, 3], "prompt_tokens": [0, 300, 50, 0, 0], "waiting": [0, 1, 0, 0, 0],
        "has_prefill": [False, True, True, False, False], "kv_usage": [kv] * 5,
    })  # fmt: skip
    return Life(strip, steps, (81 * MS, 101 * MS, 121 * MS), "request 7")


def words(figure: Figure) -> str:
    texts = [text.get_text() for ax in figure.axes for text in [*ax.texts, *ax.get_yticklabels(), ax.yaxis.label]]
    legend = [text.get_text() for one in figure.legends for text in one.get_texts()]
    return " | ".join([*texts, *legend, *(text.get_text() for text in figure.texts)])


def test_the_heading_says_the_cause_with_its_share_of_the_difference() -> None:
    assert tail_title(tails()) == (
        "TTFT of the slowest is 100 ms against 40.0 ms; 100 % of the difference is waiting in the engine"
    )
    assert tail_title(tails(named=None)) == "The slowest requests have no single cause"


def test_bars_are_as_long_as_their_parts_and_the_cause_stands_out() -> None:
    figure = plot_slow_tail(tails(), of="a run")
    (ax,) = figure.axes
    bars = [patch for patch in ax.patches if patch.get_width() > 0]
    assert [round(bar.get_width(), 6) for bar in bars] == [10, 80, 10, 10, 20, 10]
    strong = {to_hex(bar.get_facecolor()) for bar in bars if bar.get_alpha() == 1.0}
    assert strong == {CAUSE_COLOURS["queued"]}
    assert "3 slowest" in words(figure) and "40 typical" in words(figure)
    assert "a run" in words(figure)


def test_metrics_have_panels_of_their_own_and_unnamed_parts_a_key() -> None:
    figure = plot_slow_tail(pd.concat([tails(), tails(metric="itl", named=None)]))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["TTFT (ms)", "Gap between chunks (ms)"]
    text = words(figure)
    assert all(word in text for word in ("way into the engine", "waiting in the engine", "own prompt"))


def test_nothing_to_show_says_so() -> None:
    assert "No slow tail" in style.title_of(plot_slow_tail(tails().iloc[:0]))


def test_a_life_is_drawn_from_sending_to_finish_in_the_colours_of_its_causes() -> None:
    figure = plot_request_path(life(), of="a run, c8")
    strip = figure.axes[0]
    drawn = {}
    for boxes in strip.collections:
        if isinstance(boxes, PolyCollection):
            xs = [x for path in boxes.get_paths() for x in path.vertices[:, 0]]
            drawn[to_hex(boxes.get_facecolor()[0])] = (min(xs), max(xs))
    assert drawn[CAUSE_COLOURS["queued"]] == (5, 60)
    assert drawn[CAUSE_COLOURS["delivery"]] == (120, 121)
    assert len(drawn) == 5
    assert (
        path_title(life())
        == "Request 7: first token after 81.0 ms, 55.0 ms of it waiting in the engine; done after 121 ms"
    )
    text = words(figure)
    assert "first token" in text and "3 chunks" in text and "KV cache (%)" in text


@pytest.mark.parametrize("column", ["batch", "prompt_tokens", "waiting"])
def test_steps_are_boxes_as_high_as_their_count(column: str) -> None:
    figure = plot_request_path(life())
    ax = figure.axes[1 + ["batch", "prompt_tokens", "waiting"].index(column)]
    tops = sorted(
        float(path.vertices[:, 1].max())
        for boxes in ax.collections if isinstance(boxes, PolyCollection) for path in boxes.get_paths()
    )  # fmt: skip
    wanted = [value for value in life().steps[column].iloc[1:].tolist() if value]
    assert tops == sorted(wanted), "the step whose start is not known is left out, and so are empty ones"


def test_a_kv_cache_that_was_not_recorded_is_said() -> None:
    assert "not recorded" in words(plot_request_path(life(kv=float("nan"))))


def test_each_cause_has_a_colour_of_its_own() -> None:
    assert set(CAUSE_COLOURS) == set(CAUSES)
    assert len(set(CAUSE_COLOURS.values())) == len(CAUSES)
