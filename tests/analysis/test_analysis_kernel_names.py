import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.kernel_names import elide, short_kernel_name, short_kernel_names

FLASH = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, "
    "cute::tuple<cute::C<{m}>, cute::C<128>, cute::C<128> >, 128, cutlass::bfloat16_t, float, "
    "cutlass::arch::Sm90, true> > > >(flash::FlashAttnFwdSm90<int>::Params)"
)
MACHETE = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    "machete::MacheteCollectiveMma<cute::tuple<cutlass::integer_subbyte<4, false>, cutlass::half_t, cutlass::half_t>, "
    "cute::tuple<cute::C<128>, cute::C<256>, cute::C<64> > > > >(Params)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"),
        ("triton_red_fused_fused_add_rms_norm_0", "triton_red_fused_fused_add_rms_norm_0"),
        ("aten::linear", "aten::linear"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        (FLASH.format(m=64), "flash::FlashAttnFwdSm90 64x128x128 bf16"),
        (MACHETE, "machete::MacheteCollectiveMma 128x256x64 int4"),
        (
            "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(long const*)",
            "vllm::reshape_and_cache_flash_kernel",
        ),
        (
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
            "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8, true>(c10::BFloat16*, long)",
            "vllm::fused_add_rms_norm_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, T> >(int)",
            "at::vectorized_elementwise (FillFunctor)",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, 4> >(x)",
            "at::reduce (ArgMaxOps)",
        ),
        ("void at::native::(anonymous namespace)::indexSelectSmallIndex<long>(int)", "at::indexSelectSmallIndex"),
        (
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_", "aiter::add_rmsnorm_quant_kernel"),
        (
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEEvT0_",
            "ck_tile::Rmsnorm2dFwd",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN", "Cijk_Alik_Bljk BBS MT128x256x32"),
        ("", "(no name)"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    ],
)
def test_short_names_keep_what_tells_kernels_apart(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


def test_variants_of_one_kernel_stay_distinct() -> None:
    names = [FLASH.format(m=64), FLASH.format(m=128), FLASH.format(m=64).replace("Sm90, true", "Sm90, false")]
    short = short_kernel_names(names)
    assert [short[n] for n in names] == [
        "flash::FlashAttnFwdSm90 64x128x128 bf16",
        "flash::FlashAttnFwdSm90 128x128x128 bf16",
        "flash::FlashAttnFwdSm90 64x128x128 bf16 #2",
    ]


def test_the_end_of_a_long_name_is_kept() -> None:
    assert elide("triton_poi_fused_add_embedding_ge_lt_masked_fill_0", 24) == "triton_poi_fused…_fill_0"
    assert len(elide("x" * 100, 24)) == 24


@given(st.lists(st.text(max_size=120), max_size=8), st.integers(12, 60))
def test_any_names_come_out_short_and_distinct(names: list[str], limit: int) -> None:
    short = short_kernel_names(names, limit)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(short)
    assert all(0 < len(s) <= limit for s in short.values())


@given(st.text(alphabet="<>(),: abC128_Z", max_size=80))
def test_unbalanced_brackets_are_no_error(name: str) -> None:
    assert short_kernel_name(name)
