"""How evenly expert parallelism spreads its work over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflab.analysis.finding import is_on


@dataclass(frozen=True)
class ExpertBalance:
    """Time of the experts' kernels by rank, in one phase.

    Attributes
    ----------
    step_ns
        Rank -> exclusive time of the category `moe` in a mean step.
    random_routers
        The weights were made up (`load_format` dummy), and the routers with them: which experts are busy then says
        nothing about a trained model.
    """

    phase: str
    steps: int
    step_ns: Mapping[int, float]
    random_routers: bool

    @property
    def busiest(self) -> int:
        """The rank whose experts take longest."""
        return max(self.step_ns, key=lambda rank: self.step_ns[rank])

    @property
    def mean_ns(self) -> float:
        """Over the ranks."""
        return sum(self.step_ns.values()) / len(self.step_ns)

    @property
    def excess_ns(self) -> float:
        """How much longer the busiest rank's experts take than they would, were all alike: the others wait for it."""
        return self.step_ns[self.busiest] - self.mean_ns

    @property
    def imbalance(self) -> float:
        """`excess_ns` as a share of the mean: 0 where all are alike."""
        return self.excess_ns / self.mean_ns


def expert_balance(records: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, ExpertBalance]:
    """By phase; empty where experts are not spread over ranks, or only one rank is there.

    Parameters
    ----------
    records
        From `perflab.analysis.breakdown.summary`, one a rank.
    settings
        The engine's, by vLLM's names.
    """
    if not is_on(settings.get("enable_expert_parallel")) or len(records) < 2:
        return {}
    random = str(settings.get("load_format")).lower() == "dummy"
    found = {}
    for phase in records[0]["phases"]:
        of = {int(r["rank"]): r["phases"][phase] for r in records}
        if any(not p["steps"] for p in of.values()):
            continue
        times = {rank: p["categories"]["moe"]["exclusive_ns"] / p["steps"] for rank, p in of.items()}
        if any(times.values()):
            found[phase] = ExpertBalance(phase, min(p["steps"] for p in of.values()), times, random)
    return found
