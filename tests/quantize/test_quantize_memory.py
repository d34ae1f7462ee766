"""Predicted memory, held against what vLLM logged on an H200."""

import json

import pytest

from perflab import places
from perflab.analysis.model.shape import model_shape
from perflab.analysis.quantization.memory import difference, predicted_memory
from perflab.knowledge.quantization_formats import format_named
from perflab.read.server_log import read_server_log
from perflab.runs import open_run

GIB = 1024**3
H200 = round(139.8 * GIB)
MODELS = places.experiments().parent / "models"


def shape(name, **changes):
    return model_shape({**json.loads((MODELS / name / "config.json").read_text()), **changes})


@pytest.mark.parametrize(
    ("run", "kind", "model", "args"),
    [
        ("llama3-8b-bf16", "baseline", "llama3-8b", {}),
        ("llama3-8b-fp8", "fp8", "llama3-8b", {}),
        ("llama3-8b-awq", "awq", "llama3-8b", {}),
        ("llama3-70b-bf16-tp2", "baseline", "llama3-70b", {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.95}),
        ("llama3-70b-awq-tp2", "awq", "llama3-70b", {"tensor_parallel_size": 2}),
    ],
)
def test_recorded_runs_within_half_a_percent(run, kind, model, args):
    """Weights to 0.6 %, tokens of the cache to 0.5 %: as docs/quantization.md says."""
    opened = open_run(places.recorded() / run)
    log = read_server_log(opened.file(opened.manifest.log))
    found = predicted_memory(
        format_named(kind), shape(model), {"max_model_len": 4096, **args}, gpu_bytes=H200, capability=90
    )
    weights = log.memory[log.memory["component"] == "weights"]["bytes"].max()
    assert abs(difference(found.weights_bytes, weights)) < 0.006
    assert abs(difference(found.kv_tokens, log.kv_cache_tokens)) < 0.005
    assert abs(difference(found.max_concurrency, log.max_concurrency)) < 0.005


def test_a_recorded_mixture_of_experts():
    """Qwen3-30B-A3B in BF16 over two ranks that share its experts."""
    opened = open_run(places.recorded() / "qwen3-30b-a3b-ep2")
    log = read_server_log(opened.file(opened.manifest.log))
    args = {"tensor_parallel_size": 2, "enable_expert_parallel": True, "max_model_len": 4096}
    found = predicted_memory(format_named("baseline"), shape("qwen3-30b-a3b"), args, gpu_bytes=H200, capability=90)
    weights = log.memory[log.memory["component"] == "weights"]["bytes"].max()
    assert abs(difference(found.weights_bytes, weights)) < 0.006


def test_scales_of_experts_are_counted_for_each():
    """Rows of scales: each of 128 experts in 48 layers has its own, attention one a layer."""
    args = {"tensor_parallel_size": 1}
    tensor, rows = (
        predicted_memory(format_named(n), shape("qwen3-30b-a3b"), args).weights_bytes for n in ("fp8", "int8")
    )
    attention = 48 * (32 * 128 + 2 * 4 * 128 + 2048)
    experts = 48 * 128 * (2 * 768 + 2048)
    assert rows - tensor == 4 * (attention + experts)


def test_by_hand():
    """One layer of 64 x 64 everywhere, 64 words, 4-bit weights in groups of 32: easy to count."""
    config = {
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "vocab_size": 64,
        "num_attention_heads": 1, "num_key_value_heads": 1, "dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    found = predicted_memory(format_named("int4-g32"), model_shape(config), {"max_model_len": 64}, pinned_bytes=25600)
    matrices = 64 * 64 * (3 + 1 + 2 + 1)  # q, k, v; o; gate, up; down
    assert found.weights_bytes == matrices // 2 + matrices // 32 * 2 + 2 * 64 * 64 * 2
    assert found.baseline_bytes == 2 * matrices + 2 * 64 * 64 * 2
    assert found.kv_bytes_per_token == 2 * 64 * 2
    assert (found.kv_tokens, found.source) == (96, "pinned")  # 100 fit, of which 96 in whole blocks of 16
    assert found.max_concurrency == 1.5


def test_tied_embeddings_count_once():
    both = predicted_memory(format_named("fp8"), shape("llama3-8b"), {}).weights_bytes
    once = predicted_memory(format_named("fp8"), shape("llama3-8b", tie_word_embeddings=True), {}).weights_bytes
    assert both - once == 128256 * 4096 * 2


def test_rows_of_scales_are_counted():
    tensor = predicted_memory(format_named("fp8"), shape("llama3-8b"), {}).weights_bytes
    rows = predicted_memory(format_named("int8"), shape("llama3-8b"), {}).weights_bytes
    # A 32-bit scale an output: qkv 6144, o 4096, gate and up 28672, down 4096, in 32 layers.
    assert rows - tensor == 4 * 32 * (6144 + 4096 + 28672 + 4096)


def test_an_fp8_cache_holds_twice_the_tokens():
    plain, half = (
        predicted_memory(format_named(name), shape("llama3-8b"), {}, pinned_bytes=GIB) for name in ("fp8", "fp8-kv")
    )
    assert (plain.kv_tokens, half.kv_tokens) == (8192, 16384)


def test_what_is_not_known():
    found = predicted_memory(format_named("fp8"), shape("llama3-8b"), {})
    assert (found.kv_tokens, found.max_concurrency, found.source) == (None, None, "unknown")
    none_left = predicted_memory(format_named("baseline"), shape("llama3-70b"), {}, gpu_bytes=H200)
    assert none_left.kv_tokens == 0
    assert difference(None, 1) is None
