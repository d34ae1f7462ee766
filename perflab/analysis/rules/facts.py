"""What rules read of one profiling pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perflab.analysis.check import Check
from perflab.analysis.finding import Again, Severity, severity_of
from perflab.analysis.ranks.communication import Communication
from perflab.analysis.roofline.phases import RankRoofline
from perflab.analysis.unprofiled import Unprofiled
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.runs import Engine
from perflab.schema import empty


@dataclass(frozen=True)
class RankFacts:
    """One rank of the pass.

    Attributes
    ----------
    record
        From `perflab.analysis.breakdown.summary`; `idle`: the rank's value of `perflab.analysis.idle.idle_summary`,
        empty where there is none.
    kernels, steps
        Tables `kernels` (with categories) and `steps`.
    roofline
        From `perflab.analysis.roofline.rank_roofline`; None where it was not asked for, as of a CPU engine.
    """

    record: Mapping[str, Any]
    idle: Mapping[str, Any]
    kernels: pd.DataFrame = field(default_factory=lambda: empty("kernels"))
    steps: pd.DataFrame = field(default_factory=lambda: empty("steps"))
    roofline: RankRoofline | None = None

    @property
    def rank(self) -> int:
        """Its number."""
        return int(self.record["rank"])

    @property
    def is_cpu(self) -> bool:
        """Whether these are operators of a CPU engine."""
        return self.record.get("kind") == "cpu"

    def phase(self, name: str) -> Mapping[str, Any]:
        """The record of a phase: `steps`, `window_ns`, `busy_ns`, `idle_ns`, `categories`."""
        found: Mapping[str, Any] = self.record["phases"][name]
        return found

    def share(self, category: str, phase: str) -> float:
        """Share of a phase's time that a category has to itself."""
        return float(self.phase(phase)["categories"][category]["share"] or 0)

    def step_ns(self, phase: str) -> float:
        """Mean time of a step of a phase."""
        return float(self.phase(phase)["window_ns"]) / float(self.phase(phase)["steps"])


@dataclass(frozen=True)
class PassFacts:
    """All ranks of the pass that have a breakdown, and what is known besides.

    Attributes
    ----------
    engine
        The engine's settings, which may hold the cause.
    checks
        From `perflab.analysis.trust.trace_checks`.
    run
        Goes into the findings.
    thresholds
        The figures at which rules speak: perflab's own, or those a user set.
    communication
        Collectives of all ranks; None where no kernel communicates.
    unprofiled
        What a decode step takes at most without the profiler; None where the run did not measure it.
    again
        How the run can be made once more; None where perflab did not capture it.
    """

    ranks: Sequence[RankFacts]
    engine: Engine = field(default_factory=Engine)
    checks: Sequence[Check] = ()
    run: str = ""
    thresholds: Thresholds = field(default_factory=own_thresholds)
    communication: Communication | None = None
    unprofiled: Unprofiled | None = None
    again: Again | None = None

    def phases(self) -> list[str]:
        """Phases with enough steps on every rank to be spoken about, decode first."""
        fewest = self.limit("fewest_steps", "count")
        order = ("decode", "mixed", "prefill")
        return [p for p in order if self.ranks and all(rank.phase(p)["steps"] >= fewest for rank in self.ranks)]

    def limit(self, name: str, level: str) -> float:
        """A threshold."""
        return self.thresholds.limit(name, level)

    def severity(self, share: float, name: str) -> Severity | None:
        """How grave a share is by the levels of a threshold; None below all of them."""
        return severity_of(share, name, self.thresholds)
