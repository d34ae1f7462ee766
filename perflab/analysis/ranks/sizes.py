"""How large the messages of collectives are, and what bandwidth that makes.

Bandwidth by the formulas of nccl-tests (doc/PERFORMANCE.md): algorithm bandwidth is size over time; bus bandwidth is
that times 2(n-1)/n for all-reduces, (n-1)/n for gathers, scatters and all-to-all, 1 for broadcasts and sends, so that
it can be held against what a link carries in one direction whatever the number of ranks. Where the switch reduces
(multimem, NCCL's NVLS) an all-reduce needs less of the link: (n-1)/(n+1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.model.graph_padding import CaptureSizes
from perflab.knowledge.collectives import OPS
from perflab.knowledge.gpus import Link
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.schema import PHASES

SIZE_COLUMNS = (
    "phase", "op", "by", "bytes", "bytes_source", "ranks", "count", "transfer_ns", "low_ns", "high_ns",
    "algorithm_bandwidth", "bus_bandwidth", "of_peak", "bound", "in_network",
)  # fmt: skip

_PHASES = (*PHASES, "all")


def bus_factor(op: str, ranks: int, *, in_network: bool = False) -> float | None:
    """What to multiply the algorithm bandwidth with; None where nccl-tests have no formula.

    `in_network`: the switch reduces, not the GPUs.
    """
    if ranks < 2:
        return None
    if op == "all_reduce":
        return (ranks - 1) / (ranks + 1) if in_network else 2 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0 if op in ("broadcast", "send_recv") else None


def with_sizes(
    collectives: pd.DataFrame,
    messages: pd.DataFrame | None,
    steps: pd.DataFrame,
    *,
    hidden_size: int | None = None,
    itemsize: int | None = None,
    capture: CaptureSizes | None = None,
) -> pd.DataFrame:
    """A copy of the table `collectives` with `bytes` and `bytes_source` where something tells them.

    Parameters
    ----------
    collectives, messages
        From `perflab.analysis.collectives.match_collectives`, and the table it was given.
    steps
        Table `steps`.
    hidden_size, itemsize
        Of the model, and bytes of an element of its activations. Without them the size per token is taken from an
        all-reduce of the same trace whose shape was recorded.
    capture
        Batch sizes that CUDA graphs were captured for; a smaller batch is padded to the next of them. Without them
        nothing is inferred for kernels of graphs.

    Returns
    -------
    DataFrame
        `bytes_source` is `arguments` or `shape` where the trace says the size, of this rank or another; `inferred`
        for the all-reduces of a step, one row of the hidden size a token (what tensor parallel layers and the
        embedding exchange). Where the trace contradicts the inference somewhere, nothing is inferred.
    """
    table = _told(collectives, messages)
    if hidden_size and itemsize:
        per_token: int | None = hidden_size * itemsize
    else:
        per_token = _bytes_per_token(messages)
    if per_token is None or steps.empty:
        return table
    guess = _inferred(table, steps, per_token, capture)
    both = guess.notna() & table["bytes"].notna() & (table["op"] == "all_reduce")
    if (guess[both] != table.loc[both, "bytes"]).any():
        return table
    filled = guess.notna() & table["bytes"].isna()
    return table.assign(
        bytes=table["bytes"].fillna(guess), bytes_source=table["bytes_source"].mask(filled, "inferred")
    )  # fmt: skip


def by_size(collectives: pd.DataFrame, link: Link | None = None, limits: Thresholds | None = None) -> pd.DataFrame:
    """Transfers by phase, op, implementation and message size.

    Parameters
    ----------
    collectives
        Table `collectives`.
    link
        What the GPU's links carry; None where the GPU is not known.
    limits
        Perflab's own unless given.

    Returns
    -------
    DataFrame
        One row a size (NA where it is not known): `count` of collectives, median `transfer_ns` with the 5th and 95th
        percentile (`low_ns`, `high_ns`), bandwidths in bytes/s from the median, `of_peak` (bus bandwidth over the
        link's), `in_network` (counted as reduced by the switch), and `bound`: `latency` where the message would take
        the link less than a few microseconds, so that its time is the kernel's own and bandwidth says nothing;
        `bandwidth`; `implausible` above the link's peak, where size or link cannot be right; None where nothing can
        be said.
    """
    once = collectives[collectives["seq"] >= 0].drop_duplicates("seq")
    if once.empty:
        return pd.DataFrame({name: [] for name in SIZE_COLUMNS})
    keys = ["phase", "op", "by", "bytes", "bytes_source", "ranks"]
    floor = (own_thresholds() if limits is None else limits).limit("latency_bound", "microseconds")
    rows = []
    for key, some in once.groupby(keys, observed=True, dropna=False, sort=False):
        found: dict[str, Any] = dict(zip(keys, key, strict=True))
        low, median, high = np.quantile(some["transfer_ns"].to_numpy(np.float64), [0.05, 0.5, 0.95])
        whole = some["group_size"].isna() | (some["group_size"] == some["ranks"])
        ranks = int(found["ranks"]) if whole.all() else int(some["group_size"].max())
        found |= {"count": len(some), "transfer_ns": median, "low_ns": low, "high_ns": high}
        rows.append(found | _bandwidths(found, ranks, median, link, floor))
    table = pd.DataFrame(rows)[list(SIZE_COLUMNS)].astype({"phase": str, "op": str})
    # Where some sizes are known and some are not, pandas makes text of the column, and None a NaN.
    table["bound"] = table["bound"].astype(object).where(table["bound"].notna(), None)
    places = table.assign(phase=table["phase"].map(_PHASES.index), op=table["op"].map(OPS.index))
    return table.loc[places.sort_values(["phase", "op", "bytes"]).index].reset_index(drop=True)


def _bandwidths(
    found: dict[str, Any], ranks: int, time_ns: float, link: Link | None, floor_us: float
) -> dict[str, Any]:
    nothing = {"algorithm_bandwidth": None, "bus_bandwidth": None, "of_peak": None, "bound": None, "in_network": False}
    if pd.isna(found["bytes"]) or not time_ns:
        return nothing
    op, by = str(found["op"]), str(found["by"])
    algorithm = float(found["bytes"]) / time_ns * 1e9
    switched = op == "all_reduce" and by == "multimem"
    factor = bus_factor(op, ranks, in_network=switched)
    if factor is None:
        return nothing | {"algorithm_bandwidth": algorithm}
    if link is None:
        return nothing | {
            "algorithm_bandwidth": algorithm, "bus_bandwidth": algorithm * factor, "in_network": switched,
        }  # fmt: skip
    peak = link.among(ranks)
    if op == "all_reduce" and by == "nccl" and ranks > 2 and algorithm * factor > peak:
        # NCCL's kernels bear one name whatever the algorithm; only NVLS can be faster than GPUs that reduce.
        factor, switched = bus_factor(op, ranks, in_network=True) or factor, True
    bus = algorithm * factor
    least_us = float(found["bytes"]) * factor / peak * 1e6
    bound = "latency" if least_us < floor_us else "bandwidth"
    return {
        "algorithm_bandwidth": algorithm, "bus_bandwidth": bus, "of_peak": bus / peak,
        "bound": "implausible" if bus > peak else bound, "in_network": switched,
    }  # fmt: skip


def _told(collectives: pd.DataFrame, messages: pd.DataFrame | None) -> pd.DataFrame:
    if messages is None or messages.empty or collectives.empty:
        return collectives.copy()
    columns = ["rank", "correlation_id", "in_bytes", "out_bytes", "source"]
    known = collectives[["rank", "correlation_id", "seq", "op", "group_size"]].merge(
        messages[columns], on=["rank", "correlation_id"], how="left"
    )
    gathered = known["out_bytes"].fillna(known["in_bytes"] * known["group_size"])
    size = known["in_bytes"].where(known["op"] != "all_gather", gathered).astype("Int64")
    source = known["source"].fillna("").astype(str)
    # What one rank's trace says holds for all ranks of the collective.
    shared = known.assign(size=size, source=source)
    matched = shared[shared["seq"] >= 0]
    size = size.fillna(shared["seq"].map(matched.groupby("seq")["size"].max())).astype("Int64")
    other = shared["seq"].map(matched.groupby("seq")["source"].max()).astype("object")
    source = source.where(source != "", other.where(other.notna(), ""))
    return collectives.assign(bytes=size.to_numpy(), bytes_source=source.to_numpy(dtype=object)).astype(
        {"bytes": "Int64"}
    )


def _bytes_per_token(messages: pd.DataFrame | None) -> int | None:
    """From all-reduces with recorded shapes; None unless they agree."""
    if messages is None or messages.empty:
        return None
    shaped = messages[messages["call"].str.contains("all_reduce") & messages["tokens"].fillna(0).gt(0)]
    sizes = (shaped["in_bytes"] // shaped["tokens"]).unique()
    return int(sizes[0]) if len(sizes) == 1 else None


def _inferred(table: pd.DataFrame, steps: pd.DataFrame, per_token: int, capture: CaptureSizes | None) -> pd.Series:
    """Bytes of the all-reduces of a step with known tokens; NA for all else."""
    ordered = steps.sort_values(["rank", "start_ns"], ignore_index=True)
    tokens = (ordered["prefill_tokens"] + ordered["decode_tokens"]).astype("Int64")
    of_step = dict(zip(zip(ordered["rank"], ordered.groupby("rank").cumcount(), strict=True), tokens, strict=True))
    own = pd.Series(
        [of_step.get(key, pd.NA) for key in zip(table["rank"], table["own_step"], strict=True)],
        index=table.index, dtype="Int64",
    )  # fmt: skip
    if capture is None:
        own = own.mask(table["in_graph"])
    else:
        phases = table["phase"].astype(str)
        padded = pd.Series(
            [pd.NA if pd.isna(n) else capture.padded(int(n), phase) for n, phase in zip(own, phases, strict=True)],
            index=table.index, dtype="Int64",
        )  # fmt: skip
        own = own.where(~table["in_graph"], padded)
    return (own * per_token).where(table["op"] == "all_reduce").astype("Int64")
