"""Which formats fit: a model, a machine, a version of vLLM, widths after the split."""

import json

import pytest

from perflab import places
from perflab.analysis.model.shape import model_shape
from perflab.analysis.quantization.layers import linear_layers
from perflab.analysis.quantization.suitability import Machine, suitability
from perflab.knowledge.quantization_formats import capability_of, format_named, format_names

LLAMA = json.loads((places.experiments().parent / "models" / "llama3-8b" / "config.json").read_text())
# Widths of SmolLM2-135M: 576 is 4.5 x 128.
SMALL = {**LLAMA, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
         "head_dim": 64}  # fmt: skip
H200, A100, B200 = (Machine.of_gpu(name) for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "B200"))
H100X4 = Machine.of_gpu("H100", gpus=4)
EPYC = Machine("cpu", "a CPU", flags=frozenset({"avx512f"}))


def fit(name, config=LLAMA, machine=H200, version="0.25.1", **more):
    return suitability(format_named(name), model_shape(config), machine, version=version, **{"made_up": True, **more})


def test_all_formats_fit_llama_on_hopper():
    assert {name: fit(name).state for name in format_names()} == dict.fromkeys(format_names(), "fits")


def test_fp8_on_ampere_is_weight_only():
    found = fit("fp8", machine=A100)
    assert found.state == "remark"
    assert "weight-only" in found.remarks[0]
    assert "8.9" in found.remarks[0]
    # Rows of scales need native FP8: vLLM has no weight-only kernel for them online.
    assert fit("fp8-channel", machine=A100).state == "refused"
    assert fit("int8", machine=A100).state == "fits"


def test_int8_ends_before_blackwell():
    assert "take FP8" in fit("int8", machine=B200).reasons[0]
    assert fit("fp8", machine=B200).state == "fits"


@pytest.mark.parametrize(
    ("name", "version", "state"),
    [("fp8-block", "0.10.2", "refused"), ("fp8-block", "0.25.1", "fits"), ("fp8", "0.10.2", "fits")],
)
def test_versions(name, version, state):
    assert fit(name, version=version).state == state


def test_groups_have_to_divide_the_inputs():
    found = fit("int4-g128", SMALL)
    assert found.state == "refused"
    assert "qkv (576 x 960), o (576 x 576), mlp up (576 x 3072)" in found.reasons[0]
    assert "down" not in found.reasons[0]
    assert fit("int4-g64", SMALL).state == "remark"
    assert "Marlin pads" in " ".join(fit("int4-g64", SMALL).remarks)
    # Before Marlin padded, no kernel took such widths.
    assert "no kernel of vLLM 0.10.2 takes qkv" in fit("int4-g64", SMALL, version="0.10.2").reasons[0]
    assert "know groups of 32, 64, 128, not of 96" in " ".join(fit("int4-g96").reasons)


def test_groups_after_the_split():
    """1792 inputs of `down` are 14 x 128; half of them are 7 x 128, a quarter is not a multiple."""
    config = {**LLAMA, "intermediate_size": 1792}
    assert fit("int4-g128", config, args={"tensor_parallel_size": 2}, machine=H100X4).state != "refused"
    found = fit("int4-g128", config, args={"tensor_parallel_size": 4}, machine=H100X4)
    assert "mlp down (448 x 4096), split over 4 GPUs" in found.reasons[0]


def test_blocks_need_inputs_of_whole_groups():
    assert "128 inputs share a scale" in fit("fp8-block", SMALL).reasons[0]


def test_checkpoints():
    assert "needs a checkpoint of method awq" in fit("awq", made_up=False).reasons[0]
    assert fit("awq", made_up=False, has_checkpoint=True, checkpoint_method="awq").state == "fits"
    assert "method gptq" in fit("awq", has_checkpoint=True, checkpoint_method="gptq").reasons[0]
    assert "quantized already" in fit("fp8", has_checkpoint=True, checkpoint_method="awq").reasons[0]


def test_types_of_weights():
    assert "float32" in fit("fp8", args={"dtype": "float32"}).reasons[0]
    assert fit("fp8", args={"dtype": "half"}).state == "fits"
    # With `auto` vLLM runs a float32 model in 16 bits.
    assert fit("fp8", {**LLAMA, "dtype": "float32"}).state == "fits"


def test_online_int8_of_a_dense_model_is_refused():
    args = {"quantization": "int8_per_channel_weight_only"}
    assert "nothing would be quantized" in fit("fp8", args=args).reasons[0]
    moe = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
    assert fit("fp8", moe, args=args).state == "fits"


def test_gpus_and_heads():
    assert "there are 1 GPUs" in fit("baseline", args={"tensor_parallel_size": 2}).reasons[0]
    assert "cannot be split" in fit("baseline", SMALL, args={"tensor_parallel_size": 2}, machine=H100X4).reasons[0]


def test_cpu():
    for name in ("baseline", "kv-fp8", "int8", "int4-g32", "int4-asym-g32", "fp8-channel"):
        assert fit(name, SMALL, EPYC, "0.32.0").state == "fits", name
    assert fit("fp8", SMALL, EPYC, "0.32.0").state == "refused"
    assert "without AMX" in fit("fp8", SMALL, EPYC, "0.32.0").reasons[0]
    assert fit("fp8", SMALL, Machine("cpu", "new", flags=frozenset({"avx512f", "amx_tile"}))).state == "fits"
    assert "avx512f" in fit("kv-fp8", SMALL, Machine("cpu", "old", flags=frozenset()), "0.32.0").reasons[0]
    odd = {**SMALL, "intermediate_size": 1544}
    assert "multiples of 32" in " ".join(fit("int4-g64", odd, EPYC, "0.32.0").reasons)
    assert fit("fp8-block", LLAMA, EPYC).state == "refused"


def test_what_is_not_known_keeps_nothing_from_running():
    found = fit("fp8", machine=Machine.of_gpu("GPU of tomorrow"))
    assert found.runs
    assert "not known here" in found.remarks[0]
    hybrid = fit("fp8", {**LLAMA, "model_type": "mamba2"})
    assert hybrid.runs
    assert suitability(format_named("fp8"), None, H200).state == "fits"


def test_layers_of_a_split_model():
    names = {one.name: (one.inputs, one.width) for one in linear_layers(model_shape(LLAMA), 2)}
    assert names == {
        "qkv": (4096, 3072), "o": (2048, 4096), "mlp up": (4096, 14336), "mlp down": (7168, 4096),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("NVIDIA H200", 90), ("NVIDIA A100-SXM4-80GB", 80), ("NVIDIA L4", 89), ("NVIDIA L40S", 89), ("Tesla T4", 75),
     ("NVIDIA A10G", 86), ("NVIDIA GeForce RTX 4090", 89), ("NVIDIA B200", 100), ("something", None), (None, None),
     ("NVIDIA GH200 480GB", 90), ("H2000", None), ("NVIDIA H100 80GB HBM3", 90), ("Tesla V100-SXM2-16GB", 70)],
)  # fmt: skip
def test_compute_capability(name, value):
    assert capability_of(name) == value
