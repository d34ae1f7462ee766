"""What the cause of a slow tail calls for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflab import units
from perflab.analysis.finding import Again, Finding, bench_command, number
from perflab.analysis.requests.slow_tail import PromptSteps, Tail
from perflab.knowledge.engine_args import as_version_has_it
from perflab.messages import capital, say
from perflab.runs import Engine

_KV_FULL = 0.95
_LONGER = 1.2
_GRAVE = 2.0
_SHOWN = 0.1
_SHORTER_STEPS = frozenset(("arriving", "behind_step", "others_before", "others_between"))
_LEAST_TOKENS = 512
_MOST_MEMORY = 0.95


@dataclass(frozen=True)
class TailFacts:
    """What the rule reads: the tail, how it was placed, and of which engine.

    Attributes
    ----------
    quality
        Of the alignment, 0 to 1.
    requests, least
        Placed requests of the point, and how many it takes for a finding.
    most_running
        The most requests that ran while slow ones were waiting; None where none was.
    point
        Where it was measured.
    again
        How the run can be made once more; None where that is not known.
    prompt_steps
        How the time of steps with prompts goes with their tokens; None where too few tell.
    """

    tail: Tail
    engine: Engine
    quality: float
    requests: int
    least: int = 20
    most_running: int | None = None
    point: str = ""
    run: str = ""
    again: Again | None = None
    prompt_steps: PromptSteps | None = None


def slow_tail(facts: TailFacts) -> Finding | None:
    """The tail's cause with its share of the excess, and the setting that bears on it; None without a cause."""
    tail = facts.tail
    if tail.cause is None or tail.cause_share is None or tail.without_ns is None or facts.requests < facts.least:
        return None
    if tail.cause == "decode" and _longer(tail) is None and not _larger_batch(tail):
        # Their steps were slower by themselves, and nothing recorded says why.
        return None
    longer = _longer(tail)
    name = f"slow.metric.{tail.metric}"
    title = say(
        "slow.finding.title",
        metric=say(name), slow=units.show_time(tail.slow_ns), typical=units.show_time(tail.typical_ns),
        cause=say(f"slow.cause.{tail.cause}"), share=f"{min(tail.cause_share, 1.0):.0%}".replace("%", " %"),
    )  # fmt: skip
    version = facts.engine.vllm_version
    remedy = _remedy(facts)
    settings = {} if longer else _settings(remedy, facts.engine)
    return Finding(
        id=f"slow_tail_{tail.cause}",
        severity="warning" if tail.ratio >= _GRAVE and longer is None else "info",
        confidence=round(0.85 * facts.quality, 3),
        title=title,
        impact={"value": round(units.ms(tail.slow_ns - tail.without_ns), 3), "unit": "ms"},
        evidence=tuple(_evidence(facts)),
        change=as_version_has_it(say(longer or f"slow.change.{remedy}"), version),
        check=facts.again.with_settings(settings) if facts.again and settings else bench_command(facts.engine),
        run=facts.run,
        settings=settings,
    )


def _larger_batch(tail: Tail) -> bool:
    slow, typical = (tail.common[of].get("batch") for of in ("slow", "typical"))
    return bool(slow and typical and slow > _LONGER * typical)


def _longer(tail: Tail) -> str | None:
    """Slow because they asked for more: no fault of the server."""
    what = {"decode": "output_tokens", "prefill": "prompt_tokens"}.get(str(tail.cause))
    if what is None or tail.metric in ("tpot", "itl"):
        return None
    slow, typical = (tail.common[of].get(what) for of in ("slow", "typical"))
    return f"slow.longer.{what}" if slow and typical and slow > _LONGER * typical else None


def _remedy(facts: TailFacts) -> str:
    """Which advice fits: waiting has three reasons, prompts of others matter before and after the first token.

    Where steps are as long whatever their tokens, shorter ones cannot be had by fewer tokens.
    """
    wanted = _by_cause(facts)
    flat = facts.prompt_steps is not None and facts.prompt_steps.are_flat
    return "flat_steps" if flat and wanted in (*_SHORTER_STEPS, "queued_prompts") else wanted


def _by_cause(facts: TailFacts) -> str:
    cause = str(facts.tail.cause)
    if cause == "queued":
        seats = number(facts.engine.settings.get("max_num_seqs"))
        if (facts.tail.common["slow"].get("kv_usage") or 0.0) >= _KV_FULL:
            return "queued_kv"
        if seats and facts.most_running is not None and facts.most_running >= seats:
            return "queued_seats"
        return "queued_prompts"
    if cause == "others_prefill":
        return "others_before" if facts.tail.metric == "ttft" else "others_between"
    return cause


def _settings(remedy: str, engine: Engine) -> Mapping[str, Any]:
    """Engine arguments that try the remedy; none where the settings it would change are not known."""
    seats, budget = (number(engine.settings.get(name)) for name in ("max_num_seqs", "max_num_batched_tokens"))
    if remedy == "queued_seats" and seats:
        return {"max_num_seqs": int(2 * seats)}
    if remedy in _SHORTER_STEPS and budget:
        fewer = int(budget) // 4
        # vLLM wants room for a token of each seat.
        return {"max_num_batched_tokens": fewer} if fewer >= max(seats or 0, _LEAST_TOKENS) else {}
    memory = number(engine.settings.get("gpu_memory_utilization"))
    if remedy in ("queued_kv", "preempted") and memory and memory < _MOST_MEMORY:
        return {"gpu_memory_utilization": _MOST_MEMORY}
    return {}


def _evidence(facts: TailFacts) -> list[str]:
    tail = facts.tail
    metric = say(f"slow.metric.{tail.metric}")
    told = [
        _counted(facts),
        say("slow.finding.without", without=units.show_time(tail.without_ns or 0.0), metric=metric),
    ]
    told += [
        say(
            "slow.finding.part",
            cause=capital(say(f"slow.cause.{row.cause}")), slow=_time(float(row.slow_ns), tail),
            typical=_time(float(row.typical_ns), tail),
        )
        for row in tail.parts.itertuples()
        if row.cause == tail.cause or row.share >= _SHOWN
    ]  # fmt: skip
    slow, typical, step = (tail.common[name] for name in ("slow", "typical", "step"))
    if tail.metric in ("ttft", "e2el") and slow["ahead"]:
        told.append(say("slow.finding.ahead", slow=f"{slow['ahead']:g}", typical=f"{typical['ahead']:g}"))
    if tail.metric == "ttft" and step["slow"] > 1 and step["span_ns"] is not None:
        tokens, span = units.show_count(step["prompt_tokens"]), units.show_time(step["span_ns"])
        told.append(say("slow.finding.step", slow=step["slow"], tokens=tokens, span=span))
    known = facts.prompt_steps
    if known is not None and known.are_flat and _remedy(facts) == "flat_steps":
        told.append(
            say(
                "slow.finding.flat",
                few=units.show_count(known.few_tokens), few_took=units.show_time(known.few_ns),
                many=units.show_count(known.many_tokens), many_took=units.show_time(known.many_ns),
            )
        )  # fmt: skip
    told.append(say("slow.finding.inferred", quality=units.show_share(facts.quality)))
    return told


def _counted(facts: TailFacts) -> str:
    tail = facts.tail
    slow, limit, percentile = units.show_count(len(tail.slow)), units.show_time(tail.limit_ns), f"{tail.percentile:g}"
    if tail.metric == "itl":
        return say("slow.finding.counted_gaps", point=facts.point, slow=slow, percentile=percentile, limit=limit)
    typical = units.show_count(len(tail.typical))
    return say(
        "slow.finding.counted", point=facts.point, slow=slow, typical=typical, percentile=percentile, limit=limit
    )


def _time(ns: float, tail: Tail) -> str:
    """A part's mean; what is less than a hundredth of the slow latency is nothing to speak of."""
    return say("slow.hardly_any") if abs(ns) < 0.01 * tail.slow_ns else units.show_time(ns)
