"""Rules that turn what is known of a profiling pass into findings. Each is silent where its evidence is weak.

A rule is a function of `PassFacts` that returns a `Finding` or None; the tables below name the conclusions it rests on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perflab.analysis import check as of
from perflab.analysis.finding import Finding
from perflab.analysis.rules.attention import attention_share
from perflab.analysis.rules.attention_largest import attention_largest
from perflab.analysis.rules.bounds import (
    bandwidth_bound_decode,
    compute_bound_prefill,
    idle_bound,
    kernels_below_roof,
)
from perflab.analysis.rules.communication import exposed_communication
from perflab.analysis.rules.copies import copies_in_step
from perflab.analysis.rules.experts import expert_imbalance
from perflab.analysis.rules.facts import PassFacts, RankFacts
from perflab.analysis.rules.host import host_bound, outside_operators
from perflab.analysis.rules.padding import graph_padding
from perflab.analysis.rules.quantized import quantization_without_kernels

__all__ = ["CPU_RULES", "GPU_RULES", "PassFacts", "RankFacts"]

Rule: TypeAlias = Callable[[PassFacts], Finding | None]

GPU_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (host_bound, (of.BREAKDOWN, of.IDLE)),
    (exposed_communication, (of.BREAKDOWN, of.KERNELS, of.COMMUNICATION)),
    (copies_in_step, (of.BREAKDOWN, of.KERNELS)),
    (expert_imbalance, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (attention_share, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (attention_largest, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (bandwidth_bound_decode, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (compute_bound_prefill, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (kernels_below_roof, (of.BREAKDOWN, of.KERNELS, of.PHASES)),
    (idle_bound, (of.BREAKDOWN, of.PHASES, of.IDLE)),
    (graph_padding, (of.PHASES,)),
    (quantization_without_kernels, (of.BREAKDOWN, of.KERNELS)),
)
CPU_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = ((outside_operators, (of.PHASES,)),)
"""About a CPU engine only what its operators leave to Python: the other rules are about a device a host feeds."""
