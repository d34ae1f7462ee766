"""Parts and layers by the order of kernels: sequences one can read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.attribution.position import places, repeating_block, token

HEAD = ["copy", "sample", "embed", "norm", "gemm", "rotary", "kv", "attention"]
BETWEEN = ["gemm", "norm", "gemm", "act", "gemm", "norm", "gemm", "rotary", "kv", "attention"]
TAIL = ["gemm", "norm", "gemm", "act", "gemm", "norm", "gather", "gemm", "copy", "sample"]


def dense(layers: int) -> list[str]:
    return [*HEAD, *BETWEEN * (layers - 1), *TAIL]


def test_a_dense_decoder_reads_as_its_parts() -> None:
    found = places(dense(4))
    assert (found.n_layers, found.alike) == (4, 1.0)
    told = list(zip(found.modules, found.layers.tolist(), strict=True))
    assert told[:8] == [
        ("inputs", -1), ("inputs", -1), ("embed_tokens", -1), ("input_layernorm", 0), ("self_attn.qkv_proj", 0),
        ("self_attn.rotary", 0), ("self_attn.kv_cache", 0), ("self_attn.attn", 0),
    ]  # fmt: skip
    assert told[8:18] == [
        ("self_attn.o_proj", 0), ("post_attention_layernorm", 0), ("mlp.gate_up_proj", 0), ("mlp.act_fn", 0),
        ("mlp.down_proj", 0), ("input_layernorm", 1), ("self_attn.qkv_proj", 1), ("self_attn.rotary", 1),
        ("self_attn.kv_cache", 1), ("self_attn.attn", 1),
    ]  # fmt: skip
    assert told[-10:] == [
        ("self_attn.o_proj", 3), ("post_attention_layernorm", 3), ("mlp.gate_up_proj", 3), ("mlp.act_fn", 3),
        ("mlp.down_proj", 3), ("norm", -1), ("lm_head", -1), ("lm_head", -1), ("sampler", -1), ("sampler", -1),
    ]  # fmt: skip


def test_what_belongs_to_a_matmul_goes_with_it() -> None:
    """cuBLASLt clears a workspace before and adds up split-K after; FP8 quantizes before; tensor parallel reduces."""
    between = [
        "set", "gemm", "gemm_part", "comm", "norm", "gemm", "act", "set", "set", "gemm", "gemm_part", "comm", "norm",
        "gemm", "rotary", "kv", "attention",
    ]  # fmt: skip
    found = places([*HEAD, *between * 3, *TAIL])
    assert found.modules[8:19] == [
        "self_attn.o_proj", "self_attn.o_proj", "self_attn.o_proj", "self_attn.communication",
        "post_attention_layernorm", "mlp.gate_up_proj", "mlp.act_fn", "mlp.down_proj", "mlp.down_proj",
        "mlp.down_proj", "mlp.down_proj",
    ]  # fmt: skip
    assert found.modules[19] == "mlp.communication"


def test_experts_and_their_router() -> None:
    between = ["gemm", "norm", "gemm", "point", "moe", "moe", "moe", "norm", "gemm", "rotary", "kv", "attention"]
    tail = [*between[:7], "norm", "gemm"]
    found = places([*HEAD, *between * 3, *tail])
    assert found.modules[8:15] == [
        "self_attn.o_proj", "post_attention_layernorm", "mlp.gate", "mlp.other", "mlp.experts", "mlp.experts",
        "mlp.experts",
    ]  # fmt: skip
    assert found.modules[-2:] == ["norm", "lm_head"]


def test_norms_of_q_and_k_and_gemma_s_four_norms() -> None:
    qwen = ["gemm", "norm", "gemm", "act", "gemm", "norm", "gemm", "norm", "norm", "rotary", "kv", "attention"]
    found = places([*HEAD, *qwen * 3, *TAIL])
    assert found.modules[14:17] == ["self_attn.qkv_proj", "self_attn.qk_norm", "self_attn.qk_norm"]
    gemma = ["gemm", "norm", "norm", "gemm", "act", "gemm", "norm", "norm", "gemm", "rotary", "kv", "attention"]
    found = places([*HEAD, *gemma * 3, *TAIL])
    assert found.modules[8:16] == [
        "self_attn.o_proj", "post_attention_layernorm", "pre_feedforward_layernorm", "mlp.gate_up_proj", "mlp.act_fn",
        "mlp.down_proj", "post_feedforward_layernorm", "input_layernorm",
    ]  # fmt: skip
    assert found.layers[13:17].tolist() == [0, 0, 1, 1], "the norm behind the MLP is its own layer's"


def test_a_fused_embedding_is_no_layers_own() -> None:
    found = places(["copy", "embed_norm", "gemm", "rotary", "kv", "attention", *BETWEEN * 3, *TAIL])
    assert found.modules[1] == "embed_tokens + input_layernorm"
    assert found.layers[:3].tolist() == [-1, -1, 0]


@pytest.mark.parametrize("tokens", [
    [],
    ["gemm"] * 50,
    dense(2),
    ["gemm", "norm", "gemm", "act", "gemm"] * 10,
], ids=["nothing", "only matmuls", "two layers", "no attention"])  # fmt: skip
def test_without_evidence_nothing_is_named(tokens: list[str]) -> None:
    found = places(tokens)
    assert found.n_layers == 0
    assert set(found.modules) <= {None}
    assert (found.layers == -1).all()


def test_parallel_blocks_are_not_forced_into_the_usual_order() -> None:
    """Attention and MLP side by side before one norm: which matmul is whose cannot be told."""
    between = ["gemm", "gemm", "act", "gemm", "norm", "gemm", "rotary", "kv", "attention"]
    found = places([*HEAD, *between * 5, "gemm", "gemm", "act", "gemm", "norm", "gemm", "sample"])
    assert "mlp.gate_up_proj" not in found.modules
    assert "self_attn.o_proj" not in found.modules


def test_low_rank_queries_get_no_name_they_do_not_have() -> None:
    """MLA: two matmuls with a norm between them lead to Q."""
    mla = ["gemm", "gemm", "norm", "gemm", "act", "gemm", "norm", "gemm", "norm", "gemm", "rotary", "kv", "attention"]
    found = places([*HEAD, *mla * 4, *TAIL])
    assert "self_attn.qkv_proj" not in found.modules[8:-10]
    assert found.n_layers == 5


def test_a_draft_model_is_not_counted() -> None:
    draft = [
        "embed",
        "norm",
        "gemm",
        "rotary",
        "kv",
        "attention",
        "gemm",
        "norm",
        "gemm",
        "act",
        "gemm",
        "norm",
        "gemm",
    ]
    assert places([*dense(5), *draft, "sample"]).n_layers == 5


def test_layers_in_disorder_are_not_believed() -> None:
    shapes = (
        ["gemm", "norm", "gemm", "act", "gemm", "norm", "gemm", "attention"],
        ["gemm", "norm", "moe", "norm", "gemm", "attention"],
        ["gemm", "comm", "norm", "moe", "comm", "norm", "gemm", "rotary", "attention"],
        ["norm", "gemm", "act", "norm", "gemm", "attention"],
        ["gemm", "point", "norm", "gemm", "act", "comm", "norm", "gemm", "norm", "attention"],
    )
    found = places([*HEAD, *(what for shape in shapes for what in shape), *TAIL])
    assert found.alike < 0.8
    assert found.n_layers == 0


TOKENS = (
    "gemm", "norm", "act", "attention", "kv", "copy", "set", "comm", "moe", "sample", "embed", "gemm_part", "point",
    "rotary", "helper", "embed_norm", "gather", "other",
)  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=80))
def test_any_order_is_survived_and_never_numbered_beyond_its_layers(tokens: list[str]) -> None:
    found = places(tokens)
    assert len(found.modules) == len(found.layers) == len(tokens)
    assert found.layers.max(initial=-1) < max(found.n_layers, 1)
    assert found.n_layers or set(found.modules) <= {None}


def test_a_repeating_block_is_found_with_its_rest() -> None:
    assert repeating_block([9, 8, *[1, 2, 3] * 5, 7]) == (2, 3, 5)
    assert repeating_block([1, 2, 3, 4, 5, 6]) == (0, 0, 0)
    assert repeating_block([]) == (0, 0, 0)
    assert repeating_block([4] * 6) == (0, 1, 6), "the shortest block"


@pytest.mark.parametrize(("name", "category", "kind", "expected"), [
    ("triton_red_fused_fused_add_rms_norm_0", "norm_act", "kernel", "norm"),
    ("triton_poi_fused_mul_silu_slice_1", "norm_act", "kernel", "act"),
    ("triton_poi_fused_3", "norm_act", "kernel", "rotary"),
    ("triton_red_fused__to_copy_embedding_rms_norm_0", "norm_act", "kernel", "embed_norm"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16>(long)", "norm_act", "kernel", "rotary"),
    ("void cublasLt::splitKreduce_kernel<32, 16>(int)", "gemm", "kernel", "gemm_part"),
    ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::DynamicScheduler> > >",
     "attention", "kernel", "attention"),
    ("void flash::prepare_varlen_num_blocks_kernel<1, false>(int)", "attention", "kernel", "helper"),
    ("triton_red_fused__to_copy_abs_clamp_cutlass_scaled_mm_rms_norm_0", "quantize", "kernel", "norm"),
    ("Memset (Device)", "memory", "memset", "set"),
    ("ncclDevKernel_AllReduce", "communication", "kernel", "comm"),
])  # fmt: skip
def test_tokens(name: str, category: str, kind: str, expected: str) -> None:
    assert token(name, category, kind) == expected
