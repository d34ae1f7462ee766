"""What two tools say of the same trace, stage by stage, and which definition explains how much of a difference.

Between HTA and perflab stand two stages that only switch one definition each, counted on the raw JSON (`peer_raw.py`).
A stage that changes nothing by definition but does in fact is unexplained: a bug of one of the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

STAGES = (
    "HTA", "HTA, times not rounded", "JSON, HTA's events and names", "JSON, all events, HTA's names",
    "JSON, all events, perflab's names", "perflab",
)  # fmt: skip
CAUSES = ("rounding", "unexplained in HTA", "events left out", "names", "unexplained in perflab")
"""What differs between a stage and the next."""
FIGURES = ("idle", "compute", "non_compute", "overlap", "top")
TOP = 10


@dataclass(frozen=True)
class Shares:
    """One rank's time. `overlap` is of communication with compute, in % of communication; `top` as `top_names` say."""

    window_ns: float
    idle_ns: float
    compute_ns: float
    overlap_percent: float | None
    top_ns: float

    def figure(self, name: str) -> float | None:
        """A figure as a reader sees it: shares in % of the window, `overlap` in %, `top` in ms."""
        if name == "overlap":
            return self.overlap_percent
        if name == "top":
            return self.top_ns / 1e6
        part = {"idle": self.idle_ns, "compute": self.compute_ns}.get(name)
        return 100 * (self.window_ns - self.idle_ns - self.compute_ns if part is None else part) / self.window_ns


def of_hta(said: Mapping[str, Any], top_names: Iterable[str]) -> dict[int, Shares]:
    """Ranks out of HTA's tables, which are in microseconds."""
    overlaps = {row["rank"]: row["comp_comm_overlap_pctg"] for row in said["overlap"]}
    wanted, found = set(top_names), {}
    for row in said["temporal"]:
        rank = row["rank"]
        top = sum(one["sum (us)"] for one in said["kernels"] if one["rank"] == rank and one["name"] in wanted)
        parts = [1000 * row[f"{part}_time(us)"] for part in ("kernel", "idle", "compute")]
        found[rank] = Shares(parts[0], parts[1], parts[2], percent(overlaps[rank]), 1000 * top)
    return found


def percent(told: float | None) -> float | None:
    """HTA's percentage; a rank without communication has NaN."""
    return None if told is None or told != told else told


def of_counts(said: Mapping[str, Any], top_names: Iterable[str]) -> Shares:
    """A rank out of sums in nanoseconds: of the raw JSON, and of perflab."""
    talk = said["communication_ns"]
    overlap = 100 * said["overlap_ns"] / talk if talk else None
    top = sum(said["kernels"].get(name, 0) for name in set(top_names))
    return Shares(said["window_ns"], said["idle_ns"], said["compute_ns"], overlap, top)


def longest(kernels: Mapping[str, int], count: int = TOP) -> list[str]:
    return sorted(kernels, key=lambda name: -kernels[name])[:count]


@dataclass(frozen=True)
class Difference:
    """One figure by HTA and by perflab, and what each definition adds on the way from one to the other."""

    rank: int
    figure: str
    hta: float | None
    perflab: float | None
    by_cause: Mapping[str, float]

    @property
    def unexplained(self) -> float:
        return max(abs(self.by_cause[cause]) for cause in CAUSES if cause.startswith("unexplained"))


def differences(rank: int, stages: Sequence[Shares]) -> list[Difference]:
    """A row a figure; `stages` in the order of `STAGES`."""
    rows = []
    for name in FIGURES:
        told = [stage.figure(name) for stage in stages]
        steps = [(b or 0.0) - (a or 0.0) for a, b in pairwise(told)]
        rows.append(Difference(rank, name, told[0], told[-1], dict(zip(CAUSES, steps, strict=True))))
    return rows


def table(trace: str, rows: Iterable[Difference]) -> list[str]:
    """Lines of a Markdown table: shares in %, `top` in ms; causes in points or ms."""
    lines = []
    for row in rows:
        told = ["no communication" if one is None else f"{one:.2f}" for one in (row.hta, row.perflab)]
        why = [f"{row.by_cause[cause]:+.2f}" for cause in ("rounding", "events left out", "names")]
        what = f"{row.figure}, {'ms' if row.figure == 'top' else '%'}"
        lines.append("| " + " | ".join([trace, str(row.rank), what, *told, *why, f"{row.unexplained:.4f}"]) + " |")
    return lines


HEADER = [
    "| trace | rank | figure | HTA | perflab | rounding | events left out | names | unexplained |",
    "|---|---|---|---|---|---|---|---|---|",
]
