"""Did a quantization take effect? By what the engine says of its memory and kernels, and by the kernels that ran.

Weights asked to be quantized that are as large as 16-bit weights, or that no kernel computes with, are not quantized,
whatever the flags say. Each piece of evidence stands for itself; where they contradict each other, the answer is no.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.messages import say
from perflab.runs import Engine

Answer = Literal["yes", "no", "unknown", "not_asked"]
_TELLING = 0.9
"""A prediction above this share of 16-bit weights cannot be told from them: nearly all weights are embeddings then."""
_ACCURACY = "perflab quantize run STUDY.yaml -o DIR --only accuracy"
_NAMED = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[bB](?![a-zA-Z0-9])")


@dataclass(frozen=True)
class LogRemark:
    """A line of the log that says how a quantization runs: kind, severity, what it is about, first line, how often."""

    name: str
    severity: Literal["info", "warning", "critical"]
    what: str
    line: int
    count: int = 1


@dataclass(frozen=True)
class EffectFacts:
    """What is known of one engine.

    Attributes
    ----------
    asked, kv_asked
        What weights and cache were asked to be; None where nothing was, or it is not known.
    weights_bytes, predicted_bytes, sixteen_bytes
        Of one rank: as the engine reports, as the config predicts with the quantization, and without it.
    sixteen_by_name
        The last comes from the model's name only ("70B"), and is rough.
    kv_token_bytes, kv_predicted, kv_sixteen
        Bytes of a token in the cache: by the reported size and tokens, predicted for what was asked, and in 16 bits.
    log_kernels
        Kernels the log names for quantized layers; `log` whether there is a log at all.
    traced
        Whether matmul kernels that ran are those of the quantization; None without a trace, or where none is known.
    traced_names
        The matmul kernels that took longest.
    remarks
        From the log.
    ended
        Why the engine never came up; None where it did, or no log tells.
    """

    run: str = ""
    engine: Engine = field(default_factory=Engine)
    asked: str | None = None
    kv_asked: str | None = None
    weights_bytes: int | None = None
    predicted_bytes: float | None = None
    sixteen_bytes: float | None = None
    sixteen_by_name: bool = False
    kv_token_bytes: float | None = None
    kv_predicted: float | None = None
    kv_sixteen: float | None = None
    log: bool = False
    log_kernels: tuple[str, ...] = ()
    traced: bool | None = None
    traced_names: tuple[str, ...] = ()
    remarks: tuple[LogRemark, ...] = ()
    ended: str | None = None


@dataclass(frozen=True)
class Effect:
    """The answer for one engine: `answer` of the weights, `kv_answer` of the cache, evidence in words, findings."""

    run: str
    asked: str | None
    kv_asked: str | None
    answer: Answer
    kv_answer: Answer
    evidence: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether all that was asked for is there."""
        return all(one in ("yes", "not_asked") for one in (self.answer, self.kv_answer))

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "run": self.run,
            "asked": self.asked,
            "kv_asked": self.kv_asked,
            "answer": self.answer,
            "kv_answer": self.kv_answer,
            "evidence": list(self.evidence),
            "findings": [one.to_json() for one in self.findings],
        }


def took_effect(facts: EffectFacts) -> Effect:
    """Weigh what is known."""
    by_memory, memory_words = _by_memory(facts)
    by_log, log_words = _by_log(facts)
    by_trace, trace_words = _by_trace(facts)
    votes = [vote for vote in (by_memory, by_log, by_trace) if vote is not None]
    answer: Answer = "not_asked"
    if facts.asked is not None:
        answer = "no" if False in votes else "yes" if votes else "unknown"
    kv_answer, kv_words = _kv(facts)
    ended = ""
    if facts.ended is not None:
        # What a log announces and no engine lived to do is no effect.
        answer, kv_answer = ("unknown" if one == "yes" else one for one in (answer, kv_answer))
        ended = say("effect.ended", why=facts.ended)
    evidence = tuple(words for words in (memory_words, log_words, trace_words, kv_words, ended) if words)
    found: list[Finding] = []
    if answer == "no":
        # A log that names no kernel is weaker evidence than weights or kernels themselves.
        strong = by_memory is False or by_trace is False
        rough = facts.sixteen_by_name and by_trace is not False
        found.append(_finding(facts, "weights", evidence, 0.6 if rough else 0.95 if strong else 0.7))
    if kv_answer == "no":
        found.append(_finding(facts, "kv", (kv_words,), 0.9))
    found += _remarks(facts)
    return Effect(facts.run, facts.asked, facts.kv_asked, answer, kv_answer, evidence, tuple(found))


def parameters_of(name: str | None) -> float | None:
    """Parameters by a model's name, as 70e9 of `Llama-3.3-70B-Instruct`; None where it does not tell."""
    match = _NAMED.search((name or "").replace("_", "-"))
    return float(match[1]) * 1e9 if match else None


def _by_memory(facts: EffectFacts) -> tuple[bool | None, str]:
    weights, sixteen = facts.weights_bytes, facts.sixteen_bytes
    if facts.asked is None or weights is None or not sixteen:
        return None, ""
    expected = facts.predicted_bytes / sixteen if facts.predicted_bytes is not None else 0.6
    share = weights / sixteen
    fields = {"weights": units.show_bytes(weights), "share": units.show_share(share)}
    if expected > _TELLING:
        return None, say("effect.memory.alike", **fields)
    by = say("effect.memory.by_name") if facts.sixteen_by_name else say("effect.memory.by_config")
    expects = units.show_bytes(expected * sixteen) if facts.predicted_bytes is not None else "?"
    # Nearer to what was predicted than to 16 bits.
    took = share < (1 + expected) / 2
    key = "effect.memory.yes" if took else "effect.memory.no"
    return took, say(key, **fields, sixteen=units.show_bytes(sixteen), expected=expects, by=by)


def _by_log(facts: EffectFacts) -> tuple[bool | None, str]:
    if facts.asked is None or not facts.log:
        return None, ""
    if facts.log_kernels:
        return True, say("effect.log.kernels", kernels=", ".join(facts.log_kernels))
    # Many versions name none: that alone says nothing.
    return None, say("effect.log.none")


def _by_trace(facts: EffectFacts) -> tuple[bool | None, str]:
    if facts.asked is None or facts.traced is None:
        names = ", ".join(facts.traced_names)
        return None, say("effect.trace.shown", names=names) if names and facts.asked is None else ""
    key = "effect.trace.yes" if facts.traced else "effect.trace.no"
    return facts.traced, say(key, names=", ".join(facts.traced_names))


def _kv(facts: EffectFacts) -> tuple[Answer, str]:
    if facts.kv_asked is None:
        return "not_asked", ""
    token, sixteen = facts.kv_token_bytes, facts.kv_sixteen
    if token is not None and sixteen and facts.kv_predicted:
        took = token < (sixteen + facts.kv_predicted) / 2
        key = "effect.kv.yes" if took else "effect.kv.no"
        return "yes" if took else "no", say(key, token=f"{token:,.0f}", sixteen=f"{sixteen:,.0f}", asked=facts.kv_asked)
    if any(one.name.startswith("kv_") for one in facts.remarks):
        return "yes", say("effect.kv.log", asked=facts.kv_asked)
    return "unknown", say("effect.kv.unknown", asked=facts.kv_asked)


def _finding(facts: EffectFacts, what: str, evidence: Sequence[str], confidence: float) -> Finding:
    asked = facts.asked if what == "weights" else facts.kv_asked
    impact = None
    if what == "weights" and facts.weights_bytes and facts.predicted_bytes is not None:
        lost = max(facts.weights_bytes - facts.predicted_bytes, 0)
        impact = {"value": round(lost), "unit": "bytes"}
    return Finding(
        id="quantization_without_effect" if what == "weights" else "kv_quantization_without_effect",
        severity="critical",
        confidence=confidence,
        title=say(f"finding.effect.{what}.title", asked=asked),
        impact=impact,
        evidence=tuple(evidence),
        change=say(f"finding.effect.{what}.change"),
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _remarks(facts: EffectFacts) -> list[Finding]:
    """One finding for each kind of line, without those that only say what was asked for."""
    found = []
    names = {one.name for one in facts.remarks}
    for one in facts.remarks:
        if one.name == "kv_no_scales" and "kv_one" in names:
            continue
        found.append(
            Finding(
                id=f"quantization_log_{one.name}",
                severity=one.severity,
                confidence=0.9,
                title=say(f"finding.effect.line.{one.name}.title", what=one.what),
                impact=None,
                evidence=(_where(one),),
                change=say(f"finding.effect.line.{one.name}.change"),
                # What a cache without scales costs shows in no latency.
                check=_ACCURACY if one.name.startswith("kv_") else bench_command(facts.engine),
                run=facts.run,
            )
        )
    return found


def _where(one: LogRemark) -> str:
    key = "finding.effect.line.where" if one.count > 1 else "finding.effect.line.once"
    return say(key, line=one.line, count=one.count)
