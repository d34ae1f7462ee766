"""Shapes from config.json: sizes one can count by hand, every spelling, and what is missing."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.model.quantization import Quantization, kv_element_bytes, quantization_of, with_settings
from perflab.analysis.model.shape import Missing, ModelShape, model_shape
from perflab.analysis.model.workload import Split, split_of, stage_layers, workload

TINY = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 2, "intermediate_size": 10, "vocab_size": 64, "dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {
    **TINY, "model_type": "qwen3_moe", "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
}  # fmt: skip
LATENT = {
    **TINY, "model_type": "deepseek_v3", "kv_lora_rank": 4, "q_lora_rank": 5, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 1, "v_head_dim": 2,
}  # fmt: skip


def shape(config: dict, **more: object) -> ModelShape:
    found = model_shape({**config, **more})
    assert isinstance(found, ModelShape), found
    return found


def test_parameters_of_a_tiny_model_by_hand() -> None:
    work = workload(shape(TINY))
    by_hand = {"qkv": 8 * (4 + 2 + 2) * 2, "o": 4 * 2 * 8, "mlp up": 8 * 2 * 10, "mlp down": 10 * 8}
    assert {one.name: one.weight_bytes / 2 for one in work.linear} == by_hand
    assert work.lm_head is not None
    assert work.lm_head.weight_bytes == work.embedding_bytes == 8 * 64 * 2
    assert work.weight_bytes == 2 * (sum(by_hand.values()) + 2 * 8 * 64)
    assert work.flops_per_token == 2 * sum(by_hand.values())
    assert work.kv_bytes_per_token == 2 * 2 * 2 * 2, "key and value of 2 heads of 2, two bytes each"


def test_a_tied_embedding_counts_once() -> None:
    tied, untied = (workload(shape(TINY, tie_word_embeddings=value)) for value in (True, False))
    assert untied.weight_bytes - tied.weight_bytes == 8 * 64 * 2
    assert tied.lm_head is not None, "it is read for the logits all the same"
    # On another pipeline stage than the head it is there a second time.
    first = workload(shape({**TINY, "num_hidden_layers": 2}, tie_word_embeddings=True), Split(pipeline=2, stage=0))
    assert first.embedding_bytes == 8 * 64 * 2
    assert first.lm_head is None


def test_tensor_parallel_splits_what_it_can() -> None:
    whole, half, eighth = (workload(shape(TINY), Split(tensor=n)) for n in (1, 2, 4))
    assert half.weight_bytes == whole.weight_bytes / 2
    assert half.kv_bytes_per_token == 8
    # Two KV heads on four ranks: each has one, twice what a fourth would be.
    assert eighth.kv_bytes_per_token == 8
    assert {one.name: one.outer for one in eighth.linear}["qkv"] == (1 + 2) * 2


def test_pipeline_stages_share_the_layers_as_vllm_deals_them() -> None:
    assert [len(stage_layers(10, 4, at)) for at in range(4)] == [2, 3, 3, 2]
    assert [list(stage_layers(4, 2, at)) for at in range(2)] == [[0, 1], [2, 3]]
    split = split_of({"tensor_parallel_size": 2, "pipeline_parallel_size": 2})
    assert [split.of_rank(rank).stage for rank in range(4)] == [0, 0, 1, 1]


def test_experts_are_split_by_width_or_dealt_out() -> None:
    found = shape(EXPERTS)
    assert found.moe is not None
    assert found.moe.layers == (0, 1, 2, 3)
    one = 3 * 8 * 6 * 2  # three matrices of hidden by width, two bytes
    for split, local in ((Split(), 8), (Split(tensor=2, expert=2), 4), (Split(tensor=2), 8)):
        experts = workload(found, split).experts
        assert experts is not None
        assert experts.local == local
        width_share = 1 if split.expert > 1 else 1 / split.tensor
        assert sum(m.weight_bytes for m in experts.matrices) == 4 * local * one * width_share
        # Either way a token's two experts are the same work in all, half of it on each of two ranks.
        assert experts.flops(1) == pytest.approx(4 * 2 * (one / 2) * 2 / split.tensor)


def test_expected_experts_under_uniform_routing() -> None:
    experts = workload(shape(EXPERTS)).experts
    assert experts is not None
    assert experts.expected_touched(0) == 0
    assert experts.expected_touched(1) == pytest.approx(2)
    assert experts.expected_touched(2) == pytest.approx(2 + 2 * (1 - 2 / 8)), (
        "the second token finds new ones 6/8 of the time"
    )
    assert experts.expected_touched(500) == pytest.approx(8)
    data = workload(shape(EXPERTS), split_of({"data_parallel_size": 2, "enable_expert_parallel": True})).experts
    assert data is not None
    assert data.expected_rows(10) == 2 * 10 * 2 / 2, "twice the tokens, half of the experts"


def test_which_layers_have_experts() -> None:
    def layers(**more: object) -> tuple[int, ...]:
        return shape({**EXPERTS, **more}).expert_layers

    assert layers(decoder_sparse_step=2) == (1, 3)
    assert layers(first_k_dense_replace=1) == (1, 2, 3)
    assert layers(mlp_only_layers=[0, 2]) == (1, 3)
    assert layers(interleave_moe_layer_step=2) == (1, 3)
    assert layers(moe_layer_freq=2) == (0, 2)
    dense = workload(shape({**EXPERTS, "first_k_dense_replace": 1}))
    assert {one.name: one.count for one in dense.linear}["mlp up"] == 1
    shared = workload(shape({**EXPERTS, "n_shared_experts": 2}))
    assert {one.name: one.outer for one in shared.linear}["shared expert up"] == 2 * 2 * 6


def test_latent_attention_caches_one_vector_a_token_on_every_rank() -> None:
    whole, half = (workload(shape(LATENT), Split(tensor=n)) for n in (1, 2))
    assert whole.kv_bytes_per_token == half.kv_bytes_per_token == (4 + 1) * 2
    assert {one.name: one.inner * one.outer for one in whole.linear if "mlp" not in one.name} == {
        "qkv down": 8 * (4 + 1 + 5), "q up": 5 * 4 * 4, "kv up": 4 * 4 * 5, "o": 4 * 2 * 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    "gone", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "dtype", "intermediate_size"]
)
def test_what_is_missing_is_named(gone: str) -> None:
    found = model_shape({key: value for key, value in TINY.items() if key != gone})
    assert isinstance(found, Missing)
    assert [key.split("/")[0] for key in found.keys] == [gone]


def test_kinds_that_are_not_modelled_are_refused() -> None:
    assert model_shape({**TINY, "model_type": "mamba2"}) == Missing(unmodelled="mamba2")
    hybrid = model_shape({**TINY, "layer_types": ["full_attention", "linear_attention"]})
    assert hybrid == Missing(unmodelled="linear_attention")
    assert isinstance(model_shape({}), Missing)
    assert isinstance(model_shape({**EXPERTS, "num_experts_per_tok": None}), Missing)


def test_defaults_of_the_format_are_taken_and_said() -> None:
    config = {k: v for k, v in TINY.items() if k not in ("num_key_value_heads", "head_dim", "tie_word_embeddings")}
    found = shape(config)
    assert (found.kv_heads, found.head_dim, found.tied) == (4, 2, False)
    assert found.assumed == ("num_key_value_heads", "head_dim", "tie_word_embeddings")
    assert shape({**config, "model_type": "gemma2"}).tied is True
    assert shape({**config, "model_type": "of tomorrow"}).tied is None


def test_other_spellings_and_nested_configs() -> None:
    old = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 64, "torch_dtype": "float16"}
    found = shape(old)
    assert (found.layers, found.hidden, found.heads, found.intermediate, found.gated) == (2, 8, 2, 32, False)
    inside = shape({"model_type": "some_vl", "text_config": TINY, "vision_config": {"hidden_size": 99}})
    assert inside == shape(TINY)
    # What the language model's part leaves out may stand outside.
    outside = {
        "model_type": "x",
        "torch_dtype": "bfloat16",
        "text_config": {k: v for k, v in TINY.items() if k != "dtype"},
    }
    assert shape(outside).dtype == "bfloat16"


def test_windows() -> None:
    assert shape(TINY, sliding_window=4).sliding_layers == 1
    assert shape(TINY, sliding_window=4, use_sliding_window=False).sliding_window is None
    kinds = ["sliding_attention", "full_attention"]
    assert shape(TINY, num_hidden_layers=2, sliding_window=4, layer_types=kinds).sliding_layers == 1
    assert shape(TINY, num_hidden_layers=6, sliding_window=4, sliding_window_pattern=6).sliding_layers == 5


@pytest.mark.parametrize(
    ("config", "bits", "activations"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4 + 20 / 128, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 20 / 128, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, None),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4 + 8 / 16, "fp4"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, 4 + 8 / 32, None),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "int"}}}}, 8, "int8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 64, "symmetric": True},
            "input_activations": None}}}, 4 + 16 / 64, None),
    ],
)  # fmt: skip
def test_bits_of_a_weight(config: dict, bits: float, activations: str | None) -> None:
    found = quantization_of(config)
    assert found is not None
    assert (found.bits, found.activations) == (bits, activations)
    assert not found.lm_head


def test_a_kind_that_is_not_known_has_no_bits() -> None:
    assert quantization_of({"quant_method": "of tomorrow"}) is None
    assert quantization_of(None) is quantization_of({}) is None


@given(st.dictionaries(
    st.sampled_from(["bits", "quant_method", "quant_algo", "config_groups", "ignore", "group_size", "format"]),
    st.one_of(st.none(), st.integers(-4, 16), st.sampled_from(["awq", "fp8", "mxfp4", "NVFP4", ""]), st.just([1, None]),
              st.just({"g": {"weights": {"num_bits": 4, "group_size": -1}, "targets": 3}}), st.just({"g": 3}),
              st.just({"g": {"weights": {"num_bits": 8}, "input_activations": {"num_bits": "x"}}})),
))  # fmt: skip
def test_no_quantization_config_ends_in_a_traceback(config: dict) -> None:
    found = quantization_of(config)
    assert found is None or found.bits > 0


def test_quantization_made_when_loading_is_in_the_settings() -> None:
    made = with_settings(None, {"quantization": "fp8"})
    assert made is not None
    assert (made.bits, made.activations, made.source) == (8, "fp8", "settings")
    stored = Quantization("awq", 4, 128)
    assert with_settings(stored, {"quantization": "awq_marlin"}) is stored
    assert with_settings(None, {"quantization": None}) is None
    assert shape(TINY).quantization is None
    # The embedding and the LM head stay as they were.
    quantized = workload(dataclasses.replace(shape(TINY), quantization=made))
    assert quantized.embedding_bytes == 8 * 64 * 2
    assert (
        sum(one.weight_bytes for one in quantized.linear)
        == sum(one.weight_bytes for one in workload(shape(TINY)).linear) / 2
    )
    assert quantized.peak_dtype == "fp8"


def test_the_kv_caches_format() -> None:
    assert kv_element_bytes({}, "bfloat16") == kv_element_bytes({"kv_cache_dtype": "auto"}, "float16") == 2
    assert kv_element_bytes({"kv_cache_dtype": "fp8_e4m3"}, "bfloat16") == 1
    assert kv_element_bytes({"cache_dtype": "fp8"}, "bfloat16") == 1
    assert kv_element_bytes({"kv_cache_dtype": "of tomorrow"}, "bfloat16") is None
    assert workload(shape(TINY), settings={"kv_cache_dtype": "of tomorrow"}).kv_bytes_per_token is None


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 64))
def test_more_of_anything_is_never_less(layers: int, heads: int, vocab: int) -> None:
    def total(**more: int) -> float:
        return workload(
            shape({**TINY, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocab, **more})
        ).weight_bytes

    assert total(num_hidden_layers=layers + 1) > total()
    assert total(num_attention_heads=heads + 1) > total()
    assert total(intermediate_size=11) > total(intermediate_size=10)
    assert total(vocab_size=vocab + 64) > total()


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**6), st.floats(allow_nan=True), st.text(max_size=5),
    st.lists(st.one_of(st.integers(-3, 9), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.sampled_from(["bits", "quant_method", "config_groups", "ignore", "group_size"]), st.one_of(
        st.none(), st.integers(-4, 16), st.text(max_size=4), st.just({"g": {"weights": {"num_bits": 4}}}),
        st.just({"g": 3}), st.just([1]))),
)  # fmt: skip


@given(st.sampled_from([TINY, EXPERTS, LATENT]), st.data())
def test_no_config_ends_in_a_traceback(base: dict, data: st.DataObject) -> None:
    keys = [
        *base, "layer_types", "mlp_only_layers", "moe_layers", "first_k_dense_replace", "decoder_sparse_step",
        "sliding_window", "max_window_layers", "sliding_window_pattern", "quantization_config", "text_config",
        "use_sliding_window", "moe_layer_freq", "n_shared_experts", "torch_dtype", "multi_query",
    ]  # fmt: skip
    odd = {key: data.draw(ODD) for key in data.draw(st.lists(st.sampled_from(keys), max_size=4, unique=True))}
    found = model_shape({**base, **odd})
    if isinstance(found, ModelShape):
        for split in (Split(), Split(tensor=8, pipeline=3, stage=2, expert=4)):
            work = workload(found, split)
            assert work.weight_bytes >= 0
            assert work.flops_per_token >= 0


SIZES = {
    "llama3-8b-bf16": 0.001, "llama3-8b-eager": 0.001, "llama3-8b-tp2": 0.001, "llama3-70b-bf16-tp2": 0.001,
    "llama3-8b-fp8": 0.005,
    # Machete unpacks AWQ's 4-bit zero points to 16 bits.
    "llama3-8b-awq": 0.025, "llama3-70b-awq-tp2": 0.025,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_agree_with_what_vllm_logged(name: str, root: Path) -> None:
    from perflab.read.files import read_text
    from perflab.runs import open_run

    run = open_run(root / "data" / "recorded" / name)
    assert run.manifest.model_config is not None and run.manifest.log is not None
    log = read_text(run.file(run.manifest.log))[0]
    found = shape(json.loads(read_text(run.file(run.manifest.model_config))[0]))
    settings = run.manifest.engine.settings
    found = dataclasses.replace(found, quantization=with_settings(found.quantization, settings))
    work = workload(found, split_of(settings), settings)
    loaded, cache, tokens = (
        float(re.search(pattern, log)[1].replace(",", ""))
        for pattern in (
            r"Model loading took ([\d.]+) GiB",
            r"Available KV cache memory: ([\d.]+) GiB",
            r"GPU KV cache size: ([\d,]+)",
        )
    )  # fmt: skip
    assert work.weight_bytes / 2**30 == pytest.approx(loaded, rel=SIZES[name])
    assert work.weight_bytes / 2**30 <= loaded + 0.005, "what the model needs is in what was loaded"
    assert work.kv_bytes_per_token is not None
    assert tokens * work.kv_bytes_per_token / 2**30 == pytest.approx(cache, abs=0.01)
