"""Experts over ranks, on records whose answer is visible by eye."""

from typing import Any

import pandas as pd
import pytest

from perflab.analysis.ranks.expert_balance import expert_balance
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.analysis.rules.experts import expert_imbalance
from perflab.runs import Engine
from perflab.schema import CATEGORIES, PHASES
from perflab.tasks.breakdown import breakdown

MS = 1_000_000
PARALLEL = {"enable_expert_parallel": True}


def record(rank: int, moe_ms: int, steps: int = 10) -> dict[str, Any]:
    def phase(name: str) -> dict[str, Any]:
        there = name == "decode"
        categories = {c: {"exclusive_ns": moe_ms * MS if there and c == "moe" else 0, "share": 0.0} for c in CATEGORIES}
        return {"steps": steps if there else 0, "window_ns": 100 * MS, "idle_ns": 0, "categories": categories}

    return {"rank": rank, "kind": "gpu", "phases": {name: phase(name) for name in PHASES}}


def test_the_busiest_rank_is_named_with_what_it_costs() -> None:
    found = expert_balance([record(0, 20), record(1, 40)], PARALLEL)
    assert list(found) == ["decode"]
    one = found["decode"]
    assert (one.busiest, one.mean_ns, one.excess_ns) == (1, 3 * MS, 1 * MS)
    assert one.imbalance == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("records", "settings"),
    [
        ([record(0, 20), record(1, 40)], {}),
        ([record(0, 20)], PARALLEL),
        ([record(0, 0), record(1, 0)], PARALLEL),
        ([record(0, 20), record(1, 40, steps=0)], PARALLEL),
    ],
    ids=["no expert parallelism", "one rank", "no experts' kernels", "a rank without steps"],
)
def test_nothing_is_said_where_nothing_can_be_compared(records: list[Any], settings: dict[str, Any]) -> None:
    assert expert_balance(records, settings) == {}


def found_in(times: tuple[int, int], **settings: Any) -> Any:
    ranks = [RankFacts(record(rank, ms), {}) for rank, ms in enumerate(times)]
    return expert_imbalance(PassFacts(ranks, Engine(settings=PARALLEL | settings)))


def test_a_finding_says_what_the_others_wait() -> None:
    finding = found_in((20, 40))
    assert finding.impact == {"value": 1.0, "unit": "ms/step"}
    assert finding.severity == "warning" and "rank 1" in finding.title and "33.3 %" in finding.title
    assert found_in((30, 31)) is None, "as good as even"


def test_random_routers_yield_no_finding() -> None:
    assert found_in((20, 40), load_format="dummy") is None
    assert expert_balance([record(0, 20), record(1, 40)], PARALLEL | {"load_format": "dummy"})["decode"].random_routers


def test_the_recorded_run_is_labelled_and_yields_no_finding() -> None:
    one = breakdown("qwen3-30b-a3b-ep2").passes[0]
    balance = expert_balance([rank.record for rank in one.ranks], one.source.engine.settings)
    assert balance["decode"].random_routers and balance["decode"].imbalance < 0.05
    assert not [f for f in one.findings if f.id == "expert_imbalance"]
    # An independent count: kernels by name, no exclusive time.
    for rank in one.ranks:
        decode = rank.steps[rank.steps["phase"] == "decode"]
        inside = pd.concat(
            rank.kernels[rank.kernels["start_ns"].between(step.start_ns, step.start_ns + step.dur_ns - 1)]
            for step in decode.itertuples()
        )
        names = inside["name"].astype(str)
        # `..add_rms_norm_moe_forward..` is the norm before the experts.
        experts = inside[names.str.contains("moe|topk|expert", case=False) & ~names.str.contains("norm")][
            "dur_ns"
        ].sum()
        assert balance["decode"].step_ns[rank.rank] * len(decode) == pytest.approx(experts, rel=0.02)
