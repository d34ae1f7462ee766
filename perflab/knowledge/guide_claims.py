"""Claims of the founding guide about quantization, from `guide_claims.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perflab.knowledge.toml import shipped_toml

Measure = Literal["weights", "speed", "loss", "kernel", "eager", "fact"]


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes
    ----------
    variant, measure
        What it is about, and what to hold against it.
    value
        The claimed factor; None of other measures.
    least, most
        The claimed range of a loss, shares.
    verdict
        Of a `fact`; empty where something is measured.
    truth, source
        What is known besides, and where from.
    """

    id: str
    variant: str
    measure: Measure
    text: str
    truth: str
    source: str
    value: float | None = None
    least: float | None = None
    most: float | None = None
    verdict: str = ""


@lru_cache(maxsize=1)
def guide_claims() -> tuple[Claim, ...]:
    """All of them, as the guide has them in order."""
    return tuple(Claim(**entry) for entry in shipped_toml("guide_claims.toml")["claim"])
