"""Requests and step records of engines small enough to follow by eye, and of a simulated one whose truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from perflab import schema
from perflab.analysis.requests.clock import ClockTie

MS = 1_000_000
SAME = ClockTie(offset_ns=0, measured_ns=0, uncertainty_ns=0, is_one_clock=True)
EPOCH = 1_796_000_000_000_000_000


def request_table(rows: Sequence[tuple[float, float, float, int, int]]) -> pd.DataFrame:
    """Rows of (sent, first token, finish) in ms and (prompt, output) tokens."""
    table = pd.DataFrame(rows, columns=["arrival_ns", "first_token_ns", "finish_ns", "prompt_tokens", "output_tokens"])
    for name in ("arrival_ns", "first_token_ns", "finish_ns"):
        table[name] = (table[name] * MS).round().astype("Int64")
    return schema.conform(table.assign(request_id=range(len(table)), status="ok"), "requests")


def chunk_table(times: Sequence[Sequence[float]]) -> pd.DataFrame:
    """When each request's chunks came, ms."""
    rows = [(r, k, round(at * MS), 1) for r, mine in enumerate(times) for k, at in enumerate(mine)]
    return schema.conform(
        pd.DataFrame(rows, columns=["request_id", "chunk_index", "arrival_ns", "token_count"]), "chunks"
    )


def iteration_table(
    rows: Sequence[tuple[float, int, int, int, int, int]], *, preempted: Sequence[int] = ()
) -> pd.DataFrame:
    """Rows of seen (ms), running, waiting, generated, prompt tokens, finished; `preempted` are places of rows."""
    names = ["at", "running", "waiting", "generated_tokens", "prompt_tokens", "finished"]
    table = pd.DataFrame(rows, columns=names)
    seen = (table["at"] * MS).round().astype("int64")
    nothing = dict.fromkeys(
        ("cached_tokens", "computed_tokens", "scheduled_tokens", "prefill_requests", "prefill_tokens",
         "decode_requests", "decode_tokens", "engine_ns"), pd.NA,
    )  # fmt: skip
    return schema.conform(
        table.assign(
            t_ns=seen + EPOCH, monotonic_ns=seen, engine=0, front_end=1, deferred=0, kv_usage=0.1, graph=None,
            preemptions=[int(place in preempted) for place in range(len(table))], record_ns=1, **nothing,
        ), "iterations",
    )  # fmt: skip


def three_steps_behind() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """D decodes; L's prompt of 300 tokens takes three steps of 100; R, 50 tokens, waits for exactly these three.

    A plain step takes 10 ms, a step with 100 prompt tokens 30 ms, R's own 20 ms; each token comes 1 ms after its step.
    """
    steps = [
        (10, 1, 0, 1, 10, 0),  # D's prompt
        (20, 1, 0, 1, 0, 0),  # D decodes; L and R were sent at 12 and 13
        (50, 2, 1, 1, 0, 0),  # a third of L's prompt, D decodes, R waits
        (80, 2, 1, 1, 0, 0),
        (110, 2, 1, 2, 300, 0),  # L's first token
        (130, 3, 0, 3, 50, 0),  # R's first token
        *((130 + 10 * k, 3, 0, 3, 0, 0) for k in (1, 2, 3)),
        (170, 0, 0, 3, 0, 3),  # all end
    ]
    rows = [(0, 11, 171, 10, 10), (12, 111, 171, 300, 6), (13, 131, 171, 50, 5)]
    ends = [step[0] + 1 for step in steps]
    return request_table(rows), chunk_table([ends, ends[4:], ends[5:]]), iteration_table(steps)


@dataclass
class Asked:
    """A request of the simulation, and what became of it (ns)."""

    sent: int
    prompt: int
    output: int
    left: int = 0
    made: int = 0
    admitted: int = -1
    scheduled: int = -1
    idle: bool = False
    tokens: list[int] = field(default_factory=list)


def simulated(
    asked: Sequence[Asked], *, budget: int = 128, seats: int = 4, way: int = 3 * MS, delivery: int = MS // 2
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """First come, first served, prompts in parts by the budget, decoding first; the records a server would write."""
    coming = sorted(asked, key=lambda one: one.sent)
    waiting: list[Asked] = []
    running: list[Asked] = []
    rows = []
    now = 0
    while coming or waiting or running:
        if not waiting and not running and coming[0].sent + way > now:
            now = coming[0].sent + way
            coming[0].idle = True
        while coming and coming[0].sent + way <= now:
            one = coming.pop(0)
            one.admitted, one.left = now, one.prompt
            waiting.append(one)
        decoding = [one for one in running if not one.left]
        room = budget - len(decoding)
        parts: list[tuple[Asked, int]] = []
        for one in [one for one in running if one.left]:
            parts.append((one, min(one.left, room)))
            room -= parts[-1][1]
        while waiting and room > 0 and len(running) < seats:
            one = waiting.pop(0)
            one.scheduled = now
            running.append(one)
            parts.append((one, min(one.left, room)))
            room -= parts[-1][1]
        now += 10 * MS + sum(size for _, size in parts) * MS // 10
        completed = 0
        for one, size in parts:
            one.left -= size
            completed += 0 if one.left else one.prompt
        speaking = decoding + [one for one, _ in parts if not one.left]
        for one in speaking:
            one.tokens.append(now)
        done = [one for one in speaking if len(one.tokens) == one.output]
        running = [one for one in running if one not in done]
        rows.append((now / MS, len(running), len(waiting), len(speaking), completed, len(done)))
    times = [[(at + delivery) / MS for at in one.tokens] for one in asked]
    requests = request_table([
        (one.sent / MS, mine[0], mine[-1], one.prompt, one.output) for one, mine in zip(asked, times, strict=True)
    ])  # fmt: skip
    return requests, chunk_table(times), iteration_table(rows)
