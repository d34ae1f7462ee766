"""When a rank's device had nothing to run: where, and why.

A gap is a stretch in which no kernel, copy or set ran on any stream. Its place is read off the steps, its cause
off the call that launched the activity which ended it. Places and causes each sum to the idle time of the
breakdown, to the nanosecond; what lies before the first and after the last step is reported apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.intervals import Intervals, Ints, as_ints, complement, split, union
from perflab.analysis.kernels import launch_times
from perflab.analysis.steps import step_marks, step_of
from perflab.schema import PHASES

PLACES: tuple[str, ...] = ("between_steps", "within_steps", "outside")
CAUSES: tuple[str, ...] = ("host_bound", "not_started", "in_graph", "no_request", "unknown")
_COLUMNS = ("rank", "step", "phase", "start_ns", "dur_ns", "place", "cause", "next_name")


def idle_gaps(
    kernels: pd.DataFrame,
    steps: pd.DataFrame,
    launches: pd.DataFrame | None = None,
    ranges: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Every gap of every rank, cut at the boundaries of steps.

    Parameters
    ----------
    kernels, steps
        Tables `kernels` and `steps`.
    launches
        Table `launches`; without it every cause but `in_graph` is unknown.
    ranges
        Table `ranges`; a step without requests that the host ran during a gap means there was no request.

    Returns
    -------
    DataFrame
        One row a piece of a gap: `rank`, `step` and `phase` (-1 and `outside` where no step is; -1 and `all`
        on a rank without steps), `start_ns`, `dur_ns`, `place`, `cause`, and `next_name`, the activity that
        ended the gap (None at the end of the trace).

        `between_steps` gaps reach over the start of a step; `within_steps` lie inside one.
        `in_graph`: inside one CUDA graph replay. `host_bound`: the call that launched the next activity had not
        returned (for a copy: not begun) when the device ran dry. `not_started`: launched before, started later.
        `no_request`: as host_bound, and the host ran an empty step meanwhile. `unknown`: no such call is known.
    """
    work = kernels[kernels["kind"] != "cpu_op"]
    marks = None if ranges is None else step_marks(ranges)
    parts = []
    for rank, mine in work.groupby("rank"):
        ordered = mine.sort_values("start_ns", ignore_index=True)
        of_rank = steps[steps["rank"] == rank].sort_values("start_ns", ignore_index=True)
        tables = [t[t["rank"] == rank] for t in (launches, ranges) if t is not None]
        span = _span([ordered, of_rank, *tables]) if len(of_rank) else _span([ordered])
        start = ordered["start_ns"].to_numpy(np.int64)
        busy = union(start, start + ordered["dur_ns"].to_numpy(np.int64))
        gaps = complement(busy, *span)
        calls = None if launches is None else launches[launches["rank"] == rank]
        empty_steps = _empty_step_starts(marks, int(str(rank)))
        causes, names = _causes(gaps, ordered, calls, empty_steps)
        parts.append(_pieces(int(str(rank)), gaps, of_rank, causes, names))
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({name: [] for name in _COLUMNS})
    for name in ("rank", "step", "start_ns", "dur_ns"):
        found[name] = found[name].astype("int64")
    found["place"] = found["place"].astype(pd.CategoricalDtype(list(PLACES)))
    found["cause"] = found["cause"].astype(pd.CategoricalDtype(list(CAUSES)))
    found["phase"] = found["phase"].astype(pd.CategoricalDtype([*PHASES, "all", "outside"]))
    return found


def idle_summary(gaps: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Idle time by rank as the JSON contract has it.

    Parameters
    ----------
    gaps
        From `idle_gaps`.

    Returns
    -------
    dict
        By rank: `between_steps_ns`, `within_steps_ns`, `outside_ns`, `causes` (each cause, of the first two
        places only), and `phases`: the same but `outside_ns` for the steps of each phase.
    """
    found = {}
    for rank, mine in gaps.groupby("rank"):
        inside = mine[mine["place"] != "outside"]
        outside = int(mine.loc[mine["place"] == "outside", "dur_ns"].sum())
        places = _places(inside)
        found[int(str(rank))] = {
            "between_steps_ns": places["between_steps_ns"],
            "within_steps_ns": places["within_steps_ns"],
            "outside_ns": outside,
            "causes": places["causes"],
            "phases": {phase: _places(inside[inside["phase"] == phase]) for phase in PHASES},
        }
    return found


def _places(rows: pd.DataFrame) -> dict[str, Any]:
    place = rows.groupby("place", observed=False)["dur_ns"].sum()
    cause = rows.groupby("cause", observed=False)["dur_ns"].sum()
    return {
        "between_steps_ns": int(place["between_steps"]),
        "within_steps_ns": int(place["within_steps"]),
        "causes": {name: int(cause[name]) for name in CAUSES},
    }


def _span(tables: list[pd.DataFrame]) -> tuple[int, int]:
    """From the first to the last thing recorded of a rank."""
    some = [table for table in tables if len(table)]
    first = min(int(table["start_ns"].min()) for table in some)
    last = max(int((table["start_ns"] + table["dur_ns"]).max()) for table in some)
    return first, last


def _empty_step_starts(marks: pd.DataFrame | None, rank: int) -> Ints:
    if marks is None:
        return as_ints([])
    empty = (marks["rank"] == rank) & (marks["domain"] == "host") & marks["dummy"]
    return as_ints(np.sort(marks.loc[empty, "start_ns"].to_numpy(np.int64)))


def _causes(
    gaps: Intervals, ordered: pd.DataFrame, launches: pd.DataFrame | None, empty_steps: Ints
) -> tuple[Ints, list[str | None]]:
    gap_start, gap_end = gaps
    follower = np.searchsorted(ordered["start_ns"].to_numpy(np.int64), gap_end, side="left")
    followed = follower < len(ordered)
    nexts = ordered.iloc[np.minimum(follower, len(ordered) - 1)]
    names = [str(name) if real else None for name, real in zip(nexts["name"], followed, strict=True)]
    if launches is None:
        asked = np.full(len(gap_start), -1, dtype=np.int64)
    else:
        call_start, call_end = launch_times(nexts, launches)
        # A call to copy may wait for the copy itself; a kernel's call returns once the kernel is queued.
        asked = np.where(nexts["kind"].to_numpy() == "kernel", call_end, call_start)
    known = followed & (asked >= 0)
    late = known & (asked > gap_start)
    idle_engine = np.searchsorted(empty_steps, gap_end) > np.searchsorted(empty_steps, gap_start)
    code = np.full(len(gap_start), CAUSES.index("unknown"), dtype=np.int64)
    code[known & ~late] = CAUSES.index("not_started")
    code[late] = CAUSES.index("host_bound")
    code[late & idle_engine] = CAUSES.index("no_request")
    code[_inside_replays(gaps, ordered)] = CAUSES.index("in_graph")
    return code, names


def _inside_replays(gaps: Intervals, ordered: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    replayed = ordered[(ordered["graph_id"] >= 0) & (ordered["correlation_id"] >= 0)]
    if replayed.empty:
        return np.zeros(len(gaps[0]), dtype=bool)
    ends = replayed["start_ns"] + replayed["dur_ns"]
    spans = replayed.assign(end_ns=ends).groupby("correlation_id").agg(start=("start_ns", "min"), end=("end_ns", "max"))
    spans = spans.sort_values("start")
    reach = np.maximum.accumulate(spans["end"].to_numpy(np.int64))
    before = np.searchsorted(spans["start"].to_numpy(np.int64), gaps[0], side="right") - 1
    inside: np.ndarray[Any, np.dtype[np.bool_]] = (before >= 0) & (reach[np.maximum(before, 0)] >= gaps[1])
    return inside


def _pieces(rank: int, gaps: Intervals, steps: pd.DataFrame, causes: Ints, names: list[str | None]) -> pd.DataFrame:
    starts = steps["start_ns"].to_numpy(np.int64)
    last = [int(starts[-1] + steps["dur_ns"].iloc[-1])] if len(steps) else []
    piece_start, piece_end, gap = split(*gaps, np.append(starts, last))
    # A gap reaches over a step's start when one lies in it or at its very end.
    reaches = np.searchsorted(starts, gaps[1], side="right") > np.searchsorted(starts, gaps[0], side="left")
    position = step_of(piece_start, steps)
    known = position >= 0
    if len(steps):
        place = np.where(known, np.where(reaches[gap], "between_steps", "within_steps"), "outside")
        at = np.maximum(position, 0)
        phase = np.where(known, steps["phase"].astype("object").to_numpy()[at], "outside")
        step = np.where(known, steps["step"].to_numpy(np.int64)[at], -1)
    else:
        place = np.full(len(gap), "within_steps", dtype=object)
        phase = np.full(len(gap), "all", dtype=object)
        step = np.full(len(gap), -1)
    return pd.DataFrame(
        {
            "rank": rank,
            "step": step,
            "phase": phase,
            "start_ns": piece_start,
            "dur_ns": piece_end - piece_start,
            "place": place,
            "cause": [CAUSES[code] for code in causes[gap]],
            "next_name": pd.Series([names[row] for row in gap], dtype="object"),
        }
    )
