"""What a trace's raw JSON says, in a few lines and with exact times: the judge where two tools differ.

    python peer_raw.py FOLDER ANSWER.json NAMES.json

Knows nothing of perflab or HTA but HTA's patterns and its choice of events, both written down here anew. NAMES.json
lists the names of communication kernels by another tool. Each rank is counted three times: with HTA's events and
patterns, with all events and HTA's patterns, with all events and the names of the list.
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

Spans = list[tuple[int, int]]
Work = list[tuple[str, str, int, int, int | None]]
DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
NCCL = re.compile(r"^nccl.*Kernel")
NO_COMPUTE = re.compile(r"nccl.*Kernel|Memcpy|Memset|dma|.*Memcpy|.*Sync")


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """The union, as disjoint spans in order."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def rank_of(trace: dict[str, Any]) -> int:
    return int(trace.get("distributedInfo", {}).get("rank", 0))


def work_of(trace: dict[str, Any]) -> Work:
    """Category, name, start and end in nanoseconds, and correlation of all device work."""
    found = []
    for event in trace["traceEvents"]:
        kind = str(event.get("cat")).lower()
        if event.get("ph") == "X" and kind in DEVICE_WORK:
            start = int(event["ts"] * 1000)
            correlation = event.get("args", {}).get("correlation")
            found.append((kind, event["name"], start, start + int(event["dur"] * 1000), correlation))
    return found


def htas_choice(trace: dict[str, Any], work: Work) -> Work:
    """Without what was launched in the last ProfilerStep or later, or by no call that is in the trace.

    HTA chooses so where a trace has several ProfilerSteps. An annotation on the device counts as one on the host.
    """
    host = [event for event in trace["traceEvents"] if "dur" in event and "stream" not in event.get("args", {})]
    steps = {event["name"]: event["ts"] for event in host if "ProfilerStep" in event["name"]}
    if len(steps) < 2:
        return work
    last = max(event["ts"] for event in host if "ProfilerStep" in event["name"])
    launched = {event.get("args", {}).get("correlation") for event in host if event["ts"] < last}
    return [one for one in work if one[4] in launched - {None}]


def shares(work: Work, talks: Callable[[str], Any], computes: Callable[[str, str], Any]) -> dict[str, Any]:
    """Window, idle, compute, communication and their overlap, in nanoseconds; time by name of kernel."""
    busy = joined((start, end) for _, _, start, end, _ in work)
    compute = joined((start, end) for kind, name, start, end, _ in work if computes(kind, name))
    communication = joined((start, end) for _, name, start, end, _ in work if talks(name))
    both = length(compute) + length(communication) - length(joined([*compute, *communication]))
    names: Counter[str] = Counter()
    for kind, name, start, end, _ in work:
        if kind == "kernel":
            names[name] += end - start
    window = busy[-1][1] - busy[0][0]
    return {
        "window_ns": window, "idle_ns": window - length(busy), "compute_ns": length(compute),
        "communication_ns": length(communication), "overlap_ns": both, "kernels": dict(names),
        "counted": dict(Counter(kind for kind, *_ in work)),
    }  # fmt: skip


def three_ways(trace: dict[str, Any], work: Work, listed: set[str]) -> list[dict[str, Any]]:
    def computes(_kind: str, name: str) -> bool:
        return not NO_COMPUTE.match(name)

    def computes_here(kind: str, name: str) -> bool:
        return kind == "kernel" and name not in listed

    return [
        shares(htas_choice(trace, work), NCCL.match, computes),
        shares(work, NCCL.match, computes),
        shares(work, listed.__contains__, computes_here),
    ]


def read(path: Path) -> dict[str, Any]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return dict(json.load(file, parse_float=Decimal))


def main(folder: str, answer: str, names: str) -> None:
    listed = set(json.loads(Path(names).read_text()))
    found = {}
    for path in sorted(path for path in Path(folder).iterdir() if path.name.endswith((".json", ".gz"))):
        trace = read(path)
        if work := work_of(trace):
            found[rank_of(trace)] = three_ways(trace, work, listed)
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
