"""Figures of loads: what they state, and what they draw."""

import numpy as np
import pandas as pd
import pytest
from load_tables import SERVER
from matplotlib.figure import Figure

from perflab.analysis.load.curve import cost_table, load_curves
from perflab.analysis.load.phases import LoadPhases, load_phases
from perflab.analysis.load.ttft_split import ttft_split
from perflab.plots import style
from perflab.plots.load import plot_cost, plot_goodput, plot_load
from perflab.plots.load_phases import plot_load_phases, plot_ttft_split
from perflab.schema import conform, empty

[CURVE] = load_curves(SERVER, gpus={"run": 1})
TABLE = CURVE.table.assign(run="run")
KNEE = pd.DataFrame([("run", 32.0, 8.0, 128.0)], columns=["run", "x", "low", "high"])


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_the_knee_is_ringed_its_stretch_shaded_and_told() -> None:
    figure = plot_load(TABLE, knees=KNEE, slo_ms=2800.0, limits=pd.DataFrame({"run": ["run"], "x": [80.0]}))
    assert style.title_of(figure) == "The knee lies between 8 and 128; best measured load 32"
    top, low = figure.axes
    for ax, column in ((top, "output_tokens_per_s"), (low, "e2el_mean_ms")):
        curve, ring = ax.lines[-2 if ax is top else -3], ax.lines[-1 if ax is top else -2]
        line = ax.lines[-3 if ax is top else -4]
        assert np.interp(80, line.get_xdata(), line.get_ydata()) == pytest.approx(
            (TABLE[column][2] + TABLE[column][3]) / 2
        )
        assert list(curve.get_xdata()) == [1, 8, 32, 128, 512]
        assert list(curve.get_ydata()) == TABLE[column].tolist()
        assert list(ring.get_xdata()) == [32.0] and ring.get_markersize() > 10
    mark = low.lines[-1]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (80.0, 2800.0), "on the curve, where the objective gives way"
    assert {"SLO 2,800 ms", "80", "c1", "c512"} <= set(texts(figure))
    spans = [patch.get_extents() for patch in top.patches]
    assert len(spans) == 1


def test_several_runs_are_named_and_not_shaded() -> None:
    both = pd.concat([TABLE, TABLE.assign(run="other", e2el_mean_ms=TABLE["e2el_mean_ms"] / 2)])
    knees = pd.concat([KNEE, KNEE.assign(run="other")])
    figure = plot_load(both, knees=knees)
    assert style.title_of(figure) == "Best measured load of all 2 runs: 32; their knees lie around it"
    assert texts(figure).count("run") == texts(figure).count("other") == 2
    assert not figure.axes[0].patches
    differ = plot_load(both, knees=knees.assign(x=[32.0, 8.0]))
    assert style.title_of(differ) == "Best measured loads: 8 of other; 32 of run"


def test_no_knee_is_no_knee() -> None:
    figure = plot_load(TABLE)
    assert style.title_of(figure) == "No knee in these loads; highest output throughput 330 tokens/s at c512"
    nothing = plot_load(TABLE.assign(e2el_mean_ms=np.nan))
    assert "Nothing to draw." in texts(nothing)


def test_goodput_beside_what_it_could_be() -> None:
    table = TABLE.assign(goodput_per_s=[1.0, 7.0, 18.0, 0.0, np.nan])
    ax = plot_goodput(table, slos_ms={"ttft_ms": 200.0})
    assert style.title_of(style.figure_of(ax)) == "Highest goodput: 18.0 of 20.0 requests/s (load c32)"
    lines = [list(line.get_ydata()) for line in ax.lines]
    assert lines == [[1, 7, 20, 32, 33], [33], [1, 7, 18, 0]], "all; the one that is not known; the good ones"
    none = plot_goodput(TABLE, slos_ms={"ttft_ms": 200.0})
    assert style.title_of(style.figure_of(none)) == "Goodput is not known of any load"
    zero = plot_goodput(TABLE.assign(goodput_per_s=0.0), slos_ms={"ttft_ms": 1.0})
    assert style.title_of(style.figure_of(zero)).startswith("0 requests a second meet every objective")


def test_cost_falls_with_load() -> None:
    table = cost_table(CURVE, 3.6).assign(run="run")
    ax = plot_cost(table, price=3.6)
    # 10 tokens a second are 36,000 an hour: 100 a million; 330 a second 3.03.
    assert style.title_of(style.figure_of(ax)) == "A million output tokens cost from 100 at c1 down to 3.03 at c512"
    assert [text.get_text() for text in ax.texts] == ["100", "14.3", "5.00", "3.12", "3.03"]
    assert "not known" in style.title_of(style.figure_of(plot_cost(table.assign(output=np.nan))))


def point(slots: int = 4, rounds: int = 5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Users who begin a quarter of a second apart; a request takes 1 s and hands over 10 tokens in its second half."""
    rows = [(k / 4 + r, k / 4 + r + 0.5, k / 4 + r + 1) for k in range(slots) for r in range(rounds)]
    times = pd.DataFrame((np.array(rows) * 1e9).astype("int64"), columns=["arrival_ns", "first_token_ns", "finish_ns"])
    requests = conform(
        times.astype("Int64").assign(request_id=range(len(rows)), prompt_tokens=1, output_tokens=10, status="ok"),
        "requests",
    )
    chunks = pd.DataFrame(
        [(i, n, round((row[1] + n * 0.5 / 9) * 1e9), 1) for i, row in enumerate(rows) for n in range(10)],
        columns=["request_id", "chunk_index", "arrival_ns", "token_count"],
    )
    return requests, conform(chunks, "chunks")


def test_phases_are_shaded_and_named() -> None:
    requests, chunks = point()
    phases = load_phases(requests, chunks, concurrency=4)
    figure = plot_load_phases(requests, chunks, phases, of="run, c4")
    assert style.title_of(figure).startswith("Steady from 1.8 to 5.0 of 5.8 s: ")
    assert {"warm-up", "steady", "drain"} <= set(texts(figure))
    low = figure.axes[1]
    mean = low.lines[-1]
    assert list(mean.get_xdata()) == [phases.steady_from_s, phases.steady_to_s]
    assert mean.get_ydata()[0] == pytest.approx(40, rel=0.05), "four users, ten tokens a second each"
    assert len(plot_load_phases(requests, None, phases).axes) == 1, "no chunks, no tokens over time"
    assert "not known" in style.title_of(plot_load_phases(empty("requests"), None, LoadPhases("unknown")))


@pytest.mark.parametrize(
    ("phases", "title"),
    [
        (LoadPhases("too_short", 4, 1.0, 2.0, 3.0, 0.5), "No steady state in 3.0 s: the load turns over 0.5 times"),
        (LoadPhases("growing", 4, 1.0, 2.0, 3.0, 5.0, growth=2.5), "Requests in flight grow 2.5 times"),
        (LoadPhases("waves", 4, 1.0, 2.0, 3.0, 5.0, lockstep=0.9), "4 requests run in waves from 1.0 to 2.0 s"),
    ],
)
def test_what_is_not_steady_is_said(phases: LoadPhases, title: str) -> None:
    assert style.title_of(plot_load_phases(*point(), phases)).startswith(title)


def test_the_largest_part_of_the_first_token_stands_out() -> None:
    def split(queue: float, prefill: float) -> object:
        means = {"request_queue_time_seconds": queue, "request_prefill_time_seconds": prefill}
        return ttft_split(
            means | {"time_to_first_token_seconds": queue + prefill + 0.05}, client_ms=1000 * (queue + prefill) + 60
        )

    ax = plot_ttft_split([("run", "c1", split(0.0, 0.1)), ("run", "c64", split(0.6, 0.29))])  # type: ignore[list-item]
    assert style.title_of(style.figure_of(ax)) == "Of 950 ms to the first token at c64, 63.2 % is queue"
    assert [text.get_text() for text in ax.texts if text.get_text().startswith("queue")] == ["queue  600 ms"]
    widths = [patch.get_width() for patch in ax.patches]
    assert widths == pytest.approx([100, 50, 10, 600, 290, 50, 10])
    assert "cannot be split" in style.title_of(style.figure_of(plot_ttft_split([])))
