"""The guide's claims about quantization, each held against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison, Place, Variant
from perflab.knowledge.guide_claims import Claim, guide_claims
from perflab.knowledge.matmul_kernels import matmul_of_log

Verdict = Literal[
    "holds", "holds_at_some_loads", "too_high", "too_low", "undecided", "not_measured", "shown", "wrong", "partly",
    "contradicts_itself",
]  # fmt: skip
_RATE = "output_tokens_per_s"


@dataclass(frozen=True)
class Seen:
    """What was measured of one model on one machine.

    Attributes
    ----------
    low, high
        The smallest and largest estimate: of a speed over loads and metrics, of memory and loss the same one.
    estimates
        With where they are of: a load, and how the KV cache was; empty where they are of none.
    text
        The kernel that the log names.
    """

    place: Place
    variant: str
    estimates: tuple[tuple[str, Estimate], ...] = ()
    text: str = ""

    @property
    def low(self) -> float:
        """Smallest estimate."""
        return min(one.value for _, one in self.estimates)

    @property
    def high(self) -> float:
        """Largest estimate."""
        return max(one.value for _, one in self.estimates)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            **self.place.to_json(), "variant": self.variant, "kernel": self.text or None,
            "measured": [{"at": where or None, **one.to_json()} for where, one in self.estimates],
        }  # fmt: skip


@dataclass(frozen=True)
class Confronted:
    """A claim, what was measured, and what that makes of it."""

    claim: Claim
    seen: tuple[Seen, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "claim": self.claim.id, "text": self.claim.text, "claimed": self.claim.value, "verdict": self.verdict,
            "measured": [one.to_json() for one in self.seen], "truth": self.claim.truth, "source": self.claim.source,
        }  # fmt: skip


def confront(comparisons: Sequence[Comparison], near: float) -> list[Confronted]:
    """Every claim with what the comparisons tell of it.

    Parameters
    ----------
    near
        How far a measured factor may be from the claimed one, a share.
    """
    return [_confronted(claim, comparisons, near) for claim in guide_claims()]


def _confronted(claim: Claim, comparisons: Sequence[Comparison], near: float) -> Confronted:
    seen = tuple(
        found for one in comparisons if (found := _seen(claim, one)) is not None
    )  # fmt: skip
    if claim.measure == "fact":
        return Confronted(claim, (), _fact(claim.verdict))
    if not seen:
        return Confronted(claim, (), "not_measured")
    return Confronted(claim, seen, _verdict(claim, seen, near))


def _seen(claim: Claim, comparison: Comparison) -> Seen | None:
    mine, base = comparison.variant(claim.variant), comparison.variant(BASELINE)
    if mine is None:
        return None
    if claim.measure == "kernel":
        logged = mine.reasons.logged if mine.reasons else ()
        return Seen(comparison.place, mine.name, text=", ".join(logged)) if logged else None
    if claim.measure == "loss":
        ratio = mine.accuracy.perplexity_ratio if mine.accuracy else None
        if ratio is None or mine.accuracy is None:
            return None
        rise = Estimate(
            ratio.value - 1, None if ratio.low is None else ratio.low - 1, None if ratio.high is None else ratio.high
            - 1, ratio.n,
        )  # fmt: skip
        return Seen(mine.accuracy.place, mine.name, (("", rise),))
    if base is None:
        return None
    found = _weights(base, mine) if claim.measure == "weights" else _speeds(comparison, mine)
    return Seen(comparison.place, mine.name, found) if found else None


def _weights(base: Variant, mine: Variant) -> tuple[tuple[str, Estimate], ...]:
    sides = [one.memory_of() for one in (base, mine)]
    sizes = [None if one is None else one.weights_bytes for one in sides]
    if sizes[0] is None or not sizes[1]:
        return ()
    return (("", Estimate(sizes[0] / sizes[1])),)


def _speeds(comparison: Comparison, mine: Variant) -> tuple[tuple[str, Estimate], ...]:
    """Gains in output throughput at every load, with the KV cache pinned and free."""
    several = len(comparison.kvs) > 1
    return tuple(
        (f"{load:g} (KV {kv})" if several else f"{load:g}", one.gain)
        for kv in comparison.kvs
        for load, one in sorted(mine.speeds(_RATE, kv, comparison.lengths).items())
        if one.gain is not None
    )


def _fact(verdict: str) -> Verdict:
    known: dict[str, Verdict] = {"wrong": "wrong", "partly": "partly", "contradicts_itself": "contradicts_itself"}
    return known[verdict]


def _verdict(claim: Claim, seen: Sequence[Seen], near: float) -> Verdict:
    if claim.measure == "kernel":
        fast = [matmul_of_log(line) for one in seen for line in one.text.split(", ")]
        return "holds" if all(kernel is not None for kernel in fast) else "shown"
    low, high = min(one.low for one in seen), max(one.high for one in seen)
    if claim.measure == "eager":
        return "wrong" if high < 1 else "holds_at_some_loads" if low < 1 else "holds"
    if claim.measure == "loss":
        return _loss(claim, seen)
    value = claim.value or 1.0
    if claim.measure == "weights":
        if all(abs(one.low / value - 1) <= near for one in seen):
            return "holds"
        return "too_high" if high < value else "too_low" if low > value else "holds_at_some_loads"
    if low * (1 - near) <= value <= high * (1 + near):
        return "holds_at_some_loads"
    return "too_high" if high < value else "too_low"


def _loss(claim: Claim, seen: Sequence[Seen]) -> Verdict:
    """By whole intervals: within the claimed range, above or below it; else undecided."""
    verdicts: set[Verdict] = set()
    least, most = claim.least or 0.0, claim.most or 0.0
    for one in seen:
        for _, rise in one.estimates:
            low, high = (rise.value if end is None else end for end in (rise.low, rise.high))
            # A rise of nothing, or a fall, is a loss below any claimed: the guide names no smallest one but for GPTQ.
            if high <= most and (least == 0.0 or low >= least):
                verdicts.add("holds")
            elif low > most:
                verdicts.add("too_low")
            elif high < least:
                verdicts.add("too_high")
            else:
                verdicts.add("undecided")
    return verdicts.pop() if len(verdicts) == 1 else "undecided"
