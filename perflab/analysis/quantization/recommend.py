"""Which variant to take: for people who wait for each token, and for work where only the amount counts.

The interactive profile is judged by the time per output token at a small load, the batch profile by output tokens a
second at the largest. Objectives hold back variants that break them, accuracy those that lose more than a margin.
What is not known holds nothing back, and is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perflab.analysis.quantization.estimate import Estimate, contrast
from perflab.analysis.quantization.tradeoffs import BASELINE, Accuracy, Comparison, Kv, Variant, accuracy_of
from perflab.knowledge.thresholds import Thresholds

Profile = Literal["interactive", "batch"]
PROFILES: tuple[Profile, ...] = ("interactive", "batch")
_METRIC = {"interactive": "tpot_p50_ms", "batch": "output_tokens_per_s"}
_LIMITED = {"ttft_ms": "ttft_p99_ms", "tpot_ms": "tpot_p99_ms", "e2el_ms": "e2el_p50_ms"}
"""Objective -> the metric that has to keep it."""


@dataclass(frozen=True)
class Candidate:
    """One variant under one profile.

    Attributes
    ----------
    value, values
        Of the metric that decides, and one a run of a server.
    broken
        Objectives it breaks, with the measured value; `unknown` those whose metric was not measured.
    accuracy
        Of the variant, maybe of another model than `value` (`is_elsewhere`); None where none was measured.
    keeps_accuracy
        Whether the rise of perplexity is within the margin with its whole interval, on this model; None: not known, or
        undecided.
    """

    variant: str
    label: str
    value: Estimate
    values: tuple[float, ...]
    gain: Estimate | None
    broken: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    accuracy: Accuracy | None = None
    keeps_accuracy: bool | None = None
    is_elsewhere: bool = False

    @property
    def is_held_back(self) -> bool:
        """It breaks an objective, or loses more than the margin."""
        return bool(self.broken) or self.keeps_accuracy is False


@dataclass(frozen=True)
class Recommendation:
    """The answer for one profile.

    Attributes
    ----------
    candidates
        The fastest first.
    chosen
        The fastest that nothing holds back; None where all are held back.
    runner_up, lead
        The next one, and by how much the chosen one is faster, with an interval where runs allow.
    slos, margin
        Objectives asked for (milliseconds), and the largest rise of perplexity.
    absent
        Labels of variants whose speed was measured, but not under this load and KV mode: they had no chance.
    memory_share
        Of the GPU's memory, that the engines had; None: as usual.
    """

    profile: Profile
    kv: Kv
    load: float
    metric: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    runner_up: Candidate | None
    lead: Estimate | None
    slos: Mapping[str, float]
    margin: float
    absent: tuple[str, ...] = ()
    memory_share: float | None = None

    @property
    def told_apart(self) -> bool | None:
        """Whether the lead is beyond chance; None without an interval."""
        if self.lead is None or self.lead.low is None:
            return None
        return self.lead.low > 1

    def to_json(self) -> dict[str, Any]:
        """All of it; objectives in milliseconds as given."""
        return {
            "profile": self.profile, "kv": self.kv, "concurrency": self.load, "metric": self.metric.replace("_ms", ""),
            "chosen": self.chosen.variant if self.chosen else None,
            "runner_up": self.runner_up.variant if self.runner_up else None,
            "lead": self.lead.to_json() if self.lead else None, "told_apart": self.told_apart,
            "not_measured_here": list(self.absent), "share_of_gpu_memory": self.memory_share,
            "slos_ms": dict(self.slos), "largest_rise_of_perplexity": self.margin,
            "candidates": [
                {
                    "variant": one.variant, "gain": one.gain.to_json() if one.gain else None,
                    "broken_slos": dict(one.broken), "slos_not_measured": list(one.unknown),
                    "keeps_accuracy": one.keeps_accuracy, "accuracy_of_another_model": one.is_elsewhere,
                    "accuracy_of": one.accuracy.place.model if one.accuracy else None,
                }
                for one in self.candidates
            ],
        }  # fmt: skip


def recommend(
    comparison: Comparison,
    profile: Profile,
    comparisons: Sequence[Comparison],
    slos: Mapping[str, float],
    thresholds: Thresholds,
) -> Recommendation | None:
    """The variant for a profile; None where no speed over loads was measured.

    Parameters
    ----------
    comparisons
        All there are: accuracy of a variant may stand in another one, of a model with real weights.
    slos
        `ttft_ms`, `tpot_ms` (both at p99) and `e2el_ms` (median), in milliseconds.
    """
    at = _where(comparison, profile, thresholds.limit("quantization", "interactive_load"))
    if at is None:
        return None
    kv, load = at
    metric, margin = _METRIC[profile], thresholds.limit("quantization", "loss")
    found = [
        candidate
        for variant in comparison.variants
        if (candidate := _candidate(comparison, variant, comparisons, metric, kv, load, slos, margin)) is not None
    ]
    lower = metric.endswith("_ms")
    found.sort(key=lambda one: one.value.value if lower else -one.value.value)
    free = [one for one in found if not one.is_held_back]
    chosen, second = (free[0] if free else None), (free[1] if len(free) > 1 else None)
    lead = None
    if chosen is not None and second is not None:
        sign = -1.0 if lower else 1.0
        lead = contrast([(sign, chosen.values), (-sign, second.values)])
    here = {one.variant for one in found}
    return Recommendation(
        profile, kv, load, metric, tuple(found), chosen, second, lead, dict(slos), margin,
        absent=tuple(one.label for one in comparison.variants if one.speed and one.name not in here),
        memory_share=comparison.memory_share if kv == "free" else None,
    )  # fmt: skip


def _where(comparison: Comparison, profile: Profile, most: float) -> tuple[Kv, float] | None:
    """KV mode and load: free where it was measured, since that is what a user gets; a load most variants have."""
    metric = _METRIC[profile]
    for kv in ("free", "pinned"):
        mode: Kv = kv
        counts: dict[float, int] = {}
        for variant in comparison.variants:
            for load in variant.speeds(metric, mode, comparison.lengths):
                counts[load] = counts.get(load, 0) + 1
        shared = [load for load, n in counts.items() if n == max(counts.values())]
        if profile == "batch" and shared:
            return mode, max(shared)
        small = [load for load in shared if load <= most]
        if small:
            return mode, max(small)
    return None


def _candidate(
    comparison: Comparison,
    variant: Variant,
    comparisons: Sequence[Comparison],
    metric: str,
    kv: Kv,
    load: float,
    slos: Mapping[str, float],
    margin: float,
) -> Candidate | None:
    speed = variant.speeds(metric, kv, comparison.lengths).get(load)
    if speed is None:
        return None
    broken: dict[str, float] = {}
    unknown: list[str] = []
    for name, limit in slos.items():
        limited = _LIMITED.get(name)
        seen = None if limited is None else variant.speeds(limited, kv, comparison.lengths).get(load)
        if seen is None:
            unknown.append(name)
        elif seen.value.value > limit:
            broken[name] = seen.value.value
    accuracy = variant.accuracy or next(iter(accuracy_of(comparisons, variant.name)), None)
    # Another model, often a small one, loses more or less than this one: that is told, and holds nothing back.
    keeps = True if variant.name == BASELINE else keeps_accuracy(variant.accuracy, margin)
    return Candidate(
        variant.name, variant.label, speed.value, speed.values, speed.gain, broken, tuple(unknown), accuracy, keeps,
        is_elsewhere=variant.accuracy is None and accuracy is not None,
    )  # fmt: skip


def keeps_accuracy(accuracy: Accuracy | None, margin: float) -> bool | None:
    """Whether the rise of perplexity is within a margin: with the whole interval, or not at all; None in between."""
    ratio = None if accuracy is None else accuracy.perplexity_ratio
    if ratio is None:
        return None
    low, high = (ratio.value if end is None else end for end in (ratio.low, ratio.high))
    return True if high <= 1 + margin else False if low > 1 + margin else None
