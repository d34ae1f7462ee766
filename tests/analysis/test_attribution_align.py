"""Two orders of kernels beside each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflab.analysis.attribution.align import align, plain_name

GROUPS = np.array([0, 0, 1, 1, 2], dtype=np.int64)
"""Codes 0 and 1 are of one category, 2 and 3 of another, 4 of a third."""
ORDERS = st.lists(st.integers(0, 4), max_size=40)


@pytest.mark.parametrize(("first", "second", "expected"), [
    ([0, 2, 4], [0, 2, 4], [0, 1, 2]),
    ([0, 2, 4], [0, 4], [0, -1, 1]),
    ([0, 4], [0, 2, 4], [0, 2]),
    ([0, 2, 4], [1, 2, 4], [0, 1, 2]),
    ([0, 0], [4, 4], [-1, -1]),
    ([], [1], []),
    ([1], [], [-1]),
], ids=["same", "one more", "one less", "a variant", "other categories", "none", "nothing there"])  # fmt: skip
def test_small_orders(first: list[int], second: list[int], expected: list[int]) -> None:
    assert align(first, second, GROUPS).tolist() == expected


def test_split_k_in_one_of_two_leaves_the_rest_in_step() -> None:
    """Layers of (norm 4, matmul 0, attention 2); in the second every matmul is followed by its reduction 1."""
    paired = align([4, 0, 2] * 5, [4, 0, 1, 2] * 5, GROUPS)
    assert paired.tolist() == [4 * layer + part for layer in range(5) for part in (0, 1, 3)]


@given(ORDERS, ORDERS)
def test_pairs_keep_the_order_and_the_category(first: list[int], second: list[int]) -> None:
    paired = align(first, second, GROUPS)
    there = paired[paired >= 0]
    assert (np.diff(there) > 0).all(), "no two pair with the same one, and none cross"
    assert all(GROUPS[first[i]] == GROUPS[second[j]] for i, j in enumerate(paired) if j >= 0)


@given(ORDERS)
def test_an_order_pairs_fully_with_itself(order: list[int]) -> None:
    assert align(order, order, GROUPS).tolist() == list(range(len(order)))


def _best(first: list[int], second: list[int]) -> int:
    """The highest score, by the plain recursion."""
    table = [[-j for j in range(len(second) + 1)]]
    for i, a in enumerate(first, start=1):
        row = [-i]
        for j, b in enumerate(second, start=1):
            pair = 4 if a == b else 1 if GROUPS[a] == GROUPS[b] else -(10**9)
            row.append(max(table[i - 1][j - 1] + pair, table[i - 1][j] - 1, row[j - 1] - 1))
        table.append(row)
    return table[-1][-1]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=14), st.lists(st.integers(0, 4), max_size=14))
def test_no_other_pairing_scores_higher(first: list[int], second: list[int]) -> None:
    paired = align(first, second, GROUPS)
    matched = [(first[i], second[j]) for i, j in enumerate(paired) if j >= 0]
    score = sum(4 if a == b else 1 for a, b in matched) - (len(first) + len(second) - 2 * len(matched))
    assert score == _best(first, second)


@pytest.mark.parametrize(("one", "other", "same"), [
    ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_splitK_TNT", True),
    ("void vllm::rms_norm_kernel<c10::BFloat16, 8>(int)", "void vllm::rms_norm_kernel<c10::Half, 4>(int)", True),
    ("triton_red_fused_fused_add_rms_norm_0", "triton_poi_fused_mul_silu_slice_1", False),
    ("void cutlass::device_kernel<flash::FlashAttnFwdCombine<int> >(x)",
     "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(x)", False),
    ("void (anonymous namespace)::f<int>(x)", "void (anonymous namespace)::g<int>(x)", False),
])  # fmt: skip
def test_plain_names(one: str, other: str, same: bool) -> None:
    assert (plain_name(one) == plain_name(other)) is same
