"""The records a study file becomes: one model, several ways to quantize it, measured alike.

`read_study` of `perflab.experiment.study_file` makes them; docs/quantization.md describes every key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perflab.experiment.spec import EngineSpec, Load, Model, Slos, Workload
from perflab.knowledge.quantization_formats import Format

KvMode = Literal["pinned", "free"]


Algorithm = Literal["rtn", "gptq", "awq", "smoothquant-gptq"]
ALGORITHMS: tuple[Algorithm, ...] = ("rtn", "gptq", "awq", "smoothquant-gptq")


@dataclass(frozen=True)
class Variant:
    """One way to quantize the model.

    Attributes
    ----------
    name
        Part of file names; the format's own where the study gives no other.
    format
        What it is, with what it needs (`knowledge/quantization_formats.toml`).
    checkpoint
        The model to serve instead of the study's, where it is ready; None: the study's own model (quantized as it is
        loaded), or what `perflab quantize make` makes of it.
    algorithm
        How values are chosen where a checkpoint is made; None: as the format's default. One of `ALGORITHMS`: rtn,
        nearest value of the grid, without calibration; gptq, so that a layer's outputs change least on calibration text
        (Frantar 2022); awq, channels scaled by their activations first (Lin 2023); smoothquant-gptq, outliers of
        activations moved into the weights first (Xiao 2022).
    args
        Engine arguments besides those the format brings.
    """

    name: str
    format: Format
    label: str
    checkpoint: Model | None = None
    algorithm: Algorithm | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class KvSpec:
    """How large the KV cache is.

    Attributes
    ----------
    pinned_bytes
        Bytes a GPU (or the CPU) gets in the comparison in which kernels alone differ; None: no such comparison.
    free
        Whether there is a comparison in which the cache takes what the weights leave.
    free_loads
        Its loads, where they are fewer than the study's (large batches are what more cache buys); empty: all.
    free_memory_utilization
        `gpu_memory_utilization` of that comparison: a small one stands for a smaller GPU. None: as the engine's.
    free_server_runs
        Starts of the server in that comparison; None: as many as in the other.
    """

    pinned_bytes: int | None = None
    free: bool = True
    free_loads: tuple[Load, ...] = ()
    free_memory_utilization: float | None = None
    free_server_runs: int | None = None

    @property
    def modes(self) -> tuple[KvMode, ...]:
        """The comparisons there are, pinned first."""
        pinned: tuple[KvMode, ...] = () if self.pinned_bytes is None else ("pinned",)
        return (*pinned, "free") if self.free else pinned


@dataclass(frozen=True)
class TextSpec:
    """Text to score or to calibrate with: `english` (what comes with Python, so that any machine has it) or files."""

    english: bool = True
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TaskSpec:
    """A task of lm-eval (or a group of them), asked of every variant.

    Attributes
    ----------
    name
        As tables have it. Without `path`, and where `path` is a folder, also as lm-eval knows the task.
    path
        The task's own YAML file, or a folder that has it; None: a task that comes with lm-eval.
    limit
        Documents of each task, the first ones; None: all.
    shots
        Solved examples before each question; None: as the task says.
    """

    name: str
    path: Path | None = None
    limit: int | None = None
    shots: int | None = None


@dataclass(frozen=True)
class AccuracySpec:
    """How accuracy is judged.

    Attributes
    ----------
    tokens
        Tokens to score, at least.
    window
        Tokens of one scored prompt.
    top_k
        Candidates of each next token to compare distributions over; None: the whole vocabulary.
    kv_prefixes
        Lengths of cached prefixes after which one token is asked for: prompt scoring reads the KV cache otherwise than
        decoding does.
    kv_documents
        Documents each of those lengths is tried on.
    tasks
        Tasks of lm-eval, which has to be in the engine's Python.
    """

    text: TextSpec = TextSpec()
    tokens: int = 20_000
    window: int = 512
    top_k: int | None = None
    kv_prefixes: tuple[int, ...] = (64, 128, 256, 448)
    kv_documents: int = 16
    tasks: tuple[TaskSpec, ...] = ()


@dataclass(frozen=True)
class CalibrationSpec:
    """What int8 and int4 checkpoints are calibrated with; disjoint from the text that is scored."""

    text: TextSpec = TextSpec()
    samples: int = 128
    length: int = 512


@dataclass(frozen=True)
class Study:
    """One study file, checked.

    Attributes
    ----------
    engine
        What all variants are started with.
    workloads
        What each of them is measured under; `workload_data` is the same as plain data, for experiment files.
    profile_data
        Profiling passes of an experiment file, taken on the first server of the pinned comparison.
    slos
        Limits by profile, `interactive` and `batch`.
    """

    path: Path
    text: str
    name: str
    title: str
    model: Model
    variants: tuple[Variant, ...]
    engine: EngineSpec
    workloads: tuple[Workload, ...]
    workload_data: tuple[Mapping[str, Any], ...]
    profile_data: tuple[Mapping[str, Any], ...] = ()
    repeats: int = 1
    server_runs: int = 1
    seed: int = 0
    telemetry_interval_s: float = 1.0
    point_deadline_s: float = 3600.0
    kv: KvSpec = KvSpec()
    accuracy: AccuracySpec | None = None
    calibration: CalibrationSpec = CalibrationSpec()
    slos: Mapping[str, Slos] = field(default_factory=dict)

    @property
    def baseline(self) -> Variant:
        """The variant the others are compared with."""
        return next(one for one in self.variants if one.format.name == "baseline")

    @property
    def is_shape_only(self) -> bool:
        """Whether weights are made up: speed and memory are real then, accuracy means nothing."""
        return self.engine.args.get("load_format") == "dummy"

    def variant(self, name: str) -> Variant | None:
        """The variant of that name."""
        return next((one for one in self.variants if one.name == name), None)

    def server_runs_of(self, mode: KvMode) -> int:
        """How often the server is started afresh for each variant."""
        return self.kv.free_server_runs or self.server_runs if mode == "free" else self.server_runs
