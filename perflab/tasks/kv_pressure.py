"""How full the KV cache was over time, who waited for room, and who lost a place in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from perflab import schema, units
from perflab.errors import InputError
from perflab.read.prometheus import read_samples
from perflab.read.server_log import read_server_log
from perflab.read.step_records import read_step_records
from perflab.runs import Run

USE, WAITING, PREEMPTED = "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", "vllm:num_preemptions_total"
INTERVALS = 600
"""Step records are drawn as the largest value of so many equal intervals: a run has tens of thousands of steps."""

Source = Literal["step_records", "samples", "log"]


@dataclass(frozen=True)
class KvPressure:
    """What one run tells.

    Attributes
    ----------
    samples
        Table `samples` of `USE` (0 to 1), `WAITING`, and `PREEMPTED` (since the start of what is told), as far as
        each is told; `labels` is the engine, empty where there is one.
    source
        Where it comes from: a record per step, scrapes of /metrics during the points, or the line that the server logs
        every ten seconds.
    """

    samples: pd.DataFrame
    source: Source

    def most(self, metric: str) -> float | None:
        """The largest value of a metric; None where it is not told."""
        values = self.samples.loc[self.samples["metric"] == metric, "value"].dropna()
        return float(values.max()) if len(values) else None


def kv_pressure(run: Run) -> KvPressure | None:
    """From the most exact source that the run has; None where it has none."""
    sources: tuple[tuple[Source, Callable[[Run], pd.DataFrame]], ...] = (
        ("step_records", _of_step_records), ("samples", _of_samples), ("log", _of_log),
    )  # fmt: skip
    for source, read in sources:
        samples = read(run)
        if (samples["metric"] == USE).any():
            return KvPressure(samples, source)
    return None


def _of_step_records(run: Run) -> pd.DataFrame:
    parts = [read_step_records(run.file(one.file)).table for one in run.manifest.step_records]
    parts = [part[part["kv_usage"].notna()] for part in parts]
    if not any(len(part) for part in parts):
        return schema.empty("samples")
    # Servers follow one another, and each counts its own.
    steps = pd.concat(parts, ignore_index=True).sort_values("t_ns", kind="stable", ignore_index=True)
    steps["lost"] = steps.groupby("engine")["preemptions"].cumsum()
    width = max(int(steps["t_ns"].max() - steps["t_ns"].min()) // INTERVALS, 1)
    steps["t_ns"] = steps["t_ns"] // width * width
    most = steps.groupby(["engine", "t_ns"])[["kv_usage", "waiting", "lost"]].max().reset_index()
    return _long(most, {"kv_usage": USE, "waiting": WAITING, "lost": PREEMPTED})


def _of_samples(run: Run) -> pd.DataFrame:
    names = (USE, WAITING, PREEMPTED)
    files = [point.samples for point in run.manifest.points if point.samples is not None]
    parts = [read_samples(run.file(name), prefixes=names) for name in files]
    parts = [part[part["metric"].isin(names)] for part in parts]
    if not any(len(part) for part in parts):
        return schema.empty("samples")
    table = pd.concat(parts, ignore_index=True)
    lost = table["metric"] == PREEMPTED
    first = table[lost].sort_values("t_ns").groupby("labels")["value"].transform("first")
    table.loc[first.index, "value"] -= first
    return table


def _of_log(run: Run) -> pd.DataFrame:
    if run.manifest.log is None:
        return schema.empty("samples")
    try:
        lines = read_server_log(run.file(run.manifest.log)).throughput
    except InputError:
        return schema.empty("samples")
    lines = lines.assign(
        t_ns=(lines["seconds"] * units.NS_PER_S).astype("int64"),
        lost=lines.groupby("engine")["preemptions"].cumsum(),
    )
    return _long(lines, {"kv_cache_usage": USE, "waiting": WAITING, "lost": PREEMPTED})


def _long(table: pd.DataFrame, metrics: dict[str, str]) -> pd.DataFrame:
    several = table["engine"].nunique() > 1
    parts = [
        pd.DataFrame(
            {
                "t_ns": table["t_ns"].astype("int64"),
                "metric": metric,
                "labels": [f"engine={engine}" for engine in table["engine"]] if several else "",
                "value": table[column].astype("float64"),
            }
        ).dropna(subset="value")
        for column, metric in metrics.items()
    ]
    return pd.concat(parts, ignore_index=True)
