"""Ways to quantize a model, what each needs and how vLLM is told, from `quantization_formats.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from perflab.knowledge.toml import shipped_toml
from perflab.knowledge.versions import release

How = Literal["none", "online", "make", "ready", "kv"]


@dataclass(frozen=True)
class Weights:
    """What becomes of the weights of linear layers.

    `group` weights along the input share a scale of `scale_bits`; 0: a whole row does (`per_row`), or the tensor. With
    `block`, a square of weights shares one.
    """

    bits: int
    group: int = 0
    scale_bits: int = 16
    per_row: bool = False
    block: int = 0
    zero_points: bool = False


@dataclass(frozen=True)
class OnCpu:
    """What vLLM's CPU engine does with a format: `runs`, `runs_if`, or `no`, the condition in words.

    `needs` is a flag of the processor without which there is no kernel, `multiple` what widths have to be multiples of.
    """

    state: Literal["runs", "runs_if", "no"] = "runs"
    words: str = ""
    needs: str = ""
    multiple: int = 1


@dataclass(frozen=True)
class Format:
    """One way to quantize a model.

    Attributes
    ----------
    name, label
        As a study names it, and in words.
    how
        none, online, make, ready or kv; see the file.
    weights, activations, kv
        What becomes of them; None: they stay as they are.
    native, most, least
        Compute capability (times 10) from which, and up to which, tensor cores compute in it; from which vLLM has it.
    widths, block
        What widths of layers have to be multiples of; what their inputs have to be, because so many activations share
        a scale.
    groups
        Sizes of groups vLLM's kernels know.
    dtypes
        Types of 16-bit weights it can be made of.
    checkpoint, config
        `quant_method` of a checkpoint that has to be ready, and the quantization_config of one.
    """

    name: str
    label: str
    how: How
    source: str
    weights: Weights | None = None
    activations: str | None = None
    kv: str | None = None
    calibrated: bool = False
    native: int = 0
    most: int | None = None
    least: int = 0
    widths: int = 1
    block: int = 0
    groups: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    checkpoint: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    cpu: OnCpu = OnCpu()
    spelling: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())

    def args(self, version: str | None) -> dict[str, Any] | None:
        """Engine arguments for a version of vLLM (None: the newest known); None where that version lacks it."""
        if not self.spelling:
            return {}
        found = None
        for since, args in self.spelling:
            if version is None or release(since) <= release(version):
                found = dict(args)
        return found

    @property
    def since(self) -> str | None:
        """The first version that has it, None where all do."""
        return self.spelling[0][0] if self.spelling else None


@dataclass(frozen=True)
class Int4Kernel:
    """A kernel for 4-bit weights, and for which layers it is chosen."""

    name: str
    capability: int
    groups: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]
    exactly: bool = False

    def takes(self, capability: int, group: int, inputs: int, outputs: int) -> bool:
        """Whether it computes a layer of those widths on such a GPU."""
        fits = capability == self.capability if self.exactly else capability >= self.capability
        return fits and group in self.groups and any(inputs % k == 0 and outputs % n == 0 for k, n in self.tiles)


def format_named(name: str) -> Format | None:
    """The format of that name; None where there is none (`int4-g96` is one whose group no kernel knows)."""
    for pattern, one in _table():
        if match := pattern.fullmatch(name):
            return _grouped(one, name, int(match[1])) if match.groups() else one
    return None


def format_names() -> list[str]:
    """Names a study can give, groups as vLLM's kernels know them."""
    names: list[str] = []
    for pattern, one in _table():
        names += [one.name.replace("gN", f"g{group}") for group in one.groups] if pattern.groups else [one.name]
    return names


def int4_kernels() -> tuple[Int4Kernel, ...]:
    """Kernels for 4-bit weights, in the order in which vLLM tries them."""
    return tuple(
        Int4Kernel(
            one["name"],
            one["capability"],
            tuple(one["groups"]),
            tuple((inputs, outputs) for inputs, outputs in one["tiles"]),
            one.get("exactly", False),
        )
        for one in _document()["kernel"]
    )


def kv_backends() -> Mapping[str, str]:
    """By attention backend, whether it takes an FP8 KV cache, in words."""
    return MappingProxyType({one["name"]: one["fp8"] for one in _document()["kv_backend"]})


def marlin_pads(version: str | None) -> bool:
    """Whether Marlin of that version pads widths that do not fit its tiles; so do versions that are not known."""
    return version is None or release(version) >= release(_document()["marlin_padding"]["since"])


def experts_only(quantization: str) -> bool:
    """Whether an online quantization leaves linear layers as they are."""
    return quantization in _document()["experts_only"]["names"]


def capability_of(gpu: str | None) -> int | None:
    """Compute capability, times 10, by a GPU's name; None where the name is not known."""
    found = (one["value"] for one in _document()["capability"] if gpu and re.search(one["match"], gpu))
    return next(found, None)


def _grouped(one: Format, name: str, group: int) -> Format:
    weights = None if one.weights is None else Weights(**{**one.weights.__dict__, "group": group})
    config = json.loads(json.dumps(one.config).replace('"group_size": -1', f'"group_size": {group}'))
    changes = {"name": name, "label": one.label.format(group=group), "weights": weights, "config": config}
    return Format(**{**one.__dict__, **changes})


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return shipped_toml("quantization_formats.toml")


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[re.Pattern[str], Format], ...]:
    return tuple(
        (re.compile(one.get("pattern") or re.escape(one["name"])), _read(one)) for one in _document()["format"]
    )


def _read(entry: Mapping[str, Any]) -> Format:
    plain = {key: value for key, value in entry.items() if key not in ("pattern", "weights", "cpu", "spelling")}
    for key in ("groups", "dtypes"):
        if key in plain:
            plain[key] = tuple(plain[key])
    weights = Weights(**entry["weights"]) if "weights" in entry else None
    spelling = tuple((one["since"], dict(one["args"])) for one in entry.get("spelling", ()))
    return Format(weights=weights, cpu=OnCpu(**entry["cpu"]), spelling=spelling, **plain)
