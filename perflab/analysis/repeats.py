"""Several runs of one point taken together: the unit of evidence is the run, not the request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from perflab.analysis.latency import DISTRIBUTIONS, PERCENTILES, RATES

FEWEST_FOR_INTERVAL = 3
_COLUMNS = ("metric", "statistic", "n", "mean", "median", "lowest", "highest", "ci_low", "ci_high")


def repeats_summary(points: Sequence[Mapping[str, Any]], confidence: float = 0.95) -> pd.DataFrame:
    """Every metric over the repeats of one point.

    Parameters
    ----------
    points
        The metrics of each repeat, as `latency_metrics` or `metrics_from_reported` give them.
    confidence
        Of the interval.

    Returns
    -------
    DataFrame
        One row a metric and statistic: `metric` (`ttft_ms`, `requests_per_s`, ...), `statistic` (`mean`,
        `p50`, ...; `value` for rates), `n` repeats that measured it, `mean`, `median`, `lowest`, `highest`,
        `ci_low`, `ci_high`. The interval is Student's t on the logarithms of the run values, so it is for
        their geometric mean, and NaN below three repeats. Metrics no repeat measured are absent.
    """
    rows = []
    for metric, statistic, values in _values(points):
        low, high = log_t_interval(values, confidence) or (math.nan, math.nan)
        numbers = np.array(values)
        middle = (float(numbers.mean()), float(np.median(numbers)), float(numbers.min()), float(numbers.max()))
        rows.append((metric, statistic, len(values), *middle, low, high))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def log_t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Interval for the geometric mean of run values; None for fewer than three or for values not above 0."""
    if len(values) < FEWEST_FOR_INTERVAL or min(values) <= 0:
        return None
    logs = np.log(np.array(values, dtype=np.float64))
    reach = student_t(0.5 + confidence / 2, len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    middle = float(logs.mean())
    return math.exp(middle - reach), math.exp(middle + reach)


def student_t(probability: float, degrees: int) -> float:
    """Quantile of Student's t for whole degrees of freedom and probability above one half."""
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError("probability must lie between 0.5 and 1, degrees of freedom be 1 or more")
    return float(stdtrit(degrees, probability))


def _values(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[float]]]:
    found = []
    for metric in DISTRIBUTIONS:
        for statistic in ("mean", *(f"p{p}" for p in PERCENTILES)):
            measured = [(point.get(metric) or {}).get(statistic) for point in points]
            found.append((metric, statistic, [float(v) for v in measured if v is not None]))
    for metric in RATES:
        found.append((metric, "value", [float(p[metric]) for p in points if p.get(metric) is not None]))
    return [row for row in found if row[2]]
