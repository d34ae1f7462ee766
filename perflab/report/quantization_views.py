"""Trade-offs of quantized variants, cut to what one table or figure of a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perflab.analysis.check import Check
from perflab.analysis.finding import Finding
from perflab.analysis.quantization import words
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.tradeoffs import (
    BASELINE,
    KVS,
    Comparison,
    Kv,
    Place,
)
from perflab.messages import say
from perflab.plots.quantization import ParetoPoint, variant_colours
from perflab.report.answers import Answer, Tile
from perflab.report.quantization_places import accuracy_for, comparison_of, place_name, place_names, with_speed
from perflab.report.views import Pieces
from perflab.tasks.quantize.sources import recorded_studies
from perflab.tasks.quantize.tradeoffs import TradeoffReport

DEFAULT_RUNS = ("llama3-8b-bf16", "llama3-8b-fp8", "llama3-8b-awq", "llama3-70b-bf16-tp2", "llama3-70b-awq-tp2")
"""Recorded runs a page shows besides recorded studies."""
_RATE, _TPOT = "output_tokens_per_s", "tpot_p50_ms"


def default_names() -> list[str]:
    """The recorded studies, then the recorded runs of quantized models with their baselines."""
    return [*(path.name for path in recorded_studies()), *DEFAULT_RUNS]


def _loads(one: Comparison) -> list[float]:
    return sorted({speed.load for variant in one.variants for speed in variant.speed if speed.load is not None})


def _ends(one: Comparison) -> list[tuple[float, Kv]]:
    """The smallest and the largest load, and in which KV mode they are shown."""
    loads = _loads(one)
    found = [(load, one.mode_at(_RATE, load)) for load in dict.fromkeys((loads[0], loads[-1]))] if loads else []
    return [(load, kv) for load, kv in found if kv is not None]


def accuracy_notes(report: TradeoffReport) -> str:
    """What has to be known beside every figure of accuracy, how large noise is, and why a task has no score."""
    scored = [v.accuracy for one in report.comparisons for v in one.variants if v.accuracy]
    notes = dict.fromkeys(note for one in scored for note in one.notes)
    notes |= dict.fromkeys(f"{task.name}: {note}" for one in scored for task in one.tasks for note in task.notes)
    notes |= dict.fromkeys(task.failed for one in scored for task in one.tasks if task.failed)
    noise = [one.control_kl.value for one in scored if one.control_kl]
    if noise:
        notes[say("notebook.tradeoffs.control", kl=f"{max(noise):.4f}")] = None
    return "\n".join(f"- {note}" for note in notes)


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
        for one in with_speed(report)
        for kv in one.kvs
        for metric in (_RATE, _TPOT)
        if any(variant.speeds(metric, kv, one.lengths) for variant in one.variants if variant.name != BASELINE)
    ]


def step_pieces(report: TradeoffReport) -> Pieces:
    """For `plot_variant_steps`: decode and mixed steps of each model whose baseline and variants were profiled."""
    return [
        {"comparison": one, "phase": phase}
        for one in with_speed(report)
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
    for one in with_speed(report):
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
    names = place_names(report)
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
            tiles.append(Tile(label, f"{gains[best].value:.2f} x", f"{best}; {place_name(one.place)}"))
    base = one.baseline.memory_of() if one.baseline else None
    sizes = {v.label: m.weights_bytes for v in one.variants if (m := v.memory_of()) is not None and m.weights_bytes}
    if base is not None and base.weights_bytes and len(sizes) > 1:
        least = min(sizes, key=lambda label: sizes[label])
        share = base.weights_bytes / sizes[least]
        tiles.append(Tile(say("notebook.tradeoffs.tile_memory"), f"{share:.2f} x", f"{least}; {place_name(one.place)}"))
    return tiles


def tradeoff_checks(report: TradeoffReport) -> list[Check]:
    """What is missing or failed, and how many server runs figures rest on, as checks before the first figure."""
    found = []
    names = place_names(report)
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
    names = place_names(report)
    for one in with_speed(report):
        lines: Sequence[str] = told(one)
        if lines:
            blocks.append(f"**{names[one.place]}**\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(blocks) or say("notebook.tradeoffs.nothing")


def gain_sentences(report: TradeoffReport) -> str:
    """Where 4-bit weights beat FP8 and where not, and what to know where the KV cache was free."""
    return _of_each(report, lambda one: [*words.duel_sentences(one), *words.split_notes(one)])


def reason_sentences(report: TradeoffReport) -> str:
    """What inside a step makes each variant what it is."""
    return _of_each(
        report, lambda one: [line for v in one.variants if v.name != BASELINE for line in words.reason_sentences(v)]
    )


def recommendation_sentences(report: TradeoffReport) -> str:
    """What to take for each profile, and what that rests on."""
    blocks: dict[str, list[str]] = {}
    names = place_names(report)
    for place, one in report.recommendations:
        blocks.setdefault(names[place], []).append(" ".join(words.recommendation_sentences(one)))
    told = [f"**{name}**\n\n" + "\n".join(f"- {line}" for line in lines) for name, lines in blocks.items()]
    return "\n\n".join(told) or say("notebook.tradeoffs.nothing")
