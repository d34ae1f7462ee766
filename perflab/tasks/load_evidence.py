"""What a run's records say about each measured point: steps, gauges, processes, and the model's own ridge."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import pandas as pd

from perflab import units
from perflab.analysis.load.evidence import LoadEvidence, busiest, gauges_while_busy, step_figures
from perflab.analysis.model.quantization import with_settings
from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.step_work import peaks_of
from perflab.analysis.model.workload import split_of, workload
from perflab.errors import InputError
from perflab.knowledge.gpus import gpu_spec
from perflab.messages import say
from perflab.read.clock import ClockFile, read_clock
from perflab.read.prometheus import read_telemetry
from perflab.read.step_records import read_step_records
from perflab.runs import Engine, Hardware, Manifest, Point, Run
from perflab.schema import empty
from perflab.tasks.model_config import run_config
from perflab.tasks.observed import GAUGES, observed, spans

T = TypeVar("T")

_CLIENT, _ENGINE = "client_process_cpu_percent", "engine_process_cpu_percent"
_OF_ALL = {_CLIENT: "client_cpu_percent", _ENGINE: "engine_cpu_percent"}


def gpus_of(engine: Engine, hardware: Hardware) -> int | None:
    """GPUs that a run's engine used: the product of its parallel sizes; None where those or any GPU are not known."""
    if engine.flavour == "cpu":
        return None
    split = split_of(engine.settings)
    if any(name in engine.settings for name in ("tensor_parallel_size", "data_parallel_size")):
        return split.tensor * split.pipeline * split.data
    return len(hardware.gpus) or None


@dataclass(frozen=True)
class Balance:
    """Where the model's layers turn from bound by memory to bound by compute on this GPU.

    `tokens` of a step, None with experts, whose weights count by the tokens that reach them; `flops_per_token` and
    `peak` (operations a second) of one rank.
    """

    tokens: float | None
    flops_per_token: float
    peak: float


class RunRecords:
    """The records of one run, each file read once and only when a point asks for it.

    A file that is missing or damaged costs what it would have told, not the latencies: `problems` says so.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.problems: list[str] = []

    def _read(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except InputError as error:
            self.problems.append(say("load.not_read", run=self._run.manifest.title, why=error))
            return otherwise

    @property
    def manifest(self) -> Manifest:
        """The run's."""
        return self._run.manifest

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Table `iterations` of all servers; empty where there are none."""
        files = [one.file for one in self._run.manifest.step_records]
        none = empty("iterations")
        parts = [self._read(partial(self._step_records, name), none) for name in files]
        parts = [part for part in parts if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else empty("iterations")

    def _step_records(self, name: str) -> pd.DataFrame:
        return read_step_records(self._run.file(name)).table

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Gauges scraped during the points, and all telemetry."""
        return self._read(self._samples, empty("samples"))

    def _samples(self) -> pd.DataFrame:
        gauges = observed(self._run)
        if self._run.manifest.telemetry is None:
            return gauges
        telemetry = read_telemetry(self._run.file(self._run.manifest.telemetry))
        return pd.concat([gauges[gauges["metric"].isin(GAUGES)], telemetry], ignore_index=True)

    @cached_property
    def balance(self) -> Balance | None:
        """None where the model's shape, its formats or the GPU are not known."""
        manifest = self._run.manifest
        spec = next((spec for gpu in manifest.hardware.gpus if (spec := gpu_spec(gpu.name))), None)
        config = self._read(lambda: run_config(self._run), None)
        if spec is None or config is None or manifest.engine.flavour == "cpu":
            return None
        shape = _as_served(config, manifest.engine.settings)
        if shape is None:
            return None
        work = workload(shape, split_of(manifest.engine.settings), manifest.engine.settings)
        peaks = peaks_of(spec, work)
        if not work.linear or not peaks.linear:
            return None
        tokens = None if work.experts else work.balanced_tokens(peaks.linear, peaks.memory)
        return Balance(tokens, work.flops_per_token, peaks.linear)

    def window(self, point: Point, requests: pd.DataFrame | None) -> tuple[int, int] | None:
        """When requests of a point were under way, nanoseconds since the epoch; None where nothing tells.

        From the first request sent to the last ended where the client's clock is tied to the epoch; else from the start
        of the client's process to its end, in which it also loads and prepares.
        """
        anchors = self._clock.of_point(point.id) if self._clock and self._clock.is_shared else ()
        if anchors and requests is not None and requests["arrival_ns"].notna().any():
            offset = int(statistics.median(anchor.offset_ns for anchor in anchors))
            first, last = int(requests["arrival_ns"].min()), requests["finish_ns"].max()
            if pd.notna(last):
                return first + offset, int(last) + offset
        known = spans(self._run)
        known = known[known["point"] == point.id]
        return (int(known["start_ns"].iloc[0]), int(known["end_ns"].iloc[0])) if len(known) else None

    @cached_property
    def _clock(self) -> ClockFile | None:
        name = self._run.manifest.clock
        return None if name is None else self._read(lambda: read_clock(self._run.file(name)), None)


def load_evidence(
    records: RunRecords,
    point: Point,
    requests: pd.DataFrame | None,
    metrics: Mapping[str, Any],
    *,
    deltas: Mapping[str, float],
    means: Mapping[str, float],
    settings: Mapping[str, Any],
) -> LoadEvidence:
    """Everything the run's records say about one point; what it lacks stays None.

    Parameters
    ----------
    metrics
        Of the point, as `latency_metrics` gives them.
    deltas, means
        Of the server's counters and histograms over the point.
    """
    balance = records.balance
    rate = metrics.get("total_tokens_per_s")
    known: dict[str, Any] = {
        "preemptions": deltas.get("num_preemptions"),
        "queue_ms": _ms(means.get("request_queue_time_seconds")),
        "prefill_ms": _ms(means.get("request_prefill_time_seconds")),
        "ridge_tokens": balance and balance.tokens,
        "compute_share": balance.flops_per_token * rate / balance.peak if balance and rate else None,
    }
    window = records.window(point, requests)
    if window is None:
        return LoadEvidence(**known)
    steps = records.steps
    inside = steps[steps["t_ns"].between(*window)]
    budget = settings.get("max_num_batched_tokens")
    figures = step_figures(
        inside, ridge=known["ridge_tokens"], budget=float(budget) if isinstance(budget, int | float) else None
    )
    gauges = gauges_while_busy(records.samples, *window)
    nothing = (None, None)
    return LoadEvidence(
        steps=figures,
        running=gauges.get("vllm:num_requests_running", nothing)[0],
        waiting=gauges.get("vllm:num_requests_waiting", nothing)[0],
        most_waiting=gauges.get("vllm:num_requests_waiting", nothing)[1],
        kv_usage=gauges.get("vllm:kv_cache_usage_perc", nothing)[1],
        client_cpu=_cpu(records.samples, _CLIENT, window),
        engine_cpu=_cpu(records.samples, _ENGINE, window),
        **known,
    )


def _cpu(samples: pd.DataFrame, metric: str, window: tuple[int, int]) -> float | None:
    """The busiest process; the sum of all where single ones were not sampled. A sample covers the time before it."""
    found = busiest(samples, metric, *window)
    return busiest(samples, _OF_ALL[metric], *window) if found is None else found


def _as_served(config: Mapping[str, Any], settings: Mapping[str, Any]) -> ModelShape | None:
    """The model's shape with the quantization that counts; None where either is not known."""
    shape = model_shape(config)
    if not isinstance(shape, ModelShape):
        return None
    quantization = with_settings(shape.quantization, settings)
    asked = settings.get("quantization") or config.get("quantization_config")
    return None if quantization is None and asked else replace(shape, quantization=quantization)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * units.NS_PER_S / units.NS_PER_MS
