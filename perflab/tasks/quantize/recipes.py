"""How a checkpoint of a format is made: llm-compressor's words for it, and by which algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perflab.errors import InputError
from perflab.experiment.study import Algorithm, Variant
from perflab.messages import say

# Its search runs each layer twenty times over all samples, and sixteen do as well as more (Lin 2023, data efficiency).
_AWQ_SAMPLES = 16


@dataclass(frozen=True)
class Recipe:
    """What becomes of linear layers, `ignore` apart.

    Attributes
    ----------
    scheme
        compressed-tensors' description of weights and activations.
    algorithm
        See `perflab.experiment.study.Variant`.
    """

    scheme: dict[str, Any]
    algorithm: Algorithm
    ignore: tuple[str, ...] = ("lm_head",)

    def samples(self, asked: int) -> int:
        """How many samples it calibrates with, of those a study asks for."""
        return min(asked, _AWQ_SAMPLES) if self.algorithm == "awq" else asked

    @property
    def calibrated(self) -> bool:
        """Whether it needs text."""
        return self.algorithm != "rtn"


def recipe_for(variant: Variant, algorithm: Algorithm | None = None) -> Recipe:
    """The recipe of a variant.

    Parameters
    ----------
    algorithm
        In place of the variant's own; where neither is given: gptq for 4-bit weights, rtn for 8-bit ones, whose grid is
        fine enough a row.

    Raises
    ------
    InputError
        When no checkpoint is made of that format.
    """
    weights = variant.format.weights
    if variant.format.how not in ("make", "online") or weights is None:
        raise InputError(say("quantize_make.not_made", name=variant.name, format=variant.format.name))
    kind = "float" if variant.format.activations == "fp8" else "int"
    if weights.block:
        raise InputError(say("quantize_make.not_made", name=variant.name, format=variant.format.name))
    grid: dict[str, Any] = {
        "num_bits": weights.bits, "type": kind, "symmetric": not weights.zero_points, "dynamic": False,
    }  # fmt: skip
    if weights.group:
        grid |= {"strategy": "group", "group_size": weights.group}
    else:
        grid |= {"strategy": "channel" if weights.per_row else "tensor"}
    scheme: dict[str, Any] = {"weights": grid}
    if variant.format.activations:
        scheme["input_activations"] = {
            "num_bits": 8, "type": kind, "symmetric": True, "strategy": "token", "dynamic": True,
        }  # fmt: skip
    return Recipe(scheme, algorithm or variant.algorithm or ("gptq" if weights.bits < 8 else "rtn"))
