import analysis_tables as tables
import numpy as np
import pandas as pd
import pytest

from perflab.analysis.kernels import categorize, graph_share, name_totals
from perflab.schema import validate


def test_categories_are_filled_by_name_and_kind() -> None:
    frame = tables.kernels(
        {"name": "nvjet_sm90_tst", "start": 0, "dur": 10},
        {"name": "Memset (Device)", "kind": "memset", "start": 10, "dur": 1},
        {"name": "nvjet_sm90_tst", "start": 20, "dur": 10},
        {"name": "no one knows", "start": 30, "dur": 5},
    )
    found = categorize(frame)
    assert found["category"].tolist() == ["gemm", "memory", "gemm", "other"]
    assert validate(found, "kernels") is found
    assert frame["category"].tolist() == ["other"] * 4, "the argument is not changed"


def test_no_kernels_no_categories() -> None:
    assert validate(categorize(tables.kernels()), "kernels").empty


def test_each_name_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from perflab.knowledge import categories

    asked: list[str] = []
    real = categories.Rules.rule_for

    def counting(self: categories.Rules, name: str, kind: str = "kernel") -> categories.Rule | None:
        asked.append(name)
        return real(self, name, kind)

    monkeypatch.setattr(categories.Rules, "rule_for", counting)
    names = [f"kernel_{n % 50}" for n in range(200_000)]
    frame = pd.DataFrame({"name": pd.Categorical(names), "kind": pd.Categorical(["kernel"] * len(names))})
    assert len(categorize(frame)) == len(names)
    assert len(asked) == 50


def test_name_totals() -> None:
    frame = categorize(
        tables.kernels(
            {"name": "nvjet_a", "start": 0, "dur": 60},
            {"name": "nvjet_b", "start": 0, "dur": 15},
            {"name": "nvjet_b", "start": 0, "dur": 15},
            {"name": "mystery", "start": 0, "dur": 10},
        )
    )
    totals = name_totals(frame)
    assert totals["name"].tolist() == ["nvjet_a", "nvjet_b", "mystery"]
    assert totals["count"].tolist() == [1, 2, 1]
    np.testing.assert_allclose(totals["share"], [0.6, 0.3, 0.1])
    assert name_totals(frame, "other")["name"].tolist() == ["mystery"]


def test_graph_share() -> None:
    frame = tables.kernels(
        *({"start": n, "dur": 3, "graph_id": 9, "correlation_id": 9} for n in range(4)),
        {"start": 9, "dur": 4, "graph_id": 11, "correlation_id": 11},
        {"start": 9, "dur": 4, "correlation_id": 12},
        {"start": 9, "dur": 4, "rank": 1},
    )
    first, second = graph_share(frame)
    assert (first.kernels, first.in_graphs, first.replays, first.largest_replay) == (6, 5, 2, 4)
    assert first.share == pytest.approx(16 / 20)
    assert (second.rank, second.share) == (1, 0.0)
