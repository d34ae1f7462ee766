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
from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.workload import Workload, split_of, workload
from perflab.analysis.quantization.claims import Confronted, confront
from perflab.analysis.quantization.effect import Effect
from perflab.analysis.quantization.ideal import Format, vanishing
from perflab.analysis.quantization.memory import PredictedMemory, predicted_memory
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
from perflab.analysis.roofline.phases import shape_of_run
from perflab.knowledge.gpus import gpu_spec
from perflab.knowledge.quantization_formats import capability_of, format_named
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say
from perflab.runs import Run
from perflab.tasks.memory import memory as memory_of_runs
from perflab.tasks.own import Own, own
from perflab.tasks.quantize.accuracy_parts import accuracy_of_study
from perflab.tasks.quantize.check import run_effect
from perflab.tasks.quantize.gains import Measured, curves, measured_variants
from perflab.tasks.quantize.reasons import reasons_of
from perflab.tasks.quantize.sources import Source, VariantRun, find_sources

_SMALL_SHARE = 0.5
_OTHER = ("peak_activation", "cuda_graphs", "non_torch")


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
        labels = source.labels
        variants = tuple(Variant(name, labels.get(name, name), accuracy=one) for name, one in mine.items())
        found.append(Comparison(place, variants))
    if not found:
        # A study that has come nowhere yet still says what it lacks.
        found = [Comparison(Place(source.name, _model_name(source), None, "", ""), ())]
    found[0] = replace(found[0], missing=(*found[0].missing, *source.missing, *missing))
    return found


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


def place_of(one: VariantRun, source: Source) -> Place:
    """What a run's figures are of."""
    manifest = one.run.manifest
    settings = manifest.engine.settings
    split = split_of(settings)
    load_format = settings.get("load_format")
    gpus = manifest.hardware.gpus
    machine = f"{len(gpus)} x {gpus[0].name}" if gpus else manifest.hardware.cpu or ""
    return Place(
        source=source.name,
        model=model_label(one.config, str(manifest.engine.model or "")),
        random_weights=None if load_format is None else load_format == "dummy",
        machine=machine,
        vllm=manifest.engine.vllm_version or "",
        parallel=split.tensor * split.pipeline,
    )


def model_label(config: Mapping[str, Any] | None, name: str) -> str:
    """A model by its shape, the same whatever its format: `llama 8.0B (32 layers of 4096)`; its name where unknown."""
    shape = model_shape(config) if config else None
    if not isinstance(shape, ModelShape):
        return name.rstrip("/").rpartition("/")[2] or "unknown model"
    whole = workload(replace(shape, quantization=None, dtype="bfloat16"))
    billions = whole.weight_bytes / 2 / 1e9
    size = f"{billions:.1f}B" if billions >= 1 else f"{billions * 1000:.0f}M"
    return f"{shape.model_type} {size} ({shape.layers} layers of {shape.hidden})"


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
    missing = [*missing, *_notes(by_variant)]
    comparison = Comparison(place, tuple(variants), missing=tuple(missing))
    if BASELINE not in by_variant:
        return replace(comparison, missing=(*missing, say("tradeoffs.missing.baseline")))
    return curves(comparison, measured, {k: v for k, v in formats.items() if v}, chunk_of(runs[0]), limit)


def format_of(one: VariantRun) -> Format | None:
    """The variant's work on its GPU; None where config or GPU is not known."""
    manifest = one.run.manifest
    gpus = manifest.hardware.gpus
    gpu = gpu_spec(gpus[0].name) if gpus else None
    work = work_of(one)
    return None if gpu is None or work is None else Format.on(gpu, work)


def work_of(one: VariantRun) -> Workload | None:
    """One rank's part of the model in the format that ran; None where the config does not tell."""
    settings = one.run.manifest.engine.settings
    shape, _ = shape_of_run(one.config, settings)
    return None if shape is None else workload(shape, split_of(settings), settings)


def chunk_of(one: VariantRun) -> int | None:
    """Tokens of the largest step, where the engine tells."""
    size = one.run.manifest.engine.settings.get("max_num_batched_tokens")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _with_roof(one: Variant, formats: Mapping[str, Format | None], share: float) -> Variant:
    base, mine = formats.get(BASELINE), formats.get(one.name)
    if one.name == BASELINE or base is None or mine is None or one.weight_bits is None or one.weight_bits >= 16:
        return one
    return replace(one, vanishing=vanishing(base, mine, share))


def _variant(name: str, runs: Sequence[VariantRun], measured: Mapping[Kv, Measured]) -> Variant:
    first = runs[0]
    memory: dict[Kv, Memory] = {}
    for one in runs:
        if one.kv not in memory and (found := _memory(one)) is not None:
            memory[one.kv] = found
    return Variant(
        name=name,
        label=first.label or first.found.label,
        weight_bits=first.found.weight_bits,
        activations=first.found.activations,
        kv_8bit=first.found.kv_8bit,
        memory=tuple(memory.values()),
        speed=tuple(speed for kv in measured for speed in measured[kv].speeds),
        runs=tuple(one.run.path.name for one in runs),
    )


def _memory(one: VariantRun) -> Memory | None:
    """What the log of the first server tells of its first rank; None where it tells nothing."""
    table = memory_of_runs([one.run])
    if table.empty:
        return None
    first = table[table["rank"] == table["rank"].min()]
    sizes = first.groupby("component")["bytes"].max().to_dict()
    tokens, most = first["kv_cache_tokens"].dropna(), first["max_concurrency"].dropna()
    work = work_of(one)
    manifest = one.run.manifest
    gpus = manifest.hardware.gpus
    kv_bytes = None if "kv_cache" not in sizes else int(sizes["kv_cache"])
    other = [int(sizes[name]) for name in _OTHER if name in sizes]
    predicted = _predicted(one, gpus[0].memory_bytes if gpus else None, kv_bytes)
    per_token = work.kv_bytes_per_token if work else None
    return Memory(
        kv=one.kv,
        weights_bytes=None if "weights" not in sizes else int(sizes["weights"]),
        kv_bytes=kv_bytes,
        kv_tokens=int(tokens.iloc[0]) if len(tokens) else None,
        max_concurrency=float(most.iloc[0]) if len(most) else None,
        other_bytes=sum(other) if other else None,
        gpu_bytes=gpus[0].memory_bytes if gpus else None,
        predicted_weights_bytes=predicted.weights_bytes if predicted else round(work.weight_bytes) if work else None,
        predicted_kv_tokens=predicted.kv_tokens
        if predicted and predicted.kv_tokens is not None
        else int(kv_bytes // per_token)
        if kv_bytes is not None and per_token
        else None,
        run=one.run.path.name,
    )


def _predicted(one: VariantRun, gpu_bytes: int | None, kv_bytes: int | None) -> PredictedMemory | None:
    """What `perflab quantize plan` would have said; None where format or shape is not known.

    Where the size of the GPU is not told, or the cache was pinned, the cache has the bytes it was given: its tokens are
    predicted from those.
    """
    kind = format_named(one.found.name)
    shape = model_shape(one.config) if one.config else None
    if kind is None or not isinstance(shape, ModelShape):
        return None
    manifest = one.run.manifest
    gpus = manifest.hardware.gpus
    pinned = kv_bytes if one.kv == "pinned" or gpu_bytes is None else None
    return predicted_memory(
        kind,
        shape,
        manifest.engine.settings,
        gpu_bytes=gpu_bytes,
        capability=capability_of(gpus[0].name) if gpus else None,
        pinned_bytes=pinned,
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
    shares = {
        float(share)
        for runs in by_variant.values()
        for one in runs
        if one.kv == "free"
        and isinstance(share := one.run.manifest.engine.settings.get("gpu_memory_utilization"), int | float)
    }
    # A share below what anyone serves with stands for a smaller GPU.
    if shares and min(shares) < _SMALL_SHARE:
        found.append(say("tradeoffs.note.share", share=units.show_share(min(shares))))
    return found
