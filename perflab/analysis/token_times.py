"""Time of a token where gaps are between chunks: what a gap holds, and what throughput says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from perflab.analysis.latency import chunk_gaps


def with_token_times(
    metrics: Mapping[str, Any],
    requests: pd.DataFrame | None,
    chunks: pd.DataFrame | None,
    reported: Mapping[str, float | None],
) -> dict[str, Any]:
    """The metrics with `itl_ms.per_token_ms`, and `itl_ms.tokens_per_chunk` where only aggregates tell it.

    Per token is the time of all gaps over the tokens that came in them: the tokens of a request less its first. From
    aggregates, a chunk holds the acceptance length of speculative decoding, where that was reported.

    Parameters
    ----------
    metrics
        As `perflab.analysis.latency` gives them.
    requests, chunks
        Tables of the result; None where it is not detailed.
    reported
        The client's own aggregates.
    """  # fmt: skip
    itl = metrics.get("itl_ms")
    if itl is None:
        return dict(metrics)
    per_chunk, per_token = itl.get("tokens_per_chunk"), None
    if requests is not None and chunks is not None:
        per_token = _per_token(requests, chunks)
    elif per_chunk is None:
        per_chunk = reported.get("spec_decode_acceptance_length")
        per_token = itl["mean"] / per_chunk if per_chunk and itl.get("mean") is not None else None
    return {**metrics, "itl_ms": {**itl, "tokens_per_chunk": per_chunk, "per_token_ms": per_token}}


def _per_token(requests: pd.DataFrame, chunks: pd.DataFrame) -> float | None:
    gaps = chunk_gaps(requests, chunks)
    answered = requests[requests["request_id"].isin(gaps["request_id"])]
    tokens = answered["output_tokens"]
    if answered.empty or tokens.isna().any():
        return None
    later = float(tokens.sum()) - len(answered)
    return float(gaps["itl_ms"].sum()) / later if later > 0 else None


def implied_concurrency(metrics: Mapping[str, Any]) -> float | None:
    """Requests that must decode at once if each gap brings one token: output tokens/s x time between tokens.

    By Little's law it is at most the requests under way; more means that gaps bring several tokens.
    """
    itl, rate = metrics.get("itl_ms"), metrics.get("output_tokens_per_s")
    gap = (itl.get("mean") or itl.get("p50")) if itl else None
    return None if gap is None or rate is None else rate * gap / 1000
