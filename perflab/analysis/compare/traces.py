"""What changed between two traces: time per step by phase and category, and the kernels behind it.

Steps compare where they did the same work. So each phase is seen twice: over all its steps, which agrees with the
breakdowns of both traces, and over steps of like batches (the same requests and tokens in prefill and decode), each
batch weighted alike on both sides. Ranks are averaged. Times of a view are whole nanoseconds that add up to its step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from perflab.analysis.compare.kernel_steps import kernel_key, kernel_steps, worker_thread
from perflab.analysis.compare.step_statistics import median_interval, whole_step
from perflab.analysis.idle import CAUSES
from perflab.analysis.intervals import Ints
from perflab.knowledge.kernel_families import kernel_family
from perflab.schema import CATEGORIES, PHASES

BATCH: tuple[str, ...] = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
ROWS: tuple[str, ...] = (*CATEGORIES, "idle")
SIDES: tuple[str, str] = ("baseline", "candidate")

_KERNEL_COLUMNS = (
    "category", "key", "family", "baseline_name", "candidate_name", "baseline_ns", "candidate_ns", "change_ns",
    "baseline_calls", "candidate_calls", "change",
)  # fmt: skip

Alike = Literal["same", "partly", "none"]


@dataclass(frozen=True)
class RankTrace:
    """One rank of one side.

    Attributes
    ----------
    kind
        `gpu` or `cpu`, as the breakdown has it.
    table, kernels, steps, gaps, ranges
        Tables `breakdown`, `kernels` with categories, `steps`, from `idle_gaps`, and `ranges`.
    waits
        Time in collectives spent waiting for other ranks: `step`, `wait_ns`; None for a single rank.
    """

    rank: int
    kind: Literal["gpu", "cpu"]
    table: pd.DataFrame
    kernels: pd.DataFrame
    steps: pd.DataFrame
    gaps: pd.DataFrame
    ranges: pd.DataFrame
    waits: pd.DataFrame | None = None


@dataclass(frozen=True)
class StepTime:
    """How long a step of a phase takes on one side.

    Attributes
    ----------
    steps
        Of one rank (the mean over ranks).
    ns
        Mean over steps and ranks, in a view of like batches weighted by them.
    median_ns, low_ns, high_ns
        Median over steps and the 95 % interval of it, from order statistics (no shape assumed). None below six
        steps. It tells how steps of this one pass vary, and nothing about another pass.
    rank_low_ns, rank_high_ns
        The shortest and longest mean of a rank.
    late_ns, wait_ns
        Of a step, idle because the host launched late, and waiting of ranks for one another: what a profiler, which
        slows the host, makes longer.
    tokens
        Computed in a step, prefill and decode; None where the annotation does not tell.
    kv_tokens
        Read from the KV cache in a step; None likewise.
    """

    steps: float
    ns: int
    median_ns: float | None
    low_ns: float | None
    high_ns: float | None
    rank_low_ns: int
    rank_high_ns: int
    tokens: float | None
    kv_tokens: float | None
    late_ns: int = 0
    wait_ns: int = 0

    @property
    def gpu_ns(self) -> int:
        """The step without late launches and waiting."""
        return self.ns - self.late_ns - self.wait_ns


@dataclass(frozen=True)
class View:
    """A phase over all steps, or over those of like batches.

    Attributes
    ----------
    categories
        A row for each of `ROWS` that has time: `category`, `baseline_ns`, `candidate_ns`, `change_ns`,
        `share_of_change` (NA where the step hardly changed), and the extremes over ranks: `baseline_low_ns`,
        `baseline_high_ns`, `candidate_low_ns`, `candidate_high_ns`.
    causes
        Idle time of a step by cause: `cause`, `baseline_ns`, `candidate_ns`, `change_ns`.
    kernels
        A row a kernel: `category`, `key`, `family`, `baseline_name`, `candidate_name`, `baseline_ns`,
        `candidate_ns`, `change_ns` (exclusive time a step), `baseline_calls`, `candidate_calls` (a step),
        `change`: appeared, vanished, slower, faster, called more often, called less often, or same. Largest first.
    """

    baseline: StepTime
    candidate: StepTime
    categories: pd.DataFrame
    causes: pd.DataFrame
    kernels: pd.DataFrame

    @property
    def change_ns(self) -> int:
        """Candidate's step less baseline's; the sum of the categories' changes."""
        return self.candidate.ns - self.baseline.ns

    @property
    def change(self) -> float:
        """The same as a share of the baseline's step."""
        return self.change_ns / self.baseline.ns if self.baseline.ns else float("nan")

    @property
    def gpu_change(self) -> float:
        """The change without late launches and waiting, as a share of the baseline's step without them."""
        before = self.baseline.gpu_ns
        return (self.candidate.gpu_ns - before) / before if before else float("nan")


@dataclass(frozen=True)
class PhaseComparison:
    """One phase on both sides.

    Attributes
    ----------
    batches
        A row a batch: `BATCH`, then `baseline_steps` and `candidate_steps` of one rank.
    alike
        `same`: each batch has the same share of the steps on both sides. `partly`: some batches occur on both.
        `none`: none does.
    every
        Over all steps.
    like
        Over steps of batches that occur on both sides; None where none does.
    """

    phase: str
    batches: pd.DataFrame
    alike: Alike
    every: View
    like: View | None

    @property
    def shown(self) -> View:
        """The view that compares like with like, where there is one."""
        return self.every if self.like is None else self.like

    def covered(self, side: str) -> float:
        """The share of a side's steps whose batch occurs on the other."""
        both = (self.batches["baseline_steps"] > 0) & (self.batches["candidate_steps"] > 0)
        return float(self.batches.loc[both, f"{side}_steps"].sum() / self.batches[f"{side}_steps"].sum())


def compare_phases(baseline: Sequence[RankTrace], candidate: Sequence[RankTrace]) -> list[PhaseComparison]:
    """Compare each phase that has steps on both sides.

    Parameters
    ----------
    baseline, candidate
        All ranks of one profiling pass each, of the same kind.
    """
    sides = [_Side.of(baseline), _Side.of(candidate)]
    there = [phase for phase in PHASES if all((side.steps["phase"] == phase).any() for side in sides)]
    return [_phase(phase, *sides) for phase in there]


@dataclass(frozen=True)
class _Side:
    """All ranks of a side in long tables, each with `rank` and `step`."""

    steps: pd.DataFrame
    times: pd.DataFrame
    gaps: pd.DataFrame
    kernels: pd.DataFrame
    waits: pd.DataFrame
    ranks: int

    @classmethod
    def of(cls, ranks: Sequence[RankTrace]) -> _Side:
        kernels = [
            kernel_steps(one.kernels, one.steps, _worker(one)).assign(rank=one.rank) for one in ranks if len(one.steps)
        ]
        steps = pd.concat([one.steps for one in ranks], ignore_index=True)
        return cls(
            steps.assign(phase=steps["phase"].astype("object")),
            pd.concat([one.table for one in ranks], ignore_index=True),
            pd.concat([one.gaps for one in ranks], ignore_index=True),
            pd.concat(kernels, ignore_index=True)
            if kernels
            else kernel_steps(ranks[0].kernels, ranks[0].steps.iloc[:0]),
            pd.concat([_waits(one) for one in ranks], ignore_index=True),
            max(steps["rank"].nunique(), 1),
        )


def _waits(rank: RankTrace) -> pd.DataFrame:
    found = rank.waits if rank.waits is not None else pd.DataFrame({"step": [], "wait_ns": []}, dtype="int64")
    return found[["step", "wait_ns"]].assign(rank=rank.rank, kind="wait")


def _worker(rank: RankTrace) -> int | None:
    return None if rank.kind == "gpu" else worker_thread(rank.ranges)


def _phase(phase: str, baseline: _Side, candidate: _Side) -> PhaseComparison:
    steps = [side.steps[side.steps["phase"] == phase] for side in (baseline, candidate)]
    batches = _batches(steps, (baseline.ranks, candidate.ranks))
    shares = [batches[f"{side}_steps"] / batches[f"{side}_steps"].sum() for side in SIDES]
    both = (batches["baseline_steps"] > 0) & (batches["candidate_steps"] > 0)
    alike: Alike = "same" if np.allclose(shares[0], shares[1]) else "partly" if both.any() else "none"
    every = _view(baseline, candidate, [_even(mine) for mine in steps])
    like = every if alike == "same" else None
    if alike == "partly":
        like = _view(baseline, candidate, [_alike(mine, batches[both]) for mine in steps])
    return PhaseComparison(phase, batches, alike, every, like)


def _batches(steps: Sequence[pd.DataFrame], ranks: tuple[int, int]) -> pd.DataFrame:
    counts = [
        mine.fillna(dict.fromkeys(BATCH, -1)).groupby(list(BATCH)).size().rename(f"{side}_steps") / n
        for mine, side, n in zip(steps, SIDES, ranks, strict=True)
    ]
    return pd.concat(counts, axis=1).fillna(0.0).sort_index(ascending=False).reset_index()


def _even(steps: pd.DataFrame) -> pd.DataFrame:
    return steps.assign(weight=1.0 / len(steps))


def _alike(steps: pd.DataFrame, shared: pd.DataFrame) -> pd.DataFrame:
    """Steps of shared batches; a batch weighs as its fewer steps of the two sides."""
    weights = shared.assign(part=np.minimum(shared["baseline_steps"], shared["candidate_steps"]))
    weights["part"] /= weights["part"].sum()
    keyed = steps.fillna(dict.fromkeys(BATCH, -1)).astype(dict.fromkeys(BATCH, "int64"))
    joined = keyed.merge(weights[[*BATCH, "part"]].astype(dict.fromkeys(BATCH, "int64")), on=list(BATCH))
    return joined.assign(weight=joined["part"] / joined.groupby(list(BATCH))["part"].transform("size"))


def _view(baseline: _Side, candidate: _Side, steps: Sequence[pd.DataFrame]) -> View:
    sides = (baseline, candidate)
    by_rank = [_weighted(side.times, mine, "category") for side, mine in zip(sides, steps, strict=True)]
    means = [_over_ranks(table).reindex(list(ROWS), fill_value=0.0) for table in by_rank]
    exact = [whole_step(mean.to_numpy()[:-1], float(mean.iloc[-1])) for mean in means]
    causes = [
        _over_ranks(_weighted(side.gaps, mine, "cause", "dur_ns")) for side, mine in zip(sides, steps, strict=True)
    ]
    times = [
        _step_time(mine, rows, int(ns.sum()), cause, _over_ranks(_weighted(side.waits, mine, "kind", "wait_ns")))
        for side, mine, rows, ns, cause in zip(sides, steps, by_rank, exact, causes, strict=True)
    ]
    categories = _categories(exact, by_rank, times)
    return View(times[0], times[1], categories, _causes(causes), _kernels(sides, steps, times[0].ns))


def _weighted(table: pd.DataFrame, steps: pd.DataFrame, by: str, column: str = "exclusive_ns") -> pd.DataFrame:
    """Weighted sums over steps, a row a rank; each rank's weights count as if they summed to one."""
    if table.empty:
        return pd.DataFrame(index=pd.Index([], name="rank"))
    weights = steps[["rank", "step", "weight"]].assign(
        weight=steps["weight"] / steps.groupby("rank")["weight"].transform("sum")
    )
    joined = table.assign(**{by: table[by].astype("object")}).merge(weights, on=["rank", "step"])
    sums = (joined[column] * joined["weight"]).groupby([joined["rank"], joined[by]]).sum()
    found: pd.DataFrame = sums.unstack(fill_value=0.0)
    return found.reindex(sorted(set(steps["rank"])), fill_value=0.0)


def _over_ranks(by_rank: pd.DataFrame) -> pd.Series:
    return by_rank.mean(axis=0) if len(by_rank) else pd.Series(dtype="float64")


def _step_time(steps: pd.DataFrame, by_rank: pd.DataFrame, ns: int, causes: pd.Series, waits: pd.Series) -> StepTime:
    # Ranks step together: one value a step, the mean over them.
    durations = steps.groupby("step")["dur_ns"].mean().tolist()
    interval = median_interval(durations)
    ranks = by_rank.sum(axis=1)
    weight = steps["weight"] / steps["weight"].sum()
    known = not steps[["prefill_tokens", "decode_tokens"]].isna().any(axis=None)
    tokens = (steps["prefill_tokens"] + steps["decode_tokens"]) * weight
    return StepTime(
        steps=len(steps) / steps["rank"].nunique(),
        ns=ns,
        median_ns=float(np.median(durations)) if interval else None,
        low_ns=interval[0] if interval else None,
        high_ns=interval[1] if interval else None,
        rank_low_ns=round(float(ranks.min())),
        rank_high_ns=round(float(ranks.max())),
        tokens=float(tokens.sum()) if known else None,
        kv_tokens=None if steps["kv_tokens"].isna().any() else float((steps["kv_tokens"] * weight).sum()),
        late_ns=round(float(causes.get("host_bound", 0.0))),
        # A collective beside compute waits at no one's cost; only what is exposed can be waiting.
        wait_ns=round(min(float(waits.get("wait", 0.0)), float(_over_ranks(by_rank).get("communication", 0.0)))),
    )


def _categories(exact: Sequence[Ints], by_rank: Sequence[pd.DataFrame], times: Sequence[StepTime]) -> pd.DataFrame:
    table = pd.DataFrame({"category": list(ROWS), "baseline_ns": exact[0], "candidate_ns": exact[1]})
    table["change_ns"] = table["candidate_ns"] - table["baseline_ns"]
    total = times[1].ns - times[0].ns
    # Shares of hardly any change would be large and mean nothing.
    tells = abs(total) >= 0.01 * max(times[0].ns, 1)
    table["share_of_change"] = table["change_ns"] / total if tells else np.nan
    for side, rows in zip(SIDES, by_rank, strict=True):
        extremes = rows.reindex(columns=list(ROWS), fill_value=0.0)
        table[f"{side}_low_ns"] = extremes.min(axis=0).round().astype("int64").to_numpy()
        table[f"{side}_high_ns"] = extremes.max(axis=0).round().astype("int64").to_numpy()
    return table[(table["baseline_ns"] > 0) | (table["candidate_ns"] > 0)].reset_index(drop=True)


def _causes(sides: Sequence[pd.Series]) -> pd.DataFrame:
    before, after = (side.reindex(list(CAUSES), fill_value=0.0).round().astype("int64").to_numpy() for side in sides)
    table = pd.DataFrame({"cause": list(CAUSES), "baseline_ns": before, "candidate_ns": after})
    table["change_ns"] = table["candidate_ns"] - table["baseline_ns"]
    return table[(table["baseline_ns"] > 0) | (table["candidate_ns"] > 0)].reset_index(drop=True)


def _kernels(sides: Sequence[_Side], steps: Sequence[pd.DataFrame], step_ns: int) -> pd.DataFrame:
    found = [_names(side, mine).add_prefix(f"{of}_") for side, mine, of in zip(sides, steps, SIDES, strict=True)]
    table = found[0].join(found[1], how="outer")
    numbers = [f"{side}_{column}" for side in SIDES for column in ("ns", "calls")]
    table[numbers] = table[numbers].fillna(0.0)
    # Weights add up to one but for the last bits of a float.
    calls = [f"{side}_calls" for side in SIDES]
    table[calls] = table[calls].round(9)
    table = table.reset_index()
    for side in SIDES:
        table[f"{side}_name"] = table[f"{side}_name"].astype("object").where(table[f"{side}_name"].notna(), None)
    table["change_ns"] = table["candidate_ns"] - table["baseline_ns"]
    names = table["candidate_name"].where(table["candidate_name"].notna(), table["baseline_name"])
    table["family"] = [kernel_family(str(name)) for name in names]
    table["change"] = [_changed(row, step_ns) for row in table.to_dict("records")]
    order = table["change_ns"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order, list(_KERNEL_COLUMNS)].reset_index(drop=True)


def _names(side: _Side, steps: pd.DataFrame) -> pd.DataFrame:
    """Exclusive time and calls a step, by category and key, with the name that takes most of it."""
    joined = side.kernels.merge(steps[["rank", "step", "weight"]], on=["rank", "step"])
    joined["weight"] /= steps["weight"].sum()
    keys = {name: kernel_key(name) for name in joined["name"].unique()}
    joined = joined.assign(
        key=joined["name"].map(keys),
        ns=joined["exclusive_ns"] * joined["weight"],
        calls=joined["calls"] * joined["weight"],
    )
    by_name = joined.groupby(["category", "key", "name"])[["ns", "calls"]].sum().reset_index()
    by_name = by_name.sort_values("ns", ascending=False, kind="stable")
    table: pd.DataFrame = by_name.groupby(["category", "key"]).agg(
        name=("name", "first"), ns=("ns", "sum"), calls=("calls", "sum")
    )
    return table


def _changed(row: dict[str, float], step_ns: int) -> str:
    if not row["baseline_calls"]:
        return "appeared"
    if not row["candidate_calls"]:
        return "vanished"
    if abs(row["candidate_calls"] - row["baseline_calls"]) > 0.02 * row["baseline_calls"]:
        return "called more often" if row["candidate_calls"] > row["baseline_calls"] else "called less often"
    # A kernel's time varies by some percent from pass to pass.
    if abs(row["change_ns"]) <= max(0.05 * row["baseline_ns"], 0.0005 * step_ns):
        return "same"
    return "slower" if row["change_ns"] > 0 else "faster"
