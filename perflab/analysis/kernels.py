"""Kernels: their categories, and how many came from CUDA graph replays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab.analysis.intervals import Ints, as_ints
from perflab.knowledge.categories import Rules, load_rules
from perflab.schema import CATEGORIES, conform

CATEGORY_TYPE = pd.CategoricalDtype(list(CATEGORIES))


def categorize(kernels: pd.DataFrame, rules: Rules | None = None) -> pd.DataFrame:
    """A copy of the table `kernels` with `category` filled from names.

    Parameters
    ----------
    kernels
        Needs `name` and `kind`.
    rules
        From `perflab.knowledge.categories.load_rules`; perflab's own unless given.

    Notes
    -----
    Each distinct name is matched once, however many kernels bear it.
    """
    known = load_rules() if rules is None else rules
    names, kinds = kernels["name"].astype("category"), kernels["kind"].astype("category")
    name_code, kind_code = names.cat.codes.to_numpy(np.int64), kinds.cat.codes.to_numpy(np.int64)
    pair, inverse = np.unique(name_code * max(len(kinds.cat.categories), 1) + kind_code, return_inverse=True)
    found = [_category(names, kinds, int(code), known) for code in pair]
    codes = CATEGORY_TYPE.categories.get_indexer(found).astype(np.int8)
    category = pd.Categorical.from_codes(codes[inverse] if len(pair) else [], dtype=CATEGORY_TYPE)
    return kernels.assign(category=category)


def _category(names: pd.Series, kinds: pd.Series, code: int, rules: Rules) -> str:
    name_code, kind_code = divmod(code, len(kinds.cat.categories))
    if name_code < 0:
        return "other"
    return rules.category(str(names.cat.categories[name_code]), str(kinds.cat.categories[kind_code]))


def operators(cpu_ops: pd.DataFrame, rules: Rules | None = None) -> pd.DataFrame:
    """A host's operators as table `kernels` of kind `cpu_op`, with categories; `stream` is the host thread.

    Parameters
    ----------
    cpu_ops
        Needs `rank`, `thread`, `name`, `start_ns`, `dur_ns`.
    rules
        As for `categorize`.
    """
    table = cpu_ops.assign(
        device=-1,
        stream=cpu_ops["thread"],
        correlation_id=-1,
        graph_id=-1,
        kind=pd.Categorical.from_codes(np.zeros(len(cpu_ops), dtype=np.int8), ["cpu_op"]),
        bytes=pd.array([pd.NA] * len(cpu_ops), dtype="Int64"),
    )
    return conform(categorize(table, rules), "kernels")


def name_totals(kernels: pd.DataFrame, category: str | None = None) -> pd.DataFrame:
    """Time by name, largest first: what a category, or `other`, consists of.

    Parameters
    ----------
    kernels
        Needs `name`, `kind`, `category`, `dur_ns`.
    category
        Only this category; all unless given.

    Returns
    -------
    DataFrame
        One row a name: `name`, `category`, `kind`, `count`, `dur_ns` (plain sum), `share` of the plain sum of
        all activities in `kernels`.
    """
    total = int(kernels["dur_ns"].sum())
    chosen = kernels if category is None else kernels[kernels["category"] == category]
    totals = (
        chosen.groupby(["name", "category", "kind"], observed=True)["dur_ns"]
        .agg(["size", "sum"])
        .reset_index()
        .rename(columns={"size": "count", "sum": "dur_ns"})
        .sort_values(["dur_ns", "name"], ascending=[False, True], ignore_index=True)
    )
    return totals.assign(share=totals["dur_ns"] / total if total else np.nan)


def launch_times(kernels: pd.DataFrame, launches: pd.DataFrame) -> tuple[Ints, Ints]:
    """For each activity, when the host began and ended the call that asked for it.

    Parameters
    ----------
    kernels
        Needs `correlation_id`.
    launches
        Table `launches`, of the same rank.

    Returns
    -------
    starts, ends
        Both -1 where no call is known. All kernels of a graph replay have the call that launched the graph.
        Where several calls bear an id, the first counts.
    """
    calls = launches[launches["correlation_id"] >= 0].sort_values(["correlation_id", "start_ns"])
    ids = calls["correlation_id"].to_numpy(np.int64)
    wanted = kernels["correlation_id"].to_numpy(np.int64)
    if not len(ids):
        nothing = np.full(len(wanted), -1, dtype=np.int64)
        return nothing, nothing
    at = np.minimum(np.searchsorted(ids, wanted, side="left"), len(ids) - 1)
    known = (ids[at] == wanted) & (wanted >= 0)
    start = calls["start_ns"].to_numpy(np.int64)
    end = start + calls["dur_ns"].to_numpy(np.int64)
    return as_ints(np.where(known, start[at], -1)), as_ints(np.where(known, end[at], -1))


@dataclass(frozen=True)
class GraphShare:
    """How much of a rank's device activity came from CUDA graph replays."""

    rank: int
    kernels: int
    in_graphs: int
    dur_ns: int
    in_graphs_ns: int
    replays: int
    largest_replay: int

    @property
    def share(self) -> float | None:
        """Share of time inside replays; None where nothing was recorded."""
        return self.in_graphs_ns / self.dur_ns if self.dur_ns else None


def graph_share(kernels: pd.DataFrame) -> list[GraphShare]:
    """For each rank, what share of its activities CUDA graph replays made.

    Needs `rank`, `graph_id`, `correlation_id`, `dur_ns`. A replay is one launch: activities with one
    correlation id. Inside one there are no operators to attribute kernels to, only names.
    """
    found = []
    for rank, mine in kernels.groupby("rank"):
        inside = mine[mine["graph_id"] >= 0]
        sizes = inside.groupby("correlation_id").size()
        found.append(
            GraphShare(
                rank=int(str(rank)),
                kernels=len(mine),
                in_graphs=len(inside),
                dur_ns=int(mine["dur_ns"].sum()),
                in_graphs_ns=int(inside["dur_ns"].sum()),
                replays=len(sizes),
                largest_replay=int(sizes.max()) if len(sizes) else 0,
            )
        )
    return found
