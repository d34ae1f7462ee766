"""Variants side by side: memory, accuracy and speed of each, and what they are of.

Figures of one model on one machine with one version of vLLM make a `Comparison`; ratios are only ever taken within one.
Where a page sets a variant's accuracy beside its speed and the two are of different models, each says of which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perflab.analysis.finding import Finding
from perflab.analysis.quantization.crossing import Crossing
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.ideal import Vanishing
from perflab.analysis.quantization.kv_split import KvSplit
from perflab.analysis.quantization.task_scores import TaskScore
from perflab.units import NS_PER_MS

Kv = Literal["pinned", "free"]
KVS: tuple[Kv, ...] = ("pinned", "free")
BASELINE = "baseline"
_USUAL_GROUP = 128


@dataclass(frozen=True)
class Place:
    """What figures are of.

    Attributes
    ----------
    source
        The study's name; empty for runs given one by one.
    model
        As a reader knows it, by its shape.
    random_weights
        They are random (`--load-format dummy`), so that only speed and memory mean something; None where not told.
    machine, vllm
        Empty where not told.
    parallel
        GPUs the model is split over.
    """

    source: str
    model: str
    random_weights: bool | None
    machine: str
    vllm: str
    parallel: int = 1

    @property
    def label(self) -> str:
        """In one line: model, weights, machine, version."""
        weights = ", random weights" if self.random_weights else ""
        version = f"vLLM {self.vllm}" if self.vllm else ""
        return "; ".join(part for part in (f"{self.model}{weights}", self.machine, version) if part)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "source": self.source, "model": self.model, "random_weights": self.random_weights, "machine": self.machine,
            "vllm_version": self.vllm, "gpus_per_model": self.parallel,
        }  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """Memory of one GPU as vLLM's log gives it, and what was predicted from config and settings; None: not told.

    `other_bytes` are activations, CUDA graphs and what lies outside torch, as far as the log tells.
    """

    kv: Kv
    weights_bytes: int | None
    kv_bytes: int | None
    kv_tokens: int | None
    max_concurrency: float | None
    other_bytes: int | None = None
    gpu_bytes: int | None = None
    predicted_weights_bytes: int | None = None
    predicted_kv_tokens: int | None = None
    run: str = ""

    def to_json(self) -> dict[str, Any]:
        """All of it; sizes in bytes."""
        return {
            "kv": self.kv, "weights_bytes": self.weights_bytes, "kv_bytes": self.kv_bytes, "kv_tokens": self.kv_tokens,
            "max_concurrency": self.max_concurrency, "other_bytes": self.other_bytes, "gpu_bytes": self.gpu_bytes,
            "predicted_weights_bytes": self.predicted_weights_bytes, "predicted_kv_tokens": self.predicted_kv_tokens,
            "run": self.run,
        }  # fmt: skip


@dataclass(frozen=True)
class Speed:
    """One metric of a variant at one load.

    Attributes
    ----------
    point, lengths, load
        `512/128 c32`, `512/128` and 32: requests at once; None of a load that is a rate.
    value
        Over runs of servers: geometric mean and interval. Milliseconds, or a rate.
    gain
        Against the baseline, turned so that above 1 is faster; None of the baseline itself, or where it has no such
        point.
    verdict, reason
        As `perflab compare` gives them.
    values
        One a run of a server.
    """

    kv: Kv
    point: str
    lengths: str
    load: float | None
    metric: str
    value: Estimate
    gain: Estimate | None = None
    verdict: str | None = None
    reason: str = ""
    values: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it; a latency in integer nanoseconds."""
        latency = self.metric.endswith("_ms")
        name = f"{self.metric.removesuffix('_ms')}_ns" if latency else self.metric
        value = self.value.to_json()
        if latency:
            ends = ("value", "ci_low", "ci_high")
            value |= {key: None if value[key] is None else round(value[key] * NS_PER_MS) for key in ends}
        return {
            "kv": self.kv, "point": self.point, "concurrency": self.load, "metric": name, **value,
            "gain": None if self.gain is None else self.gain.to_json(), "verdict": self.verdict,
            "reason": self.reason or None,
        }  # fmt: skip


@dataclass(frozen=True)
class Accuracy:
    """What a variant's answers lose, against the baseline of the same model.

    Attributes
    ----------
    place
        The model, and what executed it.
    perplexity, perplexity_ratio
        On the text; the ratio against the baseline (paired).
    agreement
        Share of tokens whose most likely next token is the baseline's.
    kl
        KL divergence of next-token distributions from the baseline's, nats a token; `kl_is_lower_bound` where only the
        most likely tokens were there to be compared.
    decode_kl, decode_agreement
        The same of tokens decoded after cached prefixes, where that was compared: an FP8 KV cache shows there.
    control_kl
        Of the baseline against itself, scored in other batches: what is noise.
    tokens, documents, text, executed
        Tokens scored, of how many documents of what text, and how.
    sentence
        The verdict in words.
    label
        Of the format that was scored, where it is told: another model's format of the same name may differ in detail.
    tasks
        Scores on tasks of lm-eval, one a task and metric.
    """

    place: Place
    perplexity: Estimate | None = None
    perplexity_ratio: Estimate | None = None
    agreement: Estimate | None = None
    kl: Estimate | None = None
    kl_is_lower_bound: bool = False
    decode_kl: Estimate | None = None
    decode_agreement: Estimate | None = None
    control_kl: Estimate | None = None
    tokens: int | None = None
    documents: int | None = None
    text: str = ""
    executed: str = ""
    sentence: str = ""
    label: str = ""
    notes: tuple[str, ...] = ()
    tasks: tuple[TaskScore, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        names = (
            "perplexity", "perplexity_ratio", "agreement", "kl", "decode_kl", "decode_agreement", "control_kl",
        )  # fmt: skip
        parts = {name: None if (found := getattr(self, name)) is None else found.to_json() for name in names}
        return {
            **parts, "kl_is_lower_bound": self.kl_is_lower_bound, "tokens": self.tokens, "documents": self.documents,
            "text": self.text or None, "executed": self.executed or None, "verdict": self.sentence or None,
            "notes": list(self.notes), "tasks": [one.to_json() for one in self.tasks], **self.place.to_json(),
        }  # fmt: skip


@dataclass(frozen=True)
class KernelPart:
    """Time of a step given to one kind of work, baseline and variant, both a step's mean of like batches.

    `part` is a category, `idle`, or a family of matmul kernels.
    """

    phase: str
    part: str
    baseline_ns: int
    variant_ns: int

    @property
    def change_ns(self) -> int:
        """Variant less baseline."""
        return self.variant_ns - self.baseline_ns

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "phase": self.phase, "part": self.part, "baseline_ns_per_step": self.baseline_ns,
            "variant_ns_per_step": self.variant_ns, "change_ns_per_step": self.change_ns,
        }  # fmt: skip


@dataclass(frozen=True)
class Position:
    """Where a phase of a variant stands under the roofs: operations a byte, shares of the GPU's peaks, what bounds
    it."""

    phase: str
    intensity: float
    ridge: float
    flops_share: float
    bytes_share: float
    bound: str | None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "phase": self.phase, "intensity": self.intensity, "ridge": self.ridge,
            "share_of_peak_flops": self.flops_share, "share_of_peak_bandwidth": self.bytes_share, "bound": self.bound,
        }  # fmt: skip


@dataclass(frozen=True)
class Reasons:
    """What inside a step makes a variant faster or slower than the baseline.

    Attributes
    ----------
    steps
        By phase: time of a step, baseline and variant, and its tokens; `categories` the parts it is made of.
    matmuls
        By phase and family: time of matmul kernels.
    idle_causes
        By phase and cause.
    positions
        Of the variant's phases; of the baseline they are in its own.
    logged
        The kernels that the variant's log names.
    findings
        Of both passes, about quantization that did not take effect.
    missing
        What could not be compared, and why.
    """

    steps: tuple[KernelPart, ...] = ()
    categories: tuple[KernelPart, ...] = ()
    matmuls: tuple[KernelPart, ...] = ()
    idle_causes: tuple[KernelPart, ...] = ()
    tokens: Mapping[str, float] = field(default_factory=dict)
    positions: tuple[Position, ...] = ()
    logged: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        parts = {
            name: [one.to_json() for one in getattr(self, name)]
            for name in ("steps", "categories", "matmuls", "idle_causes", "positions")
        }
        return {
            **parts,
            "tokens_per_step": dict(self.tokens),
            "logged": list(self.logged),
            "findings": [one.to_json() for one in self.findings],
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class Variant:
    """One format of one model on one machine, with what is known of it; tuples are empty where nothing is."""

    name: str
    label: str
    weight_bits: float | None = None
    activations: str | None = None
    kv_8bit: bool = False
    memory: tuple[Memory, ...] = ()
    speed: tuple[Speed, ...] = ()
    accuracy: Accuracy | None = None
    reasons: Reasons | None = None
    vanishing: Vanishing | None = None
    runs: tuple[str, ...] = ()

    def speeds(self, metric: str, kv: Kv, lengths: str) -> dict[float, Speed]:
        """Of one metric by requests at once, of requests of these lengths."""
        asked = (metric, kv, lengths)
        return {
            one.load: one for one in self.speed if (one.metric, one.kv, one.lengths) == asked and one.load is not None
        }

    def memory_of(self, kv: Kv | None = None) -> Memory | None:
        """With the KV cache pinned or free; without either said, free where it is there."""
        wanted = (kv,) if kv else ("free", "pinned")
        return next((one for want in wanted for one in self.memory if one.kv == want), None)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "name": self.name, "label": self.label, "weight_bits": self.weight_bits, "activations": self.activations,
            "kv_8bit": self.kv_8bit, "runs": list(self.runs), "memory": [one.to_json() for one in self.memory],
            "accuracy": self.accuracy.to_json() if self.accuracy else None,
            "speed": [one.to_json() for one in self.speed],
            "why": self.reasons.to_json() if self.reasons else None,
            "roofline": self.vanishing.to_json() if self.vanishing else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Ends:
    """Where a variant's advantage over the baseline ends, by one metric: measured, and by the roofline."""

    variant: str
    metric: str
    kv: Kv
    lengths: str
    measured: Crossing
    predicted: Crossing | None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "variant": self.variant, "metric": self.metric, "kv": self.kv, "lengths": self.lengths, "measured":
            self.measured.to_json(), "predicted": self.predicted.to_json() if self.predicted else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Split:
    """How a variant's gain at one load splits into kernels and larger batches."""

    variant: str
    metric: str
    point: str
    load: float | None
    split: KvSplit

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        where = {"variant": self.variant, "metric": self.metric, "point": self.point, "concurrency": self.load}
        return where | self.split.to_json()


@dataclass(frozen=True)
class Duel:
    """Two variants against each other at one load: `gain` above 1 means that `variant` is faster."""

    variant: str
    against: str
    metric: str
    kv: Kv
    point: str
    load: float | None
    gain: Estimate

    @property
    def outcome(self) -> Literal["faster", "slower", "undecided", "one_run"]:
        """By the whole interval; without one only what was measured can be said."""
        if self.gain.low is None or self.gain.high is None:
            return "one_run"
        return "faster" if self.gain.low > 1 else "slower" if self.gain.high < 1 else "undecided"

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "variant": self.variant, "against": self.against, "metric": self.metric, "kv": self.kv, "point": self.point,
            "concurrency": self.load, "gain": self.gain.to_json(), "outcome": self.outcome,
        }  # fmt: skip


@dataclass(frozen=True)
class Ideal:
    """What the roofline lets a variant gain at a load: ratios to the baseline's best, above 1 is faster."""

    variant: str
    load: float
    throughput: float
    decode: float

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "variant": self.variant, "concurrency": self.load, "output_tokens_per_s": self.throughput,
            "decode_step": self.decode,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Variants of one model on one machine.

    Attributes
    ----------
    memory_share
        With the KV cache free, the share of the GPU's memory that engines had, where it is so small that it stands for
        a smaller GPU; None otherwise.
    missing
        What could not be had, a sentence each.
    """

    place: Place
    variants: tuple[Variant, ...]
    memory_share: float | None = None
    ends: tuple[Ends, ...] = ()
    splits: tuple[Split, ...] = ()
    duels: tuple[Duel, ...] = ()
    ideal: tuple[Ideal, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def baseline(self) -> Variant | None:
        """The one the others are measured against."""
        return self.variant(BASELINE)

    def variant(self, name: str) -> Variant | None:
        """By name."""
        return next((one for one in self.variants if one.name == name), None)

    @property
    def kvs(self) -> tuple[Kv, ...]:
        """Whether speeds with the KV cache pinned, free, or both are there."""
        there = {one.kv for variant in self.variants for one in variant.speed}
        return tuple(kv for kv in KVS if kv in there)

    def mode_at(self, metric: str, load: float) -> Kv | None:
        """The KV mode in which a load is shown: free where it was measured so, since that is what a user gets."""
        for kv in ("free", "pinned"):
            mode: Kv = kv
            if any(load in variant.speeds(metric, mode, self.lengths) for variant in self.variants):
                return mode
        return None

    @property
    def lengths(self) -> str:
        """The lengths of requests that most loads were measured with; empty without any."""
        pairs = {(one.lengths, one.load) for variant in self.variants for one in variant.speed if one.load is not None}
        every = sorted({lengths for lengths, _ in pairs})
        return max(every, key=lambda lengths: sum(lengths == other for other, _ in pairs), default="")

    @property
    def has_speed(self) -> bool:
        """Whether any speed was measured."""
        return bool(self.kvs)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            **self.place.to_json(),
            "variants": [one.to_json() for one in self.variants],
            "advantage_ends": [one.to_json() for one in self.ends],
            "kv_split": [one.to_json() for one in self.splits],
            "against_each_other": [one.to_json() for one in self.duels],
            "roofline": [one.to_json() for one in self.ideal],
            "missing": list(self.missing),
        }


def accuracy_of(comparisons: Sequence[Comparison], name: str) -> tuple[Accuracy, ...]:
    """Every accuracy measured of variants of this name, whatever the model: each says of which it is.

    Where nobody measured that, of the same format in groups of another size, the nearest first (`awq` stands for its
    usual 128): widths of a small model may not be divisible by the groups of a large one.
    """
    known = [(variant.name, variant.accuracy) for one in comparisons for variant in one.variants if variant.accuracy]
    exact = tuple(accuracy for other, accuracy in known if other == name)
    if exact:
        return exact
    family, group = _group_of(name)
    sized = [(*_group_of(other), accuracy) for other, accuracy in known]
    others = [(size, accuracy) for kin, size, accuracy in sized if kin == family and size is not None]
    near = sorted(others, key=lambda one: abs(math.log(one[0] / (group or _USUAL_GROUP))))
    return tuple(accuracy for _, accuracy in near)


def _group_of(name: str) -> tuple[str, int | None]:
    """`int4-g128` as family and size of groups."""
    family, mark, size = name.rpartition("-g")
    return (family, int(size)) if mark and size.isdigit() and int(size) else (name, None)
