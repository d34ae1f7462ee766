"""Which engine the files are of: its log among several, what it says, and what does not fit it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from perflab import units
from perflab.messages import say
from perflab.read.bench import BenchResult
from perflab.read.files import read_text
from perflab.read.server_log import ServerLog
from perflab.runs import Engine, Gpu, Hardware
from perflab.tasks.imports.points import Result, servers_of
from perflab.tasks.imports.sorting import Found, LogFile, TraceFacts, date_ns, named

_SLACK_S = 120.0
_YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Choice:
    """The engine's log and model config among several, and why the others are not."""

    log: LogFile | None
    config: Path | None
    others: list[tuple[Path, str]]


def choose(found: Found, results: Sequence[Result]) -> Choice:
    """The log whose time and model fit what was measured, and the model config that fits the log."""
    moments = [moment for one in results if (moment := date_ns(one.result)) is not None]
    moments += [trace.end for trace in found.traces]
    models = {name for one in results if (name := one.result.meta.model) is not None}

    def fit(file: LogFile) -> tuple[bool, int, bool, bool, int]:
        inside = sum(_covers(file, moment) for moment in moments)
        its_model = any(_same_model(name, file.log) for name in models)
        return bool(file.log.settings), inside, its_model, file.log.is_ready, len(file.log.throughput)

    logs = sorted(found.logs, key=fit, reverse=True)  # stable: of equals the first that was found
    log = logs[0] if logs else None
    others = [(file.path, _why_not(file, log, moments)) for file in logs[1:] if log is not None]
    configs = sorted(found.configs, key=lambda path: _is_model(path, log), reverse=True)
    others += [(path, say("import.second_config")) for path in configs[1:]]
    return Choice(log, configs[0] if configs else None, others)


def engine_of(choice: Choice, found: Found, results: Sequence[Result]) -> Engine:
    """The engine by its log, its traces, and the results; what a run directory says of it comes first."""
    log = choice.log.log if choice.log else None
    settings: dict[str, Any] = dict(log.settings) if log else {}
    if log and log.attention_backend:
        settings["attention_backend"] = log.attention_backend
    device = settings.get("device_config")
    on_gpu = any(trace.has_gpu for trace in found.traces) or device == "cuda"
    versions = [log.vllm_version if log else None, *(trace.vllm_version for trace in found.traces)]
    models = [log.model if log else None, *(one.result.meta.model for one in results)]
    engine = Engine(
        flavour="gpu" if on_gpu else "cpu" if device == "cpu" else "unknown",
        vllm_version=next(filter(None, versions), None),
        model=next(filter(None, models), None),
        settings=settings,
    )
    for run in found.runs:
        known = {name: value for name, value in msgspec.structs.asdict(run.manifest.engine).items()
                 if value not in (None, "unknown", {})}  # fmt: skip
        return msgspec.structs.replace(engine, **known)
    return engine


def hardware_of(found: Found) -> Hardware:
    """What a run directory says, else the GPUs the ranks ran on: one a rank, as the traces name them."""
    for run in found.runs:
        if run.manifest.hardware != Hardware():
            return run.manifest.hardware
    first: dict[int, TraceFacts] = {}
    for trace in found.traces:
        first.setdefault(trace.rank, trace)
    return Hardware(gpus=[Gpu(name=first[rank].device_name or "") for rank in sorted(first) if first[rank].device_name])


def other_model(engine: Engine, result: BenchResult) -> str | None:
    """The model of a result where it is not the engine's; None where it is, or nothing tells."""
    name = result.meta.model
    if name is None or engine.model is None:
        return None
    known = {engine.model, engine.settings.get("served_model_name")}
    return None if any(k is not None and _alike(name, k) for k in known) else name


def warnings_of(choice: Choice, engine: Engine, found: Found, results: Sequence[Result]) -> list[str]:
    """What tells that the files are not of one engine, a sentence each."""
    notes = []
    foreign = sorted({name for one in results if (name := other_model(engine, one.result)) is not None})
    if foreign:
        notes.append(say("import.several_models", engine=engine.model, others=", ".join(foreign)))
    versions = {trace.vllm_version for trace in found.traces if trace.vllm_version}
    versions |= {choice.log.log.vllm_version} if choice.log and choice.log.log.vllm_version else set()
    versions |= {run.manifest.engine.vllm_version for run in found.runs if run.manifest.engine.vllm_version}
    if len(versions) > 1:
        notes.append(say("import.several_versions", versions=", ".join(sorted(filter(None, versions)))))
    started = [file for file in found.logs if file.log.settings]
    kinds = {(file.log.vllm_version, file.log.model, _told(file.log)) for file in started}
    if len(kinds) > 1 and choice.log is not None:
        notes.append(say("import.several_engines", count=len(kinds), log=named(choice.log.path)))
    if len(found.runs) > 1:
        notes.append(say("import.several_runs", names=", ".join(run.path.name for run in found.runs)))
    if len(servers := servers_of(results)) > 1:
        notes.append(say("import.several_servers", servers="; ".join(servers)))
    return notes


def made(results: Sequence[Result], found: Found) -> str | None:
    """When the run was made: what run directories say, else the first result, else the first trace, else the log."""
    if found.runs:
        return min(run.manifest.created for run in found.runs)
    times = [moment for one in results if (moment := date_ns(one.result)) is not None]
    times = times or [trace.start for trace in found.traces]
    if not times:
        return None
    return datetime.fromtimestamp(units.seconds(min(times)), UTC).isoformat(timespec="milliseconds")


def _covers(file: LogFile, moment_ns: int) -> bool:
    """Whether a log was being written at a moment; it has no years, and its local time is taken as UTC."""
    if file.span is None:
        return False
    moment = datetime.fromtimestamp(units.seconds(moment_ns), UTC)
    ends = []
    for stamp in file.span:
        try:
            month, day, hour, minute, second = stamp
            ends.append(datetime(moment.year, month, day, hour, minute, second, tzinfo=UTC))
        except ValueError:
            return False
    start, end = ends
    if end < start:  # over the turn of the year
        is_in_new_year = moment <= end
        start = start - _YEAR if is_in_new_year else start
        end = end if is_in_new_year else end + _YEAR
    return (start - moment).total_seconds() <= _SLACK_S and (moment - end).total_seconds() <= _SLACK_S


def _why_not(file: LogFile, chosen: LogFile, moments: Sequence[int]) -> str:
    if not file.log.settings:
        return say("import.log_without_engine", log=named(chosen.path))
    if any(_covers(chosen, moment) for moment in moments) and not any(_covers(file, moment) for moment in moments):
        return say("import.log_of_other_time", log=named(chosen.path))
    if file.log.model != chosen.log.model:
        return say("import.log_of_other_model", model=file.log.model, log=named(chosen.path))
    return say("import.second_log", log=named(chosen.path))


def _same_model(name: str, log: ServerLog) -> bool:
    return any(k is not None and _alike(name, k) for k in (log.model, log.settings.get("served_model_name")))


def _alike(name: str, other: Any) -> bool:
    """Whether two names may be of one model: the same, or paths that end alike."""
    last, its_last = PurePosixPath(name).name, PurePosixPath(str(other)).name
    # A hub cache's path ends in a revision; the model's name is in the folder above.
    return name == str(other) or last == its_last or f"--{last}/" in str(other) or f"--{its_last}/" in name


def _is_model(path: Path, log: LogFile | None) -> bool:
    if log is None or log.log.architecture is None:
        return False
    try:
        found = json.loads(read_text(path)[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and log.log.architecture in (found.get("architectures") or [])


def _told(log: ServerLog) -> str:
    """What decides speed, of the settings a log prints."""
    names = ("dtype", "quantization", "tensor_parallel_size", "enforce_eager", "max_model_len", "device_config")
    return repr([log.settings.get(name) for name in names])
