"""On what kind of machine a run was made: runs of different ones stand side by side, and are never compared unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from perflab.messages import say
from perflab.runs import Hardware, is_run, open_run


def machine_of(hardware: Hardware, flavour: str = "unknown") -> str:
    """`NVIDIA H200`, or `CPU: AMD EPYC`: what makes speeds comparable. How many GPUs were used is the run's own choice.

    An engine of vLLM's CPU build counts as a CPU, whatever GPUs lie idle beside it.
    """
    if hardware.gpus and flavour != "cpu":
        return " and ".join(Counter(gpu.name for gpu in hardware.gpus))
    if hardware.cpu and flavour in ("cpu", "unknown"):
        return say("machine.cpu", name=hardware.cpu)
    return say("machine.unknown_cpu" if flavour == "cpu" else "machine.unknown")


def is_cpu(machine: str) -> bool:
    """Whether that is an engine on a CPU."""
    return machine.startswith(say("machine.cpu", name="")) or machine == say("machine.unknown_cpu")


@lru_cache(maxsize=512)
def machine_at(source: Path) -> str:
    """The machine of the run in whose directory a file lies (or which it is); not known where it lies in none."""
    path = source.resolve()
    home = next((folder for folder in (path, *path.parents) if is_run(folder)), None)
    if home is None:
        return say("machine.unknown")
    manifest = open_run(home).manifest
    return machine_of(manifest.hardware, manifest.engine.flavour)


def in_order(machines: Iterable[str]) -> list[str]:
    """Each machine once, GPUs before CPUs, in the order given."""
    return sorted(dict.fromkeys(machines), key=is_cpu)
