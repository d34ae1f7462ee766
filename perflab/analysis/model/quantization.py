"""How weights, activations and the KV cache are quantized, by a model's config and the engine's settings.

vLLM's `--quantization fp8` quantizes a 16-bit model as it is loaded: then only the settings tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCALE_BITS = 16
"""A scale of group-quantized weights is a 16-bit number (AWQ, GPTQ, compressed-tensors); of fp8 blocks 32 bits."""


@dataclass(frozen=True)
class Quantization:
    """Quantized linear layers.

    Attributes
    ----------
    method
        As the config or the setting names it.
    weight_bits, group_size
        Bits of a weight, and how many weights share a scale along the input (None: a whole column or tensor does, and
        scales take no room to speak of).
    activations
        What activations are multiplied in: `fp8`, `int8`, `fp4`, or None for the model's own 16 bits.
    zero_points
        A group has a zero point besides its scale.
    lm_head, attention
        Whether these are quantized too.
    source
        `config` or `settings`.
    """

    method: str
    weight_bits: int
    group_size: int | None = None
    activations: str | None = None
    zero_points: bool = False
    lm_head: bool = False
    attention: bool = True
    source: str = "config"

    @property
    def bits(self) -> float:
        """Bits a weight takes with its share of scale and zero point, as stored in a checkpoint."""
        if self.group_size is None:
            return float(self.weight_bits)
        scale = 8 if self.method.startswith(("mxfp", "nvfp", "modelopt_fp4")) else SCALE_BITS
        return self.weight_bits + (scale + self.weight_bits * self.zero_points) / self.group_size

    def to_json(self) -> dict[str, Any]:
        """Method, bits and activations."""
        return {"method": self.method, "weight_bits": self.weight_bits, "activations": self.activations or "16 bit"}


def quantization_of(config: Any) -> Quantization | None:
    """What a config's `quantization_config` says; None where there is none or its kind is not known.

    Notes
    -----
    Read are AWQ, GPTQ, fp8 (also in blocks, as DeepSeek's), compressed-tensors, ModelOpt and MXFP4.
    """
    if not isinstance(config, Mapping) or not config:
        return None
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    keys = ("modules_to_not_convert", "ignore", "exclude_modules")
    lists = [found for key in keys if isinstance(found := config.get(key), list)]
    ignored = [str(name) for found in lists for name in found]
    attention = not any("self_attn" in name for name in ignored)
    if "config_groups" in config:
        return _compressed(config, method or "compressed-tensors", attention)
    bits = _positive(_number(config, "bits", "w_bit", "weight_bits"))
    group = _number(config, "group_size", "q_group_size")
    if "awq" in method or "gptq" in method or "autoround" in method or method in ("auto-round", "gptqmodel"):
        return Quantization(
            method,
            bits or 4,
            group if group and group > 0 else None,
            # Symmetric GPTQ stores zero points all the same, packed; auto_gptq's checkpoints always have qzeros.
            zero_points=bool(config.get("zero_point")) or "gptq" in method,
            lm_head=config.get("lm_head") is True,
            attention=attention,
        )
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return Quantization("mxfp4", 4, 32, attention=attention)
    if "fp4" in method or str(config.get("quant_algo", "")).upper() == "NVFP4":
        return Quantization("nvfp4", 4, 16, "fp4", attention=attention)
    if "fp8" in method or str(config.get("quant_algo", "")).upper().startswith("FP8"):
        return Quantization(method, 8, activations="fp8", attention=attention)
    if "int8" in method or method in ("experts_int8",):
        return Quantization(method, 8)
    return None


def with_settings(found: Quantization | None, settings: Mapping[str, Any]) -> Quantization | None:
    """The quantization of a run: the config's, or where it has none what the engine was told to do when loading."""
    asked = str(settings.get("quantization") or "").lower()
    if found is not None or asked in ("", "none", "null"):
        return found
    if asked.startswith("fp8") or asked in ("ptpc_fp8", "fbgemm_fp8"):
        return Quantization(asked, 8, activations="fp8", source="settings")
    if asked in ("experts_int8", "int8_per_channel_weight_only"):
        return Quantization(asked, 8, source="settings")
    if asked in ("mxfp8",):
        return Quantization(asked, 8, 32, "fp8", source="settings")
    if asked == "bitsandbytes":
        return Quantization(asked, 4, 64, source="settings")
    return None


_KV_BYTES = {
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "int8": 1.0, "bfloat16": 2.0, "float16": 2.0,
    "half": 2.0, "float32": 4.0,
}  # fmt: skip


def kv_element_bytes(settings: Mapping[str, Any], dtype: str) -> float | None:
    """Bytes of one number in the KV cache; None for a `kv_cache_dtype` whose layout is not known here.

    Parameters
    ----------
    settings
        The engine's; `auto`, or nothing said, is the model's `dtype`.
    """
    asked = str(settings.get("kv_cache_dtype") or settings.get("cache_dtype") or "auto").lower().removeprefix("torch.")
    return _KV_BYTES.get(dtype if asked == "auto" else asked)


def _compressed(config: Mapping[str, Any], method: str, attention: bool) -> Quantization | None:
    groups = config["config_groups"]
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(weights, Mapping):
        return None
    bits = _positive(_number(weights, "num_bits"))
    if bits is None:
        return None
    inputs = first.get("input_activations")
    activations = None
    if isinstance(inputs, Mapping):
        kind = "fp" if inputs.get("type") == "float" else "int"
        activations = f"{kind}{_number(inputs, 'num_bits') or bits}"
    group = _number(weights, "group_size")
    return Quantization(
        "nvfp4" if "nvfp4" in str(config.get("format")) else method,
        bits,
        group if group and group > 0 else None,
        activations,
        zero_points=weights.get("symmetric") is False,
        lm_head="lm_head" in str(first.get("targets")),
        attention=attention,
    )


def _positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    return next((v for n in names if isinstance(v := config.get(n), int) and not isinstance(v, bool)), None)
