"""The slow tail: which cause has the excess, and what the rule makes of it."""

import pandas as pd
import pytest
from request_tables import MS, SAME, chunk_table, iteration_table, request_table, three_steps_behind

from perflab.analysis.finding import Again
from perflab.analysis.requests.path import CAUSES, split_paths
from perflab.analysis.requests.similar_steps import Wanted, similar_steps
from perflab.analysis.requests.slow_tail import METRICS, PromptSteps, Tail, prompt_steps, tail
from perflab.analysis.requests.steps import step_join
from perflab.analysis.rules.slow_tail import TailFacts, slow_tail
from perflab.runs import Engine

ENGINE = Engine(flavour="gpu", vllm_version="0.25.1", model="model", settings={"max_num_seqs": 64})


def made(cause: str, metric: str = "ttft", *, slow: float = 100.0, typical: float = 40.0, **common: float) -> Tail:
    """A tail in which one cause has all of the difference."""
    parts = pd.DataFrame({"cause": CAUSES, "slow_ns": 0.0, "typical_ns": 0.0})
    parts.loc[parts["cause"] == "decode", ["slow_ns", "typical_ns"]] = 10.0 * MS
    parts.loc[parts["cause"] == cause, "slow_ns"] += (slow - 10) * MS
    parts.loc[parts["cause"] == cause, "typical_ns"] += (typical - 10) * MS
    parts["excess_ns"] = parts["slow_ns"] - parts["typical_ns"]
    parts["share"] = parts["excess_ns"] / parts["excess_ns"].sum()
    met = {
        "prompt_tokens": 512.0, "output_tokens": 128.0, "batch": 8.0, "kv_usage": 0.1, "ahead": 3.0, "mates": 0.0,
        "prefill_tokens": 512.0, "place": 0.5,
    }  # fmt: skip
    return Tail(
        metric=metric, percentile=99.0, limit_ns=90 * MS, values=100, slow=(1, 2), typical=(3, 4, 5), parts=parts,
        cause=cause, cause_share=1.0, without_ns=typical * MS,
        common={"slow": met | common, "typical": met, "step": {"slow": 2, "prompt_tokens": 1024, "span_ns": 30 * MS}},
    )  # type: ignore[arg-type]  # fmt: skip


def finding(one: Tail, **facts: object) -> object:
    return slow_tail(TailFacts(one, ENGINE, 1.0, requests=100, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(("one", "facts", "told"), [
    (made("queued"), {"most_running": 64}, "`--max-num-seqs` up"),
    (made("queued"), {"most_running": 8}, "free seats"),
    (made("queued", kv_usage=0.99), {"most_running": 64}, "cache was full"),
    (made("others_prefill"), {}, "answers nobody before all its prompts"),
    (made("others_prefill", "itl"), {}, "stretch decode steps"),
    (made("preempted", "e2el"), {}, "lost their place"),
    (made("delivery", "itl"), {}, "`--stream-interval 4`"),
    (made("arriving"), {}, "`--api-server-count 2`"),
    (made("decode", "e2el", output_tokens=300.0), {}, "asked for more tokens"),
    (made("prefill", prompt_tokens=2000.0), {}, "prompts are longer"),
    (made("prefill"), {}, "no longer than others"),
    (made("decode", "tpot", batch=40.0), {}, "larger batches"),
])  # fmt: skip
def test_what_helps_depends_on_the_cause_and_on_what_they_met(one: Tail, facts: dict[str, object], told: str) -> None:
    found = finding(one, **facts)
    assert found is not None and told in found.change  # type: ignore[attr-defined]
    assert found.id == f"slow_tail_{one.cause}"  # type: ignore[attr-defined]
    assert found.impact == {"value": 60.0, "unit": "ms"}  # type: ignore[attr-defined]


def test_flags_are_those_of_the_runs_version() -> None:
    old = Engine(vllm_version="0.6.6", settings={})
    found = slow_tail(TailFacts(made("delivery", "itl"), old, 1.0, requests=100))
    assert found is not None and "vLLM 0.6.6 has no such argument" in found.change


def test_the_rule_is_silent_where_nothing_can_be_said() -> None:
    assert finding(made("decode", "tpot")) is None, "slower at the same batch: nothing recorded says why"
    few = slow_tail(TailFacts(made("queued"), ENGINE, 1.0, requests=19))
    assert few is None
    unnamed = made("queued")
    object.__setattr__(unnamed, "cause", None)
    assert finding(unnamed) is None


def test_asking_for_more_is_no_fault_of_the_server() -> None:
    longer = finding(made("decode", "e2el", output_tokens=300.0))
    slower = finding(made("queued"), most_running=64)
    assert (longer.severity, slower.severity) == ("info", "warning")  # type: ignore[attr-defined]


def test_the_excess_splits_by_cause_without_a_rest() -> None:
    """Ten requests one after the other; the prompt of the last took 80 ms instead of 10."""
    steps, rows, times, now = [(5.0, 1, 0, 1, 5, 0)], [(0.0, 6.0, 0.0, 5, 0)], [[6.0]], 5.0
    for k in range(10):
        sent = now
        now += 80.0 if k == 9 else 10.0
        steps.append((now, 2, 0, 2, 20, 0))
        first = now
        for _ in range(3):
            now += 5.0
            steps.append((now, 2, 0, 2, 0, 0))
        now += 5.0
        steps.append((now, 1, 0, 2, 0, 1))
        rows.append((sent, first + 1, now + 1, 20, 5))
        times.append([first + 1, *(first + 1 + 5 * i for i in range(1, 5))])
        times[0] += [step[0] + 1 for step in steps[-5:]]
    now += 5.0
    steps.append((now, 0, 0, 1, 0, 1))
    times[0].append(now + 1)
    rows[0] = (0.0, 6.0, now + 1, 5, len(times[0]))
    requests, chunks = request_table(rows), chunk_table(times)
    join = step_join(requests, iteration_table(steps), SAME)
    assert join.alignment.quality == 1
    paths = split_paths(join, requests, chunks)
    found = tail(join, paths, requests, chunks, "ttft")
    assert found is not None and found.slow == (10,)
    assert (found.slow_ns, found.typical_ns) == (81 * MS, 11 * MS)
    assert (found.cause, found.cause_share, found.without_ns) == ("prefill", 1.0, 11 * MS)
    assert found.parts["excess_ns"].sum() == 70 * MS
    for metric in METRICS:
        other = tail(join, paths, requests, chunks, metric)
        if other is not None:
            assert other.parts["excess_ns"].sum() == pytest.approx(other.slow_ns - other.typical_ns)


def test_few_values_have_no_tail() -> None:
    requests, chunks, iterations = three_steps_behind()
    join = step_join(requests, iterations, SAME, token_budget=100)
    paths = split_paths(join, requests, chunks, token_budget=100)
    assert tail(join, paths, requests, chunks, "ttft") is None
    assert tail(join, paths, requests, None, "itl") is None


def steps_table(*rows: tuple[str, int, int]) -> pd.DataFrame:
    """Rows of phase, requests in decode, prompt tokens."""
    return pd.DataFrame({
        "step": range(len(rows)), "phase": [row[0] for row in rows],
        "decode_requests": pd.array([row[1] for row in rows], "Int64"),
        "prefill_tokens": pd.array([row[2] for row in rows], "Int64"),
    })  # fmt: skip


def test_a_similar_step_has_the_same_phase_and_nearly_the_same_work() -> None:
    steps = steps_table(("decode", 8, 0), ("decode", 7, 0), ("decode", 2, 0), ("mixed", 8, 512), ("prefill", 0, 512))
    breakdown = pd.DataFrame({
        "step": [0, 0, 1, 1, 2, 3], "category": ["gemm", "attention", "gemm", "idle", "gemm", "gemm"],
        "exclusive_ns": [10, 4, 20, 2, 99, 99],
    })  # fmt: skip
    found = similar_steps(Wanted("decode", "decode", 8, 0), steps, breakdown)
    assert (found.steps, found.nearest) == ((0, 1), (8, 0))
    assert found.categories == {"gemm": 15.0, "attention": 2.0, "idle": 1.0}
    far = similar_steps(Wanted("decode", "decode", 128, 0), steps, breakdown)
    assert (far.steps, far.nearest, far.categories) == ((), (8, 0), {})
    assert similar_steps(Wanted("first_token", "prefill", 0, 700), steps, breakdown).steps == (4,)
    assert similar_steps(Wanted("first_token", "prefill", 0, 900), steps, breakdown).steps == ()
    assert similar_steps(Wanted("first_token", "mixed", 0, 512), steps.iloc[:3], breakdown).nearest is None


@pytest.mark.parametrize(("one", "facts", "settings"), [
    (made("others_prefill", "itl"), {}, {"max_num_batched_tokens": 2048}),
    (made("behind_step"), {}, {"max_num_batched_tokens": 2048}),
    (made("queued"), {"most_running": 64}, {"max_num_seqs": 128}),
    (made("queued"), {"most_running": 8}, {}),
    (made("preempted", "e2el"), {}, {"gpu_memory_utilization": 0.95}),
    (made("delivery", "itl"), {}, {}),
])  # fmt: skip
def test_where_arguments_can_try_it_one_command_runs_both_sides(
    one: Tail, facts: dict[str, object], settings: dict[str, object]
) -> None:
    known = {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.9}
    engine = Engine(vllm_version="0.25.1", settings=known)
    again = Again("experiment.yaml", "runs/mine")
    found = slow_tail(TailFacts(one, engine, 1.0, requests=100, again=again, **facts))  # type: ignore[arg-type]
    assert found is not None and found.settings == settings
    asked = [f"--set engine.args.{name}={value}" for name, value in settings.items()]
    assert all(part in found.check for part in asked)
    assert found.check.endswith("perflab compare runs/mine runs/changed") == bool(settings)


def test_a_budget_below_the_seats_is_not_tried() -> None:
    engine = Engine(settings={"max_num_seqs": 1024, "max_num_batched_tokens": 2048})
    found = slow_tail(TailFacts(made("others_prefill", "itl"), engine, 1.0, requests=100))
    assert found is not None and found.settings == {}


def test_where_tokens_hardly_matter_shorter_steps_are_not_advised() -> None:
    flat, steep = PromptSteps(512, 120 * MS, 7680, 135 * MS), PromptSteps(512, 15 * MS, 7680, 190 * MS)
    assert (flat.are_flat, steep.are_flat, PromptSteps(512, 15, 1024, 16).are_flat) == (True, False, False)
    for one in (made("others_prefill", "itl"), made("behind_step"), made("queued")):
        found = finding(one, prompt_steps=flat)
        assert found is not None and "--max-cudagraph-capture-size" in found.change  # type: ignore[attr-defined]
        assert found.settings == {}  # type: ignore[attr-defined]
        assert any("512" in text and "135 ms" in text for text in found.evidence)  # type: ignore[attr-defined]
    usual = finding(made("others_prefill", "itl"), prompt_steps=steep)
    assert usual is not None and "--max-num-batched-tokens" in usual.change  # type: ignore[attr-defined]
    seats = finding(made("queued"), prompt_steps=flat, most_running=64)
    assert seats is not None and "seats were taken" in seats.change  # type: ignore[attr-defined]


def test_steps_with_few_and_with_many_prompt_tokens() -> None:
    tokens = [0, 100, 110, 120, 500, 900, 1000, 1100]
    steps = pd.DataFrame({
        "prompt_tokens": tokens, "start_ns": pd.array([None, *range(0, 70, 10)], "Int64"),
        "end_ns": [0, 4, 15, 26, 37, 48, 58, 69],
    })  # fmt: skip
    assert prompt_steps(steps) == PromptSteps(110, 5, 1000, 8)
    assert prompt_steps(steps.iloc[:6]) is None
