"""Are the figures possible, and do they agree with each other?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.latency import chunk_gaps, request_latencies
from perflab.analysis.validity.facts import BenchFacts
from perflab.messages import say

_LATENCIES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2el_ms": "E2EL"}
_TOUCHED = {"ttft_ms": of.TTFT, "tpot_ms": of.TPOT, "itl_ms": of.ITL, "e2el_ms": of.LATENCY}
_PERCENTILES = ("p50", "p90", "p95", "p99")
_ROUNDED = 0.011  # figures of two decimals may be wrong in the second


def possible(facts: BenchFacts) -> Check:
    """No figure that cannot be, and none that contradicts another."""
    found = [*_negative(facts), *_order(facts), *_peak(facts), *_rates(facts), *_first_chunk(facts)]
    if found:
        touched = tuple(dict.fromkeys(name for _, name in found))
        return Check("possible", "fail", " ".join(text for text, _ in found), touched)
    if not any(facts.metrics.get(name) for name in _LATENCIES):
        return Check("possible", "not_applicable", say("validity.possible.unknown"))
    return Check("possible", "pass", say("validity.possible.pass"))


def _negative(facts: BenchFacts) -> Iterator[tuple[str, str]]:
    for metric, words in _LATENCIES.items():
        for statistic in ("mean", *_PERCENTILES):
            value = (facts.metrics.get(metric) or {}).get(statistic)
            if value is not None and value < 0:
                yield (
                    say("validity.possible.negative", name=f"{words} {statistic}", value=f"{value:.2f} ms"),
                    _TOUCHED[metric],
                )
                break


def _order(facts: BenchFacts) -> Iterator[tuple[str, str]]:
    """Percentiles rise, and a first token comes no later than the last."""
    for metric, words in _LATENCIES.items():
        values = facts.metrics.get(metric) or {}
        known = [(name, values[name]) for name in _PERCENTILES if values.get(name) is not None]
        for (low, low_value), (high, high_value) in pairwise(known):
            if low_value > high_value + _ROUNDED:
                yield _above(f"{words} {low}", low_value, f"{words} {high}", high_value), _TOUCHED[metric]
                break
    first, last = ((facts.metrics.get(name) or {}).get("mean") for name in ("ttft_ms", "e2el_ms"))
    if first is not None and last is not None and first > last + _ROUNDED and "not_streamed" not in facts.marks:
        yield _above("TTFT mean", first, "E2EL mean", last), of.TTFT


def _above(low: str, low_value: float, high: str, high_value: float) -> str:
    fields = {"low": low, "low_value": f"{low_value:.2f} ms", "high": high, "high_value": f"{high_value:.2f} ms"}
    return say("validity.possible.order", **fields)


def _peak(facts: BenchFacts) -> Iterator[tuple[str, str]]:
    """The highest of whole seconds is at least the mean over the seconds that were begun."""
    peak, mean = facts.reported.get("max_output_tokens_per_s"), facts.metrics.get("output_tokens_per_s")
    if not peak or not mean or not facts.duration_s:
        return
    begun = (facts.duration_s + 1) / facts.duration_s
    if peak * begun < mean * (1 - facts.thresholds.limit("possible", "rate")):
        yield say("validity.possible.peak", peak=f"{peak:.1f}", mean=f"{mean:.1f}"), of.PEAK


def _rates(facts: BenchFacts) -> Iterator[tuple[str, str]]:
    """Rates that the client reports are its counts over its duration."""
    seconds = facts.duration_s
    for name, key, amount in (
        ("requests/s", "request_throughput", facts.completed),
        ("output tokens/s", "output_throughput", facts.total_output_tokens),
    ):
        told = facts.reported.get(key)
        if not seconds or told is None or not amount:
            continue
        derived = amount / seconds
        if abs(told - derived) > max(facts.thresholds.limit("possible", "rate") * derived, _ROUNDED):
            fields = {"reported": f"{told:.2f}", "amount": f"{amount:,}", "seconds": f"{seconds:.1f}"}
            yield say("validity.possible.rate", name=name, **fields, derived=f"{derived:.2f}"), of.THROUGHPUT


def _first_chunk(facts: BenchFacts) -> Iterator[tuple[str, str]]:
    """A first chunk without text: TTFT is short and the first gap holds the prefill (vllm-project/vllm issue 3759)."""
    if facts.requests is None or facts.chunks is None or facts.chunks.empty:
        return
    gaps = chunk_gaps(facts.requests, facts.chunks)
    groups = gaps.groupby("request_id", sort=False)["itl_ms"]
    enough = groups.size() >= facts.thresholds.limit("possible", "gaps")
    if not enough.any():
        return
    first, later = groups.first()[enough], groups.apply(lambda one: one.iloc[1:].median())[enough]
    ttft = request_latencies(facts.requests).set_index("request_id")["ttft_ms"].reindex(first.index)
    over_later = float(np.nanmedian(first / later)) if (later > 0).all() else float("nan")
    over_ttft = float(np.nanmedian(first / ttft)) if (ttft > 0).any() else float("nan")
    limit = facts.thresholds.limit("possible", "first_gap")
    if over_later >= limit and over_ttft >= limit:
        fields = {"ratio": f"{over_later:.0f}", "times": f"{over_ttft:.0f}"}
        yield say("validity.possible.first", **fields), of.TTFT
