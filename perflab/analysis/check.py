"""One check of what a conclusion rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["pass", "warn", "fail", "not_applicable"]

# Conclusions a check can undermine, in the words a reader sees.
BREAKDOWN = "breakdown"
PHASES = "prefill and decode apart"
IDLE = "causes of idle time"
COMMUNICATION = "communication"
KERNELS = "what kernels are for"
LATENCY = "latencies"
TTFT = "time to first token"
ITL = "time between tokens"
TPOT = "time per output token"
TAIL = "high percentiles"
THROUGHPUT = "throughput"
PEAK = "peak throughput"
LOAD = "the load"


@dataclass(frozen=True)
class Check:
    """A check and what came of it.

    Attributes
    ----------
    check
        Stable identifier.
    status
        `pass`, `warn` (read with it in mind), `fail` (what it undermines is withheld), `not_applicable`.
    detail
        One or two sentences with the numbers.
    undermines
        Conclusions that do not hold if it failed.
    source
        The run it is about.
    """

    check: str
    status: Status
    detail: str
    undermines: tuple[str, ...] = ()
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """The check as the JSON contract has it."""
        found = {"check": self.check, "status": self.status, "detail": self.detail, "undermines": list(self.undermines)}
        return found | ({"source": self.source} if self.source else {})


def undermined(checks: Iterable[Check], *conclusions: str) -> Check | None:
    """The first failed check that undermines one of the conclusions."""
    return next((c for c in checks if c.status == "fail" and set(c.undermines) & set(conclusions)), None)
