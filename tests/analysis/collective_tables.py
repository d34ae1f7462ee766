"""Ranks that meet in collectives, made by hand: who arrives when decides what each of them records."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from analysis_tables import kernels, steps

CUSTOM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def meeting(
    arrivals: Sequence[Sequence[int]], transfer: int = 4, *, name: str = CUSTOM, graph_id: int = -1,
    clocks: Mapping[int, int] | None = None, jitter: Sequence[Sequence[int]] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Table `kernels` of ranks that all leave a collective `transfer` after the last has arrived.

    Parameters
    ----------
    arrivals
        A line a collective: when each rank arrives.
    clocks
        By rank, how far its clock is ahead.
    jitter
        As `arrivals`: how much later than that each rank's kernel ends.
    """
    ahead = clocks or {}
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(arrivals):
        end = max(line) + transfer
        for rank, at in enumerate(line):
            late = jitter[number][rank] if jitter else 0
            rows.append({
                "rank": rank, "name": name, "category": "communication", "graph_id": graph_id,
                "correlation_id": 100 + number, "start": at + ahead.get(rank, 0), "dur": end + late - at,
            })  # fmt: skip
    return kernels(*rows)


def all_steps(
    count: int, length: int, ranks: int = 2, *, phase: str = "decode", clocks: Mapping[int, int] | None = None
) -> pd.DataFrame:
    """Table `steps`: as many steps one after the other on every rank."""
    ahead = clocks or {}
    return steps(
        *[(phase, n * length + ahead.get(rank, 0), length, rank) for rank in range(ranks) for n in range(count)]
    )
