"""Where the time of a rank goes: every instant of its steps given to one category, or to idle.

Exclusive time follows two rules. Kernels that compute go before communication kernels, and both before copies
and sets; so what is shown as communication is exposed. Within such a tier the earlier start keeps the instant,
since programmatic dependent launch makes small overlaps of neighbours normal. Exclusive times and idle of a step
sum to its duration, to the nanosecond; plain sums stand beside them as `raw_ns`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.intervals import Ints, as_ints, covered, exclusive, split, union, union_length
from perflab.analysis.kernels import operators
from perflab.analysis.steps import step_marks, step_of, steps_from_ranges
from perflab.schema import CATEGORIES, PHASES, TABLES

ROW_TYPE = pd.CategoricalDtype([*CATEGORIES, "idle"])
BREAKDOWN_PHASE_TYPE = pd.CategoricalDtype([*PHASES, "all"])
_IDLE = len(CATEGORIES)


def tiers(kernels: pd.DataFrame) -> Ints:
    """0 for kernels that compute, 1 for communication kernels, 2 for copies and sets."""
    is_kernel = kernels["kind"].to_numpy() == "kernel"
    talks = kernels["category"].to_numpy() == "communication"
    return as_ints(np.where(is_kernel, np.where(talks, 1, 0), 2))


def breakdown(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The table `breakdown` of device time, with `kind` "gpu" besides.

    Parameters
    ----------
    kernels
        Table `kernels` with categories (`perflab.analysis.kernels.categorize`). CPU operators are left out.
    steps
        Table `steps`. A rank without steps is taken whole, as step -1 of phase `all`.

    Returns
    -------
    DataFrame
        One row a rank, step and category that has activity in the step, and one for `idle`. A rank without
        device activity has no rows: nothing recorded is not 0 % busy.
    """
    work = kernels[kernels["kind"] != "cpu_op"]
    parts = []
    for rank, mine in work.groupby("rank"):
        windows = _windows(mine, steps[steps["rank"] == rank])
        start, end = _ends(mine)
        code = _codes(mine)
        piece_start, _, row, lengths = exclusive(start, end, tiers(mine), cuts=_edges(windows), keys=code)
        parts.append(_rows(int(str(rank)), windows, (start, end, code), (piece_start, code[row], lengths)))
    return _table(parts, "gpu")


def exclusive_pieces(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The stretches of time that each activity of one rank has to itself, as `breakdown` gives them out.

    Parameters
    ----------
    kernels
        Table `kernels` of the rank with categories, without CPU operators.
    steps
        Table `steps` of the rank.

    Returns
    -------
    DataFrame
        `row` (position in `kernels`), `step`, `phase`, `exclusive_ns`; only what lies in a step (in the rank's whole
        time where it has none). Sums by category and step are those of `breakdown`, to the nanosecond.
    """
    if kernels.empty:
        return pd.DataFrame({"row": as_ints([]), "step": as_ints([]), "phase": [], "exclusive_ns": as_ints([])})
    windows = _windows(kernels, steps)
    start, end = _ends(kernels)
    at, _, row, lengths = exclusive(start, end, tiers(kernels), cuts=_edges(windows), keys=_codes(kernels))
    position = step_of(at, windows)
    some = (position >= 0) & (lengths > 0)
    return pd.DataFrame(
        {
            "row": row[some],
            "step": windows["step"].to_numpy(np.int64)[position[some]],
            "phase": windows["phase"].astype("object").to_numpy()[position[some]],
            "exclusive_ns": lengths[some],
        }
    )


def cpu_breakdown(cpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """The table `breakdown` of a CPU engine's worker thread, with `kind` "cpu" besides.

    Parameters
    ----------
    cpu_ops
        A host's operators: table `kernels` of kind `cpu_op` with categories (`stream` is the host thread), or as
        read from a trace (`rank`, `thread`, `name`, `start_ns`, `dur_ns`), to which perflab's own rules apply.
    ranges
        Table `ranges`; the thread that bears the step annotations is the worker's.

    Returns
    -------
    DataFrame
        As `breakdown`, but an instant belongs to the innermost operator (self time), and `idle` is the rest of
        the step: Python and other host time outside operators, not a device that waits.
    """
    known = cpu_ops if "kind" in cpu_ops else operators(cpu_ops)
    known = known[known["kind"] == "cpu_op"]
    steps = steps_from_ranges(ranges, known)
    marks = step_marks(ranges)
    parts = []
    for rank, windows in steps.groupby("rank"):
        mine = marks[(marks["rank"] == rank) & (marks["domain"] == "host") & ~marks["dummy"]]
        thread = int(mine["thread"].mode().iloc[0])
        ops = known[(known["rank"] == rank) & (known["stream"] == thread)]
        start, end = _ends(ops)
        code = _codes(ops)
        own_start, own_end, row = innermost(start, end)
        piece_start, piece_end, of = split(own_start, own_end, _edges(windows))
        owned = (piece_start, code[row[of]], as_ints(piece_end - piece_start))
        parts.append(_rows(int(str(rank)), windows, (start, end, code), owned))
    return _table(parts, "cpu")


def innermost(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut nested intervals so that each instant is of the one that started last: self time.

    Returns
    -------
    starts, ends, rows
        Disjoint pieces and the interval each is of; together they cover what the intervals cover.
    """
    order = np.lexsort((-end, start))
    found: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []
    cursor = 0

    def give_until(time: int) -> None:
        nonlocal cursor
        row, finish = stack[-1]
        if (until := min(time, finish)) > cursor:
            found.append((cursor, until, row))
            cursor = until

    for row, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        while stack and stack[-1][1] <= begin:
            give_until(begin)
            stack.pop()
        if stack:
            give_until(begin)
        cursor = max(cursor, begin)
        stack.append((row, finish))
    while stack:
        give_until(stack[-1][1])
        stack.pop()
    pieces = np.array(found, dtype=np.int64).reshape(-1, 3)
    return pieces[:, 0], pieces[:, 1], pieces[:, 2]


def self_times(cpu_ops: pd.DataFrame) -> pd.DataFrame:
    """A copy of nested CPU operators in which `dur_ns` is each one's own time, without that of the ones inside it.

    Parameters
    ----------
    cpu_ops
        Table `kernels` of kind `cpu_op`, `stream` being the host thread.
    """
    own = np.zeros(len(cpu_ops), dtype=np.int64)
    position = np.arange(len(cpu_ops))
    for _, rows in pd.Series(position).groupby([cpu_ops["rank"].to_numpy(), cpu_ops["stream"].to_numpy()]):
        at = rows.to_numpy()
        start, end = _ends(cpu_ops.iloc[at])
        piece_start, piece_end, row = innermost(start, end)
        np.add.at(own, at[row], piece_end - piece_start)
    return cpu_ops.assign(dur_ns=own)


def overlaps(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Time in which two activities ran at once, by pair of categories.

    Parameters
    ----------
    kernels, steps
        As for `breakdown`.

    Returns
    -------
    DataFrame
        `rank`, `category`, `with_category`, `overlap_ns`: how long any activity of the one ran while any of
        the other did, inside the window. With itself: plain sum less union. Pairs without overlap are absent.
    """
    work = kernels[kernels["kind"] != "cpu_op"]
    rows: list[tuple[int, str, str, int]] = []
    for rank, mine in work.groupby("rank"):
        edges = _edges(_windows(mine, steps[steps["rank"] == rank]))
        start, end = (np.clip(times, edges[0], edges[-1]) for times in _ends(mine))
        code = _codes(mine)
        sets = {int(c): union(start[code == c], end[code == c]) for c in np.unique(code)}
        for first in sets:
            own = code == first
            doubled = int((end[own] - start[own]).sum()) - union_length(start[own], end[own])
            found = {first: doubled} | {
                second: int(covered(*sets[first], sets[second]).sum()) for second in sets if second > first
            }
            rows += [(int(str(rank)), CATEGORIES[first], CATEGORIES[second], ns) for second, ns in found.items() if ns]
    table = pd.DataFrame(rows, columns=["rank", "category", "with_category", "overlap_ns"])
    return table.sort_values(["rank", "overlap_ns"], ascending=[True, False], ignore_index=True)


def summary(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The breakdown per rank, and within it per phase, as the JSON contract has it.

    Parameters
    ----------
    table
        Table `breakdown`.

    Returns
    -------
    list of dict
        One a rank: `rank`, `kind`, `window_ns`, `busy_ns`, `idle_ns`, `categories` (each with `exclusive_ns`,
        `raw_ns`, `share` of the window), `phases` (the same for the steps of a phase, and `steps`). All
        categories and phases are there; a share is None where the window is empty.
    """
    found = []
    for rank, mine in table.groupby("rank"):
        phases = {
            phase: {"steps": int(of_phase["step"].nunique()), **_totals(of_phase)}
            for phase in PHASES
            for of_phase in [mine[mine["phase"] == phase]]
        }
        kind = str(mine["kind"].iloc[0]) if "kind" in mine else "gpu"
        found.append({"rank": int(str(rank)), "kind": kind, **_totals(mine), "phases": phases})
    return found


def _totals(rows: pd.DataFrame) -> dict[str, Any]:
    by = rows.groupby("category", observed=True)[["exclusive_ns", "raw_ns"]].sum()
    window = int(by["exclusive_ns"].sum())
    idle = int(by["exclusive_ns"].get("idle", 0))

    def of(category: str, column: str) -> int:
        return int(by[column].get(category, 0))

    return {
        "window_ns": window,
        "busy_ns": window - idle,
        "idle_ns": idle,
        "categories": {
            category: {
                "exclusive_ns": of(category, "exclusive_ns"),
                "raw_ns": of(category, "raw_ns"),
                "share": of(category, "exclusive_ns") / window if window else None,
            }
            for category in CATEGORIES
        },
    }


def _ends(activities: pd.DataFrame) -> tuple[Ints, Ints]:
    start = activities["start_ns"].to_numpy(np.int64)
    return start, start + activities["dur_ns"].to_numpy(np.int64)


def _codes(activities: pd.DataFrame) -> Ints:
    return as_ints(pd.Index(CATEGORIES).get_indexer(pd.Index(activities["category"].astype("object"))))


def _windows(mine: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    if len(steps):
        return steps.sort_values("start_ns", ignore_index=True)
    start, end = _ends(mine)
    first, last = int(start.min()), int(end.max())
    return pd.DataFrame({"step": [-1], "phase": ["all"], "start_ns": [first], "dur_ns": [last - first]})


def _edges(windows: pd.DataFrame) -> Ints:
    start = windows["start_ns"].to_numpy(np.int64)
    return np.append(start, start[-1] + int(windows["dur_ns"].iloc[-1]))


def _rows(
    rank: int, windows: pd.DataFrame, activities: tuple[Ints, Ints, Ints], owned: tuple[Ints, Ints, Ints]
) -> pd.DataFrame:
    """Sum pieces by window and category; what of a window no piece fills is idle."""
    start, end, code = activities
    raw_start, raw_end, of = split(start, end, _edges(windows))
    raw = _sums(windows, raw_start, code[of], as_ints(raw_end - raw_start))
    own = _sums(windows, *owned)
    present = np.argwhere(raw > 0)
    idle = as_ints(windows["dur_ns"].to_numpy(np.int64) - own.sum(axis=1))
    window = np.concatenate((present[:, 0], np.arange(len(windows))))
    category = np.concatenate((present[:, 1], np.full(len(windows), _IDLE)))
    exclusive_ns = np.concatenate((own[tuple(present.T)], idle))
    duration = windows["dur_ns"].to_numpy(np.float64)[window]
    table = pd.DataFrame(
        {
            "rank": rank,
            "step": windows["step"].to_numpy(np.int64)[window],
            "phase": windows["phase"].astype("object").to_numpy()[window],
            "category": pd.Categorical.from_codes(category, dtype=ROW_TYPE),
            "exclusive_ns": exclusive_ns,
            "raw_ns": np.concatenate((raw[tuple(present.T)], idle)),
            "share": np.divide(exclusive_ns, duration, out=np.full(len(duration), np.nan), where=duration > 0),
        }
    )
    return table.sort_values(["step", "category"], ignore_index=True)


def _sums(windows: pd.DataFrame, at: Ints, code: Ints, lengths: Ints) -> Ints:
    position = step_of(at, windows)
    inside = (position >= 0) & (code >= 0)
    sums = np.zeros((len(windows), len(CATEGORIES)), dtype=np.int64)
    np.add.at(sums, (position[inside], code[inside]), lengths[inside])
    return sums


def _table(parts: list[pd.DataFrame], kind: str) -> pd.DataFrame:
    if parts:
        table = pd.concat(parts, ignore_index=True)
    else:
        table = pd.DataFrame({column.name: [] for column in TABLES["breakdown"].columns})
    return table.assign(
        rank=table["rank"].astype("int64"),
        step=table["step"].astype("int64"),
        phase=table["phase"].astype(BREAKDOWN_PHASE_TYPE),
        category=table["category"].astype(ROW_TYPE),
        exclusive_ns=table["exclusive_ns"].astype("int64"),
        raw_ns=table["raw_ns"].astype("int64"),
        share=table["share"].astype("float64"),
        kind=kind,
    )
