"""Every recorded run counted once more, from the file with plain Python: none of perflab's reading or arithmetic.

Only the category of a name is asked of perflab. Times are exact decimals, and every instant is given out by a sweep
over the ends of all activities that follows the definition word by word.
"""

import heapq
import json
import lzma
import re
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perflab.knowledge.categories import load_rules
from perflab.tasks.breakdown import RankBreakdown, breakdown
from perflab.tasks.find import recorded_runs

RUNS = [run.path.name for run in recorded_runs()]
KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
STEP = re.compile(r"execute_context_(\d+)\(\d+\)_generation_(\d+)\(\d+\)")


def nanoseconds(value: Any) -> int:
    exact = Decimal(value) * 1000
    assert exact == exact.to_integral_value()
    return int(exact)


def events(path: Path) -> tuple[list[dict[str, Any]], int]:
    document = json.loads(lzma.decompress(path.read_bytes()), parse_float=Decimal)
    return document["traceEvents"], int(document["baseTimeNanoseconds"])


def activities(path: Path) -> list[tuple[int, int, int, str]]:
    """Start, end, tier and category of everything the device did."""
    rules = load_rules()
    found, base = [], 0
    of, base = events(path)
    for event in of:
        kind = KINDS.get(event.get("cat", ""))
        if event.get("ph") != "X" or kind is None:
            continue
        category = rules.category(event["name"], kind)
        tier = 2 if kind != "kernel" else 1 if category == "communication" else 0
        start = base + nanoseconds(event["ts"])
        found.append((start, start + nanoseconds(event["dur"]), tier, category))
    return found


def step_starts(path: Path) -> list[int]:
    """Where the device's annotations begin that name requests; one that appears on two streams counts once."""
    of, base = events(path)
    marks = sorted(
        (base + nanoseconds(e["ts"]), base + nanoseconds(e["ts"]) + nanoseconds(e["dur"]), e["name"])
        for e in of
        if e.get("cat") == "gpu_user_annotation" and (m := STEP.search(e["name"])) and (int(m[1]) or int(m[2]))
    )
    starts: list[int] = []
    reach: dict[str, int] = {}
    for start, end, name in marks:
        if start >= reach.get(name, 0):
            starts.append(start)
        reach[name] = max(end, reach.get(name, 0))
    return starts


def given_out(found: list[tuple[int, int, int, str]], first: int, last: int) -> Counter[str]:
    """Each instant of [first, last) to the running activity of the least tier, then the earliest start."""
    times = sorted({first, last, *(t for a in found for t in a[:2] if first < t < last)})
    waiting = sorted(found)
    running: list[tuple[int, int, int, str]] = []  # tier, start, end, category
    owned: Counter[str] = Counter()
    at = 0
    for begin, end in pairwise(times):
        while at < len(waiting) and waiting[at][0] <= begin:
            start, stop, tier, category = waiting[at]
            heapq.heappush(running, (tier, start, -stop, category))
            at += 1
        while running and -running[0][2] <= begin:
            heapq.heappop(running)
        owned[running[0][3] if running else "idle"] += end - begin
    return owned


def of_rank(name: str) -> list[RankBreakdown]:
    return breakdown(name, attribution=False).ranks


@pytest.mark.parametrize("name", RUNS)
def test_an_independent_count_gives_the_same_nanoseconds(name: str) -> None:
    for rank in of_rank(name):
        found = activities(rank.source)
        starts = step_starts(rank.source)
        assert starts == rank.steps["start_ns"].tolist()
        first = starts[0]
        last = max(end for start, end, _, _ in found if start >= first)
        assert (first, last - first) == (rank.steps["start_ns"].iloc[0], rank.window_ns), (
            "all device work is in the steps"
        )
        owned = given_out(found, first, last)
        assert owned["idle"] == rank.idle_ns
        mine = {c: v["exclusive_ns"] for c, v in rank.record["categories"].items() if v["exclusive_ns"]}
        assert mine == {category: ns for category, ns in owned.items() if category != "idle"}
        assert sum(mine.values()) + rank.idle_ns == rank.window_ns
