"""What bounds a step, as `perflab breakdown` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from perflab import units
from perflab.analysis.roofline.bound import KernelRoof
from perflab.analysis.roofline.phases import PhaseRoofline, RankRoofline
from perflab.messages import say
from perflab.tasks.breakdown import PassBreakdown
from perflab.terminal.text import table, wrapped

_PHASES = ("decode", "mixed", "prefill")
_PARTS = {"gemm": "matmuls", "moe": "experts", "attention": "attention"}
_HEAD = ("", "", "largest kernels", "step ms", "at least", "bandwidth", "compute")


def rooflines(one: PassBreakdown) -> str:
    """For each phase the time of a step, the least time for its work, shares of the GPU's peaks, and the verdict.

    Figures are of the first rank; the verdict is that of all ranks. Where something is missing, what, and how to
    give it.
    """
    found = [rank.roofline for rank in sorted(one.ranks, key=lambda rank: rank.rank) if rank.roofline is not None]
    if not found:
        return ""
    first = found[0]
    title = "What bounds a step?"
    if not first.phases or first.peaks is None or first.gpu is None:
        return "\n".join([title, *(wrapped(text, "  ") for text in first.missing)])
    peaks = first.peaks
    title += (
        f" {first.gpu.name}: {peaks.dtype.upper()} {peaks.linear / 1e12:,.0f} TFLOP/s, {peaks.memory / 1e12:g} TB/s"
        + (f"; rank {first.rank}" if len(found) > 1 else "")
    )
    phases = [name for name in _PHASES if name in first.phases]
    rows = [[name, *_row(first.phases[name], found)] for name in phases]
    notes = dict.fromkeys(text for name in phases for text in (*first.phases[name].withheld, *first.phases[name].notes))
    return "\n".join(
        [title, table(_HEAD, rows, left=3), *_memory(first, phases), *(wrapped(text, "  ") for text in notes)]
    )


def _row(phase: PhaseRoofline, ranks: Sequence[RankRoofline]) -> list[str]:
    return [
        _verdict(phase.phase, ranks),
        _kernels(phase),
        f"{units.ms(phase.step_ns):,.2f}",
        f"{units.ms(phase.limit_ns):,.2f}",
        units.show_share(phase.bytes_share),
        units.show_share(phase.flops_share),
    ]


def _kernels(phase: PhaseRoofline) -> str:
    known = [k for k in phase.kernels.values() if k.category in _PARTS and k.flops is not None]
    if not known:
        return "-"
    main: KernelRoof = max(known, key=lambda k: k.time_ns)
    share, peak = max((main.bytes_share or 0.0, "bandwidth"), (main.flops_share or 0.0, "compute"))
    return f"{_PARTS[main.category]} at {units.show_share(share)} of {peak}"


def _verdict(phase: str, ranks: Sequence[RankRoofline]) -> str:
    bounds = {rank.phases[phase].verdict.bound for rank in ranks if phase in rank.phases}
    if len(bounds) > 1:
        return say("roofline.bound.ranks")
    return say(f"roofline.bound.{bounds.pop() or 'open'}")


def _memory(rank: RankRoofline, phases: Sequence[str]) -> list[str]:
    """Memory's bandwidth as a share of busy time, for the first of the phases shown."""
    view = rank.phases[phases[0]].memory
    text = say(
        "roofline.memory",
        phase=phases[0],
        kernels=units.show_share(view.bandwidth_bound),
        writes=units.show_share(view.kv_writes),
        copies=units.show_share(view.copies),
    )
    return [wrapped(text, "  ")]
