"""Checks before verdicts: of traces (`trust`) and of benchmark results (`validity`)."""

from perflab.analysis.check import Check, Status, undermined
from perflab.analysis.trust import TraceFacts, trace_checks
from perflab.analysis.validity import BenchFacts, bench_checks

__all__ = ["BenchFacts", "Check", "Status", "TraceFacts", "bench_checks", "trace_checks", "undermined"]
