"""Single requests in the explorer, against the tasks they come from."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import small_run

from perflab.analysis.requests.path import CAUSES
from perflab.explorer.requests import RequestViews
from perflab.explorer.session import Session
from perflab.explorer.sources import entries
from perflab.tasks.slow_requests import SlowPoint, SlowReport, slow_requests

RUN = "llama3-8b-tp2-custom"


@pytest.fixture(scope="module")
def report() -> SlowReport:
    return slow_requests(RUN)


@pytest.fixture(scope="module")
def session(report: SlowReport) -> Session:
    return Session(entries(RUN), RequestViews(report))


@pytest.fixture(scope="module")
def point(report: SlowReport) -> SlowPoint:
    return max((one for one in report.points if one.paths is not None), key=lambda one: len(one.measured.requests))


def asked(session: Session, what: str, **more: Any) -> dict[str, Any]:
    reply, _ = session.answer({"what": what, "run": 0, **more})
    assert "error" not in reply, reply
    json.dumps(reply, allow_nan=False)
    return reply


def test_the_point_with_most_placed_requests_comes_first(session: Session, point: SlowPoint) -> None:
    reply = asked(session, "points")
    assert len(reply["points"]) > 1
    best = reply["points"][reply["best"]]
    assert best["placed"] and best["requests"] == len(point.measured.requests) == max(
        one["requests"] for one in reply["points"]
    )


def test_every_request_is_drawn_with_its_latencies(session: Session, point: SlowPoint) -> None:
    reply, buffers = session.answer({"what": "requests", "run": 0, "point": point.name})
    ids = np.frombuffer(buffers[0], np.int32)
    sent, ttft, e2el, tpot = (np.frombuffer(one, np.float64) for one in buffers[1:5])
    requests = point.measured.requests
    assert ids.tolist() == requests["request_id"].tolist() and reply["left_out"] == 0
    assert sent.min() == 0 and sent.max() == requests["arrival_ns"].max() - requests["arrival_ns"].min()
    assert ttft.mean() / 1e6 == pytest.approx(point.measured.metrics["ttft_ms"]["mean"])
    assert e2el.max() / 1e6 == pytest.approx(((requests["finish_ns"] - requests["arrival_ns"]).max()) / 1e6)
    assert np.nanmean(tpot) / 1e6 == pytest.approx(point.measured.metrics["tpot_ms"]["mean"])
    assert reply["tail"]["ttft"] == list(point.tails["ttft"].slow)


@pytest.mark.parametrize(("metric", "table"), [("ttft", "ttft"), ("e2el", "e2el"), ("tpot", "decoding")])
def test_causes_of_chosen_requests_are_means_of_the_split(
    session: Session, point: SlowPoint, metric: str, table: str
) -> None:
    split = getattr(point.paths, table).set_index("request_id")
    ids = split["total_ns"].nlargest(5).index.tolist()
    reply = asked(session, "cause", point=point.name, ids=[*ids, 10**6], metric=metric)
    chosen, others = reply["who"]
    assert (chosen["count"], others["count"], reply["not_placed"]) == (5, len(split) - 5, 1)
    means = split.loc[ids, list(CAUSES)].mean()
    assert chosen["parts"] == pytest.approx({name: ns for name, ns in means.items() if ns > 0})
    excess = means - split.drop(index=ids)[list(CAUSES)].mean()
    assert reply["cause"] == excess.idxmax() and reply["excess_ns"] == pytest.approx(excess.max())
    assert [line["id"] for line in reply["lines"]] == ids
    assert all(line["ns"] == split.loc[line["id"], "total_ns"] for line in reply["lines"])


def test_a_life_runs_from_sent_to_done_without_gaps(session: Session, point: SlowPoint) -> None:
    number = int(point.paths.ttft.set_index("request_id")["total_ns"].idxmax())
    reply = asked(session, "life", point=point.name, id_of=number)
    strip = reply["strip"]
    assert strip[0][1] == 0 and strip[-1][2] == reply["ns"]
    assert all(one[2] == two[1] for one, two in pairwise(strip))
    requests = point.measured.requests.set_index("request_id").loc[number]
    assert reply["ns"] == requests["finish_ns"] - requests["arrival_ns"]
    # At the end of its first token's step it was done computing; the client saw the token after that.
    first = reply["tokens"][0]
    assert first == requests["first_token_ns"] - requests["arrival_ns"]
    assert any(end <= first for end in reply["steps"]["end"])
    assert len({len(values) for values in reply["steps"].values()}) == 1


def test_similar_steps_are_of_the_profiling_pass_and_near(session: Session, point: SlowPoint) -> None:
    steps = point.join.steps
    found = {}
    for row in range(len(steps)):
        reply = asked(session, "similar", point=point.name, step=int(steps.index[row]))
        found.setdefault(bool(reply["steps"]), reply)
        if len(found) == 2:
            break
    near, rank = found[True], session.read(0).ranks[0].rank
    profiled = rank.steps.set_index("step")
    for step, ns in zip(near["steps"], near["step_ns"], strict=True):
        row = profiled.loc[step]
        assert row["phase"] == near["phase"] and row["dur_ns"] == ns
        assert near["batch"] / 1.5 <= max(int(row["decode_requests"]), near["batch"] and 1) <= near["batch"] * 1.5
    far = found[False]
    assert far["categories"] == {} and far["nearest"] is not None


def test_without_step_records_requests_are_shown_and_the_cause_is_said_to_be_unknown(tmp_path: Path) -> None:
    session = Session(entries(small_run(tmp_path).path), RequestViews())
    points = asked(session, "points")["points"]
    assert [one["requests"] for one in points] == [8, 8] and not any(one["placed"] for one in points)
    name = points[0]["id"]
    reply, buffers = session.answer({"what": "requests", "run": 0, "point": name})
    assert "step records" in reply["missing"] and reply["tail"] == {}
    assert np.frombuffer(buffers[2], np.float64) == pytest.approx([100e6] * 8)
    for question in ({"what": "cause", "ids": [0], "metric": "ttft"}, {"what": "life", "id_of": 0}):
        told, _ = session.answer({**question, "run": 0, "point": name})
        assert "step records" in told["error"]


def test_a_run_without_requests_says_so(tmp_path: Path) -> None:
    from small_runs import kineto

    (tmp_path / "t.pt.trace.json").write_text(json.dumps(kineto()))
    session = Session(entries(tmp_path / "t.pt.trace.json"), RequestViews())
    assert not session.has_requests(session.entries[0])
    reply, _ = session.answer({"what": "points", "run": 0})
    assert "no result with single requests" in reply["error"]
    for bad in (
        {"what": "cause", "point": "x", "ids": [1], "metric": "ttft"},
        {"what": "similar", "point": "x", "step": 0},
    ):
        assert "error" in session.answer({**bad, "run": 0})[0]


def test_what_is_worked_out_already_is_not_worked_out_again(session: Session, point: SlowPoint) -> None:
    assert session.measured is not None
    assert any(one is point for one in session.measured.of(session.entries[0]))
