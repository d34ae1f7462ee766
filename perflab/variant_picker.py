"""A control for JupyterLab over trade-offs: model, variants, KV cache, metric and objectives; no logic of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ipywidgets

from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison
from perflab.messages import say
from perflab.plots.quantization import METRICS, plot_gain_over_load, variant_colours
from perflab.report.blocks import text_html
from perflab.report.in_notebook import dressed
from perflab.report.quantization_places import comparison_of
from perflab.report.quantization_views import recommendation_sentences
from perflab.report.show import drawn
from perflab.tasks.quantize.tradeoffs import TradeoffReport, again


def variant_picker(report: TradeoffReport) -> Any:
    """Pick what to look at and what has to hold; the curve over loads and the recommendation follow."""
    shown = {one.place.label: one for one in report.comparisons if one.has_speed and one.baseline}
    if not shown:
        return ipywidgets.HTML(text_html(say("notebook.tradeoffs.no_speed")))
    fullest = comparison_of(report)
    first = fullest.place.label if fullest is not None and fullest.place.label in shown else next(iter(shown))
    wide = ipywidgets.Layout(width="auto", min_width="28em")
    model = ipywidgets.Dropdown(options=list(shown), value=first, description="model", layout=wide)
    variants = ipywidgets.SelectMultiple(description="variants", layout=wide)
    kv = ipywidgets.ToggleButtons(description="KV cache")
    metric = ipywidgets.ToggleButtons(options=[(word, name) for name, word in METRICS.items()], description="metric")
    limits = {
        name: ipywidgets.BoundedFloatText(
            value=0.0, min=0.0, max=1e9, description=f"{name.partition('_')[0].upper()} ms"
        )
        for name in ("ttft_ms", "tpot_ms")
    }
    # No Output widget: executed by papermill, one that is drawn into anew can make it wait for ever (report/kernel.py).
    picture, told = ipywidgets.HTML(layout=wide), ipywidgets.HTML(layout=wide)

    def offer(_: Any = None) -> None:
        one = shown[model.value]
        variants.options = [(v.label, v.name) for v in one.variants if v.name != BASELINE]
        variants.value = tuple(name for _, name in variants.options)
        kv.options = list(one.kvs)
        kv.value = one.kvs[-1] if one.kvs else None

    def redraw(_: Any = None) -> None:
        one = shown[model.value]
        if kv.value is None:
            return
        picture.value = _drawn(one, variants.value, kv.value, metric.value)
        asked = {name: box.value for name, box in limits.items() if box.value > 0}
        only = replace(report, comparisons=(_part(one, variants.value), *_others(report, one)))
        answer = again(only, asked)
        mine = [pair for pair in answer.recommendations if pair[0] == one.place]
        told.value = dressed(text_html(recommendation_sentences(replace(answer, recommendations=tuple(mine)))))

    offer()
    redraw()
    model.observe(offer, names="value")
    for control in (model, variants, kv, metric, *limits.values()):
        control.observe(redraw, names="value")
    return ipywidgets.VBox(
        [model, variants, ipywidgets.HBox([kv, metric]), ipywidgets.HBox([*limits.values()]), picture, told]
    )


def _others(report: TradeoffReport, one: Comparison) -> list[Comparison]:
    return [other for other in report.comparisons if other is not one]


def _part(one: Comparison, names: tuple[str, ...]) -> Comparison:
    """The comparison with only these variants, and the baseline."""
    kept = {BASELINE, *names}
    return replace(
        one,
        variants=tuple(v for v in one.variants if v.name in kept),
        ends=tuple(end for end in one.ends if end.variant in kept),
    )


def _drawn(one: Comparison, names: tuple[str, ...], kv: Any, metric: str) -> str:
    colours = variant_colours([variant.name for variant in one.variants])
    return drawn(plot_gain_over_load(_part(one, names), metric=metric, kv=kv, colours=colours))
