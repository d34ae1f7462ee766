"""Telemetry of the time a point was measured -> what the checks want of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perflab.analysis.validity.facts import MachineView
from perflab.knowledge.throttle_reasons import throttle_reasons

_BUSY_PERCENT = 50.0
_FEWEST = 5
_TENTH = 10.0


def machine_view(samples: pd.DataFrame, start_ns: int, end_ns: int) -> MachineView:
    """What telemetry says of one window.

    Parameters
    ----------
    samples
        Table `samples` with telemetry of the whole run: a GPU's highest clock is looked for in all of it.
    start_ns, end_ns
        The window, nanoseconds since the epoch.
    """
    inside = samples[samples["t_ns"].between(start_ns, end_ns)]
    client = inside.loc[inside["metric"] == "client_cpu_percent", "value"]
    low, reasons = _slowest(inside)
    clocks = samples.loc[samples["metric"] == "gpu_sm_clock_mhz", "value"]
    return MachineView(
        client_cpu_percent=float(client.median()) if len(client) >= _FEWEST else None,
        low_clock_mhz=low,
        high_clock_mhz=float(clocks.max()) if len(clocks) else None,
        throttled_by=reasons,
    )


def _slowest(inside: pd.DataFrame) -> tuple[float | None, tuple[str, ...]]:
    """The lowest of the GPUs' clocks at their tenth percentile while busy, and why that GPU was held down."""
    gpus = inside[inside["metric"].isin(("gpu_sm_clock_mhz", "gpu_utilization_percent", "gpu_throttle_reasons"))]
    found: list[tuple[float, tuple[str, ...]]] = []
    for _, one in gpus.groupby("labels", sort=False):
        wide = one.drop_duplicates(["t_ns", "metric"]).pivot(index="t_ns", columns="metric", values="value")
        if not {"gpu_sm_clock_mhz", "gpu_utilization_percent"} <= set(wide.columns):
            continue
        busy = wide[wide["gpu_utilization_percent"] >= _BUSY_PERCENT]
        clocks = busy["gpu_sm_clock_mhz"].dropna()
        if len(clocks) >= _FEWEST:
            found.append((float(np.percentile(clocks, _TENTH)), _reasons(busy)))
    return min(found, default=(None, ()), key=lambda one: one[0])


def _reasons(busy: pd.DataFrame) -> tuple[str, ...]:
    if "gpu_throttle_reasons" not in busy:
        return ()
    bits = busy["gpu_throttle_reasons"].dropna().to_numpy(np.int64)
    return tuple(
        words for bit, words in throttle_reasons().items() if len(bits) and 100 * np.mean((bits & bit) != 0) >= _TENTH
    )
