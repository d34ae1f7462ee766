"""What the checks of one measured point need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perflab.analysis import check as of
from perflab.knowledge.thresholds import Thresholds, own_thresholds

EVERYTHING = (of.LATENCY, of.THROUGHPUT, of.LOAD)


@dataclass(frozen=True)
class MachineView:
    """What telemetry tells of the time a point was measured; None where it was not sampled.

    Attributes
    ----------
    client_cpu_percent
        Median CPU use of the client's processes; 100 is one core.
    low_clock_mhz, high_clock_mhz
        SM clock that a busy GPU was at or below for a tenth of its time (the slowest GPU's), and the highest seen.
    throttled_by
        Why clocks were held down, in NVML's words, if for a tenth of the busy time or more.
    """

    client_cpu_percent: float | None = None
    low_clock_mhz: float | None = None
    high_clock_mhz: float | None = None
    throttled_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchFacts:
    """What the checks need of one measured point; None or empty where it is not known.

    Attributes
    ----------
    rate, concurrency
        As asked for: requests a second (None: all at once) and requests at once (None: no limit).
    metrics
        From `latency_metrics` or `metrics_from_reported`.
    requests, chunks
        Tables, None where the result is not detailed.
    data
        Kind of prompts; one whose name holds `prefix` is meant to hit the prefix cache.
    deltas
        Growth of the server's counters during the point, from `counter_deltas`.
    server_means
        Means of the server's histograms, from `histogram_means`.
    thresholds
        Perflab's own, or those a user set.
    client, marks
        Who measured, and where its definitions are not vLLM's (codes of `knowledge/clients.toml`).
    burstiness, arrivals
        Shape of the gamma distribution of gaps between arrivals (1: Poisson), and the pattern in the client's words.
    reported
        The client's own aggregates under vLLM's names.
    retokenized
        Output tokens counted from the text that came, where the client counts both.
    text_tokens
        The same, where `total_output_tokens` is what the server reported.
    schedule_delay_s
        A tenth of the requests were sent this much later than planned, or more.
    machine
        From telemetry; None where there is none.
    """

    completed: int | None
    failed: int | None
    num_prompts: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    total_output_tokens: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    requests: pd.DataFrame | None = None
    chunks: pd.DataFrame | None = None
    data: str = "random"
    deltas: Mapping[str, float] = field(default_factory=dict)
    server_means: Mapping[str, float] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=own_thresholds)
    client: str = "vllm bench"
    marks: tuple[str, ...] = ()
    burstiness: float | None = None
    arrivals: str | None = None
    reported: Mapping[str, float | None] = field(default_factory=dict)
    retokenized: int | None = None
    text_tokens: int | None = None
    schedule_delay_s: float | None = None
    machine: MachineView | None = None
