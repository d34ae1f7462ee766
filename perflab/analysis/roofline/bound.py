"""What bounds a phase, by the shares of its time and how near its kernels come to the GPU's roofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perflab.knowledge.thresholds import Thresholds, own_thresholds

Bound = Literal["compute", "memory", "communication", "overhead", "kernels"]
"""`kernels`: they run most of the time, yet reach neither roof, so that the GPU's peaks are not what limits them."""


@dataclass(frozen=True)
class KernelRoof:
    """Kernels of one category in a phase, against the roof of their work. All figures are a step's mean.

    Attributes
    ----------
    time_ns
        Exclusive time of the category.
    flops, bytes, limit_ns
        Its work and the least time for it; None where the work is not known.
    side
        The roof that sets most of the least time: `compute` or `memory`; None where that is not known either.
    flops_share, bytes_share
        Of the GPU's peaks, over the category's own time. `reach`: least time over time.
    """

    category: str
    time_ns: float
    flops: float | None
    bytes: float | None
    limit_ns: float | None
    side: str | None
    flops_share: float | None
    bytes_share: float | None

    @property
    def reach(self) -> float | None:
        """The least time as a share of the time taken; 1 is at the roof."""
        return self.limit_ns / self.time_ns if self.limit_ns is not None and self.time_ns else None


@dataclass(frozen=True)
class Verdict:
    """What bounds a phase; None where too little is known, and `unknown` is the category whose work is missing.

    `share` is that of the step's time the verdict rests on, `reach` how near those kernels are to their roof.
    """

    bound: Bound | None
    share: float
    reach: float | None = None
    unknown: str | None = None


def verdict(
    step_ns: float,
    idle_ns: float,
    communication_ns: float,
    kernels: Mapping[str, KernelRoof],
    thresholds: Thresholds | None = None,
) -> Verdict:
    """What bounds a phase.

    Idle time and exposed communication come first, from `bound.overhead` and `bound.communication` on (shares of the
    step). Else the roof decides on whose side kernels spend more time; it bounds them if they reach `bound.reach` of
    it. A category whose side is not known leaves the verdict open when it could turn it.
    """
    limits = thresholds or own_thresholds()
    idle, communication = idle_ns / step_ns, communication_ns / step_ns
    if idle >= max(limits.limit("bound", "overhead"), communication):
        return Verdict("overhead", idle)
    if communication >= limits.limit("bound", "communication"):
        return Verdict("communication", communication)
    sides = {side: [k for k in kernels.values() if k.side == side] for side in ("memory", "compute")}
    unknown = max((k for k in kernels.values() if k.side is None), key=lambda k: k.time_ns, default=None)
    times = {side: sum(k.time_ns for k in found) for side, found in sides.items()}
    side: Bound = "memory" if times["memory"] >= times["compute"] else "compute"
    if unknown is not None and unknown.time_ns > abs(times["memory"] - times["compute"]):
        return Verdict(None, unknown.time_ns / step_ns, unknown=unknown.category)
    told = [k for k in sides[side] if k.limit_ns is not None]
    time = sum(k.time_ns for k in told)
    if not time:
        return Verdict(None, 0.0)
    reach = sum(k.limit_ns or 0.0 for k in told) / time
    share = times[side] / step_ns
    return Verdict(side if reach >= limits.limit("bound", "reach") else "kernels", share, reach)
