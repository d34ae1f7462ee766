"""What can this machine do? What is there, what is missing, what that rules out, and the command that brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from perflab import units
from perflab.capture.machine import Machine, Program, Space, inspect_machine
from perflab.capture.probe import Probe, engine_python, probe
from perflab.errors import CaptureError
from perflab.knowledge.installs import commands
from perflab.messages import say
from perflab.tasks.provenance import describe_hardware

Status = Literal["ok", "info", "warn", "missing"]
ABILITIES = ("run", "profile", "gpu", "nsys", "ncu", "screenshots")
PROBE_S = 180.0
_MIB = 1 << 20
_LEAST_DISK, _GOOD_DISK = 256 * _MIB, 5 * units.GIB
_GOOD_SHM = 1 * units.GIB
_GOOD_FILES = 4096
_GOOD_MEMORY = 4 * units.GIB
_SHOWN_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")


@dataclass(frozen=True)
class Item:
    """One thing looked at.

    Attributes
    ----------
    status
        `ok`; `info`: a fact that rules nothing out; `warn`: works, with a limit; `missing`.
    without
        What cannot be done, or goes wrong, while it is so; None where all is well.
    commands
        What brings it, by tool (`pip`, `apt`, `conda`, `docker`, `shell`).
    rules_out
        Abilities (`ABILITIES`) that are not there because of it.
    """

    check: str
    status: Status
    detail: str
    without: str | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    rules_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The item of the JSON document."""
        return {
            "check": self.check,
            "status": self.status,
            "detail": self.detail,
            "without": self.without,
            "commands": dict(self.commands),
            "rules_out": list(self.rules_out),
        }


@dataclass(frozen=True)
class Engine:
    """What is known of vLLM: its probe, or why there is none."""

    python: str | None
    probe: Probe | None = None
    problem: str | None = None


@dataclass(frozen=True)
class DoctorReport:
    """What `doctor` answers. `can` says of each of `ABILITIES` whether it is there."""

    machine: Machine
    engine: Engine
    items: list[Item]

    @property
    def can(self) -> dict[str, bool]:
        """Ability -> whether nothing rules it out."""
        return {ability: self.why_not(ability) is None for ability in ABILITIES}

    def why_not(self, ability: str) -> str | None:
        """One line that says what an ability lacks and what brings it; None where it is there."""
        for item in self.items:
            if ability in item.rules_out:
                command = next(iter(item.commands.values()), None)
                return item.detail if command is None else say("doctor.why_not", detail=item.detail, command=command)
        return None

    def to_json(self) -> dict[str, Any]:
        """The document of `perflab doctor --json`."""
        return {
            "schema": 1,
            "can": self.can,
            "why_not": {ability: why for ability in ABILITIES if (why := self.why_not(ability)) is not None},
            "python": self.machine.python_version,
            "hardware": msgspec.to_builtins(self.machine.hardware),
            "cpu_instruction_sets": self.instruction_sets,
            "vllm": None
            if self.engine.probe is None
            else {
                "python": self.engine.probe.python,
                "version": self.engine.probe.vllm_version,
                "flavour": self.engine.probe.flavour,
                "torch": self.engine.probe.torch_version,
                "broken": dict(self.engine.probe.broken),
            },
            "checks": [item.to_json() for item in self.items],
            "unanswered": dict(self.machine.unanswered),
        }

    @property
    def instruction_sets(self) -> list[str] | None:
        """Those that matter to vLLM's CPU build; None where the system does not tell."""
        flags = self.machine.cpu_flags
        return None if flags is None else [flag for flag in _SHOWN_FLAGS if flag in flags]


def doctor(folder: str | Path = ".") -> DoctorReport:
    """Look at this machine and at the engine's Python; always answers, within some minutes at the very worst."""
    return diagnosis(inspect_machine(folder), _engine())


def _engine() -> Engine:
    python = None
    try:
        python = engine_python()
        return Engine(python, probe(timeout_s=PROBE_S))
    except CaptureError as error:
        return Engine(python, problem=str(error))


def diagnosis(machine: Machine, engine: Engine) -> DoctorReport:
    """What follows from what was found; looks at nothing itself."""
    items = [
        _python(machine),
        _vllm(machine, engine),
        *_broken(engine),
        _cpu(machine, engine),
        _memory(machine),
        _gpus(machine, engine),
        _loopback(machine),
        _write_access(machine),
        _disk("disk_runs", machine.runs),
        _disk("disk_cache", machine.cache),
        _shm(machine),
        _open_files(machine),
        _model_cache(machine),
        _token(machine),
        _profiler("nsys", machine.nsys, machine),
        _ncu(machine),
        _chromium(machine),
    ]
    late = [
        Item("unanswered", "warn", say("doctor.unanswered", part=part.replace("_", " "), why=why))
        for part, why in machine.unanswered.items()
    ]
    return DoctorReport(machine, engine, [*items, *late])


def _has_gpu(machine: Machine) -> bool:
    return bool(machine.hardware.gpus) or machine.has_kfd


def _build(machine: Machine) -> str:
    return "gpu_build" if _has_gpu(machine) else "cpu_build"


def _python(machine: Machine) -> Item:
    version = machine.python_version
    supported = (3, 11) <= tuple(int(part) for part in version.split(".")[:2]) <= (3, 13)
    if supported:
        return Item("python", "ok", say("doctor.python", version=version, path=machine.python))
    return Item(
        "python",
        "warn",
        say("doctor.python", version=version, path=machine.python),
        say("doctor.python_without"),
        commands("python"),
    )


def _vllm(machine: Machine, engine: Engine) -> Item:
    if engine.probe is None:
        wanted = commands(_build(machine)) | commands("engine_python")
        why = engine.problem or say("doctor.no_vllm")
        return Item("vllm", "missing", why, say("doctor.vllm_without"), wanted, ("run", "profile", "gpu"))
    found = engine.probe
    detail = say(
        "doctor.vllm", version=found.vllm_version, flavour=found.flavour, torch=found.torch_version, python=found.python
    )
    if found.flavour == "gpu" and not _has_gpu(machine):
        detail = say("doctor.gpu_build_alone", vllm=detail)
        return Item(
            "vllm", "missing", detail, say("doctor.vllm_without"), commands("cpu_build"), ("run", "profile", "gpu")
        )
    if found.flavour == "cpu" and _has_gpu(machine):
        without = say("doctor.cpu_build_beside_gpu")
        return Item("vllm", "warn", detail, without, commands("gpu_build"), ("gpu",))
    return Item("vllm", "ok", detail)


def _broken(engine: Engine) -> list[Item]:
    if engine.probe is None or not engine.probe.broken:
        return []
    names = " ".join(engine.probe.broken)
    why = "; ".join(f"{name}: {text}" for name, text in engine.probe.broken.items())
    return [
        Item(
            "broken_packages",
            "warn",
            say("doctor.broken", names=names, torch=engine.probe.torch_version, why=why),
            say("doctor.broken_without"),
            commands("suspects", python=engine.probe.python, names=names),
        )
    ]


def _cpu(machine: Machine, engine: Engine) -> Item:
    flags, hardware = machine.cpu_flags, machine.hardware
    name = say("doctor.cpu", cpu=hardware.cpu or machine.architecture, cores=hardware.cores or "?")
    if flags is None:
        return Item("cpu", "info", say("doctor.cpu_unknown", cpu=name))
    shown = [flag for flag in _SHOWN_FLAGS if flag in flags]
    detail = say("doctor.cpu_sets", cpu=name, sets=", ".join(shown) or say("doctor.no_sets"))
    if machine.architecture not in ("x86_64", "AMD64"):
        return Item("cpu", "ok", detail)
    if "avx2" not in flags:
        needs_cpu = engine.probe is None or engine.probe.flavour == "cpu"
        ruled = ("run", "profile") if needs_cpu else ()
        return Item("cpu", "missing", detail, say("doctor.no_avx2"), rules_out=ruled)
    if "avx512f" not in flags:
        return Item("cpu", "warn", detail, say("doctor.no_avx512"))
    if "avx512_bf16" not in flags:
        return Item("cpu", "ok", detail, say("doctor.no_bf16"))
    return Item("cpu", "ok", detail)


def _memory(machine: Machine) -> Item:
    total = machine.memory_limit or machine.hardware.memory_bytes
    if total is None:
        return Item("memory", "info", say("doctor.memory_unknown"))
    free = min(machine.memory_available or total, total)
    detail = say("doctor.memory", total=units.show_bytes(total), free=units.show_bytes(free))
    if machine.memory_limit is not None:
        detail = say("doctor.memory_limited", memory=detail)
    if free < _GOOD_MEMORY:
        return Item("memory", "warn", detail, say("doctor.memory_without", least=units.show_bytes(_GOOD_MEMORY)))
    return Item("memory", "ok", detail)


def _gpus(machine: Machine, engine: Engine) -> Item:
    if machine.hardware.gpus:
        return Item("gpu", "ok", str(describe_hardware(machine.hardware)))
    if machine.has_kfd:
        return Item("gpu", "warn", say("doctor.amd_gpu"), say("doctor.amd_gpu_without"))
    why = machine.nvml_problem or say("doctor.nvml_silent")
    # A GPU build is about to be used, or a driver was meant to be here: then what is missing is worth a command.
    if machine.nvidia_smi is not None:
        detail = say("doctor.smi_without_gpu", smi=machine.nvidia_smi.path, why=machine.nvidia_smi.problem or why)
        return Item("gpu", "missing", detail, say("doctor.gpu_without"), commands("nvidia_driver"), ("gpu",))
    detail = say("doctor.no_gpu", why=why)
    return Item("gpu", "info", detail, say("doctor.gpu_without"), commands("nvidia_driver"), ("gpu",))


def _loopback(machine: Machine) -> Item:
    if machine.loopback_port is not None:
        return Item("loopback", "ok", say("doctor.loopback", port=machine.loopback_port))
    why = machine.unanswered.get("loopback_port", "")
    return Item(
        "loopback",
        "missing",
        say("doctor.no_loopback", why=why),
        say("doctor.loopback_without"),
        commands("loopback"),
        ("run", "profile", "gpu"),
    )


def _write_access(machine: Machine) -> Item:
    if machine.runs is None:
        return Item("write_access", "info", say("doctor.folder_unknown"))
    detail = say("doctor.folder", path=machine.runs.path)
    if machine.runs.writable:
        return Item("write_access", "ok", detail)
    detail = say("doctor.folder_closed", path=machine.runs.path)
    return Item("write_access", "missing", detail, say("doctor.folder_without"), commands("write_access"))


def _disk(check: str, space: Space | None) -> Item:
    if space is None:
        return Item(check, "info", say("doctor.disk_unknown"))
    what = say(f"doctor.{check}")
    detail = say("doctor.disk", what=what, path=space.path, free=units.show_bytes(space.free))
    if space.free < _LEAST_DISK:
        wanted, without = commands("disk"), say("doctor.disk_full", least=units.show_bytes(_LEAST_DISK))
        return Item(check, "missing", detail, without, wanted, ("run", "profile", "gpu"))
    if space.free < _GOOD_DISK:
        return Item(check, "warn", detail, say("doctor.disk_without"), commands("disk"))
    if check == "disk_cache" and not space.writable:
        return Item(check, "warn", detail, say("doctor.cache_closed"), commands("disk"))
    return Item(check, "ok", detail)


def _shm(machine: Machine) -> Item:
    if machine.shm is None:
        return Item("shm", "info", say("doctor.no_shm"))
    detail = say("doctor.shm", total=units.show_bytes(machine.shm.total), free=units.show_bytes(machine.shm.free))
    if machine.shm.free < _GOOD_SHM:
        return Item("shm", "warn", detail, say("doctor.shm_without"), commands("shm"))
    return Item("shm", "ok", detail)


def _open_files(machine: Machine) -> Item:
    if machine.open_files is None:
        return Item("open_files", "ok", say("doctor.files_unlimited"))
    detail = say("doctor.files", limit=machine.open_files)
    if machine.open_files < _GOOD_FILES:
        return Item("open_files", "warn", detail, say("doctor.files_without"), commands("open_files"))
    return Item("open_files", "ok", detail)


def _model_cache(machine: Machine) -> Item:
    cache = machine.model_cache
    if cache is None:
        return Item("model_cache", "info", say("doctor.model_cache_unknown"))
    detail = say("doctor.model_cache", path=cache.path, models=cache.models)
    if not cache.writable:
        return Item("model_cache", "warn", detail, say("doctor.model_cache_without"), commands("model_cache"))
    return Item("model_cache", "ok", detail)


def _token(machine: Machine) -> Item:
    if machine.has_hf_token:
        return Item("hf_token", "ok", say("doctor.token"))
    return Item("hf_token", "info", say("doctor.no_token"), say("doctor.token_without"), commands("hf_token"))


def _profiler(name: Literal["nsys", "ncu"], found: Program | None, machine: Machine) -> Item:
    without = say(f"doctor.{name}_without")
    if found is None:
        # Both look at GPUs only: without one there is nothing to install them for.
        status: Status = "missing" if machine.hardware.gpus else "info"
        return Item(name, status, say("doctor.no_program", name=name), without, commands(name), (name,))
    if found.problem is not None:
        detail = say("doctor.program_fails", path=found.path, why=found.problem)
        return Item(name, "missing", detail, without, commands(name), (name,))
    detail = say("doctor.program", path=found.path, version=found.version or say("doctor.no_version"))
    if not machine.hardware.gpus:
        return Item(name, "info", detail, say("doctor.profiler_needs_gpu"), rules_out=(name,))
    return Item(name, "ok", detail)


def _ncu(machine: Machine) -> Item:
    item = _profiler("ncu", machine.ncu, machine)
    if item.status == "ok" and machine.counters_restricted:
        without = say("doctor.counters_without")
        return Item("ncu", "missing", item.detail, without, commands("ncu_counters"), ("ncu",))
    return item


def _chromium(machine: Machine) -> Item:
    if machine.chromium is not None:
        return Item("chromium", "ok", say("doctor.chromium", path=machine.chromium))
    without = say("doctor.chromium_without")
    return Item("chromium", "info", say("doctor.no_chromium"), without, commands("chromium"), ("screenshots",))


def lacking(report: DoctorReport, required: Sequence[str]) -> str | None:
    """One line about the first required ability that is not there; None where all are."""
    for ability in required:
        if (why := report.why_not(ability)) is not None:
            return say("doctor.lacking", ability=ability, why=why)
    return None
