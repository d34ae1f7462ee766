"""What a profiler of whole machines (Nsight Systems) says of its recording, and the checks that follow.

Such a recording holds several processes. What goes wrong with vLLM is that only some of them were followed, that CUDA
graphs were recorded as one block each, or that the recorder itself reported loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check
from perflab.knowledge.thresholds import threshold
from perflab.messages import say

# An engine may well do without copies or sets between its kernels, and a breakdown without the GPU's name.
_MAY_LACK = frozenset(("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "TARGET_INFO_GPU"))

Evidence = Literal["calls", "names", "alike"]


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes
    ----------
    tool
        Who recorded, with version.
    processes, with_work
        How many processes should have device work, and how many do.
    evidence
        What says that they should: `calls` to the device, `names` of vLLM's workers, or only that they bear the same
        name as the one that has (`alike`), which helpers may do as well.
    missing
        Tables that are not in the file.
    opaque_launches
        CUDA graph launches that were recorded as one block.
    messages
        The recorder's own warnings and errors. `lost`: one of them says that events are missing.
    """

    tool: str
    processes: int
    with_work: int
    evidence: Evidence = "calls"
    missing: tuple[str, ...] = ()
    opaque_launches: int = 0
    messages: tuple[str, ...] = ()
    lost: bool = False


def recording_checks(recordings: Sequence[Recording], opaque_ns: int, busy_ns: int) -> list[Check]:
    """Checks of the recordings that traces come from; none where there is none.

    Parameters
    ----------
    opaque_ns, busy_ns
        Exclusive time of category `graph_opaque`, and all busy time, of the ranks.
    """
    if not recordings:
        return []
    return [
        _processes(recordings),
        _tables(recordings),
        _opaque(recordings, opaque_ns, busy_ns),
        _messages(recordings),
    ]


def _processes(recordings: Sequence[Recording]) -> Check:
    name = "processes_recorded"
    partly = [one for one in recordings if one.with_work < one.processes]
    if not partly:
        count = sum(one.with_work for one in recordings)
        return Check(name, "pass", say("nsys.processes.pass", n=count))
    one = partly[0]
    detail = say(f"nsys.processes.{one.evidence}", some=one.with_work, all=one.processes)
    detail += " " + say("nsys.processes.advice")
    # A helper of the same name is no lost worker, and one worker needs no other: then only the doubt is said.
    return Check(name, "warn" if one.evidence == "alike" else "fail", detail, (of.COMMUNICATION,))


def _tables(recordings: Sequence[Recording]) -> Check:
    name = "recorded_tables"
    missing = list(dict.fromkeys(table for one in recordings for table in one.missing))
    if not missing:
        return Check(name, "pass", say("nsys.tables.pass"))
    costs = " ".join(say(f"nsys.missing.{table}", table=table) for table in missing)
    detail = say("nsys.tables.warn", costs=costs)
    if "CUPTI_ACTIVITY_KIND_KERNEL" in missing:
        return Check(name, "fail", detail, (of.BREAKDOWN, of.IDLE, of.COMMUNICATION))
    if set(missing) <= _MAY_LACK:
        return Check(name, "pass", detail)
    return Check(name, "warn", detail, (of.PHASES, of.IDLE))


def _opaque(recordings: Sequence[Recording], opaque_ns: int, busy_ns: int) -> Check:
    name = "graphs_opened"
    launches = sum(one.opaque_launches for one in recordings)
    if not launches:
        return Check(name, "pass", say("nsys.graphs.pass"))
    share = opaque_ns / busy_ns if busy_ns else 0.0
    detail = say("nsys.graphs.warn", n=units.show_count(launches), share=units.show_share(share))
    failed = share > threshold("other_share", "fail")
    return Check(name, "fail" if failed else "warn", detail, (of.KERNELS, of.COMMUNICATION))


def _messages(recordings: Sequence[Recording]) -> Check:
    name = "recorder_messages"
    said = list(dict.fromkeys(text for one in recordings for text in one.messages))
    if not said:
        return Check(name, "pass", say("nsys.messages.pass"))
    key = "lost" if any(one.lost for one in recordings) else "warn"
    shown = " ".join(f"“{text}”" for text in said[:3])
    return Check(name, "warn", say(f"nsys.messages.{key}", n=len(said), shown=shown), (of.BREAKDOWN,))
