"""Memory, accuracy and speed of quantized variants in one answer, with the reason: studies and runs joined.

Figures of one model, machine and version of vLLM stand together (`Comparison`) and are compared with nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perflab import units
from perflab.analysis.goodput import objectives
from perflab.analysis.quantization.claims import Confronted, confront
from perflab.analysis.quantization.effect import Effect
from perflab.analysis.quantization.ideal import Format, vanishing
from perflab.analysis.quantization.recognised import format_label
from perflab.analysis.quantization.recommend import PROFILES, Recommendation, recommend
from perflab.analysis.quantization.tradeoffs import (
    BASELINE,
    Accuracy,
    Comparison,
    Kv,
    Memory,
    Place,
    Variant,
)
from perflab.knowledge.quantization_formats import format_named
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say
from perflab.runs import Run
from perflab.tasks.own import Own, own
from perflab.tasks.quantize.accuracy_parts import accuracy_of_study
from perflab.tasks.quantize.check import run_effect
from perflab.tasks.quantize.gains import Measured, curves, measured_variants
from perflab.tasks.quantize.reasons import reasons_of
from perflab.tasks.quantize.sources import Source, VariantRun, find_sources
from perflab.tasks.quantize.variant_facts import chunk_of, format_of, had_neighbours, label_of, memory_of, place_of

_SMALL_SHARE = 0.5


@dataclass(frozen=True)
class TradeoffReport:
    """What `tradeoffs` answers.

    Attributes
    ----------
    recommendations
        For each comparison with speeds, by profile; with the place it is of.
    claims
        The guide's, each held against all comparisons.
    effects
        Whether each format took effect, by logs and the size of weights.
    thresholds
        The limits that held.
    """

    inputs: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    recommendations: tuple[tuple[Place, Recommendation], ...] = ()
    claims: tuple[Confronted, ...] = ()
    effects: tuple[Effect, ...] = ()
    sources: tuple[Source, ...] = field(default=(), repr=False)
    thresholds: Thresholds = field(default_factory=own_thresholds, repr=False)

    @property
    def runs(self) -> list[Run]:
        """Every run that was read."""
        return [one.run for source in self.sources for one in source.runs]

    def to_json(self) -> dict[str, Any]:
        """The `quantize show` document; times in integer nanoseconds, sizes in bytes."""
        return {
            "schema": 1,
            "inputs": list(self.inputs),
            "comparisons": [one.to_json() for one in self.comparisons],
            "recommendations": [{**place.to_json(), **one.to_json()} for place, one in self.recommendations],
            "claims": [one.to_json() for one in self.claims],
            "effects": [one.to_json() for one in self.effects],
        }


def tradeoffs(
    names: str | Path | Sequence[str | Path],
    *,
    why: bool = True,
    slos: Mapping[str, float] | None = None,
    thresholds: str | Path | None = None,
) -> TradeoffReport:
    """Variants of each model and machine that studies and runs tell of.

    Parameters
    ----------
    names
        Studies and run directories, by path or recorded name. Of a run the variant is recognised by its model's config
        and its engine's settings.
    why
        Read traces too, for the reasons.
    slos
        Objectives in milliseconds (`ttft_ms`, `tpot_ms`, `e2el_ms`) of both profiles, instead of those a study names.
    thresholds
        The user's own file; see `perflab.tasks.own`.

    Raises
    ------
    InputError
        When a name is neither, or a file of it cannot be read, or an objective is none.
    """
    users = own(None, thresholds)
    asked = objectives(slos or {})
    sources = find_sources(names)
    found: list[Comparison] = []
    told: dict[int, Mapping[str, Any]] = {}
    for source in sources:
        for one in _of_source(source, users, why):
            told[len(found)] = source.told
            found.append(one)
    parts = [str(names)] if isinstance(names, str | Path) else [str(name) for name in names]
    recommendations = [
        (one.place, answer)
        for index, one in enumerate(found)
        for profile in PROFILES
        if len(one.variants) > 1
        and (answer := recommend(one, profile, found, asked or _study_slos(told[index], profile), users.thresholds))
        is not None
    ]
    return TradeoffReport(
        inputs=tuple(parts),
        comparisons=tuple(found),
        recommendations=tuple(recommendations),
        claims=tuple(confront(found, users.thresholds.limit("quantization", "claim"))),
        effects=tuple(_effects(sources)),
        sources=tuple(sources),
        thresholds=users.thresholds,
    )


def _effects(sources: Sequence[Source]) -> list[Effect]:
    """Of the first run of each variant; traces are looked at for reasons already, and findings of theirs stand
    there."""
    seen: set[tuple[Place, str]] = set()
    found = []
    for source in sources:
        for one in source.runs:
            key = (place_of(one, source), one.variant)
            if key not in seen and (effect := run_effect(one.run, traces=False)) is not None:
                found.append(effect)
            seen.add(key)
    return found


def again(report: TradeoffReport, slos: Mapping[str, float]) -> TradeoffReport:
    """The same figures with recommendations under other objectives (milliseconds); nothing is read again."""
    asked = objectives(slos)
    found = [
        (one.place, answer)
        for one in report.comparisons
        for profile in PROFILES
        if len(one.variants) > 1
        and (answer := recommend(one, profile, report.comparisons, asked, report.thresholds)) is not None
    ]
    return replace(report, recommendations=tuple(found))


def _study_slos(told: Mapping[str, Any], profile: str) -> dict[str, float]:
    """Objectives of a profile as `study.json` has them; none where it has none."""
    listed = told.get("slos")
    mine = listed.get(profile) if isinstance(listed, Mapping) else None
    if not isinstance(mine, Mapping):
        return {}
    return objectives({str(k): float(v) for k, v in mine.items() if isinstance(v, int | float)})


def _of_source(source: Source, users: Own, why: bool) -> list[Comparison]:
    groups: dict[Place, list[VariantRun]] = {}
    for one in source.runs:
        groups.setdefault(place_of(one, source), []).append(one)
    found = [_comparison(place, runs, source, users, why) for place, runs in groups.items()]
    real = [one.place.model for one in found if one.place.random_weights is False]
    accuracy, missing = accuracy_of_study(source, real[0] if real else "")
    found = [_with_accuracy(one, accuracy) for one in found]
    joined = {name for one in found for name in (v.name for v in one.variants if v.accuracy)}
    left = {name: one for name, one in accuracy.items() if name not in joined}
    for place, mine in _by_place(left).items():
        variants = tuple(Variant(name, _label_of(name, source), accuracy=one) for name, one in mine.items())
        found.append(Comparison(place, variants))
    if not found:
        # A study that has come nowhere yet still says what it lacks.
        found = [Comparison(Place(source.name, _model_name(source), None, "", ""), ())]
    found[0] = replace(found[0], missing=(*found[0].missing, *source.missing, *missing))
    return found


def _label_of(name: str, source: Source) -> str:
    """The label of a variant that was only scored: the study's own, else the short one of its format."""
    label = source.labels.get(name, name)
    kind = format_named(source.format_of(name))
    if kind is None or label not in (kind.label, name):
        return label
    return format_label(kind)


def _model_name(source: Source) -> str:
    told = source.told.get("model")
    return str(told.get("name") or "unknown model") if isinstance(told, Mapping) else "unknown model"


def _by_place(found: Mapping[str, Accuracy]) -> dict[Place, dict[str, Accuracy]]:
    groups: dict[Place, dict[str, Accuracy]] = {}
    for name, one in found.items():
        groups.setdefault(one.place, {})[name] = one
    return groups


def _with_accuracy(one: Comparison, accuracy: Mapping[str, Accuracy]) -> Comparison:
    """Accuracy of the same model goes with its speed: of random weights nothing can be said."""
    if one.place.random_weights:
        return one
    variants = tuple(replace(v, accuracy=accuracy.get(v.name)) for v in one.variants)
    return replace(one, variants=variants)


def _comparison(place: Place, runs: Sequence[VariantRun], source: Source, users: Own, why: bool) -> Comparison:
    by_variant: dict[str, list[VariantRun]] = {}
    for one in runs:
        by_variant.setdefault(one.variant, []).append(one)
    order = sorted(by_variant, key=lambda name: name != BASELINE)
    measured, missing = measured_variants({name: by_variant[name] for name in order}, users.thresholds)
    formats = {name: format_of(by_variant[name][0]) for name in order}
    variants = [_variant(name, by_variant[name], measured.get(name, {})) for name in order]
    limit = users.thresholds.limit("run_change", "practical")
    variants = [_with_roof(one, formats, limit) for one in variants]
    if why:
        found = reasons_of(by_variant, users)
        variants = [replace(one, reasons=found.get(one.name)) for one in variants]
    share = _memory_share(runs)
    missing = [*missing, *_notes(by_variant)]
    if share is not None:
        missing.append(say("tradeoffs.note.share", share=units.show_share(share)))
    if any(had_neighbours(one.run) for one in runs):
        missing.append(say("tradeoffs.note.neighbours"))
    comparison = Comparison(place, tuple(variants), memory_share=share, missing=tuple(missing))
    if BASELINE not in by_variant:
        return replace(comparison, missing=(*missing, say("tradeoffs.missing.baseline")))
    return curves(comparison, measured, {k: v for k, v in formats.items() if v}, chunk_of(runs[0]), limit)


def _with_roof(one: Variant, formats: Mapping[str, Format | None], share: float) -> Variant:
    base, mine = formats.get(BASELINE), formats.get(one.name)
    if one.name == BASELINE or base is None or mine is None or one.weight_bits is None or one.weight_bits >= 16:
        return one
    return replace(one, vanishing=vanishing(base, mine, share))


def _variant(name: str, runs: Sequence[VariantRun], measured: Mapping[Kv, Measured]) -> Variant:
    first = runs[0]
    memory: dict[Kv, Memory] = {}
    for one in runs:
        if one.kv not in memory and (found := memory_of(one)) is not None:
            memory[one.kv] = found
    return Variant(
        name=name,
        label=label_of(first),
        weight_bits=first.found.weight_bits,
        activations=first.found.activations,
        kv_8bit=first.found.kv_8bit,
        memory=tuple(memory.values()),
        speed=tuple(speed for kv in measured for speed in measured[kv].speeds),
        runs=tuple(one.run.path.name for one in runs),
    )


def _notes(by_variant: Mapping[str, Sequence[VariantRun]]) -> list[str]:
    """Where a variant differs from the baseline by more than its format, a sentence each."""
    base = by_variant.get(BASELINE)
    if not base:
        return []
    settings = base[0].run.manifest.engine.settings
    dtype = str(settings.get("dtype") or "").removeprefix("torch.")
    found = []
    for name, runs in by_variant.items():
        other = str(runs[0].run.manifest.engine.settings.get("dtype") or "").removeprefix("torch.")
        if other and dtype and other != dtype:
            found.append(say("tradeoffs.note.dtype", variant=name, dtype=other, baseline=dtype))
    return found


def _memory_share(runs: Sequence[VariantRun]) -> float | None:
    """The share of the GPU's memory with the KV cache free, where it is below what anyone serves with."""
    shares = {
        float(share)
        for one in runs
        if one.kv == "free"
        and isinstance(share := one.run.manifest.engine.settings.get("gpu_memory_utilization"), int | float)
    }
    return min(shares) if shares and min(shares) < _SMALL_SHARE else None
