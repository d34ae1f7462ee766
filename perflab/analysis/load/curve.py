"""Throughput against latency over load: the knee, the most load within objectives, and what tokens cost.

**The knee** is the load at which throughput / mean E2EL is largest: Kleinrock's power (L. Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979). By Little's law load =
throughput x E2EL, so a relative rise of the load is split between the two: below the knee throughput takes more than
half of it, above it latency does. It needs no scale for either axis and no curve through the points. It lies between
the neighbours of the best measured load, and from fewer than three loads nothing is said.

**The most load within objectives** is interpolated linearly between the last measured load that meets them and the next
that does not; never beyond what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FEWEST_LOADS = 3
STATISTICS: tuple[str, ...] = ("mean", "p50", "p90", "p95", "p99")
RATES: tuple[str, ...] = (
    "requests_per_s", "input_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s", "goodput_per_s",
)  # fmt: skip
LATENCIES: tuple[str, ...] = tuple(
    f"{name}_{shown}_ms" for name in ("ttft", "tpot", "itl", "e2el") for shown in STATISTICS
)
GROUP: tuple[str, ...] = ("run", "workload", "data", "input_len", "output_len", "kind")

Kind = Literal["closed", "open"]
KneeStatus = Literal["found", "too_few", "not_reached", "passed"]
LimitStatus = Literal["between", "all_meet", "none_meets", "not_measured"]


@dataclass(frozen=True)
class Knee:
    """The knee of a curve.

    Attributes
    ----------
    status
        `found`; `not_reached`: throughput still takes most of a rise at the largest load, so the knee is there or
        beyond; `passed`: at the smallest load already it is latency that rises; `too_few` loads.
    load, low, high
        The measured load with most power and its measured neighbours, between which the knee lies (in the curve's
        unit); None where there is none.
    agree, repeats
        In how many of the repeats that measured all loads the same load is best; repeats 0 where none did.
    """

    status: KneeStatus
    load: float | None = None
    low: float | None = None
    high: float | None = None
    agree: int = 0
    repeats: int = 0

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {
            "status": self.status, "load": self.load, "between": [self.low, self.high],
            "repeats_that_agree": self.agree, "repeats": self.repeats,
        }  # fmt: skip


@dataclass(frozen=True)
class LoadLimit:
    """The most load under which objectives are met.

    Attributes
    ----------
    status
        `between` two measured loads, of which `safe` meets and `broken` does not; `all_meet`: the most lies beyond what
        was measured; `none_meets`: below it; `not_measured`: a figure is missing.
    load, requests_per_s, output_tokens_per_s
        Interpolated where `between`, else those of the largest load where `all_meet`.
    breaks
        The objective that gives way first.
    monotone
        False where a larger load met them again: then chance is at work, and the first break is given.
    """

    status: LimitStatus
    slos: Mapping[str, float]
    statistic: str
    load: float | None = None
    safe: float | None = None
    broken: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    breaks: str | None = None
    monotone: bool = True

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract."""
        return {
            "status": self.status, "slos": dict(self.slos), "statistic": self.statistic, "load": self.load,
            "between": [self.safe, self.broken], "requests_per_s": self.requests_per_s,
            "output_tokens_per_s": self.output_tokens_per_s, "breaks": self.breaks, "monotone": self.monotone,
            "interpolated": self.status == "between",
        }  # fmt: skip


@dataclass(frozen=True)
class Excluded:
    """A point that is in no curve: its id, its load, and why in a sentence."""

    point: str
    load: str
    why: str


@dataclass(frozen=True)
class LoadCurve:
    """One run and workload over its loads.

    Attributes
    ----------
    kind
        `closed`: so many requests at once; `open`: so many a second.
    table
        A row a load, ascending; medians over repeats. Columns: `load` (label), `x` (requests at once, or a second),
        `repeats`, `n` (fewest requests of a repeat), `in_flight` (requests a second x mean E2EL), `RATES`, `LATENCIES`,
        `power` (requests/s per second of mean E2EL) and `gain`: of a relative rise of requests in flight since the
        row before, the share that throughput took (1: all, 0: none, below 0: it fell); NaN where not known.
    points
        The points it rests on, a row each.
    """

    run: str
    workload: str
    kind: Kind
    lengths: str
    table: pd.DataFrame
    points: pd.DataFrame
    knee: Knee
    excluded: tuple[Excluded, ...] = ()
    gpus: int | None = None

    @property
    def unit(self) -> str:
        """What `x` counts."""
        return "requests at once" if self.kind == "closed" else "requests/s asked for"

    def label(self, x: float) -> str:
        """A load as it is written in tables and figures: `c32`, `r8`."""
        found = self.table.loc[self.table["x"] == x, "load"]
        return str(found.iloc[0]) if len(found) else f"{'c' if self.kind == 'closed' else 'r'}{x:g}"

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `load_curves`."""
        rows = [
            {str(name): None if pd.isna(value) else value for name, value in row.items()}
            for row in self.table.to_dict("records")
        ]
        return {
            "run": self.run, "workload": self.workload, "lengths": self.lengths, "kind": self.kind, "unit": self.unit,
            "gpus": self.gpus, "loads": rows, "knee": self.knee.to_json(),
            "excluded": [{"point": one.point, "load": one.load, "why": one.why} for one in self.excluded],
        }  # fmt: skip


def load_curves(
    points: pd.DataFrame, excluded: Mapping[int, str] | None = None, gpus: Mapping[str, int] | None = None
) -> list[LoadCurve]:
    """A curve for each run, workload and kind of load that was measured at all.

    Parameters
    ----------
    points
        `LatencyReport.points`: a row a repeat.
    excluded
        Rows (by position) that are not to be drawn through, and why.
    gpus
        How many GPUs a run used, by its name.

    Returns
    -------
    list of LoadCurve
        In the order of the points. Points without a limit on requests at once and without a rate (all at once) are of
        an open loop without a rate; they make no curve.
    """
    why = excluded or {}
    known = points.reset_index(drop=True)
    known["kind"] = np.where(known["rate"].notna(), "open", "closed")
    known["x"] = known["rate"].where(known["rate"].notna(), known["concurrency"]).astype(float)
    curves = []
    for _, group in known[known["x"].notna()].groupby(list(GROUP), sort=False, dropna=False):
        first = group.iloc[0]
        kept = group[[at not in why for at in group.index]]
        curves.append(
            LoadCurve(
                run=str(first["run"]),
                workload=str(first["workload"]),
                kind="open" if first["kind"] == "open" else "closed",
                lengths=_lengths(first),
                table=_table(kept),
                points=kept,
                knee=knee(kept),
                excluded=tuple(
                    Excluded(str(row["point"]), str(row["load"]), why[int(str(at))])
                    for at, row in group.iterrows()
                    if at in why
                ),
                gpus=(gpus or {}).get(str(first["run"])),
            )
        )
    return curves


def knee(points: pd.DataFrame) -> Knee:
    """The knee of one curve; see the module. Needs `x`, `requests_per_s`, `e2el_mean_ms`, `repeat`, `server_run`."""
    usable = points.dropna(subset=["requests_per_s", "e2el_mean_ms"])
    power = (usable["requests_per_s"] / usable["e2el_mean_ms"]).astype(float).groupby(usable["x"]).median().sort_index()
    if len(power) < FEWEST_LOADS:
        return Knee("too_few")
    at = int(np.argmax(power.to_numpy()))
    best = float(power.index[at])
    agree, repeats = _agreement(usable, best, len(power))
    low = float(power.index[at - 1]) if at else None
    high = float(power.index[at + 1]) if at + 1 < len(power) else None
    status: KneeStatus = "not_reached" if high is None else "passed" if low is None else "found"
    return Knee(status, best, low, high, agree, repeats)


def load_limit(table: pd.DataFrame, slos: Mapping[str, float], statistic: str = "p99") -> LoadLimit | None:
    """The most load under which a statistic of each latency stays within its limit; None without limits.

    Parameters
    ----------
    table
        Of a `LoadCurve`.
    slos
        Limits in milliseconds by `ttft_ms`, `tpot_ms`, `itl_ms`, `e2el_ms`.
    statistic
        One of `STATISTICS`.
    """
    if not slos:
        return None
    columns = {name: f"{name.removesuffix('_ms')}_{statistic}_ms" for name in slos}
    values = pd.DataFrame({name: table[column].astype(float) for name, column in columns.items()})
    if table.empty or values.isna().any(axis=None):
        return LoadLimit("not_measured", dict(slos), statistic)
    limits = pd.Series({name: float(limit) for name, limit in slos.items()})
    met = (values <= limits).all(axis=1).to_numpy()
    x = table["x"].to_numpy(float)
    if met.all():
        found = LoadLimit("all_meet", dict(slos), statistic, safe=float(x[-1]))
        return _with_rates(found, table.iloc[-1:], x[-1:], 0.0)
    first = int(np.argmin(met))
    monotone = not met[first:].any()
    over = (values.iloc[first] / limits).astype(float)
    if first == 0:
        return LoadLimit(
            "none_meets", dict(slos), statistic, broken=float(x[0]), breaks=str(over.idxmax()), monotone=monotone
        )
    before, after = values.iloc[first - 1], values.iloc[first]
    shares = {
        name: (limit - before[name]) / (after[name] - before[name])
        for name, limit in limits.items()
        if after[name] > limit
    }
    breaks = min(shares, key=lambda name: shares[name])
    share = float(shares[breaks])
    found = LoadLimit(
        "between", dict(slos), statistic, safe=float(x[first - 1]), broken=float(x[first]), breaks=str(breaks),
        monotone=monotone,
    )  # fmt: skip
    return _with_rates(found, table.iloc[first - 1 : first + 1], x[first - 1 : first + 1], share)


def cost_per_million(tokens_per_s: float | None, price_per_gpu_hour: float | None, gpus: int | None) -> float | None:
    """What a million tokens cost at this throughput, in the price's currency: price x GPUs / tokens an hour x 1e6.

    None where the price, the GPUs or the throughput are not known. GPUs that wait cost the same: it is the cost at
    this load kept up all the time.
    """
    if not tokens_per_s or price_per_gpu_hour is None or not gpus:
        return None
    return price_per_gpu_hour * gpus / (tokens_per_s * 3600) * 1e6


def cost_table(curve: LoadCurve, price_per_gpu_hour: float) -> pd.DataFrame:
    """A row a load: `load`, `x`, and the cost of a million `input`, `output` and `total` tokens.

    The whole price is put on the tokens of a column each time: they are three views, and do not add up.
    """
    rows = [
        (
            row["load"],
            row["x"],
            *(
                cost_per_million(row[f"{of}_tokens_per_s"], price_per_gpu_hour, curve.gpus)
                for of in ("input", "output", "total")
            ),
        )
        for row in curve.table.replace({np.nan: None}).to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["load", "x", "input", "output", "total"])


def _table(points: pd.DataFrame) -> pd.DataFrame:
    columns = ["load", "x", "repeats", "n", "in_flight", *RATES, *LATENCIES, "power", "gain"]
    if points.empty:
        return pd.DataFrame(columns=columns)
    figures = [name for name in (*RATES, *LATENCIES) if name in points]
    numbers = points[figures].apply(pd.to_numeric).astype(float)
    numbers["in_flight"] = numbers["requests_per_s"] * numbers["e2el_mean_ms"] / 1000
    numbers["power"] = numbers["requests_per_s"] / numbers["e2el_mean_ms"] * 1000
    medians = numbers.groupby(points["x"]).median().sort_index()
    grouped = points.groupby("x")
    medians["load"] = grouped["load"].first()
    medians["repeats"] = grouped.size()
    medians["n"] = grouped["completed"].min()
    rate, held = np.log(medians["requests_per_s"]), np.log(medians["in_flight"])
    rise = held.diff()
    # Where the load in flight did not rise, there is no rise to be split.
    medians["gain"] = (rate.diff() / rise).where(rise > 0.01)
    return medians.reset_index().reindex(columns=columns)


def _agreement(points: pd.DataFrame, best: float, loads: int) -> tuple[int, int]:
    """In how many repeats that measured all loads the same one is best, and how many there are."""
    power = points["requests_per_s"].astype(float) / points["e2el_mean_ms"].astype(float)
    agree = whole = 0
    for _, part in points.assign(power=power).groupby(["server_run", "repeat"], dropna=False):
        if part["x"].nunique() == loads:
            whole += 1
            agree += float(part.loc[part["power"].idxmax(), "x"]) == best
    return agree, whole


def _with_rates(limit: LoadLimit, rows: pd.DataFrame, x: NDArray[np.float64], share: float) -> LoadLimit:
    """The load and its throughput so far (`share`) from the first of one or two rows to the last."""

    def between(values: NDArray[np.float64]) -> float | None:
        at = float(values[0] + share * (values[-1] - values[0]))
        return None if np.isnan(at) else at

    return replace(
        limit,
        load=between(x),
        requests_per_s=between(rows["requests_per_s"].to_numpy(np.float64)),
        output_tokens_per_s=between(rows["output_tokens_per_s"].to_numpy(np.float64)),
    )


def _lengths(point: pd.Series[Any]) -> str:
    if pd.isna(point["input_len"]) or pd.isna(point["output_len"]):
        return str(point["workload"])
    data = str(point["data"])
    return f"{int(point['input_len'])}/{int(point['output_len'])}" + (
        "" if data in ("random", "unknown") else f" {data}"
    )
