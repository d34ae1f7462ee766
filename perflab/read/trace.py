"""What a reader of traces gives: one process on one device, as tables, whatever the format of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflab.analysis.recording import Recording
from perflab.read.trace_columns import MISSING
from perflab.schema import empty

RankSource = Literal["given", "trace", "file_name", "process_name", "devices", "assumed"]


@dataclass(frozen=True)
class Trace:
    """One trace of one rank.

    Attributes
    ----------
    rank, rank_source
        Rank, and what says so: the caller, the trace, the file's name, the processes' names, the order of the devices,
        or nothing (then 0, or the order of the processes).
    devices
        Names of the machine's GPUs by index, as far as the trace tells.
    base_ns
        What the file adds to every time; already added here.
    kernels, launches, ranges
        Tables of `perflab.schema`, sorted by start. Every kernel has category `other`: analysis assigns it.
        Device activities of a CUDA graph have the graph's id as their `graph_id`, or the launch's correlation id.
    cpu_ops
        Operators on the host (rank, process, thread, name, start_ns, dur_ns), nested; None where they were not
        kept (see `perflab.read.kineto.read_kineto`).
    counts
        Rows of the file by kind: of a Kineto trace complete events by category, and all others by category or phase;
        of an Nsight Systems export rows by table. Nothing is left out.
    is_frontend
        The trace is that of vLLM's front end (async_llm): Python functions only, no engine.
    without_duration
        Complete events in the tables that lack a duration; it is 0 there.
    unreadable
        Events and stretches of damaged text that could not be read.
    recording
        What the file says of the recording as a whole, where it holds several processes (Nsight Systems); else None.
    messages
        Table `messages`: what the trace says of the sizes of collectives; empty where it says nothing.
    """

    path: Path
    rank: int
    rank_source: RankSource
    world_size: int | None
    devices: Mapping[int, str]
    base_ns: int
    vllm_version: str | None
    host: str | None
    kernels: pd.DataFrame
    launches: pd.DataFrame
    ranges: pd.DataFrame
    cpu_ops: pd.DataFrame | None
    counts: Mapping[str, int]
    truncated: bool
    has_gpu: bool
    is_frontend: bool
    with_stack: bool
    record_shapes: bool
    without_duration: int
    unreadable: int
    notes: tuple[str, ...]
    recording: Recording | None = None
    messages: pd.DataFrame = field(default_factory=lambda: empty("messages"))

    @property
    def device_name(self) -> str | None:
        """Name of the GPU that most of the work ran on; None when there was none or its name is unknown."""
        if self.kernels.empty:
            return None
        return self.devices.get(int(self.kernels["device"].mode().iloc[0])) or None


def with_rank(trace: Trace, rank: int) -> Trace:
    """The same trace as another rank's."""
    tables = {
        name: frame.assign(rank=np.int64(rank))
        for name in ("kernels", "launches", "ranges", "cpu_ops", "messages")
        if (frame := getattr(trace, name)) is not None
    }
    return replace(trace, rank=rank, **tables)


def graph_ids(
    told: npt.NDArray[np.int64], correlation: npt.NDArray[np.int64], launches: pd.DataFrame
) -> npt.NDArray[np.int64]:
    """The column `graph_id` of device activities.

    Parameters
    ----------
    told
        The graph's id where the file tells, else something below 1.
    correlation
        Their correlation ids.
    launches
        Table `launches` of the same process.

    Returns
    -------
    array
        The id where told; else the correlation id of a graph launch, or one that several activities share; else -1.
    """
    names = launches["api_name"].cat.categories
    is_graph = launches["api_name"].isin([name for name in names if "GraphLaunch" in name])
    of_graphs = launches.loc[is_graph, "correlation_id"].to_numpy()
    _, where, times = np.unique(correlation, return_inverse=True, return_counts=True)
    shared = (times[where] > 1) | np.isin(correlation, of_graphs)
    return np.where(told > 0, told, np.where(shared & (correlation > 0), correlation, MISSING)).astype(np.int64)
