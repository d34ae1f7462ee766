"""What readers of other clients share: numbers, statistics under vLLM's names, and tables of requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perflab.read.bench_result import BenchResult
from perflab.schema import conform
from perflab.units import NS_PER_S

_MOST_NS = 1 << 62
_STATISTICS = {"mean": "mean", "avg": "mean", "median": "median", "std": "std", "std_dev": "std", "stddev": "std"}


@dataclass(frozen=True)
class Row:
    """One request. Times in ns on the client's clock, None where the file does not tell.

    `chunks` are the moments at which chunks arrived, the first token's first; empty where only some are known.
    """

    arrival_ns: int | None
    first_ns: int | None
    finish_ns: int | None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ok: bool = True
    chunks: Sequence[int] = ()


def at(value: Any, *keys: str | int) -> Any:
    """`value[key][key]...`, None where any of it is missing or of another shape."""
    for key in keys:
        if isinstance(value, Mapping) or (isinstance(value, list) and isinstance(key, int) and -len(value) <= key):
            try:
                value = value[key]  # type: ignore[index]
            except (KeyError, IndexError):
                return None
        else:
            return None
    return value


def number(value: Any) -> float | None:
    """A finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def positive(value: Any) -> float | None:
    """A number above 0, None for anything else: clients write 0 where nothing was measured."""
    found = number(value)
    return found if found is not None and found > 0 else None


def count(value: Any) -> int | None:
    """A whole number of things, None for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < _MOST_NS else None


def text(value: Any) -> str | None:
    """A name; the first of a list of names."""
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) and value else None


def moment(value: Any, scale: float = NS_PER_S) -> int | None:
    """A time in units of `scale` nanoseconds as whole nanoseconds; None where it is none or out of range."""
    if isinstance(value, int) and not isinstance(value, bool) and scale == 1:
        return value if abs(value) < _MOST_NS else None
    found = number(value)
    return round(found * scale) if found is not None and abs(found) * scale < _MOST_NS else None


def family(name: str, statistics: Any, scale: float) -> dict[str, float | None]:
    """Statistics of one latency under vLLM's names: `mean_ttft_ms`, `p99_ttft_ms`, ...

    Parameters
    ----------
    name
        `ttft`, `tpot`, `itl` or `e2el`.
    statistics
        By the client's names: `avg` or `mean`, `median`, `std`, `p90`, `p99.9` or `p99p9`.
    scale
        What a value is multiplied by to be milliseconds.

    Returns
    -------
    dict
        Empty where no statistic is above 0: clients write 0, or nothing, where nothing was measured.
    """
    found: dict[str, float | None] = {}
    for key, value in statistics.items() if isinstance(statistics, Mapping) else ():
        shown = _STATISTICS.get(str(key)) or _percentile(str(key))
        known = number(value)
        if shown and known is not None:
            found[f"{shown}_{name}_ms"] = known * scale
    return found if any(found.values()) else {}


def _percentile(key: str) -> str | None:
    digits = key.removeprefix("p").replace("p", ".")
    value = number_of(digits) if key.startswith("p") and digits[:1].isdigit() else None
    return f"p{value:g}" if value is not None and value <= 100 else None


def number_of(word: str) -> float | None:
    """A number written out, with commas between thousands or not; None for anything else."""
    try:
        return number(float(word.replace(",", "").strip()))
    except ValueError:
        return None


def known(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Only what is known."""
    return {key: value for key, value in values.items() if value is not None}


def tables(rows: Sequence[Row]) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Tables `requests` and `chunks` in the order of arrival; no chunks where no request tells them all.

    Times and tokens of failed requests are NA.
    """
    rows = sorted(rows, key=lambda row: (row.arrival_ns is None, row.arrival_ns or 0))
    ok = [row.ok for row in rows]
    first = _whole([row.first_ns if row.ok else None for row in rows])
    finish = _whole([row.finish_ns if row.ok else None for row in rows])
    arrival = _whole([row.arrival_ns for row in rows])
    requests = conform(
        pd.DataFrame({
            "request_id": np.arange(len(rows), dtype=np.int64), "arrival_ns": arrival, "first_token_ns": first,
            "finish_ns": finish, "prompt_tokens": _whole([row.prompt_tokens for row in rows]),
            "output_tokens": _whole([row.output_tokens if row.ok else None for row in rows]),
            "status": np.where(ok, "ok", "failed").astype(object),
        }), "requests",
    )  # fmt: skip
    spans = {"ttft_ns": first - arrival, "latency_ns": finish - arrival, "queue_ns": _whole([None] * len(rows))}
    return requests.assign(**spans), _chunks(rows)


def _chunks(rows: Sequence[Row]) -> pd.DataFrame | None:
    told = [(number, row) for number, row in enumerate(rows) if row.ok and row.chunks]
    if not told:
        return None
    counts = [1 if row.output_tokens == len(row.chunks) else None for _, row in told for _ in row.chunks]
    lengths = [len(row.chunks) for _, row in told]
    ids = np.repeat(np.array([number for number, _ in told], dtype=np.int64), lengths)
    return conform(
        pd.DataFrame({
            "request_id": ids,
            "chunk_index": np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
            "arrival_ns": np.concatenate([np.asarray(row.chunks, dtype=np.int64) for _, row in told]),
            "token_count": _whole(counts),
        }), "chunks",
    )  # fmt: skip


def _whole(values: Sequence[int | None]) -> pd.Series[Any]:
    return pd.Series(pd.array(list(values), dtype="Int64"))


def total(values: Sequence[int | None]) -> int | None:
    """The sum, None where there is none or any value is missing: a sum over some of the requests is no sum."""
    return sum(v for v in values if v is not None) if values and None not in values else None


def span_s(rows: Sequence[Row]) -> float | None:
    """From the first request sent to the last finished, failed ones left out; None where it is not known."""
    starts = [row.arrival_ns for row in rows if row.arrival_ns is not None]
    ends = [row.finish_ns for row in rows if row.finish_ns is not None]
    return (max(ends) - min(starts)) / NS_PER_S if starts and ends and max(ends) > min(starts) else None


def result_of_rows(rows: Sequence[Row], **told: Any) -> BenchResult:
    """The result of requests told one by one: `told` is what else is known of it."""
    answered = [row for row in rows if row.ok]
    prompt, output = total([row.prompt_tokens for row in answered]), total([row.output_tokens for row in answered])
    duration = span_s(answered)
    requests, chunks = tables(rows)
    return BenchResult(
        kind="serve", completed=len(answered), failed=len(rows) - len(answered), duration_s=duration,
        total_input_tokens=prompt, total_output_tokens=output,
        reported=rates(duration, len(answered), prompt, output), requests=requests, chunks=chunks, **told,
    )  # fmt: skip


def rates(
    row_s: float | None, completed: int | None, prompt: int | None, output: int | None
) -> dict[str, float | None]:
    """Rates over a duration under vLLM's names, None where not known."""
    if not row_s:
        return {}
    both = None if prompt is None or output is None else prompt + output
    amounts = {"request_throughput": completed, "input_throughput": prompt, "output_throughput": output}
    amounts["total_token_throughput"] = both
    return {name: amount / row_s for name, amount in amounts.items() if amount is not None}
