"""Speed of variants: run values, ratios to the baseline by the machinery of `perflab compare`, and what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perflab.analysis.compare.metrics import METRICS, Metric, MetricRow, server_values, shared_points
from perflab.analysis.quantization.crossing import Crossing, RatioPoint, crossing
from perflab.analysis.quantization.estimate import Estimate, contrast, mean_of_runs
from perflab.analysis.quantization.ideal import CHUNK, Format, closed_loop_ratios
from perflab.analysis.quantization.kv_split import kv_split
from perflab.analysis.quantization.recognised import is_fp8, is_int4
from perflab.analysis.quantization.tradeoffs import (
    BASELINE,
    KVS,
    Comparison,
    Duel,
    Ends,
    Ideal,
    Kv,
    Speed,
    Split,
)
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.tasks.compare_runs import MetricComparison, Side, SideMeasured, compare_measured, measured_side
from perflab.tasks.quantize.sources import VariantRun

SHOWN = ("output_tokens_per_s", "tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms", "e2el_p50_ms")
"""Metrics of the table."""
CURVES = ("output_tokens_per_s", "tpot_p50_ms")
"""Metrics whose ratio is followed over loads."""
_GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LENGTHS = 2


@dataclass(frozen=True)
class Measured:
    """The measured points of one variant with its KV cache pinned, or free."""

    side: Side
    points: SideMeasured
    speeds: tuple[Speed, ...] = ()
    problems: tuple[str, ...] = field(default=())


def measured_variants(
    by_variant: Mapping[str, Sequence[VariantRun]], thresholds: Thresholds
) -> tuple[dict[str, dict[Kv, Measured]], list[str]]:
    """Variant -> KV mode -> its points, with ratios to the baseline of the same mode; and what is missing, in words."""
    found: dict[str, dict[Kv, Measured]] = {}
    for name, runs in by_variant.items():
        for kv in KVS:
            mine = tuple(one.run for one in runs if one.kv == kv)
            if not mine:
                continue
            side = Side(name, mine)
            points = measured_side(side, thresholds.source)
            if points.measured:
                found.setdefault(name, {})[kv] = Measured(side, points)
    base = found.get(BASELINE, {})
    missing: list[str] = []
    for name, by_kv in found.items():
        for kv, one in by_kv.items():
            other = base.get(kv)
            compared = None if other is None or name == BASELINE else _compared(other, one, thresholds)
            by_kv[kv] = replace(one, speeds=tuple(_speeds(one, kv, compared)))
            if name != BASELINE and other is None and base:
                missing.append(say("tradeoffs.missing.no_pair", variant=name, kv=say(f"tradeoffs.kv.{kv}")))
            if compared is not None:
                missing += [check.detail for check in compared.checks if check.status == "fail"]
    return found, list(dict.fromkeys(missing))


def _compared(base: Measured, other: Measured, thresholds: Thresholds) -> MetricComparison:
    return compare_measured(base.side, other.side, (base.points, other.points), thresholds)


def _speeds(one: Measured, kv: Kv, compared: MetricComparison | None) -> list[Speed]:
    rows: dict[tuple[str, str], MetricRow] = {}
    measured = one.points.measured
    if compared is not None:
        rows = {(row.point, row.metric.name): row for row in compared.rows}
        measured = compared.candidate.measured
    loads = {
        here.point: point.point.load.concurrency for here, point in zip(measured, one.points.points, strict=True)
    }  # fmt: skip
    found = []
    for point in shared_points(measured, measured):
        mine = [here for here in measured if here.point == point]
        for metric in (metric for metric in METRICS if metric.name in SHOWN):
            values = [value for value in server_values(mine, metric).values() if math.isfinite(value)]
            if not values:
                continue
            row = rows.get((point, metric.name))
            load = loads[point]
            found.append(Speed(
                kv=kv, point=point, lengths=point.rpartition(" ")[0], load=None if load is None else float(load),
                metric=metric.name, value=mean_of_runs(values), gain=_gain(row, metric),
                verdict=None if row is None else row.verdict, reason="" if row is None else row.reason,
                values=tuple(values),
            ))  # fmt: skip
    return found


def _gain(row: MetricRow | None, metric: Metric) -> Estimate | None:
    """The ratio turned so that above 1 is faster; None where there is none, or a failed check took it back."""
    if row is None or row.found is None or row.verdict == "withheld":
        return None
    found = Estimate(row.found.ratio, row.found.low, row.found.high, row.found.fewest)
    return found.inverted() if metric.better == "lower" else found


def curves(
    comparison: Comparison,
    measured: Mapping[str, Mapping[Kv, Measured]],
    formats: Mapping[str, Format],
    chunk: int | None,
    share: float,
) -> Comparison:
    """The comparison with what its curves over loads come to.

    Parameters
    ----------
    share
        An advantage of less than this is taken for none.
    """
    ideal = _ideal(comparison, formats, chunk)
    return replace(
        comparison,
        ideal=tuple(ideal),
        ends=tuple(_ends(comparison, ideal, 1 + share)),
        splits=tuple(_splits(comparison)),
        duels=tuple(_duels(comparison)),
    )


def _ideal(comparison: Comparison, formats: Mapping[str, Format], chunk: int | None) -> list[Ideal]:
    base, lengths = formats.get(BASELINE), _tokens(comparison.lengths)
    if base is None or lengths is None:
        return []
    measured = {int(s.load) for v in comparison.variants for s in v.speed if s.load is not None}
    loads = sorted({*_GRID, *measured})
    found = []
    for variant in comparison.variants:
        mine = formats.get(variant.name)
        if variant.name == BASELINE or mine is None:
            continue
        table = closed_loop_ratios(base, mine, loads, *lengths, chunk or CHUNK)
        found += [
            Ideal(variant.name, float(load), float(rate), float(step))
            for load, rate, step in zip(table["load"], table["throughput"], table["decode"], strict=True)
        ]
    return found


def _tokens(lengths: str) -> tuple[int, int] | None:
    """`512/128` -> (512, 128)."""
    parts = lengths.rpartition(" ")[2].split("/")
    if len(parts) != _LENGTHS or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _ends(comparison: Comparison, ideal: Sequence[Ideal], level: float) -> list[Ends]:
    found = []
    for variant in comparison.variants:
        if variant.name == BASELINE:
            continue
        for kv in comparison.kvs:
            for metric in CURVES:
                if kv == "free" and metric.endswith("_ms") and "pinned" in comparison.kvs:
                    # Where room for requests differs, so do batches: a token's time is then not of like work.
                    continue
                measured = gain_points(comparison, variant.name, metric, kv)
                if not measured:
                    continue
                at = crossing(measured, level)
                # The roofline knows nothing of room in the cache.
                roofed = kv == "pinned" or "pinned" not in comparison.kvs
                possible = _possible(ideal, variant.name, metric) if roofed else []
                expected: Crossing | None = crossing(possible, level) if possible else None
                found.append(Ends(variant.name, metric, kv, comparison.lengths, at, expected))
    return found


def gain_points(comparison: Comparison, variant: str, metric: str, kv: Kv) -> list[RatioPoint]:
    """A variant's gains by load, of the lengths most loads were measured with."""
    one = comparison.variant(variant)
    if one is None:
        return []
    return [
        RatioPoint(load, speed.gain.value, speed.gain.low, speed.gain.high, speed.gain.n)
        for load, speed in sorted(one.speeds(metric, kv, comparison.lengths).items())
        if speed.gain is not None
    ]


def _possible(ideal: Sequence[Ideal], variant: str, metric: str) -> list[RatioPoint]:
    mine = [one for one in ideal if one.variant == variant]
    rate = metric == CURVES[0]
    return [RatioPoint(one.load, one.throughput if rate else one.decode) for one in mine]


def _splits(comparison: Comparison) -> list[Split]:
    base = comparison.baseline
    if base is None or comparison.kvs != KVS:
        return []
    found = []
    for variant in comparison.variants:
        if variant.name == BASELINE:
            continue
        for metric in CURVES:
            for point in dict.fromkeys(speed.point for speed in variant.speed):
                values = [
                    _values_at(one.speed, metric, point, kv) for kv in KVS for one in (base, variant)
                ]  # fmt: skip
                if not all(values):
                    continue
                parts = kv_split((values[0], values[1]), (values[2], values[3]), lower_is_better=metric.endswith("_ms"))
                load = next(speed.load for speed in variant.speed if speed.point == point)
                found.append(Split(variant.name, metric, point, load, parts))
    return found


def _values_at(speeds: Sequence[Speed], metric: str, point: str, kv: Kv) -> tuple[float, ...]:
    return next(
        (one.values for one in speeds if (one.metric, one.point, one.kv) == (metric, point, kv)), ()
    )  # fmt: skip


def _duels(comparison: Comparison) -> list[Duel]:
    """Every format of 4-bit weights against every FP8 one, at every load that both have."""
    four = [one for one in comparison.variants if is_int4(one.name)]
    eight = [one for one in comparison.variants if is_fp8(one.name)]
    found = []
    for one in four:
        for other in eight:
            for speed in one.speed:
                if speed.metric not in CURVES:
                    continue
                against = _values_at(other.speed, speed.metric, speed.point, speed.kv)
                if not against:
                    continue
                sign = -1.0 if speed.metric.endswith("_ms") else 1.0
                gain = contrast([(sign, speed.values), (-sign, against)])
                found.append(Duel(one.name, other.name, speed.metric, speed.kv, speed.point, speed.load, gain))
    return found
