"""Where does the GPU memory go? As the engine's own log tells it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from perflab import schema
from perflab.read.server_log import read_server_log
from perflab.runs import Run
from perflab.tasks.find import find_runs


def memory(runs: str | Path | Sequence[str | Path] | Sequence[Run]) -> pd.DataFrame:
    """Table `memory` of each run, with `run` (its title), `kv_cache_tokens` and `max_concurrency` besides.

    Runs without a log, or whose log does not tell, have no rows.
    """
    parts = []
    for run in _opened(runs):
        if run.manifest.log is None:
            continue
        log = read_server_log(run.file(run.manifest.log))
        parts.append(
            log.memory.assign(
                run=run.manifest.title, kv_cache_tokens=log.kv_cache_tokens, max_concurrency=log.max_concurrency
            )
        )
    if not parts:
        return schema.empty("memory").assign(run=[], kv_cache_tokens=[], max_concurrency=[])
    return pd.concat(parts, ignore_index=True)


def _opened(runs: str | Path | Sequence[str | Path] | Sequence[Run]) -> list[Run]:
    if isinstance(runs, str | Path):
        return find_runs(runs)
    return [one for run in runs for one in ([run] if isinstance(run, Run) else find_runs(run))]
