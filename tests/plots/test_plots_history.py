import pandas as pd
import pytest

from perflab.analysis.history import levels
from perflab.plots.history import history_title, metric_words, plot_history
from perflab.plots.style import title_of

VALUES = [100.0, 101, 99, 100.5, 99.5, 100.2, 80, 81, 79, 80.5, 79.5, 80.2]


def rows(values: list[float], metric: str = "output_tokens_per_s") -> pd.DataFrame:
    return pd.DataFrame({
        "created": [f"2026-01-{1 + i:02d}T00:00:00.000+00:00" for i in range(len(values))], "value": values,
        "metric": metric, "vllm_version": ["0.25.1" if i < 6 else "0.32.0" for i in range(len(values))],
    })  # fmt: skip


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_title_says_the_last_change_and_each_level_has_a_line() -> None:
    ax = plot_history(rows(VALUES), levels(VALUES), name="closed, c8")
    assert title_of(ax.figure) == "Output tokens fell by 20.0% on 2026-01-07"
    lines = ax.collections
    assert [line.get_segments()[0][:, 1].tolist() for line in lines] == [[100.1, 100.1], [80.1, 80.1]]
    assert "-20.0%" in texts(ax) and [t for t in texts(ax) if "vLLM" in t] == ["vLLM 0.25.1", "vLLM 0.32.0"]
    assert len(ax.lines[0].get_ydata()) == 12


def test_too_few_runs_are_said_to_be_too_few() -> None:
    assert "too few runs" in history_title(rows(VALUES[:5]), levels(VALUES[:5]))
    assert "no change over 8 runs" in history_title(
        rows([*VALUES[:6], 100.1, 99.9]), levels([*VALUES[:6], 100.1, 99.9])
    )


def test_no_runs_and_odd_values_are_drawn() -> None:
    assert title_of(plot_history(rows([]), levels([])).figure) == "No runs"
    plot_history(rows([0.0] * 9), levels([0.0] * 9))
    plot_history(rows([5.0]), levels([5.0]))


@pytest.mark.parametrize(
    ("metric", "words"), [("ttft_p99_ms", ("TTFT p99", "ms")), ("goodput_per_s", ("goodput", "1/s"))]
)
def test_metrics_in_words(metric: str, words: tuple[str, str]) -> None:
    assert metric_words(metric) == words
