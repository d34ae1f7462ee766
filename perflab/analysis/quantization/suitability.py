"""Whether a way to quantize fits a model, a machine and a version of vLLM: told before anything runs.

The facts are `knowledge/quantization_formats.toml`, with their sources. What is not known (a GPU of no known
compute capability, a model whose shape the config does not tell) is said, and keeps nothing from running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perflab.analysis.model.shape import DTYPE_BITS, Missing, ModelShape
from perflab.analysis.quantization.layers import Layer, linear_layers
from perflab.knowledge.quantization_formats import (
    Format,
    capability_of,
    experts_only,
    int4_kernels,
    kv_backends,
    marlin_pads,
)
from perflab.messages import say

State = Literal["fits", "remark", "refused"]


@dataclass(frozen=True)
class Machine:
    """What the engine runs on.

    Attributes
    ----------
    capability
        Compute capability times 10 of its GPUs; None where it is not known, or there is none.
    flags
        The processor's, as Linux names them; None where they are not known.
    """

    kind: Literal["gpu", "cpu"]
    name: str | None = None
    gpus: int = 0
    gpu_bytes: int | None = None
    capability: int | None = None
    flags: frozenset[str] | None = None

    @classmethod
    def of_gpu(cls, name: str, *, gpus: int = 1, gpu_bytes: int | None = None) -> Machine:
        """A machine with so many GPUs of a name."""
        return cls("gpu", name, gpus, gpu_bytes, capability_of(name))


@dataclass(frozen=True)
class Suitability:
    """The answer: `fits`, `remark` (it runs, and a reader has to know how) or `refused`, each with its sentences."""

    state: State
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it is worth starting."""
        return self.state != "refused"

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {"state": self.state, "reasons": list(self.reasons), "remarks": list(self.remarks)}


def suitability(
    kind: Format,
    shape: ModelShape | Missing | None,
    machine: Machine,
    *,
    version: str | None = None,
    args: Mapping[str, Any] | None = None,
    has_checkpoint: bool = False,
    checkpoint_method: str | None = None,
    made_up: bool = False,
) -> Suitability:
    """Whether a format fits.

    Parameters
    ----------
    shape
        The model's; None, or `Missing`, where it is not known.
    version
        vLLM's.
    args
        The engine's arguments: `tensor_parallel_size`, `dtype` and `quantization` count.
    has_checkpoint, checkpoint_method
        Whether a checkpoint is given, and the `quant_method` of its config where that can be read.
    made_up
        The weights are (`load_format: dummy`), so that no checkpoint is needed.
    """
    args = args or {}
    known = shape if isinstance(shape, ModelShape) else None
    tensor = _whole(args.get("tensor_parallel_size"))
    layers = linear_layers(known, tensor) if known else []
    reasons = [
        *_version(kind, version),
        *_checkpoint(kind, has_checkpoint, checkpoint_method, made_up),
        *_dtype(kind, known, args),
        *_experts(known, args),
        *_split(known, machine, tensor),
    ]
    remarks: list[str] = []
    if machine.kind == "gpu":
        reasons += [*_on_gpu(kind, machine), *_unpadded(kind, machine, layers, version)]
        remarks += _gpu_remarks(kind, machine, layers)
    else:
        reasons += _on_cpu(kind, machine, layers, known)
        told = kind.cpu.words and not kind.cpu.needs and kind.cpu.multiple == 1
        remarks += [say("suitability.cpu", words=kind.cpu.words)] if told else []
    reasons += _widths(kind, layers, tensor)
    remarks += _family(kind, shape)
    state: State = "refused" if reasons else "remark" if remarks else "fits"
    return Suitability(state, tuple(dict.fromkeys(reasons)), tuple(dict.fromkeys(remarks)))


def _version(kind: Format, version: str | None) -> Iterator[str]:
    if kind.args(version) is None:
        yield say("suitability.version", since=kind.since, version=version)


def _checkpoint(kind: Format, given: bool, method: str | None, made_up: bool) -> Iterator[str]:
    if kind.how == "ready" and not given and not made_up:
        yield say("suitability.needs_checkpoint", method=kind.checkpoint)
    if given and kind.checkpoint and method is not None and kind.checkpoint not in method:
        yield say("suitability.other_checkpoint", found=method or "none", wanted=kind.checkpoint)
    if given and method and kind.how in ("none", "online", "kv"):
        yield say("suitability.already_quantized", found=method)


def _dtype(kind: Format, shape: ModelShape | None, args: Mapping[str, Any]) -> Iterator[str]:
    asked = str(args.get("dtype") or "auto").removeprefix("torch.")
    names = {"half": "float16", "float": "float32"}
    # With `auto` vLLM runs a float32 model in 16 bits.
    found = names.get(asked, asked) if asked != "auto" else None
    if found is None and shape is not None and shape.dtype in DTYPE_BITS and shape.dtype != "float32":
        found = names.get(shape.dtype, shape.dtype)
    if kind.dtypes and found is not None and found not in kind.dtypes:
        yield say("suitability.dtype", found=found, wanted=" or ".join(kind.dtypes))


def _experts(shape: ModelShape | None, args: Mapping[str, Any]) -> Iterator[str]:
    name = str(args.get("quantization") or "")
    if shape is not None and shape.moe is None and experts_only(name):
        yield say("suitability.experts_only", name=name)


def _split(shape: ModelShape | None, machine: Machine, tensor: int) -> Iterator[str]:
    if machine.kind == "gpu" and machine.gpus and tensor > machine.gpus:
        yield say("suitability.too_few_gpus", tensor=tensor, gpus=machine.gpus)
    if shape is not None and shape.heads % tensor:
        yield say("suitability.heads", heads=shape.heads, tensor=tensor)


def _on_gpu(kind: Format, machine: Machine) -> Iterator[str]:
    capability = machine.capability
    if capability is None:
        return
    if capability < kind.least:
        yield say("suitability.least", gpu=machine.name, has=_shown(capability), needs=_shown(kind.least))
    elif kind.most is not None and capability > kind.most:
        yield say("suitability.most", gpu=machine.name, has=_shown(capability), most=_shown(kind.most))


def _gpu_remarks(kind: Format, machine: Machine, layers: Sequence[Layer]) -> Iterator[str]:
    capability = machine.capability
    if capability is None:
        yield say("suitability.no_capability", gpu=machine.name or "?")
        return
    if kind.activations and kind.least <= capability < kind.native:
        yield say("suitability.weight_only", gpu=machine.name, has=_shown(capability), needs=_shown(kind.native))
    if kind.kv and capability < kind.native:
        words = "; ".join(f"{name}: {what}" for name, what in kv_backends().items() if name != "CPU_ATTN")
        yield say("suitability.kv_backends", words=words)
    if kind.weights is None or kind.weights.bits != 4 or capability < kind.least:
        return
    by_kernel: dict[str, list[str]] = {}
    for layer in layers:
        by_kernel.setdefault(_kernel(kind, capability, layer), []).append(layer.name)
    if len(by_kernel) > 1 or "" in by_kernel:
        parts = [f"{name} {', '.join(names)}" for name, names in by_kernel.items() if name]
        padded = by_kernel.get("", [])
        if parts:
            yield say("suitability.kernels", words="; ".join(parts))
        if padded:
            yield say("suitability.padded", layers=", ".join(padded))


def _unpadded(kind: Format, machine: Machine, layers: Sequence[Layer], version: str | None) -> Iterator[str]:
    """Layers no kernel takes as they are, in a version that does not pad them."""
    if kind.weights is None or kind.weights.bits != 4 or machine.capability is None or marlin_pads(version):
        return
    if bad := [one for one in layers if not _kernel(kind, machine.capability, one)]:
        yield say("suitability.no_kernel", layers=_named(bad), version=version)


def _kernel(kind: Format, capability: int, layer: Layer) -> str:
    group = kind.weights.group if kind.weights else 0
    for one in int4_kernels():
        if one.takes(capability, group, round(layer.inputs), round(layer.width)):
            return one.name
    return ""


def _on_cpu(kind: Format, machine: Machine, layers: Sequence[Layer], shape: ModelShape | None) -> Iterator[str]:
    cpu = kind.cpu
    if cpu.state == "no":
        yield say("suitability.no_cpu", words=cpu.words)
    if cpu.needs and machine.flags is not None and cpu.needs not in machine.flags:
        yield say("suitability.cpu_needs", words=cpu.words, flag=cpu.needs)
    if cpu.multiple > 1:
        bad = [one for one in layers if one.inputs % cpu.multiple or one.width % cpu.multiple]
        if bad:
            yield say("suitability.widths", layers=_named(bad), multiple=cpu.multiple)
    if kind.kv and shape is not None and shape.head_dim % 32:
        yield say("suitability.head_dim", head_dim=shape.head_dim)


def shape_reasons(kind: Format, shape: ModelShape | Missing | None) -> tuple[str, ...]:
    """What keeps a format from a model on every machine: groups and blocks that do not divide its widths."""
    return tuple(_widths(kind, linear_layers(shape, 1), 1)) if isinstance(shape, ModelShape) else ()


def _widths(kind: Format, layers: Sequence[Layer], tensor: int) -> Iterator[str]:
    """What has to divide the widths of a rank's layers: groups, blocks, and what matmuls in 8 bits need."""
    group = kind.weights.group if kind.weights and not kind.block else 0
    if kind.groups and group and group not in kind.groups:
        yield say("suitability.group_size", group=group, known=", ".join(str(one) for one in kind.groups))
    if group > 0 and (bad := [one for one in layers if one.inputs % group]):
        yield say("suitability.group", group=group, layers=_named(bad), split=_split_words(tensor))
    if kind.widths > 1 and (bad := [one for one in layers if one.inputs % kind.widths or one.width % kind.widths]):
        yield say("suitability.widths", layers=_named(bad), multiple=kind.widths)
    if kind.block and (bad := [one for one in layers if one.inputs % kind.block]):
        yield say("suitability.block", block=kind.block, layers=_named(bad), split=_split_words(tensor))


def _family(kind: Format, shape: ModelShape | Missing | None) -> Iterator[str]:
    if isinstance(shape, Missing):
        what = shape.unmodelled or ", ".join(shape.keys)
        yield say("suitability.unmodelled", what=what)
    if not isinstance(shape, ModelShape):
        return
    if shape.mla and kind.kv:
        yield say("suitability.mla_kv")
    if shape.mla and kind.weights:
        yield say("suitability.mla")
    if shape.moe and kind.calibrated:
        yield say("suitability.moe_calibration", experts=shape.moe.experts)


def _split_words(tensor: int) -> str:
    return "" if tensor == 1 else say("suitability.after_split", tensor=tensor)


def _named(layers: Sequence[Layer]) -> str:
    return ", ".join(f"{one.name} ({one.inputs:g} x {one.width:g})" for one in layers)


def _shown(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _whole(value: Any) -> int:
    try:
        return max(1, int(value))
    except (TypeError, ValueError):
        return 1
