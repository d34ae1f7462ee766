"""A study's variant as an experiment file: what the server is started with, and what it is measured under."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from perflab.errors import InputError
from perflab.experiment import Experiment, read_experiment
from perflab.experiment.spec import Model
from perflab.experiment.study import KvMode, Study, Variant
from perflab.messages import say
from perflab.tasks.quantize.folder import StudyFolder


def variant_args(study: Study, variant: Variant, version: str | None) -> dict[str, Any]:
    """Engine arguments of a variant: the study's, what the format needs in that version of vLLM, its own.

    Raises
    ------
    InputError
        When that version of vLLM does not have the format.
    """
    brought = variant.format.args(version)
    if brought is None:
        since = variant.format.since
        raise InputError(
            say("quantize.no_spelling", name=variant.name, version=version, since=since),
            path=study.path,
            line=variant.line,
        )
    # What the study says of the variant itself counts most; an argument spelled out replaces the format's.
    return {**study.engine.args, **brought, **variant.args}


def served_model(study: Study, variant: Variant, folder: StudyFolder) -> Model | None:
    """What is served for a variant; None where a checkpoint is yet to be made."""
    name = study.model.served_name
    if variant.checkpoint is not None:
        found = variant.checkpoint
        return Model(found.name, found.kind, name, found.trust_remote_code or study.model.trust_remote_code)
    if variant.format.how in ("none", "online", "kv"):
        return study.model
    made = folder.checkpoint(variant.name)
    if not (made / "config.json").is_file():
        return None
    return Model(str(made), "path", name, study.model.trust_remote_code)


def variant_experiment(
    study: Study, variant: Variant, mode: KvMode, folder: StudyFolder, version: str | None, *, planned: bool = False
) -> Experiment:
    """The experiment of a variant in one comparison, written to the study's folder and read back from there.

    Parameters
    ----------
    planned
        Nothing will be started: where the checkpoint is yet to be made, the study's own model stands for it.

    Raises
    ------
    InputError
        When its checkpoint is missing, or that version of vLLM does not have the format.
    """
    model = served_model(study, variant, folder)
    if model is None and planned:
        model = study.model
    if model is None:
        raise InputError(say("quantize.no_checkpoint", name=variant.name), path=study.path, line=variant.line)
    args = variant_args(study, variant, version)
    if mode == "pinned":
        args["kv_cache_memory_bytes"] = study.kv.pinned_bytes
    elif study.kv.free_memory_utilization is not None:
        args["gpu_memory_utilization"] = study.kv.free_memory_utilization
    engine: dict[str, Any] = {"args": args, "env": dict(study.engine.env)}
    if study.engine.python is not None:
        engine["python"] = study.engine.python
    if study.engine.startup_deadline_s is not None:
        engine["startup_deadline_s"] = study.engine.startup_deadline_s
    document: dict[str, Any] = {
        "name": _short(f"{study.name}-{variant.name}-{mode}"),
        "title": say(f"quantize.title_{mode}", study=study.title, label=variant.label),
        "model": _model(model),
        "engine": {key: value for key, value in engine.items() if value},
        "repeats": study.repeats,
        "server_runs": study.server_runs_of(mode),
        "seed": study.seed,
        "workloads": _workloads(study, mode),
        "telemetry": {"interval_s": study.telemetry_interval_s},
        "point_deadline_s": study.point_deadline_s,
    }
    if study.profile_data and mode == study.kv.modes[0]:
        document["profile"] = [dict(one) for one in study.profile_data]
    file = folder.experiment(variant.name, mode)
    file.parent.mkdir(parents=True, exist_ok=True)
    said = say("quantize.experiment_head", name=study.name)
    file.write_text(f"# {said}\n" + yaml.safe_dump(document, sort_keys=False, width=120), encoding="utf-8")
    return read_experiment(file)


def _short(name: str) -> str:
    return name[:64].rstrip("-._")


def _model(model: Model) -> dict[str, Any]:
    key = {"hub": "id", "path": "path", "package": "package"}[model.kind]
    found: dict[str, Any] = {key: model.name, "served_name": model.served_name}
    return {**found, "trust_remote_code": True} if model.trust_remote_code else found


def _workloads(study: Study, mode: KvMode) -> list[dict[str, Any]]:
    """The study's; in the comparison with a free cache only its loads, where the study names them."""
    wanted = {load.concurrency for load in study.kv.free_loads} if mode == "free" else set()
    found: list[dict[str, Any]] = []
    for data, workload in zip(study.workload_data, study.workloads, strict=True):
        one = {key: _plain(value) for key, value in data.items()}
        if wanted:
            there = [load.concurrency for load in workload.loads if load.rate is None and load.concurrency in wanted]
            if not there:
                continue
            one["load"] = {"concurrency": list(dict.fromkeys(there))}
        found.append(one)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def pairs(study: Study) -> list[tuple[int, KvMode, Variant]]:
    """Every start of a server in the order in which they are made.

    Variants take turns (A B C, A B C), so that a drift of the machine spreads over all of them.
    """
    most = max((study.server_runs_of(mode) for mode in study.kv.modes), default=0)
    return [
        (server_run, mode, variant)
        for server_run, mode in itertools.product(range(most), study.kv.modes)
        if server_run < study.server_runs_of(mode)
        for variant in study.variants
    ]
