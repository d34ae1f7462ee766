"""What notebooks show of a comparison."""

from functools import cache

from perflab.plots import style
from perflab.plots.compare import plot_kernel_changes, plot_step_changes
from perflab.report.comparing import (
    change_pieces,
    difference_table,
    kernel_change_pieces,
)
from perflab.tasks.compare import CompareReport, compare


@cache
def fp8() -> CompareReport:
    return compare("llama3-8b-bf16", "llama3-8b-fp8")


def test_tables_agree_with_the_report() -> None:
    for one in fp8().phases:
        assert one.shown.categories["change_ns"].sum() == one.shown.change_ns
    kernels = next(one.shown.kernels for one in fp8().phases if one.phase == "decode")
    assert kernels["change"].iloc[0] == "appeared" and "fp8" in kernels["candidate_name"].iloc[0]
    assert kernels["change_ns"].abs().is_monotonic_decreasing
    assert difference_table(fp8()).iloc[0].tolist()[:4] == ["quantization", "none", "fp8", "yes"]


def test_pieces_are_what_the_plots_take() -> None:
    (piece,) = change_pieces(fp8())
    assert "GEMM" in style.title_of(plot_step_changes(**piece))
    (piece,) = kernel_change_pieces(fp8(), "decode")
    assert "CUTLASS" in style.title_of(style.figure_of(plot_kernel_changes(**piece)))
    assert len(kernel_change_pieces(fp8())) == 3
