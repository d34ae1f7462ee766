"""What ranks do with one another, and runs beside one another: notebook 04 (see `perflab.report.views`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding
from perflab.analysis.ranks.communication import Communication
from perflab.analysis.ranks.expert_balance import expert_balance
from perflab.messages import say
from perflab.read.files import read_text
from perflab.report import comparing
from perflab.report.views import Pieces, pass_names
from perflab.runs import Run
from perflab.tasks.breakdown import BreakdownReport, PassBreakdown
from perflab.tasks.compare import CompareReport, compare

_RANK_FINDINGS = ("exposed_communication", "expert_imbalance")
_PHASES = ("decode", "mixed", "prefill")
_SHAPE = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "num_experts")


def waiting_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_waiting`: the collectives of each run with several ranks."""
    return [{"collectives": talk.table, "of": name} for _, talk, name in _talking(report)]


def size_pieces(report: BreakdownReport) -> Pieces:
    """For `plot_message_sizes`: time against size, each run with collectives."""
    return [{"sizes": talk.sizes, "link": talk.link, "of": name} for _, talk, name in _talking(report)]


def arrival_pieces(report: BreakdownReport, phase: str = "decode") -> Pieces:
    """For `plot_arrivals`: who waits, collective by collective, in one phase of each run with several ranks."""
    return [
        {"collectives": talk.table, "phase": phase, "straggler": talk.straggler(phase), "of": name}
        for _, talk, name in _talking(report)
        if (talk.table["phase"].astype(str) == phase).any()
    ]


def size_table(report: BreakdownReport) -> pd.DataFrame:
    """A row a run, op, phase and size: count, time each, and bus bandwidth against the link."""
    tables = [
        pd.DataFrame(
            {
                "run": name,
                "op": talk.sizes["op"].astype(str).str.replace("_", "-"),
                "by": talk.sizes["by"].astype(str),
                "phase": talk.sizes["phase"].astype(str),
                "message": [_size(row.bytes, str(row.bytes_source)) for row in talk.sizes.itertuples()],
                "count": talk.sizes["count"],
                "time_each_ns": talk.sizes["transfer_ns"],
                "bus GB/s": talk.sizes["bus_bandwidth"].astype("float64") / 1e9,
                "of the link share": talk.sizes["of_peak"],
                "bound by": talk.sizes["bound"],
            }
        )
        for _, talk, name in _talking(report)
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _size(size: Any, source: str) -> str | None:
    """`64.0 KiB`, with a tilde where it is inferred; None where it is not known."""
    if pd.isna(size):
        return None
    return f"{'~' if source == 'inferred' else ''}{units.show_bytes(float(size))}"


def communication_sentences(report: BreakdownReport) -> str:
    """What a decode step's collectives transfer and who waits, then how near to the link's peak large ones come."""
    lines = []
    for one, talk, name in _talking(report):
        lines += [*_waiting(one, talk, name), *_against_link(talk, name)]
    return "\n".join(f"- {line}" for line in lines) or say("notebook.multi_gpu.one_rank")


def waiting_share(report: BreakdownReport, run: str, phase: str) -> float | None:
    """How much of a run's time in collectives its ranks wait for one another; None where that is not known."""
    for _, talk, name in _talking(report):
        totals = talk.totals()
        of = totals[totals["phase"].astype(str) == phase]
        whole = float(of["transfer_ns"].sum() + of["wait_ns"].sum())
        if name == run and whole:
            return float(of["wait_ns"].sum()) / whole
    return None


def _waiting(one: PassBreakdown, talk: Communication, name: str) -> list[str]:
    totals = talk.totals()
    for phase in _PHASES:
        of = totals[totals["phase"] == phase]
        steps = min(rank.record["phases"][phase]["steps"] for rank in one.ranks if rank.window_ns)
        if of.empty or not steps:
            continue
        waits = [
            say("notebook.multi_gpu.rank", rank=int(row.rank), time=units.show_time(row.wait_ns / steps))
            for row in of.itertuples()
        ]
        transfer = units.show_time(float(of["transfer_ns"].mean()) / steps)
        told = {"run": name, "phase": phase, "transfer": transfer, "waits": ", ".join(waits), "n": steps}
        return [say("notebook.multi_gpu.waiting", **told)]
    return []


def _against_link(talk: Communication, name: str) -> list[str]:
    known = talk.sizes[talk.sizes["of_peak"].notna()].sort_values("bytes")
    if known.empty or talk.link is None:
        return []
    top = known.iloc[-1]
    fields = {
        "run": name,
        "size": units.show_bytes(float(top["bytes"])),
        "bandwidth": f"{top['bus_bandwidth'] / 1e9:.0f}",
        "share": units.show_share(float(top["of_peak"])),
        "link": talk.link.kind,
        "peak": f"{talk.link.among(int(top['ranks'])) / 1e9:.0f}",
    }
    return [say("notebook.multi_gpu.link" if top["of_peak"] <= 1 else "notebook.multi_gpu.too_fast", **fields)]


def _talking(report: BreakdownReport) -> list[tuple[PassBreakdown, Communication, str]]:
    named = zip(report.passes, pass_names(report), strict=True)
    talks = [(one, one.communication, name) for one, name in named]
    return [(one, talk, name) for one, talk, name in talks if talk is not None and len(talk.matched)]


def expert_table(report: BreakdownReport) -> pd.DataFrame:
    """Time of the experts' kernels by rank, for runs with expert parallelism; `routers` says where they are random."""
    rows = []
    for one, name in zip(report.passes, pass_names(report), strict=True):
        balance = expert_balance([rank.record for rank in one.ranks if rank.window_ns], one.source.engine.settings)
        for phase, of in balance.items():
            known = say("notebook.multi_gpu.random" if of.random_routers else "notebook.multi_gpu.model")
            times = {f"rank {rank}_ns": ns for rank, ns in sorted(of.step_ns.items())}
            rows.append(
                {
                    "run": name,
                    "phase": phase,
                    "steps": of.steps,
                    **times,
                    "imbalance share": of.imbalance,
                    "routers": known,
                }
            )
    return pd.DataFrame(rows)


def rank_findings(report: BreakdownReport) -> list[Finding]:
    """The findings about what ranks do with one another; notebook 03 has the others."""
    return [finding for finding in report.findings if finding.id in _RANK_FINDINGS]


def comparisons(runs: Sequence[Run]) -> list[CompareReport]:
    """Each run against the one before it of the same model shape, in the order given."""
    found: list[CompareReport] = []
    last: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        shape = shape_of(run)
        if shape and shape in last:
            found.append(compare(last[shape].path, run.path))
        last[shape] = run
    return found


def shape_of(run: Run) -> tuple[Any, ...]:
    """What makes two models the same to a GPU; empty where the run keeps no config."""
    name = run.manifest.model_config
    config = json.loads(read_text(run.file(name))[0]) if name else {}
    return tuple(config.get(key) for key in _SHAPE) if config else ()


def change_pieces(found: Sequence[CompareReport]) -> Pieces:
    """For `plot_step_changes`: from one run's step to the other's, by category."""
    return [piece for one in found for piece in comparing.change_pieces(one)]


def kernel_change_pieces(found: Sequence[CompareReport], phase: str = "decode") -> Pieces:
    """For `plot_kernel_changes`: the kernels behind that, of one phase."""
    return [piece for one in found for piece in comparing.kernel_change_pieces(one, phase)]


def change_sentences(found: Sequence[CompareReport]) -> str:
    """A line a comparison and phase: by how much a step changed, and where."""
    lines = [
        say("notebook.multi_gpu.change", baseline=one.baseline.name, candidate=one.candidate.name, told=finding.title)
        for one in found
        for finding in one.findings
    ]
    return "\n".join(f"- {line}" for line in lines)


def difference_table(found: Sequence[CompareReport]) -> pd.DataFrame:
    """What differs between the runs of each comparison beyond their times, and what follows from it left out."""
    tables = []
    for one in found:
        table = comparing.difference_table(one)
        own = table[table["follows from"].isna()].drop(columns=["follows from", "expected"])
        between = f"{one.baseline.name} → {one.candidate.name}"
        tables.append(own.assign(between=between)[["between", "setting", "baseline", "candidate"]])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
