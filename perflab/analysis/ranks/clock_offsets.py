"""How far the clocks of ranks are apart, from collectives that end on all of them at about the same time.

Each rank's trace has its own clock: on one host they agree to a microsecond, between hosts by what NTP leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints, as_ints

_SHORT = 2.0
_COVERED = 0.95
_FEWEST = 8
_BLOCKS = 20


@dataclass(frozen=True)
class ClockOffset:
    """A rank's clock against that of the reference rank.

    Attributes
    ----------
    offset_ns
        How far it is ahead, in the middle of the time the collectives span: the median difference of ends.
    drift_ppm
        By how much it runs faster, in parts per million; 0 where none can be told.
    uncertainty_ns
        95 % of the collectives' ends lie within this of the offset, after drift.
    low_ns, high_ns
        Hard bounds: beyond them some collective would have ended on one rank before the other had come. If
        `low_ns` exceeds `high_ns`, no offset makes all of them overlap: kernels were matched that do not belong
        together, or the clock jumped.
    n
        Collectives that were used: the shortest ones, since large transfers end on the ranks some way apart.
    """

    rank: int
    reference: int
    offset_ns: float
    drift_ppm: float
    uncertainty_ns: float
    low_ns: float
    high_ns: float
    n: int

    @property
    def is_possible(self) -> bool:
        """Whether some offset makes every matched collective overlap on both ranks."""
        return self.low_ns <= self.high_ns

    def to_json(self) -> dict[str, Any]:
        """As the JSON contract has it."""
        return {
            "rank": self.rank, "reference": self.reference, "offset_ns": round(self.offset_ns),
            "drift_ppm": round(self.drift_ppm, 3), "uncertainty_ns": round(self.uncertainty_ns),
            "low_ns": round(self.low_ns), "high_ns": round(self.high_ns), "collectives": self.n,
        }  # fmt: skip


def clock_offsets(collectives: pd.DataFrame) -> list[ClockOffset]:
    """Of every rank against the lowest one it shares collectives with.

    Parameters
    ----------
    collectives
        Table `collectives`.

    Returns
    -------
    list of ClockOffset
        Empty for one rank. Ranks that share fewer than 8 collectives with a lower one are left out.
    """
    matched = collectives[collectives["seq"] >= 0]
    ranks = sorted(matched["rank"].unique().tolist())
    found: list[ClockOffset] = []
    for place, rank in enumerate(ranks):
        for reference in ranks[:place]:
            both = _pairs(matched, reference, rank)
            if len(both) >= _FEWEST:
                found.append(_offset(both, reference, rank))
                break
    return found


def pair_offset(differences: NDArray[Any]) -> tuple[float, float]:
    """Median difference of ends, and how far nearly all of them lie from it at most."""
    middle = float(np.median(differences))
    return middle, float(np.quantile(np.abs(differences - middle), _COVERED))


def nearest_within(ends: NDArray[Any], other: NDArray[Any], spread: float) -> Ints:
    """For each end the position of the one in `other` (sorted) that it belongs to, or -1.

    They belong together if each is the other's nearest and their distance is small: within three times the spread, and
    less than a quarter of the least gap between neighbours, so that no other partner comes into question.
    """
    if not len(ends) or not len(other):
        return np.full(len(ends), -1, dtype=np.int64)
    gaps = [np.diff(np.sort(some)).min() if len(some) > 1 else np.inf for some in (ends, other)]
    limit = min(max(3 * spread, 1.0), float(min(gaps)) / 4)
    distance = np.abs(np.asarray(ends, dtype=np.float64)[:, None] - np.asarray(other, dtype=np.float64)[None, :])
    nearest = distance.argmin(axis=1)
    mutual = distance.argmin(axis=0)[nearest] == np.arange(len(ends))
    close = distance[np.arange(len(ends)), nearest] <= limit
    return as_ints(np.where(mutual & close, nearest, -1))


def corrected_starts(collectives: pd.DataFrame, offsets: list[ClockOffset]) -> pd.Series:
    """When each kernel began by the reference rank's clock, ns; NaN for ranks without an offset.

    Drift is left aside: it is part of the uncertainty where it is small.
    """
    ahead = {one.rank: one.offset_ns for one in offsets} | {
        one.reference: 0.0 for one in offsets if one.reference not in {o.rank for o in offsets}
    }
    return collectives["start_ns"].astype("float64") - collectives["rank"].map(ahead).astype("float64")


def _pairs(matched: pd.DataFrame, reference: int, rank: int) -> pd.DataFrame:
    columns = ["seq", "op", "start_ns", "dur_ns", "transfer_ns"]
    left, right = (matched.loc[matched["rank"] == one, columns].set_index("seq") for one in (reference, rank))
    both = left.join(right.add_suffix("_other"), how="inner")
    return both.assign(
        end=both["start_ns"] + both["dur_ns"], end_other=both["start_ns_other"] + both["dur_ns_other"]
    )  # fmt: skip


def _offset(both: pd.DataFrame, reference: int, rank: int) -> ClockOffset:
    transfer = both["transfer_ns"].to_numpy(np.float64)
    short = transfer <= _SHORT * np.quantile(transfer, 0.1)
    if short.sum() < _FEWEST:
        short = transfer <= np.sort(transfer)[_FEWEST - 1]
    end, other = both["end"].to_numpy(np.int64)[short], both["end_other"].to_numpy(np.int64)[short]
    at = (end - end.min()).astype(np.float64)
    difference = (other - end).astype(np.float64)
    slope = _drift(at, difference)
    middle = float(np.median(at))
    level = difference - slope * (at - middle)
    offset, spread = pair_offset(level)
    starts, ends = both["start_ns"].to_numpy(np.int64), both["end"].to_numpy(np.int64)
    other_starts, other_ends = both["start_ns_other"].to_numpy(np.int64), both["end_other"].to_numpy(np.int64)
    drifted = slope * ((ends - end.min()) - middle)
    return ClockOffset(
        rank=rank, reference=reference, offset_ns=offset, drift_ppm=slope * 1e6, uncertainty_ns=spread,
        low_ns=float((other_starts - ends - drifted).max()), high_ns=float((other_ends - starts - drifted).min()),
        n=int(short.sum()),
    )  # fmt: skip


def _drift(at: NDArray[np.float64], difference: NDArray[np.float64]) -> float:
    """Slope of differences over time by the median of slopes between blocks (Theil and Sen); 0 within the noise."""
    count = min(_BLOCKS, len(at) // _FEWEST)
    if count < 3:
        return 0.0
    order = np.argsort(at, kind="stable")
    blocks = np.array_split(order, count)
    x = np.array([np.median(at[block]) for block in blocks])
    y = np.array([np.median(difference[block]) for block in blocks])
    i, j = np.triu_indices(count, 1)
    apart = x[j] - x[i]
    slopes = (y[j] - y[i])[apart > 0] / apart[apart > 0]
    if not len(slopes):
        return 0.0
    slope = float(np.median(slopes))
    _, noise = pair_offset(difference - slope * at)
    return slope if abs(slope) * (at.max() - at.min()) > 2 * noise else 0.0
