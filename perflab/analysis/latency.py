"""Latency and throughput of a benchmark, from what happened to each request, or as vLLM reported it.

Definitions are vLLM's (`benchmarks/serve.py`, `calculate_metrics`): TTFT = first token - arrival; E2EL = finish -
arrival; TPOT = (E2EL - TTFT) / (output tokens - 1), none for a single token; ITL = gaps between chunks, pooled
over requests; percentiles interpolate linearly. Failed requests enter none of them. What was not measured is
None, where vLLM writes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.goodput import Goodput, goodput, longest_gaps, objectives
from perflab.units import NS_PER_MS

PERCENTILES: tuple[int, ...] = (50, 90, 95, 99)
DISTRIBUTIONS: tuple[str, ...] = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
RATES: tuple[str, ...] = (
    "requests_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "goodput_per_s",
)
_REPORTED_RATES = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "goodput_per_s": "request_goodput",
}


def distribution(values: NDArray[np.float64], source: str = "computed") -> dict[str, Any] | None:
    """Mean, standard deviation (of the population), percentiles and n; None for no values.

    `ci_low` and `ci_high` are None: one run says nothing about the next. See `perflab.analysis.compare.run_statistics`.
    """
    if not len(values):
        return None
    percentiles = np.percentile(values, PERCENTILES, method="linear")
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        **{f"p{p}": float(value) for p, value in zip(PERCENTILES, percentiles, strict=True)},
        "n": len(values),
        "ci_low": None,
        "ci_high": None,
        "source": source,
    }


def request_latencies(requests: pd.DataFrame) -> pd.DataFrame:
    """Latencies of each request that did not fail, in milliseconds.

    Parameters
    ----------
    requests
        Table `requests`. Its columns `ttft_ns` and `latency_ns`, where it has them, go before differences of
        times, which need an arrival.

    Returns
    -------
    DataFrame
        One row a request: `request_id`, `ttft_ms`, `tpot_ms`, `e2el_ms` (float64 with NaN where not measured).
        A request whose several tokens all came at its end was not streamed: it has no TTFT and no TPOT.

    Notes
    -----
    Detailed results of vLLM 0.25 hold no `latencies`; E2EL is then TTFT and all gaps, which is about a microsecond
    long, since that client read its clock twice at the first token.
    """
    answered = requests[requests["status"] != "failed"]
    ttft = _milliseconds(answered, "ttft_ns", "first_token_ns")
    e2el = _milliseconds(answered, "latency_ns", "finish_ns")
    tokens = _floats(answered["output_tokens"])
    at_once = (tokens > 1) & (ttft >= e2el)
    ttft = np.where(at_once, np.nan, ttft)
    tpot = np.full(len(tokens), np.nan)
    several = tokens > 1
    tpot[several] = (e2el - ttft)[several] / (tokens[several] - 1)
    ids = answered["request_id"].to_numpy(np.int64)
    return pd.DataFrame({"request_id": ids, "ttft_ms": ttft, "tpot_ms": tpot, "e2el_ms": e2el})


def chunk_gaps(requests: pd.DataFrame, chunks: pd.DataFrame) -> pd.DataFrame:
    """Gaps between neighbouring chunks of requests that did not fail: `request_id`, `itl_ms`.

    A chunk may hold several tokens; then these are gaps between chunks, not between tokens.
    """
    failed = requests.loc[requests["status"] == "failed", "request_id"]
    kept = chunks[~chunks["request_id"].isin(failed)].sort_values(["request_id", "chunk_index"])
    request = kept["request_id"].to_numpy(np.int64)
    gaps = np.diff(kept["arrival_ns"].to_numpy(np.int64)) / NS_PER_MS
    same = request[1:] == request[:-1]
    return pd.DataFrame({"request_id": request[1:][same], "itl_ms": gaps[same]})


def latency_values(requests: pd.DataFrame, chunks: pd.DataFrame | None) -> pd.DataFrame:
    """Every value that enters a distribution: `metric` (ttft, tpot, itl, e2el) and `value_ms`."""
    of = request_latencies(requests)
    parts = [pd.DataFrame({"metric": name, "value_ms": of[f"{name}_ms"].dropna()}) for name in ("ttft", "tpot", "e2el")]
    if chunks is not None:
        parts.append(pd.DataFrame({"metric": "itl", "value_ms": chunk_gaps(requests, chunks)["itl_ms"]}))
    return pd.concat(parts, ignore_index=True)


def latency_metrics(
    requests: pd.DataFrame,
    chunks: pd.DataFrame | None,
    duration_s: float | None,
    slos: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The metrics of a run in the shape of the JSON contract, computed from its requests.

    Parameters
    ----------
    requests, chunks
        Tables `requests` and `chunks` (None where gaps were not recorded: then there is no ITL).
    duration_s
        Of the benchmark, from the first request sent to the last finished. None: no rates.
    slos
        Limits in milliseconds; see `perflab.analysis.goodput`. None or empty: no goodput.

    Returns
    -------
    dict
        Each of `DISTRIBUTIONS` (a dict as `distribution` gives it, or None), each of `RATES` (a float or
        None), and `source`. `itl_ms` has `tokens_per_chunk` besides: above 1, ITL is per chunk and not per
        token; None where it is not known.
    """
    of = request_latencies(requests)
    found: dict[str, Any] = {name: distribution(_numbers(of[name])) for name in ("ttft_ms", "tpot_ms", "e2el_ms")}
    found["itl_ms"] = None
    if chunks is not None:
        found["itl_ms"] = distribution(_numbers(chunk_gaps(requests, chunks)["itl_ms"]))
        if found["itl_ms"] is not None:
            found["itl_ms"]["tokens_per_chunk"] = tokens_per_chunk(requests, chunks)
    answered = requests[requests["status"] != "failed"]
    prompt, output = (_total(answered[column]) for column in ("prompt_tokens", "output_tokens"))
    counted = request_goodput(requests, chunks, objectives(slos or {}), duration_s)
    amounts = {
        "requests_per_s": float(len(answered)),
        "input_tokens_per_s": prompt,
        "output_tokens_per_s": output,
        "total_tokens_per_s": None if prompt is None or output is None else prompt + output,
        "goodput_per_s": None if counted is None or counted.unknown else float(counted.good),
    }
    rates = {
        name: amount / duration_s if amount is not None and duration_s else None for name, amount in amounts.items()
    }
    return {**{name: found[name] for name in DISTRIBUTIONS}, **rates, "source": "computed"}


def request_goodput(
    requests: pd.DataFrame, chunks: pd.DataFrame | None, slos: Mapping[str, float], duration_s: float | None
) -> Goodput | None:
    """Goodput of a run from its requests, by limits as `objectives` gives them; None without any."""
    answered = requests[requests["status"] != "failed"]
    longest = longest_gaps(chunk_gaps(requests, chunks)) if chunks is not None and "itl_ms" in slos else None
    return goodput(
        request_latencies(requests), answered["output_tokens"], slos, duration_s,
        longest_gap_ms=longest, failed=len(requests) - len(answered),
    )  # fmt: skip


def metrics_from_reported(reported: Mapping[str, float | None], n: int | None) -> dict[str, Any]:
    """The same shape out of the aggregates vLLM wrote into the result, for files that are not detailed.

    Parameters
    ----------
    reported
        vLLM's own names and units: `mean_ttft_ms`, `p99_itl_ms`, `request_throughput`, ...
    n
        Completed requests. How many gaps entered ITL the file does not tell, so its `n` is None.
    """
    found: dict[str, Any] = {}
    for name in DISTRIBUTIONS:
        values: dict[str, float | None] = {"mean": reported.get(f"mean_{name}"), "std": reported.get(f"std_{name}")}
        values |= {f"p{p}": reported.get(f"p{p}_{name}") for p in PERCENTILES}
        if values["p50"] is None:
            values["p50"] = reported.get(f"median_{name}")
        measured = any(value is not None for value in values.values())
        counted = None if name == "itl_ms" else n
        found[name] = (
            {**values, "n": counted, "ci_low": None, "ci_high": None, "source": "reported"} if measured else None
        )
        if measured and name == "itl_ms":
            found[name]["tokens_per_chunk"] = None
    rates = {name: reported.get(_REPORTED_RATES.get(name, "")) for name in RATES}
    both, output = rates["total_tokens_per_s"], rates["output_tokens_per_s"]
    # vLLM's total is prompt and output tokens over the same duration.
    rates["input_tokens_per_s"] = both - output if both is not None and output is not None else None
    return {**found, **rates, "source": "reported"}


def tokens_per_chunk(requests: pd.DataFrame, chunks: pd.DataFrame) -> float | None:
    """Mean output tokens in a chunk over requests that did not fail; None where output tokens are not known."""
    answered = requests[(requests["status"] != "failed") & requests["request_id"].isin(chunks["request_id"])]
    tokens = _total(answered["output_tokens"])
    count = int(chunks["request_id"].isin(answered["request_id"]).sum())
    return tokens / count if tokens and count else None


def _milliseconds(requests: pd.DataFrame, length: str, end: str) -> NDArray[np.float64]:
    ns = requests[length] if length in requests else requests[end] - requests["arrival_ns"]
    return _floats(ns) / NS_PER_MS


def _floats(values: pd.Series) -> NDArray[np.float64]:
    return np.asarray(values.astype("Float64").to_numpy(np.float64, na_value=np.nan), dtype=np.float64)


def _numbers(values: pd.Series) -> NDArray[np.float64]:
    return _floats(values.dropna())


def _total(values: pd.Series) -> float | None:
    """The sum, or None where any value is missing: a sum over some of the requests is no sum."""
    return float(values.sum()) if not values.isna().any() else None
