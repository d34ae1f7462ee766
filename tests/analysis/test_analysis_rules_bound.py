"""Findings that rest on the roofline: each speaks where it should, and only there."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import analysis_tables as tables
import pandas as pd
import pytest

from perflab.analysis.finding import Finding
from perflab.analysis.findings import pass_findings
from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.step_work import peaks_of
from perflab.analysis.model.workload import workload
from perflab.analysis.roofline.bound import KernelRoof, Verdict
from perflab.analysis.roofline.phases import MemoryView, Padding, PhaseRoofline, RankRoofline
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.knowledge.gpus import gpu_spec
from perflab.knowledge.quantized_kernels import quantized_kernels
from perflab.runs import Engine
from perflab.schema import CATEGORIES, PHASES

MS = 1_000_000
CONFIG = MappingProxyType({
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 256, "dtype": "bfloat16",
})  # fmt: skip


def record(phase: str, **ms: float) -> dict[str, Any]:
    """Ten steps of 10 ms each in one phase."""

    def part(name: str) -> dict[str, Any]:
        here = name == phase
        own = {c: int(ms.get(c, 0) * MS * 10) if here else 0 for c in CATEGORIES}
        window = 100 * MS if here else 0
        idle = int(ms.get("idle", 0) * MS * 10) if here else 0
        return {
            "steps": 10 if here else 0, "window_ns": window, "idle_ns": idle, "busy_ns": window - idle,
            "categories": {c: {"exclusive_ns": ns, "share": ns / window if window else None} for c, ns in own.items()},
        }  # fmt: skip

    return {"rank": 0, "kind": "gpu", "phases": {name: part(name) for name in PHASES}}


def roof(category: str, ms: float, limit: float | None, side: str | None, moved: float = 1e9) -> KernelRoof:
    share = limit / ms if limit is not None else None
    return KernelRoof(category, ms * MS, 1e12, moved, None if limit is None else limit * MS, side, share, share)


def facts(
    phase: str, bound: str, kernels: dict[str, KernelRoof], *, config: Any = CONFIG, device: str = "NVIDIA H200",
    version: str = "0.25.1", settings: dict[str, Any] | None = None, padding: Padding | None = None,
    idle: dict[str, Any] | None = None, names: dict[str, str] | None = None, **ms: float,
) -> PassFacts:  # fmt: skip
    shape, gpu = model_shape(config), gpu_spec(device)
    assert isinstance(shape, ModelShape) and gpu is not None
    work = workload(shape)
    found = PhaseRoofline(
        phase=phase, steps=10, tokens=8, requests=8, step_ns=10 * MS, flops=1e12, bytes=1e9, limit_ns=6 * MS,
        flops_share=0.1, bytes_share=0.6, kernels=kernels, padding=padding, memory=MemoryView(0.8, 0, 0, 0),
        verdict=Verdict(bound, 0.8, 0.75),  # type: ignore[arg-type]
    )  # fmt: skip
    roofline = RankRoofline(0, device, gpu, shape, work, peaks_of(gpu, work), phases={phase: found})
    rows = [{"start": i, "dur": 1, "category": c, "name": n} for i, (n, c) in enumerate((names or {}).items())]
    ranks = [RankFacts(record(phase, **ms), idle or {}, tables.kernels(*rows), tables.steps(), roofline)]
    return PassFacts(ranks, Engine(vllm_version=version, settings=settings or {}))


def found(given: PassFacts) -> dict[str, Finding]:
    return {finding.id: finding for finding in pass_findings(given)}


def test_bandwidth_bound_decode_says_what_quantized_weights_would_save() -> None:
    gemm = roof("gemm", 8, 6.4, "memory", moved=2 * 2 * 2 * (64 * 128 + 64 * 64 + 64 * 256 + 128 * 64))
    finding = found(facts("decode", "memory", {"gemm": gemm}, gemm=8))["bandwidth_bound_decode"]
    # Half of the layers' weights, which are half of what matmuls move here.
    weights = 2 * 2 * (64 * 128 + 64 * 64 + 64 * 256 + 128 * 64)
    assert finding.impact is not None
    assert finding.impact["value"] == pytest.approx(8 * (weights / 2) / (2 * weights))
    assert finding.impact["unit"] == "ms/step"
    assert "--quantization fp8" in finding.change and "--kv-cache-dtype fp8" in finding.change
    assert any("if kernels stay as near" in text for text in finding.evidence), "the assumption is said"
    assert any("206" in text for text in finding.evidence), "where the batch meets the other roof"


def test_an_fp8_cache_is_told_with_what_it_can_save_at_most() -> None:
    kernels = {"gemm": roof("gemm", 6, 5, "memory"), "attention": roof("attention", 3, 2, "memory")}
    said = found(facts("decode", "memory", kernels, gemm=6, attention=3))["bandwidth_bound_decode"].evidence
    assert any("at most 1.50 ms" in text for text in said), "half of attention's 3 ms"
    given = facts("decode", "memory", kernels, settings={"kv_cache_dtype": "fp8"}, gemm=6, attention=3)
    assert not any("would halve" in text for text in found(given)["bandwidth_bound_decode"].evidence)


def test_what_is_quantized_already_is_not_quantized_again() -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "fp8"}}
    names = {"cutlass_3x_gemm_sm90_fp8": "gemm"}
    given = facts("decode", "memory", {"gemm": roof("gemm", 8, 6, "memory")}, config=config, names=names, gemm=8)
    finding = found(given)["bandwidth_bound_decode"]
    assert finding.impact is None
    assert "--quantization" not in finding.change


def test_a_gpu_without_fp8_needs_a_checkpoint() -> None:
    given = facts("decode", "memory", {"gemm": roof("gemm", 8, 6, "memory")}, device="NVIDIA A100-SXM4-80GB", gemm=8)
    assert "AWQ" in found(given)["bandwidth_bound_decode"].change


def test_compute_bound_prefill() -> None:
    given = facts("prefill", "compute", {"gemm": roof("gemm", 8, 6, "compute")}, gemm=8)
    finding = found(given)["compute_bound_prefill"]
    assert finding.impact == {"value": pytest.approx(4.0), "unit": "ms/step"}, "FP8 units are twice as fast"
    assert "--enable-prefix-caching" in finding.change
    cached = replace(given, engine=Engine(vllm_version="0.25.1", settings={"enable_prefix_caching": True}))
    assert "prefix" not in found(cached)["compute_bound_prefill"].change
    old = facts("prefill", "compute", {"gemm": roof("gemm", 8, 6, "compute")}, device="NVIDIA A100-SXM4-80GB", gemm=8)
    assert found(old)["compute_bound_prefill"].impact is None


def test_kernels_that_reach_no_roof() -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    names = {"GemmUniversal<machete::MacheteCollectiveMma>": "gemm"}
    given = facts("decode", "kernels", {"gemm": roof("gemm", 8, 3, "memory")}, config=config, names=names, gemm=8)
    finding = found(given)["kernels_below_roof"]
    assert finding.severity == "warning"
    assert finding.impact == {"value": pytest.approx(8 - 3 / 0.75), "unit": "ms/step"}
    assert "--quantization fp8" in finding.change
    assert any("awq" in text for text in finding.evidence)


def test_idle_that_the_host_does_not_explain() -> None:
    def given(host: int) -> PassFacts:
        causes = {"host_bound": host * MS, "in_graph": 40 * MS, "not_started": 0}
        return facts("decode", "overhead", {}, idle={"phases": {"decode": {"causes": causes}}}, idle_ms=0, gemm=5)

    assert "idle_bound" in found(given(10))
    assert any("in graph 80.0 %" in text for text in found(given(10))["idle_bound"].evidence)
    assert "idle_bound" not in found(given(50)), "that is host_bound's"


@pytest.mark.parametrize(("share", "severity"), [(0.05, None), (0.12, "info"), (0.3, "warning")])
def test_padding_costs_where_compute_bounds(share: float, severity: str | None) -> None:
    padding = Padding(5, 8, 10, 10, share)
    costly = found(facts("decode", "compute", {"gemm": roof("gemm", 8, 6, "compute")}, padding=padding, gemm=8))
    if severity is None:
        assert "graph_padding" not in costly
        return
    finding = costly["graph_padding"]
    assert finding.severity == severity
    assert finding.impact == {"value": pytest.approx(share * 8), "unit": "ms/step"}
    assert "--cudagraph-capture-sizes" in finding.change
    free = found(facts("decode", "memory", {"gemm": roof("gemm", 8, 6, "memory")}, padding=padding, gemm=8))
    assert (free["graph_padding"].severity, free["graph_padding"].impact) == ("info", None)
    older = facts(
        "decode", "compute", {"gemm": roof("gemm", 8, 6, "compute")}, padding=padding, version="0.10.2", gemm=8
    )
    assert "--cuda-graph-sizes" in found(older)["graph_padding"].change


def test_attention_has_the_remedy_of_its_phase() -> None:
    decode = found(facts("decode", "memory", {"attention": roof("attention", 6, 4, "memory")}, attention=6, gemm=3))
    assert "--kv-cache-dtype fp8" in decode["attention_largest"].change
    assert any("memory bandwidth" in text for text in decode["attention_largest"].evidence)
    assert any("66.7 %" in text for text in decode["attention_largest"].evidence)
    prefill = found(facts("prefill", "compute", {"attention": roof("attention", 6, 4, "compute")}, attention=6, gemm=3))
    assert "--kv-cache-dtype" not in prefill["attention_largest"].change
    assert any("square" in text for text in prefill["attention_largest"].evidence)
    for finding in (decode["attention_largest"], prefill["attention_largest"]):
        assert any("no setting" in text and "by itself" in text for text in finding.evidence)
    smaller = found(facts("decode", "memory", {"attention": roof("attention", 3, 2, "memory")}, attention=3, gemm=6))
    assert "attention_largest" not in smaller


@pytest.mark.parametrize(
    ("method", "name", "shows"),
    [
        ("fp8", "void cutlass::device_kernel<vllm::cutlass_3x_gemm_sm90_fp8<...>>", True),
        ("fp8", "nvjet_sm90_qqtst_128x64_64x8_4x1_v_bz_TNT", True),
        ("fp8", "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT", False),
        ("fp8", "void marlin::Marlin<...>", True),
        ("auto_awq", "cutlass::device_kernel<GemmUniversal<machete::MacheteCollectiveMma>>", True),
        ("awq_marlin", "void marlin::Marlin<half, ...>", True),
        ("awq", "nvjet_sm90_hsh_256x8_64x6_2x1_v_bz_TNT", False),
        ("gptq", "fused_moe_kernel_gptq_awq", True),
        ("bitsandbytes", "void kgemm_4bit_inference_naive<...>", True),
    ],
)
def test_quantization_that_no_kernel_shows_is_loud(method: str, name: str, shows: bool) -> None:
    names = {name: "gemm", "triton_red_fused_fp8_quant_machete_mm": "norm_act"}
    given = facts("decode", "memory", {}, settings={"quantization": method}, names=names, gemm=8)
    finding = found(given).get("quantization_without_kernels")
    assert (finding is None) == shows
    if finding:
        assert finding.severity == "critical"
        assert method in finding.title
        assert any(name[:12] in text for text in finding.evidence)


def test_quantization_in_the_config_alone_counts_too() -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {
        "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}}}}  # fmt: skip
    plain, marlin = {"nvjet_sm90_tst_1": "gemm"}, {"marlin_gemm": "gemm"}
    assert "quantization_without_kernels" in found(facts("decode", "memory", {}, config=config, names=plain))
    assert "quantization_without_kernels" not in found(facts("decode", "memory", {}, config=config, names=marlin))


def test_every_finding_names_flags_as_the_runs_version_does() -> None:
    padding = Padding(5, 8, 10, 10, 0.3)
    for version, flags in (("0.25.1", "`--cudagraph-capture-sizes`"), ("0.10.2", "`--cuda-graph-sizes`")):
        given = facts(
            "decode", "compute", {"gemm": roof("gemm", 8, 6, "compute")}, padding=padding, version=version, gemm=8
        )
        assert flags in found(given)["graph_padding"].change
    old = facts("decode", "memory", {}, version="0.6.6", communication=4, gemm=5)
    said = found(old)["exposed_communication"].change
    assert "`--data-parallel-size` (vLLM 0.6.6 has no such argument)" in said
    assert (
        "no such argument"
        not in found(replace(old, engine=Engine(vllm_version="0.25.1")))["exposed_communication"].change
    )


def test_what_is_not_known_of_quantization_is_not_judged() -> None:
    plain = {"nvjet_sm90_tst_1": "gemm"}
    for settings in ({"quantization": "of tomorrow"}, {"quantization": None}, {}):
        assert "quantization_without_kernels" not in found(
            facts("decode", "memory", {}, settings=settings, names=plain)
        )
    assert "quantization_without_kernels" not in found(facts("decode", "memory", {}, settings={"quantization": "fp8"}))
    assert quantized_kernels("of tomorrow") is None


@pytest.mark.parametrize("name", ["llama3-8b-fp8", "llama3-8b-awq", "llama3-70b-awq-tp2", "llama3-8b-bf16"])
def test_recorded_runs(name: str, root: Any) -> None:
    from perflab.tasks.breakdown import breakdown

    report = breakdown(root / "data" / "recorded" / name)
    ids = {finding.id for finding in report.findings}
    assert "quantization_without_kernels" not in ids, "these are quantized as asked"
    assert "graph_padding" not in ids and "attention_largest" not in ids
    assert ("kernels_below_roof" if "awq" in name else "bandwidth_bound_decode") in ids
    if name != "llama3-8b-bf16":
        # The same engine with the plain kernels of the BF16 run: nothing computes with what was asked for.
        plain = breakdown(root / "data" / "recorded" / "llama3-8b-bf16").passes[0].ranks[0]
        own = report.passes[0]
        swapped = PassFacts([RankFacts(plain.record, plain.idle, plain.kernels, plain.steps)], own.source.engine)
        assert "quantization_without_kernels" in found(swapped)


def test_the_saving_foreseen_for_fp8_is_near_the_one_recorded(root: Any) -> None:
    from perflab.tasks.breakdown import breakdown

    bf16, fp8 = (breakdown(root / "data" / "recorded" / f"llama3-8b-{kind}") for kind in ("bf16", "fp8"))
    said = next(finding for finding in bf16.findings if finding.id == "bandwidth_bound_decode")
    assert said.impact is not None

    def gemm_ms(report: Any) -> float:
        decode = report.ranks[0].record["phases"]["decode"]
        return decode["categories"]["gemm"]["exclusive_ns"] / decode["steps"] / MS

    assert said.impact["value"] == pytest.approx(gemm_ms(bf16) - gemm_ms(fp8), rel=0.2)
    assert pd.notna(said.impact["value"])
