"""A measured point over time: warm-up, steady state and drain, from requests in flight and tokens a second.

Nothing is dropped by it: figures of the steady part stand beside those of the whole point.

- *Level*: the median over time of requests in flight, while there are any.
- *Warm-up* ends when the load is there (in flight first at 90 % of the level) and has turned over once (as many
  requests have ended since as the level): until then the burst of the start is what is measured.
- *Drain* begins when in flight last leaves 90 % of the level: nothing takes the place of what ends.
- *Steady* is what lies between, if the load turns over in it at least twice more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab import units
from perflab.analysis.latency import request_latencies

FULL = 0.9
"""Share of the level from which the load counts as there (judgement: one of ten places may be changing hands)."""
TURNOVERS = 2.0
"""Fewest turnovers in a steady state (judgement)."""
GROWS = 1.4
"""Requests in flight in the last third of the time in which they are sent over those in the second, from which they are
said to grow (judgement: 1.67 where they grow evenly from the start)."""
LOCKSTEP = 0.5
"""Rayleigh's resultant length of arrivals, from which requests are said to run in waves; evenly spread ones have about
one over the root of their number."""

Status = Literal["steady", "waves", "growing", "too_short", "unknown"]
PHASES: tuple[str, ...] = ("warm-up", "steady", "middle", "drain")
"""`middle` instead of `steady` where it is too short to be called that, or grows."""
COLUMNS = (
    "phase", "start_s", "end_s", "share", "in_flight", "output_tokens_per_s", "arrived", "finished", "ttft_mean_ms",
    "tpot_mean_ms", "e2el_mean_ms",
)  # fmt: skip

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LoadPhases:
    """The phases of one point; times in seconds since the first request was sent.

    Attributes
    ----------
    status
        `steady`; `waves`: the load is held, but its requests run in step (all prefill, then all decode); `growing`:
        more come than end; `too_short`: fewer than `TURNOVERS` turnovers between warm-up and drain; `unknown`: times
        are not known.
    level
        Median of requests in flight.
    turnovers
        Requests that ended between warm-up and drain over the level.
    lockstep
        Rayleigh's resultant length of arrivals by the mean life of a request, 0 to 1; None where the load was not
        limited by requests at once.
    growth
        Of an open loop: in flight in the last third of the time in which requests are sent over the second; None where
        a third is shorter than a request's mean life, so that the start is still in it.
    table
        `COLUMNS`, a row a phase and then `whole`. Latencies are of requests sent in the phase; NaN where there are
        none.
        There are no requests a second: requests that run in step end in bursts, and a rate would depend on which burst
        a bound cuts. Tokens come all the time.
    """

    status: Status
    level: float | None = None
    steady_from_s: float | None = None
    steady_to_s: float | None = None
    end_s: float | None = None
    turnovers: float | None = None
    lockstep: float | None = None
    growth: float | None = None
    table: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COLUMNS)))

    def of(self, phase: str, column: str) -> float | None:
        """One figure; None where it is not known."""
        found = self.table.loc[self.table["phase"] == phase, column]
        return float(found.iloc[0]) if len(found) and pd.notna(found.iloc[0]) else None

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `over_time` of a point."""
        rows = [
            {name: (None if pd.isna(value) else value) for name, value in row.items()}
            for row in self.table.to_dict("records")
        ]
        return {
            "status": self.status, "level": self.level, "steady_from_s": self.steady_from_s,
            "steady_to_s": self.steady_to_s, "end_s": self.end_s, "turnovers": self.turnovers,
            "lockstep": self.lockstep, "growth": self.growth, "phases": rows,
        }  # fmt: skip


def in_flight_over_time(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests under way: `t_ns` (client clock) and `in_flight` from then until the next row.

    Needs `arrival_ns` and `finish_ns`; requests that lack either (failed ones have no end) are left out.
    """
    known = requests[requests["arrival_ns"].notna() & requests["finish_ns"].notna()]
    moments = np.concatenate((known["arrival_ns"].to_numpy(np.int64), known["finish_ns"].to_numpy(np.int64)))
    change = np.repeat([1, -1], len(known))
    steps = pd.DataFrame({"t_ns": moments, "change": change}).groupby("t_ns", sort=True)["change"].sum().cumsum()
    return pd.DataFrame({"t_ns": steps.index.to_numpy(np.int64), "in_flight": steps.to_numpy(np.int64)})


def mean_in_flight(requests: pd.DataFrame, duration_s: float | None = None) -> float | None:
    """Mean over time of requests in flight, from the first sent to the last ended (or over `duration_s`)."""
    over_time = in_flight_over_time(requests)
    if len(over_time) < 2:
        return None
    held = np.diff(over_time["t_ns"].to_numpy(np.int64)).astype(np.float64)
    total = float((held * over_time["in_flight"].to_numpy(np.float64)[:-1]).sum())
    span = duration_s * units.NS_PER_S if duration_s else float(held.sum())
    return total / span if span else None


def busy_share(requests: pd.DataFrame) -> float | None:
    """Share of the time from the first request sent to the last ended in which any is under way; None if not known."""
    over_time = in_flight_over_time(requests)
    if len(over_time) < 2:
        return None
    held = np.diff(over_time["t_ns"].to_numpy(np.int64)).astype(np.float64)
    return float(held[over_time["in_flight"].to_numpy(np.int64)[:-1] > 0].sum() / held.sum())


def load_phases(
    requests: pd.DataFrame | None, chunks: pd.DataFrame | None, *, concurrency: int | None = None
) -> LoadPhases:
    """Find the phases of a point.

    Parameters
    ----------
    requests, chunks
        Tables `requests` and `chunks`; None where the result is not detailed.
    concurrency
        Requests at once that were asked for; None for an open loop.
    """
    if requests is None:
        return LoadPhases("unknown")
    over_time = in_flight_over_time(requests)
    if len(over_time) < 2:
        return LoadPhases("unknown")
    origin = int(over_time["t_ns"].iloc[0])
    at = (over_time["t_ns"].to_numpy(np.int64) - origin) / units.NS_PER_S
    count = over_time["in_flight"].to_numpy(np.float64)
    level = _median_over_time(at, count)
    if level <= 0 or at[-1] <= 0:
        return LoadPhases("unknown")
    begin, end = _middle(requests, origin, at, count, level)
    ends = _seconds(requests, "finish_ns", origin)
    turnovers = float(((ends > begin) & (ends <= end)).sum()) / level
    growth = _growth(requests, origin, at, count) if concurrency is None else None
    lockstep = _lockstep(requests, origin, begin, end) if concurrency is not None and concurrency > 1 else None
    status: Status = "steady"
    if growth is not None and growth >= GROWS and _beyond_chance(growth, level):
        status = "growing"
    elif turnovers < TURNOVERS:
        status = "too_short"
    elif lockstep is not None and lockstep[0] >= max(LOCKSTEP, lockstep[1]):
        status = "waves"
    middle = "steady" if status in ("steady", "waves") else "middle"
    bounds = {"warm-up": (0.0, begin), middle: (begin, end), "drain": (end, float(at[-1]))}
    rows = [
        _row(phase, span, requests, chunks, origin, at, count)
        for phase, span in bounds.items()
        if begin < end and span[0] < span[1]
    ]
    whole = _row("whole", (0.0, float(at[-1])), requests, chunks, origin, at, count)
    table = pd.DataFrame([*rows, whole], columns=list(COLUMNS))
    resultant = None if lockstep is None else lockstep[0]
    return LoadPhases(status, level, begin, end, float(at[-1]), turnovers, resultant, growth, table)


def _median_over_time(at: _Floats, count: _Floats) -> float:
    """The value that `count` is at or below for half of the time in which it is above 0."""
    held = np.diff(at) * (count[:-1] > 0)
    order = np.argsort(count[:-1], kind="stable")
    reached = np.cumsum(held[order])
    return float(count[:-1][order][np.searchsorted(reached, reached[-1] / 2)])


def _middle(requests: pd.DataFrame, origin: int, at: _Floats, count: _Floats, level: float) -> tuple[float, float]:
    """Where warm-up ends and drain begins."""
    full = np.flatnonzero(count >= FULL * level)
    there = float(at[full[0]])
    # The last stretch at the level ends where the next row begins.
    leaves = float(at[min(full[-1] + 1, len(at) - 1)])
    ends = np.sort(_seconds(requests, "finish_ns", origin))
    since = ends[ends > there]
    turned = int(np.ceil(level))
    begin = float(since[turned - 1]) if len(since) >= turned else leaves
    return min(begin, leaves), leaves


def _growth(requests: pd.DataFrame, origin: int, at: _Floats, count: _Floats) -> float | None:
    sent, ends = _seconds(requests, "arrival_ns", origin), _seconds(requests, "finish_ns", origin)
    third = float(np.nanmax(sent)) / 3
    if third < float(np.nanmean(ends - sent)) or third <= 0:
        return None
    second, last = _mean_between(at, count, third, 2 * third), _mean_between(at, count, 2 * third, 3 * third)
    # NaN where nothing was under way in a third: the requests sent then failed.
    return last / second if second and np.isfinite(last / second) else None


def _beyond_chance(growth: float, level: float) -> bool:
    """Whether the change is more than twice the spread that random arrivals alone give a count of this size."""
    first = 2 * level / (1 + growth)
    return bool(first * (growth - 1) > 2 * np.sqrt(first))


def _mean_between(at: _Floats, count: _Floats, begin: float, end: float) -> float:
    edges = np.clip(at, begin, end)
    held = np.diff(edges)
    total = float(held.sum())
    return float((held * count[:-1]).sum() / total) if total else float("nan")


def _lockstep(requests: pd.DataFrame, origin: int, begin: float, end: float) -> tuple[float, float] | None:
    """How far arrivals of a closed loop come together: 1 all at once each time round, near 0 evenly spread.

    And the least that is beyond chance: of n random ones the squared length times n exceeds 9 once in eight thousand
    periods (Rayleigh's test), of which a few dozen are tried.
    """
    sent = _seconds(requests, "arrival_ns", origin)
    ends = _seconds(requests, "finish_ns", origin)
    inside = (sent >= begin) & (sent <= end)
    if inside.sum() < 8:
        return None
    life = float(np.nanmean((ends - sent)[inside]))
    if not life > 0:
        return None
    # The waves' own period differs a little from the mean life.
    periods = life * np.linspace(0.8, 1.2, 41)
    turns = np.exp(2j * np.pi * sent[inside][None, :] / periods[:, None])
    return float(np.abs(turns.mean(axis=1)).max()), 3.0 / float(np.sqrt(inside.sum()))


def _row(
    phase: str,
    span: tuple[float, float],
    requests: pd.DataFrame,
    chunks: pd.DataFrame | None,
    origin: int,
    at: _Floats,
    count: _Floats,
) -> dict[str, Any]:
    begin, end = span
    length = end - begin
    answered = requests[requests["status"] != "failed"]
    sent, ended = _seconds(answered, "arrival_ns", origin), _seconds(answered, "finish_ns", origin)
    last = end >= at[-1]
    arrived = (sent >= begin) & ((sent < end) | last)
    finished = ((ended > begin) | (begin == 0)) & (ended <= end)
    latencies = request_latencies(answered)
    tokens = _tokens_between(answered, chunks, origin, begin, end)
    row = {
        "phase": phase, "start_s": begin, "end_s": end, "share": length / float(at[-1]),
        "in_flight": _mean_between(at, count, begin, end),
        "output_tokens_per_s": tokens / length if length and tokens is not None else np.nan,
        "arrived": int(arrived.sum()), "finished": int(finished.sum()),
    }  # fmt: skip
    for name in ("ttft", "tpot", "e2el"):
        values = latencies[f"{name}_ms"].to_numpy(np.float64)[arrived]
        known = values[~np.isnan(values)]
        row[f"{name}_mean_ms"] = float(known.mean()) if len(known) else np.nan
    return row


def _tokens_between(
    requests: pd.DataFrame, chunks: pd.DataFrame | None, origin: int, begin: float, end: float
) -> float | None:
    """Output tokens whose chunks came in a stretch; None where the chunks or their tokens are not known."""
    if chunks is None or chunks.empty:
        return None
    tokens = tokens_of_chunks(requests, chunks)
    if np.isnan(tokens).any():
        return None
    came = (chunks["arrival_ns"].to_numpy(np.int64) - origin) / units.NS_PER_S
    inside = ((came > begin) | (begin == 0)) & (came <= end)
    return float(tokens[inside].sum())


def tokens_of_chunks(requests: pd.DataFrame, chunks: pd.DataFrame) -> _Floats:
    """Tokens of each chunk: as recorded, else an even share of its request's output tokens, else NaN."""
    outputs = requests.set_index("request_id")["output_tokens"].astype("Float64")
    of_request = chunks["request_id"].map(outputs).astype("Float64")
    several = chunks.groupby("request_id")["chunk_index"].transform("size")
    found = chunks["token_count"].astype("Float64").fillna(of_request / several)
    return np.asarray(found.to_numpy(np.float64, na_value=np.nan), dtype=np.float64)


def rate_over_time(requests: pd.DataFrame, chunks: pd.DataFrame, *, bins: int = 120) -> tuple[_Floats, _Floats] | None:
    """Output tokens a second in equal stretches, and the stretches' edges in seconds since the first request.

    None where the chunks or their tokens are not known.
    """
    over_time = in_flight_over_time(requests)
    if over_time.empty or chunks.empty:
        return None
    tokens = tokens_of_chunks(requests, chunks)
    if np.isnan(tokens).any():
        return None
    origin, end = (int(over_time["t_ns"].iloc[i]) for i in (0, -1))
    came = (chunks["arrival_ns"].to_numpy(np.int64) - origin) / units.NS_PER_S
    total, edges = np.histogram(came, bins=bins, range=(0.0, units.seconds(end - origin)), weights=tokens)
    return total / np.diff(edges), edges


def _seconds(requests: pd.DataFrame, column: str, origin: int) -> _Floats:
    values = requests[column].astype("Float64").to_numpy(np.float64, na_value=np.nan)
    # A float holds nanoseconds since a boot exactly, and since the epoch to a quarter of a microsecond.
    return np.asarray((values - origin) / units.NS_PER_S, dtype=np.float64)
