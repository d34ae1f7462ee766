"""The slow tail of a point: which requests, how they differ from typical ones, and which cause has how much of it.

The split of `request_path` sums to each latency, so the mean of the slow less the mean of the typical splits by cause
without a rest. A cause is named only where it has at least half of that excess and the tail is worth a name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from perflab.analysis.requests.path import CAUSES, Paths, gap_parts
from perflab.analysis.requests.steps import StepJoin
from perflab.knowledge.thresholds import Thresholds, own_thresholds

Metric = Literal["ttft", "tpot", "itl", "e2el"]
METRICS: tuple[Metric, ...] = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class Tail:
    """The slowest of a point by one metric, against typical ones.

    Attributes
    ----------
    metric, percentile, limit_ns
        Slow is what reaches this percentile of the metric, `limit_ns`.
    values
        Requests (for ITL gaps between chunks) the percentile was taken over.
    slow, typical
        Requests at or above the limit, and those between the quartiles. For ITL those whose gaps these are, each once.
    parts
        A row a cause, in the order of `CAUSES`: `cause`, `slow_ns`, `typical_ns` (means), `excess_ns`, and `share` of
        the whole excess, which may be negative, and above 1 where others are negative.
    cause, cause_share
        The cause that has most of the excess; None where none has half, or the slow are hardly slower.
    without_ns
        The mean of the slow if they had had the typical amount of that cause; None without a cause.
    common
        What the slow met against the typical, medians: from `facts` of the paths; see `_common`.
    """

    metric: Metric
    percentile: float
    limit_ns: int
    values: int
    slow: tuple[int, ...]
    typical: tuple[int, ...]
    parts: pd.DataFrame
    cause: str | None
    cause_share: float | None
    without_ns: float | None
    common: dict[str, Any] = field(default_factory=dict)

    @property
    def slow_ns(self) -> float:
        """Mean of the slow."""
        return float(self.parts["slow_ns"].sum())

    @property
    def typical_ns(self) -> float:
        """Mean of the typical."""
        return float(self.parts["typical_ns"].sum())

    @property
    def ratio(self) -> float:
        """Slow over typical."""
        return self.slow_ns / self.typical_ns if self.typical_ns else float("nan")

    def to_json(self) -> dict[str, Any]:
        """The tail as the `slow_requests` record of the `latency` document has it."""
        by_cause = {
            str(row.cause): {
                "slow_ns": round(row.slow_ns), "typical_ns": round(row.typical_ns), "excess_ns": round(row.excess_ns),
            }
            for row in self.parts.itertuples()
        }  # fmt: skip
        return {
            "metric": self.metric,
            "percentile": self.percentile,
            "limit_ns": self.limit_ns,
            "n": self.values,
            "slow": list(self.slow),
            "typical": len(self.typical),
            "slow_ns": round(self.slow_ns),
            "typical_ns": round(self.typical_ns),
            "causes": by_cause,
            "cause": self.cause,
            "cause_share": self.cause_share,
            "without_ns": None if self.without_ns is None else round(self.without_ns),
            "common": self.common,
        }


@dataclass(frozen=True)
class PromptSteps:
    """How long steps with few and with many prompt tokens take: medians of the lower and the upper third by tokens."""

    few_tokens: int
    few_ns: int
    many_tokens: int
    many_ns: int

    @property
    def are_flat(self) -> bool:
        """Whether tokens hardly matter: then steps of fewer tokens are not shorter, only more.

        Judgement: three times the tokens or more, and less than half as long again. Where the GPU computes, the time
        of a step with prompts is nearly proportional to its tokens.
        """
        return self.many_tokens >= 3 * self.few_tokens and self.many_ns < 1.5 * self.few_ns


def prompt_steps(steps: pd.DataFrame) -> PromptSteps | None:
    """Of the steps of a `StepJoin` that completed prompts; None where there are fewer than six whose span is known."""
    known = steps[(steps["prompt_tokens"] > 0) & steps["start_ns"].notna()]
    if len(known) < 6:
        return None
    tokens = known["prompt_tokens"].to_numpy(np.int64)
    span = known["end_ns"].to_numpy(np.int64) - known["start_ns"].to_numpy(np.int64)
    low, high = np.percentile(tokens, (100 / 3, 200 / 3))
    few, many = tokens <= low, tokens >= high
    medians = (np.median(values[mask]) for mask in (few, many) for values in (tokens, span))
    return PromptSteps(*(int(value) for value in medians))


def tail(
    join: StepJoin, paths: Paths, requests: pd.DataFrame, chunks: pd.DataFrame | None, metric: Metric, *,
    percentile: float = 99.0, thresholds: Thresholds | None = None,
) -> Tail | None:  # fmt: skip
    """The slow tail by one metric.

    Parameters
    ----------
    join, paths
        From `step_join` and `split_paths`.
    requests, chunks
        Tables of the point.
    percentile
        Between 0 and 100.

    Returns
    -------
    Tail or None
        None where fewer than four values are known, or all slow ones would be typical too.
    """
    limits = own_thresholds() if thresholds is None else thresholds
    rows = _rows(join, paths, requests, chunks, metric)
    if len(rows) < 4:
        return None
    value = rows["total_ns"].to_numpy(np.float64)
    low, high, limit = np.percentile(value, (25, 75, percentile))
    slow = value >= limit
    typical = (value >= low) & (value <= high) & ~slow
    if not slow.any() or not typical.any():
        return None
    columns = list(CAUSES)
    means = np.stack([rows.loc[mask, columns].to_numpy(np.float64).mean(axis=0) for mask in (slow, typical)])
    excess = means[0] - means[1]
    whole = float(excess.sum())
    share = excess / whole if whole > 0 else np.full(len(columns), np.nan)
    parts = pd.DataFrame({
        "cause": columns, "slow_ns": means[0], "typical_ns": means[1], "excess_ns": excess, "share": share
    })  # fmt: skip
    ratio = limits.limit("slow_tail", "itl_ratio" if metric == "itl" else "ratio")
    worth = whole > 0 and means[0].sum() >= ratio * means[1].sum()
    main = int(np.argmax(excess))
    named = bool(worth and share[main] >= limits.limit("slow_tail", "cause"))
    of_slow, of_typical = (tuple(dict.fromkeys(rows.loc[mask, "request_id"].tolist())) for mask in (slow, typical))
    of_typical = tuple(one for one in of_typical if one not in set(of_slow))
    return Tail(
        metric=metric, percentile=percentile, limit_ns=int(limit), values=len(rows), slow=of_slow, typical=of_typical,
        parts=parts, cause=columns[main] if named else None, cause_share=float(share[main]) if named else None,
        without_ns=float(means[0].sum() - excess[main]) if named else None,
        common=_common(join, paths, requests, of_slow, of_typical),
    )  # fmt: skip


def _rows(
    join: StepJoin, paths: Paths, requests: pd.DataFrame, chunks: pd.DataFrame | None, metric: Metric
) -> pd.DataFrame:
    """Split values of the metric: `request_id`, `CAUSES`, `total_ns`."""
    if metric == "itl":
        return pd.DataFrame() if chunks is None or chunks.empty else gap_parts(join, chunks, paths.facts)
    if metric != "tpot":
        return paths.ttft if metric == "ttft" else paths.e2el
    tokens = requests.set_index("request_id")["output_tokens"].reindex(paths.decoding["request_id"])
    gaps = tokens.to_numpy(np.int64) - 1
    rows = paths.decoding[gaps > 0].reset_index(drop=True)
    columns = [*CAUSES, "total_ns"]
    return rows.assign(**{name: rows[name] / gaps[gaps > 0] for name in columns})


def _common(
    join: StepJoin, paths: Paths, requests: pd.DataFrame, slow: tuple[int, ...], typical: tuple[int, ...]
) -> dict[str, Any]:
    """What the slow have in common, each beside the typical.

    `slow` and `typical` hold medians of: `prompt_tokens`, `output_tokens`, `batch` (mean of its decode steps), `mates`
    (others with the same last prefill step), `prefill_tokens` (of that step), `kv_usage` (share, largest met), `ahead`
    (requests sent before it that had no token when it was sent), `place` (in the order of sending, 0 to 1). `step`: the
    first-token step most of the slow share, with how many of them, its prompt tokens and its span.
    """
    known = requests.set_index("request_id").loc[paths.facts["request_id"]]
    sent = known["arrival_ns"].to_numpy(np.int64)
    told = known["first_token_ns"].to_numpy(np.int64)
    ahead = np.searchsorted(np.sort(sent), sent) - np.searchsorted(np.sort(told), sent)
    table = paths.facts[["request_id", "batch", "mates", "prefill_tokens", "kv_usage"]].assign(
        prompt_tokens=known["prompt_tokens"].to_numpy(np.float64, na_value=np.nan),
        output_tokens=known["output_tokens"].to_numpy(np.float64, na_value=np.nan),
        ahead=ahead,
        place=np.argsort(np.argsort(sent, kind="stable"), kind="stable") / max(len(sent) - 1, 1),
    )
    table = table.set_index("request_id")
    found: dict[str, Any] = {}
    for name, ids in (("slow", slow), ("typical", typical)):
        medians = table.loc[list(ids)].median() if ids else table.iloc[:0].median()
        found[name] = {str(k): None if pd.isna(v) else round(float(v), 4) for k, v in medians.items()}
    firsts = paths.facts.set_index("request_id").loc[list(slow), "first_step"]
    step, count = int(firsts.mode().iloc[0]), int((firsts == firsts.mode().iloc[0]).sum())
    row = join.steps.iloc[step]
    span = None if pd.isna(row["start_ns"]) else int(row["end_ns"] - row["start_ns"])
    found["step"] = {"slow": count, "prompt_tokens": int(row["prompt_tokens"]), "span_ns": span}
    return found
