"""Can a trace be trusted? Checks over the traces of all ranks of one profiling pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.analysis.intervals import Ints, as_ints, union_length
from perflab.analysis.kernels import graph_share, launch_times, name_totals
from perflab.analysis.recording import Recording, recording_checks
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say

# Calls that put work on the device. A host function runs on the host.
_LAUNCHES = re.compile(r"Launch(?!HostFunc)|Memcpy|Memset|hipExtModuleLaunch", re.IGNORECASE)


@dataclass(frozen=True)
class TraceFacts:
    """What the checks need of one rank's trace.

    Attributes
    ----------
    kernels
        Table `kernels` with categories; a CPU engine's operators have kind `cpu_op`.
    table
        Table `breakdown`, with `kind`.
    rank_source
        `trace`, `file_name`, `given`, or `assumed` where nothing told the rank.
    notes
        What the reader of the file had to say.
    is_frontend
        The API process's trace, which holds no engine; such traces are not checked.
    recording
        Of a file that holds several processes, what it says of the recording.
    """

    rank: int
    world_size: int | None
    truncated: bool
    has_gpu: bool
    unreadable: int
    kernels: pd.DataFrame
    launches: pd.DataFrame
    steps: pd.DataFrame
    table: pd.DataFrame
    rank_source: str = "trace"
    notes: tuple[str, ...] = ()
    with_stack: bool = False
    is_frontend: bool = False
    recording: Recording | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether this is a CPU engine's trace: operators, and not one call to a GPU."""
        return not self.has_gpu and not _device_calls(self.launches).any() and bool(len(self.kernels))

    @property
    def device_work(self) -> pd.DataFrame:
        """Kernels, copies and sets."""
        return self.kernels[self.kernels["kind"] != "cpu_op"]


def trace_checks(traces: Sequence[TraceFacts], *, run: str = "", thresholds: Thresholds | None = None) -> list[Check]:
    """Every check of the traces of one profiling pass, in reading order.

    Parameters
    ----------
    traces
        One a rank.
    run
        Goes into `source`.
    thresholds
        Perflab's own unless given.
    """
    limits = own_thresholds() if thresholds is None else thresholds
    engines = [trace for trace in traces if not trace.is_frontend]
    found = [
        _complete(engines),
        _gpu_events(engines),
        _ranks(engines),
        _steps(engines),
        _launches_matched(engines, limits),
        _clocks(engines, limits),
        _other(engines, limits),
        _graphs(engines),
        _overlaps(engines, limits),
        _stacks(engines),
        *_recordings(engines),
    ]
    return [Check(c.check, c.status, c.detail, c.undermines, run) for c in found]


def _complete(traces: Sequence[TraceFacts]) -> Check:
    cut = [trace.rank for trace in traces if trace.truncated]
    unreadable = sum(trace.unreadable for trace in traces)
    if not cut and not unreadable:
        return Check("trace_complete", "pass", say("trust.trace_complete.pass", n=len(traces)))
    notes = " ".join(dict.fromkeys(note for trace in traces for note in trace.notes))
    detail = say("trust.trace_complete.warn", cut=len(cut), n=len(traces), unreadable=unreadable, notes=notes)
    return Check("trace_complete", "warn", detail, (of.BREAKDOWN,))


def _gpu_events(traces: Sequence[TraceFacts]) -> Check:
    if traces and all(trace.is_cpu for trace in traces):
        return Check("gpu_events", "not_applicable", say("trust.gpu_events.cpu"))
    without = [trace for trace in traces if not trace.has_gpu]
    if traces and not without:
        count = sum(len(trace.device_work) for trace in traces)
        return Check("gpu_events", "pass", say("trust.gpu_events.pass", n=units.show_count(count)))
    calls = sum(int(_device_calls(trace.launches).sum()) for trace in without)
    detail = say("trust.gpu_events.fail", ranks=_names(without), calls=units.show_count(calls))
    return Check("gpu_events", "fail", detail, (of.BREAKDOWN, of.PHASES, of.IDLE, of.COMMUNICATION))


def _ranks(traces: Sequence[TraceFacts]) -> Check:
    undermines = (of.COMMUNICATION,)
    twice = sorted(rank for rank, times in Counter(trace.rank for trace in traces).items() if times > 1)
    if twice:
        detail = say("trust.ranks_present.twice", ranks=", ".join(map(str, twice)))
        return Check("ranks_present", "fail", detail, (of.BREAKDOWN, *undermines))
    world = max((trace.world_size for trace in traces if trace.world_size is not None), default=None)
    present = len({trace.rank for trace in traces})
    if world is None and present > 1 and (told := [note for t in traces if t.recording for note in t.notes]):
        guessed = any(trace.rank_source == "assumed" for trace in traces)
        return Check("ranks_present", "warn" if guessed else "pass", told[0], undermines)
    if world is None:
        return Check("ranks_present", "not_applicable", say("trust.ranks_present.unknown", present=present))
    if present < world:
        return Check("ranks_present", "warn", say("trust.ranks_present.warn", present=present, world=world), undermines)
    if any(trace.rank_source == "assumed" for trace in traces) and world > 1:
        return Check("ranks_present", "warn", say("trust.ranks_present.assumed"), undermines)
    return Check("ranks_present", "pass", say("trust.ranks_present.pass", present=present, world=world))


def _steps(traces: Sequence[TraceFacts]) -> Check:
    counts = [len(trace.steps) for trace in traces]
    if not counts or min(counts) == 0:
        without = _names([trace for trace in traces if trace.steps.empty])
        return Check("steps_found", "warn", say("trust.steps_found.none", ranks=without), (of.PHASES,))
    bounded = {str(by) for trace in traces if "bounded_by" in trace.steps for by in trace.steps["bounded_by"]}
    steps = max(counts)
    if len(set(counts)) > 1:
        detail = say("trust.steps_found.differ", least=min(counts), most=steps)
        return Check("steps_found", "warn", detail, (of.COMMUNICATION,))
    if "host" in bounded:
        return Check("steps_found", "pass", say("trust.steps_found.host", n=steps))
    if "launches" in bounded:
        return Check("steps_found", "pass", say("trust.steps_found.launches", n=steps))
    return Check("steps_found", "pass", say("trust.steps_found.pass", n=steps))


def _launches_matched(traces: Sequence[TraceFacts], limits: Thresholds) -> Check:
    with_gpu = [trace for trace in traces if trace.has_gpu]
    if not with_gpu:
        return Check("launches_matched", "not_applicable", say("trust.no_device_work"))
    calls = orphans = activities = unlaunched = 0
    for trace in with_gpu:
        work = trace.device_work
        asking = trace.launches.loc[_device_calls(trace.launches), "correlation_id"]
        calls += len(asking)
        orphans += int((~asking.isin(work["correlation_id"])).sum())
        activities += len(work)
        unlaunched += int((launch_times(work, trace.launches)[0] < 0).sum())
    share = max(orphans / calls if calls else 1.0, unlaunched / activities)
    fields = {
        "orphans": units.show_count(orphans),
        "calls": units.show_count(calls),
        "unlaunched": units.show_count(unlaunched),
        "activities": units.show_count(activities),
    }
    if share <= limits.limit("unmatched_launches", "warn"):
        return Check("launches_matched", "pass", say("trust.launches_matched.pass", **fields))
    detail = say("trust.launches_matched.warn", **fields)
    if share <= limits.limit("unmatched_launches", "fail"):
        return Check("launches_matched", "warn", detail, (of.IDLE,))
    # Work without calls still adds up; calls without work mean that device time is missing.
    lost = bool(calls) and orphans / calls > limits.limit("unmatched_launches", "fail")
    return Check("launches_matched", "fail", detail, (of.IDLE, of.BREAKDOWN) if lost else (of.IDLE,))


def _clocks(traces: Sequence[TraceFacts], limits: Thresholds) -> Check:
    late = linked = 0
    worst = 0
    for trace in traces:
        work = trace.device_work
        launched, _ = launch_times(work, trace.launches)
        ahead = launched - work["start_ns"].to_numpy(np.int64)
        known = launched >= 0
        linked += int(known.sum())
        late += int((ahead[known] > 0).sum())
        worst = max(worst, int(ahead[known].max(initial=0)))
    if not linked:
        return Check("clocks_agree", "not_applicable", say("trust.no_device_work"))
    if late / linked <= limits.limit("late_launches", "warn"):
        return Check("clocks_agree", "pass", say("trust.clocks_agree.pass", n=units.show_count(linked), late=late))
    failed = late / linked > limits.limit("late_launches", "fail")
    detail = say(
        "trust.clocks_agree.warn", late=units.show_count(late), n=units.show_count(linked), worst=units.show_time(worst)
    )
    return Check("clocks_agree", "fail" if failed else "warn", detail, (of.IDLE,))


def _other(traces: Sequence[TraceFacts], limits: Thresholds) -> Check:
    tables = [trace.table for trace in traces if len(trace.table)]
    if not tables:
        return Check("unknown_kernels", "not_applicable", say("trust.no_activity"))
    table = pd.concat(tables)
    busy = int(table.loc[table["category"] != "idle", "exclusive_ns"].sum())
    other = int(table.loc[table["category"] == "other", "exclusive_ns"].sum())
    share = other / busy if busy else 0.0
    if share <= limits.limit("other_share", "warn"):
        return Check("unknown_kernels", "pass", say("trust.unknown_kernels.pass", share=units.show_share(share)))
    names = name_totals(pd.concat([trace.kernels for trace in traces]), "other")["name"].head(3)
    shown = ", ".join(f"`{str(name)[:80]}`" for name in names)
    failed = share > limits.limit("other_share", "fail")
    detail = say("trust.unknown_kernels.warn", share=units.show_share(share), names=shown)
    return Check("unknown_kernels", "fail" if failed else "warn", detail, (of.BREAKDOWN,))


def _graphs(traces: Sequence[TraceFacts]) -> Check:
    shares = [share for trace in traces for share in graph_share(trace.device_work)]
    total, inside = sum(s.dur_ns for s in shares), sum(s.in_graphs_ns for s in shares)
    if not inside:
        return Check("graph_replays", "not_applicable", say("trust.graph_replays.none"))
    detail = say(
        "trust.graph_replays.pass",
        share=units.show_share(inside / total),
        replays=sum(s.replays for s in shares),
        largest=max(s.largest_replay for s in shares),
    )
    return Check("graph_replays", "pass", detail)


def _overlaps(traces: Sequence[TraceFacts], limits: Thresholds) -> Check:
    busy = doubled = long = 0
    shortest = limits.limit("stream_overlap", "launch_us") * units.NS_PER_US
    for trace in traces:
        work = trace.device_work
        for _, stream in work.groupby(["device", "stream"]):
            start = stream["start_ns"].to_numpy(np.int64)
            duration = stream["dur_ns"].to_numpy(np.int64)
            covered = union_length(start, start + duration)
            busy += covered
            doubled += int(duration.sum()) - covered
            beside = _beside_earlier(start, start + duration)
            long += int(beside[beside > shortest].sum())
    if not busy:
        return Check("stream_overlap", "not_applicable", say("trust.no_device_work"))
    share = units.show_share(doubled / busy)
    if long / busy <= limits.limit("stream_overlap", "warn"):
        return Check("stream_overlap", "pass", say("trust.stream_overlap.pass", share=share))
    return Check("stream_overlap", "warn", say("trust.stream_overlap.warn", share=share), (of.BREAKDOWN,))


def _beside_earlier(start: Ints, end: Ints) -> Ints:
    """For each activity, how long it ran beside one that had started before it."""
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])[:-1]
    return as_ints(np.maximum(np.minimum(reach, end[order][1:]) - start[order][1:], 0))


def _stacks(traces: Sequence[TraceFacts]) -> Check:
    if any(trace.with_stack for trace in traces):
        return Check("profiler_overhead", "warn", say("trust.profiler_overhead.warn"), (of.IDLE,))
    return Check("profiler_overhead", "pass", say("trust.profiler_overhead.pass"))


def _recordings(traces: Sequence[TraceFacts]) -> list[Check]:
    """Of recordings that hold several ranks, each once."""
    recordings = list({id(trace.recording): trace.recording for trace in traces if trace.recording}.values())
    if not recordings:
        return []
    tables = [trace.table[["category", "exclusive_ns"]] for trace in traces]
    by = pd.concat(tables).groupby("category", observed=True)["exclusive_ns"].sum()
    busy = int(by.drop("idle", errors="ignore").sum())
    return recording_checks(recordings, int(by.get("graph_opaque", 0)), busy)


def calls_device(launches: pd.DataFrame) -> bool:
    """Whether the host called for device work at all (table `launches`)."""
    return bool(_device_calls(launches).any())


def _device_calls(launches: pd.DataFrame) -> pd.Series:
    names = launches["api_name"].astype("category")
    asking = [name for name in names.cat.categories if _LAUNCHES.search(str(name))]
    return names.isin(asking)


def _names(traces: Sequence[TraceFacts]) -> str:
    return ", ".join(str(trace.rank) for trace in traces) or "-"
