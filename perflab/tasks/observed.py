"""What the engine's gauges and the machine did while a run was measured."""

from __future__ import annotations

from datetime import datetime

import pandas as pd

from perflab import schema, units
from perflab.read.prometheus import read_samples, read_telemetry
from perflab.runs import Run

GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
TELEMETRY = (
    "gpu_power_watts",
    "gpu_utilization_percent",
    "gpu_sm_clock_mhz",
    "engine_cpu_percent",
    "client_cpu_percent",
)


def observed(run: Run) -> pd.DataFrame:
    """Table `samples` of a run: `GAUGES` scraped during its points, and `TELEMETRY` all through it.

    Empty where nothing was sampled.
    """
    parts = [
        read_samples(run.file(point.samples), prefixes=GAUGES)
        for point in run.manifest.points
        if point.samples is not None
    ]
    parts = [part[part["metric"].isin(GAUGES)] for part in parts]
    if run.manifest.telemetry is not None:
        telemetry = read_telemetry(run.file(run.manifest.telemetry))
        parts.append(telemetry[telemetry["metric"].isin(TELEMETRY)])
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else schema.empty("samples")


def spans(run: Run) -> pd.DataFrame:
    """When each measured point ran: `point`, `load`, `start_ns`, `end_ns`, in order; not those that never ended."""
    rows = [
        (point.id, point.load.label, _ns(point.started), _ns(point.ended))
        for point in run.manifest.points
        if point.started and point.ended
    ]
    return pd.DataFrame(rows, columns=["point", "load", "start_ns", "end_ns"]).sort_values(
        "start_ns", ignore_index=True
    )


def _ns(moment: str) -> int:
    return units.ns_from_seconds(datetime.fromisoformat(moment).timestamp())
