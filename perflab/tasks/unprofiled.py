"""The measured time a profiled step is held against, read off the points of the same run."""

from __future__ import annotations

import statistics

import pandas as pd

from perflab import units
from perflab.analysis.unprofiled import Unprofiled
from perflab.errors import InputError
from perflab.read.bench import read_bench
from perflab.runs import Run


def unprofiled_step(run: Run | None, steps: list[pd.DataFrame]) -> Unprofiled | None:
    """From the run's points with a limit of concurrency; None where none is as large as the profiled batch.

    Parameters
    ----------
    steps
        Tables `steps` of the ranks.
    """
    decode = [table.loc[table["phase"] == "decode", "decode_requests"].dropna() for table in steps]
    batches = pd.concat(decode) if decode else pd.Series(dtype="Int64")
    if run is None or batches.empty or run.manifest.engine.settings.get("speculative_config"):
        return None
    batch = int(batches.median())
    fitting = [
        point
        for point in run.manifest.points
        if point.kind == "serve" and point.bench and point.load.concurrency and point.load.concurrency >= batch
    ]
    for concurrency in sorted({point.load.concurrency or 0 for point in fitting}):
        alike = [point for point in fitting if point.load.concurrency == concurrency]
        times = [time for point in alike if (time := _median_tpot_ms(run, point.bench or "")) is not None]
        if times:
            step_ns = statistics.median(times) * units.NS_PER_MS
            return Unprofiled(step_ns, concurrency, alike[0].id, batch)
    return None


def _median_tpot_ms(run: Run, name: str) -> float | None:
    try:
        return read_bench(run.file(name)).reported.get("median_tpot_ms")
    except InputError:
        return None  # a breakdown needs no result
