"""Argument lists of `vllm serve` and `vllm bench` for an experiment. Nothing is started here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from perflab.experiment.spec import Experiment, Load, ProfilePass, Slos, Workload

PERCENTILES = "50,90,95,99"
METRICS = "ttft,tpot,itl,e2el"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Argument:
    """One argument of the installed vLLM: its names on the command line and what it takes."""

    dest: str
    options: tuple[str, ...]
    flag: bool = False
    many: bool = False
    type: str | None = None
    choices: tuple[str, ...] = ()


Arguments = Mapping[str, Argument]
_UNKNOWN: Arguments = MappingProxyType({})


@dataclass(frozen=True)
class Target:
    """The server a client talks to: on a port of this machine, or at a `url`."""

    served_name: str
    tokenizer: str
    port: int
    trust_remote_code: bool = False
    url: str | None = None


@dataclass(frozen=True)
class Request:
    """What one call of `vllm bench serve` sends."""

    workload: Workload
    load: Load
    num_prompts: int
    seed: int
    input_len: int | None = None
    output_len: int | None = None
    slos: Slos = field(default_factory=Slos)


def option_list(values: Mapping[str, Any], known: Arguments = _UNKNOWN) -> list[str]:
    """`{max_model_len: 1024, enforce_eager: true}` -> `--max-model-len 1024 --enforce-eager`.

    A mapping becomes JSON, a list several values; false becomes `--no-...` where there is one (or where
    nothing is known), else it is left out, being the default.
    """
    argv: list[str] = []
    for name, value in values.items():
        argument = known.get(name)
        option = _long(argument.options) if argument else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            argv += _switch(option, value, argument)
        elif isinstance(value, dict) or (isinstance(value, list) and argument and not argument.many):
            argv += [option, json.dumps(value, separators=(",", ":"))]
        elif isinstance(value, list):
            argv += [option, *(_text(item) for item in value)]
        else:
            text = _text(value)
            argv += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return argv


def _switch(option: str, value: bool, argument: Argument | None) -> list[str]:
    if argument and not argument.flag:
        return [option, str(value).lower()]
    if value:
        return [option]
    negative = f"--no-{option.removeprefix('--')}"
    return [negative] if argument is None or negative in argument.options else []


def _long(options: Sequence[str]) -> str:
    named = [option for option in options if option.startswith("--") and not option.startswith("--no-")]
    return named[0] if named else options[0]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def engine_options(experiment: Experiment, known: Arguments = _UNKNOWN) -> list[str]:
    """The engine's options, the same for the server and for the offline benchmarks."""
    options = option_list(experiment.engine.args, known)
    options.append("--enable-prefix-caching" if experiment.prefix_caching else "--no-enable-prefix-caching")
    if experiment.model.trust_remote_code:
        options.append("--trust-remote-code")
    return options


def profiler_config(one: ProfilePass, folder: str) -> dict[str, Any]:
    """vLLM's `--profiler-config` for a pass. The front end is left out: it does not count steps."""
    if one.kind != "torch":
        # cudaProfilerStart and cudaProfilerStop: what Nsight Systems takes as its capture range.
        return {"profiler": "cuda", "max_iterations": one.max_steps, "delay_iterations": one.delay_steps}
    config: dict[str, Any] = {
        "profiler": "torch",
        "torch_profiler_dir": folder,
        "torch_profiler_with_stack": one.with_stack,
        "torch_profiler_record_shapes": one.record_shapes,
        "torch_profiler_with_memory": one.with_memory,
        "ignore_frontend": True,
        "max_iterations": one.max_steps,
        "delay_iterations": one.delay_steps,
    }
    if one.detailed_steps:
        config["detailed_trace_annotation"] = True
    return config


def without_graphs(experiment: Experiment) -> Experiment:
    """The same experiment without CUDA graphs, compiled as it is: what a teacher pass records."""
    kept: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, value in experiment.engine.args.items():
        root, _, rest = name.partition(".")
        if root != "compilation_config":
            kept[name] = value
        elif not rest:
            # A bare number is the level of compilation.
            config |= dict(value) if isinstance(value, Mapping) else {"mode": value}
        else:
            inner = config
            *parents, last = rest.split(".")
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
    for size in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        config.pop(size, None)
        kept.pop(size, None)
    args = {**kept, "compilation_config": {**config, "cudagraph_mode": "NONE"}}
    return replace(experiment, engine=replace(experiment.engine, args=args))


def serve_argv(
    experiment: Experiment,
    *,
    model: str,
    port: int,
    known: Arguments = _UNKNOWN,
    profiler: Mapping[str, Any] | None = None,
) -> list[str]:
    """`vllm serve` on the loopback address."""
    argv = ["vllm", "serve", model, "--served-model-name", experiment.model.served_name]
    argv += ["--host", HOST, "--port", str(port), *engine_options(experiment, known)]
    if profiler is not None:
        argv += ["--profiler-config", json.dumps(profiler, separators=(",", ":"))]
    return argv


def bench_argv(
    request: Request,
    target: Target,
    *,
    known: Arguments = _UNKNOWN,
    result: tuple[str, str] | None = None,
) -> list[str]:
    """`vllm bench serve` against a running server.

    Greedy (temperature 0) and to the full output length (ignore_eos), so that two runs generate the same
    amount. `result` is the folder and the name of the JSON file; None (a warm-up) saves nothing.
    """
    workload = request.workload
    api = ("openai-chat", "/v1/chat/completions") if workload.chat else ("openai", "/v1/completions")
    argv = ["vllm", "bench", "serve", "--backend", api[0], "--endpoint", api[1]]
    argv += ["--base-url", target.url] if target.url else ["--host", HOST, "--port", str(target.port)]
    argv += ["--model", target.served_name, "--tokenizer", target.tokenizer]
    argv += _data_options(request)
    argv += ["--num-prompts", str(request.num_prompts), "--seed", str(request.seed)]
    argv += ["--ignore-eos", "--temperature", "0"]
    if request.load.concurrency is not None:
        argv += ["--max-concurrency", str(request.load.concurrency)]
    if request.load.rate is not None:
        argv += ["--request-rate", f"{request.load.rate:g}"]
    if target.trust_remote_code:
        argv.append("--trust-remote-code")
    argv.append("--disable-tqdm")
    if result is not None:
        argv += ["--percentile-metrics", METRICS, "--metric-percentiles", PERCENTILES]
        goodput = request.slos.given
        argv += ["--goodput", *(f"{name}:{limit:g}" for name, limit in goodput.items())] if goodput else []
        argv += ["--save-result", "--save-detailed", "--result-dir", result[0], "--result-filename", result[1]]
    return argv + option_list(workload.bench_args, known)


def _data_options(request: Request) -> list[str]:
    data = request.workload.data
    argv = ["--dataset-name", data.kind]
    if data.path is not None:
        argv += ["--dataset-path", str(data.path)]
    if data.kind == "random":
        argv += ["--random-input-len", str(request.input_len), "--random-output-len", str(request.output_len)]
        argv += [
            part
            for key in ("range_ratio", "prefix_len")
            if key in data.options
            for part in (f"--random-{key.replace('_', '-')}", f"{data.options[key]:g}")
        ]
        return argv
    prefix = {"custom": "", "prefix_repetition": "prefix_repetition_", "timed_trace": "timed_trace_"}[data.kind]
    argv += option_list({f"{prefix}{key}": value for key, value in data.options.items() if value is not False})
    if request.output_len is not None:
        name = "custom" if data.kind == "custom" else "prefix-repetition"
        argv += [f"--{name}-output-len", str(request.output_len)]
    return argv


def offline_argv(
    experiment: Experiment,
    request: Request,
    *,
    model: str,
    result: str,
    known: Arguments = _UNKNOWN,
    warmup: int = 0,
) -> list[str]:
    """`vllm bench latency` or `vllm bench throughput`: they build their own engine."""
    workload = request.workload
    argv = ["vllm", "bench", workload.kind, "--model", model, *engine_options(experiment, known)]
    argv += ["--seed", str(request.seed)]
    if workload.kind == "latency":
        argv += ["--input-len", str(request.input_len), "--output-len", str(request.output_len)]
        argv += ["--batch-size", str(request.load.concurrency), "--num-iters", str(request.num_prompts)]
        argv += ["--num-iters-warmup", str(warmup)]
    else:
        argv += [*_data_options(request), "--num-prompts", str(request.num_prompts)]
        argv += ["--num-warmups", str(warmup)]
    return [*argv, "--output-json", result, *option_list(workload.bench_args, known)]


def profile_request(one: ProfilePass, seed: int) -> Request:
    """The short load of a profiling pass."""
    workload = Workload(name=one.id, input_lens=(one.input_len,), output_lens=(one.output_len,))
    load = Load(concurrency=one.concurrency)
    return Request(workload, load, one.num_prompts, seed, one.input_len, one.output_len)
