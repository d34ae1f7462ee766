"""The machine a study is planned for: this one, or one that is named; and the models' configs."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from perflab import units
from perflab.analysis.model.shape import Missing, ModelShape, model_shape
from perflab.analysis.quantization.suitability import Machine
from perflab.capture.hardware import hardware
from perflab.capture.machine import cpu_flags
from perflab.capture.models import known_config
from perflab.errors import InputError
from perflab.experiment.spec import Model
from perflab.experiment.study import Study, Variant
from perflab.knowledge.gpus import gpu_spec, known_gpus
from perflab.knowledge.quantization_formats import capability_of
from perflab.messages import say


def this_machine(flavour: str | None) -> Machine:
    """This machine as the installed engine sees it; without an engine its GPUs count where there are any."""
    found = hardware()
    if found.gpus and flavour != "cpu":
        sizes = [gpu.memory_bytes for gpu in found.gpus if gpu.memory_bytes is not None]
        return Machine.of_gpu(found.gpus[0].name, gpus=len(found.gpus), gpu_bytes=min(sizes, default=None))
    return Machine("cpu", found.cpu, flags=cpu_flags())


def named_machine(name: str, count: int, memory_gib: float | None = None) -> Machine:
    """A machine with GPUs of that name.

    Parameters
    ----------
    memory_gib
        Of one GPU; None: as sold, which is a little more than the driver tells.

    Raises
    ------
    InputError
        When nothing is known of GPUs of that name.
    """
    spec = gpu_spec(name) or gpu_spec(f"NVIDIA {name}")
    if spec is None and capability_of(name) is None:
        raise InputError(say("quantize.unknown_gpu", name=name, known=", ".join(known_gpus())))
    size = memory_gib * units.GIB if memory_gib is not None else spec.memory_gb * 1e9 if spec is not None else None
    return Machine("gpu", name, count, None if size is None else round(size), capability_of(name))


def model_config(model: Model) -> dict[str, Any] | None:
    """A model's config where it is on this machine; None where it is not, or cannot be read."""
    file = known_config(model)
    if file is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def shape_of(config: dict[str, Any] | None) -> ModelShape | Missing | None:
    """The shape a config describes; None without one."""
    return None if config is None else model_shape(config)


def checkpoint_method(study: Study, variant: Variant) -> str | None:
    """The `quant_method` of what a variant serves: its checkpoint's, else the model's own; None where not known."""
    config = model_config(variant.checkpoint or study.model)
    if config is None:
        return None
    found = config.get("quantization_config")
    return str(found.get("quant_method") or "") if isinstance(found, dict) else ""
