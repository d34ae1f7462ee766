"""Trade-offs of quantized variants, cut to what one table or figure of a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perflab.analysis.check import Check
from perflab.analysis.finding import Finding
from perflab.analysis.quantization import words
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.tradeoffs import (
    BASELINE,
    KVS,
    Accuracy,
    Comparison,
    Kv,
    Place,
    Variant,
    accuracy_of,
)
from perflab.messages import say
from perflab.plots.quantization import ParetoPoint, variant_colours
from perflab.report.answers import Answer, Tile
from perflab.report.views import Pieces
from perflab.tasks.quantize.sources import recorded_studies
from perflab.tasks.quantize.tradeoffs import TradeoffReport

DEFAULT_RUNS = ("llama3-8b-bf16", "llama3-8b-fp8", "llama3-8b-awq", "llama3-70b-bf16-tp2", "llama3-70b-awq-tp2")
"""Recorded runs a page shows besides recorded studies."""
_RATE, _TPOT = "output_tokens_per_s", "tpot_p50_ms"
_COUNTS = ("KV tokens", "at once")


def default_names() -> list[str]:
    """The recorded studies, then the recorded runs of quantized models with their baselines."""
    return [*(path.name for path in recorded_studies()), *DEFAULT_RUNS]


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
        "machine": f"{_place_name(one.place)}",
        "variant": variant.label,
        "weights_bytes": None if any_memory is None else any_memory.weights_bytes,
        f"KV tokens, {mode}": None if memory is None else memory.kv_tokens,
        f"at once, {mode}": None if memory is None or memory.max_concurrency is None else round(memory.max_concurrency),
    }
    is_base = variant.name == BASELINE
    for kv in one.kvs:
        speeds = variant.speeds(_RATE, kv, one.lengths)
        for load in sorted({s.load for v in one.variants for s in v.speed if s.kv == kv and s.load is not None}):
            gain = speeds[load].gain if load in speeds else None
            row[f"x at {load:g}, {kv}"] = "baseline" if is_base else gain and words.factor(gain)
    accuracy = accuracy_for(report, one, variant)
    row["perplexity"] = "baseline" if is_base else None
    row["same top token"] = None
    if accuracy is not None and not is_base:
        row["perplexity"] = accuracy.perplexity_ratio and words.rise(accuracy.perplexity_ratio)
        row["same top token"] = accuracy.agreement and words.shares(accuracy.agreement)
    row["accuracy of"] = None if accuracy is None or is_base else words.scored(accuracy, variant.label)
    return row


def accuracy_for(report: TradeoffReport, one: Comparison, variant: Variant) -> Accuracy | None:
    """The variant's own accuracy, else that of the same format on a model with real weights."""
    if variant.accuracy is not None:
        return variant.accuracy
    return next(iter(accuracy_of([c for c in report.comparisons if c is not one], variant.name)), None)


def _loads(one: Comparison) -> list[float]:
    return sorted({speed.load for variant in one.variants for speed in variant.speed if speed.load is not None})


def _ends(one: Comparison) -> list[tuple[float, Kv]]:
    """The smallest and the largest load, and in which KV mode they are shown."""
    loads = _loads(one)
    found = [(load, one.mode_at(_RATE, load)) for load in dict.fromkeys((loads[0], loads[-1]))] if loads else []
    return [(load, kv) for load, kv in found if kv is not None]


def _model_name(place: Place) -> str:
    return f"{place.model.partition(' (')[0]}{', random weights' if place.random_weights else ''}"


def _place_name(place: Place) -> str:
    return f"{_model_name(place)}{f'; {place.machine}' if place.machine else ''}"


def _place_names(report: TradeoffReport) -> dict[Place, str]:
    """Each with the study it comes from, where others are of the same model and machine."""
    names = {one.place: _place_name(one.place) for one in report.comparisons}
    shared = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {
        place: f"{name} ({place.source or say('notebook.tradeoffs.single_runs')})" if name in shared else name
        for place, name in names.items()
    }


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
        "machine": one.place.machine or say("notebook.tradeoffs.no_machine"), "model": _model_name(one.place),
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


def _kl(one: Estimate, bound: bool) -> str:
    ends = "" if one.low is None or one.high is None else f" ({one.low:.4f} to {one.high:.4f})"
    return f"{'at least ' if bound else ''}{one.value:.4f}{ends}"


def accuracy_notes(report: TradeoffReport) -> str:
    """What has to be known beside every figure of accuracy, and how large noise is."""
    notes = dict.fromkeys(
        note for one in report.comparisons for v in one.variants if v.accuracy for note in v.accuracy.notes
    )
    noise = [
        v.accuracy.control_kl.value for one in report.comparisons for v in one.variants
        if v.accuracy and v.accuracy.control_kl
    ]  # fmt: skip
    if noise:
        notes[say("notebook.tradeoffs.control", kl=f"{max(noise):.4f}")] = None
    return "\n".join(f"- {note}" for note in notes)


def comparison_of(report: TradeoffReport, model: str | None = None) -> Comparison | None:
    """The comparison a figure shows: of the model whose name, place or study holds `model`; by default the fullest."""
    found = [
        one
        for one in report.comparisons
        if model is None or model.lower() in f"{one.place.label} {one.place.source}".lower()
    ]
    return max(found, key=_fullness, default=None)


def _fullness(one: Comparison) -> tuple[int, int, int]:
    return (len(one.kvs), len({s.load for v in one.variants for s in v.speed}), len(one.variants))


def _with_speed(report: TradeoffReport) -> list[Comparison]:
    return [one for one in report.comparisons if one.has_speed and one.baseline and len(one.variants) > 1]


def memory_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_variant_memory`: each model and machine, with the KV cache pinned and free apart."""
    return [
        {"comparison": one, "kv": kv}
        for one in report.comparisons
        for kv in KVS
        if any(memory.kv == kv for variant in one.variants for memory in variant.memory)
    ]


def predicted_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_predicted_memory`: each model and machine, in the KV mode that more variants were measured in."""
    found: Pieces = []
    for one in report.comparisons:
        counts = {
            kv: sum(
                memory.kv == kv and bool(memory.weights_bytes and memory.predicted_weights_bytes)
                for variant in one.variants
                for memory in variant.memory
            )
            for kv in KVS
        }
        kv = max(KVS, key=lambda mode: counts[mode])
        if counts[kv]:
            found.append({"comparison": one, "kv": kv})
    return found


def gain_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_gain_over_load`: throughput, then TPOT, of each model, with the KV cache pinned and free apart."""
    return [
        {"comparison": one, "metric": metric, "kv": kv, "colours": _colours(report)}
        for one in _with_speed(report)
        for kv in one.kvs
        for metric in (_RATE, _TPOT)
        if any(variant.speeds(metric, kv, one.lengths) for variant in one.variants if variant.name != BASELINE)
    ]


def step_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_variant_steps`: decode and mixed steps of each model whose baseline and variants were profiled."""
    return [
        {"comparison": one, "phase": phase}
        for one in _with_speed(report)
        for phase in ("decode", "mixed", "prefill")
        if any(p.phase == phase for v in one.variants if v.reasons for p in v.reasons.categories)
    ]


def pareto_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_speed_against_accuracy`: each model with speeds, at its smallest and at its largest load.

    Accuracy is the variant's own where its weights are real; of random weights that of the same format on another
    model, and the axes say so.
    """
    margin = report.thresholds.limit("quantization", "loss")
    found: Pieces = []
    for one in _with_speed(report):
        for load, kv in _ends(one):
            points, of = _pareto_points(report, one, kv, load)
            if points and of is not None:
                found.append({
                    "points": points, "speed_of": one.place, "accuracy_of": of, "load": load, "kv": kv,
                    "margin": margin, "colours": _colours(report),
                })  # fmt: skip
    return found


def _pareto_points(
    report: TradeoffReport, one: Comparison, kv: Kv, load: float
) -> tuple[list[ParetoPoint], Place | None]:
    """Points whose accuracy is all of one model: the first one found."""
    points: list[ParetoPoint] = []
    of: Place | None = None
    for variant in one.variants:
        accuracy = accuracy_for(report, one, variant)
        speed = variant.speeds(_RATE, kv, one.lengths).get(load)
        if accuracy is None or accuracy.perplexity_ratio is None or speed is None or speed.gain is None:
            continue
        if of is not None and accuracy.place != of:
            continue
        of = accuracy.place
        ratio = accuracy.perplexity_ratio
        loss = Estimate(
            ratio.value - 1,
            None if ratio.low is None else ratio.low - 1,
            None if ratio.high is None else ratio.high - 1,
            ratio.n,
        )
        points.append(ParetoPoint(variant.name, variant.label, loss, speed.gain))
    return points, of


def _colours(report: TradeoffReport) -> dict[str, str]:
    return variant_colours([variant.name for one in report.comparisons for variant in one.variants])


def tradeoffs_answer(report: TradeoffReport) -> Answer:
    """What to take on each machine and model, a sentence each, and what of its accuracy is known.

    Figures in large type are of the comparison that holds most.
    """
    blocks: dict[str, list[str]] = {}
    losses: dict[str, None] = {}
    names = _place_names(report)
    for place, one in report.recommendations:
        blocks.setdefault(names[place], []).extend(words.recommendation_sentences(one)[:1])
        losses[words.accuracy_told(one)] = None
    told = tuple(f"**{name}**: {' '.join(lines)}" for name, lines in blocks.items())
    fullest = comparison_of(report)
    tiles = _tiles(fullest) if fullest is not None and told else []
    return Answer((*told, *filter(None, losses)) or (say("notebook.tradeoffs.nothing"),), tuple(tiles[:3]))


def _tiles(one: Comparison) -> list[Tile]:
    tiles = []
    for load, kv in _ends(one):
        gains = {
            variant.label: speed.gain
            for variant in one.variants
            if (speed := variant.speeds(_RATE, kv, one.lengths).get(load)) is not None and speed.gain is not None
        }
        if gains:
            best = max(gains, key=lambda label: gains[label].value)
            label = say("notebook.tradeoffs.tile_speed", load=f"{load:g}")
            tiles.append(Tile(label, f"{gains[best].value:.2f} x", f"{best}; {_place_name(one.place)}"))
    base = one.baseline.memory_of() if one.baseline else None
    sizes = {v.label: m.weights_bytes for v in one.variants if (m := v.memory_of()) is not None and m.weights_bytes}
    if base is not None and base.weights_bytes and len(sizes) > 1:
        least = min(sizes, key=lambda label: sizes[label])
        share = base.weights_bytes / sizes[least]
        tiles.append(
            Tile(say("notebook.tradeoffs.tile_memory"), f"{share:.2f} x", f"{least}; {_place_name(one.place)}")
        )
    return tiles


def tradeoff_checks(report: TradeoffReport) -> list[Check]:
    """What is missing or failed, and how many server runs figures rest on, as checks before the first figure."""
    found = []
    names = _place_names(report)
    for one in report.comparisons:
        where = names[one.place]
        runs = [speed.value.n for variant in one.variants for speed in variant.speed]
        if runs:
            few = min(runs)
            status: Any = "pass" if few >= 3 else "warn"
            name = "runs_enough" if few >= 3 else "runs_few"
            found.append(Check("server_runs", status, say(f"notebook.tradeoffs.{name}", n=few), source=where))
        if one.place.random_weights:
            found.append(Check("random_weights", "warn", say("notebook.tradeoffs.random"), source=where))
        found += [Check("complete", "warn", text, source=where) for text in one.missing]
    return found


def effect_findings(report: TradeoffReport) -> list[Finding]:
    """Formats that were asked for and did not take effect, by log, weights or kernels, each once."""
    by_trace = [
        finding
        for one in report.comparisons
        for variant in one.variants
        if variant.reasons
        for finding in variant.reasons.findings
    ]
    found = [*(finding for effect in report.effects for finding in effect.findings), *by_trace]
    return list({(one.id, one.title, one.run): one for one in found}.values())


def effect_sentences(report: TradeoffReport) -> str:
    """Whether each format took effect, and how that shows."""
    lines = [
        say(f"notebook.tradeoffs.effect_{effect.answer}", run=effect.run, asked=effect.asked or effect.kv_asked or "")
        + " "
        + " ".join(effect.evidence)
        for effect in report.effects
    ]
    return "\n".join(f"- {line}" for line in lines) or say("notebook.tradeoffs.no_effect")


def _of_each(report: TradeoffReport, told: Any) -> str:
    """Sentences of each comparison as a list, under what they are of."""
    blocks = []
    names = _place_names(report)
    for one in _with_speed(report):
        lines: Sequence[str] = told(one)
        if lines:
            blocks.append(f"**{names[one.place]}**\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(blocks) or say("notebook.tradeoffs.nothing")


def gain_sentences(report: TradeoffReport) -> str:
    """Each variant over loads, where 4-bit weights beat FP8 and where not, where advantages end, and splits."""
    return _of_each(
        report,
        lambda one: [
            *words.verdict_sentences(one),
            *words.duel_sentences(one),
            *words.end_sentences(one),
            *words.split_sentences(one),
        ],
    )


def reason_sentences(report: TradeoffReport) -> str:
    """What inside a step makes each variant what it is."""
    return _of_each(
        report, lambda one: [line for v in one.variants if v.name != BASELINE for line in words.reason_sentences(v)]
    )


def recommendation_sentences(report: TradeoffReport) -> str:
    """What to take for each profile, and what that rests on."""
    blocks: dict[str, list[str]] = {}
    names = _place_names(report)
    for place, one in report.recommendations:
        blocks.setdefault(names[place], []).append(" ".join(words.recommendation_sentences(one)))
    told = [f"**{name}**\n\n" + "\n".join(f"- {line}" for line in lines) for name, lines in blocks.items()]
    return "\n\n".join(told) or say("notebook.tradeoffs.nothing")


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
