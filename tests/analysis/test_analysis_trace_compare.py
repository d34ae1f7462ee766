"""Two traces side by side: changes that add up, like with like, kernels found again under other names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from analysis_tables import kernels, launches, steps
from compare_tables import DECODE, batches, side, simple
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflab.analysis.breakdown import breakdown, summary
from perflab.analysis.compare.kernel_steps import kernel_key, kernel_steps
from perflab.analysis.compare.step_statistics import median_interval, whole, whole_step
from perflab.analysis.compare.traces import RankTrace, compare_phases
from perflab.analysis.idle import idle_gaps
from perflab.schema import CATEGORIES, empty


def test_a_kernel_is_replaced_and_the_rest_becomes_idle() -> None:
    before = simple(("nvjet_sm90_tst_a", "gemm", 0, 60), ("flash::f", "attention", 60, 30))
    after = simple(("void vllm::cutlass_3x_gemm_sm90_fp8<x>", "gemm", 0, 30), ("flash::f", "attention", 30, 30))
    (one,) = compare_phases(before, after)
    assert (one.phase, one.alike) == ("decode", "same")
    changes = dict(zip(one.shown.categories["category"], one.shown.categories["change_ns"], strict=True))
    assert changes == {"attention": 0, "gemm": -30, "idle": 30}
    assert one.shown.change_ns == 0
    assert one.shown.categories["share_of_change"].isna().all()
    told = {
        row["key"]: (row["change"], row["family"], row["change_ns"]) for row in one.shown.kernels.to_dict("records")
    }
    assert told == {
        "nvjet_sm90_16_a": ("vanished", "cuBLASLt (nvjet, 16 bit)", -60.0),
        "void vllm::cutlass_3x_gemm_sm90_fp8<x>": ("appeared", "CUTLASS (FP8)", 30.0),
        "flash::f": ("same", "FlashAttention", 0.0),
    }


def test_only_steps_of_like_batches_are_compared() -> None:
    # Baseline: two steps of 8 requests (60 ns busy). Candidate: one of 8 (50 ns) and one of 1 (10 ns).
    before = simple(("k", "gemm", 0, 60), ("k", "gemm", 100, 60), counts=(DECODE, DECODE))
    after = simple(("k", "gemm", 0, 50), ("k", "gemm", 100, 10), counts=(DECODE, (0, 0, 1, 1)))
    (one,) = compare_phases(before, after)
    assert one.alike == "partly"
    assert (one.covered("baseline"), one.covered("candidate")) == (1.0, 0.5)
    gemm = one.shown.categories.set_index("category").loc["gemm"]
    assert (gemm["baseline_ns"], gemm["candidate_ns"]) == (60, 50)
    every = one.every.categories.set_index("category").loc["gemm"]
    assert (every["baseline_ns"], every["candidate_ns"]) == (60, 30)
    assert (one.shown.candidate.steps, one.every.candidate.steps) == (1, 2)


def test_batches_count_alike_on_both_sides_however_often_they_occur() -> None:
    small, large = (0, 0, 1, 1), DECODE
    # 10 ns for one request, 90 for eight; nothing changed but how often each occurs.
    before = simple(("k", "gemm", 0, 10), ("k", "gemm", 100, 90), ("k", "gemm", 200, 90), counts=(small, large, large))
    after = simple(("k", "gemm", 0, 10), ("k", "gemm", 100, 10), ("k", "gemm", 200, 90), counts=(small, small, large))
    (one,) = compare_phases(before, after)
    gemm = one.shown.categories.set_index("category").loc["gemm"]
    assert one.alike == "partly" and gemm["change_ns"] == 0
    assert one.every.categories.set_index("category").loc["gemm", "change_ns"] == round(110 / 3) - round(190 / 3)


def test_no_batch_in_common_leaves_nothing_to_compare() -> None:
    before = simple(("k", "gemm", 0, 60))
    after = simple(("k", "gemm", 0, 60), counts=((0, 0, 4, 4),))
    (one,) = compare_phases(before, after)
    assert (one.alike, one.like) == ("none", None)
    assert (one.every.baseline.tokens, one.every.candidate.tokens) == (8.0, 4.0)


def test_ranks_are_averaged_and_their_spread_is_kept() -> None:
    before = simple(("k", "gemm", 0, 60))
    reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
    work = kernels(
        {"name": "k", "category": "gemm", "start": 0, "dur": 30},
        {"name": reduce, "category": "communication", "start": 30, "dur": 50},
        {"name": "k", "category": "gemm", "start": 0, "dur": 50, "rank": 1},
        {"name": reduce, "category": "communication", "start": 50, "dur": 30, "rank": 1},
    )  # fmt: skip
    of = batches(steps(("decode", 0, 100), ("decode", 0, 100, 1)), DECODE, DECODE)
    (one,) = compare_phases(before, side(work, of))
    rows = one.shown.categories.set_index("category")
    assert rows.loc["gemm", "candidate_ns"] == 40 and rows.loc["communication", "candidate_ns"] == 40
    assert (rows.loc["communication", "candidate_low_ns"], rows.loc["communication", "candidate_high_ns"]) == (30, 50)
    assert one.alike == "same" and one.shown.candidate.steps == 1
    calls = one.shown.kernels.set_index("category")["candidate_calls"]
    assert calls["communication"] == 1


def test_phases_of_one_side_only_are_left_out() -> None:
    before = simple(("k", "gemm", 0, 60), phase="prefill", counts=((1, 512, 0, 0),))
    assert compare_phases(before, simple(("k", "gemm", 0, 60))) == []


NAMES = ["nvjet_sm90_tst_x", "triton_poi_fused_mul_1", "triton_poi_fused_mul_2", "k"]


@st.composite
def timelines(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame]:
    count = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(50, 200), min_size=count, max_size=count))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).tolist()
    of = steps(*[("decode", s, d) for s, d in zip(starts, lengths, strict=True)])
    sizes = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(NAMES),
                    "category": st.sampled_from(CATEGORIES),
                    "kind": st.sampled_from(["kernel", "memcpy"]),
                    "start": st.integers(-20, sum(lengths)),
                    "dur": st.integers(0, 90),
                }
            ),
            min_size=1,
            max_size=12,
        )
    )  # fmt: skip
    return kernels(*rows), batches(of, *[(0, 0, n, n) for n in sizes])


@settings(max_examples=60, deadline=None)
@given(timelines(), timelines())
def test_changes_of_categories_and_kernels_add_up_to_the_change_of_the_step(
    one: tuple[pd.DataFrame, pd.DataFrame], other: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    (found,) = compare_phases(side(*one), side(*other))
    for view in [found.every, *([found.like] if found.like else [])]:
        assert int(view.categories["change_ns"].sum()) == view.change_ns
        assert int(view.categories["baseline_ns"].sum()) == view.baseline.ns
        idle = view.categories[view.categories["category"] == "idle"]
        busy = view.candidate.ns - int(idle["candidate_ns"].sum())
        # Means of kernels are floating-point sums: their noise is no part of the nanosecond allowed for rounding.
        assert round(float(view.kernels["candidate_ns"].sum()), 6) == pytest.approx(busy, abs=1)
        assert int(view.causes["baseline_ns"].sum()) == pytest.approx(int(idle["baseline_ns"].sum()), abs=3)
    window = sum(int(step) for step in one[1]["dur_ns"])
    assert found.every.baseline.ns == round(window / len(one[1]))


@settings(max_examples=60, deadline=None)
@given(timelines())
def test_kernels_of_a_category_sum_to_what_the_breakdown_gives_it(one: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    work, of = one
    (record,) = summary(breakdown(work, of))
    sums = kernel_steps(work, of).groupby("category")["exclusive_ns"].sum()
    for category in CATEGORIES:
        assert int(sums.get(category, 0)) == record["categories"][category]["exclusive_ns"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT", "nvjet_sm90_hsh_128x8_64x12_2x1_v_bz_TNT", True),
        ("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", False),
        ("nvjet_sm90_tst_a", "nvjet_sm90_qqtst_a", False),
        ("triton_red_fused_fused_add_rms_norm_2", "triton_red_fused_fused_add_rms_norm_machete_mm_0", True),
        ("triton_poi_fused_3", "triton_poi_fused_4", False),
        ("triton_poi_fused_mul_silu_slice_1", "triton_poi_fused_machete_mm_mul_silu_slice_1", True),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(a)", "ncclDevKernel_AllReduce_Sum_f16_RING_LL(a)", True),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(a)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(a)", False),
        ("void f<cutlass::bfloat16_t, 64>", "void f<cutlass::half_t, 64>", True),
        ("void f<__half, 64>(__half*, int)", "void f<__nv_bfloat16, 64>(__nv_bfloat16*, int)", True),
        (
            "void reshape_and_cache_flash_kernel<unsigned short, unsigned short, (vllm::X)0>(unsigned short const*)",
            "void reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::X)0>(__nv_bfloat16 const*)",
            True,
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)", False),
        ("void f<cutlass::bfloat16_t, 64>", "void f<cutlass::float_e4m3_t, 64>", False),
    ],
)  # fmt: skip
def test_a_kernel_is_found_again(one: str, other: str, same: bool) -> None:
    assert (kernel_key(one) == kernel_key(other)) is same


def test_the_interval_of_a_median_keeps_its_level_exactly() -> None:
    # P(at most 0 of n below the median) = 2^-n: 2 * 2^-6 = 3.1 % for six values, 6.3 % for five.
    assert median_interval([5, 1, 4, 2, 3]) is None
    assert median_interval([6, 5, 1, 4, 2, 3]) == (1, 6)
    # n = 9: 2 * (1 + 9) / 2^9 = 3.9 %.
    assert median_interval(list(range(1, 10))) == (2, 8)
    assert median_interval([]) is None


def test_the_interval_covers_the_median_of_skewed_values_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    draws = rng.lognormal(0, 1, size=(4000, 20))
    hits = [low <= 1 <= high for low, high in (median_interval(row.tolist()) or (2, 0) for row in draws)]
    assert 0.95 <= np.mean(hits) <= 0.97  # exactly 95.9 % for n = 20


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=12))
def test_whole_parts_add_up(parts: list[float]) -> None:
    found = whole(parts)
    assert int(found.sum()) == round(float(np.sum(parts)))
    assert np.abs(found - np.asarray(parts)).max() <= 1


@given(st.integers(1, 9), st.lists(st.integers(0, 40), min_size=2, max_size=13))
@example(8, [5, 5, 5, 5])  # parts of 5/8: told apart only by their remainders, busy time would be 9/8 off
def test_step_busy_and_idle_time_are_each_within_one(steps: int, sums: list[int]) -> None:
    *busy, idle = [one / steps for one in sums]
    found = whole_step(busy, idle)
    assert int(found.sum()) == round(float(np.sum(busy)) + idle)
    assert np.abs(found - np.asarray([*busy, idle])).max() <= 1 + 1e-9
    assert abs(int(found[:-1].sum()) - sum(busy)) <= 1 + 1e-9
    assert (found >= 0).all()


def test_late_launches_and_waiting_stand_apart() -> None:
    # Baseline: 60 ns of work, then idle. Candidate: the second kernel was launched at 80 only, and 10 ns are waiting.
    before = simple(("a", "gemm", 0, 30), ("b", "communication", 30, 30))
    work = kernels(
        {"name": "a", "category": "gemm", "start": 0, "dur": 30, "correlation_id": 1},
        {"name": "b", "category": "communication", "start": 85, "dur": 40, "correlation_id": 2},
    )
    of = batches(steps(("decode", 0, 140)), DECODE)
    calls = launches({"id": 1, "start": -5, "dur": 1}, {"id": 2, "start": 70, "dur": 10})
    waits = pd.DataFrame({"step": [0], "wait_ns": [10]})
    after = RankTrace(
        0, "gpu", breakdown(work, of), work, of, idle_gaps(work, of, calls), empty("ranges"), waits
    )  # fmt: skip
    (one,) = compare_phases(before, [after])
    time = one.shown.candidate
    assert (time.ns, time.late_ns, time.wait_ns, time.gpu_ns) == (140, 55, 10, 75)
    assert one.shown.gpu_change == pytest.approx(75 / 100 - 1)
    too_much = pd.DataFrame({"step": [0], "wait_ns": [900]})
    (other,) = compare_phases(before, [replace(after, waits=too_much)])
    assert other.shown.candidate.wait_ns == 40  # no more than the communication there is
