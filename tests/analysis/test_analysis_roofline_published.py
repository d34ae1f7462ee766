"""Work of steps against counts others published for their own traces (TraceLens, AMD MI300X)."""

import csv
from pathlib import Path

import pytest

from perflab.analysis.roofline.phases import RankRoofline, rank_roofline
from perflab.tasks.breakdown import breakdown

QWEN3_8B = {
    "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936, "dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088, "dtype": "bfloat16",
    "tie_word_embeddings": False, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}  # fmt: skip


def published(folder: Path, table: str, name: str) -> list[dict[str, float]]:
    """Operations and bytes of one call, and the calls a step, of rows whose name holds `name`."""
    with (folder / "perf_csvs" / table).open(newline="") as file:
        return [
            {
                "flops": float(row["GFLOPS_first"]) * 1e9,
                "bytes": float(row["Data Moved (MB)_first"]) * 2**20,
                "calls": float(row["name_count"]),
            }
            for row in csv.DictReader(file)
            if name in row["name"]
        ]


def total(rows: list[dict[str, float]], what: str) -> float:
    return sum(row[what] * row["calls"] for row in rows)


def roofline(trace: Path, config: dict[str, object]) -> RankRoofline:
    rank = breakdown(trace).ranks[0]
    return rank_roofline(rank.rank, "AMD Instinct MI300X", rank.steps, rank.record, config=config, settings={})


@pytest.mark.parametrize(
    ("folder", "trace", "phase", "attention"),
    [
        ("sglang_decode", "sglang_Qwen3-8B_decode.json.gz", "decode", "paged_attention"),
        ("sglang_prefilldecode", "sglang_Qwen3-8B_prefilldecode.json.gz", "prefill", "mha_batch_prefill"),
    ],
)
def test_a_dense_models_work_is_what_was_published(
    folder: str, trace: str, phase: str, attention: str, shared: Path
) -> None:
    home = shared / "fixtures" / "kineto" / "tracelens" / "inference" / folder
    found = roofline(home / trace, QWEN3_8B).parts.set_index("part")
    theirs = published(home, "InferenceAttention_fwd.csv", attention)
    # Theirs leaves half of the diagonal of a causal mask out: 0.1 % of prompts of 1024 tokens.
    assert found.loc["attention", "flops"] == pytest.approx(total(theirs, "flops"), rel=0.0011)
    assert found.loc["attention", "bytes"] == pytest.approx(total(theirs, "bytes"), rel=1e-3)
    gemms = published(home, "GEMM.csv", "gemm_a16w16")
    layers = [row for row in gemms if row["calls"] == 36]
    assert found.loc["linear", "flops"] == pytest.approx(total(layers, "flops"), rel=1e-6)
    assert found.loc["linear", "bytes"] == pytest.approx(total(layers, "bytes"), rel=0.02)
    assert set(found["phase"].astype(str)) == {phase}


def test_decode_attention_of_a_real_batch_reaches_what_was_published(shared: Path) -> None:
    home = shared / "fixtures" / "kineto" / "tracelens" / "inference" / "sglang_decode"
    decode = roofline(home / "sglang_Qwen3-8B_decode.json.gz", QWEN3_8B).phases["decode"]
    assert decode.withheld == (), "its annotation tells 32,785 KV tokens"
    assert decode.kernels["attention"].side == "memory"
    # 2.28 TB/s of 5.3 (their mean over layers).
    assert decode.kernels["attention"].bytes_share == pytest.approx(2.283 / 5.3, rel=0.01)
    assert decode.verdict.bound == "overhead", "98 % of that window is idle"


def test_experts_and_windows_of_gpt_oss(shared: Path) -> None:
    home = shared / "fixtures" / "kineto" / "tracelens" / "inference" / "vllm_prefilldecode_piecewise"
    found = roofline(home / "graph_execution.json.gz", GPT_OSS_20B)
    parts = found.parts.set_index("part")
    moe = published(home, "MoE_unfused_fwd.csv", "moe_triton")
    # Their kernels multiply padded matrices: 3072 for 2880 in both directions.
    assert parts.loc["experts", "flops"] * (3072 / 2880) ** 2 == pytest.approx(total(moe, "flops"), rel=1e-6)
    # Half of the layers look back 128 tokens only, which theirs does not regard.
    attention = total(published(home, "InferenceAttention_fwd.csv", "unified_attention"), "flops")
    assert 0.5 * attention < parts.loc["attention", "flops"] < 0.75 * attention
    assert found.phases["mixed"].kernels["moe"].side == "compute"
    gemm = published(home, "GEMM.csv", "rocm_unquantized_gemm")
    qkv_o_router = [row for row in gemm if row["calls"] == 24]
    assert parts.loc["linear", "flops"] == pytest.approx(total(qkv_o_router, "flops"), rel=1e-3)
