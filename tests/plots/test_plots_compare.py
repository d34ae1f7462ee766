"""Figures of comparisons: bars that start where the last one ended, and titles that say what changed."""

from typing import Any

import pandas as pd
import pytest

from perflab.analysis.compare.traces import BATCH, PhaseComparison, StepTime, View
from perflab.plots import style
from perflab.plots.compare import plot_kernel_changes, plot_step_change, plot_step_changes

MS = 1_000_000


def comparison(
    changes: dict[str, tuple[int, int]], kernels: list[dict[str, Any]] | None = None, **how: Any
) -> PhaseComparison:
    """Categories with their times of baseline and candidate."""
    table = pd.DataFrame(
        [(name, before, after, after - before) for name, (before, after) in changes.items()],
        columns=["category", "baseline_ns", "candidate_ns", "change_ns"],
    )
    times = [
        StepTime(7, int(table[f"{side}_ns"].sum()), None, None, None, 0, 0, None, None)
        for side in ("baseline", "candidate")
    ]
    columns = [
        "category",
        "key",
        "family",
        "baseline_name",
        "candidate_name",
        "baseline_ns",
        "candidate_ns",
        "change_ns",
    ]
    columns += ["baseline_calls", "candidate_calls", "change"]
    causes = pd.DataFrame(columns=["cause", "baseline_ns", "candidate_ns", "change_ns"])
    view = View(times[0], times[1], table, causes, pd.DataFrame(kernels or [], columns=columns))
    batches = pd.DataFrame(columns=[*BATCH, "baseline_steps", "candidate_steps"])
    return PhaseComparison(how.get("phase", "decode"), batches, how.get("alike", "same"), view, view)


def kernel(
    name: str, before: float, after: float, change: str, category: str = "gemm", family: str | None = None
) -> dict[str, Any]:
    calls = {"baseline_calls": float(before > 0), "candidate_calls": float(after > 0)}
    names = {"baseline_name": name if before else None, "candidate_name": name if after else None}
    times = {"baseline_ns": before, "candidate_ns": after, "change_ns": after - before}
    return {"category": category, "key": name, "family": family, **names, **times, **calls, "change": change}


FP8 = comparison({"gemm": (4 * MS, 2 * MS), "quantize": (0, MS // 2), "attention": (MS, MS), "idle": (MS, MS)})


def test_bars_lead_from_one_step_to_the_other() -> None:
    ax = plot_step_change(FP8, baseline="bf16", candidate="fp8")
    bars = [(round(p.get_x(), 6), round(p.get_x() + p.get_width(), 6)) for p in ax.patches]
    assert bars == [(0, 6), (6, 4), (4, 4.5), (0, 4.5)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["bf16", "GEMM", "quantize", "fp8"]
    assert [text.get_text() for text in ax.texts] == ["6.00 ms", "−2.00 ms", "+500 µs", "4.50 ms"]
    title = style.title_of(style.figure_of(ax))
    assert title == "A decode step is 25.0 % shorter, 6.00 ms to 4.50 ms: GEMM −2.00 ms and quantize +500 µs"


def test_small_changes_are_drawn_together_and_still_add_up() -> None:
    small = dict.fromkeys(("attention", "kv_cache", "sampling", "memory", "norm_act"), (MS, MS + 2000))
    ax = plot_step_change(comparison({"gemm": (5 * MS, 3 * MS), **small}))
    assert [label.get_text() for label in ax.get_yticklabels()][1:-1] == ["GEMM", "the rest"]
    last = ax.patches[-2]
    assert last.get_x() + last.get_width() == pytest.approx(ax.patches[-1].get_width())


def test_the_same_step_says_so() -> None:
    ax = plot_step_change(comparison({"gemm": (MS, MS)}))
    assert style.title_of(style.figure_of(ax)) == "A decode step takes the same time: 1.00 ms to 1.00 ms"


def test_a_panel_a_phase_decode_first() -> None:
    prefill = comparison({"gemm": (9 * MS, 3 * MS)}, phase="prefill")
    figure = plot_step_changes([prefill, FP8])
    assert [ax.get_title("left").split(":")[0] for ax in figure.axes] == ["decode", "prefill"]
    assert "decode step is 25.0 % shorter" in style.title_of(figure)


def test_unlike_batches_are_no_verdict() -> None:
    figure = plot_step_changes([comparison({"gemm": (MS, MS)}, alike="none")])
    assert any("no verdict" in text.get_text().replace("\n", " ") for text in figure.texts)


def test_nothing_to_compare_says_so() -> None:
    assert style.title_of(plot_step_changes([])) == "Nothing to compare"


def test_kernels_from_ring_to_dot() -> None:
    rows = [
        kernel("nvjet_a", 3 * MS, 0, "vanished", family="cuBLASLt"),
        kernel("cutlass_b", 0, 2 * MS, "appeared", family="CUTLASS"),
        kernel("flash", MS, MS, "same", "attention"),
    ]
    one = comparison({"gemm": (3 * MS, 2 * MS), "attention": (MS, MS)}, rows)
    ax = plot_kernel_changes(one)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["nvjet_a", "cutlass_b"]
    assert [text.get_text() for text in ax.texts] == ["−3.00 ms   1 → 0 calls", "+2.00 ms   0 → 1 calls"]
    title = style.title_of(style.figure_of(ax))
    assert title == "In a decode step: cuBLASLt gone (3.00 ms) and CUTLASS new (2.00 ms)"


def test_no_kernel_changed() -> None:
    ax = plot_kernel_changes(comparison({"gemm": (MS, MS)}, [kernel("k", MS, MS, "same")]))
    assert "No kernel" in style.title_of(style.figure_of(ax))


def test_a_panel_of_a_larger_figure_keeps_it() -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2)
    size = tuple(figure.get_size_inches())
    assert plot_step_change(FP8, ax=left) is left
    assert plot_kernel_changes(comparison({"gemm": (MS, 0)}, [kernel("k", MS, 0, "vanished")]), ax=right) is right
    assert tuple(figure.get_size_inches()) == size
