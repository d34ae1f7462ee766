import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab import schema
from perflab.plots import style
from perflab.plots.breakdown import (
    parts_of_phases,
    plot_breakdown,
    plot_idle,
    plot_step_time,
    plot_top_kernels,
)


def table(*rows: tuple[int, int, str, str, int], run: str | None = None) -> pd.DataFrame:
    """Rows of rank, step, phase, category, exclusive_ns."""
    frame = pd.DataFrame(rows, columns=["rank", "step", "phase", "category", "exclusive_ns"])
    frame = schema.conform(frame.assign(raw_ns=frame["exclusive_ns"], share=0.0), "breakdown")
    return frame if run is None else frame.assign(run=run)


MS = 1_000_000
ONE = table(
    (0, 0, "prefill", "gemm", 8 * MS), (0, 0, "prefill", "idle", 2 * MS),
    (0, 1, "decode", "gemm", 2 * MS), (0, 1, "decode", "attention", MS), (0, 1, "decode", "idle", MS),
    (0, 2, "decode", "gemm", 4 * MS), (0, 2, "decode", "kv_cache", MS), (0, 2, "decode", "idle", 3 * MS),
)  # fmt: skip


def bars(ax: Axes) -> dict[float, list[float]]:
    """Lengths of the bars by place, from left to right."""
    found: dict[float, list[tuple[float, float]]] = {}
    for patch in ax.patches:
        found.setdefault(round(patch.get_y() + patch.get_height() / 2, 3), []).append(
            (patch.get_x(), patch.get_width())
        )
    return {place: [width for _, width in sorted(parts)] for place, parts in found.items()}


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def heading(ax: Axes) -> str:
    return style.title_of(style.figure_of(ax))


def test_parts_add_up_over_steps() -> None:
    parts = parts_of_phases(ONE).set_index(["phase", "part"])
    assert parts.loc[("decode", "gemm"), "share"] == 0.5
    assert parts.loc[("decode", "idle"), "share"] == pytest.approx(4 / 12)
    assert parts.loc[("decode", "gemm"), "steps"] == 2
    assert parts.loc[("decode", "gemm"), "step_ns"] == 3 * MS
    assert parts.groupby("phase")["share"].sum().to_dict() == {"prefill": 1.0, "decode": pytest.approx(1.0)}


def test_two_ranks_are_taken_together_and_a_step_is_counted_once() -> None:
    both = pd.concat([ONE, ONE.assign(rank=1)])
    one, two = parts_of_phases(ONE), parts_of_phases(both)
    pd.testing.assert_frame_equal(one, two)


def test_groups_hold_their_categories() -> None:
    parts = parts_of_phases(ONE, "group").set_index(["phase", "part"])["share"]
    assert parts["decode", "compute"] == 0.5
    assert parts["decode", "memory"] == pytest.approx(1 / 12)


def test_bars_are_the_shares_and_fill_the_axis() -> None:
    ax = plot_breakdown(ONE)
    lengths = bars(ax)
    assert lengths[0.0] == pytest.approx([0.8, 0.2])
    # attention, GEMM, KV cache, idle, in the order of all figures
    assert lengths[1.0] == pytest.approx([1 / 12, 0.5, 1 / 12, 4 / 12])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["prefill, 1 step", "decode, 2 steps"]
    assert ax.get_xlabel() == "share of GPU time (%)"
    assert heading(ax) == "GEMM takes 80.0 % of prefill time and 50.0 % of decode time"


def test_only_the_largest_part_of_a_bar_is_in_full_colour() -> None:
    ax = plot_breakdown(ONE)
    full = [p for p in ax.patches if p.get_y() > 0.5 and p.get_alpha() == 1.0 and p.get_facecolor()[:3] != _rgb("idle")]
    assert [p.get_width() for p in full] == [0.5]
    assert any("GEMM  50.0 %" in text for text in words(ax))


def _rgb(category: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return to_rgb(style.CATEGORY_COLOURS[category])


def test_labels_lie_inside_their_bars_and_what_has_none_is_in_the_key() -> None:
    sliver = table((0, 0, "decode", "gemm", 985), (0, 0, "decode", "sampling", 15))
    ax = plot_breakdown(sliver)
    figure = style.figure_of(ax)
    figure.canvas.draw()
    inside = [text for text in ax.texts if "GEMM" in text.get_text()]
    bar = max(ax.patches, key=lambda p: p.get_width())
    assert inside[0].get_window_extent().width < bar.get_window_extent().width
    assert not any("sampling" in text for text in words(ax))
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["sampling"]


def test_several_runs_say_what_is_common_to_them() -> None:
    other = table((0, 0, "decode", "gemm", 9), (0, 0, "decode", "idle", 1), run="b")
    ax = plot_breakdown(pd.concat([ONE.assign(run="a"), other]))
    assert heading(ax) == "GEMM is the largest part of decode time in both runs: 50.0 % to 90.0 %"
    assert {"a", "b"} <= set(words(ax))
    idle = table((0, 0, "decode", "gemm", 1), (0, 0, "decode", "idle", 9), run="c")
    ax = plot_breakdown(pd.concat([ONE.assign(run="a"), idle]))
    assert heading(ax) == "Largest part of decode time: GEMM in a; idle GPU time in c"


def test_a_cpu_engine_is_never_called_a_gpu() -> None:
    cpu = table((0, 0, "decode", "gemm", 3), (0, 0, "decode", "idle", 7))
    for drawn in (plot_breakdown(cpu, device="CPU"), plot_step_time(cpu, device="CPU")):
        figure = drawn if isinstance(drawn, Figure) else style.figure_of(drawn)
        said = " ".join([style.title_of(figure), *(t.get_text() for t in figure.findobj(match=_is_text))])
        assert "GPU" not in said and "idle" not in said
        assert "outside operators" in said


def _is_text(artist: object) -> bool:
    from matplotlib.text import Text

    return isinstance(artist, Text)


def test_step_times_have_a_panel_a_phase_with_a_scale_of_its_own() -> None:
    figure = plot_step_time(pd.concat([ONE.assign(run="a"), ONE.assign(run="b", exclusive_ns=ONE["exclusive_ns"] * 2)]))
    assert [ax.get_xlabel() for ax in figure.axes] == ["time of a prefill step (ms)", "time of a decode step (ms)"]
    assert sum(bars(figure.axes[1])[0.0]) == pytest.approx(6.0)
    assert sum(bars(figure.axes[1])[1.0]) == pytest.approx(12.0)
    assert style.title_of(figure) == "A decode step takes 6.00 ms in a and 12.0 ms in b"


def test_without_steps_the_window_is_one_bar() -> None:
    ax = plot_breakdown(table((0, -1, "all", "gemm", 3), (0, -1, "all", "idle", 1)))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["whole window"]
    assert heading(ax) == "GEMM takes 75.0 % of the window"


@pytest.mark.parametrize("plot", [plot_breakdown, plot_step_time])
def test_an_empty_table_is_said_not_drawn(plot: object) -> None:
    drawn = plot(schema.empty("breakdown"))  # type: ignore[operator]
    figure = drawn if isinstance(drawn, Figure) else style.figure_of(drawn)
    figure.canvas.draw()
    assert style.title_of(figure).startswith("No ")
    assert not any(ax.axison for ax in figure.axes)


def test_one_row_is_enough() -> None:
    ax = plot_breakdown(table((0, 0, "decode", "gemm", 5)))
    assert bars(ax) == {0.0: [1.0]}


def test_a_given_axes_is_drawn_into_and_keeps_its_figure() -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2)
    assert plot_breakdown(ONE, ax=axes[1]) is axes[1]
    assert axes[1].get_title("left").startswith("GEMM takes")
    assert list(figure.get_size_inches()) == list(pyplot.rcParams["figure.figsize"])


TOP = pd.DataFrame({
    "name": ["b_kernel", "a_kernel", "c_kernel"], "category": ["attention", "gemm", "gemm"],
    "count": [2, 4, 1], "dur_ns": [3 * MS, 6 * MS, MS], "share": [0.3, 0.6, 0.1],
})  # fmt: skip


def test_top_kernels_come_longest_first_with_share_calls_and_mean() -> None:
    ax = plot_top_kernels(TOP, limit=2, of="run a")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a_kernel", "b_kernel"]
    assert bars(ax) == {0.0: [6.0], 1.0: [3.0]}
    assert "60.0 %   4 × 1.50 ms" in words(ax)
    assert ax.get_xlabel() == "total time (ms)"
    assert heading(ax) == "2 kernels take 90.0 % of all kernel time, the first alone 60.0 %"
    assert any("run a: " in text.get_text() and "3 names" in text.get_text() for text in style.figure_of(ax).texts)


def test_operators_of_a_cpu_engine_are_called_operators() -> None:
    ax = plot_top_kernels(TOP.head(1), device="CPU")
    assert heading(ax) == "One operator takes 30.0 % of all operator time"


def test_no_kernels_is_said() -> None:
    assert heading(plot_top_kernels(TOP.head(0))) == "No kernels recorded"


def idle(*rows: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["split", "name", "ns"])


def test_idle_shows_place_and_cause_each_adding_up() -> None:
    ax = plot_idle(idle(
        ("place", "between_steps", MS), ("place", "within_steps", 3 * MS),
        ("cause", "host_bound", 3 * MS), ("cause", "in_graph", MS), ("cause", "unknown", 0),
    ))  # fmt: skip
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "within a step", "between steps", "launched late by the host", "inside a CUDA graph replay",
    ]  # fmt: skip
    assert sorted(width for parts in bars(ax).values() for width in parts) == [1.0, 1.0, 3.0, 3.0]
    assert heading(ax) == "75.0 % of idle GPU time: launched late by the host"


def test_an_unknown_cause_is_said_to_be_unknown() -> None:
    ax = plot_idle(idle(("place", "within_steps", 4), ("cause", "unknown", 4)))
    assert heading(ax) == "The cause of 100.0 % of idle GPU time is not known"


def test_no_idle_time_is_no_empty_chart() -> None:
    assert heading(plot_idle(idle(("place", "within_steps", 0)))) == "No idle GPU time within the window"
