"""Which variant a run is, by its model's config and its engine's settings: `baseline`, `fp8`, `int4-g128`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflab.analysis.model.quantization import Quantization, kv_element_bytes, quantization_of, with_settings
from perflab.analysis.model.shape import text_config
from perflab.analysis.quantization.memory import quantization_of_format
from perflab.knowledge.quantization_formats import Format

_EIGHT_BIT_KV = 1.0
_DTYPES = {"bfloat16": "BF16", "float16": "FP16", "half": "FP16", "float32": "FP32"}


@dataclass(frozen=True)
class Recognised:
    """A format of weights, activations and KV cache.

    Attributes
    ----------
    name
        As studies name it.
    label
        For readers: `FP8 weights and activations`.
    weight_bits, activations
        Of linear layers; activations None where they stay in the model's 16 bits.
    quantization
        None of the baseline.
    kv_8bit
        The KV cache has 8 bits an element.
    """

    name: str
    label: str
    weight_bits: float
    activations: str | None
    quantization: Quantization | None
    kv_8bit: bool


def recognised(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> Recognised:
    """The variant that ran.

    Parameters
    ----------
    config
        The model's config.json; None where the run keeps none: then only settings tell.
    settings
        The engine's.
    """
    config = config or {}
    own = config.get("quantization_config") or text_config(config).get("quantization_config")
    found = with_settings(quantization_of(own), settings)
    dtype = str(settings.get("dtype") or config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
    short = _DTYPES.get(dtype, dtype or "16 bit")
    kv = kv_element_bytes(settings, dtype or "bfloat16") == _EIGHT_BIT_KV
    name, label = _named(found, short, own if isinstance(own, Mapping) else {}, settings)
    if kv:
        name = {"baseline": "kv-fp8", "fp8": "fp8-kv"}.get(name, f"{name}-kv")
        label = f"{label}, FP8 KV cache"
    if str(settings.get("enforce_eager")).lower() == "true":
        # Without compilation and CUDA graphs it is another engine: its speed says nothing of a format.
        name, label = f"{name}-eager", f"{label}, eager"
    sixteen = 32.0 if dtype == "float32" else 16.0
    bits = found.bits if found else sixteen
    return Recognised(name, label, bits, found.activations if found else None, found, kv)


def format_label(kind: Format) -> str:
    """The label of a format that is only known by its name, as `recognised` would give it."""
    asked = {"fp8-block": "fp8_per_block"}.get(kind.name, "")
    name, label = _named(quantization_of_format(kind), "16 bit", {}, {"quantization": asked})
    if kind.name == "fp8-channel":
        label = f"{label}, a scale a row"
    return f"{label}, FP8 KV cache" if kind.kv else label if name != "quantized" else kind.label


def _named(
    found: Quantization | None, dtype: str, own: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[str, str]:
    asked = str(settings.get("quantization") or "").lower()
    if found is None:
        unknown = bool(own) or asked not in ("", "none", "null")
        return (asked or "quantized", f"quantized: {asked or 'unknown'}") if unknown else ("baseline", dtype)
    if found.activations == "fp8" and found.weight_bits == 8:
        if "block" in asked or own.get("weight_block_size") or _strategy(own) == "block":
            return "fp8-block", "FP8 (W8A8), a scale a block"
        return "fp8", "FP8 (W8A8)"
    if found.activations == "int8":
        return "int8", "INT8 (W8A8)"
    if found.activations is None and found.weight_bits == 4:
        group = f", groups of {found.group_size}" if found.group_size else ""
        for method in ("awq", "gptq"):
            if method in found.method:
                return method, f"{method.upper()} (W4A16{group})"
        if found.zero_points:
            return f"int4-asym-g{found.group_size or 0}", f"INT4 with zero points (W4A16{group})"
        return f"int4-g{found.group_size or 0}", f"INT4 (W4A16{group})"
    return found.method, f"{found.method} (W{found.weight_bits}A{found.activations or 16})"


def _strategy(own: Mapping[str, Any]) -> str:
    groups = own.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    return str(weights.get("strategy")) if isinstance(weights, Mapping) else ""


def is_int4(name: str) -> bool:
    """Weights of 4 bits, products in 16: the names studies use for them."""
    return name.startswith(("int4", "awq", "gptq"))


def is_fp8(name: str) -> bool:
    """FP8 weights, whatever the KV cache is."""
    return name.startswith("fp8")
