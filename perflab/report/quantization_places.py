"""What figures of trade-offs are of: models and machines by name, which stands first, whose accuracy counts."""

from __future__ import annotations

from perflab.analysis.quantization.tradeoffs import Accuracy, Comparison, Place, Variant, accuracy_of
from perflab.messages import say
from perflab.tasks.quantize.tradeoffs import TradeoffReport


def model_name(place: Place) -> str:
    """`llama 8.0B, random weights`."""
    return f"{place.model.partition(' (')[0]}{', random weights' if place.random_weights else ''}"


def place_name(place: Place) -> str:
    """The model, and the machine where it is known."""
    return f"{model_name(place)}{f'; {place.machine}' if place.machine else ''}"


def place_names(report: TradeoffReport) -> dict[Place, str]:
    """Each with the study it comes from, where others are of the same model and machine."""
    names = {one.place: place_name(one.place) for one in report.comparisons}
    shared = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {
        place: f"{name} ({place.source or say('notebook.tradeoffs.single_runs')})" if name in shared else name
        for place, name in names.items()
    }


def comparison_of(report: TradeoffReport, model: str | None = None) -> Comparison | None:
    """The comparison a figure shows: of the model whose name, place or study holds `model`; by default the fullest."""
    found = [
        one
        for one in report.comparisons
        if model is None or model.lower() in f"{one.place.label} {one.place.source}".lower()
    ]
    return max(found, key=_fullness, default=None)


def _fullness(one: Comparison) -> tuple[int, int, int]:
    return (len(one.kvs), len({s.load for v in one.variants for s in v.speed}), len(one.variants))


def with_speed(report: TradeoffReport) -> list[Comparison]:
    """Comparisons in which a variant's speed can be held against a baseline's."""
    return [one for one in report.comparisons if one.has_speed and one.baseline and len(one.variants) > 1]


def accuracy_for(report: TradeoffReport, one: Comparison, variant: Variant) -> Accuracy | None:
    """The variant's own accuracy, else that of the same format on a model with real weights."""
    if variant.accuracy is not None:
        return variant.accuracy
    return next(iter(accuracy_of([c for c in report.comparisons if c is not one], variant.name)), None)
