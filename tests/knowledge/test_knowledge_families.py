"""Where a kernel comes from: real names, and nearly all time of every recorded run."""

import tomllib
from pathlib import Path

import pytest

from perflab.knowledge.kernel_families import kernel_family
from perflab.tasks.breakdown import breakdown
from perflab.tasks.find import recorded_runs


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT", "cuBLASLt (nvjet, 16 bit)"),
        ("nvjet_sm90_hsh_256x8_64x6_2x1_v_bz_TNT", "cuBLASLt (nvjet, 16 bit)"),
        ("nvjet_sm100_qqtst_128x128_128x6_2x1_2cta_v_bz_TNT", "cuBLASLt (nvjet, FP8)"),
        ("void cutlass::device_kernel<vllm::cutlass_3x_gemm_sm90_fp8<cutlass::float_e4m3_t> >", "CUTLASS (FP8)"),
        ("void marlin::Marlin<1125899906909960l, 4, 256>(int4 const*)", "Marlin"),
        ("void flash::prepare_varlen_num_blocks_kernel<1, false>(int, int, int)", "FlashAttention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "NCCL"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "vLLM's custom all-reduce"),
        ("void vllm::rms_norm_kernel<c10::BFloat16>(x)", "vLLM's own kernels"),
        ("_gumbel_sample_kernel", "vLLM's own kernels (Triton)"),
        ("Memcpy HtoD (Pinned -> Device)", "CUDA driver"),
        ("_C::onednn_mm", "oneDNN"),
        ("some_kernel_of_nobody", None),
    ],
)
def test_real_names(name: str, family: str | None) -> None:
    assert kernel_family(name) == family


def test_every_family_has_its_evidence(root: Path) -> None:
    table = tomllib.loads((root / "perflab" / "knowledge" / "kernel_families.toml").read_text())
    assert all(len(entry["evidence"]) > 20 for entry in table["family"])


@pytest.mark.parametrize("run", [run.path.name for run in recorded_runs() if run.manifest.profiles])
def test_nearly_all_time_of_recorded_runs_has_a_family(run: str) -> None:
    kernels = breakdown(run, attribution=False).ranks[0].top_kernels()
    unknown = [kernel_family(str(name)) is None for name in kernels["name"]]
    assert kernels.loc[unknown, "share"].sum() < 0.01
