"""Traces -> profiling passes: ranks that overlap in time belong together, and what was measured under them too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perflab import units
from perflab.messages import say
from perflab.runs import Profile, Run
from perflab.tasks.imports.copying import Copier
from perflab.tasks.imports.points import Result, load_of, one_length, result_file
from perflab.tasks.imports.sorting import Found, TraceFacts, date_ns

# After a benchmark under the profiler the client waits until the traces are written: seconds, and some for each MB.
_FLUSH_S, _FLUSH_S_PER_MB = 60.0, 10.0
_SECOND = units.NS_PER_S
TOOLS = ("torch", "nsys")
"""Who may have recorded; traces of two tools are never one pass."""

# The time at which torch's writer began, nanoseconds since the epoch.
_STAMP = re.compile(r"\.(\d{19})\.pt\.trace\.json")


def profiles_of(found: Found, results: Sequence[Result], copier: Copier) -> tuple[list[Profile], list[Result]]:
    """One profile a pass, and the results that were written under one: those are no measurements."""
    passes = [one for tool in TOOLS for one in passes_of([t for t in found.traces if t.tool == tool])]
    names = _names([members[0].tool for members in passes])
    profiles, profiled = [], []
    for number, (name, members) in enumerate(zip(names, passes, strict=True)):
        tool = members[0].tool
        folder = f"profile/{name}"
        under = _written_under(members, [one for one in results if one not in profiled])
        profiled += [under] if under else []
        result = under.result if under else None
        files = [copier.copy(path, folder) for path in dict.fromkeys(trace.path for trace in members)]
        profile = Profile(
            id=name,
            kind=tool,
            status="complete",
            traces=files if tool == "torch" else [],
            reports=files if tool == "nsys" else [],
            frontend_traces=[copier.copy(p, folder) for p in found.frontend if _nearest(p, passes) == number],
            tables=[copier.copy(p, folder) for p in found.tables if _beside(p, passes) == number],
            bench=result_file(under, copier, folder) if under else None,
            input_len=one_length(result.total_input_tokens, result.completed) if result else None,
            output_len=one_length(result.total_output_tokens, result.completed) if result else None,
        )
        profiles.append(msgspec.structs.replace(profile, load=load_of(result)) if result else profile)
    return profiles, profiled


def _names(tools: Sequence[str]) -> list[str]:
    """`torch`, or with numbers where there are several of a kind."""
    return [
        tool if tools.count(tool) == 1 else f"{tool}-{tools[:number].count(tool)}" for number, tool in enumerate(tools)
    ]


def without_pass(found: Found) -> list[tuple[Path, str]]:
    """Front-end traces and tables that go with no worker's trace, with the reason."""
    if found.traces:
        return []
    return [(p, say("import.frontend_alone")) for p in found.frontend] + [
        (p, say("import.table_alone")) for p in found.tables
    ]


def copied_profile(run: Run, profile: Profile, copier: Copier, taken: set[str]) -> Profile:
    """A profiling pass of a run directory with its files."""
    name = next(n for i in range(1, 10**6) if (n := profile.id if i == 1 else f"{profile.id}-{i}") not in taken)
    taken.add(name)
    folder = f"profile/{name}"
    return msgspec.structs.replace(
        profile,
        id=name,
        traces=[copier.copy(run.file(file), folder) for file in profile.traces],
        frontend_traces=[copier.copy(run.file(file), folder) for file in profile.frontend_traces],
        reports=[copier.copy(run.file(file), folder) for file in profile.reports],
        tables=[copier.copy(run.file(file), folder) for file in profile.tables],
        bench=None if profile.bench is None else copier.copy(run.file(profile.bench), folder),
    )


def passes_of(traces: Sequence[TraceFacts]) -> list[list[TraceFacts]]:
    """Traces grouped by overlapping time: the ranks of one profiling pass, in the order of ranks."""
    passes: list[list[TraceFacts]] = []
    end = None
    for trace in sorted(traces, key=lambda trace: trace.start):
        if end is None or trace.start > end or any(trace.rank == other.rank for other in passes[-1]):
            passes.append([])
            end = trace.end
        passes[-1].append(trace)
        end = max(end, trace.end)
    return [sorted(members, key=lambda trace: trace.rank) for members in passes]


def _nearest(path: Path, passes: Sequence[Sequence[TraceFacts]]) -> int:
    """The pass a front-end trace belongs to: it holds no time of its own, but torch writes one into its name."""
    stamp = _STAMP.search(path.name)
    if stamp is None:
        return _beside(path, passes)
    ends = [max(trace.end for trace in members) for members in passes]
    return min(range(len(passes)), key=lambda number: abs(ends[number] - int(stamp[1])))


def _beside(path: Path, passes: Sequence[Sequence[TraceFacts]]) -> int:
    """The pass with a trace in the same folder and the most alike name; the first where nothing tells."""

    def likeness(number: int) -> tuple[bool, int]:
        same = [trace.path for trace in passes[number] if trace.path.parent == path.parent]
        return bool(same), max((_shared_start(p.name, path.name) for p in same), default=0)

    return max(range(len(passes)), key=lambda number: (*likeness(number), -number))


def _shared_start(one: str, other: str) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def _written_under(members: Sequence[TraceFacts], results: Sequence[Result]) -> Result | None:
    """The result written first after the traces end, if its benchmark ran while they were recorded.

    vLLM's client writes `date`, the local time in whole seconds, after the profiler was stopped. The clocks of client
    and server are taken as one, and local time as UTC; where that is wrong nothing matches: it stays a point.
    """
    start = min(trace.start for trace in members)
    end = max(trace.end for trace in members)
    dated = [(date, one) for one in results if (date := date_ns(one.result)) is not None and date >= end - _SECOND]
    if not dated:
        return None
    # Of two results of one second the shorter benchmark is the later one.
    date, one = min(dated, key=lambda found: (found[0], found[1].result.duration_s or 0.0))
    size = sum(trace.path.stat().st_size for trace in members) / 1e6
    flush = units.ns_from_seconds(_FLUSH_S + _FLUSH_S_PER_MB * size)
    began = date - units.ns_from_seconds(one.result.duration_s or 0.0) - flush
    return one if began <= start else None
