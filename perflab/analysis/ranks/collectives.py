"""Collectives matched across ranks, and waiting told from transferring.

A collective ends on all its ranks when the last of them has come and the data have moved. So the rank that arrives
last waits least: its kernel's duration is the transfer, and what the others take longer is waiting. Each duration is by
one clock, so this holds however far the ranks' clocks are apart.

Its limits. A rank that comes early into a large ring may fill the others' buffers and leave early too; its duration
then still tells what it lost. The transfer includes the kernel's own latency (barriers, handshakes). Where
communication runs beside compute, the kernel may be slow because they share the GPU. Of ranks without a trace nothing
is known: then the transfer is at most, and waiting at least, what is said. If all ranks are held up at once, that
counts as transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab.analysis.breakdown import BREAKDOWN_PHASE_TYPE
from perflab.analysis.intervals import Ints, as_ints
from perflab.analysis.ranks.clock_offsets import nearest_within, pair_offset
from perflab.analysis.steps import step_of
from perflab.knowledge.collectives import OPS, collective_of, op_of_call
from perflab.schema import TABLES, conform

OP_TYPE = pd.CategoricalDtype(list(OPS))
_KEYS = ["group", "step", "op", "by"]
_BESIDE = ("in_graph", "correlation_id", "own_step")


@dataclass(frozen=True)
class Unmatched:
    """Kernels of collectives that were found on no other rank, and why.

    `reason`: `counts` (ranks have different numbers of them and their times do not settle which belong together),
    `alone` (no other rank has any there), `outside` (before the first or after the last step, or on a rank without
    steps where others have them), `peers` (sends and receives whose partners nothing tells).
    """

    rank: int
    op: str
    reason: str
    count: int
    dur_ns: int


def match_collectives(
    kernels: pd.DataFrame,
    steps: pd.DataFrame,
    messages: pd.DataFrame | None = None,
    *,
    groups: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> tuple[pd.DataFrame, list[Unmatched]]:
    """The table `collectives`, with `in_graph`, `own_step` and `correlation_id` besides, and what found no partner.

    Parameters
    ----------
    kernels
        Table `kernels` with categories, of all ranks there are traces of.
    steps
        Table `steps` of the same ranks.
    messages
        Table `messages`; its process groups go before `groups`, and its calls say what kernels do whose names do not.
    groups
        By op, sets of ranks that communicate with one another (`parallel_groups`); under "" for all other ops. Without
        it all ranks are taken for one group, and sends and receives are matched only where there are just two ranks.

    Returns
    -------
    table, unmatched
        Within a step and group, the n-th all-reduce of one rank is the n-th of the others. Where ranks have different
        numbers of them, ends decide, after the offset of the clocks that the other collectives show.
    """
    work = _collective_kernels(kernels, steps, messages)
    if work.empty:
        return _table(work, {}), []
    work["group"] = _groups(work, groups or {})
    work["seq"] = -1
    why = np.where(work["step"] == _OUTSIDE, "outside", "")
    why = np.where((why == "") & (work["group"] == ""), "peers", why)
    open_rows = work[why == ""]
    uneven: list[pd.DataFrame] = []
    found: list[Ints] = []
    for _, bucket in open_rows.groupby(_KEYS, observed=True, sort=False):
        counts = bucket.groupby("rank").size()
        if len(counts) < 2:
            why[bucket.index] = "alone"
        elif counts.nunique() == 1:
            found.append(np.column_stack([rows.index for _, rows in bucket.groupby("rank")]))
        else:
            uneven.append(bucket)
    offsets = _end_offsets(work, found)
    for bucket in uneven:
        sure = _by_time(bucket, offsets)
        found.append(sure)
        why[np.setdiff1d(bucket.index, sure[sure >= 0])] = "counts"
    _number(work, found)
    return _table(_timed(work), _phases(steps)), _unmatched(work, why)


def parallel_groups(world: int, *, tensor: int, pipeline: int = 1, data: int = 1) -> dict[str, list[tuple[int, ...]]]:
    """The groups vLLM's ranks form, for `match_collectives`.

    Ranks count through tensor parallel first, then pipeline, then data parallel (vLLM parallel_state.py,
    initialize_model_parallel). All-reduces run within tensor groups. What experts exchange runs over tensor and data
    parallel ranks of a pipeline stage; so do gathers and scatters where there are data parallel ranks. Empty where
    the sizes do not make up the world.
    """
    if tensor * pipeline * data != world or min(tensor, pipeline, data) < 1:
        return {}
    grid = np.arange(world).reshape(data, pipeline, tensor)
    tensor_groups = [tuple(map(int, row)) for row in grid.reshape(-1, tensor)]
    stages = [tuple(map(int, np.sort(grid[:, stage, :].ravel()))) for stage in range(pipeline)]
    found = {"": tensor_groups if data == 1 else stages, "all_reduce": tensor_groups, "all_to_all": stages}
    if pipeline == 2:
        found["send_recv"] = [tuple(map(int, grid[d, :, t])) for d in range(data) for t in range(tensor)]
    return found


_OUTSIDE, _NO_STEPS = -2, -1


def _collective_kernels(kernels: pd.DataFrame, steps: pd.DataFrame, messages: pd.DataFrame | None) -> pd.DataFrame:
    """Communication kernels with what they do, the step they belong to (common to all ranks) and the group told."""
    is_one = (kernels["category"] == "communication") & (kernels["kind"] == "kernel")
    work = kernels.loc[is_one, ["rank", "name", "correlation_id", "graph_id", "start_ns", "dur_ns"]]
    work = work.sort_values(["rank", "start_ns"]).reset_index(drop=True)
    names = work["name"].astype("object").astype(str)
    known = {name: collective_of(name) for name in names.unique()}
    work["name"] = names
    work["op"] = names.map(lambda name: known[name][0])
    work["by"] = names.map(lambda name: known[name][1])
    work["in_graph"] = work["graph_id"] >= 0
    work["step"] = _common_steps(work, steps)
    shifts = step_shifts(steps) if len(steps) else {}
    own = work["step"] - work["rank"].map(shifts).fillna(0).astype("int64")
    work["own_step"] = own.where(work["step"] >= 0, work["step"])
    columns = ["rank", "correlation_id", "call", "group", "group_size"]
    told = messages if messages is not None and len(messages) else pd.DataFrame({name: [] for name in columns})
    told = told[columns].rename(columns={"group": "told_group"})
    told = told.astype({"rank": "int64", "correlation_id": "int64"})
    work = work.merge(told, on=["rank", "correlation_id"], how="left")
    work["told_group"] = work["told_group"].astype("object").where(work["told_group"].notna(), "")
    calls = {call: op_of_call(str(call)) for call in work["call"].dropna().unique()}
    said = work["call"].map(calls)
    unclear = work["op"].isin(["other", "send_recv"]) & said.notna()
    work["op"] = np.where(unclear, said, work["op"])
    # Kernels of one library that do parts of one exchange are each matched by name.
    apart = work["by"].isin(["deep_ep"]) | ((work["op"] == "other") & (work["by"] == "other"))
    work["by"] = np.where(apart, work["by"] + ":" + work["name"], work["by"])
    return work.drop(columns="call")


def _common_steps(work: pd.DataFrame, steps: pd.DataFrame) -> Ints:
    """For each kernel the step's position on the reference rank; -2 outside all steps, -1 without steps at all."""
    if steps.empty:
        return as_ints(np.full(len(work), _NO_STEPS))
    shifts = step_shifts(steps)
    found = np.full(len(work), _OUTSIDE)
    for rank, rows in work.groupby("rank"):
        mine = steps[steps["rank"] == rank].sort_values("start_ns", ignore_index=True)
        at = step_of(rows["start_ns"], mine)
        found[rows.index] = np.where(at >= 0, at + shifts.get(int(str(rank)), 0), _OUTSIDE)
    return as_ints(found)


def reference_rank(steps: pd.DataFrame) -> int:
    """The rank with most steps, whose numbers of steps the table uses; the lowest of several."""
    return int(steps.groupby("rank").size().idxmax())


def step_shifts(steps: pd.DataFrame) -> dict[int, int]:
    """By rank, what to add to the position of its steps to get that of the rank with most steps.

    Where traces begin or end at different steps, the shift is the one under which the batches (requests and tokens)
    agree; if several do, the one under which steps start closest together.
    """
    columns = ["prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"]
    by_rank = {int(str(rank)): rows.sort_values("start_ns") for rank, rows in steps.groupby("rank")}
    batches = {rank: [tuple(row) for row in rows[columns].fillna(-1).to_numpy()] for rank, rows in by_rank.items()}
    first = reference_rank(steps)
    starts = {rank: rows["start_ns"].to_numpy(np.int64) for rank, rows in by_rank.items()}
    return {
        rank: 0
        if batches[rank] == batches[first]
        else _shift(batches[first], batches[rank], starts[first], starts[rank])
        for rank in by_rank
    }


def _shift(longer: list[tuple[int, ...]], own: list[tuple[int, ...]], start: Ints, own_start: Ints) -> int:
    best: list[tuple[float, float, int]] = []
    for shift in range(1 - len(own), len(longer)):
        low, high = max(0, shift), min(len(longer), len(own) + shift)
        if high - low < (min(len(longer), len(own)) + 1) // 2:
            continue
        agree = sum(longer[i] == own[i - shift] for i in range(low, high)) / min(len(longer), len(own))
        apart = float(np.median(np.abs(own_start[low - shift : high - shift] - start[low:high])))
        best.append((agree, -apart, shift))
    most = max(agree for agree, _, _ in best)
    return max((apart, shift) for agree, apart, shift in best if agree >= most - 0.1)[1]


def _groups(work: pd.DataFrame, groups: Mapping[str, Sequence[Sequence[int]]]) -> pd.Series:
    """The ranks each kernel communicates with, comma separated; empty where that is not known."""
    everyone = sorted(work["rank"].unique().tolist())
    of_all = ",".join(map(str, everyone))
    by_op = {
        op: {int(rank): ",".join(map(str, sorted(members))) for members in sets for rank in members}
        for op, sets in groups.items()
    }

    def group(told: str, op: str, rank: int) -> str:
        if told:
            return told
        unknown = op == "send_recv" and (len(everyone) > 2 or op in groups)
        default = "" if unknown else of_all
        known = by_op.get(op, {} if op == "send_recv" else by_op.get("", {}))
        return known.get(rank, default)

    rows = zip(work["told_group"], work["op"], work["rank"], strict=True)
    return pd.Series([group(told, op, rank) for told, op, rank in rows], index=work.index, dtype=object)


def _end_offsets(work: pd.DataFrame, found: list[Ints]) -> dict[tuple[int, int], tuple[float, float]]:
    """By pair of ranks, how far the second's clock is ahead and how far a single end may lie from that."""
    ends: dict[tuple[int, int], list[Ints]] = {}
    rank, end = work["rank"].to_numpy(), (work["start_ns"] + work["dur_ns"]).to_numpy(np.int64)
    for rows in found:
        for column in range(1, rows.shape[1]):
            pair = (int(rank[rows[0, 0]]), int(rank[rows[0, column]]))
            ends.setdefault(pair, []).append(end[rows[:, column]] - end[rows[:, 0]])
    return {pair: pair_offset(np.concatenate(parts)) for pair, parts in ends.items()}


def _by_time(bucket: pd.DataFrame, offsets: Mapping[tuple[int, int], tuple[float, float]]) -> Ints:
    """Rows that ended together, by the clocks' offset: one line a collective, -1 where a rank has none."""
    per_rank = {int(str(rank)): rows for rank, rows in bucket.groupby("rank")}
    first = min(per_rank)
    base = per_rank[first]
    ends = (base["start_ns"] + base["dur_ns"]).to_numpy(np.int64)
    lines = np.full((len(base), len(per_rank)), -1, dtype=np.int64)
    lines[:, 0] = base.index
    for column, (rank, rows) in enumerate(per_rank.items()):
        if rank == first or (first, rank) not in offsets:
            continue
        offset, spread = offsets[first, rank]
        own = (rows["start_ns"] + rows["dur_ns"]).to_numpy(np.float64) - offset
        at = nearest_within(ends, own, spread)
        lines[at >= 0, column] = rows.index.to_numpy()[at[at >= 0]]
    return as_ints(lines[(lines >= 0).sum(axis=1) > 1])


def _number(work: pd.DataFrame, found: list[Ints]) -> None:
    """Number the matched collectives in the order in which they start on the first rank they are on."""
    lines = [line[line >= 0] for rows in found for line in rows]
    lines.sort(key=lambda line: (int(work["step"].iat[line[0]]), int(work["start_ns"].iat[line[0]])))
    seq = work["seq"].to_numpy().copy()
    for number, line in enumerate(lines):
        seq[line] = number
    work["seq"] = seq


def _timed(work: pd.DataFrame) -> pd.DataFrame:
    matched = work["seq"] >= 0
    least = work[matched].groupby("seq")["dur_ns"].transform("min")
    ranks = work[matched].groupby("seq")["rank"].transform("size")
    transfer = pd.Series(pd.NA, index=work.index, dtype="Int64")
    transfer[matched] = least.astype("Int64")
    return work.assign(
        transfer_ns=transfer,
        wait_ns=work["dur_ns"].astype("Int64") - transfer,
        ranks=ranks.reindex(work.index).fillna(1),
    )


def _phases(steps: pd.DataFrame) -> dict[int, str]:
    """By position of a step on the reference rank."""
    if steps.empty:
        return {}
    mine = steps[steps["rank"] == reference_rank(steps)].sort_values("start_ns")
    return dict(enumerate(mine["phase"].astype(str)))


def _table(work: pd.DataFrame, phases: Mapping[int, str]) -> pd.DataFrame:
    if work.empty:
        nothing = pd.DataFrame({name: [] for name in TABLES["collectives"].names})
        nothing["phase"] = nothing["phase"].astype(BREAKDOWN_PHASE_TYPE)
        table = conform(nothing, "collectives")
        return table.assign(in_graph=pd.Series(dtype=bool), **dict.fromkeys(_BESIDE[1:], pd.Series(dtype="int64")))
    size = work["group"].map(lambda text: text.count(",") + 1 if text else pd.NA).astype("Int64")
    table = work.assign(
        group_size=work["group_size"].astype("Int64").fillna(size),
        phase=work["step"].map(lambda step: phases.get(step, "all")).astype(BREAKDOWN_PHASE_TYPE),
        op=work["op"].astype(OP_TYPE),
        by=work["by"].str.partition(":")[0],
        bytes=pd.array([pd.NA] * len(work), dtype="Int64"),
        bytes_source="",
    )
    order = table.sort_values(["seq", "rank", "start_ns"], ignore_index=True)
    return conform(order, "collectives").assign(**{name: order[name] for name in _BESIDE})


def _unmatched(work: pd.DataFrame, why: Ints) -> list[Unmatched]:
    left = work.assign(why=why)[work["seq"] < 0]
    found = left.groupby(["rank", "op", "why"])["dur_ns"].agg(["size", "sum"]).reset_index()
    return [
        Unmatched(int(r.rank), str(r.op), str(r.why) or "counts", int(r.size), int(r.sum)) for r in found.itertuples()
    ]
