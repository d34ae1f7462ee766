"""What the host was doing when it launched a kernel: the operator it was in, and the module.

Only for calls that launch one thing. A CUDA graph's launch starts hundreds of kernels that no operator of that moment
asked for; here they stay unknown, and the other rungs of the ladder look for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perflab.analysis.intervals import Ints, as_ints
from perflab.knowledge.modules import module_rules

OPERATOR_COLUMNS = ("process", "thread", "external_id", "name", "shapes", "start_ns", "dur_ns")
FRAME_COLUMNS = ("process", "thread", "name", "start_ns", "dur_ns")
CALL_COLUMNS = ("process", "thread", "correlation_id", "name", "kernel", "start_ns", "dur_ns")
LINK_COLUMNS = ("correlation_id", "external_id")


def _empty(columns: tuple[str, ...]) -> pd.DataFrame:
    texts = ("name", "shapes", "kernel")
    return pd.DataFrame({c: pd.Series(dtype="object" if c in texts else "int64") for c in columns})


@dataclass(frozen=True)
class HostSide:
    """The host's side of one trace (from `perflab.read.host_side`).

    Attributes
    ----------
    operators
        Operators, nested: `process`, `thread`, `external_id` (-1 where there is none), `name`, `shapes` (of the
        arguments, as the trace writes them; empty where not recorded), `start_ns`, `dur_ns`.
    frames
        Modules and telling functions, nested: `process`, `thread`, `name`, `start_ns`, `dur_ns`. Ranges with the path
        of a module (layerwise NVTX) count among them.
    calls
        Calls of the runtime and driver that launch, copy, set, or begin and end the capture of a graph: `process`,
        `thread`, `correlation_id`, `name`, `kernel` (its name where the trace tells; empty), `start_ns`, `dur_ns`.
    links
        `correlation_id` and `external_id` of device activities that bear both.
    labels
        Annotations on the host: `process`, `thread`, `name`, `start_ns`, `dur_ns`.
    """

    operators: pd.DataFrame = field(default_factory=lambda: _empty(OPERATOR_COLUMNS))
    frames: pd.DataFrame = field(default_factory=lambda: _empty(FRAME_COLUMNS))
    calls: pd.DataFrame = field(default_factory=lambda: _empty(CALL_COLUMNS))
    links: pd.DataFrame = field(default_factory=lambda: _empty(LINK_COLUMNS))
    labels: pd.DataFrame = field(default_factory=lambda: _empty(FRAME_COLUMNS))


def from_tables(launches: pd.DataFrame, ranges: pd.DataFrame) -> HostSide:
    """The host's side as far as tables `launches` and `ranges` tell it: ranges that name modules (layerwise NVTX)."""
    path = module_rules().nvtx_path
    tells = np.array([bool(path.search(str(name))) for name in ranges["name"]], dtype=bool)
    ours = ranges[(ranges["domain"] == "host").to_numpy() & tells]
    return HostSide(
        calls=launches.rename(columns={"api_name": "name"}).assign(process=0, kernel=""),
        frames=ours.assign(process=0),
    )


def enclosing(times: Ints, at: Ints, start: Ints, end: Ints, where: Ints) -> list[tuple[int, ...]]:
    """For each time on thread `at`, the intervals on that thread that contain it, outermost first.

    Parameters
    ----------
    times, at
        When, and on which thread.
    start, end, where
        Intervals (nested on each thread) and their threads.
    """
    found: list[tuple[int, ...]] = [()] * len(times)
    for thread in np.unique(at):
        rows = np.flatnonzero(where == thread)
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        begins, ends = start[rows].tolist(), end.tolist()
        points = np.flatnonzero(at == thread)
        stack: list[int] = []
        position = 0
        for point in points[np.argsort(times[points], kind="stable")].tolist():
            now = int(times[point])
            while position < len(begins) and begins[position] <= now:
                while stack and ends[stack[-1]] <= begins[position]:
                    stack.pop()
                stack.append(int(rows[position]))
                position += 1
            while stack and ends[stack[-1]] <= now:
                stack.pop()
            found[point] = tuple(row for row in stack if ends[row] > now)
    return found


@dataclass(frozen=True)
class Contexts:
    """Where calls were made from, one element a call.

    Attributes
    ----------
    operator, outer, shapes
        Innermost and outermost operator, None outside operators; shapes of the innermost one's arguments.
    stack
        Names of the frames, outermost first.
    """

    operator: list[str | None]
    outer: list[str | None]
    shapes: list[str]
    stack: list[tuple[str, ...]]


def contexts(calls: pd.DataFrame, host: HostSide) -> Contexts:
    """What operators and frames each call lies in.

    Parameters
    ----------
    calls
        Needs `process`, `thread`, `start_ns`.
    """
    operators, frames = host.operators, host.frames
    threads = _threads(calls, operators, frames)
    times = calls["start_ns"].to_numpy(np.int64)
    in_operators = enclosing(times, threads[0], *_spans(operators), threads[1])
    in_frames = enclosing(times, threads[0], *_spans(frames), threads[2])
    names, shapes = operators["name"].astype("object").to_numpy(), operators["shapes"].astype("object").to_numpy()
    frame_names = frames["name"].astype("object").to_numpy()
    return Contexts(
        operator=[str(names[rows[-1]]) if rows else None for rows in in_operators],
        outer=[str(names[rows[0]]) if rows else None for rows in in_operators],
        shapes=[str(shapes[rows[-1]]) if rows else "" for rows in in_operators],
        stack=[tuple(str(frame_names[row]) for row in rows) for rows in in_frames],
    )


def launched(kernels: pd.DataFrame, host: HostSide) -> pd.DataFrame:
    """For each activity, where on the host it was launched from.

    Parameters
    ----------
    kernels
        Needs `correlation_id`, `graph_id`.

    Returns
    -------
    DataFrame
        Rows as in `kernels`: `operator`, `outer`, `shapes`, `stack`. Nothing (None, None, "", ()) for what a graph
        replayed, and where neither the call nor the operator is in the trace.
    """
    correlation = kernels["correlation_id"].to_numpy(np.int64)
    calls = host.calls.drop_duplicates("correlation_id") if len(host.calls) else host.calls
    position = as_ints(pd.Index(calls["correlation_id"]).get_indexer(pd.Index(correlation)))
    position = as_ints(np.where(correlation >= 0, position, -1))
    graph_calls = calls["name"].astype(str).str.contains("GraphLaunch").to_numpy(bool)
    replayed = kernels["graph_id"].to_numpy(np.int64) >= 0
    if len(calls):
        # Kernels of an ordinary call can share an id too; what the call says goes before the count.
        replayed = np.where(position >= 0, graph_calls[np.maximum(position, 0)], replayed)
    of = contexts(calls, host)
    position = as_ints(np.where(replayed, -1, position))
    table = pd.DataFrame(
        {
            "operator": [of.operator[i] if i >= 0 else None for i in position],
            "outer": [of.outer[i] if i >= 0 else None for i in position],
            "shapes": [of.shapes[i] if i >= 0 else "" for i in position],
            "stack": [of.stack[i] if i >= 0 else () for i in position],
        },
        index=kernels.index,
        dtype="object",
    )
    return _by_external_id(table, correlation, as_ints(replayed | (position >= 0)), host)


def _by_external_id(table: pd.DataFrame, correlation: Ints, done: Ints, host: HostSide) -> pd.DataFrame:
    """Fill in from the operator's id what has no call in the trace."""
    if not len(host.links) or bool(done.all()):
        return table
    external = host.links.drop_duplicates("correlation_id").set_index("correlation_id")["external_id"]
    operators = host.operators[host.operators["external_id"] > 0].drop_duplicates("external_id")
    named = operators.set_index("external_id")
    for row in np.flatnonzero(done == 0):
        told = external.get(int(correlation[row]))
        if told is not None and told in named.index:
            table.iat[row, 0] = table.iat[row, 1] = str(named.at[told, "name"])
            table.iat[row, 2] = str(named.at[told, "shapes"])
    return table


def _spans(intervals: pd.DataFrame) -> tuple[Ints, Ints]:
    start = intervals["start_ns"].to_numpy(np.int64)
    return start, start + intervals["dur_ns"].to_numpy(np.int64)


def _threads(*tables: pd.DataFrame) -> list[Ints]:
    """One number a process and thread, the same in all tables."""
    pairs = [list(zip(t["process"].tolist(), t["thread"].tolist(), strict=True)) for t in tables]
    codes: dict[tuple[int, int], int] = {}
    return [as_ints([codes.setdefault(pair, len(codes)) for pair in some]) for some in pairs]
