import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from perflab import schema
from perflab.analysis.ranks.sizes import SIZE_COLUMNS
from perflab.analysis.ranks.stragglers import Straggler
from perflab.knowledge.gpus import Link
from perflab.plots import style
from perflab.plots.collectives import plot_arrivals, plot_message_sizes, plot_waiting, waiting_by_phase
from perflab.tasks.breakdown import breakdown

US = 1000
NVLINK = Link("NVLink 4", 450e9, 450e9, "")


def table(*rows: tuple[int, int, str, list[int]], transfer: int = 4 * US) -> pd.DataFrame:
    """A row a collective: its number, step, phase, and what each rank waits."""
    filled = [
        {
            "rank": rank, "seq": seq, "step": step, "phase": phase, "op": "all_reduce", "by": "custom", "name": "k",
            "ranks": len(waits), "group_size": len(waits), "bytes": None, "bytes_source": "", "start_ns": seq * 10**5,
            "dur_ns": transfer + wait, "wait_ns": wait, "transfer_ns": transfer,
        }
        for seq, step, phase, waits in rows
        for rank, wait in enumerate(waits)
    ]  # fmt: skip
    frame = pd.DataFrame(filled, columns=schema.TABLES["collectives"].names)
    return schema.conform(frame, "collectives")


ONE = table(
    (0, 0, "prefill", [0, 2 * US]), (1, 1, "decode", [0, 10 * US]), (2, 1, "decode", [6 * US, 0]),
    (3, 2, "decode", [0, 8 * US]), (4, 2, "decode", [0, 2 * US]),
)  # fmt: skip


def sizes(*rows: dict[str, object]) -> pd.DataFrame:
    blank = {
        "phase": "decode", "op": "all_reduce", "by": "custom", "bytes_source": "shape", "ranks": 2, "count": 10,
        "low_ns": 3 * US, "high_ns": 5 * US, "bound": "latency", "in_network": False,
    }  # fmt: skip
    frame = pd.DataFrame([{**blank, **row} for row in rows], columns=list(SIZE_COLUMNS))
    return frame.astype({"bytes": "Int64"})


SIZES = sizes(
    {"bytes": 65536, "transfer_ns": 4 * US, "bus_bandwidth": 16.4e9, "of_peak": 0.036, "bytes_source": "inferred"},
    {"bytes": 65536, "transfer_ns": 4 * US, "bus_bandwidth": 16.4e9, "of_peak": 0.036, "phase": "mixed", "count": 5},
    {
        "bytes": 45 * 10**6, "transfer_ns": 200 * US, "bus_bandwidth": 225e9, "of_peak": 0.5, "by": "nccl",
        "low_ns": 190 * US, "high_ns": 210 * US, "bound": "bandwidth", "phase": "prefill",
    },
)  # fmt: skip

NAMED = Straggler("decode", "straggler", 0, 8, 8, 0.008, 137 * US, 40 * US, 260 * US, 700, 0.8, 0.8, 360, 0.1)


def heading(ax: Axes) -> str:
    return style.title_of(style.figure_of(ax))


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_a_mean_step_in_reading_order() -> None:
    parts = waiting_by_phase(ONE)
    assert parts[["phase", "rank", "steps", "collectives"]].to_numpy().tolist() == [
        ["decode", 0, 2, 4], ["decode", 1, 2, 4], ["prefill", 0, 1, 1], ["prefill", 1, 1, 1],
    ]  # fmt: skip
    assert parts["transfer_ns"].tolist() == [8 * US, 8 * US, 4 * US, 4 * US]
    assert parts["wait_ns"].tolist() == [3 * US, 10 * US, 0, 2 * US]


def test_bars_are_transfer_and_waiting() -> None:
    figure = plot_waiting(ONE)
    decode, prefill = figure.axes
    assert [round(bar.get_width(), 6) for bar in decode.patches] == [8, 3, 8, 10]
    assert [round(bar.get_width(), 6) for bar in prefill.patches] == [4, 4, 2]
    assert "decode, mean of 2 steps, 2 collectives each (µs)" in decode.get_xlabel()
    # 13 of 29 us, and 2 of 10
    assert (
        style.title_of(figure)
        == "Ranks wait for one another during 44.8 % of decode and 20.0 % of prefill communication"
    )
    assert "18.0 µs" in texts(decode), "the whole bar of rank 1"


def test_points_are_sizes_and_the_line_is_the_link() -> None:
    ax = plot_message_sizes(SIZES, NVLINK)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in dots] == [65536, 45e6]  # type: ignore[index]
    assert [line.get_ydata()[0] for line in dots] == [4 * US, 200 * US]  # type: ignore[index]
    hollow, full = dots
    assert hollow.get_markerfacecolor() == style.PAPER and full.get_markerfacecolor() != style.PAPER
    (least,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    x, y = np.asarray(least.get_xdata(), float), np.asarray(least.get_ydata(), float)
    assert y == pytest.approx(x / 450e9 * 1e9)
    assert heading(ax) == "Latency decides up to 64.0 KiB; messages of 42.9 MiB reach 50.0 % of NVLink 4"
    said = texts(ax)
    assert "NCCL: 200 µs, 225 GB/s" in said and "vLLM's kernel: 4.00 µs, 16 GB/s" in said and "all-reduce" in said


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"bound": "latency"}, "All messages are small: latency decides, and the largest reach 50.0 %"),
        ({"bound": "bandwidth"}, "Messages of 42.9 MiB reach 50.0 % of NVLink 4"),
        ({"bound": "implausible"}, "Some messages would be faster than NVLink 4: their size or the link is not what"),
    ],
)
def test_titles_say_what_bounds(change: dict[str, str], title: str) -> None:
    assert heading(plot_message_sizes(SIZES.assign(**change), NVLINK)).startswith(title)


def test_without_a_link_there_is_no_line() -> None:
    ax = plot_message_sizes(SIZES.assign(of_peak=None, bound=None), None)
    assert not [line for line in ax.lines if line.get_linestyle() == "--"]
    assert heading(ax) == "Messages of 42.9 MiB take 200 µs"


def test_a_gather_is_placed_by_what_a_gpu_sends() -> None:
    """Of 2 MiB that come out on 2 ranks, each sends one."""
    ax = plot_message_sizes(sizes({"op": "all_gather", "bytes": 1 << 21, "transfer_ns": 15 * US}), None)
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert dot.get_xdata()[0] == 1 << 20  # type: ignore[index]


def test_arrivals_are_a_dot_a_collective() -> None:
    figure = plot_arrivals(ONE, straggler=NAMED)
    first, second = figure.axes
    assert [line.get_ydata().tolist() for line in first.lines if line.get_marker() == "o"] == [[6 * US]]  # type: ignore[union-attr]
    assert [line.get_xdata().tolist() for line in second.lines if line.get_marker() == "o"] == [[0, 2, 3]]  # type: ignore[union-attr]
    assert (
        style.title_of(figure) == "The other rank waits for rank 0 in 8 of 8 decode steps, by 137 µs in the median step"
    )
    assert "rank 0, waited for" in texts(first) and "rank 1" in texts(second)
    assert "waits in 75.0 % of them, 10.0 µs a step" in texts(second)
    assert second.get_xlabel() == "collectives of the 2 decode steps, in order"


@pytest.mark.parametrize(
    ("verdict", "title"),
    [
        ("even", "No rank is waited for consistently in decode"),
        ("clocks", "Rank 0 waits least in 8 of 8 decode steps, but the clocks are not sure enough"),
        ("disagree", "Rank 0 waits least in 8 of 8 decode steps, but it does not arrive last"),
        ("too_few_steps", "Rank 0 waits least, by 137 µs in the median step, but 8 decode steps are too few"),
    ],
)
def test_titles_name_no_one_without_proof(verdict: str, title: str) -> None:
    named = dataclasses.replace(NAMED, verdict=verdict)
    figure = plot_arrivals(ONE, straggler=named)
    assert style.title_of(figure).startswith(title)
    assert not any("waited for" in text for ax in figure.axes for text in texts(ax))


def test_nothing_to_draw_is_said() -> None:
    empty = schema.empty("collectives")
    assert "No collective" in style.title_of(plot_waiting(empty))
    assert "No collective" in style.title_of(plot_arrivals(empty))
    assert "not known" in heading(plot_message_sizes(sizes(), NVLINK))
    assert "not known" in heading(plot_message_sizes(SIZES.assign(bytes=pd.array([pd.NA] * 3, dtype="Int64")), NVLINK))


def test_eight_ranks_fit() -> None:
    many = table(*[(n, n // 4, "decode", [(r * 997 * n) % 9000 for r in range(8)]) for n in range(1, 40)])
    figure = plot_arrivals(many)
    figure.savefig("/dev/null", format="svg")
    assert len(figure.axes) == 8
    assert len(plot_waiting(many).axes[0].get_yticklabels()) == 8


@pytest.mark.parametrize("name", ["llama3-8b-tp2", "llama3-70b-bf16-tp2", "llama3-70b-awq-tp2"])
def test_recorded_runs(name: str) -> None:
    found = breakdown(name).passes[0].communication
    assert found is not None
    figure = plot_waiting(found.table)
    assert "of decode" in style.title_of(figure)
    ax = plot_message_sizes(found.sizes, found.link)
    assert "NVLink 4" in heading(ax)
    figure = style.figure_of(ax)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts if "GB/s" in text.get_text()]
    assert len(boxes) >= 6
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]), (
        "labels do not lie on each other"
    )
    for phase in ("decode", "mixed", "prefill"):
        assert style.title_of(plot_arrivals(found.table, phase=phase, straggler=found.straggler(phase)))
    plt.close("all")
