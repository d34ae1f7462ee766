"""The ladder: from the call, the capture, the teacher, the order, the name; and sums to the nanosecond."""

import json
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_tables import kernels, launches, ranges, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from perflab.analysis.attribution import Attribution, Capture, HostSide, attribute, captures
from perflab.analysis.attribution.host import enclosing, from_tables, launched
from perflab.analysis.attribution.modules import part_of
from perflab.analysis.attribution.summary import layer_table, module_table, rung_table, slow_layers, to_json
from perflab.analysis.breakdown import breakdown, summary
from perflab.schema import CATEGORIES

LAYER = ("nn.Module: LlamaModel_0", "nn.Module: LlamaDecoderLayer_1")


def host(
    operators: list[tuple[Any, ...]] = (),  # type: ignore[assignment]
    frames: list[tuple[Any, ...]] = (),  # type: ignore[assignment]
    calls: list[tuple[Any, ...]] = (),  # type: ignore[assignment]
    links: list[tuple[int, int]] = (),  # type: ignore[assignment]
    labels: list[tuple[Any, ...]] = (),  # type: ignore[assignment]
) -> HostSide:
    """Operators (name, start, dur[, external id]), frames (name, start, dur), calls (name, id, start[, kernel])."""

    def table(rows: list[tuple[Any, ...]], columns: list[str]) -> pd.DataFrame:
        return pd.DataFrame(rows, columns=columns).assign(process=1, thread=1) if rows else HostSide().labels

    return HostSide(
        operators=table([(*row[:3], *(row[3:] or (-1,)), "") for row in operators],
                        ["name", "start_ns", "dur_ns", "external_id", "shapes"]) if operators else HostSide().operators,
        frames=table(list(frames), ["name", "start_ns", "dur_ns"]),
        calls=table([(*row[:3], 1, *(row[3:] or ("",))) for row in calls],
                    ["name", "correlation_id", "start_ns", "dur_ns", "kernel"]) if calls else HostSide().calls,
        links=pd.DataFrame(links, columns=["correlation_id", "external_id"]) if links else HostSide().links,
        labels=table(list(labels), ["name", "start_ns", "dur_ns"]),
    )  # fmt: skip


def test_a_kernel_belongs_to_the_innermost_operator_around_its_call() -> None:
    side = host(
        operators=[("aten::linear", 0, 100), ("aten::mm", 10, 50), ("aten::add", 200, 20)],
        frames=[(LAYER[0], 0, 1000), (LAYER[1], 0, 150), ("nn.Module: QKVParallelLinear_1", 5, 100)],
        calls=[("cudaLaunchKernel", 1, 20), ("cudaLaunchKernel", 2, 70), ("cudaLaunchKernel", 3, 205),
               ("cuLaunchKernel", 4, 300)],
    )  # fmt: skip
    work = kernels(*({"start": 1000 + 10 * n, "dur": 5, "correlation_id": n} for n in (1, 2, 3, 4, 99)))
    found = launched(work, side)
    assert found["operator"].tolist() == ["aten::mm", "aten::linear", "aten::add", None, None]
    assert found["outer"].tolist() == ["aten::linear", "aten::linear", "aten::add", None, None]
    assert part_of(found["stack"].iloc[0]) == ("self_attn.qkv_proj", 1)
    assert found["stack"].iloc[3] == (LAYER[0],)
    assert found["stack"].iloc[4] == ()


def test_kernels_of_a_replay_never_get_the_operator_that_launched_the_graph() -> None:
    """R21: hundreds of kernels with one correlation id, and a call inside an operator that asked for none of them."""
    side = host(operators=[("aten::copy_", 0, 100)], calls=[("cudaGraphLaunch", 7, 10)])
    work = kernels(*({"start": 1000 + 10 * n, "dur": 5, "correlation_id": 7, "graph_id": 7} for n in range(300)))
    assert launched(work, side)["operator"].isna().all()
    alone = kernels({"start": 1000, "dur": 5, "correlation_id": 7, "graph_id": 7})
    assert launched(alone, side)["operator"].isna().all(), "one kernel in a graph is no different"
    rows = attribute(work, steps(("decode", 1000, 4000)), host=side).rows
    assert set(rows["rung"]) == {"none"}
    assert rows["operator"].isna().all()


def test_kernels_that_share_the_id_of_an_ordinary_call_keep_its_operator() -> None:
    side = host(operators=[("aten::mm", 0, 100)], calls=[("cudaLaunchKernel", 7, 10)])
    work = kernels(*({"start": 1000 + n, "dur": 1, "correlation_id": 7, "graph_id": 7} for n in range(2)))
    assert launched(work, side)["operator"].tolist() == ["aten::mm", "aten::mm"]


def test_an_operator_is_found_by_its_id_where_the_call_was_lost() -> None:
    side = host(operators=[("aten::mm", 0, 100, 55)], links=[(7, 55), (8, 56)])
    work = kernels(*({"start": n, "dur": 1, "correlation_id": n} for n in (7, 8)))
    assert launched(work, side)["operator"].tolist() == ["aten::mm", None]


def test_other_threads_do_not_enclose() -> None:
    found = enclosing(
        np.array([5, 5]), np.array([0, 1]), np.array([0, 0, 2]), np.array([10, 10, 8]), np.array([0, 1, 1])
    )
    assert found == [(0,), (1, 2)]


@pytest.mark.parametrize(("stack", "expected"), [
    (("nn.Module: Qwen3Model_0", "nn.Module: Qwen3DecoderLayer_7", "nn.Module: Qwen2MLP_7",
      "nn.Module: RowParallelLinear_15"), ("mlp.down_proj", 7)),
    (("nn.Module: Qwen3Model_0", "nn.Module: Qwen3DecoderLayer_7", "nn.Module: Qwen3Attention_7",
      "nn.Module: RowParallelLinear_14"), ("self_attn.o_proj", 7)),
    (("nn.Module: Qwen3Model_0", "nn.Module: Qwen3DecoderLayer_0", "nn.Module: Qwen3Attention_0",
      "nn.Module: RMSNorm_1"), ("self_attn.qk_norm", 0)),
    (("nn.Module: Qwen3Model_0", "nn.Module: VocabParallelEmbedding_0"), ("embed_tokens", None)),
    (("nn.Module: Qwen3Model_0", "nn.Module: RMSNorm_99"), ("norm", None)),
    (("nn.Module: GptOssForCausalLM_0", "nn.Module: GraphModule_0"), (None, None)),
    (("nn.Module: MixtralModel_0", "nn.Module: MixtralDecoderLayer_3", "nn.Module: MixtralMoE_3",
      "nn.Module: FusedMoE_3"), ("mlp.experts", 3)),
    (("vllm/v1/worker/gpu/model_runner.py(1048): sample", "vllm/v1/worker/gpu/sample/sampler.py(72): __call__"),
     ("sampler", None)),
    (("{'Module': 'model.layers.12.self_attn.qkv_proj', 'Inputs': [[8, 4096]]}",), ("self_attn.qkv_proj", 12)),
    ((), (None, None)),
])  # fmt: skip
def test_stacks_tell_the_part_and_the_layer(stack: tuple[str, ...], expected: tuple[str | None, int | None]) -> None:
    assert part_of(stack) == expected


def test_layerwise_ranges_are_modules_too() -> None:
    side = from_tables(
        launches({"id": 1, "start": 10}, {"id": 2, "start": 60}),
        ranges(
            ("host", 1, "{'Module': 'model.layers.2.mlp.down_proj', 'x': 1}", 0, 50), ("host", 1, "anything", 55, 50)
        ),
    )
    work = kernels(*({"start": 100 * n, "dur": 1, "correlation_id": n} for n in (1, 2)))
    rows = attribute(work, steps(("decode", 90, 200)), host=side).rows
    assert rows["module"].tolist() == ["mlp.down_proj", None]
    assert rows["layer"].tolist()[0] == 2
    assert rows["rung"].tolist() == ["launch", "none"]


# ------------------------------------------------------------------- captures

CAPTURED = host(
    operators=[("aten::mm", 10, 10), ("triton_norm", 30, 10), ("aten::mm", 50, 10)],
    frames=[(LAYER[0], 0, 100), (LAYER[1], 5, 50)],
    calls=[("cudaStreamBeginCapture", -1, 1), ("cudaLaunchKernel", 1, 12), ("cuLaunchKernel", 2, 32),
           ("cudaStreamIsCapturing", -1, 40), ("cudaMemsetAsync", 3, 52), ("cudaStreamEndCapture", -1, 90),
           ("cudaLaunchKernel", 4, 95)],
    labels=[("capture_8_FULL", 0, 99)],
)  # fmt: skip


def replay(start: int, names: list[str], graph: int) -> list[dict[str, Any]]:
    return [
        {
            "start": start + 10 * i,
            "dur": 5,
            "correlation_id": graph,
            "graph_id": graph,
            "name": name,
            "category": "gemm",
        }
        for i, name in enumerate(names)
    ]


def test_what_was_launched_between_begin_and_end_is_the_graph() -> None:
    (found,) = captures(CAPTURED)
    assert (found.label, len(found)) == ("capture_8_FULL", 3)
    assert found.operator == ("aten::mm", "triton_norm", "aten::mm")
    assert found.names == (None, "triton_norm", None)
    assert found.stack[0] == LAYER


def test_a_replay_inherits_by_place() -> None:
    work = kernels(*replay(100, ["gemm_a", "triton_norm", "set"], 7), *replay(200, ["gemm_b", "triton_norm", "set"], 8))
    rows = attribute(work, steps(("decode", 90, 90), ("decode", 180, 90)), captured=captures(CAPTURED)).rows
    assert rows["rung"].tolist() == ["capture"] * 6
    assert rows["operator"].tolist() == ["aten::mm", "triton_norm", "aten::mm"] * 2
    assert rows["layer"].tolist() == [1, 1, 1] * 2
    assert rows["confidence"].tolist() == [1.0] * 6


@pytest.mark.parametrize("names", [
    ["gemm_a", "triton_norm"],
    ["gemm_a", "triton_norm", "set", "set"],
    ["gemm_a", "triton_other_thing", "set"],
], ids=["fewer", "more", "another kernel in a place that is known"])  # fmt: skip
def test_a_replay_that_does_not_fit_inherits_nothing(names: list[str]) -> None:
    rows = attribute(kernels(*replay(100, names, 7)), steps(("decode", 90, 90)), captured=captures(CAPTURED)).rows
    assert set(rows["rung"]) == {"name"}
    assert rows["operator"].isna().all()


def test_without_kernel_names_products_must_come_from_products() -> None:
    """As on CUDA. Two branches that ran in another order than they were captured are not matched by count alone."""
    operators = ("aten::mm", "vllm::unified_attention_with_output", "aten::mm", "aten::add")
    known = [Capture("", operators, ("",) * 4, ((),) * 4, (None,) * 4)]

    def rows(*categories: str) -> pd.DataFrame:
        some = [{**row, "category": c} for row, c in zip(replay(100, ["k"] * 4, 7), categories, strict=True)]
        return attribute(kernels(*some), steps(("decode", 90, 90)), captured=known).rows

    assert rows("gemm", "attention", "gemm", "norm_act")["operator"].tolist() == list(operators)
    assert rows("attention", "gemm", "gemm", "norm_act")["operator"].isna().all()
    split = rows("gemm", "attention", "memory", "norm_act")
    assert split["operator"].tolist() == list(operators), "a clear says nothing against a product"


def test_pieces_of_a_step_are_matched_in_order_and_ambiguous_ones_left() -> None:
    def capture(label: str, operator: str) -> Capture:
        return Capture(label, (operator,) * 2, ("",) * 2, ((),) * 2, (None,) * 2)

    first, second = capture("capture_16", "aten::mm"), capture("capture_16", "aten::add")
    work = kernels(*replay(100, ["a", "b"], 7), *replay(200, ["c", "d"], 8))
    rows = attribute(work, steps(("decode", 90, 300)), captured=[first, second]).rows
    assert rows["operator"].tolist() == ["aten::mm", "aten::mm", "aten::add", "aten::add"]
    alone = attribute(kernels(*replay(100, ["a", "b"], 7)), steps(("decode", 90, 300)), captured=[first, second]).rows
    assert alone["operator"].isna().all(), "either of two captures could be its own"
    assert alone["confidence"].isna().all()


# -------------------------------------------------------------------- teacher

ORDER = [
    ("embed", "embedding"), ("rms_norm", "norm_act"), ("gemm_q", "gemm"), ("kv", "kv_cache"), ("flash", "attention"),
    *[("gemm_o", "gemm"), ("rms_norm", "norm_act"), ("gemm_up", "gemm"), ("silu", "norm_act"), ("gemm_down", "gemm"),
      ("rms_norm", "norm_act"), ("gemm_q", "gemm"), ("kv", "kv_cache"), ("flash", "attention")] * 3,
    ("gemm_o", "gemm"), ("rms_norm", "norm_act"), ("gemm_up", "gemm"), ("silu", "norm_act"), ("gemm_down", "gemm"),
    ("rms_norm", "norm_act"), ("gemm_head", "gemm"), ("sample", "sampling"),
]  # fmt: skip


def pass_of(order: list[tuple[str, str]], *, start: int = 1000, graph: int | None = None) -> pd.DataFrame:
    rows = [
        {
            "start": start + 10 * i, "dur": 9, "name": name, "category": category,
            "correlation_id": graph or i + 1, "graph_id": graph or -1,
        }
        for i, (name, category) in enumerate(order)
    ]  # fmt: skip
    return kernels(*rows)


@cache
def taught() -> Attribution:
    work = pass_of(ORDER)
    side = host(
        operators=[(f"op::{name}", 10 * i, 9) for i, (name, _) in enumerate(ORDER)],
        calls=[("cudaLaunchKernel", i + 1, 10 * i + 1) for i in range(len(ORDER))],
    )
    return attribute(work, steps(("decode", 1000, 10 * len(ORDER))), host=side)


def test_the_teacher_knows_itself() -> None:
    teacher = taught()
    assert set(teacher.rows["rung"]) == {"launch"}
    assert teacher.n_layers == 4
    assert teacher.rows["module"].tolist()[-1] == "sampler"


def test_a_replay_inherits_the_teachers_operators_through_variants() -> None:
    """The graph runs split-K where the teacher did not, and one matmul with another tile."""
    order = [
        part
        for what in ORDER
        for part in ((what, ("cublasLt::splitKreduce", "gemm")) if what[0] == "gemm_o" else (what,))
    ]
    order = [(name.replace("gemm_up", "gemm_wide"), category) for name, category in order]
    found = attribute(pass_of(order, graph=5), steps(("decode", 1000, 10 * len(order))), teacher=taught())
    rows = found.rows
    (match,) = found.matches
    assert (match.accepted, match.teacher_step) == (True, 0)
    assert match.share == pytest.approx(len(ORDER) / len(order))
    for name, operator in (("gemm_down", "op::gemm_down"), ("gemm_wide", "op::gemm_up"), ("flash", "op::flash")):
        assert set(rows.loc[rows["name"] == name, "operator"]) == {operator}
    reduction = rows[rows["name"] == "cublasLt::splitKreduce"]
    assert set(reduction["rung"]) == {"position"}
    assert reduction["operator"].isna().all(), "what the teacher did not run has no operator of its"
    assert set(reduction["module"]) == {"self_attn.o_proj"}
    assert rows.loc[rows["name"] == "flash", "layer"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", [
    ORDER[: 5 + 9] + ORDER[5 + 18 :],
    [("x", "norm_act")] * len(ORDER),
    list(reversed(ORDER)),
], ids=["a layer less", "other kernels", "backwards"])  # fmt: skip
def test_a_step_unlike_the_teachers_inherits_nothing(order: list[tuple[str, str]]) -> None:
    found = attribute(pass_of(order, graph=5), steps(("decode", 1000, 10 * len(order))), teacher=taught())
    assert not found.matches[0].accepted
    assert found.rows["operator"].isna().all()


def test_a_phase_the_teacher_never_ran_inherits_nothing() -> None:
    found = attribute(pass_of(ORDER, graph=5), steps(("prefill", 1000, 10 * len(ORDER))), teacher=taught())
    assert (found.matches[0].teacher_step, found.matches[0].accepted) == (-1, False)
    assert set(found.rows["rung"]) == {"position"}


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_the_more_disorder_the_less_is_paired(seed: int, swaps: int) -> None:
    """Neighbours swapped `swaps` times pair at most fully, and a thorough shuffle less than the order itself."""
    order, thorough, random = list(ORDER), list(ORDER), Random(seed)
    for _ in range(swaps):
        i = random.randrange(len(order) - 1)
        order[i], order[i + 1] = order[i + 1], order[i]
    random.shuffle(thorough)
    shares = [
        attribute(pass_of(some, graph=5), steps(("decode", 1000, 10 * len(some))), teacher=taught()).matches[0].share
        for some in (ORDER, order, thorough)
    ]
    assert shares[0] == 1.0
    assert 1 - 2 * swaps / len(ORDER) <= shares[1] <= 1.0
    assert shares[2] < 0.9


def test_what_only_the_category_tells_and_what_nothing_tells() -> None:
    work = kernels({"start": 0, "dur": 5, "category": "gemm"}, {"start": 10, "dur": 5, "category": "other"})
    rows = attribute(work, steps(("decode", 0, 20))).rows
    assert rows["rung"].tolist() == ["name", "none"]


def test_layers_of_unknown_attention_are_numbered_by_repetition_inside_a_replay_only() -> None:
    block = [("a", "norm_act"), ("b", "gemm"), ("c", "other")]
    order = [("embed", "embedding"), *block * 6, ("head", "gemm")]
    found = attribute(pass_of(order, graph=5), steps(("decode", 1000, 10 * len(order))))
    assert found.n_layers == 6
    assert found.rows["layer"].dropna().tolist() == [n for n in range(6) for _ in block]
    assert found.rows["module"].isna().all()
    assert attribute(pass_of(order), steps(("decode", 1000, 10 * len(order)))).n_layers == 0


def test_without_steps_forward_passes_are_not_taken_for_one() -> None:
    assert attribute(pass_of(ORDER * 2), steps()).n_layers == 0, "eight attentions are two passes of four layers"


# ----------------------------------------------------------------------- sums

ACTIVITIES = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 25),
        st.sampled_from(CATEGORIES),
        st.sampled_from(["kernel", "memcpy"]),
        st.integers(0, 2),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(ACTIVITIES, st.booleans())
def test_rungs_modules_and_layers_sum_to_the_busy_time(activities: list[tuple[Any, ...]], with_steps: bool) -> None:
    work = kernels(
        *(
            {"start": start, "dur": dur, "category": category, "kind": kind, "stream": stream}
            for start, dur, category, kind, stream in activities
        )
    )
    table = steps(("prefill", 5, 20), ("decode", 25, 30)) if with_steps else steps()
    found = attribute(work, table)
    told = breakdown(work, table)
    busy = summary(told)[0]["busy_ns"] if len(told) else 0
    assert int(rung_table(found)["exclusive_ns"].sum()) == busy
    assert int(found.rows["exclusive_ns"].sum()) == busy
    for sums in (module_table(found), layer_table(found)):
        assert int(sums["exclusive_ns"].sum()) == busy
        if with_steps and busy:
            by_phase = sums.groupby("phase")["exclusive_ns"].sum().to_dict()
            phases = summary(told)[0]["phases"]
            assert by_phase == {name: of["busy_ns"] for name, of in phases.items() if of["busy_ns"]}


def test_a_slow_layer_is_named_with_the_part_that_makes_it_slow() -> None:
    work = pass_of(ORDER * 1, graph=5)
    starts = np.cumsum(np.r_[1000, np.where(np.arange(len(work)) == 5 + 9 + 2, 60, 10)[:-1]])
    slow = np.where(np.arange(len(work)) == 5 + 9 + 2, 59, 9)
    found = attribute(work.assign(start_ns=starts, dur_ns=slow), steps(("decode", 1000, int(starts[-1]) + 9 - 1000)))
    table = layer_table(found)
    (odd,) = slow_layers(table)
    assert (odd.first, odd.last, odd.because, odd.within) == (1, 1, "mlp.gate_up_proj", False)
    assert odd.ratio == pytest.approx((9 * 9 + 50) / (9 * 9))
    assert table[table["outlier"]]["layer"].tolist() == [1]


def test_the_json_holds_every_rung_and_nulls_for_what_is_not_known() -> None:
    told = to_json(taught())
    assert list(told["rungs"]) == ["launch", "capture", "teacher", "position", "name", "none"]
    assert told["rungs"]["launch"]["share"] == 1.0
    assert (told["n_layers"], told["teacher"]) == (4, None)
    assert sum(row["exclusive_ns"] for row in told["modules"]) == sum(row["exclusive_ns"] for row in told["layers"])
    assert "NaN" not in json.dumps(told)
    nothing = to_json(attribute(kernels(), steps()))
    assert nothing["n_layers"] is None
    assert nothing["rungs"]["none"] == {"kernels": 0, "exclusive_ns": 0, "share": None}
