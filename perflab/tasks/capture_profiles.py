"""Which passes of a plan can be made here, and the kernels that deserve a closer look."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perflab.analysis.kernels import categorize, name_totals
from perflab.capture.machine import nsys, program
from perflab.capture.ncu import bare_name
from perflab.capture.nsys import absent, how
from perflab.capture.probe import Probe
from perflab.errors import InputError
from perflab.experiment import PlannedProfile
from perflab.experiment.spec import ProfilePass
from perflab.messages import say
from perflab.read.kineto import read_kineto
from perflab.runs import Profile, Run


def skipped(record: Profile, reason: str) -> Profile:
    """`record`, skipped for that reason."""
    return msgspec.structs.replace(record, status="skipped", reason=reason)


def tools(profiles: Sequence[PlannedProfile], engine: Probe) -> tuple[dict[str, str], dict[str, str]]:
    """Where the tools lie that passes need, by kind, and why a kind cannot be used, by kind."""
    found: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for kind in sorted({one.spec.kind for one in profiles} - {"torch"}):
        if engine.flavour == "cpu":
            reasons[kind] = say("profilers.needs_gpu", kind=kind)
            continue
        tool = nsys() if kind == "nsys" else program(kind, "--version")
        if tool is None:
            reasons[kind] = absent(kind)
        elif tool.problem is not None:
            reasons[kind] = say("profilers.does_not_run", path=tool.path, why=tool.problem, how=how(kind))
        else:
            found[kind] = tool.path
    return found, reasons


def top_kernels(run: Run, spec: ProfilePass) -> list[str]:
    """Bare names of the kernels that took longest in the torch pass that an ncu pass names, longest first.

    Copies are no kernels, and collectives cannot be run again on one rank alone.

    Raises
    ------
    InputError
        When that pass left no trace with device kernels.
    """
    source = next((one for one in run.manifest.profiles if one.id == spec.of and one.traces), None)
    if source is None:
        raise InputError(say("profilers.no_kernels", id=spec.of))
    totals = name_totals(categorize(read_kineto(run.file(source.traces[0])).kernels))
    totals = totals[(totals["kind"] == "kernel") & (totals["category"] != "communication")]
    names = [name for name in map(bare_name, totals["name"].astype(str)) if name]
    if not names:
        raise InputError(say("profilers.no_kernels", id=source.id))
    return list(dict.fromkeys(names))[: spec.kernels]
