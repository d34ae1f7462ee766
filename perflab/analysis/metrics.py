"""What the server's own metrics say about a measurement: growth of counters, gauges over time, histogram means.

Counters are summed over engines and other labels. Of gauges, counts are summed over engines and shares averaged
(and their largest taken): two engines with a KV cache 40 % full each are not one that is 80 % full.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

COUNTERS: tuple[str, ...] = (
    "prompt_tokens",
    "prompt_tokens_cached",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "request_success",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)
HISTOGRAMS: tuple[str, ...] = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
)
SHARES: tuple[str, ...] = ("kv_cache_usage_perc",)
COUNTS: tuple[str, ...] = ("num_requests_running", "num_requests_waiting")
_FINISHED = re.compile(r"(?:^|,)finished_reason=([^,]*)")


def bare_name(metric: str) -> str:
    """A metric's name without prefix and suffix: `vllm:num_preemptions_total` -> `num_preemptions`."""
    return metric.removeprefix("vllm:").removesuffix("_total")


def counter_totals(samples: pd.DataFrame) -> dict[str, float]:
    """`COUNTERS` in one scrape, summed over labels; those that are absent are left out.

    Parameters
    ----------
    samples
        Table `samples` of one scrape.

    Returns
    -------
    dict
        By bare name. Finished requests also by reason: `request_success.length`, `request_success.stop`, ...
    """
    names = samples["metric"].map(bare_name)
    kept = names.isin(COUNTERS)
    totals = samples["value"][kept].groupby(names[kept]).sum()
    found = {str(name): float(value) for name, value in totals.items()}
    finished = samples[names == "request_success"]
    reasons = finished["labels"].str.extract(_FINISHED, expand=False)
    for reason, value in finished["value"].groupby(reasons).sum().items():
        found[f"request_success.{reason}"] = float(value)
    return found


def counter_deltas(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, float]:
    """How counters grew from one scrape to a later one.

    Parameters
    ----------
    before, after
        Table `samples`, one scrape each.

    Returns
    -------
    dict
        By bare name, as `counter_totals`. A counter that is absent from either, or that shrank (the server was
        started again in between), is left out: its growth is not known.
    """
    first, last = counter_totals(before), counter_totals(after)
    return {name: value - first[name] for name, value in last.items() if name in first and value >= first[name]}


def restarted(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Whether any counter shrank: then these are scrapes of two servers."""
    first, last = counter_totals(before), counter_totals(after)
    return any(value < first[name] for name, value in last.items() if name in first)


def prefix_hit_share(deltas: Mapping[str, float]) -> float | None:
    """Prompt tokens found in the prefix cache over those looked up; None where nothing was looked up or known."""
    queries, hits = deltas.get("prefix_cache_queries"), deltas.get("prefix_cache_hits")
    return hits / queries if queries and hits is not None else None


def histogram_means(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, float]:
    """Mean of what was added to each of `HISTOGRAMS` between two scrapes, in seconds.

    Sums over engines first. Where nothing was added, or a scrape lacks the histogram, it is left out. Means are
    exact; percentiles of these histograms are not, whose buckets are wide.
    """
    first, last = _histogram_totals(before), _histogram_totals(after)
    means = {}
    for name in HISTOGRAMS:
        if name not in first or name not in last:
            continue
        total, count = (last[name][part] - first[name][part] for part in (0, 1))
        if count > 0 and total >= 0:
            means[name] = total / count
    return means


def histogram_counts(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, float]:
    """How many values were added to each of `HISTOGRAMS` between two scrapes; those absent from either are left out."""
    first, last = _histogram_totals(before), _histogram_totals(after)
    added = {name: last[name][1] - first[name][1] for name in HISTOGRAMS if name in first and name in last}
    return {name: count for name, count in added.items() if count >= 0}


def gauge_statistics(samples: pd.DataFrame) -> pd.DataFrame:
    """Gauges over the scrapes taken during a measurement.

    Parameters
    ----------
    samples
        Table `samples`, many scrapes.

    Returns
    -------
    DataFrame
        One row a gauge of `SHARES` and `COUNTS` that was scraped: `metric` (bare name), `mean`, `largest`,
        `n` scrapes. Per scrape, counts are summed over engines; of shares the mean goes into `mean` and the
        fullest engine into `largest`.
    """
    names = samples["metric"].map(bare_name)
    rows = []
    for name in (*SHARES, *COUNTS):
        by_time = samples[names == name].groupby("t_ns")["value"]
        if not by_time.ngroups:
            continue
        typical, largest = (by_time.mean(), by_time.max()) if name in SHARES else (by_time.sum(), by_time.sum())
        rows.append((name, float(np.mean(typical)), float(np.max(largest)), by_time.ngroups))
    return pd.DataFrame(rows, columns=["metric", "mean", "largest", "n"])


def _histogram_totals(samples: pd.DataFrame) -> dict[str, tuple[float, float]]:
    # Here the suffixes tell the series apart, so only the prefix goes.
    names = samples["metric"].str.removeprefix("vllm:")
    values = samples["value"].groupby(names).sum()
    return {
        name: (float(values[f"{name}_sum"]), float(values[f"{name}_count"]))
        for name in HISTOGRAMS
        if f"{name}_sum" in values and f"{name}_count" in values
    }
