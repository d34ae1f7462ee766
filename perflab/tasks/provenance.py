"""What ran, on what, and what came of it: the facts that stand before any figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perflab import units
from perflab.messages import say
from perflab.runs import Hardware, Manifest, Run, StepRecords
from perflab.tasks.machines import machine_of


@dataclass(frozen=True)
class Provenance:
    """The facts of one run in words a reader understands; None where the run does not tell.

    `machine` is what makes speeds comparable (`perflab.tasks.machines`), without how many GPUs were used.
    """

    run: str
    title: str
    origin: str
    created: str
    status: str
    reason: str | None
    model: str | None
    vllm_version: str | None
    flavour: str
    hardware: str | None
    tensor_parallel: int | None
    points: int
    failed_points: int
    notes: tuple[str, ...]
    step_records: int = 0
    step_record_ns: float | None = None
    machine: str = ""
    missing: str = ""
    """How much of what was asked for was measured, where that is less than all."""

    @property
    def facts(self) -> dict[str, str]:
        """Label -> value for a table of facts, only what is known."""
        pairs = {
            "Run": self.title,
            "Model": self.model,
            "Engine": self.vllm_version and f"vLLM {self.vllm_version} ({self.flavour} build)",
            "Hardware": self.hardware,
            "Tensor parallel": self.tensor_parallel and str(self.tensor_parallel),
            "Step records": self.step_record_ns
            and f"{units.show_count(self.step_records)}, {units.show_time(self.step_record_ns)} each to take",
            "Made": f"{self.created[:16].replace('T', ' ')} UTC, {self.origin} by perflab",
            "Status": self.status if not self.reason else f"{self.status}: {self.reason}",
            "Measured": self.missing,
        }
        return {label: str(value) for label, value in pairs.items() if value}


def provenance(runs: Sequence[Run]) -> list[Provenance]:
    """The facts of each run, in order."""
    return [_provenance(run) for run in runs]


def describe_hardware(hardware: Hardware) -> str | None:
    """`2 x NVIDIA H200 (139.8 GiB each), driver 580.159.04`, or the host where there is no GPU."""
    if hardware.gpus:
        first = hardware.gpus[0]
        count = f"{len(hardware.gpus)} x " if len(hardware.gpus) > 1 else ""
        size = f" ({units.gib(first.memory_bytes):.1f} GiB{' each' if count else ''})" if first.memory_bytes else ""
        driver = f", driver {hardware.driver}" if hardware.driver else ""
        return f"{count}{first.name}{size}{driver}"
    if hardware.cpu:
        cores = f", {hardware.cores} cores" if hardware.cores else ""
        size = f", {units.gib(hardware.memory_bytes):.0f} GiB" if hardware.memory_bytes else ""
        return f"{hardware.cpu}{cores}{size}, no GPU"
    return None


def _provenance(run: Run) -> Provenance:
    m = run.manifest
    parallel = m.engine.settings.get("tensor_parallel_size")
    return Provenance(
        run=run.path.name,
        title=m.title,
        origin=m.origin,
        created=m.created,
        status=m.status,
        reason=m.reason,
        model=m.engine.model,
        vllm_version=m.engine.vllm_version,
        flavour=m.engine.flavour,
        hardware=describe_hardware(m.hardware),
        tensor_parallel=int(parallel) if parallel is not None else None,
        points=len(m.points),
        failed_points=sum(point.status != "complete" for point in m.points),
        notes=tuple(m.notes),
        step_records=sum(one.records or 0 for one in m.step_records),
        step_record_ns=_mean_record_ns(m.step_records),
        machine=machine_of(m.hardware, m.engine.flavour),
        missing=_missing(m),
    )


def _missing(m: Manifest) -> str:
    """`5 of 14 points, 0 of 1 profiling passes`, of a run that did not end well; empty where it is not told."""
    measured = sum(point.status == "complete" and point.bench is not None for point in m.points)
    profiled = sum(one.status == "complete" for one in m.profiles)
    points, profiles = (m.asked.get(name) for name in ("points", "profiles"))
    if not isinstance(points, int) or not isinstance(profiles, int) or m.status == "complete":
        return ""
    told: dict[str, Any] = {"measured": measured, "points": points, "profiled": profiled, "profiles": profiles}
    return say("summary.measured" if profiles else "summary.measured_points", **told)


def _mean_record_ns(records: Sequence[StepRecords]) -> float | None:
    """What taking one record cost on the thread that serves, over all servers; None where none tells."""
    timed = [(one.records, one.mean_ns) for one in records if one.records and one.mean_ns is not None]
    count = sum(n for n, _ in timed)
    return sum(n * ns for n, ns in timed) / count if count else None
