"""What the command line prints: plain text from the tasks' results, one module a command.

`text` holds what they share. A block of its own (collectives, roofline, attribution) is a function that takes the
task's record and returns text, or an empty string where there is nothing to say; the command's module joins blocks.
"""

from perflab.terminal.breakdowns import breakdown
from perflab.terminal.comparisons import compare
from perflab.terminal.histories import history
from perflab.terminal.latencies import latency
from perflab.terminal.machine import doctor
from perflab.terminal.quantizing import (
    quantize_check,
    quantize_made,
    quantize_merged,
    quantize_outcome,
    quantize_plan,
)
from perflab.terminal.runs import ProgressPrinter, plan, run_outcome
from perflab.terminal.slow_requests import slow_requests
from perflab.terminal.text import table
from perflab.terminal.tradeoffs import tradeoffs

__all__ = [
    "ProgressPrinter",
    "breakdown",
    "compare",
    "doctor",
    "history",
    "latency",
    "plan",
    "quantize_check",
    "quantize_made",
    "quantize_merged",
    "quantize_outcome",
    "quantize_plan",
    "run_outcome",
    "slow_requests",
    "table",
    "tradeoffs",
]
