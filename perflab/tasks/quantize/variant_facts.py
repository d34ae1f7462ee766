"""Facts of one run of a variant: what its figures are of, its work on its GPU, its memory, its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perflab.analysis.model.shape import ModelShape, model_shape
from perflab.analysis.model.workload import Workload, split_of, workload
from perflab.analysis.quantization.ideal import Format
from perflab.analysis.quantization.memory import PredictedMemory, predicted_memory
from perflab.analysis.quantization.tradeoffs import Memory, Place
from perflab.analysis.roofline.phases import shape_of_run
from perflab.knowledge.gpus import gpu_spec
from perflab.knowledge.quantization_formats import capability_of, format_named
from perflab.messages import say
from perflab.runs import Run
from perflab.tasks.memory import memory as memory_of_runs
from perflab.tasks.quantize.sources import Source, VariantRun

_OTHER = ("peak_activation", "cuda_graphs", "non_torch")


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


def memory_of(one: VariantRun) -> Memory | None:
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
    # A pinned cache is not in the log: its size is what was asked for.
    asked = manifest.engine.settings.get("kv_cache_memory_bytes")
    pinned = asked if isinstance(asked, int) and asked > 0 and one.kv == "pinned" else None
    kv_bytes = int(sizes["kv_cache"]) if "kv_cache" in sizes else pinned
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


def label_of(one: VariantRun) -> str:
    """The study's own label where its author gave one; else the short one by what ran."""
    kind = format_named(one.variant)
    given_by_format = kind is not None and one.label == kind.label
    return one.found.label if not one.label or given_by_format else one.label


def had_neighbours(run: Run) -> bool:
    """Whether other servers of the study ran beside it, as its notes say."""
    before, _, after = say("quantize.neighbours", mine="\0", n="\0", others="\0").partition("\0")
    after = after.rpartition("\0")[2]
    return any(note.startswith(before) and note.endswith(after) for note in run.manifest.notes)
