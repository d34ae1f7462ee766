"""How near each phase of a rank comes to what its GPU can do: work by the model's shape, time by the trace.

The work is what the model needs, not what kernels happen to do: a share over 100 % means that the work is counted too
high (experts that a skewed router spares, prompts that a cache had), never that a GPU beats its data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.finding import number
from perflab.analysis.model.graph_padding import CaptureSizes, capture_sizes
from perflab.analysis.model.kv_from_load import OneLength, kv_from_load
from perflab.analysis.model.quantization import with_settings
from perflab.analysis.model.shape import Missing, ModelShape, model_shape
from perflab.analysis.model.step_work import COLUMNS, Peaks, padding, peaks_of, step_work
from perflab.analysis.model.workload import Workload, split_of, workload
from perflab.analysis.roofline.bound import KernelRoof, Verdict, verdict
from perflab.knowledge.gpus import GpuSpec, gpu_spec, known_gpus
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say
from perflab.schema import PHASES

MODELLED = ("gemm", "moe", "attention", "kv_cache")
"""Categories whose work is counted. Norms, sampling and the rest are not, and say so by their time."""


@dataclass(frozen=True)
class Padding:
    """What CUDA graphs add: mean tokens of a step, of its graph, and the share of its linear work that is padding."""

    tokens: float
    padded_tokens: float
    steps: int
    padded_steps: int
    extra_share: float


@dataclass(frozen=True)
class MemoryView:
    """Memory's bandwidth: what share of busy time goes to moving bytes.

    Attributes
    ----------
    bandwidth_bound
        Kernels whose work lies on the memory's side of the roofline (writes to the KV cache apart).
    kv_writes, copies
        Writes to the KV cache, copies and sets.
    unknown
        Kernels whose side is not known, as attention of a prefill without KV tokens.
    """

    bandwidth_bound: float
    kv_writes: float
    copies: float
    unknown: float

    @property
    def total(self) -> float:
        """All that is known to be memory's."""
        return self.bandwidth_bound + self.kv_writes + self.copies


@dataclass(frozen=True)
class PhaseRoofline:
    """One phase of one rank; all but shares are a step's mean.

    Attributes
    ----------
    flops, bytes, limit_ns
        Known work, and the least time for it. `withheld` names the parts that are not in it and why, `notes` what is
        taken from elsewhere than the trace.
    flops_share, bytes_share
        Of the GPU's peaks, over the whole step. `reach`: least time over the step's.
    kernels
        By category, over its own time.
    padding
        None where the sizes of graphs are not known.
    """

    phase: str
    steps: int
    tokens: float
    requests: float
    step_ns: float
    flops: float
    bytes: float
    limit_ns: float
    flops_share: float
    bytes_share: float
    kernels: Mapping[str, KernelRoof]
    padding: Padding | None
    memory: MemoryView
    verdict: Verdict
    withheld: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reach(self) -> float:
        """The least time of the known work as a share of the step."""
        return self.limit_ns / self.step_ns

    @property
    def intensity(self) -> float:
        """Operations a byte of the known work."""
        return self.flops / self.bytes

    @property
    def flops_per_s(self) -> float:
        """Operations a second over the whole step."""
        return self.flops / self.step_ns * 1e9

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second over the whole step."""
        return self.bytes / self.step_ns * 1e9

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `roofline` of a phase."""
        return {
            "steps": self.steps,
            "tokens_per_step": self.tokens,
            "flops_per_step": self.flops,
            "bytes_per_step": self.bytes,
            "min_ns_per_step": self.limit_ns,
            "step_ns": self.step_ns,
            "intensity": self.intensity,
            "share_of_peak_flops": self.flops_share,
            "share_of_peak_bandwidth": self.bytes_share,
            "kernels": {
                name: {
                    "ns_per_step": k.time_ns, "flops": k.flops, "bytes": k.bytes, "min_ns": k.limit_ns,
                    "side": k.side, "share_of_peak_flops": k.flops_share, "share_of_peak_bandwidth": k.bytes_share,
                }
                for name, k in self.kernels.items()
            },
            "padding": None if self.padding is None else {
                "tokens": self.padding.tokens, "padded_tokens": self.padding.padded_tokens,
                "padded_steps": self.padding.padded_steps, "extra_share": self.padding.extra_share,
            },
            "memory": {
                "bandwidth_bound": self.memory.bandwidth_bound, "kv_writes": self.memory.kv_writes,
                "copies": self.memory.copies, "unknown": self.memory.unknown,
            },
            "bound": self.verdict.bound,
            "withheld": list(self.withheld),
            "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True)
class RankRoofline:
    """The roofline of one rank.

    Attributes
    ----------
    missing
        What is not known and how to give it, a sentence each; without shape, GPU or steps there are no phases.
    parts
        What each part of each step has to do, from `perflab.analysis.model.step_work.step_work`.
    """

    rank: int
    device: str
    gpu: GpuSpec | None = None
    shape: ModelShape | None = None
    work: Workload | None = None
    peaks: Peaks | None = None
    parts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COLUMNS)))
    phases: Mapping[str, PhaseRoofline] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def ridge(self) -> float | None:
        """Operations a byte at which the two roofs meet."""
        return self.peaks.linear / self.peaks.memory if self.peaks else None

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `roofline` of a rank."""
        return {
            "gpu": self.gpu.name if self.gpu else None,
            "model": self.shape.to_json() if self.shape else None,
            "peak_dtype": self.peaks.dtype if self.peaks else None,
            "peak_flops_per_s": self.peaks.linear if self.peaks else None,
            "peak_bytes_per_s": self.peaks.memory if self.peaks else None,
            "weight_bytes": self.work.weight_bytes if self.work else None,
            "kv_bytes_per_token": self.work.kv_bytes_per_token if self.work else None,
            "missing": list(self.missing),
            "phases": {phase: found.to_json() for phase, found in self.phases.items()},
        }


def rank_roofline(
    rank: int,
    device: str,
    steps: pd.DataFrame,
    record: Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    lengths: OneLength | None = None,
    thresholds: Thresholds | None = None,
) -> RankRoofline:
    """The roofline of one rank.

    Parameters
    ----------
    device
        The GPU's name as the trace has it.
    steps
        Table `steps` of the rank, from `perflab.analysis.steps.steps_from_ranges`.
    record
        The rank's record from `perflab.analysis.breakdown.summary`.
    config
        The model's config.json; None where the run has none.
    settings
        The engine's: parallel sizes, quantization, dtypes, sizes of graphs.
    lengths
        What every request of the pass asked for, where all asked for the same.
    """
    gpu = gpu_spec(device)
    shape, missing = shape_of_run(config, settings)
    if gpu is None:
        missing = (*missing, say("roofline.missing.gpu", device=device or "?", known=", ".join(known_gpus())))
    if steps.empty:
        missing = (*missing, say("roofline.missing.steps"))
    elif steps["prefill_tokens"].isna().all():
        missing = (*missing, say("roofline.missing.tokens"))
    if shape is None or gpu is None or steps.empty:
        return RankRoofline(rank, device, gpu, shape, missing=missing)
    work = workload(shape, split_of(settings).of_rank(rank), settings)
    peaks = peaks_of(gpu, work)
    told = kv_from_load(steps, lengths, thresholds)
    steps = steps if told is None else told.steps
    parts = step_work(steps, work, peaks)
    notes = _not_counted(config or {}, settings)
    if told is not None and lengths is not None:
        notes = (_load_note(lengths, told.spread), *notes)
    sizes = capture_sizes(settings)
    phases = {
        phase: _phase(phase, record["phases"][phase], parts, steps, work, peaks, sizes, notes, thresholds)
        for phase in PHASES
        if record.get("phases", {}).get(phase, {}).get("window_ns") and (parts["phase"] == phase).any()
    }
    return RankRoofline(rank, device, gpu, shape, work, peaks, parts, phases, missing)


def shape_of_run(
    config: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> tuple[ModelShape | None, tuple[str, ...]]:
    """The model's shape with the quantization that counts, and what is missing, a sentence each."""
    if config is None:
        return None, (say("roofline.missing.config"),)
    found = model_shape(config)
    if isinstance(found, Missing):
        if found.unmodelled:
            return None, (say("roofline.missing.unmodelled", kind=found.unmodelled),)
        return None, (say("roofline.missing.keys", keys=", ".join(found.keys)),)
    quantization = with_settings(found.quantization, settings)
    asked = settings.get("quantization")
    named = config.get("quantization_config")
    if quantization is None and (asked or named):
        what = asked or (named.get("quant_method") if isinstance(named, Mapping) else named)
        return None, (say("roofline.missing.quantization", what=what),)
    return replace(found, quantization=quantization), ()


def _phase(
    phase: str,
    record: Mapping[str, Any],
    parts: pd.DataFrame,
    steps: pd.DataFrame,
    work: Workload,
    peaks: Peaks,
    sizes: CaptureSizes | None,
    notes: tuple[str, ...],
    thresholds: Thresholds | None,
) -> PhaseRoofline:
    mine = parts[parts["phase"] == phase]
    ours = steps[(steps["phase"] == phase) & steps["step"].isin(mine["step"])]
    count = len(ours)
    step_ns = float(ours["dur_ns"].sum()) / count
    # Times are of all steps of the phase; each step of it that tells its tokens has its parts.
    kernels = _kernels(record, mine, peaks, count)
    flops, moved, limit = (float(mine[name].sum()) / count for name in ("flops", "bytes", "limit_ns"))
    tokens = (ours["prefill_tokens"] + ours["decode_tokens"]).astype("float64")
    requests = (ours["prefill_requests"] + ours["decode_requests"]).astype("float64")
    idle, talk = (float(ns) / record["steps"] for ns in (record["idle_ns"], _ns(record, "communication")))
    return PhaseRoofline(
        phase=phase,
        steps=count,
        tokens=float(tokens.mean()),
        requests=float(requests.mean()),
        step_ns=step_ns,
        flops=flops,
        bytes=moved,
        limit_ns=limit,
        flops_share=flops / step_ns * 1e9 / peaks.linear,
        bytes_share=moved / step_ns * 1e9 / peaks.memory,
        kernels=kernels,
        padding=None if sizes is None else _padding(padding(ours, work, sizes), mine),
        memory=_memory(record, kernels),
        verdict=verdict(float(record["window_ns"]) / record["steps"], idle, talk, kernels, thresholds),
        withheld=_withheld(mine, work),
        notes=(*notes, say("roofline.experts")) if work.experts is not None else notes,
    )


def _kernels(record: Mapping[str, Any], parts: pd.DataFrame, peaks: Peaks, count: int) -> dict[str, KernelRoof]:
    found = {}
    for category in MODELLED:
        time = float(_ns(record, category)) / record["steps"]
        if not time:
            continue
        mine = parts[parts["category"] == category]
        known = len(mine) > 0 and bool(mine["flops"].notna().all())
        sides = mine.groupby("side")["limit_ns"].sum() if known else mine.groupby("side").size()
        one = str(sides.idxmax()) if len(sides) and (known or mine["side"].notna().all()) else None
        flops, moved, limit = (float(mine[name].sum()) / count for name in ("flops", "bytes", "limit_ns"))
        peak = peaks.sixteen if category == "attention" else peaks.linear
        found[category] = KernelRoof(
            category=category,
            time_ns=time,
            flops=flops if known else None,
            bytes=moved if known else None,
            limit_ns=limit if known else None,
            side=one,
            flops_share=flops / time * 1e9 / peak if known else None,
            bytes_share=moved / time * 1e9 / peaks.memory if known else None,
        )
    return found


def _padding(rows: pd.DataFrame, parts: pd.DataFrame) -> Padding:
    useful = float(parts.loc[parts["part"].isin(("linear", "experts")), "flops"].sum())
    extra = float(rows["extra_flops"].sum())
    return Padding(
        tokens=float(rows["tokens"].mean()),
        padded_tokens=float(rows["padded_tokens"].mean()),
        steps=len(rows),
        padded_steps=int((rows["padded_tokens"] > rows["tokens"]).sum()),
        extra_share=extra / (useful + extra) if useful + extra else 0.0,
    )


def _memory(record: Mapping[str, Any], kernels: Mapping[str, KernelRoof]) -> MemoryView:
    busy, steps = float(record["busy_ns"]), float(record["steps"])

    def share(side: str | None) -> float:
        return sum(k.time_ns for k in kernels.values() if k.side == side and k.category != "kv_cache") * steps / busy

    return MemoryView(share("memory"), _ns(record, "kv_cache") / busy, _ns(record, "memory") / busy, share(None))


def _withheld(parts: pd.DataFrame, work: Workload) -> tuple[str, ...]:
    found = []
    if parts.loc[parts["part"] == "attention", "flops"].isna().any():
        found.append(
            say("roofline.withheld.kv_dtype" if work.kv_bytes_per_token is None else "roofline.withheld.kv_tokens")
        )
    return tuple(found)


def _not_counted(config: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What the engine does beside the work that is counted."""
    towers = [name for name in ("vision_config", "audio_config") if config.get(name)]
    drafts = str(settings.get("speculative_config") or "None") not in ("None", "null", "{}")
    offload = number(settings.get("cpu_offload_gb")) or 0.0
    found = [
        (drafts, "roofline.not_counted.drafts"),
        (bool(towers), "roofline.not_counted.towers"),
        (offload > 0, "roofline.not_counted.offload"),
    ]
    return tuple(say(name) for there, name in found if there)


def _load_note(lengths: OneLength, spread: float) -> str:
    return say("roofline.kv_from_load", prompt=lengths.prompt, output=lengths.output, spread=units.show_share(spread))


def _ns(record: Mapping[str, Any], category: str) -> int:
    return int(record["categories"].get(category, {}).get("exclusive_ns", 0))


def withheld_roofline(found: RankRoofline, reason: str) -> RankRoofline:
    """The same without its phases: a check they rest on failed, which `reason` tells."""
    return replace(found, phases={}, parts=found.parts.iloc[:0], missing=(*found.missing, reason))
