"""Can a benchmark result be believed? Checks of one measured point, each with its evidence and what it undermines."""

from perflab.analysis.validity.bench import bench_checks
from perflab.analysis.validity.facts import BenchFacts, MachineView
from perflab.analysis.validity.load import in_flight
from perflab.analysis.validity.machine import machine_view

__all__ = ["BenchFacts", "MachineView", "bench_checks", "in_flight", "machine_view"]
