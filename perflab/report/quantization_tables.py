"""Trade-offs of quantized variants as tables: a row a variant, a load or a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perflab.analysis.quantization import words
from perflab.analysis.quantization.crossing import Crossing
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.task_scores import TaskScore
from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison, Kv, Variant
from perflab.messages import say
from perflab.report.quantization_places import (
    accuracy_for,
    comparison_of,
    model_name,
    place_name,
    place_names,
    with_speed,
)
from perflab.tasks.quantize.tradeoffs import TradeoffReport

_RATE, _TPOT = "output_tokens_per_s", "tpot_p50_ms"
_COUNTS = ("KV tokens", "at once")
_ROOFLINE = tuple(f"{what}, roofline" for what in ("throughput", "TPOT", "one token", "large batch", "computing from"))


def places_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a model and machine: what its figures are of, what was measured, and on how many server runs."""
    rows = [
        {
            "from": one.place.source or say("notebook.tradeoffs.single_runs"),
            "model": one.place.model,
            "weights": {True: "random", False: "real", None: "not told"}[one.place.random_weights],
            "machine": one.place.machine or None,
            "vLLM": one.place.vllm or None,
            "variants": len(one.variants),
            "speed": style_kvs(one) or None,
            "accuracy": sum(variant.accuracy is not None for variant in one.variants) or None,
            "server runs": _server_runs(one),
        }
        for one in report.comparisons
    ]
    table = pd.DataFrame(rows)
    return table.astype({"accuracy": "Int64"}) if len(table) else table


def style_kvs(one: Comparison) -> str:
    """`KV pinned and free`."""
    return f"KV {' and '.join(one.kvs)}" if one.kvs else ""


def _server_runs(one: Comparison) -> str | None:
    counts = sorted({speed.value.n for variant in one.variants for speed in variant.speed})
    return None if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def whole_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a variant of the model and machine most was measured on: memory, speed and accuracy; NA: not measured.

    Accuracy of a model with random weights means nothing: there stands that of the same format on a model with real
    weights, and `accuracy of` says which.
    """
    one = comparison_of(report)
    return pd.DataFrame() if one is None else _table_of(report, [one])


def other_table(report: TradeoffReport) -> pd.DataFrame:
    """The same of every other model and machine with speed or memory."""
    first = comparison_of(report)
    return _table_of(
        report,
        [
            one
            for one in report.comparisons
            if one is not first and (one.has_speed or any(variant.memory for variant in one.variants))
        ],
    )


def _table_of(report: TradeoffReport, comparisons: Sequence[Comparison]) -> pd.DataFrame:
    table = pd.DataFrame([_whole_row(report, one, variant) for one in comparisons for variant in one.variants])
    # What nothing was measured of stays as one column, the perplexity, whose dashes say so.
    empty = [name for name in ("same top token", "accuracy of") if name in table and table[name].isna().all()]
    return _numbers(table.drop(columns=empty))


def _numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Counts as whole numbers, where some are not known."""
    counts = [name for name in table if name in ("weights_bytes", "tokens") or str(name).startswith(_COUNTS)]
    return table.astype(dict.fromkeys(counts, "Int64"))


def _whole_row(report: TradeoffReport, one: Comparison, variant: Variant) -> dict[str, Any]:
    any_memory = variant.memory_of()
    # What a cache holds is told of one mode: free, where any variant of the place was measured so.
    mode: Kv = "free" if any(v.memory_of("free") for v in one.variants) else "pinned"
    memory = variant.memory_of(mode)
    row: dict[str, Any] = {
        "machine": f"{place_name(one.place)}",
        "variant": variant.label,
        "weights_bytes": None if any_memory is None else any_memory.weights_bytes,
        f"KV tokens, {mode}": None if memory is None else memory.kv_tokens,
        f"at once, {mode}": None if memory is None or memory.max_concurrency is None else round(memory.max_concurrency),
    }
    is_base = variant.name == BASELINE
    accuracy = None if is_base else accuracy_for(report, one, variant)
    row["perplexity"] = "baseline" if is_base else None
    if accuracy is not None:
        row["perplexity"] = accuracy.perplexity_ratio and words.rise(accuracy.perplexity_ratio)
    for kv in one.kvs:
        speeds = variant.speeds(_RATE, kv, one.lengths)
        for load in sorted({s.load for v in one.variants for s in v.speed if s.kv == kv and s.load is not None}):
            gain = speeds[load].gain if load in speeds else None
            row[f"x at {load:g}, {kv}"] = "1" if is_base and load in speeds else gain and words.factor(gain)
    row["same top token"] = None if accuracy is None else accuracy.agreement and words.shares(accuracy.agreement)
    row["accuracy of"] = None if accuracy is None else words.scored(accuracy, variant.label)
    return row


def speed_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a model, load and variant: throughput, TPOT and TTFT, ratios with intervals; pinned and free apart."""
    rows = []
    for one in report.comparisons:
        for kv in one.kvs:
            points = dict.fromkeys(s.point for v in one.variants for s in v.speed if s.kv == kv)
            for point in points:
                rows += [row for v in one.variants if (row := _speed_row(one, v, kv, point)) is not None]
    return pd.DataFrame(rows)


def _speed_row(one: Comparison, variant: Variant, kv: Kv, point: str) -> dict[str, Any] | None:
    mine = {speed.metric: speed for speed in variant.speed if speed.kv == kv and speed.point == point}
    rate, tpot, ttft = (mine.get(name) for name in (_RATE, _TPOT, "ttft_p99_ms"))
    if rate is None:
        return None
    return {
        "machine": one.place.machine or say("notebook.tradeoffs.no_machine"), "model": model_name(one.place),
        "KV": kv, "at": point, "variant": variant.label,
        "output tokens/s": _with_interval(rate.value, 0),
        "x baseline": rate.gain and words.factor(rate.gain),
        "TPOT p50 (ms)": tpot and _with_interval(tpot.value, 2),
        "x faster": tpot.gain and words.factor(tpot.gain) if tpot else None,
        "TTFT p99 (ms)": ttft and _with_interval(ttft.value, 0),
        "runs": rate.value.n, "verdict": rate.verdict,
    }  # fmt: skip


def _with_interval(one: Estimate, digits: int) -> str:
    if one.low is None or one.high is None:
        return f"{one.value:,.{digits}f}"
    return f"{one.value:,.{digits}f} ({one.low:,.{digits}f} to {one.high:,.{digits}f})"


def ends_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a variant: up to how many requests at once it beats the baseline, measured and by the roofline.

    Columns besides: what the roofline lets its linear layers gain on one token and in a large batch, and from how many
    tokens a step on they are bound by computing. Empty where no curve was measured.
    """
    names = place_names(report)
    rows = [
        _ends_row(one, variant, names[one.place])
        for one in with_speed(report)
        for variant in one.variants
        if any(end.variant == variant.name for end in one.ends)
    ]
    table = pd.DataFrame(rows)
    # Rows of several machines were measured in several KV modes: what was measured stands before the roofline.
    return table[[*(c for c in table if c not in _ROOFLINE), *(c for c in _ROOFLINE if c in table)]]


def ends_caption(report: TradeoffReport) -> str:
    """What `ends_table` shows, with the advantage that counts."""
    level = report.thresholds.limit("run_change", "practical")
    return say("notebook.tradeoffs.ends", level=f"{level * 100:g} %")


def _ends_row(one: Comparison, variant: Variant, where: str) -> dict[str, Any]:
    row: dict[str, Any] = {"machine": where, "variant": variant.label}
    mine = [end for end in one.ends if end.variant == variant.name]
    for end in mine:
        row[f"{words.metric_name(end.metric)}, {end.kv}"] = _end(end.measured)
    for end in mine:
        if end.predicted is not None and end.predicted.status != "too_few":
            row[f"{words.metric_name(end.metric)}, roofline"] = _end(end.predicted, say("tradeoffs.end.no_end"))
    if (roof := variant.vanishing) is not None:
        row["one token, roofline"] = f"{roof.best:.1f} x"
        row["large batch, roofline"] = f"{roof.last:.1f} x"
        row["computing from, roofline"] = say("tradeoffs.end.tokens", n=f"{roof.own_balance:.0f}")
    return row


def _end(one: Crossing, keeps: str = "") -> str:
    """`128`, with its interval where there is one; `beyond 256`; `none at 1`."""
    if one.status == "too_few":
        return "–"
    if one.status == "keeps":
        return keeps or say("tradeoffs.end.keeps", load=f"{one.below:g}")
    if one.status == "never":
        return say("tradeoffs.end.never", load=f"{one.above:g}")
    if not one.banded:
        return f"{one.at:.0f}"
    low = "…" if one.low is None else f"{one.low:.0f}"
    high = "…" if one.high is None else f"{one.high:.0f}"
    return f"{one.at:.0f} ({low} to {high})"


def splits_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a variant and load measured with the KV cache free and pinned: whole gain = kernels x batches."""
    rows = []
    names = place_names(report)
    for one in with_speed(report):
        labels = {variant.name: variant.label for variant in one.variants}
        rows += [
            {
                "machine": names[one.place], "variant": labels.get(split.variant, split.variant),
                "load": words.load_word(split.load, split.point), "x, KV free": words.factor(split.split.whole),
                "x of kernels": words.factor(split.split.kernels), "x of batches": words.factor(split.split.batches),
            }
            for split in one.splits
            if split.metric == _RATE
        ]  # fmt: skip
    return pd.DataFrame(rows)


def accuracy_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a variant whose accuracy was measured: of which model, on what, and how it was executed."""
    rows = []
    for one in report.comparisons:
        for variant in one.variants:
            found = variant.accuracy
            if found is None:
                continue
            rows.append({
                "machine": found.place.machine or say("notebook.tradeoffs.no_machine"),
                "model": found.place.model.partition(" (")[0], "variant": variant.label,
                "perplexity": found.perplexity and found.perplexity.value,
                "rise": found.perplexity_ratio and words.rise(found.perplexity_ratio),
                "same top token": found.agreement and words.shares(found.agreement),
                "KL (nats a token)": found.kl and _kl(found.kl, found.kl_is_lower_bound),
                "KL when decoding": found.decode_kl and _kl(found.decode_kl, False),
                "tokens": found.tokens, "executed by": found.executed or None,
            })  # fmt: skip
    table = pd.DataFrame(rows)
    empty = [name for name in ("KL when decoding",) if name in table and table[name].isna().all()]
    return _numbers(table.drop(columns=empty))


def tasks_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a variant, task of lm-eval and metric, paired with the baseline by document; empty where none was run."""
    rows = [
        _task_row(model_name(variant.accuracy.place), variant.label, task)
        for one in report.comparisons
        for variant in one.variants
        if variant.accuracy is not None
        for task in variant.accuracy.tasks
        if variant.name != BASELINE or task.failed
    ]
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(("documents", "answers lost", "answers won"), "Int64")) if len(table) else table


def _task_row(model: str, label: str, one: TaskScore) -> dict[str, Any]:
    return {
        "model": model, "variant": label, "task": one.name, "metric": one.metric or None, "documents": one.documents,
        "baseline": one.baseline and f"{one.baseline.value:.3f}", "score": one.value and f"{one.value.value:.3f}",
        "difference": one.difference and words.difference(one.difference), "answers lost": one.lost,
        "answers won": one.won, "verdict": words.task_word(one),
    }  # fmt: skip


def _kl(one: Estimate, bound: bool) -> str:
    ends = "" if one.low is None or one.high is None else f" ({one.low:.4f} to {one.high:.4f})"
    return f"{'at least ' if bound else ''}{one.value:.4f}{ends}"


def claims_table(report: TradeoffReport) -> pd.DataFrame:
    """A row a claim of the guide: what it says, what was measured, the verdict, and what is known besides."""
    return pd.DataFrame(
        [
            {
                "the guide claims": one.claim.text,
                "verdict": say(f"tradeoffs.claim.{one.verdict}"),
                "measured here": words.claim_measured(one) if one.seen else None,
                "known besides": one.claim.truth,
            }
            for one in report.claims
        ]
    )
