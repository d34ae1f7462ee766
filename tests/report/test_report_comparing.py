"""What notebooks show of a comparison."""

from functools import cache

from perflab.plots import style
from perflab.plots.compare import plot_kernel_changes, plot_step_changes
from perflab.report.comparing import (
    change_pieces,
    change_table,
    difference_table,
    kernel_change_pieces,
    kernel_change_table,
)
from perflab.tasks.compare import CompareReport, compare


@cache
def fp8() -> CompareReport:
    return compare("llama3-8b-bf16", "llama3-8b-fp8")


def test_tables_agree_with_the_report() -> None:
    table = change_table(fp8())
    sums = table.groupby("phase")["change_ns"].sum().to_dict()
    assert sums == {one.phase: one.shown.change_ns for one in fp8().phases}
    kernels = kernel_change_table(fp8(), "decode")
    assert kernels["change"].iloc[0] == "appeared" and "fp8" in kernels["kernel"].iloc[0]
    assert kernels["change_ns"].abs().is_monotonic_decreasing
    assert kernel_change_table(fp8(), "no such phase").empty
    assert difference_table(fp8()).iloc[0].tolist()[:4] == ["quantization", "none", "fp8", "yes"]


def test_pieces_are_what_the_plots_take() -> None:
    (piece,) = change_pieces(fp8())
    assert "GEMM" in style.title_of(plot_step_changes(**piece))
    (piece,) = kernel_change_pieces(fp8(), "decode")
    assert "CUTLASS" in style.title_of(style.figure_of(plot_kernel_changes(**piece)))
    assert len(kernel_change_pieces(fp8())) == 3
