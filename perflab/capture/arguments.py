"""Checks the arguments of an experiment against the vLLM that is installed, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perflab.capture.probe import Probe
from perflab.errors import InputError
from perflab.experiment.commands import Argument, profiler_config
from perflab.experiment.nodes import closest, did_you_mean
from perflab.experiment.spec import Experiment, ProfilePass
from perflab.knowledge.engine_args import elsewhere
from perflab.messages import say

# Where results land and what is sent is decided by the plan; a second opinion would make the manifest lie.
_PLANNED = frozenset({
    "backend", "endpoint", "base_url", "host", "port", "model", "tokenizer", "served_model_name", "dataset_name",
    "dataset_path", "num_prompts", "seed", "max_concurrency", "request_rate", "num_warmups", "save_result",
    "save_detailed", "append_result", "result_dir", "result_filename", "percentile_metrics", "metric_percentiles",
    "goodput", "profile", "trust_remote_code", "random_input_len", "random_output_len", "input_len", "output_len",
    "custom_output_len", "batch_size", "num_iters", "num_iters_warmup", "output_json", "disable_tqdm", "ignore_eos",
})  # fmt: skip


def check_arguments(experiment: Experiment, probe: Probe) -> list[str]:
    """Refuse what the installed vLLM does not accept; return remarks about the rest.

    Raises
    ------
    InputError
        With the line in the experiment file: a name vLLM does not have (the closest it has are named), a
        value that is none of its choices, a number that is none.
    """
    kinds = {workload.kind for workload in experiment.workloads}
    commands = [name for name, needed in (
        ("serve", "serve" in kinds or bool(experiment.profiles)),
        ("bench latency", "latency" in kinds),
        ("bench throughput", "throughput" in kinds),
    ) if needed]  # fmt: skip
    for command in commands:
        for name, value in experiment.engine.args.items():
            _check(experiment, probe, command, f"engine.args.{name}", name, value)
    for workload in experiment.workloads:
        for name, value in workload.bench_args.items():
            place = f"workloads.{workload.name}.bench_args.{name}"
            if name in _PLANNED:
                raise InputError(
                    f"{place} cannot be set here: the plan decides it",
                    path=experiment.path,
                    line=experiment.lines[place],
                )
            _check(experiment, probe, f"bench {workload.kind}", place, name, value)
    for one in experiment.profiles:
        _check_profiler(experiment, probe, one)
    return list(_unknown_variables(experiment, probe))


def _check(experiment: Experiment, probe: Probe, command: str, place: str, name: str, value: Any) -> None:
    known = probe.arguments[command]
    line = experiment.lines.get(place)
    argument = _find(name, known)
    if argument is None:
        raise InputError(
            f"{place}: vLLM {probe.vllm_version} has no argument {name} for `vllm {command}`"
            f"{_other_versions(command, name) or did_you_mean(name, _names(known))}",
            path=experiment.path,
            line=line,
        )
    wrong = _wrong(argument, value)
    if wrong:
        raise InputError(f"{place} {wrong}", path=experiment.path, line=line)


def _check_profiler(experiment: Experiment, probe: Probe, one: ProfilePass) -> None:
    """A key vLLM does not know ends the server, minutes later, with a message of pydantic's."""
    unknown = sorted(set(profiler_config(one, "")) - probe.profiler_keys) if probe.profiler_keys else []
    if not unknown:
        return
    asked = "detailed_steps " if "detailed_trace_annotation" in unknown else ""
    raise InputError(
        f"profile {one.id}: {asked}needs {unknown[0]} in vLLM's profiler_config, which vLLM {probe.vllm_version}"
        f" does not have; {'take detailed_steps out' if asked else 'leave the pass out'}, or install a later vLLM",
        path=experiment.path,
        line=one.line,
    )


def _other_versions(command: str, name: str) -> str:
    """`; it is gone since 0.10.2, use async_scheduling`, where other versions have an engine argument of that name."""
    found = elsewhere(name.split(".")[0]) if command == "serve" else None
    if found is None:
        return ""
    if found.since is not None:
        return f"; it came by vLLM {found.since}: install that or a later one, or leave it out"
    return f"; the last listed with it is {found.last}, " + (f"use {found.use}" if found.use else "leave it out")


def _names(known: Mapping[str, Argument]) -> Iterator[str]:
    for argument in known.values():
        yield argument.dest
        yield from (option.removeprefix("--").replace("-", "_") for option in argument.options if option[:2] == "--")


def _find(name: str, known: Mapping[str, Argument]) -> Argument | None:
    # `profiler_config.profiler` and the like name one key of an argument that takes JSON.
    root = name.split(".")[0]
    if root in known:
        return known[root]
    option = f"--{root.replace('_', '-')}"
    return next((argument for argument in known.values() if option in argument.options), None)


def _wrong(argument: Argument, value: Any) -> str | None:
    items = value if isinstance(value, list) else [value]
    if argument.flag and not isinstance(value, bool):
        return f"is {value!r}; it is a switch: true or false"
    if argument.choices and not isinstance(value, dict):
        bad = [item for item in items if str(item) not in argument.choices]
        if bad:
            return f"is {bad[0]!r}; vLLM takes {', '.join(argument.choices)}"
    if argument.type in ("int", "float"):
        number = int if argument.type == "int" else float
        for item in items:
            try:
                fine = not isinstance(item, bool | dict) and number(str(item)) is not None
            except ValueError:
                fine = False
            if not fine:
                return f"is {item!r}; vLLM takes {'a whole number' if argument.type == 'int' else 'a number'}"
    return None


def _unknown_variables(experiment: Experiment, probe: Probe) -> Iterator[str]:
    for name in experiment.engine.env:
        if name.startswith("VLLM_") and name not in probe.environment:
            # Names of variables are all much alike; only a slip of the pen is worth a guess.
            near = ", ".join(closest(name, probe.environment, cutoff=0.85)[:1])
            key = "capture.unknown_variable_near" if near else "capture.unknown_variable"
            yield say(
                key, name=name, version=probe.vllm_version, line=experiment.lines[f"engine.env.{name}"], near=near
            )
