"""Where a request's time went: its life split into stretches that sum to its latency, each with a cause.

Causes, in the order of a request's life:

- `arriving`: sent and not yet in the engine's hands (client, network, front end). An engine takes in requests between
  two steps, so this ends with a step.
- `queued`: among those the scheduler counts as waiting: for a seat, for cache, or for room in a step.
- `behind_step`: scheduled, while the step before its own still ran (an engine that schedules ahead).
- `prefill`: its own prompt, or of a step that computed several prompts its part by tokens.
- `others_prefill`: other prompts in that step; and what steps of its decoding took longer because they also computed
  prompts of others.
- `decode`: steps at the pace of steps with as many requests and no prompt.
- `slow_steps`: what steps without a prompt that took half as long again, or more, took longer than that.
- `preempted`: steps without a token after it lost its place, and what computing it again took.
- `delivery`: from the engine being done with its last token to the client having it.

TTFT ends with the first token's delivery, which a request does not wait for in what follows: E2EL counts the steps to
its last token and that token's delivery. The time between is TPOT's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints, as_ints
from perflab.analysis.requests.steps import StepJoin

CAUSES: tuple[str, ...] = (
    "arriving", "queued", "behind_step", "prefill", "others_prefill", "decode", "slow_steps", "preempted", "delivery",
)  # fmt: skip
_BEFORE, _BETWEEN, _DELIVERY = slice(0, 5), slice(4, 8), 8
BEFORE_FIRST, BETWEEN = CAUSES[_BEFORE], CAUSES[_BETWEEN]
_ALIKE = (0.8, 1.25)
_ENOUGH = 3
_SLOW = 1.5


@dataclass(frozen=True)
class Paths:
    """The split of every placed request of a point.

    Attributes
    ----------
    ttft, e2el, decoding
        A row a request: `request_id`, a column each of `CAUSES` (int64 ns) and `total_ns`, their sum: the request's
        TTFT, its E2EL, and the time from first to last token (whose delivery is the change of it, and may be
        negative).
    facts
        A row a request: what it met. `first_step`, `last_step`, `begin_step` (the first that computed its prompt),
        `admitted_ns`, `scheduled_ns`, `begun_ns`, `waited_steps` (counts that have it waiting),
        `arriving_in_prefill_ns` and `queued_in_prefill_ns` (of the time until admitted, and from there until begun, in
        steps that computed prompts), `mates` (others whose prompt its last prefill step completed), `prefill_tokens`
        (of that step), `batch` (mean of its decode steps), `kv_usage` (largest it met), `idle_engine` (no step ran when
        it came), `prefill_how` (steps, like_steps, server_mean or undivided, which then holds `arriving` too),
        `lost_from` and `lost_to` (steps without a place; -1 and -2 for none).
    """

    ttft: pd.DataFrame
    e2el: pd.DataFrame
    decoding: pd.DataFrame
    facts: pd.DataFrame


def split_paths(
    join: StepJoin, requests: pd.DataFrame, chunks: pd.DataFrame | None = None, *, token_budget: int | None = None,
    server_prefill_ns: float | None = None,
) -> Paths:  # fmt: skip
    """Split the latencies of all placed requests by cause, exactly.

    Parameters
    ----------
    join
        From `step_join`.
    requests, chunks
        Tables of the point. Chunks place a lost place in time; without them it is put where the last steps are.
    token_budget
        `max_num_batched_tokens`.
    server_prefill_ns
        Mean of the server's own prefill times over the point: for a request that came to an idle engine, where no
        record says when its step began and no like step was recorded.
    """
    placed = join.requests[join.requests["first_step"] >= 0].reset_index(drop=True)
    of = requests.set_index("request_id").loc[placed["request_id"]]
    life = _Life.of(join.steps, placed, of, token_budget, server_prefill_ns)
    before = life.before_first()
    between = np.zeros((len(placed), len(BETWEEN)), dtype=np.int64)
    gaps = None if chunks is None else dict(list(chunks.groupby("request_id")["arrival_ns"]))
    for at, row in enumerate(placed.itertuples(index=False)):
        times = None if gaps is None or not row.missed else gaps.get(row.request_id)
        between[at] = life.between(at, int(row.missed), times)
    end = life.steps["end_ns"].to_numpy(np.int64)
    first_ns, last_ns = (of[name].to_numpy(np.int64) for name in ("first_token_ns", "finish_ns"))
    first_delivery = first_ns - end[life.first]
    last_delivery = last_ns - end[life.last]
    ids = placed["request_id"].to_numpy(np.int64)
    parts = np.zeros((3, len(placed), len(CAUSES)), dtype=np.int64)
    parts[0, :, _BEFORE] = parts[1, :, _BEFORE] = before
    parts[1, :, _BETWEEN] += between
    parts[2, :, _BETWEEN] = between
    parts[:, :, _DELIVERY] = first_delivery, last_delivery, last_delivery - first_delivery
    # A last token that a prompt's launch held up was not late by front end or client.
    held = life.steps["held_ns"].to_numpy(np.int64)[life.last]
    parts[1:, :, _BETWEEN.start] += held
    parts[1:, :, _DELIVERY] -= held
    ttft, e2el, decoding = (
        pd.DataFrame(part, columns=list(CAUSES)).assign(request_id=ids, total_ns=part.sum(axis=1)) for part in parts
    )
    return Paths(ttft, e2el, decoding, life.facts(placed))


def strip(join: StepJoin, paths: Paths, requests: pd.DataFrame, request_id: int) -> pd.DataFrame:
    """One request's life in order: `cause`, `start_ns`, `end_ns` (client clock), `steps` it spans.

    Within a step shared with others' prompts the request's own part stands first. Neighbours of one cause are joined.
    Stretches run from its sending to its finish without gaps.
    """
    fact = paths.facts.set_index("request_id").loc[request_id]
    split = paths.e2el.set_index("request_id").loc[request_id]
    before = paths.ttft.set_index("request_id").loc[request_id]
    one = requests.set_index("request_id").loc[request_id]
    arrival, at = int(one["arrival_ns"]), int(one["arrival_ns"])
    rows: list[tuple[str, int, int]] = []
    for cause in BEFORE_FIRST:
        rows.append((cause, at, at + int(before[cause])))
        at += int(before[cause])
    steps = join.steps.iloc[int(fact["first_step"]) + 1 : int(fact["last_step"]) + 1]
    lost = int(fact["lost_from"]), int(fact["lost_to"])
    for number, (others, decode, slow) in zip(steps.index, _pace(join.steps)[steps.index], strict=True):
        parts = [("decode", decode), ("others_prefill", others), ("slow_steps", slow)]
        if lost[0] <= number <= lost[1]:
            parts = [("preempted", others + decode + slow)]
        elif number == lost[1] + 1:
            parts = [("preempted", others + slow), ("decode", decode)]
        for cause, ns in parts:
            rows.append((cause, at, at + int(ns)))
            at += int(ns)
    held = int(join.steps["held_ns"].iloc[int(fact["last_step"])])
    rows.append(("others_prefill", at, at + held))
    rows.append(("delivery", at + held, arrival + int(split["total_ns"])))
    found = pd.DataFrame(rows, columns=["cause", "start_ns", "end_ns"])
    found = found[found["end_ns"] > found["start_ns"]]
    new = (found["cause"] != found["cause"].shift()).cumsum()
    return found.groupby(new, as_index=False).agg({"cause": "first", "start_ns": "first", "end_ns": "last"})


def gap_parts(join: StepJoin, chunks: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """The gaps between chunks of all placed requests by cause.

    Parameters
    ----------
    chunks
        Table `chunks`.
    facts
        Of `Paths`.

    Returns
    -------
    DataFrame
        A row a gap: `request_id`, `chunk_index` (of the later chunk), `step` (the later chunk's), `total_ns` and
        `CAUSES`, which sum to it. `delivery` is the change of what delivery took: negative where the chunk before was
        the late one.

    Notes
    -----
    Where a request has a chunk a step, chunk and step follow from counting. Else a chunk's step is the last that was
    seen before it came; the sum is exact all the same.
    """
    placed = facts.set_index("request_id")
    mine = chunks[chunks["request_id"].isin(placed.index)].sort_values(["request_id", "chunk_index"])
    ids, times = mine["request_id"].to_numpy(np.int64), mine["arrival_ns"].to_numpy(np.int64)
    first, last, begin, stop = (
        placed[name].reindex(ids).to_numpy(np.int64) for name in ("first_step", "last_step", "lost_from", "lost_to")
    )
    number = mine["chunk_index"].to_numpy(np.int64)
    size = mine.groupby("request_id")["chunk_index"].transform("size").to_numpy(np.int64)
    seen, end = (join.steps[name].to_numpy(np.int64) for name in ("seen_ns", "end_ns"))
    before = np.clip(np.searchsorted(seen, times, side="right") - 1, first, last)
    step = np.where(size == last - first + 1, first + number, before)
    step = np.where(number == 0, first, np.where(number == size - 1, last, step))
    same = np.flatnonzero(number[1:] > 0) + 1
    pace = _pace(join.steps)
    total = np.concatenate((np.zeros((1, 3), dtype=np.int64), np.cumsum(pace, axis=0)))
    parts = total[step[same] + 1] - total[step[same - 1] + 1]
    low, high = np.maximum(step[same - 1], begin[same] - 1), np.minimum(step[same], stop[same])
    lost = np.where((high > low)[:, None], total[np.maximum(high, low) + 1] - total[low + 1], 0)
    again = (stop[same] + 1 > step[same - 1]) & (stop[same] + 1 <= step[same]) & (stop[same] >= 0)
    recomputed = pace[np.minimum(np.maximum(stop[same] + 1, 0), len(pace) - 1)] * [1, 0, 1]
    lost = lost + np.where(again[:, None], recomputed, 0)
    parts = parts - lost
    held = join.steps["held_ns"].to_numpy(np.int64)
    late = times - end[step] - held[step]
    parts[:, 0] += held[step[same]] - held[step[same - 1]]
    table = {cause: np.zeros(len(same), dtype=np.int64) for cause in CAUSES}
    table |= {"others_prefill": parts[:, 0], "decode": parts[:, 1], "slow_steps": parts[:, 2]}
    table |= {"preempted": lost.sum(axis=1), "delivery": late[same] - late[same - 1]}
    where = {"request_id": ids[same], "chunk_index": number[same], "step": step[same]}
    return pd.DataFrame(where | table | {"total_ns": times[same] - times[same - 1]})


def _pace(steps: pd.DataFrame) -> Ints:
    """Of each step: what others' prompts, decoding at the usual pace, and slowness took, by columns."""
    end = steps["end_ns"].to_numpy(np.int64)
    span = np.diff(end, prepend=end[:1])
    typical = steps["typical_ns"].to_numpy(np.int64)
    prefill = steps["has_prefill"].to_numpy(bool)
    # Every second step is longer than the median; only what stands out is called slow.
    longer = (typical > 0) & (prefill | (span > _SLOW * typical))
    decode = np.where(longer, np.minimum(span, typical), span)
    rest = span - decode
    return np.stack([np.where(prefill, rest, 0), decode, np.where(prefill, 0, rest)], axis=1)


@dataclass(frozen=True)
class _Life:
    """Arrays of the requests and steps at hand."""

    steps: pd.DataFrame
    first: Ints
    last: Ints
    entered: Ints
    scheduled: Ints
    arrival: Ints
    prompts: Ints
    further: Ints
    how: NDArray[np.object_]
    begun: Ints
    admitted: Ints
    planned: Ints
    idle: NDArray[np.bool_]
    lost: dict[int, tuple[int, int]]
    pace: Ints

    @classmethod
    def of(
        cls, steps: pd.DataFrame, placed: pd.DataFrame, of: pd.DataFrame, budget: int | None, server_ns: float | None
    ) -> _Life:
        first, last, entered, scheduled = (
            placed[name].to_numpy(np.int64) for name in ("first_step", "last_step", "entered_step", "scheduled_step")
        )
        arrival = of["arrival_ns"].to_numpy(np.int64)
        prompts = placed["prompt_tokens"].to_numpy(np.int64)
        further = np.zeros_like(prompts) if not budget else np.maximum(-(-prompts // budget) - 1, 0)
        end = steps["end_ns"].to_numpy(np.int64)
        began = steps["start_ns"].to_numpy(np.int64, na_value=-1)
        begin_step = np.maximum(first - further, 0)
        # Of an engine that had nobody, no record says when it took the request.
        idle = (began[begin_step] < 0) | (began[begin_step] < arrival)
        like, how = _like_prefills(steps, server_ns), np.full(len(first), "steps", dtype=object)
        begun = np.maximum(began[begin_step], arrival)
        for at in np.flatnonzero(idle):
            length, told = like(int(steps["prompt_tokens"].iloc[first[at]]))
            how[at] = told
            latest = end[first[at]]
            begun[at] = arrival[at] if length is None else max(int(arrival[at]), int(latest - length))
        # Counts of a step have those who were taken in, and scheduled, when the step before it was done.
        admitted, planned = (
            np.where(idle, begun, np.clip(np.where(step > 0, end[np.maximum(step - 1, 0)], arrival), arrival, begun))
            for step in (entered, scheduled)
        )
        return cls(
            steps, first, last, entered, scheduled, arrival, prompts, further, how, begun, admitted, planned,
            idle, {}, _pace(steps),
        )  # fmt: skip

    def before_first(self) -> Ints:
        """`BEFORE_FIRST` of each request, ns."""
        end = self.steps["end_ns"].to_numpy(np.int64)
        tokens = np.maximum(self.steps["prompt_tokens"].to_numpy(np.int64)[self.first], 1)
        whole = end[self.first] - self.begun
        # Steps before the last one compute this prompt alone, as far as the records tell.
        last_began = np.maximum(self.begun, end[np.maximum(self.first - 1, 0)])
        shared = np.where(self.further > 0, np.minimum(end[self.first] - last_began, whole), whole)
        others = np.rint(shared * (1 - np.clip(self.prompts / tokens, 0, 1))).astype(np.int64)
        stages = (self.admitted - self.arrival, self.planned - self.admitted, self.begun - self.planned)
        return np.stack([*stages, whole - others, others], axis=1)

    def between(self, at: int, missed: int, times: pd.Series | None) -> Ints:
        """Others' prompts, decoding, slow steps and lost place from the first token's step to the last one's, ns."""
        first, last = int(self.first[at]), int(self.last[at])
        parts = np.zeros((last - first, 4), dtype=np.int64)
        parts[:, :3] = self.pace[first + 1 : last + 1]
        if missed:
            begin, stop = _lost(self.steps, first, last, missed, times)
            self.lost[at] = (begin, stop)
            inside = slice(begin - first - 1, stop - first)
            parts[inside, 3] = parts[inside, :3].sum(axis=1)
            parts[inside, :3] = 0
            # The next token comes from a step that computes all of it again.
            again = slice(stop - first, stop - first + 1)
            parts[again, 3] = parts[again][:, [0, 2]].sum(axis=1)
            parts[again, 0] = parts[again, 2] = 0
        return as_ints(parts.sum(axis=0))

    def facts(self, placed: pd.DataFrame) -> pd.DataFrame:
        """What each request met."""
        prefill = np.concatenate(([0], np.cumsum(_span(self.steps) * self.steps["has_prefill"].to_numpy(bool))))
        batch = np.concatenate(([0], np.cumsum(self.steps["batch"].to_numpy(np.int64))))
        end = self.steps["end_ns"].to_numpy(np.int64)
        kv = self.steps["kv_usage"].to_numpy(np.float64)
        lost = [self.lost.get(at, (-1, -2)) for at in range(len(placed))]
        count = np.maximum(self.last - self.first, 1)
        return pd.DataFrame({
            "request_id": placed["request_id"].to_numpy(np.int64),
            "first_step": self.first,
            "last_step": self.last,
            "begin_step": np.maximum(self.first - self.further, 0),
            "admitted_ns": self.admitted,
            "scheduled_ns": self.planned,
            "begun_ns": self.begun,
            "waited_steps": np.maximum(self.scheduled - self.entered, 0),
            "arriving_in_prefill_ns": _inside(end, prefill, self.arrival, self.admitted),
            "queued_in_prefill_ns": _inside(end, prefill, self.admitted, self.begun),
            "mates": self.steps["first_tokens"].to_numpy(np.int64)[self.first] - 1,
            "prefill_tokens": self.steps["prompt_tokens"].to_numpy(np.int64)[self.first],
            "batch": (batch[self.last + 1] - batch[self.first + 1]) / count,
            "kv_usage": [np.nanmax(kv[f : n + 1]) if not np.isnan(kv[f : n + 1]).all() else np.nan
                         for f, n in zip(self.first, self.last, strict=True)],
            "idle_engine": self.idle,
            "prefill_how": self.how,
            "lost_from": [begin for begin, _ in lost],
            "lost_to": [stop for _, stop in lost],
        })  # fmt: skip


def _span(steps: pd.DataFrame) -> Ints:
    end = steps["end_ns"].to_numpy(np.int64)
    known = steps["start_ns"].notna().to_numpy(bool)
    return as_ints(np.where(known, end - steps["start_ns"].to_numpy(np.int64, na_value=0), 0))


def _inside(end: Ints, total: Ints, begin: Ints, stop: Ints) -> Ints:
    """How much of each stretch lies in steps that computed prompts; a step that it cuts counts by its part."""
    at = np.concatenate((end[:1], end)) if len(end) else np.zeros(1, dtype=np.int64)
    at = np.maximum.accumulate(at)
    grown = np.interp(np.stack([begin, stop]).astype(float) - float(at[0]), (at - at[0]).astype(float), total)
    return as_ints(np.rint(grown[1] - grown[0]))


def _lost(steps: pd.DataFrame, first: int, last: int, missed: int, times: pd.Series | None) -> tuple[int, int]:
    """The steps without a token: where the chunks leave the widest hole; else the last ones after a preemption."""
    if times is not None and len(times) > 1:
        seen = steps["seen_ns"].to_numpy(np.int64)
        at = np.clip(np.searchsorted(seen, times.to_numpy(np.int64), side="right") - 1, first, last)
        hole = int(np.argmax(np.diff(at)))
        begin = int(at[hole]) + 1
    else:
        losses = np.flatnonzero(steps["preemptions"].to_numpy(np.int64)[first + 1 : last + 1])
        begin = first + 1 + (int(losses[-1]) if len(losses) else last - first - missed)
    begin = min(begin, last - missed + 1)
    return begin, begin + missed - 1


def _like_prefills(steps: pd.DataFrame, server_ns: float | None) -> Callable[[int], tuple[float | None, str]]:
    """A function that says how long a step with this many prompt tokens takes, and what that is taken from."""
    span, tokens = _span(steps), steps["prompt_tokens"].to_numpy(np.int64)
    known = (span > 0) & (tokens > 0)

    def length(of: int) -> tuple[float | None, str]:
        alike = known & (tokens >= _ALIKE[0] * of) & (tokens <= _ALIKE[1] * of)
        if alike.sum() >= _ENOUGH:
            return float(np.median(span[alike])), "like_steps"
        return (server_ns, "server_mean") if server_ns is not None else (None, "undivided")

    return length
