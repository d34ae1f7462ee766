"""What the server, the machine and the client did during one measured point, and what that says about its limit.

Each reason rests on figures that the point itself has; what was not recorded gives none. Several may hold at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis.finding import number
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say

Cause = Literal["client", "kv_cache", "batch_limit", "token_budget", "compute", "weights", "queue"]


@dataclass(frozen=True)
class StepFigures:
    """Steps of the engine while a point was measured, from its step records; times count from one record to the next.

    Attributes
    ----------
    steps, step_ms
        Steps with requests in them whose begin is known, and their mean time. `left_out` more followed an engine that
        had nothing to do: when those began no record tells, so they are in none of these figures.
    tokens_per_step
        Tokens generated and prompt tokens computed, mean of a step.
    prompt_time_share
        Share of the time in steps that completed prompts.
    ridge_time_share
        Share of the time in steps of at least `ridge` tokens; None without a ridge.
    waiting_time_share, budget_time_share
        Share of the time with requests waiting; and in steps that computed as many prompt tokens as a step may.
    running, waiting
        Means over time; `most_running`, `most_waiting`, `most_kv_usage` the largest.
    """

    steps: int
    step_ms: float
    tokens_per_step: float
    prompt_time_share: float
    ridge_time_share: float | None
    waiting_time_share: float
    budget_time_share: float | None
    running: float
    waiting: float
    most_running: int
    most_waiting: int
    most_kv_usage: float | None
    preemptions: int
    left_out: int = 0


@dataclass(frozen=True)
class LoadEvidence:
    """Everything known of a point's limit; None where it was not recorded.

    Attributes
    ----------
    steps
        From step records.
    running, waiting, kv_usage
        Gauges scraped while requests were under way: means, and the largest `most_waiting` and `kv_usage`.
    preemptions
        Growth of the counter.
    client_cpu, engine_cpu
        Mean percent of a core while requests were under way: the client's and the engine's busiest process.
    queue_ms, prefill_ms
        Means of the server's histograms.
    ridge_tokens
        Tokens of a step from which the model's layers are bound by compute on this GPU.
    compute_share
        Least work of the layers for the tokens that were served, as a share of the GPU's peak.
    """

    steps: StepFigures | None = None
    running: float | None = None
    waiting: float | None = None
    most_waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    client_cpu: float | None = None
    engine_cpu: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    ridge_tokens: float | None = None
    compute_share: float | None = None

    @property
    def in_flight(self) -> float | None:
        """Mean of requests running and waiting by the server's own account, the most exact there is."""
        if self.steps is not None:
            return self.steps.running + self.steps.waiting
        return None if self.running is None else self.running + (self.waiting or 0.0)

    def in_flight_over_all(self, busy: float | None) -> float | None:
        """The mean over all of a point of which requests were under way in a share `busy` (`busy_share`) of the time.

        Step records tell of that share alone; scrapes come at any time.
        """
        if self.in_flight is None or self.steps is None:
            return self.in_flight
        return self.in_flight * (1.0 if busy is None else busy)

    @property
    def most_kv_usage(self) -> float | None:
        """The largest share of the KV cache that was seen in use."""
        of_steps = None if self.steps is None else self.steps.most_kv_usage
        known = [value for value in (self.kv_usage, of_steps) if value is not None]
        return max(known, default=None)

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `evidence` of a point; None where nothing was recorded."""
        steps = None if self.steps is None else {name: getattr(self.steps, name) for name in _STEP_FIELDS}
        own = {name: getattr(self, name) for name in _OWN_FIELDS}
        return {"steps": steps, **own}


_STEP_FIELDS = tuple(StepFigures.__dataclass_fields__)
_OWN_FIELDS = tuple(name for name in LoadEvidence.__dataclass_fields__ if name != "steps")


@dataclass(frozen=True)
class Reason:
    """One thing that limits a load, and the figures that show it, a sentence each."""

    cause: Cause
    evidence: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {"cause": self.cause, "evidence": list(self.evidence)}


def step_figures(
    iterations: pd.DataFrame, *, ridge: float | None = None, budget: float | None = None
) -> StepFigures | None:
    """Figures of the steps of one point.

    Parameters
    ----------
    iterations
        Table `iterations`, only records of the point. A record stands at the end of its step, so its step began at the
        record before, unless nothing was running or waiting then. Steps of several engines are taken one engine at a
        time.
    ridge
        Tokens of a step from which it is bound by compute.
    budget
        `max_num_batched_tokens`.
    """
    parts = [_of_engine(part) for _, part in iterations.groupby(["engine", "front_end"])]
    known = [part[part["known"]] for part in parts]
    steps = pd.concat(known, ignore_index=True) if known else iterations
    if steps.empty or float(steps["took"].sum()) <= 0:
        return None
    took = steps["took"].to_numpy(np.float64)
    tokens, prompts = steps["tokens"].to_numpy(np.float64), steps["prompts"].to_numpy(np.float64)
    waiting = steps["held_waiting"].to_numpy(np.float64)

    def share(those: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        return float(took[those].sum() / took.sum())

    # Engines work side by side: what they hold adds up.
    engines = len(parts)
    kv = steps["kv_usage"].max()
    return StepFigures(
        steps=len(steps),
        step_ms=float(took.mean()) / units.NS_PER_MS,
        tokens_per_step=float(tokens.mean()),
        prompt_time_share=share(prompts > 0),
        ridge_time_share=None if ridge is None else share(tokens >= ridge),
        waiting_time_share=share(waiting > 0),
        # A prompt that does not fit leaves room for less than itself.
        budget_time_share=None if not budget else share(prompts >= 0.9 * budget),
        running=engines * float(np.average(steps["held_running"].to_numpy(np.float64), weights=took)),
        waiting=engines * float(np.average(waiting, weights=took)),
        most_running=int(steps["running"].max()),
        most_waiting=int(steps["waiting"].max()),
        most_kv_usage=None if pd.isna(kv) else float(kv),
        preemptions=int(steps["preemptions"].sum()),
        left_out=sum(int((part["tokens"] > 0).sum()) for part in parts) - len(steps),
    )


def _of_engine(records: pd.DataFrame) -> pd.DataFrame:
    ordered = records.sort_values("monotonic_ns", kind="stable")
    running, waiting = (ordered[name].fillna(0).astype(float) for name in ("running", "waiting"))
    prompts = ordered["computed_tokens"].fillna(0).astype(float)
    made = ordered.assign(
        took=ordered["monotonic_ns"].diff().fillna(0).astype(float),
        prompts=prompts,
        tokens=prompts + ordered["generated_tokens"].astype(float),
        held_running=running,
        held_waiting=waiting,
    )
    before = (running + waiting).shift(fill_value=0.0)
    return made.assign(known=(before > 0) & (made["took"] > 0) & (made["tokens"] > 0))


def gauges_while_busy(samples: pd.DataFrame, start_ns: int, end_ns: int) -> dict[str, tuple[float, float]]:
    """Mean and largest value of each metric scraped in a stretch of time, summed over labels per scrape."""
    inside = samples[samples["t_ns"].between(start_ns, end_ns)].dropna(subset="value")
    by_scrape = inside.groupby(["metric", "t_ns"])["value"].sum()
    return {str(metric): (float(of.mean()), float(of.max())) for metric, of in by_scrape.groupby(level=0)}


def busiest(samples: pd.DataFrame, metric: str, start_ns: int, end_ns: int) -> float | None:
    """Mean over a stretch of time of the busiest series of a metric; None where it was not sampled in it."""
    inside = samples[(samples["metric"] == metric) & samples["t_ns"].between(start_ns, end_ns)].dropna(subset="value")
    return float(inside.groupby("labels")["value"].mean().max()) if len(inside) else None


def reasons(evidence: LoadEvidence, settings: Mapping[str, Any], thresholds: Thresholds | None = None) -> list[Reason]:
    """What limits a load, as far as its evidence shows; the one that leaves least doubt first."""
    limits = own_thresholds() if thresholds is None else thresholds
    found = [
        _client(evidence, limits),
        _kv_cache(evidence, limits),
        _batch_limit(evidence, settings),
        _compute(evidence, limits),
        _token_budget(evidence, settings, limits),
        _weights(evidence, limits),
    ]
    kept = [one for one in found if one is not None]
    if not kept and (queue := _queue(evidence, limits)) is not None:
        kept = [queue]
    return kept


def _client(evidence: LoadEvidence, limits: Thresholds) -> Reason | None:
    cpu = evidence.client_cpu
    if cpu is None or cpu < 100 * limits.limit("load", "client_cpu"):
        return None
    return Reason("client", (say("load.reason.client", cpu=f"{cpu:.0f}"),))


def _kv_cache(evidence: LoadEvidence, limits: Thresholds) -> Reason | None:
    usage = evidence.most_kv_usage
    lost = max(evidence.preemptions or 0, evidence.steps.preemptions if evidence.steps else 0)
    full = usage is not None and usage >= limits.limit("load", "kv_full")
    if not full and not lost:
        return None
    told = []
    if usage is not None:
        told.append(say("load.reason.kv_usage", share=units.show_share(usage)))
    if lost:
        told.append(say("load.reason.preempted", count=units.show_count(lost)))
    return Reason("kv_cache", tuple(told))


def _batch_limit(evidence: LoadEvidence, settings: Mapping[str, Any]) -> Reason | None:
    most, steps = number(settings.get("max_num_seqs")), evidence.steps
    if most is None or steps is None or not steps.most_waiting or steps.most_running < most:
        return None
    return Reason(
        "batch_limit",
        (say("load.reason.batch_limit", most=int(most), share=units.show_share(steps.waiting_time_share)),),
    )


def _token_budget(evidence: LoadEvidence, settings: Mapping[str, Any], limits: Thresholds) -> Reason | None:
    budget, steps = number(settings.get("max_num_batched_tokens")), evidence.steps
    if budget is None or steps is None or steps.budget_time_share is None:
        return None
    if min(steps.budget_time_share, steps.waiting_time_share) < limits.limit("load", "budget"):
        return None
    told = [
        say(
            "load.reason.token_budget",
            budget=units.show_count(budget),
            share=units.show_share(steps.budget_time_share),
            waiting=units.show_share(steps.waiting_time_share),
            most=units.show_count(steps.most_waiting),
        )
    ]
    if evidence.queue_ms is not None:
        told.append(say("load.reason.queue_time", queue=units.show_time(evidence.queue_ms * units.NS_PER_MS)))
    return Reason("token_budget", tuple(told))


def _compute(evidence: LoadEvidence, limits: Thresholds) -> Reason | None:
    steps, share = evidence.steps, evidence.compute_share
    told: list[str] = []
    above = steps.ridge_time_share if steps is not None else None
    if above is not None and evidence.ridge_tokens is not None and above >= limits.limit("load", "ridge_time"):
        ridge = units.show_count(evidence.ridge_tokens)
        told.append(say("load.reason.ridge", share=units.show_share(above), ridge=ridge))
    if share is not None and (told or share >= limits.limit("load", "compute")):
        told.append(say("load.reason.compute", share=units.show_share(share)))
    return Reason("compute", tuple(told)) if told else None


def _weights(evidence: LoadEvidence, limits: Thresholds) -> Reason | None:
    """Steps below the ridge: each reads all weights whatever its batch, so that more requests cost little."""
    steps, ridge = evidence.steps, evidence.ridge_tokens
    if steps is None or ridge is None or steps.ridge_time_share is None:
        return None
    if steps.ridge_time_share >= limits.limit("load", "ridge_time") or steps.waiting_time_share >= 0.05:
        return None
    return Reason(
        "weights",
        (
            say(
                "load.reason.weights",
                share=units.show_share(1 - steps.ridge_time_share),
                ridge=units.show_count(ridge),
                running=f"{steps.running:.0f}",
            ),
        ),
    )


def _queue(evidence: LoadEvidence, limits: Thresholds) -> Reason | None:
    mean = evidence.steps.waiting if evidence.steps else evidence.waiting
    most = evidence.steps.most_waiting if evidence.steps else evidence.most_waiting
    if mean is None or most is None or mean < limits.limit("load", "waiting"):
        return None
    return Reason("queue", (say("load.reason.queue", mean=f"{mean:.1f}", most=units.show_count(most)),))


def causes(found: Sequence[Reason]) -> tuple[Cause, ...]:
    """Their names, in order."""
    return tuple(one.cause for one in found)
