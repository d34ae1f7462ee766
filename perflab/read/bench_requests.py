"""The arrays of a detailed `vllm bench serve` result as the tables `requests` and `chunks`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflab.errors import InputError
from perflab.messages import say
from perflab.schema import conform, empty
from perflab.units import NS_PER_S

DETAIL_KEYS = frozenset(("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"))
"""Keys only a detailed result has (`--save-detailed`, and every result of vLLM up to 0.6)."""

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


def requests_table(raw: dict[str, Any], failed: int | None, path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The requests of a result, and notes on what could not be told.

    A request failed when it has an error text, or produced no token and never got a first one. Its times and output
    tokens are NA: vLLM leaves 0 there. The end is `latencies` where the file has them, else ttft plus the gaps.

    Parameters
    ----------
    raw
        A result with canonical keys, times in seconds.
    failed
        Requests that failed according to the result, to check against.
    path
        For error messages.

    Raises
    ------
    InputError
        When the arrays have different lengths or hold something else than numbers.
    """
    n = _length(raw, path)
    ttft, latency = _seconds(raw, "ttfts", n, path), _seconds(raw, "latencies", n, path)
    start, queue = _seconds(raw, "start_times", n, path), _seconds(raw, "queue_times", n, path)
    prompt, output = _seconds(raw, "input_lens", n, path), _seconds(raw, "output_lens", n, path)
    status, notes = _status(raw, ttft, output, failed)
    ok = status != "failed"
    ttft = np.where(ok & (ttft != 0), ttft, np.nan)
    if "latencies" not in raw and "itls" in raw:
        latency = ttft + np.array([sum(gaps) for gaps in _gaps(raw, n, path)])
    latency = np.where(ok & (latency != 0), latency, np.nan)
    arrival_ns, ttft_ns, latency_ns = _ns(start), _ns(ttft), _ns(latency)
    origin = arrival_ns.fillna(0)  # without start times every request counts from 0
    table = pd.DataFrame({
        "request_id": np.arange(n, dtype=np.int64),
        "arrival_ns": arrival_ns,
        "first_token_ns": origin + ttft_ns,
        "finish_ns": origin + latency_ns,
        "prompt_tokens": _whole(prompt),
        "output_tokens": _whole(np.where(ok, output, np.nan)),
        "status": status,
    })  # fmt: skip
    more = {"ttft_ns": ttft_ns, "latency_ns": latency_ns, "queue_ns": _ns(queue)}
    return conform(table, "requests").assign(**more), notes


def chunks_table(raw: dict[str, Any], requests: pd.DataFrame, path: Path) -> pd.DataFrame | None:
    """The streamed chunks of the requests that were answered; None when the file has no gaps between chunks.

    Chunk 0 is the first token. `token_count` is 1 where a request has as many chunks as output tokens, else NA.
    """
    if "itls" not in raw:
        return None
    gaps = _gaps(raw, len(requests), path)
    answered = requests.loc[requests["ttft_ns"].notna()]
    if answered.empty:
        return empty("chunks")
    ttfts = _seconds(raw, "ttfts", len(requests), path)
    ids = answered["request_id"].to_numpy(dtype=np.int64)
    origins = answered["arrival_ns"].fillna(0).to_numpy(dtype=np.int64)
    lengths = np.array([len(gaps[i]) + 1 for i in ids])
    offsets = np.concatenate([np.cumsum([ttfts[i], *gaps[i]]) for i in ids])
    one_each = lengths == answered["output_tokens"].fillna(-1).to_numpy(dtype=np.int64)
    ends = np.cumsum(lengths)
    table = pd.DataFrame({
        "request_id": np.repeat(ids, lengths),
        "chunk_index": np.arange(ends[-1]) - np.repeat(ends - lengths, lengths),
        "arrival_ns": np.repeat(origins, lengths) + np.rint(offsets * NS_PER_S).astype(np.int64),
        "token_count": _whole(np.where(np.repeat(one_each, lengths), 1.0, np.nan)),
    })  # fmt: skip
    return conform(table, "chunks")


def _length(raw: dict[str, Any], path: Path) -> int:
    keys = (*sorted(DETAIL_KEYS), "latencies", "queue_times")
    lengths = {key: len(raw[key]) for key in keys if isinstance(raw.get(key), list)}
    odd = [key for key in keys if key in raw and not isinstance(raw[key], list | None)]
    if odd:
        raise InputError(f"{odd[0]} is not a list", path=path)
    if len(set(lengths.values())) > 1:
        raise InputError("lists differ in length: " + ", ".join(f"{key} {n}" for key, n in lengths.items()), path=path)
    return next(iter(lengths.values()), 0)


def _seconds(raw: dict[str, Any], key: str, n: int, path: Path) -> _Floats:
    """A list of numbers with NaN for null, or all NaN where the file lacks it."""
    values = raw.get(key)
    if values is None:
        return np.full(n, np.nan)
    return np.array(_numbers(values, key, path, null=np.nan), dtype=np.float64)


def _numbers(values: list[Any], what: str, path: Path, null: float | None = None) -> list[float]:
    out = []
    for value in values:
        found = null if value is None and null is not None else _float(value)
        if found is None:
            raise InputError(f"{what} holds {str(value)[:40]!r}, which is not a number", path=path)
        out.append(found)
    return out


def _float(value: Any) -> float | None:
    """NaN and infinity stay: they become NA."""
    try:
        return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        return None


def _gaps(raw: dict[str, Any], n: int, path: Path) -> list[list[float]]:
    gaps = raw.get("itls") or [[]] * n
    for at, row in enumerate(gaps):
        if not isinstance(row, list):
            raise InputError(f"itls[{at}] is not a list", path=path)
        _numbers(row, f"itls[{at}]", path)
    return gaps


def _status(
    raw: dict[str, Any], ttft: _Floats, output: _Floats, failed: int | None
) -> tuple[npt.NDArray[np.object_], tuple[str, ...]]:
    errors = raw.get("errors") or [""] * len(output)
    has_error: _Bools = np.array([bool(error) for error in errors], dtype=bool)
    silent = output == 0
    bad = has_error | (silent & ~(ttft > 0))
    doubtful = silent & ~bad  # a first token, and yet no output tokens
    status = np.where(bad, "failed", np.where(doubtful, "unknown", "ok")).astype(object)
    if failed is not None and doubtful.any() and bad.sum() != failed:
        if bad.sum() + doubtful.sum() == failed:
            status[doubtful] = "failed"
    elif failed is not None and doubtful.any():
        status[doubtful] = "ok"
    found = int((status == "failed").sum())
    if failed is not None and found != failed:
        return status, (say("read.failed_differ", reported=failed, found=found),)
    return status, ()


def _ns(seconds: _Floats) -> pd.Series[Any]:
    return _whole(np.rint(seconds * NS_PER_S))


def _whole(values: _Floats) -> pd.Series[Any]:
    mask = ~np.isfinite(values)
    return pd.Series(pd.arrays.IntegerArray(np.where(mask, 0, values).astype(np.int64), mask))
