"""Figures of attribution: what they say, and that they say it of the right numbers."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from perflab.plots import style
from perflab.plots.attribution import UNKNOWN, module_colour, plot_layers, plot_modules, plot_rungs

RUNGS = pd.DataFrame({
    "rung": ["launch", "capture", "teacher", "position", "name", "none"],
    "kernels": [60, 0, 30, 5, 0, 5], "exclusive_ns": [600, 0, 300, 60, 0, 40],
    "share": [0.6, 0.0, 0.3, 0.06, 0.0, 0.04], "kernel_share": [0.6, 0.0, 0.3, 0.05, 0.0, 0.05],
})  # fmt: skip
US = 1_000


def modules(*rows: tuple[str, str | None, float]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["phase", "module", "step_ns"]).assign(steps=2)
    return table.assign(share=table["step_ns"] / table.groupby("phase")["step_ns"].transform("sum"))


def layers(times: list[float], *, outliers: dict[int, str] | None = None, steps: int = 3) -> pd.DataFrame:
    median = float(np.median(times))
    return pd.DataFrame({
        "phase": "decode", "layer": pd.array([*range(len(times)), pd.NA], dtype="Int64"), "kernels": 10,
        "exclusive_ns": [*times, 5.0], "steps": steps, "step_ns": [*times, 5.0],
        "ratio": [*(t / median for t in times), np.nan],
        "outlier": [*(i in (outliers or {}) for i in range(len(times))), False],
        "because": [*((outliers or {}).get(i) for i in range(len(times))), None],
    })  # fmt: skip


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def heading(ax: Axes) -> str:
    return style.title_of(style.figure_of(ax))


def test_rungs_say_for_how_much_the_operator_is_known() -> None:
    ax = plot_rungs(RUNGS)
    assert heading(ax) == "The operator is known for 90.0 % of busy GPU time, the part of the model inferred for 6.0 %"
    assert "launched one by one  60.0 %" in words(ax)
    assert sum(patch.get_width() for patch in ax.patches) == pytest.approx(1.0)


def test_several_runs_have_a_bar_each_and_the_title_says_the_range() -> None:
    worse = RUNGS.assign(share=[0.1, 0.0, 0.0, 0.9, 0.0, 0.0])
    ax = plot_rungs(pd.concat([RUNGS.assign(run="a"), worse.assign(run="b")]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert heading(ax) == "The operator is known for 10.0 % of busy GPU time in b, for 90.0 % in a"


def test_parts_are_sorted_by_decode_and_small_ones_lumped() -> None:
    table = modules(
        ("decode", "mlp.down_proj", 300 * US), ("decode", "self_attn.attn", 600 * US), ("decode", "norm", 1 * US),
        ("decode", "sampler", 2 * US), ("decode", None, 97 * US), ("prefill", "mlp.down_proj", 900 * US),
        ("prefill", "self_attn.attn", 100 * US),
    )  # fmt: skip
    figure = plot_modules(table)
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == [
        "self_attn.attn", "mlp.down_proj", "2 smaller parts", UNKNOWN,
    ]  # fmt: skip
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["prefill, 2 steps", "decode, 2 steps"]
    assert "600 µs  60.0 %" in words(second)
    assert figure.get_label() == "self_attn.attn is 10.0 % of prefill and 60.0 % of decode"


def test_layers_that_are_alike_are_said_to_be() -> None:
    ax = plot_layers(layers([100 * US, 101 * US, 100 * US, 102 * US]))
    assert heading(ax) == "The 4 layers of a decode step are alike: 2.0 % between shortest and longest"
    dots = np.concatenate([np.asarray(some.get_offsets()) for some in ax.collections])
    assert dots.tolist() == [[0, 100], [1, 101], [2, 100], [3, 102]]


def test_an_outlier_is_named_with_its_part() -> None:
    ax = plot_layers(layers([100.0, 100.0, 150.0, 100.0], outliers={2: "mlp.experts"}))
    assert (
        heading(ax) == "Layer 2 of a decode step takes 50.0 % longer than the median layer, most of it in mlp.experts"
    )
    assert "layer 2: +50.0 %" in words(ax)


def test_neighbours_share_a_label() -> None:
    ax = plot_layers(layers([100.0] * 5 + [110.0] * 3, outliers={5: "a", 6: "a", 7: "b"}))
    assert heading(ax) == "Layers 5 to 7 of a decode step take 10.0 % longer than the median layer"
    assert [text for text in words(ax) if text.startswith("layer")] == ["layers 5 to 7: +10.0 %"]


@pytest.mark.parametrize("draw", [
    lambda: plot_rungs(RUNGS.assign(share=np.nan)),
    lambda: plot_layers(layers([1.0]).iloc[1:]),
])  # fmt: skip
def test_nothing_to_draw_is_said(draw: object) -> None:
    ax = draw()  # type: ignore[operator]
    assert "No GPU time" in heading(ax) or "cannot be told apart" in heading(ax)
    assert not ax.axison


def test_no_parts_is_said() -> None:
    assert "No GPU time" in plot_modules(modules().assign(share=[])).get_label()


@pytest.mark.parametrize(("module", "category"), [
    ("self_attn.attn", "attention"), ("self_attn.qkv_proj", "gemm"), ("mlp.experts", "moe"),
    ("mlp.communication", "communication"),
    ("post_attention_layernorm", "norm_act"), ("lm_head", "gemm"), ("lm_head.communication", "communication"),
    ("sampler", "sampling"), ("embed_tokens", "embedding"), ("self_attn.kv_cache", "kv_cache"),
    ("embed_tokens + input_layernorm", "norm_act"),
])  # fmt: skip
def test_a_part_has_the_colour_of_its_category(module: str, category: str) -> None:
    assert module_colour(module) == style.CATEGORY_COLOURS[category]
