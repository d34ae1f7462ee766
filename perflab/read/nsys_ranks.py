"""Which ranks the processes of an Nsight Systems export are.

What tells, first to last: the table of MPI ranks; the names vLLM gives its processes (`VLLM::Worker_TP1`); for a single
process the environment of the recorded program, or the file's name; the devices, where each process has its own; else
the order of the processes, which is the order in which vLLM starts its workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from perflab.messages import say
from perflab.read.kineto import rank_in_name
from perflab.read.nsys_database import Database
from perflab.read.trace import RankSource
from perflab.read.trace_columns import MISSING

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_VARIABLE = re.compile(r'([A-Z_]+)="?(\d{1,6})"?$')
# VLLM::Worker_TP1, VLLM::Worker_DP0_PP1_TP3_EP3, Worker_TP0; the operating system cuts names after 15 characters.
_PARTS = r"((?:_(?:DP|PP|PCP|TP|DCP|EP)\d+)+)"
WORKER = re.compile(rf"\bWorker(?:Proc)?{_PARTS}")
# With one GPU a replica, the engine core of each replica is its worker.
_RANKED = re.compile(rf"\b(?:Worker(?:Proc)?|EngineCore){_PARTS}")
PID = 0xFFFFFF
"""The operating system's number within a process's key, whose upper bits name the machine."""

_PART = re.compile(r"_(DP|PP|TP)(\d+)")
_ORDER = ("DP", "PP", "TP")


@dataclass(frozen=True)
class Owner:
    """A process and its device: one rank.

    Attributes
    ----------
    process
        Its key (nsys's global id without the thread); -1 where the export does not tell.
    devices
        The devices whose work is this rank's: one, and those to which the process only copied.
    """

    process: int
    devices: tuple[int, ...]
    rank: int
    source: RankSource
    world_size: int | None
    notes: tuple[str, ...]


def owners(data: Database, work: pd.DataFrame, calls: pd.DataFrame) -> list[Owner]:
    """The ranks of an export, in order.

    Parameters
    ----------
    work, calls
        Device work (`process`, `device`, `kind`) and host calls (`process`) of all processes.
    """
    places = _places(work)
    if not places:
        keys = sorted({int(key) for key in calls["process"].unique()}) or [MISSING]
        places = [(key, (MISSING,)) for key in keys]
    ranks, source, world, note = _ranks(data, places)
    notes = (note,) if note else ()
    found = [
        Owner(process, devices, rank, source, world, notes)
        for (process, devices), rank in zip(places, ranks, strict=True)
    ]
    return sorted(found, key=lambda owner: owner.rank)


def _places(work: pd.DataFrame) -> list[tuple[int, tuple[int, ...]]]:
    """Processes with their devices, one entry a device that ran kernels."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for process, mine in work.groupby("process"):
        devices = sorted(int(d) for d in mine["device"].unique())
        # kind 0 are kernels; a worker may touch other devices with a copy or two.
        main = sorted(int(d) for d in mine.loc[mine["kind"] == 0, "device"].unique()) or devices
        beside = tuple(d for d in devices if d not in main)
        found += [(int(str(process)), (device, *(beside if device == main[0] else ()))) for device in main]
    return sorted(found)


def _ranks(
    data: Database, places: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[list[int], RankSource, int | None, str | None]:
    processes = [process for process, _ in places]
    alone = len(set(processes)) == len(processes)  # each with one device
    if alone:
        told = _by_mpi(data, processes)
        if told is not None:
            return told, "trace", len(_mpi_ranks(data)), None
        named = _by_name(process_names(data), processes)
        if named is not None:
            return named, "process_name", None, say("nsys.rank_from_process")
    if len(places) == 1:
        rank, world = _environment(data)
        if rank is not None:
            return [rank], "trace", world, None
        in_name = rank_in_name(data.path)
        if in_name is not None:
            return [in_name], "file_name", world, say("read.rank_from_name")
        return [0], "assumed", world, say("nsys.rank_assumed")
    physical = physical_devices(data)
    devices = [physical.get((process & PID, mine[0]), mine[0]) for process, mine in places]
    if len(set(devices)) == len(devices):
        order = sorted(devices)
        return [order.index(device) for device in devices], "devices", None, say("nsys.rank_from_devices")
    return list(range(len(places))), "assumed", None, say("nsys.rank_from_order")


def physical_devices(data: Database) -> dict[tuple[int, int], int]:
    """The machine's GPU by process id and CUDA device: each process may see only one, as its device 0."""
    found = data.table("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    rows = zip(found["pid"].tolist(), found["cudaId"].tolist(), found["gpuId"].tolist(), strict=True)
    return {(pid, cuda): gpu for pid, cuda, gpu in rows if gpu >= 0}


def _mpi_ranks(data: Database) -> dict[int, int]:
    found = data.table("MPI_RANKS", ("globalPid", "rank"))
    return {int(pid) >> 24: int(rank) for pid, rank in zip(found["globalPid"], found["rank"], strict=True) if rank >= 0}


def _by_mpi(data: Database, processes: Sequence[int]) -> list[int] | None:
    known = _mpi_ranks(data)
    ranks = [known[process] for process in processes if process in known]
    return ranks if len(ranks) == len(processes) == len(set(ranks)) else None


def process_names(data: Database) -> dict[int, list[str]]:
    """Every name a process goes by: its own, and those of its threads."""
    found: dict[int, list[str]] = {}
    for rows in data.rows("PROCESSES", ("globalPid", "name")):
        for pid, name in rows:
            if isinstance(pid, int) and isinstance(name, str):
                found.setdefault(pid >> 24, []).append(name)
    threads = data.table("ThreadNames", ("globalTid", "nameId"))
    texts = data.strings(set(threads["nameId"].tolist()))
    for tid, key in zip(threads["globalTid"].tolist(), threads["nameId"].tolist(), strict=True):
        if tid >= 0 and key in texts:
            found.setdefault(tid >> 24, []).append(texts[key])
    return found


def _by_name(names: Mapping[int, Sequence[str]], processes: Sequence[int]) -> list[int] | None:
    """Ranks by vLLM's worker names: the number itself where only one is told, else the order of all that are told."""
    found = []
    for process in processes:
        match = next((m for name in names.get(process, ()) if (m := _RANKED.search(name))), None)
        if match is None:
            return None
        found.append({kind: int(number) for kind, number in _PART.findall(match[1])})
    keys = [tuple(parts.get(kind, 0) for kind in _ORDER) for parts in found]
    if len(set(keys)) < len(keys):
        return None
    told = {kind for parts in found for kind in parts}
    if len(told) == 1:
        return [max(key) for key in keys]
    order = sorted(keys)
    return [order.index(key) for key in keys]


def _environment(data: Database) -> tuple[int | None, int | None]:
    """Rank and number of ranks from the environment of the program that nsys started."""
    told: dict[str, int] = {}
    for name, value in data.texts("META_DATA_CAPTURE", ("name", "value")):
        if name.endswith("ENVIRONMENT_VARIABLE") and (match := _VARIABLE.match(value)):
            told[match[1]] = int(match[2])
    rank = next((told[name] for name in _RANK if name in told), None)
    return rank, next((told[name] for name in _WORLD if name in told), None)
