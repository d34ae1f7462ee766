"""Requests of a benchmark placed into the engine steps they lived through.

vLLM's step records count requests and tokens and name no request. What ties them is arithmetic:

- a step that completes prompts says how many prompt tokens those have, and a first token reaches the client only
  after its step: taking requests latest first, each gets the latest step that still has its prompt's tokens left;
- a step that ends requests says how many: the same with last tokens;
- in between, a request gets a token a step, so the steps from first to last are as many as its output tokens. That
  was not used to place it, and so tells whether the placing is right.

Who waits follows from counts too: requests in the engine (running and waiting) less those known to decode have no
token yet, and vLLM takes requests in the order they came. All of this is inference; `Alignment` says how well it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflab.analysis.intervals import Ints, as_ints
from perflab.analysis.requests.clock import ClockTie

_LIKE = 31
_BURST = 0.75
_NOT_SHORTER = 0.9
_LONG = 1.5
_ENOUGH = 5
_WHOLE = 0.02


@dataclass(frozen=True)
class Alignment:
    """How well requests fit the records, as shares between 0 and 1 (1 is perfect).

    Attributes
    ----------
    requests, placed
        Requests that were answered, and those with a first and a last step.
    prompts, tokens
        Prompt tokens, and output tokens, of the requests over those of the records of the same time, the smaller over
        the larger: others' requests, or missing records, lower it.
    steps
        Placed requests that lived through as many steps as they have output tokens (or lost their place, or got
        several tokens a step).
    order
        Placed requests that the counts show in the engine only after they were sent.
    delay_ns
        From a step's record to the client having its token: median, over first and last tokens.
    """

    requests: int
    placed: int
    prompts: float
    tokens: float
    steps: float
    order: float
    delay_ns: int | None

    @property
    def quality(self) -> float:
        """The smallest of the shares."""
        placed = self.placed / self.requests if self.requests else 0.0
        return min(placed, self.prompts, self.tokens, self.steps, self.order)


@dataclass(frozen=True)
class StepJoin:
    """Requests and the steps they lived through, on the client's clock.

    Attributes
    ----------
    steps
        A row a step that computed something, by time: `seen_ns` (front end had handled it), `end_ns` (when the engine
        was done, at the latest), `start_ns` (end of the step before; NA where the engine had been idle), `batch`
        (requests that decoded), `first_tokens` (requests whose prompt it completed), `prompt_tokens`, `has_prefill` (a
        prompt was in the works), `typical_ns` (the usual span of steps of like batch without prefill), `held_ns` (how
        much later its tokens were handed over because the launch of a prompt's step came first), `running`, `waiting`,
        `kv_usage`, `preemptions`.
    requests
        A row a request that was answered: `request_id`, `prompt_tokens` (as the server counts them), `first_step`,
        `last_step`, `entered_step` (the first whose counts have it in the engine), `scheduled_step` (the first whose
        counts have it running) as positions in `steps`, `missed` (steps in between without a token). -1 where it could
        not be placed.
    """

    steps: pd.DataFrame
    requests: pd.DataFrame
    alignment: Alignment


def step_join(
    requests: pd.DataFrame, iterations: pd.DataFrame, tie: ClockTie, *, token_budget: int | None = None,
    schedules_ahead: bool | None = None,
) -> StepJoin:  # fmt: skip
    """Place the requests of one point into engine steps.

    Parameters
    ----------
    requests
        Table `requests` with the client's clock.
    iterations
        Table `iterations` of one engine and front end; all of the run's records may be given.
    token_budget
        `max_num_batched_tokens`: a longer prompt takes several steps, of which records show the last.
    schedules_ahead
        Whether the engine schedules a step while the one before runs (`async_scheduling`). None: it does if counts
        have most requests running a step before their prompt's.
    """
    known = requests[requests["status"] == "ok"].dropna(subset=["arrival_ns", "first_token_ns", "finish_ns"])
    known = known[known["output_tokens"].fillna(0) > 0]
    steps = _steps(iterations, tie, known)
    tokens = known["output_tokens"].to_numpy(np.int64)
    prompts = _as_the_server_counts(known["prompt_tokens"].fillna(0).to_numpy(np.int64), steps)
    first_ns, last_ns = (known[name].to_numpy(np.int64) for name in ("first_token_ns", "finish_ns"))
    seen = steps["seen_ns"].to_numpy(np.int64)
    first = _latest_fitting(first_ns, prompts, seen, steps["prompt_tokens"].to_numpy(np.int64))
    last = _latest_fitting(last_ns, np.ones_like(tokens), seen, steps["finished"].to_numpy(np.int64))
    last = np.where(tokens == 1, first, last)
    last[last < first] = -1
    placed = (first >= 0) & (last >= 0)
    steps = _described(steps, first[placed], prompts[placed], token_budget, schedules_ahead)
    population = _population(steps, known["arrival_ns"].to_numpy(np.int64), first, last)
    table = pd.DataFrame({
        "request_id": known["request_id"].to_numpy(np.int64),
        "prompt_tokens": prompts,
        "first_step": np.where(placed, first, -1),
        "last_step": np.where(placed, last, -1),
        "entered_step": np.where(placed, population[0], -1),
        "scheduled_step": np.where(placed, population[1], -1),
        "missed": np.where(placed, np.maximum(last - first + 1 - tokens, 0), -1),
    })  # fmt: skip
    return StepJoin(steps, table, _alignment(steps, known, table, int(prompts.sum())))


def one_engine(iterations: pd.DataFrame) -> bool:
    """Whether the records are of one engine and one front end: else they do not tell which of them served a request."""
    return len(iterations[["engine", "front_end"]].drop_duplicates()) <= 1


def _steps(iterations: pd.DataFrame, tie: ClockTie, known: pd.DataFrame) -> pd.DataFrame:
    """Records of the time in which the requests lived, without those of steps that computed nothing."""
    found = iterations.sort_values("monotonic_ns", kind="stable")
    counts = {
        name: found[name].fillna(0).to_numpy(np.int64)
        for name in ("running", "waiting", "deferred", "generated_tokens", "prompt_tokens", "preemptions", "finished")
    }
    steps = pd.DataFrame(counts | {
        "seen_ns": found["monotonic_ns"].to_numpy(np.int64) - tie.offset_ns,
        "kv_usage": found["kv_usage"].to_numpy(np.float64),
        "record": found.index.to_numpy(),
        "told_prefill": found["prefill_tokens"].fillna(-1).to_numpy(np.int64),
    })  # fmt: skip
    # An engine that schedules ahead ends with a step or two of nobody.
    some = steps[["running", "generated_tokens", "prompt_tokens", "preemptions", "finished"]].sum(axis=1) > 0
    steps = steps[some]
    if known.empty:
        return steps.iloc[:0].reset_index(drop=True)
    begin, end = int(known["arrival_ns"].min()), int(known["finish_ns"].max())
    # A step that ended before the first was sent is none of theirs.
    return steps[(steps["seen_ns"] >= begin) & (steps["seen_ns"] <= end)].reset_index(drop=True)


def _as_the_server_counts(prompts: Ints, steps: pd.DataFrame) -> Ints:
    """Prompt lengths with what a chat template or a start token adds to each, where that is the same whole number."""
    if not len(prompts):
        return prompts
    theirs = int(steps["prompt_tokens"].sum())
    more = round((theirs - int(prompts.sum())) / len(prompts))
    whole = abs(theirs - int(prompts.sum()) - more * len(prompts)) <= _WHOLE * len(prompts)
    return np.maximum(prompts + more, 1) if whole else prompts


def _latest_fitting(times: Ints, sizes: Ints, seen: Ints, room: Ints) -> Ints:
    """For each request the latest step seen before its time that has room for its size; -1 where there is none.

    Latest requests first: whoever could also have had an earlier step leaves that to those who could not.
    """
    left = room.copy()
    found = np.full(len(times), -1, dtype=np.int64)
    offers = np.flatnonzero(room > 0)
    for at in np.argsort(-times, kind="stable"):
        before = offers[seen[offers] <= times[at]]
        fitting = before[left[before] >= sizes[at]] if len(before) else before
        if len(fitting):
            step = fitting[-1]
            found[at] = step
            left[step] -= sizes[at]
            if left[step] <= 0:
                offers = offers[offers != step]
    return found


def _described(
    steps: pd.DataFrame, first: Ints, prompts: Ints, token_budget: int | None, ahead: bool | None
) -> pd.DataFrame:
    """Steps with what they computed, their pace, and when the engine was done with them."""
    count = len(steps)
    first_tokens = np.bincount(first, minlength=count)[:count] if count else np.zeros(0, dtype=np.int64)
    prefill = (steps["prompt_tokens"].to_numpy(np.int64) > 0) | (steps["told_prefill"].to_numpy(np.int64) > 0)
    for step, further in zip(first, _further_steps(prompts, token_budget), strict=True):
        prefill[max(step - further, 0) : step] = True
    batch = np.maximum(steps["generated_tokens"].to_numpy(np.int64) - first_tokens, 0)
    # Who runs and got no token in this step is being prefilled, or scheduled for the next step.
    more = steps["running"].to_numpy(np.int64) + steps["finished"].to_numpy(np.int64) - batch - first_tokens
    pending = more > 0
    completes, prefill = prefill, prefill | pending
    seen = steps["seen_ns"].to_numpy(np.int64)
    busy = (steps["running"] + steps["waiting"] + steps["deferred"]).to_numpy(np.int64) > 0
    follows = np.concatenate(([False], busy[:-1])) if count else np.zeros(0, dtype=bool)
    spans = np.diff(seen, prepend=seen[:1])
    typical, sure = _typical(spans, batch, follows & ~prefill & (batch > 0))
    before_prompt = follows & pending & ~completes
    if not (_schedules_ahead(more, first_tokens, follows) if ahead is None else ahead):
        before_prompt = np.zeros_like(before_prompt)
    # What a prompt's launch held up was not the front end's delay.
    handled = _engine_ends(seen, typical, follows & sure & ~np.roll(before_prompt, 1))
    end = _told_late(handled, typical, before_prompt)
    start = np.concatenate((end[:1], end[:-1]))
    return steps.assign(
        batch=batch, first_tokens=first_tokens, has_prefill=prefill, typical_ns=typical, end_ns=end,
        held_ns=handled - end,
        start_ns=pd.arrays.IntegerArray(start, ~follows),
    )  # fmt: skip


def _schedules_ahead(more: Ints, first_tokens: Ints, follows: NDArray[np.bool_]) -> bool:
    """Whether counts of the step before have those as running who get their first token in a step, mostly."""
    at = np.flatnonzero(follows & (first_tokens > 0))
    at = at[at > 0]
    return bool(len(at)) and float((more[at - 1] >= first_tokens[at]).mean()) > 0.5


def _further_steps(prompts: Ints, token_budget: int | None) -> Ints:
    """Steps before the last that a prompt needs at least, by the tokens a step may compute."""
    return np.zeros_like(prompts) if not token_budget else np.maximum(-(-prompts // token_budget) - 1, 0)


def _typical(spans: Ints, batch: Ints, plain: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
    """For each step the usual span of plain ones of like batch, and whether there were enough of them.

    Without enough, of those whose batch is nearest; 0 where there are none at all.
    """
    found, sure = np.zeros(len(spans), dtype=np.int64), np.zeros(len(spans), dtype=bool)
    of, sizes = spans[plain], batch[plain]
    if not len(of):
        return found, sure
    for size in np.unique(batch):
        distance = np.abs(sizes - size)
        farthest = np.sort(distance)[min(_LIKE, len(of)) - 1]
        near = distance <= min(farthest, size // 2)
        enough = int(near.sum()) >= _ENOUGH
        found[batch == size] = _usual(of[near] if enough else of[distance <= farthest])
        sure[batch == size] = enough
    return found, sure


def _usual(spans: Ints) -> int:
    """The median; where a late front end wrote most records in one go, the mean, which that does not change."""
    median, mean = float(np.median(spans)), float(spans.mean())
    return int(median if median >= 0.5 * mean else mean)


def _engine_ends(seen: Ints, typical: Ints, follows: NDArray[np.bool_]) -> Ints:
    """When the engine was done with each step, at the latest.

    A front end that is late handles several steps at once: their records stand closer together than any step is
    short. Then the earlier of two steps was done at least most of a typical step before the later one.
    """
    end = seen.copy()
    for at in range(len(seen) - 2, -1, -1):
        if follows[at + 1] and end[at + 1] - seen[at] < _BURST * typical[at + 1]:
            end[at] = min(int(seen[at]), int(end[at + 1] - _NOT_SHORTER * typical[at + 1]))
    return as_ints(end)


def _told_late(end: Ints, typical: Ints, before_prompt: NDArray[np.bool_]) -> Ints:
    """Ends of steps in which a prompt was only scheduled, where the launch of that prompt's step held up their record.

    An engine that schedules ahead hands over a step's tokens after it has launched the next step. Launching a prompt
    takes many times a decode step, which then seems as long; its time belongs to the prompt.
    """
    end = end.copy()
    for at in np.flatnonzero(before_prompt):
        if at and end[at] - end[at - 1] > _LONG * typical[at] > 0:
            end[at] = end[at - 1] + typical[at]
    return end


def _population(steps: pd.DataFrame, arrival: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """For each request the first step whose counts have it in the engine, and the first that have it running."""
    count = len(steps)
    placed = (first >= 0) & (last >= 0)
    begun = np.cumsum(np.bincount(first[placed], minlength=count)[:count]) if count else np.zeros(0, dtype=np.int64)
    gone = np.cumsum(np.bincount(last[placed], minlength=count)[:count]) if count else np.zeros(0, dtype=np.int64)
    running, waiting = steps["running"].to_numpy(np.int64), (steps["waiting"] + steps["deferred"]).to_numpy(np.int64)
    # Who is in the engine and does not decode has no token yet.
    entered = np.maximum.accumulate(np.maximum(gone + running + waiting, begun)) if count else begun
    scheduled = np.maximum.accumulate(np.maximum(gone + running, begun)) if count else begun
    order = np.lexsort((arrival, np.where(placed, first, count)))
    rank = np.empty(len(first), dtype=np.int64)
    rank[order] = np.arange(1, len(first) + 1)
    latest = np.where(placed, first, count)
    return (
        as_ints(np.minimum(np.searchsorted(entered, rank), latest)),
        as_ints(np.minimum(np.searchsorted(scheduled, rank), latest)),
    )


def _alignment(steps: pd.DataFrame, known: pd.DataFrame, table: pd.DataFrame, prompts: int) -> Alignment:
    placed = (table["first_step"] >= 0).to_numpy()
    mine, of = table[placed], known[placed]
    first, last = mine["first_step"].to_numpy(np.int64), mine["last_step"].to_numpy(np.int64)
    tokens = of["output_tokens"].to_numpy(np.int64)
    lost = np.cumsum(np.concatenate(([0], steps["preemptions"].to_numpy(np.int64))))
    preempted = lost[last + 1] - lost[first] > 0 if len(mine) else np.zeros(0, dtype=bool)
    several = steps["generated_tokens"].sum() > 1.05 * (steps["batch"].gt(0) * steps["running"]).sum()
    as_many = last - first + 1 == tokens
    fits = as_many | ((last - first + 1 > tokens) & preempted) | ((last - first + 1 < tokens) & bool(several))
    seen = steps["seen_ns"].to_numpy(np.int64)
    after = seen[mine["entered_step"].to_numpy(np.int64)] >= of["arrival_ns"].to_numpy(np.int64)
    delays = np.concatenate((
        of["first_token_ns"].to_numpy(np.int64) - seen[first], of["finish_ns"].to_numpy(np.int64) - seen[last]
    ))  # fmt: skip
    return Alignment(
        requests=len(known),
        placed=int(placed.sum()),
        prompts=_balance(prompts, int(steps["prompt_tokens"].sum())),
        tokens=_balance(int(known["output_tokens"].sum()), int(steps["generated_tokens"].sum())),
        steps=float(fits.mean()) if len(mine) else 0.0,
        order=float(after.mean()) if len(mine) else 0.0,
        delay_ns=int(np.median(delays)) if len(delays) else None,
    )


def _balance(ours: int, theirs: int) -> float:
    return min(ours, theirs) / max(ours, theirs) if max(ours, theirs) else 0.0
