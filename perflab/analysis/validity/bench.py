"""Every check of one measured point, in reading order."""

from __future__ import annotations

from perflab.analysis.check import Check
from perflab.analysis.validity.client import bursts, client_saturated, definitions
from perflab.analysis.validity.facts import BenchFacts
from perflab.analysis.validity.figures import possible
from perflab.analysis.validity.load import concurrency, failures, offered_rate, samples
from perflab.analysis.validity.server import clocks, preemptions, prefix_hits, server_ttft
from perflab.analysis.validity.tokens import streaming, token_count
from perflab.analysis.validity.warm_up import pace, warm_up

_CHECKS = (
    definitions, failures, samples, possible, offered_rate, concurrency, bursts, client_saturated, prefix_hits,
    preemptions, clocks, warm_up, pace, streaming, token_count, server_ttft,
)  # fmt: skip


def bench_checks(facts: BenchFacts) -> list[Check]:
    """Every check of one measured point, in reading order."""
    return [check(facts) for check in _CHECKS]
