"""What a trace says about the sizes of collectives."""

import gzip
import json
from pathlib import Path

import pytest

from perflab.knowledge.collectives import collective_of, element_size, op_of_call
from perflab.read.kineto import read_kineto


def _event(cat: str, name: str, at: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 5.0, "args": args}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """An all-gather by c10d, an all-reduce by pynccl inside vLLM's operator, and one that a graph replays."""
    events = [
        _event(
            "cpu_op", "vllm::all_reduce", 1.0,
            **{"External id": 7, "Input Dims": [[3585, 4096], []], "Input type": ["c10::BFloat16", ""]},
        ),
        _event("cpu_op", "aten::mm", 2.0, **{"External id": 8, "Input Dims": [[2, 2]], "Input type": ["float"]}),
        _event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 9.0, **{"External id": 7, "correlation": 11}),
        _event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 19.0, correlation=12),
        _event(
            "kernel", "ncclDevKernel_AllGather_RING_LL", 29.0,
            **{
                "External id": 9, "correlation": 13, "Collective name": "_allgather_base", "In msg nelems": 64128,
                "Out msg nelems": 128256, "dtype": "BFloat16", "Group size": 2, "Process Group Ranks": "[0, 1]",
            },
        ),
    ]  # fmt: skip
    path = tmp_path / "rank0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return path


def test_sizes_come_from_arguments_and_from_shapes_of_operators(trace: Path) -> None:
    table = read_kineto(trace).messages.set_index("correlation_id")
    assert list(table.index) == [11, 13]  # nothing is said of the replayed one
    assert table.loc[11, ["call", "in_bytes", "tokens", "source"]].tolist() == [
        "vllm::all_reduce", 3585 * 4096 * 2, 3585, "shape",
    ]  # fmt: skip
    assert table.loc[13, ["in_bytes", "out_bytes", "group", "group_size", "source"]].tolist() == [
        128256, 256512, "0,1", 2, "arguments",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [{"In msg nelems": [1]}, {"dtype": None}, {"dtype": "Strange"}, {"Group size": {}}])
def test_odd_arguments_cost_no_event(tmp_path: Path, odd: dict[str, object]) -> None:
    args = {"correlation": 3, "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float"}
    event = _event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1.0, **{**args, **odd})
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    trace = read_kineto(path)
    assert len(trace.kernels) == 1 and trace.unreadable == 0
    assert len(trace.messages) == ("Group size" in odd)  # all else makes the size unknown, never 0


def test_a_group_written_with_dots_has_no_known_members(tmp_path: Path) -> None:
    args = {
        "correlation": 3, "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float",
        "Group size": 300, "Process Group Ranks": "[0, 1, ..., 298, 299]",
    }  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": [_event("kernel", "ncclDevKernel_AllReduce_x", 1.0, **args)]})
    )
    assert read_kineto(path).messages[["group", "group_size"]].to_numpy().tolist() == [["", 300]]


def test_real_traces_of_others(shared: Path) -> None:
    """Arguments on the kernel (CUDA, 2 ranks) and RCCL's generic kernel, which only the call names."""
    cuda = read_kineto(shared / "fixtures/kineto/hta/nccl_parser_config/nccl_data.json.gz")
    assert cuda.messages["call"].value_counts().to_dict() == {"allreduce": 15, "broadcast": 6}
    assert cuda.messages.loc[cuda.messages["in_bytes"] == 2049000 * 4, "group"].tolist() == ["0,1"] * 3
    rocm = read_kineto(shared / "fixtures/kineto/tracelens/mi300/resnet_act_checkpoint.json.gz")
    assert set(rocm.messages["call"]) >= {"allreduce", "broadcast"}
    assert set(rocm.messages["group_size"]) == {8}


@pytest.mark.parametrize(
    ("name", "op", "by"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, int)", "all_reduce", "custom"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce", "nccl"),
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16", "all_reduce", "nccl"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce", "nccl"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather", "nccl"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter", "nccl"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv", "nccl"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "other", "nccl"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", "all_reduce", "multimem"),
        ("two_shot_all_reduce_kernel_inplace", "all_reduce", "symm_mem"),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
            "all_reduce",
            "flashinfer",
        ),
        ("void deep_ep::internode_ll::dispatch<true, false>", "all_to_all", "deep_ep"),
        ("triton_poi_fused_add", "other", "other"),
    ],
)
def test_what_kernels_do(name: str, op: str, by: str) -> None:
    assert collective_of(name) == (op, by)


def test_sizes_of_elements_and_calls() -> None:
    assert [element_size(name) for name in ("BFloat16", "c10::Half", "Float", "Long", "Byte", "")] == [
        2,
        2,
        4,
        8,
        1,
        None,
    ]
    assert [op_of_call(call) for call in ("alltoall_base", "_allgather_base", "barrier")] == [
        "all_to_all",
        "all_gather",
        None,
    ]
