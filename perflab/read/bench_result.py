"""One benchmark result, whoever's client measured it: what every reader of `perflab.read` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

Kind = Literal["serve", "latency", "throughput", "startup", "forward"]
VLLM = "vllm bench"
"""The client whose definitions all figures are held to."""

Clock = Literal["client", "epoch", "per_request"]


@dataclass(frozen=True)
class BenchMeta:
    """What was asked of the benchmark; what the file does not tell is None.

    `request_rate` None with `rate_unbounded` True means everything was sent at once (vLLM's "inf").
    `extra` holds what `--metadata` and `vllm bench sweep` added, and any key this reader does not know.
    """

    model: str | None = None
    tokenizer: str | None = None
    backend: str | None = None
    label: str | None = None
    date: str | None = None
    num_prompts: int | None = None
    request_rate: float | None = None
    rate_unbounded: bool = False
    max_concurrency: int | None = None
    burstiness: float | None = None
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchResult:
    """One benchmark result.

    Attributes
    ----------
    failed, failed_inferred
        Failed requests; inferred as num_prompts - completed where the file does not say.
    reported
        Every metric the file reports under vLLM's name and in vLLM's unit; None where it was not measured.
        Percentile lists become `p50_latency` and so on.
    series
        Values per iteration or position, in vLLM's unit (seconds): `latencies` of `bench latency`, and of
        `bench serve` results that are not detailed, where None is a request that got no answer.
    requests, chunks
        Tables of `perflab.schema`, None when the result is not detailed. `requests` has three more columns:
        `ttft_ns`, `latency_ns`, `queue_ns` (in the client, before sending), Int64 with NA.
    clock
        `client`: times are the client's perf_counter. `epoch`: nanoseconds since 1970. `per_request`: the file has no
        start times; every request counts from 0 and `arrival_ns` is NA, so use `ttft_ns` and `latency_ns`. None
        without tables.
    latency_from_gaps
        The file has no latency per request; `latency_ns` is TTFT plus all gaps, about a microsecond too long.
    client
        Who measured, as its makers write the name.
    marks
        Where the client's definitions or counts are not vLLM's, as codes of `knowledge/clients.toml`.
    """

    path: Path
    kind: Kind
    meta: BenchMeta
    completed: int | None = None
    failed: int | None = None
    failed_inferred: bool = False
    duration_s: float | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    reported: Mapping[str, float | None] = field(default_factory=dict)
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    requests: pd.DataFrame | None = None
    chunks: pd.DataFrame | None = None
    clock: Clock | None = None
    latency_from_gaps: bool = False
    notes: tuple[str, ...] = ()
    client: str = VLLM
    marks: tuple[str, ...] = ()
