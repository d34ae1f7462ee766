"""The linear layers of a model as one rank has them: widths that a format's groups, blocks and tiles have to divide."""

from __future__ import annotations

from dataclasses import dataclass

from perflab.analysis.model.shape import ModelShape


@dataclass(frozen=True)
class Layer:
    """One kind of linear layer of a rank, merged as vLLM merges them.

    Attributes
    ----------
    inputs
        Width along which groups lie.
    outputs
        Widths of the merged matrices; their sum is the kernel's.
    """

    name: str
    inputs: float
    outputs: tuple[float, ...]

    @property
    def width(self) -> float:
        """Outputs of the merged matrix."""
        return sum(self.outputs)


def linear_layers(shape: ModelShape, tensor: int = 1) -> list[Layer]:
    """The linear layers of a decoder split over `tensor` ranks; experts are each split like an MLP."""
    heads, kv_heads = shape.heads / tensor, max(1.0, shape.kv_heads / tensor)
    found: list[Layer] = []
    if mla := shape.mla:
        down = (float(mla.q_lora_rank or 0), float(mla.kv_lora_rank + mla.qk_rope_head_dim))
        found.append(Layer("qkv down", shape.hidden, tuple(part for part in down if part)))
        q_out = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        found.append(Layer("q up", float(mla.q_lora_rank or shape.hidden), (q_out,)))
        found.append(Layer("kv up", float(mla.kv_lora_rank), (heads * (mla.qk_nope_head_dim + mla.v_head_dim),)))
        found.append(Layer("o", heads * mla.v_head_dim, (float(shape.hidden),)))
    else:
        size = shape.head_dim
        found.append(Layer("qkv", float(shape.hidden), (heads * size, kv_heads * size, kv_heads * size)))
        found.append(Layer("o", heads * size, (float(shape.hidden),)))
    widths = [("mlp", shape.intermediate)] if shape.intermediate and len(shape.expert_layers) < shape.layers else []
    if shape.moe and shape.expert_layers:
        widths.append(("expert", shape.moe.intermediate))
        widths += [("shared expert", shape.moe.shared_intermediate)] if shape.moe.shared_intermediate else []
    for name, width in widths:
        part = width / tensor
        found.append(Layer(f"{name} up", float(shape.hidden), (part, part) if shape.gated else (part,)))
        found.append(Layer(f"{name} down", part, (float(shape.hidden),)))
    return found
