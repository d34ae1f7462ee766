"""How did it go over time? Every run below a folder, each figure as a series, and where its level changed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from perflab.analysis.history import FEWEST, Change, Levels, differences, holm, levels
from perflab.analysis.latency import RATES
from perflab.errors import InputError
from perflab.messages import say
from perflab.tasks.history_index import METRICS, Index, RunRecord, index_of

DEFAULT_METRICS = ("output_tokens_per_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms")
_NEIGHBOURS = 10
_OFFSETS = (1, -1, 2, -2)
_FIRST = ("vLLM", "torch", "machine", "driver", "build", "Python")
_KEY = ("model", "hardware", "workload", "data", "input_len", "output_len", "load")


@dataclass(frozen=True)
class Difference:
    """One fact that differs around a change.

    `steady`: it had one value in the runs before and one in those after. `offset`: where it changed, in runs after the
    change; not 0 where nothing steady changed just there, since a change may be placed a run or two off.
    """

    key: str
    before: Any
    after: Any
    steady: bool
    offset: int = 0


@dataclass(frozen=True)
class Series:
    """One metric of one measurement (model, hardware, workload, lengths, load) over the runs.

    Attributes
    ----------
    rows
        The rows of `HistoryReport.table` it consists of, in order of time.
    found
        Change points and trend; positions count rows.
    differences
        For each change what else changed there.
    """

    key: dict[str, Any]
    metric: str
    rows: pd.DataFrame
    found: Levels
    differences: list[list[Difference]]

    @property
    def name(self) -> str:
        """`closed, 512 in, 128 out, c32`."""
        lengths = [f"{self.key[which]} {word}" for which, word in (("input_len", "in"), ("output_len", "out"))
                   if self.key[which] is not None]  # fmt: skip
        return ", ".join([str(self.key["workload"]), *lengths, str(self.key["load"])])

    def verdict(self, change: Change) -> str:
        """`better` or `worse`."""
        rises = change.after > change.before
        return "better" if rises == (self.metric in RATES) else "worse"

    def to_json(self) -> dict[str, Any]:
        """The series of the JSON document."""
        rows = self.rows.to_dict("records")
        return {
            **self.key,
            "metric": self.metric,
            "n": self.found.n,
            "too_few": self.found.too_few,
            "points": [
                {name: row[name] for name in ("run", "created", "vllm_version", "value", "repeats")} for row in rows
            ],
            "trend": None
            if self.found.trend is None
            else {
                "since": rows[self.found.trend.start]["run"],
                "share_per_run": self.found.trend.slope,
                "p": self.found.trend.p,
            },
            "changes": [
                {
                    "last_before": rows[change.at - 1]["run"],
                    "first_after": rows[change.at]["run"],
                    "p": change.p,
                    "before": change.before,
                    "after": change.after,
                    "ratio": change.ratio,
                    "verdict": self.verdict(change),
                    "differences": [
                        {"key": d.key, "before": d.before, "after": d.after, "steady": d.steady, "offset": d.offset}
                        for d in found
                    ],
                }
                for change, found in zip(self.found.changes, self.differences, strict=True)
            ],
        }


@dataclass(frozen=True)
class HistoryReport:
    """What `history` answers.

    Attributes
    ----------
    table
        One row a run, point and metric: `run`, `created`, `vllm_version`, `model`, `hardware`, `workload`, `data`,
        `input_len`, `output_len`, `load`, `metric`, `value` (median of the run's repeats), `repeats`. In order of time.
    series
        The same by measurement and metric, with what was found in it.
    skipped
        Runs and points without figures, and why.
    """

    folder: str
    runs: int
    table: pd.DataFrame
    series: list[Series]
    skipped: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The document of `perflab history --json`."""
        return {
            "schema": 1,
            "inputs": [self.folder],
            "runs": self.runs,
            "series": [series.to_json() for series in self.series],
            "skipped": self.skipped,
        }


def history(
    folder: str | Path,
    metrics: Sequence[str] = (),
    *,
    alpha: float = 0.05,
    on_read: Callable[[int], None] | None = None,
) -> HistoryReport:
    """Runs over time.

    Parameters
    ----------
    folder
        Holds run directories, captured or imported, at any depth.
    metrics
        Names of `METRICS`; default: `DEFAULT_METRICS`.
    alpha
        At most this share of reports shows any change where nothing changed (Holm over all series).
    on_read
        See `index_of`.

    Raises
    ------
    InputError
        No such folder, no run in it, no such metric, or no figures.
    """
    wanted = tuple(metrics) or DEFAULT_METRICS
    if unknown := [name for name in wanted if name not in METRICS]:
        raise InputError(say("history.no_such_metric", name=unknown[0], known=", ".join(METRICS)))
    index = index_of(Path(folder), on_read=on_read)
    table = _table(index, wanted)
    skipped = [
        f"{name}: {why}"
        for name, run in index.runs.items()
        for why in [*([run.error] if run.error else []), *run.skipped]
    ]
    if table.empty:
        reasons = f": {'; '.join(skipped[:3])}" if skipped else ""
        raise InputError(say("history.nothing", reasons=reasons), path=folder)
    return HistoryReport(str(folder), len(index.runs), table, _series(table, index, wanted, alpha), skipped)


def _table(index: Index, metrics: Sequence[str]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for name, run in sorted(index.runs.items(), key=lambda item: (item[1].created, item[0])):
        for key, values in _by_measurement(run).items():
            rows += [
                {
                    "run": name, "created": run.created, "vllm_version": run.vllm_version,
                    **dict(zip(_KEY, key, strict=True)), "metric": metric,
                    "value": statistics.median(values[metric]), "repeats": len(values[metric]),
                }
                for metric in metrics if metric in values
            ]  # fmt: skip
    return pd.DataFrame(rows, columns=["run", "created", "vllm_version", *_KEY, "metric", "value", "repeats"]).astype(
        {"input_len": "Int64", "output_len": "Int64"}
    )


def _by_measurement(run: RunRecord) -> dict[tuple[Any, ...], dict[str, list[float]]]:
    """The values of a run's repeats by measurement and metric."""
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for point in run.points:
        model = point.model or run.model
        # Where a model lies differs from machine to machine; what it is called does not.
        model = None if model is None else PurePosixPath(model).name
        key = (model, run.hardware, point.workload, point.data, point.input_len, point.output_len, point.load)
        values = found.setdefault(key, {})
        for metric, value in point.metrics.items():
            values.setdefault(metric, []).append(value)
    return found


def _series(table: pd.DataFrame, index: Index, metrics: Sequence[str], alpha: float) -> list[Series]:
    groups = [
        (dict(zip(_KEY, (None if pd.isna(part) else part for part in key[:-1]), strict=True)), str(key[-1]), rows)
        for key, rows in table.groupby([*_KEY, "metric"], sort=False, dropna=False)
    ]
    first = [levels(rows["value"].tolist(), alpha=alpha, most_p=0.0) for _, _, rows in groups]
    limits = holm([found.p for found in first], alpha)
    series = []
    for (key, metric, rows), limit in zip(groups, limits, strict=True):
        ordered = rows.reset_index(drop=True)
        found = levels(ordered["value"].tolist(), alpha=alpha, most_p=limit)
        series.append(Series(key, metric, ordered, found, [
            _differences(ordered, found, place, index) for place in range(len(found.changes))
        ]))  # fmt: skip
    return sorted(series, key=lambda one: (*(str(part) for part in one.key.values()), metrics.index(one.metric)))


def _differences(rows: pd.DataFrame, found: Levels, place: int, index: Index) -> list[Difference]:
    """Facts that differ between the runs before a change and those after it, the telling ones first."""
    start, at, end = found.bounds[place : place + 3]
    facts = [index.facts.get(index.runs[name].facts, {}) for name in rows["run"].iloc[start:end]]
    here = _differing(facts, at - start, 0)
    if any(one.steady for one in here):
        return here
    for offset in _OFFSETS:
        if 0 < at - start + offset < len(facts):
            near = [one for one in _differing(facts, at - start + offset, offset) if one.steady]
            if near:
                return [*near, *here]
    return here


def _differing(facts: Sequence[dict[str, Any]], at: int, offset: int) -> list[Difference]:
    before, after = facts[max(0, at - _NEIGHBOURS) : at], facts[at : at + _NEIGHBOURS]
    out = []
    for key, old, new in differences(before[-1], after[0]):
        steady = all(one.get(key) == old for one in before) and all(one.get(key) == new for one in after)
        out.append(Difference(key, old, new, steady, offset))
    return sorted(out, key=lambda d: (not d.steady, _FIRST.index(d.key) if d.key in _FIRST else len(_FIRST), d.key))


__all__ = ["DEFAULT_METRICS", "FEWEST", "METRICS", "Difference", "HistoryReport", "Series", "history"]
