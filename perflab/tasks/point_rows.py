"""Measured points as a table: one row each, with the statistics and rates that are looked at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflab.analysis.latency import DISTRIBUTIONS, RATES
from perflab.tasks.measured_facts import differing

if TYPE_CHECKING:
    from perflab.tasks.latency import MeasuredPoint

SHOWN = ("mean", "p50", "p90", "p95", "p99")
PER_GPU = tuple(f"{of}_tokens_per_s_per_gpu" for of in ("input", "output", "total"))


def point_rows(measured: Sequence[MeasuredPoint]) -> pd.DataFrame:
    """The table of `perflab.tasks.latency.LatencyReport.points`, which says what its columns are."""
    return pd.DataFrame([_row(one) for one in measured], columns=_columns())


def per_gpu(metrics: Mapping[str, Any], gpus: int | None) -> dict[str, float | None]:
    """Rates of tokens over the GPUs that made them; None where either is not known."""
    rates = {name: metrics.get(name.removesuffix("_per_gpu")) for name in PER_GPU}
    return {name: rate / gpus if rate is not None and gpus else None for name, rate in rates.items()}


def _columns() -> list[str]:
    facts = ["run", "point", "workload", "data", "input_len", "output_len", "load", "concurrency", "rate"]
    facts += ["repeat", "server_run", "num_prompts", "completed", "failed", "duration_s", "client", "differs"]
    statistics = [f"{name.removesuffix('_ms')}_{shown}_ms" for name in DISTRIBUTIONS for shown in SHOWN]
    return [*facts, *statistics, *RATES, "gpus", *PER_GPU, "source"]


def _words(metrics: Sequence[str]) -> str | None:
    """Metrics for a reader: `TTFT, ITL, output tokens/s`; None for none."""
    named = [
        m.removesuffix("_ms").upper() if m.endswith("_ms") else m.replace("_per_s", "/s").replace("_", " ")
        for m in metrics
    ]
    return ", ".join(named) or None


def _row(measured: MeasuredPoint) -> dict[str, Any]:
    point, result, metrics = measured.point, measured.result, measured.metrics
    row: dict[str, Any] = {
        "run": measured.run,
        "point": point.id,
        "workload": point.workload,
        "data": point.data,
        "input_len": point.input_len,
        "output_len": point.output_len,
        "load": point.load.label,
        "concurrency": point.load.concurrency,
        "rate": point.load.rate,
        "repeat": point.repeat,
        "server_run": point.server_run,
        "num_prompts": point.num_prompts or result.meta.num_prompts,
        "completed": result.completed,
        "failed": result.failed,
        "duration_s": result.duration_s,
        "client": result.client,
        "differs": _words(differing(result)),
        "source": metrics["source"],
    }
    for name in DISTRIBUTIONS:
        for shown in SHOWN:
            row[f"{name.removesuffix('_ms')}_{shown}_ms"] = (metrics[name] or {}).get(shown)
    return row | {rate: metrics[rate] for rate in RATES} | {"gpus": measured.gpus} | per_gpu(metrics, measured.gpus)
