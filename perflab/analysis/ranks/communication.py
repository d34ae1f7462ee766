"""Everything about the communication of one profiling pass: collectives, sizes, clocks, and who is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.model.graph_padding import capture_sizes
from perflab.analysis.model.workload import split_of
from perflab.analysis.ranks.clock_offsets import ClockOffset, clock_offsets
from perflab.analysis.ranks.collectives import Unmatched, match_collectives, parallel_groups
from perflab.analysis.ranks.sizes import by_size, with_sizes
from perflab.analysis.ranks.stragglers import Straggler, stragglers
from perflab.knowledge.gpus import Link, gpu_spec
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say
from perflab.schema import PHASES


@dataclass(frozen=True)
class Communication:
    """The collectives of one pass.

    Attributes
    ----------
    table
        Table `collectives`, sizes filled in.
    unmatched
        Kernels that found no partner, with the reason.
    offsets
        Clocks against one another; empty for one rank.
    sizes
        From `perflab.analysis.collective_sizes.by_size`.
    stragglers
        One a phase; empty for one rank.
    link
        What the GPU's links carry; None where the GPU is not in the table.
    """

    table: pd.DataFrame
    unmatched: list[Unmatched]
    offsets: list[ClockOffset]
    sizes: pd.DataFrame
    stragglers: list[Straggler]
    link: Link | None

    @property
    def ranks(self) -> list[int]:
        """Ranks with collectives."""
        return sorted(self.table["rank"].unique().tolist())

    @property
    def matched(self) -> pd.DataFrame:
        """The rows that were found on several ranks."""
        return self.table[self.table["seq"] >= 0]

    def straggler(self, phase: str) -> Straggler | None:
        """What can be said of a phase."""
        return next((one for one in self.stragglers if one.phase == phase), None)

    def totals(self) -> pd.DataFrame:
        """Sums by phase and rank: `collectives`, `transfer_ns` and `wait_ns`, of what was matched."""
        sums = self.matched.groupby(["phase", "rank"], observed=True)
        found = sums.agg(collectives=("seq", "size"), transfer_ns=("transfer_ns", "sum"), wait_ns=("wait_ns", "sum"))
        return found.reset_index().astype({"phase": str, "transfer_ns": "int64", "wait_ns": "int64"})

    def to_json(self) -> list[dict[str, Any]]:
        """One entry an op, as the JSON contract has it."""
        return [self._op(op) for op in self.table["op"].astype(str).drop_duplicates().tolist()]

    def clocks_json(self) -> dict[str, Any]:
        """The clocks of the ranks, and who is waited for."""
        return {
            "offsets": [one.to_json() for one in self.offsets],
            "stragglers": [one.to_json() for one in self.stragglers],
        }

    def _op(self, op: str) -> dict[str, Any]:
        rows = self.table[self.table["op"] == op]
        left = [one for one in self.unmatched if one.op == op]
        sizes = self.sizes[self.sizes["op"] == op]
        return {
            "op": op,
            **_sums(rows),
            "phases": {
                phase: _sums(rows[rows["phase"] == phase]) for phase in PHASES if (rows["phase"] == phase).any()
            },
            "kernels": {str(name): int(n) for name, n in rows["name"].astype(str).value_counts().items()},
            "sizes": [
                {key: _plain(value) for key, value in row.items() if key != "op"} for row in sizes.to_dict("records")
            ],
            "unmatched": [
                {"rank": one.rank, "reason": one.reason, "count": one.count, "dur_ns": one.dur_ns} for one in left
            ],
        }


def communication(
    kernels: pd.DataFrame,
    steps: pd.DataFrame,
    messages: pd.DataFrame | None = None,
    *,
    device: str | None = None,
    world: int | None = None,
    settings: Mapping[str, Any] | None = None,
    hidden_size: int | None = None,
    itemsize: int | None = None,
    thresholds: Thresholds | None = None,
) -> Communication | None:
    """The communication of a pass; None where no kernel communicates.

    Parameters
    ----------
    kernels, steps, messages
        Tables of all ranks that have a trace; kernels with categories.
    device
        Name of the GPU, as the trace has it.
    world
        Number of ranks there were.
    settings
        Of the engine: how ranks are grouped, and which sizes graphs were captured for.
    hidden_size, itemsize
        Of the model, where known; else the size of a token is taken from the trace where that tells it.
    """
    known = settings or {}
    split = split_of(known)
    groups: dict[str, list[tuple[int, ...]]] = {}
    if world is not None and world > 1:
        groups = parallel_groups(world, tensor=split.tensor, pipeline=split.pipeline, data=split.data)
    if world is not None and world > 2:
        # Two ranks with traces out of many need not be those that send to each other.
        groups.setdefault("send_recv", [])
    table, unmatched = match_collectives(kernels, steps, messages, groups=groups)
    if table.empty:
        return None
    table = with_sizes(
        table, messages, steps, hidden_size=hidden_size, itemsize=itemsize, capture=capture_sizes(known)
    )  # fmt: skip
    spec = gpu_spec(device)
    link = None if spec is None else spec.link
    offsets = clock_offsets(table)
    limits = own_thresholds() if thresholds is None else thresholds
    return Communication(
        table, unmatched, offsets, by_size(table, link, limits), stragglers(table, offsets, limits), link
    )  # fmt: skip


def communication_checks(found: Communication | None, *, run: str = "") -> list[Check]:
    """Whether collectives were matched, and whether the clocks of ranks can be put right; none for one rank."""
    if found is None or len(found.ranks) < 2:
        return []
    return [_with_source(check, run) for check in (_matched(found), _aligned(found))]


def _matched(found: Communication) -> Check:
    name = "collectives_matched"
    kernels, left = len(found.table), sum(one.count for one in found.unmatched)
    pairs = int(found.table["seq"].max()) + 1
    if not left:
        detail = say("collectives.matched.pass", n=units.show_count(pairs), ranks=len(found.ranks))
        return Check(name, "pass", detail)
    reasons = ", ".join(
        say(
            f"collectives.unmatched.{one.reason}", count=units.show_count(one.count), op=one.op, rank=one.rank,
            time=units.show_time(one.dur_ns),
        )
        for one in found.unmatched
    )  # fmt: skip
    detail = say(
        "collectives.matched.warn", left=units.show_count(left), n=units.show_count(kernels), reasons=reasons
    )  # fmt: skip
    # Kernels outside the steps are in no figure, so that they found no partner harms none.
    inside = sum(one.count for one in found.unmatched if one.reason != "outside")
    return Check(name, "warn" if inside else "pass", detail, (of.COMMUNICATION,) if inside else ())


def _aligned(found: Communication) -> Check:
    name = "ranks_aligned"
    if not found.offsets:
        return Check(name, "not_applicable", say("collectives.aligned.unknown"))
    wrong = [one for one in found.offsets if not one.is_possible]
    if wrong:
        one = wrong[0]
        detail = say(
            "collectives.aligned.impossible", rank=one.rank, reference=one.reference,
            gap=units.show_time(one.low_ns - one.high_ns),
        )  # fmt: skip
        return Check(name, "fail", detail, (of.COMMUNICATION,))
    worst = max(found.offsets, key=lambda one: abs(one.offset_ns))
    least = max(found.offsets, key=lambda one: one.uncertainty_ns)
    fields: dict[str, Any] = {
        "rank": worst.rank, "reference": worst.reference, "offset": units.show_time(abs(worst.offset_ns)),
        "way": "ahead of" if worst.offset_ns > 0 else "behind",
        "uncertainty": units.show_time(least.uncertainty_ns), "n": units.show_count(least.n),
        "drift": f"{worst.drift_ppm:.1f}",
    }  # fmt: skip
    vague = [one for one in found.stragglers if one.verdict in ("clocks", "disagree")]
    transfer = float(found.matched["transfer_ns"].median())
    if least.uncertainty_ns > transfer or vague:
        why = " ".join(say(f"collectives.aligned.{one.verdict}", phase=one.phase, rank=one.rank) for one in vague)
        detail = " ".join(filter(None, (say("collectives.aligned.warn", **fields), why)))
        return Check(name, "warn", detail, (of.COMMUNICATION,))
    return Check(name, "pass", say("collectives.aligned.pass", **fields))


def _with_source(check: Check, run: str) -> Check:
    return Check(check.check, check.status, check.detail, check.undermines, run)


def _sums(rows: pd.DataFrame) -> dict[str, Any]:
    once = rows[rows["seq"] >= 0].drop_duplicates("seq")
    waits = rows[rows["seq"] >= 0].groupby("rank")["wait_ns"].sum()
    return {
        "count": len(once),
        "transfer_ns": int(once["transfer_ns"].sum()),
        "wait_ns_by_rank": {str(rank): int(ns) for rank, ns in waits.items()},
        "bytes": int(once["bytes"].sum()) if once["bytes"].notna().all() and len(once) else None,
    }


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return None
    if hasattr(value, "item"):
        value = value.item()
    return int(value) if isinstance(value, float) and value == value // 1 else value
