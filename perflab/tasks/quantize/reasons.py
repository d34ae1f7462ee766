"""Why a variant is faster or slower: its steps against the baseline's, from the profiling passes of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from perflab.analysis import check as of
from perflab.analysis.check import undermined
from perflab.analysis.compare.traces import PhaseComparison, compare_phases
from perflab.analysis.quantization.tradeoffs import BASELINE, KernelPart, Position, Reasons
from perflab.knowledge.matmul_kernels import matmul_of_family
from perflab.messages import say
from perflab.read.server_log import read_server_log
from perflab.runs import Run
from perflab.tasks.breakdown import PassBreakdown, pass_breakdown
from perflab.tasks.compare import rank_traces
from perflab.tasks.own import Own
from perflab.tasks.quantize.sources import VariantRun
from perflab.tasks.traces import PassSource, alike, run_passes

_MATMULS = ("gemm", "moe")
_ABOUT = ("quantization_without_kernels",)
"""Findings that say a format did not take effect."""


def reasons_of(by_variant: Mapping[str, Sequence[VariantRun]], users: Own) -> dict[str, Reasons]:
    """Variant -> what inside its steps differs from the baseline's; of the baseline only where it stands."""
    passes = {name: _sources(runs) for name, runs in by_variant.items()}
    base = passes.get(BASELINE, [])
    read: dict[int, PassBreakdown] = {}

    def opened(source: PassSource) -> PassBreakdown:
        if id(source) not in read:
            read[id(source)] = pass_breakdown(source, users, attribution=False)
        return read[id(source)]

    found = {}
    for name, runs in by_variant.items():
        logged = logged_kernels([one.run for one in runs])
        mine = passes[name]
        if not mine:
            found[name] = Reasons(logged=logged, missing=(say("tradeoffs.missing.trace", variant=name),))
        elif name == BASELINE:
            found[name] = Reasons(positions=_positions(opened(mine[0])), logged=logged)
        elif not base:
            found[name] = Reasons(
                positions=_positions(opened(mine[0])), logged=logged,
                missing=(say("tradeoffs.missing.trace", variant=BASELINE),),
            )  # fmt: skip
        else:
            first, second = alike(base, mine)
            found[name] = _reasons(opened(first), opened(second), logged)
        if mine:
            about = tuple(one for one in opened(mine[0]).findings if one.id in _ABOUT)
            found[name] = replace(found[name], findings=about)
    return found


def logged_kernels(runs: Sequence[Run]) -> tuple[str, ...]:
    """Kernels of quantized layers as the logs name them, each once."""
    found: list[str] = []
    for run in runs:
        if run.manifest.log is not None:
            found += read_server_log(run.file(run.manifest.log)).quantization_kernels
    return tuple(dict.fromkeys(found))


def _sources(runs: Sequence[VariantRun]) -> list[PassSource]:
    """Passes of a variant, of runs with a pinned KV cache first: there the kernels alone differ."""
    ordered = sorted(runs, key=lambda one: one.kv != "pinned")
    return [source for one in ordered for source in run_passes(one.run) if source.files]


def _reasons(base: PassBreakdown, mine: PassBreakdown, logged: tuple[str, ...]) -> Reasons:
    positions = _positions(mine)
    failed = [undermined(one.checks, of.BREAKDOWN, of.PHASES) for one in (base, mine)]
    if broken := next((one for one in failed if one is not None), None):
        return Reasons(positions=positions, logged=logged, missing=(broken.detail,))
    sides = [rank_traces(one) for one in (base, mine)]
    if not all(sides) or any(side[0].kind != sides[0][0].kind for side in sides):
        return Reasons(positions=positions, logged=logged, missing=(say("tradeoffs.missing.no_activity"),))
    if not all(len(one.steps) for side in sides for one in side):
        return Reasons(positions=positions, logged=logged, missing=(say("tradeoffs.missing.no_steps"),))
    phases = compare_phases(*sides)
    return Reasons(
        steps=tuple(KernelPart(p.phase, "step", p.shown.baseline.ns, p.shown.candidate.ns) for p in phases),
        categories=tuple(part for p in phases for part in _parts(p, p.shown.categories, "category")),
        matmuls=tuple(part for p in phases for part in _matmuls(p)),
        idle_causes=tuple(part for p in phases for part in _parts(p, p.shown.causes, "cause")),
        tokens={p.phase: p.shown.candidate.tokens for p in phases if p.shown.candidate.tokens is not None},
        positions=positions,
        logged=logged,
        missing=tuple(say("tradeoffs.missing.batches", phase=p.phase) for p in phases if p.alike == "none"),
    )


def _parts(one: PhaseComparison, table: pd.DataFrame, column: str) -> list[KernelPart]:
    return [
        KernelPart(one.phase, str(row[column]), int(row["baseline_ns"]), int(row["candidate_ns"]))
        for row in table.to_dict("records")
    ]


def _matmuls(one: PhaseComparison) -> list[KernelPart]:
    """Time of matmul kernels by family, the largest change first; families whose kind is known under its name."""
    kernels = one.shown.kernels
    work = kernels[kernels["category"].isin(_MATMULS)]
    named = [_family(family) for family in work["family"]]
    sums = work.assign(family=named).groupby("family", sort=False)[["baseline_ns", "candidate_ns"]].sum()
    found = [
        KernelPart(one.phase, str(name), round(row["baseline_ns"]), round(row["candidate_ns"]))
        for name, row in sums.iterrows()
    ]
    return sorted(found, key=lambda part: -abs(part.change_ns))


def _family(family: object) -> str:
    known = matmul_of_family(family) if isinstance(family, str) else None
    if known is not None:
        return known.name
    return family if isinstance(family, str) and family else say("compare.other_family")


def _positions(passed: PassBreakdown) -> tuple[Position, ...]:
    """Of the first rank, where its roofline is known."""
    roof = next((rank.roofline for rank in passed.ranks if rank.roofline and rank.roofline.phases), None)
    if roof is None or roof.ridge is None:
        return ()
    return tuple(
        Position(phase, one.intensity, roof.ridge, one.flops_share, one.bytes_share, one.verdict.bound)
        for phase, one in roof.phases.items()
    )
