"""Are tokens counted rightly: chunks against tokens, absent usage, speculative decoding?"""

from __future__ import annotations

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.token_times import implied_concurrency
from perflab.analysis.validity.facts import BenchFacts
from perflab.messages import say


def streaming(facts: BenchFacts) -> Check:
    """The server streamed, one token a chunk."""
    itl, metrics = facts.metrics.get("itl_ms"), facts.metrics
    whole = metrics.get("source") == "computed" and metrics.get("e2el_ms") and not metrics.get("ttft_ms")
    if "not_streamed" in facts.marks or whole:
        return Check("streaming", "warn", say("validity.streaming.none"), (of.TTFT, of.ITL))
    limit = facts.thresholds.limit("tokens_per_chunk", "warn")
    length = facts.reported.get("spec_decode_acceptance_length")
    if itl and "itl_spread" not in facts.marks and length is not None and length > limit:
        mean = itl["mean"]
        if mean is not None:
            fields = {"length": f"{length:.2f}", "itl": f"{mean:.2f}", "token": f"{mean / length:.2f}"}
            return Check("streaming", "warn", say("validity.speculative.warn", **fields), (of.ITL,))
    per_chunk = itl.get("tokens_per_chunk") if itl else None
    if per_chunk is None:
        return _by_throughput(facts, limit)
    if per_chunk <= limit:
        return Check("streaming", "pass", say("validity.streaming.pass"))
    per_token = itl.get("per_token_ms") if itl else None
    detail = say("validity.streaming.warn", per_chunk=f"{per_chunk:.1f}")
    if per_token is not None:
        detail += " " + say("validity.streaming.per_token", token=f"{per_token:.1f}")
    return Check("streaming", "warn", detail, (of.ITL,))


def _by_throughput(facts: BenchFacts, limit: float) -> Check:
    """Where chunks were not counted: tokens come faster than gaps and concurrency allow."""
    implied = implied_concurrency(facts.metrics)
    itl = facts.metrics.get("itl_ms")
    if itl is None or implied is None or facts.concurrency is None or implied <= limit * facts.concurrency:
        return Check("streaming", "not_applicable", say("validity.streaming.unknown"))
    detail = say(
        "validity.token_length.warn",
        rate=f"{facts.metrics['output_tokens_per_s']:.0f}",
        itl=f"{itl.get('mean') or itl.get('p50'):.2f}",
        implied=f"{implied:.1f}",
        concurrency=facts.concurrency,
        per_chunk=f"{implied / facts.concurrency:.1f}",
    )
    return Check("streaming", "warn", detail, (of.ITL,))


def token_count(facts: BenchFacts) -> Check:
    """Client and server count the same output tokens; where there is no server's count, asked for and come back."""
    server, client = facts.deltas.get("generation_tokens"), facts.total_output_tokens
    limit = facts.thresholds.limit("token_count", "warn")
    if not server or client is None:
        return _against_text(facts, limit)
    fields = {"client": units.show_count(client), "server": units.show_count(server)}
    if abs(client - server) <= limit * server:
        return Check("token_count", "pass", say("validity.token_count.pass", **fields))
    seconds = facts.duration_s
    rates = {
        f"{name}_rate": f"{n / seconds:.1f}" if seconds else "-" for name, n in (("server", server), ("client", client))
    }
    if client > server:
        return Check("token_count", "warn", say("validity.token_count.more", **fields, **rates), (of.THROUGHPUT,))
    return Check("token_count", "warn", say("validity.token_count.fewer", **fields, **rates), (of.THROUGHPUT,))


def _against_text(facts: BenchFacts, limit: float) -> Check:
    asked = facts.total_output_tokens
    if facts.text_tokens is not None and asked and abs(facts.text_tokens - asked) > limit * asked:
        counts = {"client": units.show_count(facts.text_tokens), "asked": units.show_count(asked)}
        return Check("token_count", "warn", say("validity.token_count.text", **counts))
    text = facts.retokenized
    if text is None or not asked or text >= asked * (1 - limit):
        return Check("token_count", "not_applicable", say("validity.token_count.unknown"))
    rate = f"{text / facts.duration_s:.1f}" if facts.duration_s else "-"
    fields = {"client": units.show_count(text), "asked": units.show_count(asked), "rate": rate}
    return Check("token_count", "warn", say("validity.token_count.asked", **fields), (of.THROUGHPUT, of.ITL))
