"""Do the figures of one measured point agree with one another? Laws that hold for any server, held against figures of
different origin: the load asked for, the client's means, the server's gauges.

Little's law (J. D. C. Little, 1961): mean requests in flight = requests a second x mean E2EL. The same for those that
have their first token: output tokens a second x mean time of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say


@dataclass(frozen=True)
class LoadFacts:
    """What the laws need of one point; None where it is not known.

    Attributes
    ----------
    metrics
        From `latency_metrics` or `metrics_from_reported`.
    concurrency
        Requests at once that were asked for.
    in_flight
        Mean over time of requests in flight by the client's times of each request.
    server_in_flight
        Mean over the point of requests running and waiting by the server's gauges or step records.
    """

    metrics: Mapping[str, Any]
    concurrency: int | None = None
    in_flight: float | None = None
    server_in_flight: float | None = None
    thresholds: Thresholds = field(default_factory=own_thresholds)


def consistency_checks(facts: LoadFacts) -> list[Check]:
    """Every law, in reading order."""
    return [_little(facts), _server_little(facts), _tokens(facts), _parts(facts)]


def little(metrics: Mapping[str, Any]) -> float | None:
    """Requests in flight by Little's law; None where rate or mean E2EL were not measured."""
    rate, life = metrics.get("requests_per_s"), _mean(metrics, "e2el_ms")
    return rate * life / 1000 if rate and life else None


def decoding(metrics: Mapping[str, Any]) -> float | None:
    """Requests that have their first token and not their last: output tokens a second x mean TPOT.

    Exact where all answers have the same length; else requests count alike in TPOT and by their tokens in the rate.
    """
    rate, each = metrics.get("output_tokens_per_s"), _mean(metrics, "tpot_ms")
    return rate * each / 1000 if rate and each else None


def _little(facts: LoadFacts) -> Check:
    law = little(facts.metrics)
    known = facts.in_flight if facts.in_flight is not None else facts.concurrency
    if law is None or known is None:
        return Check("little", "not_applicable", say("consistency.little.unknown"))
    slack = facts.thresholds.limit("consistency", "warn")
    fields = {"law": _show(law), "asked": _show(facts.concurrency), "known": _show(known)}
    if facts.concurrency is not None and law > facts.concurrency * (1 + slack):
        return Check("little", "fail", say("consistency.little.over", **fields), (of.LATENCY, of.THROUGHPUT, of.LOAD))
    if facts.in_flight is not None:
        if abs(law - known) > slack * max(law, known):
            return Check("little", "warn", say("consistency.little.differ", **fields), (of.THROUGHPUT, of.LOAD))
        return Check("little", "pass", say("consistency.little.pass", **fields))
    if law < known * (1 - facts.thresholds.limit("load_kept", "warn")):
        return Check("little", "warn", say("consistency.little.under", **fields), (of.LOAD,))
    return Check("little", "pass", say("consistency.little.asked", **fields))


def _server_little(facts: LoadFacts) -> Check:
    law, server = little(facts.metrics), facts.server_in_flight
    if law is None or server is None:
        return Check("little_server", "not_applicable", say("consistency.server.unknown"))
    fields = {"law": _show(law), "server": _show(server)}
    if abs(law - server) <= max(facts.thresholds.limit("load_kept", "warn") * max(law, server), 0.5):
        return Check("little_server", "pass", say("consistency.server.pass", **fields))
    name = "outside" if law > server else "others"
    return Check("little_server", "warn", say(f"consistency.server.{name}", **fields), (of.LATENCY, of.LOAD))


def _tokens(facts: LoadFacts) -> Check:
    busy = decoding(facts.metrics)
    most = facts.concurrency if facts.concurrency is not None else facts.in_flight
    most = little(facts.metrics) if most is None else most
    if busy is None or most is None:
        return Check("tokens_in_flight", "not_applicable", say("consistency.tokens.unknown"))
    fields = {"busy": _show(busy), "most": _show(most), "tpot": _time(facts.metrics, "tpot_ms")}
    if busy <= most * (1 + facts.thresholds.limit("consistency", "tokens")):
        return Check("tokens_in_flight", "pass", say("consistency.tokens.pass", **fields))
    return Check("tokens_in_flight", "warn", say("consistency.tokens.over", **fields), (of.THROUGHPUT, of.ITL))


def _parts(facts: LoadFacts) -> Check:
    """Mean E2EL = mean TTFT + time of all further tokens."""
    whole, first = _mean(facts.metrics, "e2el_ms"), _mean(facts.metrics, "ttft_ms")
    rate, busy = facts.metrics.get("requests_per_s"), decoding(facts.metrics)
    tokens = facts.metrics.get("output_tokens_per_s")
    if whole is None or first is None or not rate or busy is None or not tokens:
        return Check("latency_parts", "not_applicable", say("consistency.parts.unknown"))
    # Of each request's tokens the first is TTFT's.
    rest = busy * 1000 / rate * (1 - min(rate / tokens, 1.0))
    fields = {
        "whole": units.show_time(whole * units.NS_PER_MS),
        "parts": units.show_time((first + rest) * units.NS_PER_MS),
    }
    if abs(first + rest - whole) <= facts.thresholds.limit("consistency", "tokens") * whole:
        return Check("latency_parts", "pass", say("consistency.parts.pass", **fields))
    return Check("latency_parts", "warn", say("consistency.parts.differ", **fields), (of.ITL,))


def _mean(metrics: Mapping[str, Any], name: str) -> float | None:
    found = (metrics.get(name) or {}).get("mean")
    return None if found is None else float(found)


def _time(metrics: Mapping[str, Any], name: str) -> str:
    return units.show_time((_mean(metrics, name) or 0.0) * units.NS_PER_MS)


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:,.{2 if value < 10 else 1}f}".rstrip("0").rstrip(".")
