import pandas as pd
import pytest
from matplotlib.collections import PolyCollection

from perflab import schema
from perflab.plots import style
from perflab.plots.timeline import Span, plot_timeline, span_of_step

KERNELS = schema.conform(
    pd.DataFrame(
        [
            (0, 0, 7, 1, -1, "a", "kernel", None, "gemm", 1000, 400),
            (0, 0, 7, 2, -1, "b", "kernel", None, "attention", 1400, 100),
            (0, 0, 9, 3, -1, "c", "memcpy", 8, "memory", 1450, 150),
            (0, 0, 7, 4, -1, "late", "kernel", None, "gemm", 5000, 100),
            (1, 1, 7, 5, -1, "other rank", "kernel", None, "gemm", 1000, 1000),
        ],
        columns=schema.TABLES["kernels"].names,
    ),
    "kernels",
)
STEPS = schema.conform(
    pd.DataFrame(
        [(0, 0, "mixed", 500, 500, 400, 1, 9, 2, 2, None), (0, 1, "decode", 1000, 1000, 900, 0, 0, 8, 8, None)],
        columns=schema.TABLES["steps"].names,
    ),
    "steps",
)
LAUNCHES = schema.conform(
    pd.DataFrame(
        [(0, 1, 1, 1, "cudaLaunchKernel", 950, 100), (0, 1, 1, -1, "cudaStreamSynchronize", 1100, 700)],
        columns=schema.TABLES["launches"].names,
    ),
    "launches",
)


def boxes(ax: object) -> list[list[tuple[float, float]]]:
    """Left and right edges of what is drawn, a list a collection."""
    return [
        [(float(p.vertices[:, 0].min()), float(p.vertices[:, 0].max())) for p in c.get_paths()]
        for c in ax.collections  # type: ignore[attr-defined]
        if isinstance(c, PolyCollection)
    ]


def test_a_step_says_what_it_held() -> None:
    assert span_of_step(STEPS, 1) == Span(1000, 1000, "step 1 (decode, 8 requests)")
    assert span_of_step(STEPS, 0).what == "step 0 (mixed, 1 in prefill, 2 in decode)"
    with pytest.raises(KeyError, match="rank 3 has no step 1"):
        span_of_step(STEPS, 1, rank=3)


def test_a_part_of_a_step() -> None:
    part = span_of_step(STEPS, 1).part(0.25, 0.5)
    assert (part.start_ns, part.dur_ns) == (1250, 250)
    assert "from 25 to 50 % of it" in part.what


def test_lanes_are_streams_and_only_this_rank_and_span_is_drawn() -> None:
    ax = plot_timeline(KERNELS, span_of_step(STEPS, 1))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["stream 7", "stream 9"]
    # in microseconds: the unit that suits a step of 1 µs
    assert boxes(ax) == [[(0.0, 0.4), (0.4, 0.5)], [(0.45, 0.6)]]
    assert ax.get_xlabel() == "time since the start of what is shown (µs)"


def test_busy_time_counts_overlap_once() -> None:
    ax = plot_timeline(KERNELS, span_of_step(STEPS, 1))
    title = style.title_of(style.figure_of(ax))
    assert title == "Step 1 (decode, 8 requests): the GPU is busy 60.0 % of 1.00 µs"


def test_host_calls_have_a_lane_and_waits_are_marked() -> None:
    ax = plot_timeline(KERNELS, span_of_step(STEPS, 1), launches=LAUNCHES, of="run a")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["host calls", "stream 7", "stream 9"]
    calls, waits = boxes(ax)[:2]
    assert calls == [(0.0, 0.05)]
    assert waits == [(0.1, 0.8)]
    assert [c.get_hatch() for c in ax.collections[:2]] == ["", "////"]
    assert any(t.get_text().startswith("run a: ") for t in style.figure_of(ax).texts)


def test_what_is_too_short_to_see_is_a_hairline() -> None:
    short = KERNELS.assign(dur_ns=0)
    ((left, right),) = boxes(plot_timeline(short, span_of_step(STEPS, 1)))[1]
    assert right - left > 0


def test_cpu_operators_lie_on_threads() -> None:
    ax = plot_timeline(KERNELS, span_of_step(STEPS, 1), device="CPU")
    said = style.title_of(style.figure_of(ax)) + " ".join(t.get_text() for t in ax.get_yticklabels())
    assert "operators run for 60.0 %" in said and "thread 7" in said and "GPU" not in said


def test_nothing_in_the_span_is_said() -> None:
    ax = plot_timeline(KERNELS, Span(9000, 100, "step 9"))
    assert style.title_of(style.figure_of(ax)) == "Nothing ran on the GPU in step 9"
