"""vLLM's log: the engine's settings as it reports them, its memory, its periodic statistics, and what went wrong.

The formats, with the versions they belong to, are data: knowledge/log_patterns.toml. Text from the log stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.log.lines import LogLine
from perflab.analysis.log.problems import Problem, Problems
from perflab.errors import InputError
from perflab.knowledge.log_patterns import log_patterns
from perflab.read.files import refusal, sniff
from perflab.read.log_lines import log_lines
from perflab.read.python_repr import flattened, read_fields, read_value
from perflab.schema import conform, empty
from perflab.units import NS_PER_MS, bytes_from_gib


@dataclass(frozen=True)
class ServerLog:
    """What a log tells; None, or empty, where it does not.

    Attributes
    ----------
    settings
        The engine's configuration as the engine prints it, plus what other lines say of it (vLLM's names; parts of
        a config as `compilation_config.cudagraph_mode`).
    non_default_args
        Arguments that were given, as printed.
    memory
        Table `memory`. `free` is what was free when vLLM started less all it then took.
    throughput
        The periodic line: seconds (since the first line), engine, prompt_tokens_per_s, generation_tokens_per_s,
        running, waiting, swapped, deferred, preemptions, and shares kv_cache_usage, prefix_cache_hit_rate,
        external_prefix_cache_hit_rate; NA or NaN where the line has no such part. vLLM skips idle intervals.
    iterations
        The line per iteration (`--enable-logging-iteration-details`), its duration as elapsed_ns.
    startup_s
        From the first line to the server being ready; whole seconds.
    warnings, errors
        Distinct warnings worth showing, distinct errors.
    error
        For a server that died or never came up: the error that explains it.
    """

    path: Path
    vllm_version: str | None
    model: str | None
    architecture: str | None
    settings: Mapping[str, Any]
    non_default_args: Mapping[str, Any]
    attention_backend: str | None
    all_reduce_backends: tuple[str, ...]
    quantization_kernels: tuple[str, ...]
    kv_cache_tokens: int | None
    max_concurrency: float | None
    preemptions: int | None
    weights_loading_s: float | None
    compile_s: float | None
    graph_capture_s: float | None
    engine_init_s: float | None
    startup_s: float | None
    is_ready: bool
    is_dead: bool
    memory: pd.DataFrame
    throughput: pd.DataFrame
    iterations: pd.DataFrame
    warnings: tuple[Problem, ...]
    errors: tuple[Problem, ...]
    error: str | None

    @property
    def enforce_eager(self) -> bool | None:
        """Whether compilation and CUDA graphs are off, as the engine reports it."""
        value = self.settings.get("enforce_eager")
        return value if isinstance(value, bool) else None

    @property
    def cudagraph_mode(self) -> str | None:
        """`NONE`, `PIECEWISE`, `FULL`, `FULL_DECODE_ONLY` or `FULL_AND_PIECEWISE`."""
        value = self.settings.get("compilation_config.cudagraph_mode")
        return None if value is None else str(value)


def read_server_log(path: str | Path) -> ServerLog:
    """Read a log of `vllm serve`, or of a program that uses vLLM.

    Raises
    ------
    InputError
        When nothing in it is vLLM's.
    """
    path = Path(path)
    reading = _Reading()
    for line in log_lines(path):
        reading.take(line)
    if not reading.is_vllm:
        if sniff(path) in (None, "server_log"):
            raise InputError("is not a vLLM log: no line of it is one that vLLM writes", path=path)
        raise refusal(path, "server_log")
    return reading.result(path)


@dataclass(frozen=True)
class _Pattern:
    kind: str
    entry: Mapping[str, Any]
    regex: re.Pattern[str]


@lru_cache(maxsize=1)
def _compiled() -> tuple[_Pattern, ...]:
    kinds = ("memory", "value", "throughput", "iteration", "ready")
    return tuple(_Pattern(kind, e, re.compile(e["regex"])) for kind in kinds for e in log_patterns()[kind])


@lru_cache(maxsize=1)
def _parts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((part["column"], re.compile(part["regex"])) for part in log_patterns()["throughput"][0]["part"])


_BANNER = re.compile(r"Initializing (?:a V\d LLM|an LLM) engine \(v[^)]*\) with config: (.*)")
_GIVEN = re.compile(r"non-default args: (\{.*)")
_ENGINE = re.compile(r"Engine (\d+): ")
_RANK = re.compile(r"world_size=\d+ rank=(\d+) local_rank=")
# What is left of a start that came to nothing before the first log line: a usage error, a traceback.
_VLLM = re.compile(r'vllm(?: [\w-]+)*: error: |\s+File "[^"]*/vllm/')
_ACCESS = re.compile(r'^INFO:\s+\S+ - "')
_SHARES = ("kv_cache_usage", "prefix_cache_hit_rate", "external_prefix_cache_hit_rate")
_COUNTS = ("running", "waiting", "swapped", "deferred", "preemptions")


class _Reading:
    """Takes the lines in, one after the other."""

    def __init__(self) -> None:
        self.is_vllm = False
        self._values: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self._memory: list[tuple[str | None, int | None, str, float, str]] = []
        self._started: list[tuple[str | None, int | None, float]] = []
        self._ranks: dict[int, int] = {}
        self._throughput: list[dict[str, Any]] = []
        self._iterations: list[dict[str, Any]] = []
        self._ready_at: float | None = None
        self._is_ready = False
        self._problems = Problems()

    def take(self, line: LogLine) -> None:
        self.is_vllm |= line.level is not None or line.process is not None or bool(_VLLM.match(line.text))
        self._problems.take(line)
        if line.level is None and _ACCESS.match(line.text):
            return
        for pattern in () if _DAMAGED.search(line.text) else _compiled():
            if match := pattern.regex.search(line.text):
                getattr(self, f"_take_{pattern.kind}")(match, pattern.entry, line)
        if match := _BANNER.search(line.text):
            self._config.update(_without_secrets(flattened(read_fields(match[1]))))
        elif match := _GIVEN.search(line.text):
            given = read_value(match[1])
            self._given.update(_without_secrets(flattened(given)) if isinstance(given, dict) else {})
        elif (match := _RANK.search(line.text)) and line.pid is not None:
            self._ranks[line.pid] = int(match[1])
        elif match := _STARTUP_MEMORY.search(line.text):
            self._started.append((line.process, line.pid, float(match[1])))

    def _take_memory(self, match: re.Match[str], entry: Mapping[str, Any], line: LogLine) -> None:
        source = f"log: {match[0][:80]}"
        self._memory.append((line.process, line.pid, entry["component"], float(match["gib"]), source))

    def _take_value(self, match: re.Match[str], entry: Mapping[str, Any], line: LogLine) -> None:
        name, value = entry["name"], _value(match)
        if entry.get("all"):
            gathered = self._values.setdefault(name, [])
            if value not in gathered:
                gathered.append(value)
        elif entry.get("last"):
            self._values[name] = value
        else:
            self._values.setdefault(name, value)

    def _take_throughput(self, match: re.Match[str], entry: Mapping[str, Any], line: LogLine) -> None:
        row: dict[str, Any] = {
            "seconds": line.seconds, "engine": _engine(line.text), "prompt_tokens_per_s": float(match["prompt"]),
            "generation_tokens_per_s": float(match["generation"]), "running": int(match["running"]),
        }  # fmt: skip
        for column, regex in _parts():
            part = regex.search(line.text)
            row[column] = None if part is None else float(part[1]) / (100 if column in _SHARES else 1)
        self._throughput.append(row)

    def _take_iteration(self, match: re.Match[str], entry: Mapping[str, Any], line: LogLine) -> None:
        found = match.groupdict()
        usage = found.pop("kv_cache_usage")
        self._iterations.append({
            "seconds": line.seconds, "engine": _engine(line.text), "is_dummy": found.pop("dummy") is not None,
            "elapsed_ns": round(float(found.pop("elapsed_ms")) * NS_PER_MS),
            "kv_cache_usage": None if usage is None else float(usage) / 100,
            **{name: int(count) for name, count in found.items()},
        })  # fmt: skip

    def _take_ready(self, match: re.Match[str], entry: Mapping[str, Any], line: LogLine) -> None:
        self._is_ready = True
        if line.seconds is not None and "init engine" not in match[0]:
            self._ready_at = line.seconds if self._ready_at is None else self._ready_at

    def result(self, path: Path) -> ServerLog:
        values = self._values
        settings = {**self._config, **{k: values[k] for k in _SETTINGS if k in values and k not in self._config}}
        if "max_seq_len" in self._config:
            settings["max_model_len"] = self._config["max_seq_len"]
        if isinstance(settings.get("async_scheduling"), str):
            settings["async_scheduling"] = settings["async_scheduling"] == "enabled"
        is_dead = self._problems.saw_death
        return ServerLog(
            path=path, vllm_version=values.get("vllm_version"),
            model=_text(self._config.get("model", self._given.get("model"))), architecture=values.get("architecture"),
            settings=settings, non_default_args=self._given, attention_backend=values.get("attention_backend"),
            all_reduce_backends=tuple(values.get("all_reduce_backends", ())),
            quantization_kernels=tuple(values.get("quantization_kernels", ())),
            kv_cache_tokens=values.get("kv_cache_tokens"), max_concurrency=values.get("max_concurrency"),
            preemptions=values.get("preemptions"), weights_loading_s=values.get("weights_loading_s"),
            compile_s=values.get("compile_s"), graph_capture_s=values.get("graph_capture_s"),
            engine_init_s=values.get("engine_init_s"), startup_s=self._ready_at, is_ready=self._is_ready,
            is_dead=is_dead, memory=self._memory_table(settings), throughput=self._throughput_table(),
            iterations=_iteration_table(self._iterations), warnings=self._problems.warnings,
            errors=self._problems.errors, error=self._problems.cause() if is_dead or not self._is_ready else None,
        )  # fmt: skip

    def _memory_table(self, settings: Mapping[str, Any]) -> pd.DataFrame:
        found: dict[tuple[int, str], tuple[int, str]] = {}
        workers = _unnumbered_workers(pid for name, pid, *_ in self._memory if name == "VllmWorkerProcess")
        for process, pid, component, gib, source in self._memory:
            rank = _rank(process, pid, self._ranks | workers, settings)
            found[rank, component] = (bytes_from_gib(gib), source)
        free = {_rank(process, pid, self._ranks, settings): gib for process, pid, gib in self._started}
        rows = [
            {"rank": rank, "component": component, "bytes": size, "source": source}
            for (rank, component), (size, source) in sorted(_completed(found, free).items())
        ]
        return conform(pd.DataFrame(rows), "memory") if rows else empty("memory")

    def _throughput_table(self) -> pd.DataFrame:
        names = ("seconds", "engine", "prompt_tokens_per_s", "generation_tokens_per_s", *_COUNTS, *_SHARES)
        frame = pd.DataFrame(self._throughput, columns=list(names))
        return frame.astype({
            "seconds": "float64", "engine": "Int64", "prompt_tokens_per_s": "float64",
            "generation_tokens_per_s": "float64",
            **dict.fromkeys(_COUNTS, "Int64"), **dict.fromkeys(_SHARES, "float64"),
        })  # fmt: skip


_SETTINGS = ("max_num_batched_tokens", "max_model_len", "block_size", "async_scheduling", "attention_backend",
             "flash_attention_version", "all_reduce_backends", "nccl_version", "model_runner")  # fmt: skip
# No figure of vLLM has that many digits, and no column holds them.
_DAMAGED = re.compile(r"(?<![\d.])\d{16}")
_SECRET = re.compile(r"(?:^|[._])(?:api_keys?|hf_token|token|password|secret)$")
_ALL_PARTS = ("weights", "non_torch", "peak_activation", "cuda_graphs", "kv_cache")
_STARTUP_MEMORY = re.compile(r"Free memory on device[^(]*\(([\d.]+)/[\d.]+ GiB\) on startup\. Desired")


def _iteration_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    whole = (
        "iteration", "context_requests", "context_tokens", "generation_requests", "generation_tokens", "elapsed_ns",
    )  # fmt: skip
    frame = pd.DataFrame(rows, columns=["seconds", "engine", *whole, "kv_cache_usage", "is_dummy"])
    return frame.astype({"seconds": "float64", "engine": "Int64", **dict.fromkeys(whole, "int64"),
                         "kv_cache_usage": "float64", "is_dummy": "bool"})  # fmt: skip


def _completed(
    found: dict[tuple[int, str], tuple[int, str]], free_gib: Mapping[int, float]
) -> dict[tuple[int, str], tuple[int, str]]:
    """With non_torch and free worked out where the log gives their parts."""
    out = {key: value for key, value in found.items() if key[1] != "consumed"}
    for (rank, component), (size, source) in found.items():
        weights = found.get((rank, "weights"))
        if component == "consumed" and weights is not None and size >= weights[0]:
            out[rank, "non_torch"] = size - weights[0], f"{source}, less the weights"
    for rank, gib in free_gib.items():
        parts = [out.get((rank, name)) for name in _ALL_PARTS]
        left = bytes_from_gib(gib) - sum(part[0] for part in parts if part is not None)
        if all(parts) and left >= 0:
            out[rank, "free"] = left, f"log: {gib} GiB free on startup, less all of the above"
    return out


def _rank(process: str | None, pid: int | None, by_pid: Mapping[int, int], settings: Mapping[str, Any]) -> int:
    """The global rank: by the worker's name (Worker_DP0_PP1_TP2), else as it was told when it began, else 0."""
    numbers = {kind: int(number) for kind, number in re.findall(r"_(DP|PP|TP)(\d+)", process or "")}
    if numbers:
        sizes = [settings.get(name) for name in ("pipeline_parallel_size", "tensor_parallel_size")]
        stages, tensors = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
        return (numbers.get("DP", 0) * stages + numbers.get("PP", 0)) * tensors + numbers.get("TP", 0)
    return by_pid.get(pid, 0) if pid is not None else 0


def _unnumbered_workers(pids: Iterable[int | None]) -> dict[int, int]:
    """Ranks of VllmWorkerProcess (before 0.8), which have no number: the driver is 0, they follow as they appear."""
    return {pid: rank for rank, pid in enumerate(dict.fromkeys(pids), start=1) if pid is not None}


def _without_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: "REDACTED" if value and _SECRET.search(name) else value for name, value in settings.items()}


def _engine(text: str) -> int | None:
    match = _ENGINE.search(text)
    return int(match[1]) if match else None


def _value(match: re.Match[str]) -> Any:
    kind, text = next((kind, text) for kind, text in match.groupdict().items() if text is not None)
    if kind == "int":
        return int(text.replace(",", ""))
    if kind == "float":
        return float(text)
    return re.findall(r"[\w-]+", text) if kind == "list" else text


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
