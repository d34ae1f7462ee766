"""How a server is started for the passes that are to run on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflab.capture.nsys import NSYS_ENVIRONMENT, nsys_argv
from perflab.experiment.commands import profiler_config, without_graphs
from perflab.experiment.plan import PlannedProfile
from perflab.experiment.spec import Experiment


@dataclass(frozen=True)
class Launch:
    """What differs from serving the experiment as it is.

    `measured` says whether the server runs as it is measured, `under` is the program that starts it.
    """

    experiment: Experiment
    profiler: Mapping[str, Any] | None = None
    under: tuple[str, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    measured: bool = True


def launch_for(
    experiment: Experiment, profiles: Sequence[PlannedProfile], incoming: Path | None, programs: Mapping[str, str]
) -> Launch:
    """The start of a server for a group of passes (see `plan.profile_groups`); `programs` are where they lie."""
    if not profiles or incoming is None:
        return Launch(experiment)
    spec = profiles[0].spec
    config = profiler_config(spec, str(incoming))
    if spec.kind == "nsys":
        under = tuple(nsys_argv(programs["nsys"], incoming / spec.id))
        return Launch(experiment, config, under, NSYS_ENVIRONMENT, measured=False)
    if spec.teacher:
        return Launch(without_graphs(experiment), config, measured=False)
    return Launch(experiment, config)
