"""The second rung: operators recorded while a CUDA graph was captured, matched with the kernels of its replays.

A capture lists its launches in the order in which they become nodes of the graph, so the n-th kernel of a replay is the
n-th launch of its capture. That holds only if both have as many; where the capture names its kernels (HIP does, and
Triton's operators are called like them), the names must agree too, and elsewhere what the operator does with what the
kernel does: a product must come from a product. So a graph whose branches ran in another order is not matched.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab.analysis.attribution.align import plain_name
from perflab.analysis.attribution.host import HostSide, contexts, enclosing
from perflab.analysis.intervals import Ints, as_ints
from perflab.knowledge.categories import load_rules
from perflab.knowledge.thresholds import Thresholds, own_thresholds

_LAUNCH = re.compile(r"Launch(?!HostFunc)(?<!GraphLaunch)|Memcpy|Memset", re.IGNORECASE)
_BEGIN, _END = "BeginCapture", "EndCapture"
_TRITON = re.compile(r"^triton_")
_TELLING = frozenset(("gemm", "attention", "moe", "kv_cache", "communication"))
"""Categories that names of operators and of kernels tell alike; a norm or a copy can be part of anything."""


@dataclass(frozen=True)
class Capture:
    """What was launched while one graph was captured.

    Attributes
    ----------
    label
        The outermost annotation around it, such as `capture_8192_PIECEWISE`; empty where there is none.
    operator, stack
        One element a launch.
    names
        The kernel's name, where the trace tells; else None.
    """

    label: str
    operator: tuple[str | None, ...]
    shapes: tuple[str, ...]
    stack: tuple[tuple[str, ...], ...]
    names: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.operator)


def captures(host: HostSide) -> list[Capture]:
    """Every capture in a trace, in the order in which they began."""
    found: list[tuple[int, Capture]] = []
    for _, calls in host.calls.sort_values("start_ns").groupby(["process", "thread"], sort=False):
        names = calls["name"].astype(str).to_numpy()
        begun: int | None = None
        for position, name in enumerate(names):
            if _BEGIN in name:
                begun = position
            elif _END in name and begun is not None:
                inside = calls.iloc[begun + 1 : position]
                inside = inside[[bool(_LAUNCH.search(str(call))) for call in inside["name"]]]
                if len(inside):
                    found.append((int(calls["start_ns"].iloc[begun]), _capture(inside, host)))
                begun = None
    return [capture for _, capture in sorted(found, key=lambda pair: pair[0])]


def _capture(calls: pd.DataFrame, host: HostSide) -> Capture:
    of = contexts(calls, host)
    told = calls["kernel"].astype("object").tolist()
    names = [
        str(kernel) if kernel else operator if operator and _TRITON.match(operator) else None
        for kernel, operator in zip(told, of.operator, strict=True)
    ]
    return Capture(_label(calls, host), tuple(of.operator), tuple(of.shapes), tuple(of.stack), tuple(names))


def _label(calls: pd.DataFrame, host: HostSide) -> str:
    labels = host.labels[host.labels["thread"] == calls["thread"].iloc[0]]
    if labels.empty:
        return ""
    start = labels["start_ns"].to_numpy(np.int64)
    end = start + labels["dur_ns"].to_numpy(np.int64)
    nothing = as_ints(np.zeros(len(labels)))
    around = enclosing(as_ints(calls["start_ns"].iloc[:1]), nothing[:1], start, end, nothing)[0]
    names = [str(labels["name"].iloc[row]) for row in around]
    return next((name for name in names if "capture" in name.lower()), names[0] if names else "")


def replayed_from(
    kernels: pd.DataFrame, known: Sequence[Capture], thresholds: Thresholds | None = None
) -> pd.DataFrame:
    """For each activity of a graph replay, what it was captured from.

    Parameters
    ----------
    kernels
        Device work in order of start; needs `correlation_id`, `graph_id`, `name`, `category`, `step`. Replays of one
        step are matched with captures of one label together: a step in pieces replays them in the order of their
        capture.
    known
        From `captures`, of the same model on the same rank.

    Returns
    -------
    DataFrame
        Rows as in `kernels`: `matched`, `operator`, `shapes`, `stack`, and `agree`, the share of the known names and
        kinds of work that agree (NaN where none is known: then only the number of kernels speaks for the match).
    """
    least = (thresholds or own_thresholds()).limit("capture_match", "least")
    operator = np.full(len(kernels), None, dtype=object)
    shapes = np.full(len(kernels), "", dtype=object)
    stack = np.full(len(kernels), None, dtype=object)
    agree = np.full(len(kernels), np.nan)
    matched = np.zeros(len(kernels), dtype=bool)
    names = list(zip(kernels["name"].astype(str), kernels["category"].astype(str), strict=True))
    inside = kernels.assign(row=np.arange(len(kernels)))[kernels["graph_id"].to_numpy(np.int64) >= 0]
    for _, of_step in inside.groupby("step", sort=False):
        replays = [some["row"].to_numpy(np.int64) for _, some in of_step.groupby("correlation_id", sort=False)]
        for rows, capture in zip(replays, _matching(replays, names, known, least), strict=True):
            if capture is None:
                continue
            matched[rows] = True
            operator[rows] = capture.operator
            shapes[rows] = capture.shapes
            for row, frames in zip(rows, capture.stack, strict=True):
                stack[row] = frames
            share = _agreement([names[row] for row in rows], capture)
            agree[rows] = np.nan if share is None else share
    frames_of = pd.Series([() if frames is None else frames for frames in stack], dtype=object)
    found = {"matched": matched, "operator": operator, "shapes": shapes, "stack": frames_of, "agree": agree}
    return pd.DataFrame(found).set_axis(kernels.index)


def _matching(
    replays: list[Ints], names: list[tuple[str, str]], known: Sequence[Capture], least: float
) -> list[Capture | None]:
    """The captures of one label if they fit all replays of the step in order; else for each replay the only one."""
    groups: dict[str, list[Capture]] = {}
    for capture in known:
        groups.setdefault(capture.label, []).append(capture)
    for group in groups.values():
        if len(group) == len(replays) and all(
            _fits([names[row] for row in rows], capture, least) for rows, capture in zip(replays, group, strict=True)
        ):
            return list(group)
    alone: list[Capture | None] = []
    for rows in replays:
        fitting = [capture for capture in known if _fits([names[row] for row in rows], capture, least)]
        # Graphs of several batch sizes are captured from the same operators; different ones leave it open which.
        same = len({(capture.operator, capture.stack) for capture in fitting}) == 1
        alone.append(fitting[0] if same else None)
    return alone


def _fits(names: list[tuple[str, str]], capture: Capture, least: float) -> bool:
    if len(names) != len(capture):
        return False
    share = _agreement(names, capture)
    return share is None or share >= least


def _agreement(names: list[tuple[str, str]], capture: Capture) -> float | None:
    """Share of the places at which something can be compared where it is the same; None where nothing can."""
    same: list[bool] = []
    for (ran, category), told, operator in zip(names, capture.names, capture.operator, strict=True):
        if told is not None:
            same.append(ran == told or plain_name(ran) == plain_name(told))
        elif category in _TELLING and (kind := _work_of(operator)) in _TELLING:
            same.append(kind == category)
    return sum(same) / len(same) if same else None


@functools.lru_cache(maxsize=4096)
def _work_of(operator: str | None) -> str:
    return "other" if operator is None else load_rules().category(operator, "cpu_op")
