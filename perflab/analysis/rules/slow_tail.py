"""What the cause of a slow tail calls for."""

from __future__ import annotations

from dataclasses import dataclass

from perflab import units
from perflab.analysis.finding import Finding, bench_command, number
from perflab.analysis.slow_tail import Tail
from perflab.knowledge.engine_args import as_version_has_it
from perflab.messages import say
from perflab.runs import Engine

_KV_FULL = 0.95
_LONGER = 1.2
_GRAVE = 2.0


@dataclass(frozen=True)
class TailFacts:
    """What the rule reads: the tail, how it was placed, and of which engine.

    Attributes
    ----------
    quality
        Of the alignment, 0 to 1.
    most_running
        The most requests that ran while slow ones were waiting; None where none was.
    point
        Where it was measured.
    """

    tail: Tail
    engine: Engine
    quality: float
    most_running: int | None = None
    point: str = ""
    run: str = ""


def slow_tail(facts: TailFacts) -> Finding | None:
    """The tail's cause with its share of the excess, and the setting that bears on it; None without a cause."""
    tail = facts.tail
    if tail.cause is None or tail.cause_share is None or tail.without_ns is None:
        return None
    longer = _longer(tail)
    name = f"slow.metric.{tail.metric}"
    title = say(
        "slow.finding.title",
        metric=say(name), slow=units.show_time(tail.slow_ns), typical=units.show_time(tail.typical_ns),
        cause=say(f"slow.cause.{tail.cause}"), share=units.show_share(min(tail.cause_share, 1.0)),
    )  # fmt: skip
    version = facts.engine.vllm_version
    return Finding(
        id=f"slow_tail_{tail.cause}",
        severity="warning" if tail.ratio >= _GRAVE and longer is None else "info",
        confidence=round(0.85 * facts.quality, 3),
        title=title,
        impact={"value": round(units.ms(tail.slow_ns - tail.without_ns), 3), "unit": "ms"},
        evidence=tuple(_evidence(facts)),
        change=as_version_has_it(say(longer or f"slow.change.{_remedy(facts)}"), version),
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _longer(tail: Tail) -> str | None:
    """Slow because they asked for more: no fault of the server."""
    what = {"decode": "output_tokens", "prefill": "prompt_tokens"}.get(str(tail.cause))
    if what is None or tail.metric in ("tpot", "itl"):
        return None
    slow, typical = (tail.common[of].get(what) for of in ("slow", "typical"))
    return f"slow.longer.{what}" if slow and typical and slow > _LONGER * typical else None


def _remedy(facts: TailFacts) -> str:
    """Which advice fits: waiting has three reasons, prompts of others matter before and after the first token."""
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


def _evidence(facts: TailFacts) -> list[str]:
    tail = facts.tail
    slow, typical, step = (tail.common[name] for name in ("slow", "typical", "step"))
    told = [
        say(
            "slow.finding.counted",
            slow=units.show_count(len(tail.slow)), typical=units.show_count(len(tail.typical)), point=facts.point,
            percentile=f"{tail.percentile:g}", limit=units.show_time(tail.limit_ns),
        ),
        say("slow.finding.without", without=units.show_time(tail.without_ns or 0.0), metric=say(f"slow.metric.{tail.metric}")),
        *(
            say(
                "slow.finding.part",
                cause=say(f"slow.cause.{row.cause}"), slow=units.show_time(float(row.slow_ns)),
                typical=units.show_time(float(row.typical_ns)),
            )
            for row in tail.parts.itertuples()
            if row.cause == tail.cause or (row.share >= 0.1)
        ),
    ]  # fmt: skip
    if tail.metric in ("ttft", "e2el") and slow["ahead"] is not None and typical["ahead"] is not None:
        told.append(say("slow.finding.ahead", slow=f"{slow['ahead']:g}", typical=f"{typical['ahead']:g}"))
    if tail.metric == "ttft" and step["slow"] > 1:
        tokens, span = units.show_count(step["prompt_tokens"]), step["span_ns"]
        took = "" if span is None else say("slow.finding.step_took", span=units.show_time(span))
        told.append(say("slow.finding.step", slow=step["slow"], tokens=tokens, took=took))
    told.append(say("slow.finding.inferred", quality=units.show_share(facts.quality)))
    return told
