"""The experiment file: what to run, as the user writes it, checked before anything starts."""

from perflab.experiment.plan import Plan, PlannedPoint, PlannedProfile, plan
from perflab.experiment.read import read_experiment
from perflab.experiment.spec import Experiment, Load, ProfilePass, Workload

__all__ = [
    "Experiment",
    "Load",
    "Plan",
    "PlannedPoint",
    "PlannedProfile",
    "ProfilePass",
    "Workload",
    "plan",
    "read_experiment",
]
