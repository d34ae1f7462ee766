"""The shape of a model by its Hugging Face config.json: sizes of what a step multiplies and reads.

What the file does not tell is named (`Missing`), not guessed; where its format has a default of its own, that counts
and `assumed` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflab.analysis.model.quantization import Quantization, quantization_of
from perflab.knowledge.model_types import is_gated, names_of, tied_by_default, unmodelled, value_of

DTYPE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "half": 16, "float": 32}


@dataclass(frozen=True)
class Moe:
    """Layers of experts.

    Attributes
    ----------
    layers
        Which of the model's layers have experts; the others have a plain MLP.
    intermediate, shared_intermediate
        Width of one expert, and of the experts every token goes through together (0: none).
    """

    experts: int
    per_token: int
    intermediate: int
    shared_intermediate: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: what is cached is one compressed vector a token, not keys and values a head."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class ModelShape:
    """A decoder of attention and MLP layers.

    Attributes
    ----------
    tied
        Whether the LM head is the embedding matrix; None where neither the file nor its model_type tells.
    gated
        The MLP has three matrices (gate, up, down), else two.
    sliding_window, sliding_layers
        Tokens a layer with a window looks back at, and how many layers have one.
    dtype
        Of weights that are not quantized, as the file has it.
    assumed
        Where the format's own default stands for what the file does not say, a note each.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    dtype: str
    tied: bool | None = False
    gated: bool = True
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: int | None = None
    sliding_layers: int = 0
    quantization: Quantization | None = None
    assumed: tuple[str, ...] = ()

    @property
    def expert_layers(self) -> tuple[int, ...]:
        """Layers with experts."""
        return self.moe.layers if self.moe else ()

    def to_json(self) -> dict[str, Any]:
        """What a reader needs to recognise the model."""
        found: dict[str, Any] = {
            "model_type": self.model_type,
            "layers": self.layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate": self.intermediate,
            "vocab": self.vocab,
            "dtype": self.dtype,
        }
        if self.moe:
            found |= {"experts": self.moe.experts, "experts_per_token": self.moe.per_token}
        if self.quantization:
            found["quantization"] = self.quantization.to_json()
        return found


@dataclass(frozen=True)
class Missing:
    """Why there is no shape: keys the file lacks, or a kind of model whose work is not modelled."""

    keys: tuple[str, ...] = ()
    unmodelled: str | None = None


def model_shape(config: Mapping[str, Any]) -> ModelShape | Missing:
    """The shape a config.json describes.

    Parameters
    ----------
    config
        The file's content. Of a multimodal model the language model counts (`text_config`, `llm_config`,
        `thinker_config`); its towers are not in the shape.
    """
    text = text_config(config)
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    kinds = [str(kind) for kind in _list(text, "layer_types")]
    if found := unmodelled(model_type, kinds):
        return Missing(unmodelled=found)
    layers, hidden, heads, vocab = (
        _whole(text, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    )
    dtype = _dtype(text, config)
    moe, moe_lacks = _moe(text, layers or 0)
    intermediate = _whole(text, "intermediate_size_mlp") or _whole(text, "intermediate_size")
    if intermediate is None and model_type == "gpt2" and hidden:
        intermediate = 4 * hidden
    only_experts = moe is not None and len(moe.layers) == layers
    lacks = [
        *(key for key, value in (("num_hidden_layers", layers), ("hidden_size", hidden)) if not value),
        *(key for key, value in (("num_attention_heads", heads), ("vocab_size", vocab)) if not value),
        *(["intermediate_size"] if not intermediate and not only_experts else []),
        *(["dtype"] if dtype is None else []),
        *moe_lacks,
    ]
    mla, mla_lacks = _mla(text)
    lacks += mla_lacks
    if not (layers and hidden and heads and vocab and dtype) or lacks:
        return Missing(tuple("/".join(names_of(key)) for key in lacks))
    assumed = []
    kv_heads = 1 if text.get("multi_query") is True else _whole(text, "num_key_value_heads")
    if kv_heads is None:
        kv_heads = heads
        assumed.append("num_key_value_heads")
    head_dim = _whole(text, "head_dim")
    if head_dim is None:
        head_dim = hidden // heads
        assumed.append("head_dim")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    if not isinstance(tied, bool):
        tied = tied_by_default(model_type)
        assumed.append("tie_word_embeddings")
    window, sliding = _sliding(text, kinds, layers)
    return ModelShape(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate or 0,
        vocab=vocab,
        dtype=dtype,
        tied=tied,
        gated=is_gated(model_type),
        moe=moe,
        mla=mla,
        sliding_window=window,
        sliding_layers=sliding,
        quantization=quantization_of(config.get("quantization_config") or text.get("quantization_config")),
        assumed=tuple(assumed),
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config.json that is about the language model."""
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return text_config(inner)
    return config


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = value_of(config, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _list(config: Mapping[str, Any], key: str) -> list[Any]:
    value = config.get(key)
    return value if isinstance(value, list) else []


def _dtype(text: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    for part in (text, config):
        for name in ("dtype", "torch_dtype"):
            if isinstance(value := part.get(name), str):
                return value.removeprefix("torch.")
    return None


def _moe(text: Mapping[str, Any], layers: int) -> tuple[Moe | None, list[str]]:
    experts = _whole(text, "num_experts")
    if not experts or experts == 1:
        return None, []
    per_token = _whole(text, "num_experts_per_tok")
    width = _whole(text, "moe_intermediate_size") or _whole(text, "intermediate_size")
    lacks = [k for k, v in (("num_experts_per_tok", per_token), ("moe_intermediate_size", width)) if not v]
    if not per_token or not width:
        return None, lacks
    shared = _whole(text, "shared_expert_intermediate_size") or width * (_whole(text, "n_shared_experts") or 0)
    if not shared and str(text.get("model_type", "")).startswith("llama4"):
        shared = width
    return Moe(experts, per_token, width, shared, _expert_layers(text, layers)), []


def _expert_layers(text: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Every n-th layer (`decoder_sparse_step`, `moe_layer_freq`, `interleave_moe_layer_step`) but the first dense."""
    listed = _list(text, "moe_layers")
    if listed and all(isinstance(at, int) for at in listed):
        return tuple(sorted({at for at in listed if 0 <= at < layers}))
    plain = {at for at in _list(text, "mlp_only_layers") if isinstance(at, int)}
    first = text.get("first_k_dense_replace")
    first = first if isinstance(first, int) else 0
    step = _whole(text, "decoder_sparse_step") or _whole(text, "interleave_moe_layer_step")
    every = _whole(text, "moe_layer_freq")
    found = []
    for at in range(layers):
        due = (at + 1) % step == 0 if step else at % every == 0 if every else True
        if due and at >= first and at not in plain:
            found.append(at)
    return tuple(found)


def _mla(text: Mapping[str, Any]) -> tuple[Mla | None, list[str]]:
    rank = _whole(text, "kv_lora_rank")
    if rank is None:
        return None, []
    parts = {key: _whole(text, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
    lacks = [key for key, value in parts.items() if not value]
    if lacks:
        return None, lacks
    nope, rope, value = (part or 0 for part in parts.values())
    return Mla(rank, _whole(text, "q_lora_rank"), nope, rope, value), []


def _sliding(text: Mapping[str, Any], kinds: list[str], layers: int) -> tuple[int | None, int]:
    window = _whole(text, "sliding_window")
    if window is None or text.get("use_sliding_window") is False:
        return None, 0
    if kinds:
        count = sum(kind == "sliding_attention" for kind in kinds[:layers])
    elif pattern := _whole(text, "sliding_window_pattern"):
        count = sum((at + 1) % pattern != 0 for at in range(layers))
    elif (top := text.get("max_window_layers")) is not None and isinstance(top, int):
        count = max(0, layers - top)
    else:
        count = layers
    return (window, count) if count else (None, 0)
