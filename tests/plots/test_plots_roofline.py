from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes

from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.step_work import peaks_of
from perflab.analysis.model.workload import workload
from perflab.analysis.roofline.bound import KernelRoof, Verdict
from perflab.analysis.roofline.phases import MemoryView, PhaseRoofline, RankRoofline
from perflab.analysis.roofline.table import roofline_table
from perflab.knowledge.gpus import gpu_spec
from perflab.plots import style
from perflab.plots.roofline import plot_peak_shares, plot_roofline, roofline_title

CONFIG = MappingProxyType({
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 256, "dtype": "bfloat16",
})  # fmt: skip


def phase(name: str, bound: str | None, flops: float, moved: float, *, known: bool = True) -> PhaseRoofline:
    """10 ms a step, of which matmuls take 8."""
    step, gemm = 10e6, 8e6
    attention = KernelRoof("attention", 1e6, None, None, None, "memory", None, None)
    own = KernelRoof(
        "gemm", gemm, flops, moved, 6e6, "memory", flops / gemm * 1e9 / 989.5e12, moved / gemm * 1e9 / 4.8e12
    )
    return PhaseRoofline(
        phase=name, steps=3, tokens=8, requests=8, step_ns=step, flops=flops, bytes=moved, limit_ns=6e6,
        flops_share=flops / step * 1e9 / 989.5e12, bytes_share=moved / step * 1e9 / 4.8e12,
        kernels={"gemm": own} | ({} if known else {"attention": attention}), padding=None,
        memory=MemoryView(0.8, 0, 0, 0), verdict=Verdict(bound, 0.8),  # type: ignore[arg-type]
    )  # fmt: skip


def rank(*phases: PhaseRoofline, number: int = 0, **more: Any) -> RankRoofline:
    shape, gpu = model_shape({**CONFIG, **more}), gpu_spec("NVIDIA H200")
    assert isinstance(shape, ModelShape) and gpu is not None
    work = workload(shape)
    return RankRoofline(
        number, "NVIDIA H200", gpu, shape, work, peaks_of(gpu, work), phases={one.phase: one for one in phases}
    )


DECODE = phase("decode", "memory", 1e11, 2.4e10)
PREFILL = phase("prefill", "compute", 5e12, 1e10, known=False)
TABLE = roofline_table([("a", rank(PREFILL, DECODE))])


def heading(ax: Axes) -> str:
    return style.title_of(style.figure_of(ax))


def texts(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


def test_the_table_has_a_row_a_phase_and_part() -> None:
    assert TABLE[["phase", "part"]].to_numpy().tolist() == [
        ["prefill", "step"], ["prefill", "gemm"], ["prefill", "attention"], ["decode", "step"], ["decode", "gemm"],
    ]  # fmt: skip
    rows = TABLE.set_index(["phase", "part"])
    assert rows.loc[("decode", "step"), "intensity"] == 1e11 / 2.4e10
    assert pd.isna(rows.loc[("prefill", "attention"), "flops"])
    assert rows["withheld"].to_dict()[("prefill", "step")] and not rows["withheld"].to_dict()[("decode", "step")]
    assert roofline_table([("x", RankRoofline(0, "?", missing=("no config",)))]).empty


def test_points_lie_where_their_work_and_time_put_them() -> None:
    ax = plot_roofline(TABLE)
    points = {(line.get_xdata()[0], round(line.get_ydata()[0], 3)) for line in ax.lines if len(line.get_xdata()) == 1}
    assert (1e11 / 2.4e10, 10.0) in points, "1e11 operations in 10 ms are 10 TFLOP/s"
    assert (1e11 / 2.4e10, 12.5) in points, "and 12.5 in the 8 ms of the kernels"
    assert len(points) == 4
    roof = next(line for line in ax.lines if len(line.get_xdata()) == 3)
    assert roof.get_xdata()[1] == pytest.approx(989.5 / 4.8)
    assert max(roof.get_ydata()) == 989.5
    assert roof.get_ydata()[0] == pytest.approx(roof.get_xdata()[0] * 4.8)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    # Everything is inside the picture.
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert all(left < x < right and bottom < y < top for x, y in points)


def test_roofs_and_phases_are_named_and_what_is_withheld_is_said() -> None:
    ax = plot_roofline(TABLE)
    assert "H200 SXM, BF16: 990 TFLOP/s from 206 on" in texts(ax)
    assert "memory 4.8 TB/s" in texts(ax)
    assert "decode\nmatmuls at 62.5 % of bandwidth".replace(" of", "\nof") in texts(ax)
    figure = style.figure_of(ax)
    assert any("attention's work is not known" in text.get_text().replace("\n", " ") for text in figure.texts)
    known = plot_roofline(roofline_table([("a", rank(DECODE))]))
    assert not any("not known" in text.get_text() for text in style.figure_of(known).texts)
    assert heading(ax) == "Prefill is bound by compute and decode is bound by memory bandwidth"


def test_bars_are_shares_of_step_and_kernels() -> None:
    ax = plot_peak_shares(TABLE)
    widths = sorted(round(patch.get_width(), 4) for patch in ax.patches)
    expected = [
        share for flops, moved in ((1e11, 2.4e10), (5e12, 1e10)) for time in (10e-3, 8e-3)
        for share in (flops / time / 989.5e12, moved / time / 4.8e12)
    ]  # fmt: skip
    assert widths == sorted(round(share, 4) for share in expected)
    assert "50.0 % of a step, 62.5 % in matmuls" in texts(ax)
    # Only the peak that bounds a phase is in full colour.
    assert sum(patch.get_alpha() == 1.0 for patch in ax.patches) == 2
    assert heading(ax) == "Prefill uses 50.5 % of compute and decode uses 50.0 % of memory bandwidth"


def test_bars_of_several_runs_are_headed_by_the_least_and_the_most() -> None:
    half = phase("decode", "memory", 1e11, 1.2e10)
    ax = plot_peak_shares(roofline_table([("a", rank(DECODE)), ("b", rank(half))]))
    assert heading(ax) == "Of memory bandwidth, decode uses 25.0 % (b) to 50.0 % (a)"


def test_several_runs_and_ranks() -> None:
    slow = phase("decode", "kernels", 1e11, 1e10)
    several = roofline_table([("a", rank(DECODE)), ("b", rank(DECODE)), ("c", rank(slow))])
    assert roofline_title(several).startswith(
        "Decode is bound by memory bandwidth in 2 of 3 runs, bound by its kernels"
    )
    assert roofline_title(several[several["run"] != "c"]) == "Decode is bound by memory bandwidth in all 2 runs"
    ax = plot_roofline(several)
    legend = [text.get_text() for text in style.figure_of(ax).legends[0].get_texts()]
    assert legend[-3:] == ["a", "b", "c"]
    apart = roofline_table([("a", rank(DECODE)), ("a", rank(slow, number=1))])
    assert "differently on each rank" in roofline_title(apart)
    together = roofline_table([("a", rank(DECODE)), ("a", rank(DECODE, number=1))])
    assert len(plot_peak_shares(together).patches) == 4, "ranks are one bar"


def test_two_number_formats_have_two_roofs() -> None:
    quantized = rank(DECODE, quantization_config={"quant_method": "fp8"})
    ax = plot_roofline(roofline_table([("a", rank(DECODE)), ("b", quantized)]))
    assert "FP8: 1,979 TFLOP/s from 412 on" in texts(ax) and "BF16: 990" in texts(ax)


@pytest.mark.parametrize("plot", [plot_roofline, plot_peak_shares])
def test_nothing_known_is_said(plot: Any) -> None:
    ax = plot(TABLE.iloc[:0])
    assert "config.json" in texts(ax)
    assert not ax.patches


@pytest.mark.parametrize("plot", [plot_roofline, plot_peak_shares])
def test_a_panel_of_a_figure_can_be_given(plot: Any) -> None:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plot(TABLE, ax=ax) is ax
    assert ax.get_title("left")
