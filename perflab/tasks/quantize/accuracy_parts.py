"""Accuracy of a study's variants, as `accuracy.json` of each tells it."""

from __future__ import annotations

from perflab.analysis.quantization.tradeoffs import Accuracy
from perflab.tasks.own import Own
from perflab.tasks.quantize.sources import Source


def accuracy_of_study(source: Source, users: Own) -> tuple[dict[str, Accuracy], list[str]]:
    """Variant -> accuracy, and what could not be read, a sentence each."""
    return {}, []
