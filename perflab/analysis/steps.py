"""Engine steps: where each begins and ends on a rank's device timeline, and what it computed.

A step runs from the start of its annotation on the device to the start of the next one, so it holds the
forward part and the tail after it (logits, sampling, gathers). Host annotations run ahead of the device
under async scheduling and bound a step only where there is no device at all: column `bounded_by` says so.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from perflab.analysis.intervals import Ints, as_ints
from perflab.analysis.kernels import launch_times
from perflab.schema import PHASES, TABLES, conform

PHASE_TYPE = pd.CategoricalDtype(list(PHASES))

# vLLM's worker names each step `execute_context_2(512)_generation_8(8)`, requests and, in brackets, tokens; with
# detailed_trace_annotation `execute_520_context_2(sq512sk512sqsq..sqsk..)_generation_8(sq8sk4104sqsq..sqsk..)`,
# where sq are the new tokens and sk the tokens attended to, and sqsq and sqsk their products, summed over requests.
_NAME = re.compile(
    r"execute_(?:\d+_)?context_(?P<prefill_requests>\d+)\((?:sq)?(?P<prefill_tokens>\d+)"
    r"(?:sk(?P<prefill_kv>\d+)(?:sqsq(?P<prefill_qq>\d+)sqsk(?P<prefill_qk>\d+))?[^)]*)?\)"
    r"_generation_(?P<decode_requests>\d+)\((?:sq)?(?P<decode_tokens>\d+)"
    r"(?:sk(?P<decode_kv>\d+)(?:sqsq(?P<decode_qq>\d+)sqsk(?P<decode_qk>\d+))?[^)]*)?\)"
)
_COUNTS = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "kv_tokens", "kv_pairs")


def step_marks(ranges: pd.DataFrame) -> pd.DataFrame:
    """The annotations that mark steps, dummies included.

    Parameters
    ----------
    ranges
        Table `ranges`.

    Returns
    -------
    DataFrame
        `rank`, `domain`, `thread`, `name`, `start_ns`, `end_ns`, the counts of table `steps`, and `dummy`: a
        step without requests (`..0(0)..0(0)`), which the engine runs when it has nothing to do.
    """
    names = ranges["name"].astype("category")
    parsed = {code: _counts(str(name)) for code, name in enumerate(names.cat.categories)}
    codes = names.cat.codes.to_numpy()
    known = np.array([parsed.get(int(code)) is not None for code in codes], dtype=bool)
    marks = ranges.loc[known, ["rank", "domain", "thread", "start_ns"]].reset_index(drop=True)
    marks["name"] = names[known].astype("object").to_numpy()
    marks["end_ns"] = (ranges["start_ns"] + ranges["dur_ns"])[known].to_numpy()
    rows = [parsed[int(code)] or {} for code in codes[known]]
    for column in _COUNTS:
        marks[column] = pd.array([row[column] for row in rows], dtype="Int64")
    marks["dummy"] = (marks["prefill_requests"] + marks["decode_requests"] == 0).to_numpy(bool)
    return marks.sort_values(["rank", "start_ns", "thread"], ignore_index=True)


def steps_from_ranges(
    ranges: pd.DataFrame, kernels: pd.DataFrame, launches: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The table `steps`, with `bounded_by` and `kv_pairs` besides.

    Parameters
    ----------
    ranges
        Table `ranges`.
    kernels
        Table `kernels`; says where the work of the last step ends.
    launches
        Table `launches`. With it, work launched after the engine had moved on is not counted to the last
        step, and steps are found where only the host was annotated, from the work launched inside.

    Returns
    -------
    DataFrame
        `bounded_by` is `device` (device annotations), `launches` (the device work launched inside host
        annotations), or `host` (a rank without device work: a CPU engine). `kv_pairs`: pairs of query and key that
        a causal mask lets through, NA where the annotation does not tell. Steps of a rank follow one another without
        gaps. No rows for a rank without annotations.
    """
    marks = step_marks(ranges)
    found: list[pd.DataFrame] = []
    for rank, mine in marks.groupby("rank"):
        work = kernels[kernels["rank"] == rank]
        calls = None if launches is None else launches[launches["rank"] == rank]
        found.append(_rank_steps(int(str(rank)), mine, work, calls))
    kept = [frame for frame in found if len(frame)]
    if not kept:
        return _conform(pd.DataFrame(columns=[*TABLES["steps"].names, "bounded_by", "kv_pairs"]))
    return _conform(pd.concat(kept, ignore_index=True))


def step_of(times: ArrayLike, steps: pd.DataFrame) -> Ints:
    """For each time, the position (row) of the step that contains it, or -1.

    Parameters
    ----------
    steps
        Steps of one rank, in order.
    """
    at = as_ints(times)
    if steps.empty:
        return np.full(len(at), -1, dtype=np.int64)
    start = steps["start_ns"].to_numpy(np.int64)
    end = start + steps["dur_ns"].to_numpy(np.int64)
    position = as_ints(np.searchsorted(start, at, side="right") - 1)
    inside = (position >= 0) & (at < end[np.maximum(position, 0)])
    return as_ints(np.where(inside, position, -1))


def _counts(name: str) -> dict[str, int | None] | None:
    match = _NAME.search(name)
    if match is None:
        return None
    found: dict[str, int | None] = {
        key: int(match[key]) for key in ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    }
    detailed = match["prefill_kv"] is not None and match["decode_kv"] is not None
    found["kv_tokens"] = int(match["prefill_kv"]) + int(match["decode_kv"]) if detailed else None
    found["kv_pairs"] = (
        _pairs(match, "prefill") + _pairs(match, "decode") if match["prefill_qk"] and match["decode_qk"] else None
    )
    return found


def _pairs(match: re.Match[str], phase: str) -> int:
    """Pairs under a causal mask, summed over requests: of q new tokens and k in all, q*k - q*(q-1)/2."""
    q, qq, qk = (int(match[f"{phase}_{name}"]) for name in ("tokens", "qq", "qk"))
    return qk - (qq - q) // 2


def _rank_steps(rank: int, marks: pd.DataFrame, work: pd.DataFrame, launches: pd.DataFrame | None) -> pd.DataFrame:
    on_device = work[work["kind"] != "cpu_op"]
    host = marks[marks["domain"] == "host"]
    device = marks[(marks["domain"] == "device") & ~marks["dummy"]]
    if len(device):
        bounds, bounded_by = _merged(device), "device"
    elif len(on_device):
        # Without launches the device's side of a host annotation cannot be found, and the host's is not it.
        bounds, bounded_by = _spans_of_launches(host, on_device, launches), "launches"
    else:
        bounds, bounded_by = host[~host["dummy"]], "host"
    if bounds.empty:
        return bounds
    bounds = bounds.sort_values("start_ns", ignore_index=True)
    start = bounds["start_ns"].to_numpy(np.int64)
    activities = on_device if len(on_device) else work
    last = _end_of_last(bounds, host, activities, launches)
    end = np.append(start[1:], last)
    return pd.DataFrame(
        {
            "rank": rank,
            "step": np.arange(len(start)),
            "phase": [_phase(p, d) for p, d in zip(bounds["prefill_requests"], bounds["decode_requests"], strict=True)],
            "start_ns": start,
            "dur_ns": end - start,
            # Work of one step can run on beside the next; the forward part shown ends with its step.
            "forward_ns": np.minimum(bounds["end_ns"].to_numpy(np.int64), end) - start,
            **{column: bounds[column].to_numpy() for column in _COUNTS},
            "bounded_by": bounded_by,
        }
    )


def _phase(prefill_requests: int, decode_requests: int) -> str:
    if prefill_requests and decode_requests:
        return "mixed"
    return "prefill" if prefill_requests else "decode"


def _merged(marks: pd.DataFrame) -> pd.DataFrame:
    """One row a step: an annotation appears once on every stream it launched work to."""
    groups: list[dict[str, Any]] = []
    for mark in marks.to_dict("records"):
        same = next(
            (
                group
                for group in reversed(groups[-8:])
                if group["name"] == mark["name"]
                and mark["start_ns"] < group["end_ns"]
                and mark["thread"] not in group["threads"]
            ),
            None,
        )
        if same is None:
            groups.append({**mark, "threads": {mark["thread"]}})
        else:
            same["end_ns"] = max(same["end_ns"], mark["end_ns"])
            same["threads"].add(mark["thread"])
    return pd.DataFrame(groups).drop(columns="threads").astype(dict.fromkeys(_COUNTS, "Int64"))


def _spans_of_launches(host: pd.DataFrame, work: pd.DataFrame, launches: pd.DataFrame | None) -> pd.DataFrame:
    """Host annotations with the times of the device work launched inside them; those without work are left out."""
    real = host[~host["dummy"]]
    if launches is None or launches.empty or real.empty:
        return real.iloc[:0]
    launched, _ = launch_times(work, launches)
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["dur_ns"].to_numpy(np.int64)
    rows = []
    for mark in real.to_dict("records"):
        inside = (launched >= mark["start_ns"]) & (launched < mark["end_ns"])
        if inside.any():
            rows.append({**mark, "start_ns": start[inside].min(), "end_ns": end[inside].max()})
    return pd.DataFrame(rows, columns=real.columns).astype(dict.fromkeys(_COUNTS, "Int64"))


def _end_of_last(bounds: pd.DataFrame, host: pd.DataFrame, work: pd.DataFrame, launches: pd.DataFrame | None) -> int:
    """Where the work of the last step ends: its forward part, its tail, and the copies behind it."""
    last = bounds.iloc[-1]
    forward_end = int(last["end_ns"])
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["dur_ns"].to_numpy(np.int64)
    belongs = start >= int(last["start_ns"])
    same = host[host["name"] == last["name"]]
    if len(same):
        # What the host called for once it had begun another step (if only a dummy) is not this step's.
        later = host.loc[host["start_ns"] > int(same["start_ns"].max()), "start_ns"]
        limit = int(later.min()) if len(later) else np.iinfo(np.int64).max
        if launches is not None:
            belongs &= launch_times(work, launches)[0] < limit
        elif len(work) and (work["kind"] == "cpu_op").all():
            belongs &= (start < limit) & (work["stream"].to_numpy(np.int64) == int(last["thread"]))
    return max(forward_end, int(end[belongs].max()) if belongs.any() else forward_end)


def _conform(frame: pd.DataFrame) -> pd.DataFrame:
    table = conform(frame.assign(phase=frame["phase"].astype(PHASE_TYPE)), "steps")
    pairs = pd.array(frame["kv_pairs"], dtype="Int64")
    return table.assign(bounded_by=frame["bounded_by"].astype("object").to_numpy(), kv_pairs=pairs)
