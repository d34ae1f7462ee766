"""`perflab quantize plan`: which variants fit, how each is made, what it will take, and which servers are started."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.model.shape import ModelShape
from perflab.analysis.quantization.memory import PredictedMemory, ReportedMemory, predicted_memory
from perflab.analysis.quantization.suitability import Machine, Suitability, suitability
from perflab.capture.probe import Probe, engine_python, has_vllm, probe
from perflab.errors import CaptureError, InputError
from perflab.experiment import Experiment, Plan, plan
from perflab.experiment.study import KvMode, Study, Variant
from perflab.messages import say
from perflab.read.server_log import read_server_log
from perflab.runs import is_run, open_run
from perflab.tasks.quantize.experiments import variant_args
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.machine import checkpoint_method, model_config, shape_of, this_machine
from perflab.tasks.quantize.recipes import recipe_for
from perflab.tasks.quantize.speed import Planner, Schedule, schedule


@dataclass(frozen=True)
class VariantPlan:
    """One variant.

    Attributes
    ----------
    args
        Engine arguments it adds to the study's; None where that version of vLLM lacks the format.
    made
        How it comes about, in words.
    memory
        By comparison; empty where the model's shape is not known.
    reported
        What the engine said of its memory where the variant was measured already.
    """

    variant: Variant
    suitability: Suitability
    args: Mapping[str, Any] | None
    made: str
    memory: Mapping[KvMode, PredictedMemory] = field(default_factory=dict)
    reported: Mapping[KvMode, ReportedMemory] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "name": self.variant.name,
            "format": self.variant.format.name,
            "label": self.variant.label,
            "how": self.variant.format.how,
            "args": None if self.args is None else dict(self.args),
            "made": self.made,
            **self.suitability.to_json(),
            "predicted": {mode: one.to_json() for mode, one in self.memory.items()},
            "reported": {mode: one.to_json() for mode, one in self.reported.items()},
            "source": self.variant.format.source,
        }


@dataclass(frozen=True)
class StudyPlan:
    """A study as it would be carried out."""

    study: Study
    machine: Machine
    version: str | None
    variants: tuple[VariantPlan, ...]
    schedule: Schedule

    @property
    def knows_model(self) -> bool:
        """Whether the model's config.json is here: without it widths are not checked, nor memory predicted."""
        return model_config(self.study.model) is not None

    @property
    def fitting(self) -> list[str]:
        """Names of variants that are worth starting."""
        return [one.variant.name for one in self.variants if one.suitability.runs]

    def to_json(self) -> dict[str, Any]:
        """Everything a script needs; memory in bytes, times in seconds."""
        machine = self.machine
        return {
            "schema": 1,
            "study": self.study.name,
            "model": self.study.model.served_name,
            "shape_only": self.study.is_shape_only,
            "config_known": self.knows_model,
            "vllm_version": self.version,
            "machine": {
                "kind": machine.kind,
                "name": machine.name,
                "gpus": machine.gpus,
                "gpu_bytes": machine.gpu_bytes,
                "compute_capability": None if machine.capability is None else machine.capability / 10,
            },
            "variants": [one.to_json() for one in self.variants],
            "servers": [
                {
                    "name": job.name,
                    "points": len(job.points),
                    "profiles": job.profiles,
                    "estimate_s": round(job.estimate_s, 1),
                }
                for job in self.schedule.jobs
            ],
            "servers_done": self.schedule.done,
            "estimate_s": round(self.schedule.estimate_s, 1),
        }


def plan_study(
    study: Study, folder: str | Path | None = None, *, machine: Machine | None = None, version: str | None = None
) -> StudyPlan:
    """The plan of a study; nothing is started, fetched or made.

    Parameters
    ----------
    folder
        Where it was begun: what is complete there is not planned again.
    machine
        What to plan for; None: this machine, with the vLLM that is installed here.
    version
        Of vLLM, to plan for another than the one installed (or, where there is none, than the newest known).
    """
    engine = None if machine is not None and version is not None else _engine(study)
    flavour = engine.flavour if engine is not None else None
    place = machine or this_machine(flavour)
    version = version or (engine.vllm_version if engine is not None and place.kind == _kind(flavour) else None)
    variants = tuple(plan_variant(study, one, place, version) for one in study.variants)
    names = [one.variant.name for one in variants if one.suitability.runs]
    how: Planner = planner_for(engine if engine is not None and place.kind == _kind(flavour) else None, place)
    with contextlib.ExitStack() as stack:
        begun = folder is not None and Path(folder).is_dir()
        root = (
            Path(folder) if folder is not None and begun else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        place_of = StudyFolder(root.resolve())
        found = schedule(study, place_of, how, version, variants=names or ("",), planned=True)
        variants = tuple(replace(one, reported=reported_memory(study, one.variant, place_of)) for one in variants)
    return StudyPlan(study, place, version, variants, found)


def plan_variant(study: Study, variant: Variant, machine: Machine, version: str | None) -> VariantPlan:
    """Whether a variant fits, and what it takes."""
    try:
        args: dict[str, Any] | None = variant_args(study, variant, version)
    except InputError:
        args = None
    given = variant.checkpoint is not None
    shape = shape_of(model_config(variant.checkpoint or study.model)) or shape_of(model_config(study.model))
    fits = suitability(
        variant.format,
        shape,
        machine,
        version=version,
        args=args or study.engine.args,
        has_checkpoint=given,
        checkpoint_method=checkpoint_method(study, variant),
        made_up=study.is_shape_only,
    )
    memory: dict[KvMode, PredictedMemory] = {}
    if isinstance(shape, ModelShape) and args is not None:
        for mode in study.kv.modes:
            share = study.kv.free_memory_utilization
            mine = {**args, "gpu_memory_utilization": share} if mode == "free" and share is not None else args
            memory[mode] = predicted_memory(
                variant.format,
                shape,
                mine,
                gpu_bytes=machine.gpu_bytes,
                capability=machine.capability,
                pinned_bytes=study.kv.pinned_bytes if mode == "pinned" else None,
            )
    own = None if args is None else {k: v for k, v in args.items() if study.engine.args.get(k) != v}
    return VariantPlan(variant, fits, own, _made(study, variant), memory)


def reported_memory(study: Study, variant: Variant, folder: StudyFolder) -> dict[KvMode, ReportedMemory]:
    """What vLLM logged of a variant's memory, by comparison: its largest rank's weights, its cache."""
    found: dict[KvMode, ReportedMemory] = {}
    for mode in study.kv.modes:
        path = folder.run(variant.name, mode)
        if not is_run(path):
            continue
        run = open_run(path)
        if run.manifest.log is None:
            continue
        with contextlib.suppress(InputError):
            log = read_server_log(run.file(run.manifest.log))
            sizes = log.memory.groupby("component")["bytes"]
            found[mode] = ReportedMemory(
                weights_bytes=_size(sizes.max(), "weights"),
                kv_tokens=log.kv_cache_tokens,
                max_concurrency=log.max_concurrency,
                kv_bytes=_size(sizes.min(), "kv_cache"),
            )
    return found


def _size(sizes: pd.Series, component: str) -> int | None:
    return int(sizes[component]) if component in sizes.index else None


def planner_for(engine: Probe | None, machine: Machine) -> Planner:
    """How experiments are planned for a machine."""

    def made(experiment: Experiment) -> Plan:
        serve = engine.arguments["serve"] if engine is not None else None
        return plan(experiment, "cpu" if machine.kind == "cpu" else "gpu", serve=serve)

    return made


def told_variants(plans: Sequence[VariantPlan]) -> list[dict[str, Any]]:
    """What `study.json` says of each variant."""
    return [{key: value for key, value in one.to_json().items() if key != "source"} for one in plans]


def _made(study: Study, variant: Variant) -> str:
    how = variant.format.how
    if variant.checkpoint is not None:
        return say("quantize.made.given", name=variant.checkpoint.served_name)
    if how in ("make", "ready") and study.is_shape_only:
        return say("quantize.made.shape")
    if how != "make":
        return say(f"quantize.made.{how}")
    recipe = recipe_for(variant)
    name = "make" if recipe.calibrated else "make_plain"
    return say(f"quantize.made.{name}", algorithm=recipe.algorithm, samples=recipe.samples(study.calibration.samples))


def _engine(study: Study) -> Probe | None:
    """The installed engine; None where there is none."""
    try:
        return probe(study.engine.python) if has_vllm(engine_python(study.engine.python)) else None
    except CaptureError:
        return None


def _kind(flavour: str | None) -> str | None:
    return {"gpu": "gpu", "cpu": "cpu"}.get(flavour or "")
