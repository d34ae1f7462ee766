"""Figures of quantized variants: dots, bands, rings and bars where the numbers are; what is not there is said."""

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from quantization_study import AWQ, GIB, accuracy_document, three, write_study

from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.tradeoffs import Comparison, KernelPart, Place, Reasons, Variant
from perflab.plots import style
from perflab.plots.quantization import (
    ParetoPoint,
    gain_title,
    pareto_front,
    pareto_title,
    plot_gain_over_load,
    plot_speed_against_accuracy,
    variant_colours,
)
from perflab.plots.quantization_parts import (
    plot_predicted_memory,
    plot_variant_memory,
    plot_variant_steps,
    step_rows,
)
from perflab.report.quantization_views import pareto_pieces
from perflab.tasks.quantize.tradeoffs import TradeoffReport, tradeoffs

PINNED = {"kv_cache_memory_bytes": 40 * GIB}
RUNS = {
    "baseline-pinned": {"rates": {1: three(100), 32: three(2000), 256: three(6000)}, **PINNED},
    "fp8-pinned": {"rates": {1: three(140), 32: three(2400), 256: three(7200)}, "weights": 8.5,
                   "quantization": "fp8", **PINNED},
    "awq-pinned": {"rates": {1: three(160), 32: three(2200), 256: three(5400)}, "weights": 5.4, "checkpoint": AWQ,
                   **PINNED},
}  # fmt: skip
PLACE = Place("", "a model", True, "a GPU", "1")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> TradeoffReport:
    accuracy = {name: accuracy_document(name, (r, r - 0.002, r + 0.002)) for name, r in (("fp8", 1.004), ("awq", 1.03))}
    return tradeoffs(write_study(tmp_path_factory.mktemp("plots") / "s", RUNS, accuracy), why=False)


@pytest.fixture(scope="module")
def study(report: TradeoffReport) -> Comparison:
    return next(one for one in report.comparisons if one.has_speed)


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_dots_lie_on_the_ratios_and_the_end_is_ringed(study: Comparison) -> None:
    ax = plot_gain_over_load(study, kv="pinned")
    dots = [line for line in ax.lines if line.get_marker() == "o" and line.get_markersize() == 6]
    assert [list(line.get_xdata()) for line in dots] == [[1, 32, 256]] * 2
    assert list(dots[0].get_ydata()) == pytest.approx([1.4, 1.2, 1.2])
    assert list(dots[1].get_ydata()) == pytest.approx([1.6, 1.1, 0.9])
    assert all(dot.get_markerfacecolor() != style.PAPER for dot in dots), "intervals over runs: full dots"
    [ring] = [line for line in ax.lines if line.get_markersize() == 12]
    [end] = [e for e in study.ends if (e.variant, e.metric) == ("awq", "output_tokens_per_s")]
    assert ring.get_xdata()[0] == pytest.approx(end.measured.at) and 32 < ring.get_xdata()[0] < 256
    assert f"AWQ, ends at {end.measured.at:.0f}" in words(ax)
    assert "the fastest is AWQ at 1 (1.60 x) and FP8 at 256 (1.20 x)" in style.title_of(style.figure_of(ax))


def test_a_line_of_one_run_has_hollow_dots(tmp_path: Path) -> None:
    runs = {name: {**given, "rates": {1: [given["rates"][1][1]], 32: [given["rates"][32][1]]}}
            for name, given in RUNS.items()}  # fmt: skip
    one = next(c for c in tradeoffs(write_study(tmp_path / "s", runs), why=False).comparisons if c.has_speed)
    ax = plot_gain_over_load(one, kv="pinned")
    dots = [line for line in ax.lines if line.get_marker() == "o" and line.get_markersize() == 6]
    assert [dot.get_markerfacecolor() for dot in dots] == [style.PAPER] * 2
    assert any("too few for an interval" in text.get_text().replace("\n", " ") for text in style.figure_of(ax).texts)


def test_without_pairs_the_figure_says_why(study: Comparison) -> None:
    assert "No variant and baseline were measured" in words(plot_gain_over_load(study, kv="free"))[0]
    empty = Comparison(PLACE, ())
    for ax, why in (
        (plot_variant_memory(empty), "No log"), (plot_predicted_memory(empty), "missing"),
        (plot_variant_steps(empty), "profiling passes"),
        (plot_speed_against_accuracy([], speed_of=PLACE, accuracy_of=PLACE, load=1), "cannot be set"),
    ):  # fmt: skip
        assert why in words(ax)[0]


def test_a_title_names_no_leader_where_the_baseline_leads(tmp_path: Path) -> None:
    runs = {
        "baseline-pinned": {"rates": {1: three(100), 256: three(6000)}, **PINNED},
        "fp8-pinned": {"rates": {1: three(140), 256: three(4500)}, "quantization": "fp8", **PINNED},
    }  # fmt: skip
    report = tradeoffs(write_study(tmp_path / "s", runs, {}), why=False)
    one = next(one for one in report.comparisons if one.has_speed)
    assert gain_title(one, "output_tokens_per_s", "pinned") == (
        "Output throughput: no variant beats the baseline at 256 (at best 0.75 x), FP8 at 1 (1.40 x) does"
    )


def test_one_variant_alone_is_no_front() -> None:
    told = pareto_title([ParetoPoint("a", "A", Estimate(0.02), Estimate(1.2))])
    assert told == "Of one variant speed and perplexity are both known: A (1.20 x, +2.0 %)"


def test_bars_are_weights_cache_and_rest_up_to_the_gpu(study: Comparison) -> None:
    ax = plot_variant_memory(study)
    widths = [patch.get_width() for patch in ax.patches]
    assert sum(widths) == pytest.approx(3 * 140), "each bar is the whole GPU"
    assert 15.0 in widths and 8.5 in widths and 40.0 in widths
    assert "2.78 times less" in style.title_of(style.figure_of(ax))
    assert any("327,680 tokens" in text for text in words(ax))


def test_rings_are_predicted_and_dots_measured(study: Comparison) -> None:
    ax = plot_predicted_memory(study)
    rings, dots = ([l for l in ax.lines if l.get_markersize() == size] for size in (11, 5.5))  # noqa: E741
    assert [round(float(dot.get_xdata()[0]), 1) for dot in dots] == [15.0, 8.5, 5.4]
    assert float(rings[0].get_xdata()[0]) == pytest.approx(14.96, abs=0.01)


def test_no_variant_on_the_front_is_beaten_in_both() -> None:
    points = [
        ParetoPoint("a", "A", Estimate(0.00), Estimate(1.2)),
        ParetoPoint("b", "B", Estimate(0.02), Estimate(1.1)),
        ParetoPoint("c", "C", Estimate(0.03), Estimate(1.5)),
        ParetoPoint("d", "D", Estimate(0.03), Estimate(1.5)),
    ]
    assert [one.name for one in pareto_front(points)] == ["a", "c", "d"]


def test_each_axis_says_of_which_model_it_is(report: TradeoffReport) -> None:
    pieces = pareto_pieces(report)
    assert [piece["load"] for piece in pieces] == [1.0, 256.0]
    ax = plot_speed_against_accuracy(**pieces[1])
    assert "small-real-model" in ax.get_xlabel() and "llama 8.0B, random weights" in ax.get_ylabel()
    assert "256 at once" in ax.get_ylabel() and "(%)" in ax.get_xlabel()
    dots = [line for line in ax.lines if line.get_markersize() == 8]
    assert [float(dot.get_xdata()[0]) for dot in dots] == pytest.approx([0.4, 3.0])
    assert [float(dot.get_ydata()[0]) for dot in dots] == pytest.approx([1.2, 0.9])
    assert any("Two models" in text.get_text() for text in style.figure_of(ax).texts)
    assert {"FP8", "AWQ"} <= set(words(ax))


def test_steps_are_stacked_by_category_and_name_their_kernel() -> None:
    parts = (KernelPart("decode", "gemm", 4_000_000, 2_000_000), KernelPart("decode", "quantize", 0, 500_000))
    matmuls = (KernelPart("decode", "cuBLAS, 16 bit", 4_000_000, 0), KernelPart("decode", "Machete", 0, 2_000_000))
    why = Reasons(categories=parts, matmuls=matmuls)
    one = Comparison(PLACE, (Variant("baseline", "BF16"), Variant("awq", "AWQ", reasons=why)))
    assert step_rows(one, "decode") == {
        "BF16": {"gemm": 4_000_000, "quantize": 0}, "AWQ": {"gemm": 2_000_000, "quantize": 500_000},
    }  # fmt: skip
    ax = plot_variant_steps(one)
    assert [patch.get_width() for patch in ax.patches] == pytest.approx([4.0, 2.0, 0.5])
    assert {"cuBLAS, 16 bit", "Machete"} <= set(words(ax))
    assert style.title_of(style.figure_of(ax)) == "AWQ: GEMM −50 %, the whole decode step −38 %"


def test_a_variant_keeps_its_colour_and_the_baseline_is_grey() -> None:
    colours = variant_colours(["fp8", "baseline", "awq", "fp8"])
    assert colours["baseline"] == style.MUTED and len(set(colours.values())) == 3
    assert variant_colours(["baseline", "fp8", "awq"]) == colours


def test_the_picker_follows_its_controls(report: TradeoffReport) -> None:
    from perflab.variant_picker import variant_picker

    box = variant_picker(report)
    model, variants, switches, limits, _, told = box.children
    kv, metric = switches.children
    assert "llama 8.0B" in model.value and set(variants.value) == {"fp8", "awq"} and kv.value == "pinned"
    assert "For people who wait for each token: <strong>AWQ</strong>" in told.value
    assert "measured on another (small-real-model" in told.value, "its 3 % are another model's and hold nothing back"
    limits.children[1].value = 6.0  # TPOT is 6.25 ms with AWQ, and longer with the others
    assert "For people who wait for each token: none" in told.value
    limits.children[1].value = 0.0
    variants.value = ("fp8",)
    metric.value = "tpot_p50_ms"
    assert "For people who wait for each token: <strong>FP8</strong>" in told.value
