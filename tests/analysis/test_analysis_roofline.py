"""Work of steps by hand, roofs of a GPU with round numbers, verdicts, and the recorded runs."""

import json
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import analysis_tables as tables
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.breakdown import breakdown, summary
from perflab.analysis.model.graph_padding import CaptureSizes, capture_sizes
from perflab.analysis.model.kv_from_load import OneLength, kv_from_load
from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.step_work import Peaks, decode_attention_intensity, padding, peaks_of, step_work
from perflab.analysis.model.workload import Workload, workload
from perflab.analysis.roofline.bound import KernelRoof, verdict
from perflab.analysis.roofline.phases import RankRoofline, rank_roofline
from perflab.knowledge.gpus import gpu_spec
from perflab.read.files import read_text
from perflab.runs import open_run

TINY = MappingProxyType({
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 2, "intermediate_size": 10, "vocab_size": 64, "dtype": "bfloat16", "tie_word_embeddings": False,
})  # fmt: skip
PARAMETERS = 8 * 8 * 2 + 8 * 8 + 8 * 20 + 10 * 8
PEAKS = Peaks(linear=100.0, sixteen=100.0, memory=10.0, dtype="bf16")


def tiny(**more: Any) -> Workload:
    found = model_shape({**TINY, **more})
    assert isinstance(found, ModelShape)
    return workload(found)


def step(
    phase: str, prefill: tuple[int, int] = (0, 0), decode: tuple[int, int] = (0, 0), kv: int | None = None,
    pairs: int | None = None, start: int = 0, dur: int = 100,
) -> dict[str, Any]:  # fmt: skip
    return {
        "rank": 0, "step": start, "phase": phase, "start_ns": start, "dur_ns": dur, "forward_ns": dur,
        "prefill_requests": prefill[0], "prefill_tokens": prefill[1], "decode_requests": decode[0],
        "decode_tokens": decode[1], "kv_tokens": kv, "kv_pairs": pairs,
    }  # fmt: skip


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    whole = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "kv_tokens", "kv_pairs")
    return pd.DataFrame(list(rows)).astype(dict.fromkeys(whole, "Int64"))


def parts(*rows: dict[str, Any], work: Workload | None = None) -> dict[str, dict[str, Any]]:
    found = step_work(table(*rows), work or tiny(), PEAKS)
    return {row["part"]: row for row in found.to_dict("records")}


def test_a_decode_step_by_hand() -> None:
    found = parts(step("decode", decode=(3, 3), kv=30))
    assert found["linear"]["flops"] == 2 * 3 * PARAMETERS
    inner_and_outer = (8 + 16) + (8 + 8) + (8 + 20) + (10 + 8)
    assert found["linear"]["bytes"] == 2 * PARAMETERS + 2 * 3 * inner_and_outer
    assert found["lm_head"]["flops"] == 2 * 3 * 8 * 64
    assert found["lm_head"]["bytes"] == 2 * 8 * 64 + 2 * 3 * (8 + 64)
    # 4 heads of 2, keys and values; 30 pairs. The cache has 2 heads of 2, key and value, two bytes.
    assert found["attention"]["flops"] == 2 * 4 * (2 + 2) * 30
    assert found["attention"]["bytes"] == 30 * 16 + 2 * 2 * 4 * 2 * 3
    assert (found["kv_write"]["flops"], found["kv_write"]["bytes"]) == (0, 3 * 16)
    assert {row["category"] for row in found.values()} == {"gemm", "attention", "kv_cache"}
    assert found["linear"]["limit_ns"] == pytest.approx(max(2592 / 100, 1380 / 10) * 1e9)
    assert found["linear"]["side"] == "memory"


def test_a_prefill_step_by_hand() -> None:
    found = parts(step("prefill", prefill=(2, 500), kv=600, pairs=sum(range(101, 351)) + sum(range(1, 251))))
    assert found["linear"]["flops"] == 2 * 500 * PARAMETERS
    assert found["lm_head"]["flops"] == 2 * 2 * 8 * 64, "a row a request, not a token"
    assert found["attention"]["flops"] == 2 * 4 * 4 * (sum(range(101, 351)) + sum(range(1, 251)))
    slow = step_work(table(step("prefill", prefill=(2, 500))), tiny(), Peaks(1.0, 1.0, 10.0, "bf16"))
    assert slow.loc[slow["part"] == "linear", "side"].tolist() == ["compute"]


def test_attention_is_withheld_without_kv_tokens() -> None:
    decode, prefill = parts(step("decode", decode=(3, 3))), parts(step("prefill", prefill=(1, 20)))
    for found in (decode, prefill):
        assert pd.isna(found["attention"]["flops"]) and pd.isna(found["attention"]["bytes"])
        assert pd.isna(found["attention"]["limit_ns"])
    # Each byte of the cache is worth the same operations whatever its length: 4 heads share 2.
    assert decode_attention_intensity(tiny()) == 2 * 4 * 4 / 16
    assert decode["attention"]["side"] == "memory"
    assert pd.isna(prefill["attention"]["side"])
    # Pairs are known of one query a request only: speculative tokens, and prompts, need the annotation.
    assert pd.isna(parts(step("decode", decode=(3, 9), kv=30))["attention"]["flops"])
    assert parts(step("decode", decode=(3, 9), kv=30, pairs=80))["attention"]["flops"] == 2 * 4 * 4 * 80


def test_steps_without_tokens_have_no_work() -> None:
    rows = table(step("decode", decode=(3, 3)), step("decode", start=1))
    rows.loc[1, ["prefill_tokens", "decode_tokens"]] = pd.NA
    assert set(step_work(rows, tiny(), PEAKS)["step"]) == {0}


def test_windows_shorten_what_attention_reads() -> None:
    whole = parts(step("decode", decode=(1, 1), kv=100))["attention"]
    cut = parts(step("decode", decode=(1, 1), kv=100), work=tiny(sliding_window=25))["attention"]
    assert cut["flops"] == whole["flops"] / 4
    # One layer of two has the window.
    kinds = ["sliding_attention", "full_attention"]
    half = parts(
        step("decode", decode=(1, 1), kv=100), work=tiny(num_hidden_layers=2, sliding_window=25, layer_types=kinds)
    )
    assert half["attention"]["flops"] == 2 * whole["flops"] * (1 + 1 / 4) / 2


def test_experts_read_what_they_touch() -> None:
    work = tiny(model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=6)
    one, many = (parts(step("decode", decode=(n, n), kv=n), work=work)["experts"] for n in (1, 400))
    expert = 3 * 8 * 6
    assert one["flops"] == pytest.approx(2 * 2 * expert)
    assert one["bytes"] == pytest.approx(2 * 2 * expert + 2 * 2 * (8 + 12 + 6 + 8))
    assert many["bytes"] - 2 * 400 * 2 * (8 + 12 + 6 + 8) == pytest.approx(8 * expert * 2)
    assert one["category"] == "moe"


def test_quantized_layers_multiply_in_their_own_format_where_the_gpu_can() -> None:
    work = tiny(quantization_config={"quant_method": "fp8"})
    h200, a100 = gpu_spec("NVIDIA H200"), gpu_spec("NVIDIA A100-SXM4-80GB")
    assert h200 and a100
    assert (peaks_of(h200, work).linear, peaks_of(h200, work).dtype) == (1979e12, "fp8")
    assert (peaks_of(a100, work).linear, peaks_of(a100, work).dtype) == (312e12, "bf16")
    assert peaks_of(h200, work).sixteen == 989.5e12, "attention and the LM head stay at 16 bits"


@given(st.integers(1, 512), st.integers(1, 4096))
def test_more_tokens_are_never_less_work(tokens: int, kv: int) -> None:
    def total(n: int, k: int) -> pd.Series:
        found = step_work(table(step("decode", decode=(n, n), kv=n * k)), tiny(), PEAKS)
        return found[["flops", "bytes", "limit_ns"]].sum()

    assert (total(tokens + 1, kv) > total(tokens, kv)).all()
    longer, shorter = total(tokens, kv + 1), total(tokens, kv)
    assert longer["flops"] > shorter["flops"] and longer["bytes"] > shorter["bytes"]
    # A larger batch reads the same weights: more work for each byte.
    assert total(2 * tokens, kv)["flops"] / total(2 * tokens, kv)["bytes"] > shorter["flops"] / shorter["bytes"]


SETTINGS = {
    "compilation_config.cudagraph_capture_sizes": [1, 2, 4, 8],
    "compilation_config.cudagraph_mode": "FULL_AND_PIECEWISE",
}


AS_TEXT = "{{'cudagraph_mode': <CUDAGraphMode.{mode}>, 'cudagraph_capture_sizes': {sizes}, 'x': 1}}"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SETTINGS, CaptureSizes((1, 2, 4, 8))),
        ({**SETTINGS, "enforce_eager": True}, CaptureSizes()),
        ({**SETTINGS, "compilation_config.cudagraph_mode": "NONE"}, CaptureSizes()),
        ({**SETTINGS, "compilation_config.cudagraph_mode": "FULL_DECODE_ONLY"}, CaptureSizes((1, 2, 4, 8), True)),
        ({"compilation_config": AS_TEXT.format(mode="FULL_AND_PIECEWISE: (2, 1)", sizes="[1, 2, 4, 8]")},
         CaptureSizes((1, 2, 4, 8))),
        ({"compilation_config": AS_TEXT.format(mode="NONE: 0", sizes="[]")}, CaptureSizes()),
        ({"cuda_graph_sizes": [4, 2]}, CaptureSizes((2, 4))),
        ({"cuda_graph_sizes": [24]}, CaptureSizes((1, 2, 4, 8, 16, 24))),
        ({"cudagraph_capture_sizes": [None, "x"]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_capture_sizes(settings: dict[str, Any], expected: CaptureSizes | None) -> None:
    assert capture_sizes(settings) == expected


def test_padding_is_work_apart() -> None:
    sizes = CaptureSizes((1, 2, 4, 8))
    assert [sizes.padded(n, "decode") for n in (1, 3, 5, 8, 9)] == [1, 4, 8, 8, 9]
    assert CaptureSizes((8,), decode_only=True).padded(5, "prefill") == 5
    assert CaptureSizes().padded(5, "decode") == 5
    found = padding(table(step("decode", decode=(5, 5)), step("decode", decode=(8, 8), start=1)), tiny(), sizes)
    assert found["padded_tokens"].tolist() == [8, 8]
    assert found["extra_flops"].tolist() == [3 * 2 * PARAMETERS, 0]


def test_kv_tokens_of_a_load_of_one_length() -> None:
    rows = table(
        step("prefill", prefill=(1, 500)), step("mixed", prefill=(2, 1000), decode=(1, 1), start=1),
        step("decode", decode=(3, 3), start=2),
    )  # fmt: skip
    found = kv_from_load(rows, OneLength(500, 11))
    assert found is not None
    # A decoding request has 501 to 510 tokens in its cache.
    assert found.steps["kv_tokens"].tolist() == [500, 1000 + 505, 3 * 1011 // 2]
    assert found.steps["kv_pairs"].tolist() == [sum(range(501)), 2 * sum(range(501)) + 505, 3 * 1011 // 2]
    assert found.spread == pytest.approx(9 / 1011)
    assert rows["kv_tokens"].isna().all(), "the table given is left as it was"
    attention = step_work(found.steps, tiny(), PEAKS).query("part == 'attention'")
    assert attention["flops"].tolist() == [2 * 4 * 4 * pairs for pairs in found.steps["kv_pairs"]]


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        ([step("prefill", prefill=(1, 500))], None),
        ([step("prefill", prefill=(1, 500), kv=500)], OneLength(500, 11)),  # annotations tell
        ([step("prefill", prefill=(1, 300))], OneLength(500, 11)),  # a chunk, or a part from a cache
        ([step("prefill", prefill=(1, 500)), step("decode", decode=(2, 6), start=1)], OneLength(500, 11)),  # drafts
        ([step("decode", decode=(2, 2))], OneLength(500, 11)),  # nothing bears the prompt's length out
        ([step("prefill", prefill=(1, 500))], OneLength(500, 200)),  # too long an answer to know where it is
    ],
)  # fmt: skip
def test_kv_tokens_are_not_taken_from_a_load_that_leaves_them_open(rows: list[Any], lengths: OneLength | None) -> None:
    assert kv_from_load(table(*rows), lengths) is None


def roof(category: str, time: float, limit: float | None, side: str | None) -> KernelRoof:
    return KernelRoof(category, time, limit, limit, limit, side, None, None)


@pytest.mark.parametrize(
    ("idle", "talk", "kernels", "bound"),
    [
        (10, 0, {"gemm": roof("gemm", 80, 70, "memory")}, "memory"),
        (10, 0, {"gemm": roof("gemm", 80, 70, "compute")}, "compute"),
        (10, 0, {"gemm": roof("gemm", 80, 30, "memory")}, "kernels"),
        (30, 0, {"gemm": roof("gemm", 70, 70, "memory")}, "overhead"),
        (29, 0, {"gemm": roof("gemm", 70, 70, "memory")}, "memory"),
        (10, 25, {"gemm": roof("gemm", 60, 60, "memory")}, "communication"),
        (31, 40, {"gemm": roof("gemm", 20, 20, "memory")}, "communication"),
        (40, 31, {"gemm": roof("gemm", 20, 20, "memory")}, "overhead"),
        (0, 0, {"gemm": roof("gemm", 50, 45, "compute"), "attention": roof("attention", 40, 38, "memory")}, "compute"),
        (0, 0, {"gemm": roof("gemm", 50, 45, "compute"), "attention": roof("attention", 40, None, None)}, "compute"),
        (0, 0, {"gemm": roof("gemm", 40, 35, "compute"), "attention": roof("attention", 50, None, None)}, None),
        (0, 0, {"attention": roof("attention", 50, None, "memory")}, None),
        (0, 0, {}, None),
    ],
)  # fmt: skip
def test_verdicts(idle: float, talk: float, kernels: dict[str, KernelRoof], bound: str | None) -> None:
    assert verdict(100, idle, talk, kernels).bound == bound


def tiny_rank(device: str = "NVIDIA H200", config: Any = TINY, settings: dict[str, Any] | None = None) -> RankRoofline:
    kernels = tables.kernels(
        {"start": 0, "dur": 60, "category": "gemm"}, {"start": 60, "dur": 20, "category": "attention"},
        {"start": 80, "dur": 5, "category": "kv_cache"},
        {"start": 85, "dur": 5, "category": "memory", "kind": "memcpy"},
    )  # fmt: skip
    steps = table(step("decode", decode=(3, 3), kv=30, dur=100))
    record = summary(breakdown(kernels, steps))[0]
    return rank_roofline(0, device, steps, record, config=config, settings=settings or {})


def test_shares_of_a_step_and_of_its_kernels() -> None:
    found = tiny_rank()
    decode = found.phases["decode"]
    rows = parts(step("decode", decode=(3, 3), kv=30))
    flops, moved = (sum(row[key] for row in rows.values()) for key in ("flops", "bytes"))
    assert (decode.flops, decode.bytes) == (flops, moved)
    assert decode.flops_share == pytest.approx(flops / 100e-9 / 989.5e12)
    assert decode.bytes_share == pytest.approx(moved / 100e-9 / 4.8e12)
    gemm = decode.kernels["gemm"]
    assert gemm.time_ns == 60
    assert gemm.bytes == rows["linear"]["bytes"] + rows["lm_head"]["bytes"]
    assert gemm.bytes_share == pytest.approx(gemm.bytes / 60e-9 / 4.8e12)
    assert gemm.side == "memory"
    # 80 of 90 busy nanoseconds are kernels on the memory side, 5 writes to the cache, 5 copies.
    assert decode.memory.bandwidth_bound == pytest.approx(80 / 90)
    assert decode.memory.kv_writes == decode.memory.copies == pytest.approx(5 / 90)
    assert decode.memory.total == pytest.approx(1)
    assert decode.verdict.bound == "kernels", "microscopic kernels reach no roof"
    assert not decode.withheld
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["phases"]["decode"]["bound"] == "kernels"


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"config": None}, "config.json is missing"),
        ({"config": {k: v for k, v in TINY.items() if k != "hidden_size"}}, "lacks hidden_size"),
        ({"config": {**TINY, "model_type": "mamba"}}, "mamba"),
        ({"config": {**TINY, "quantization_config": {"quant_method": "of tomorrow"}}}, "of tomorrow"),
        ({"settings": {"quantization": "of tomorrow"}}, "of tomorrow"),
        ({"device": "NVIDIA Z1"}, "NVIDIA Z1"),
    ],
)
def test_what_is_missing_is_said(kwargs: dict[str, Any], words: str) -> None:
    found = tiny_rank(**kwargs)
    assert not found.phases
    assert words in " ".join(found.missing)
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("settings", "config", "words"),
    [
        ({"speculative_config": {"method": "ngram"}}, TINY, "draft"),
        ({"cpu_offload_gb": 4}, TINY, "PCIe"),
        ({}, {**TINY, "vision_config": {"hidden_size": 9}}, "towers"),
    ],
)
def test_what_is_not_counted_is_said(settings: dict[str, Any], config: Any, words: str) -> None:
    notes = tiny_rank(settings=settings, config=config).phases["decode"].notes
    assert len(notes) == 1 and words in notes[0]
    assert tiny_rank(settings={"speculative_config": None, "cpu_offload_gb": 0}).phases["decode"].notes == ()


def test_a_trace_without_steps_has_no_roofline() -> None:
    kernels = tables.kernels({"start": 0, "dur": 60, "category": "gemm"})
    record = summary(breakdown(kernels, tables.steps()))[0]
    found = rank_roofline(0, "NVIDIA H200", table(step("decode")).iloc[:0], record, config=TINY, settings={})
    assert not found.phases
    assert "no step annotations" in found.missing[0]


def test_a_kv_format_that_is_not_known_withholds_attention() -> None:
    decode = tiny_rank(settings={"kv_cache_dtype": "of tomorrow"}).phases["decode"]
    assert "kv_cache_dtype" in decode.withheld[0]
    assert decode.kernels["attention"].flops is None


@lru_cache(maxsize=8)
def recorded(name: str, root: Path) -> list[RankRoofline]:
    from perflab.tasks.breakdown import breakdown as task

    run = open_run(root / "data" / "recorded" / name)
    assert run.manifest.model_config is not None
    config = json.loads(read_text(run.file(run.manifest.model_config))[0])
    return [
        rank_roofline(r.rank, r.device, r.steps, r.record, config=config, settings=run.manifest.engine.settings)
        for r in task(str(root / "data" / "recorded" / name)).ranks
    ]


DECODE = {
    # Run -> gigabytes the weights of a decode step are on one GPU, the share of 4.8 TB/s its matmuls reach, verdict.
    "llama3-8b-bf16": (15.0, (0.74, 0.82), "memory"), "llama3-8b-tp2": (7.5, (0.64, 0.72), "memory"),
    "llama3-8b-fp8": (8.0, (0.66, 0.76), "memory"), "llama3-70b-bf16-tp2": (69.5, (0.77, 0.85), "memory"),
    "llama3-8b-awq": (4.7, (0.30, 0.40), "kernels"), "llama3-70b-awq-tp2": (18.8, (0.33, 0.43), "kernels"),
    "llama3-8b-eager": (15.0, (0.74, 0.82), "overhead"),
}  # fmt: skip


@pytest.mark.parametrize("name", DECODE)
def test_recorded_decode_is_where_the_hardware_allows_it(name: str, root: Path) -> None:
    weights, reach, bound = DECODE[name]
    for rank in recorded(name, root):
        decode = rank.phases["decode"]
        assert rank.missing == ()
        assert decode.bytes / 1e9 == pytest.approx(weights, rel=0.01)
        share = decode.kernels["gemm"].bytes_share
        assert share is not None and reach[0] < share < reach[1]
        assert decode.verdict.bound == bound
        assert any("detailed_steps" in text for text in decode.withheld), "these traces do not tell KV tokens"
        assert decode.kernels["attention"].side == "memory" and decode.kernels["attention"].flops is None
        for phase in rank.phases.values():
            for kernel in phase.kernels.values():
                assert kernel.reach is None or kernel.reach < 1, "no kernel beats the data sheet"
        if name != "llama3-8b-eager":
            assert decode.padding is not None and decode.padding.padded_steps == (2 if "tp2" in name else 1)


@pytest.mark.parametrize("name", ["llama3-8b-bf16", "llama3-70b-bf16-tp2"])
def test_recorded_prefill_is_bound_by_compute(name: str, root: Path) -> None:
    for rank in recorded(name, root):
        mixed = rank.phases["mixed"]
        # 7 prompts of 512 tokens and one token: two operations a parameter and token, on each rank its part.
        assert rank.work is not None
        assert mixed.tokens == 7 * 512 + 1
        assert mixed.flops == pytest.approx(3585 * rank.work.flops_per_token, rel=0.002)
        assert mixed.verdict.bound == "compute"
        assert 0.7 < (mixed.kernels["gemm"].flops_share or 0) < 0.85


def test_measured_decode_cannot_be_faster_than_memory(root: Path) -> None:
    rank = recorded("llama3-8b-bf16", root)[0]
    run = open_run(root / "data" / "recorded" / "llama3-8b-bf16")
    result = json.loads(read_text(run.file("bench/c1.json.xz"))[0])
    least_ms = rank.phases["decode"].limit_ns / 1e6
    share = least_ms / result["median_tpot_ms"]
    # One request, 4.8 ms a token: 15 GB of weights in that time are 65 % of 4.8 TB/s.
    assert 0.6 < share < 0.7
