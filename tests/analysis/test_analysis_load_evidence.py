"""What limits a load: each cause from figures that show it, and none without."""

from typing import Any

import pandas as pd
import pytest
from load_tables import SERVER

from perflab.analysis.load.consistency import LoadFacts, consistency_checks, decoding, little
from perflab.analysis.load.curve import load_curves
from perflab.analysis.load.evidence import LoadEvidence, StepFigures, causes, reasons, step_figures
from perflab.analysis.load.ttft_split import ttft_split
from perflab.analysis.rules.load import past_knee
from perflab.runs import Engine
from perflab.schema import TABLES, conform

MS = 1_000_000


def iterations(*rows: tuple[int, int, int, int, int], **more: Any) -> pd.DataFrame:
    """(end in ms, running, waiting, generated, prompt tokens computed) a step."""
    frame = pd.DataFrame(rows, columns=["at", "running", "waiting", "generated_tokens", "computed_tokens"])
    frame = frame.assign(t_ns=frame["at"] * MS, monotonic_ns=frame["at"] * MS, kv_usage=0.1, **more)
    for column in TABLES["iterations"].columns:
        if column.name not in frame:
            frame[column.name] = None if column.dtype in ("str", "Int64", "float64") else 0
    return conform(frame, "iterations")


STEPS = iterations(
    (0, 0, 0, 0, 0),  # nothing there: what follows began when its request came, no one knows when
    (100, 2, 1, 2, 1000),
    (120, 3, 1, 1, 1000),  # 20 ms, a prompt
    (130, 3, 0, 3, 0),  # 10 ms, decode
    (140, 3, 0, 3, 0),
    (150, 0, 0, 3, 0),
    (900, 1, 0, 1, 1000),  # idle before: no step of 750 ms
)


def test_steps_by_eye() -> None:
    found = step_figures(STEPS, ridge=200, budget=1000)
    assert found is not None
    assert (found.steps, found.step_ms, found.left_out) == (4, 12.5, 2), "two began no one knows when"
    assert found.tokens_per_step == (1001 + 3 + 3 + 3) / 4
    assert found.prompt_time_share == found.ridge_time_share == found.budget_time_share == 0.4
    assert found.waiting_time_share == 0.4
    assert found.running == pytest.approx((20 * 3 + 10 * 3 + 10 * 3) / 50)
    assert (found.most_running, found.most_waiting, found.preemptions) == (3, 1, 0)
    assert step_figures(STEPS.iloc[:1]) is None
    assert step_figures(STEPS.iloc[:0]) is None


def test_what_the_engine_holds_while_busy_is_not_its_mean_over_all() -> None:
    """One request of 1 s every 4 s: by Little's law 0.25 in flight, though the engine never holds less than one."""
    figures = step_figures(iterations(*[(at, 1, 0, 1, 0) for at in range(0, 1001, 50)]))
    known = LoadEvidence(steps=figures)
    assert known.in_flight == 1.0
    assert known.in_flight_over_all(0.25) == 0.25
    assert known.in_flight_over_all(None) == 1.0
    assert LoadEvidence(running=0.3, waiting=0.1).in_flight_over_all(0.25) == pytest.approx(0.4), "scraped at any time"
    assert LoadEvidence().in_flight_over_all(0.25) is None


def test_engines_side_by_side_add_up() -> None:
    one, two = step_figures(STEPS), step_figures(pd.concat([STEPS, STEPS.assign(engine=1)]))
    assert one is not None and two is not None
    assert two.running == pytest.approx(2 * one.running)
    assert two.step_ms == one.step_ms and two.steps == 2 * one.steps


def figures(**changed: Any) -> StepFigures:
    quiet: dict[str, Any] = {
        "steps": 100, "step_ms": 10.0, "tokens_per_step": 30.0, "prompt_time_share": 0.1, "ridge_time_share": 0.1,
        "waiting_time_share": 0.0, "budget_time_share": 0.0, "running": 20.0, "waiting": 0.0, "most_running": 30,
        "most_waiting": 0, "most_kv_usage": 0.2, "preemptions": 0,
    }  # fmt: skip
    return StepFigures(**(quiet | changed))


SETTINGS = {"max_num_seqs": 64, "max_num_batched_tokens": 2048}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (LoadEvidence(), ()),
        (LoadEvidence(client_cpu=97.0), ("client",)),
        (LoadEvidence(client_cpu=60.0), ()),
        (LoadEvidence(kv_usage=0.99), ("kv_cache",)),
        (LoadEvidence(kv_usage=0.5, preemptions=3), ("kv_cache",)),
        (LoadEvidence(steps=figures(most_running=64, most_waiting=9, waiting_time_share=0.7)), ("batch_limit",)),
        (LoadEvidence(steps=figures(most_running=64)), ()),
        (
            LoadEvidence(steps=figures(most_waiting=9, waiting_time_share=0.4, budget_time_share=0.3)),
            ("token_budget",),
        ),
        (LoadEvidence(steps=figures(ridge_time_share=0.7), ridge_tokens=200), ("compute",)),
        (LoadEvidence(compute_share=0.6), ("compute",)),
        (LoadEvidence(steps=figures(), ridge_tokens=200), ("weights",)),
        (LoadEvidence(waiting=7.0, most_waiting=20.0), ("queue",)),
        (LoadEvidence(waiting=7.0, most_waiting=20.0, compute_share=0.6), ("compute",)),
        (LoadEvidence(waiting=0.2, most_waiting=3.0), ()),
    ],
)
def test_a_cause_from_its_figures(evidence: LoadEvidence, expected: tuple[str, ...]) -> None:
    found = reasons(evidence, SETTINGS)
    assert causes(found) == expected
    assert all(one.evidence and all(any(c.isdigit() for c in text) for text in one.evidence) for one in found)


def test_the_finding_names_the_cause_and_a_flag() -> None:
    [curve] = load_curves(SERVER)
    past = LoadEvidence(kv_usage=0.99, preemptions=12)
    found = past_knee(curve, reasons(past, {}), Engine(), at_knee=LoadEvidence(), past=past)
    assert found is not None and (found.id, found.severity) == ("load_kv_cache", "warning")
    assert "`--max-num-seqs 32`" in found.change and found.settings == {"max_num_seqs": 32}
    assert "--random-input-len 100 --random-output-len 10 --num-prompts 770 --max-concurrency 128" in found.check
    assert "1.60 times to 128 requests at once" in found.title and "2.50 times" in found.title
    assert past_knee(curve, [], Engine()) is None, "no cause, no finding"
    [short] = load_curves(SERVER.iloc[:3])
    assert past_knee(short, reasons(past, {}), Engine()) is None, "no knee, no finding"


def metrics(rate: float, tokens: float, ttft: float, tpot: float, e2el: float) -> dict[str, Any]:
    means = {"ttft_ms": ttft, "tpot_ms": tpot, "e2el_ms": e2el}
    return {"requests_per_s": rate, "output_tokens_per_s": rate * tokens} | {k: {"mean": v} for k, v in means.items()}


SOUND = metrics(10, 101, 200, 10, 1200)
"""Ten a second, each 200 + 100 x 10 ms: twelve in flight, 10.1 of them receive tokens."""


def status(**facts: Any) -> dict[str, str]:
    return {c.check: c.status for c in consistency_checks(LoadFacts(**({"metrics": SOUND} | facts)))}


def test_laws_hold_where_figures_agree() -> None:
    assert little(SOUND) == 12 and decoding(SOUND) == pytest.approx(10.1)
    assert set(status(concurrency=12, in_flight=12.0, server_in_flight=11.8).values()) == {"pass"}
    assert status(concurrency=12)["little"] == "pass", "no single requests, but a load asked for"


@pytest.mark.parametrize(
    ("facts", "check", "expected"),
    [
        ({"concurrency": 10}, "little", "fail"),
        ({"concurrency": 16}, "little", "warn"),
        ({"in_flight": 9.0}, "little", "warn"),
        ({"server_in_flight": 6.0}, "little_server", "warn"),
        ({"server_in_flight": 20.0}, "little_server", "warn"),
        # R2: a verification step of speculative decoding hands over 2.7 tokens, and its gap is taken for a token's.
        ({"metrics": metrics(10, 101, 200, 27, 1200), "concurrency": 12}, "tokens_in_flight", "warn"),
        ({"metrics": metrics(10, 101, 200, 4, 1200), "concurrency": 12}, "latency_parts", "warn"),
        ({"metrics": {}}, "little", "not_applicable"),
    ],
)
def test_figures_that_contradict_one_another(facts: dict[str, Any], check: str, expected: str) -> None:
    assert status(**facts)[check] == expected


MEANS = {
    "time_to_first_token_seconds": 0.5, "request_queue_time_seconds": 0.2, "request_prefill_time_seconds": 0.25,
}  # fmt: skip


def test_parts_of_the_time_to_first_token_add_up() -> None:
    found = ttft_split(MEANS, dict.fromkeys(MEANS, 10.0), client_ms=520.0, completed=10)
    assert found is not None
    assert [round(found.part(name) or 0, 6) for name in ("queue", "prefill", "front_end", "outside")] == [
        200,
        250,
        50,
        20,
    ]
    assert (found.largest, found.requests, found.doubts) == ("prefill", 10, ())


def test_parts_of_other_requests_are_doubted() -> None:
    counts = dict.fromkeys(MEANS, 12.0)
    others = ttft_split(MEANS, counts, client_ms=520.0, completed=10)
    assert others is not None and len(others.doubts) == 1 and "12" in others.doubts[0]
    under_way = ttft_split(MEANS, counts | {"request_queue_time_seconds": 11.0}, client_ms=520.0, completed=12)
    assert under_way is not None and len(under_way.doubts) == 1
    less = ttft_split(MEANS, counts, client_ms=300.0, completed=12)
    assert less is not None and len(less.doubts) == 1, "the client cannot have waited less than the server"
    assert ttft_split({"time_to_first_token_seconds": 0.5}) is None
    alone = ttft_split(MEANS)
    assert alone is not None and (alone.client_ms, alone.outside_ms, alone.requests) == (None, None, None)
