"""How long a step takes when nobody profiles it: what the profiler's own cost is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say


@dataclass(frozen=True)
class Unprofiled:
    """A measured time between tokens that no decode step of the profiled batch should exceed.

    Attributes
    ----------
    step_ns
        Median TPOT of the measured point whose concurrency is the least that is not below the profiled batch. A
        token takes at least one decode step, of at least as many requests; time spent on others' prompts and in the
        client comes on top. So it bounds the step from above (without speculative decoding).
    concurrency, point
        Where it was measured.
    batch
        Requests in the profiled decode steps.
    """

    step_ns: float
    concurrency: int
    point: str
    batch: int

    def excess_ns(self, profiled_ns: float) -> float:
        """How much longer than that a profiled step is: at least so much of it the profiler made."""
        return max(0.0, profiled_ns - self.step_ns)


def slowdown_check(
    records: Sequence[Mapping[str, Any]], unprofiled: Unprofiled | None, limits: Thresholds, *, run: str = ""
) -> list[Check]:
    """Whether profiled decode steps are longer than measured ones can be; none where that cannot be told.

    Parameters
    ----------
    records
        From `perflab.analysis.breakdown.summary`, one a rank.
    """
    steps = [r["phases"]["decode"] for r in records if r.get("phases", {}).get("decode", {}).get("steps")]
    if unprofiled is None or not steps:
        return []
    profiled = sum(p["window_ns"] for p in steps) / sum(p["steps"] for p in steps)
    excess = unprofiled.excess_ns(profiled)
    fields = {
        "profiled": units.show_time(profiled),
        "batch": str(unprofiled.batch),
        "measured": units.show_time(unprofiled.step_ns),
        "concurrency": str(unprofiled.concurrency),
        "point": unprofiled.point,
        "excess": units.show_time(excess),
    }
    if excess > limits.limit("profiler_slowdown", "warn") * unprofiled.step_ns:
        return [Check("profiler_slowdown", "warn", say("trust.profiler_slowdown.warn", **fields), (of.IDLE,), run)]
    return [Check("profiler_slowdown", "pass", say("trust.profiler_slowdown.pass", **fields), (), run)]
