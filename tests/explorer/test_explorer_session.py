"""What a page may ask, asked without a page: of small runs whose answers can be seen, and of recorded ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.analysis_tables import kernels, ranges, steps
from explorer import brute
from explorer.made import rank_of
from small_runs import EVIL, bench, kineto, small_run

from perflab.errors import InputError
from perflab.explorer.kernels import Scope, matcher, matches, matching, name_table, occurrence
from perflab.explorer.rank_times import CODES, MOST_LANES, rank_times
from perflab.explorer.requests import RequestViews
from perflab.explorer.session import Session
from perflab.explorer.sources import entries
from perflab.explorer.spans import span_sums
from perflab.tasks.breakdown import breakdown
from perflab.tasks.imports import import_files

MS = 1_000_000


def asked(session: Session, what: str, **more: Any) -> dict[str, Any]:
    reply, _ = session.answer({"what": what, "run": 0, **more})
    assert "error" not in reply, reply
    json.dumps(reply, allow_nan=False)  # it must travel
    return reply


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A prefill step of 10 ms, three decode steps of 1 ms; 60 % GEMM, 20 % attention, 10 % EVIL, 10 % idle each."""
    return Session(entries(small_run(tmp_path_factory.mktemp("small")).path), RequestViews())


@pytest.fixture(scope="module")
def recorded() -> Session:
    return Session(entries(["llama3-8b-tp2-custom", "llama3-8b-eager"]))


def test_a_run_is_opened_with_its_steps_and_lanes(small: Session) -> None:
    reply, buffers = small.answer({"what": "open", "run": 0})
    (rank,) = reply["ranks"]
    assert [lane["label"] for lane in rank["lanes"]] == ["host calls", "stream 7"]
    assert reply["phases"] == ["prefill", "decode"] and rank["activities"] == 12 and rank["typical"] in (1, 2, 3)
    assert np.frombuffer(buffers[0], np.float64).tolist() == [0, 10 * MS, 11 * MS, 12 * MS]
    assert np.frombuffer(buffers[2], np.int32).tolist() == [0, 1, 2, 3]
    assert np.frombuffer(buffers[3], np.uint8).tolist() == [0, 1, 1, 1]
    tokens, decoding, kv = (np.frombuffer(buffers[at], np.int32).tolist() for at in (5, 6, 8))
    assert (tokens, decoding, kv) == ([512, 0, 0, 0], [0, 4, 4, 4], [-1] * 4), "what is not known is -1, not 0"


def test_a_view_has_every_kernel_in_it(small: Session) -> None:
    reply, buffers = small.answer({"what": "view", "run": 0, "ranks": [0], "start": 0, "end": 11 * MS, "width": 100})
    host, stream = brute.bars_of(reply, buffers)
    assert stream["end"].tolist() == pytest.approx([6e6, 8e6, 9e6, 10.6e6, 10.8e6, 10.9e6])
    assert [CODES[code] for code in stream["code"]] == ["gemm", "attention", "other"] * 2
    assert reply["total"] == 6 and len(host["start"]) > 0 and {CODES[code] for code in host["code"]} == {"call"}
    names = asked(small, "names", names=[[0, int(one)] for one in stream["name"]])["names"]
    assert [full for full, _ in names][2] == EVIL


def test_a_marked_stretch_is_summed_up(small: Session) -> None:
    (found,) = asked(small, "select", start=5 * MS, end=9_500_000)["ranks"]
    assert found["categories"] == {"gemm": MS, "attention": 2 * MS, "other": MS}
    assert (found["busy_ns"], found["idle_ns"], found["count"]) == (4 * MS, 500_000, 3)


def test_kernels_are_counted_where_one_looks(small: Session) -> None:
    everywhere = asked(small, "kernels", scope={"kind": "all"})
    assert [(row["count"], row["ns"]) for row in everywhere["rows"]] == [
        (4, 7_800_000), (4, 2_600_000), (4, 1_300_000)
    ]  # fmt: skip
    assert sum(row["share"] for row in everywhere["rows"]) == pytest.approx(1)
    decode = asked(small, "kernels", scope={"kind": "phase", "phase": "decode"})
    assert [(row["count"], row["ns"]) for row in decode["rows"]] == [(3, 1_800_000), (3, 600_000), (3, 300_000)]
    part = asked(small, "kernels", scope={"kind": "span", "start": 5 * MS, "end": 7 * MS})
    assert [(row["category"], row["ns"]) for row in part["rows"]] == [("attention", MS), ("gemm", MS)]
    gemm = asked(small, "kernels", scope={"kind": "all"}, categories=["gemm"])
    assert gemm["names"] == 1 and gemm["rows"][0]["share"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("text", "pattern", "count"),
    [
        ("NVJET", False, 4), ("onerror=alert(1)", False, 4), ("^(nvjet|flash)", True, 8), ("^jet", True, 0),
        ("[", False, 0),
    ],
)  # fmt: skip
def test_search_by_text_and_by_pattern(small: Session, text: str, pattern: bool, count: int) -> None:
    found = asked(small, "kernels", scope={"kind": "all"}, text=text, pattern=pattern)
    assert found["count"] == count == sum(row["count"] for row in found["rows"])
    view, buffers = small.answer(
        {"what": "view", "run": 0, "start": 0, "end": 20 * MS, "width": 50, "text": text, "pattern": pattern}
    )
    assert sum(int(one["hit"].sum()) for one in brute.bars_of(view, buffers)) == count


def test_a_wrong_pattern_is_told_in_a_line(small: Session) -> None:
    reply, _ = small.answer({"what": "kernels", "run": 0, "text": "(", "pattern": True})
    assert "is no regular expression" in reply["error"] and "\n" not in reply["error"]


def test_one_goes_from_match_to_match_and_round(small: Session) -> None:
    at, seen = -1, []
    for _ in range(5):
        found = asked(small, "occurrence", text="flash", at=at, step=1)
        at = found["start"]
        seen.append((found["number"], at))
        assert found["count"] == 4 and found["name"] == "flash_fwd_kernel"
    starts = [6 * MS, 10_600_000, 11_600_000, 12_600_000]
    assert seen == [*enumerate(starts, 1), (1, starts[0])]
    assert asked(small, "occurrence", text="flash", at=starts[0], step=-1)["number"] == 4
    assert asked(small, "occurrence", text="flash", at=starts[2], step=-1)["start"] == starts[1]
    assert asked(small, "occurrence", text="nothing like it", at=0, step=1)["row"] is None
    assert asked(small, "occurrence", name=EVIL, at=0, step=1)["start"] == 8 * MS


def test_details_of_an_activity_and_of_a_call(recorded: Session) -> None:
    times = recorded.read(0).ranks[1]
    row = int(np.flatnonzero((times.step == 8) & (times.code == CODES.index("gemm")))[5])
    facts = dict(asked(recorded, "detail", rank=1, row=row)["facts"])
    assert facts["stream"] == "17" and facts["step"].startswith("8 (decode), ") and "part" in facts and "layer" in facts
    calls = times.rank.launches
    graph = int(np.flatnonzero(calls["api_name"].astype(str).str.contains("GraphLaunch"))[0])
    host = dict(asked(recorded, "detail", rank=1, row=graph, host=True)["facts"])
    assert (
        int(host["asked for"].split()[0].replace(",", ""))
        == (times.rank.kernels["correlation_id"] == calls["correlation_id"].iloc[graph]).sum()
    )


def test_search_in_columns_finds_all_the_time_of_what_matches(recorded: Session) -> None:
    read = recorded.read(0)
    start, end = read.window
    reply, buffers = recorded.answer(
        {"what": "view", "run": 0, "start": start, "end": end, "width": 700, "text": "nvjet"}
    )
    found = brute.columns_of(reply, buffers, "found")
    wanted = [
        times.rank.kernels.loc[times.rank.kernels["name"].astype(str).str.contains("nvjet"), "dur_ns"].sum()
        for times in read.ranks
    ]
    assert len(found) == 2 and [int(one["ns"].sum()) for one in found] == wanted
    all_of = brute.columns_of(reply, buffers)
    assert sum(int(one["count"].sum()) for one in all_of if one["lane"] in (1, 4)) == sum(
        len(times.lanes[1].start) for times in read.ranks
    )


def test_bars_hold_the_breakdown_and_name_what_is_not_read(recorded: Session) -> None:
    recorded.read(0)
    reply = asked(recorded, "bars", phase="decode")
    assert reply["missing"] == ([] if recorded.entries[1].is_read else [1])
    row = reply["rows"][0]
    phase = recorded.read(0).broken.ranks[0].record["phases"]["decode"]
    assert row["ns"] == phase["window_ns"] == sum(row["parts"].values())
    assert (row["steps"], row["parts"]["idle"]) == (phase["steps"], phase["idle_ns"])
    nothing = next(r for r in asked(recorded, "bars", phase="nonsense")["rows"])
    assert nothing["ns"] == 0 and nothing["parts"] == {}


@pytest.mark.parametrize(
    "question",
    [
        {"what": "nonsense"}, {"what": "open", "run": 9}, {"what": "view", "run": 0}, {"what": "open", "run": "x"},
        {"what": "view", "run": 0, "start": 5, "end": 5, "width": 10},
        {"what": "view", "run": 0, "start": 0, "end": 5, "width": 10**9},
        {"what": "detail", "run": 0, "rank": 4, "row": 0}, {"what": "detail", "run": 0, "rank": 0, "row": 10**9},
        {"what": "names", "run": 0, "names": [[0, 10**6]]}, {"what": "points", "run": -1}, {},
    ],
)  # fmt: skip
def test_a_bad_question_gets_one_line(small: Session, question: dict[str, Any]) -> None:
    reply, buffers = small.answer(question)
    assert list(reply) == ["error"] and reply["error"] and "\n" not in reply["error"] and buffers == []


# Odd traces


def written(folder: Path, change: Any, name: str = "odd.pt.trace.json") -> Session:
    trace = kineto()
    change(trace["traceEvents"])
    (folder / name).write_text(json.dumps(trace))
    return Session(entries(folder / name))


def test_a_trace_without_steps_is_shown_as_a_whole(tmp_path: Path) -> None:
    def drop(events: list[dict[str, Any]]) -> None:
        events[:] = [one for one in events if "annotation" not in one["cat"]]

    session = written(tmp_path, drop)
    opened = asked(session, "open")
    assert opened["phases"] == [] and opened["ranks"][0]["typical"] is None
    assert asked(session, "bars", phase="all")["rows"][0]["ns"] == 12_900_000
    start, end = opened["window"]
    assert asked(session, "select", start=start, end=end)["ranks"][0]["busy_ns"] == 11_700_000


def test_a_trace_without_device_activity_opens_empty(tmp_path: Path) -> None:
    def drop(events: list[dict[str, Any]]) -> None:
        events[:] = [one for one in events if one["cat"] != "kernel"]

    session = written(tmp_path, drop)
    opened = asked(session, "open")
    assert opened["ranks"][0]["activities"] == 0 and opened["cautions"], "and says that it cannot be trusted"
    start, end = opened["window"]
    reply, _ = session.answer({"what": "view", "run": 0, "start": start, "end": end, "width": 100})
    assert reply["total"] == 0
    assert asked(session, "kernels", scope={"kind": "all"}, text="x")["rows"] == []
    assert asked(session, "bars", phase="all")["rows"][0]["ns"] == 0


def test_a_file_that_is_no_trace_is_told_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"traceEvents": "what"}')
    reply, _ = Session(entries(tmp_path / "x.json")).answer({"what": "open", "run": 0})
    assert "x.json" in reply["error"]
    with pytest.raises(InputError, match="no such run"):
        entries("nowhere")
    with pytest.raises(InputError):
        entries([])


def test_a_run_without_a_trace_can_still_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "c1.json").write_text(json.dumps(bench(1)))
    session = Session(entries(import_files([tmp_path / "c1.json"], tmp_path / "run").path), RequestViews())
    assert not session.entries[0].has_trace and session.has_requests(session.entries[0])
    reply, _ = session.answer({"what": "open", "run": 0})
    assert "has no trace" in reply["error"]
    assert asked(session, "points")["points"][0]["requests"] == 8


def test_many_streams_share_a_last_lane_and_none_is_lost() -> None:
    rows = [{"start": 10 * i, "dur": 1 + i, "stream": i, "category": "gemm"} for i in range(20)]
    times = rank_times(rank_of(kernels(*rows), steps(("decode", 0, 300))), 0)
    assert len(times.lanes) == MOST_LANES + 1 and times.lanes[-1].label == "12 more streams"
    assert sorted(np.concatenate([lane.row for lane in times.lanes]).tolist()) == list(range(20))
    assert times.lanes[0].label == "stream 19", "the busiest first"


def test_a_cpu_engines_operators_are_own_time() -> None:
    ops = kernels(
        {"start": 0, "dur": 100, "name": "aten::linear", "kind": "cpu_op", "stream": 5},
        {"start": 20, "dur": 50, "name": "aten::mm", "kind": "cpu_op", "stream": 5, "category": "gemm"},
    )
    rank = rank_of(kernels(), steps(("decode", 0, 120)))
    marks = ranges(("host", 5, "execute_context_0(0)_generation_1(1)", 0, 120))
    times = rank_times(replace(rank, kind="cpu", kernels=ops, ranges=marks), 0)
    (lane,) = times.lanes
    assert list(zip(lane.start, lane.end, lane.row, strict=True)) == [(0, 20, 0), (20, 70, 1), (70, 100, 0)]
    found = name_table([times], Scope("all"))
    assert {row.name: row.ns for row in found.rows} == {"aten::linear": 50, "aten::mm": 50}
    assert span_sums([times], 0, 120)[0].idle_ns == 20


def test_names_of_two_ranks_are_counted_together() -> None:
    report = breakdown("llama3-8b-tp2-custom", attribution=False)
    session = Session(entries(report))
    both = asked(session, "kernels", scope={"kind": "all"})
    one = asked(session, "kernels", ranks=[0], scope={"kind": "all"})
    assert both["ns"] == sum(int(rank.kernels["dur_ns"].sum()) for rank in report.ranks)
    assert one["ns"] == report.ranks[0].kernels["dur_ns"].sum() and one["count"] * 2 == both["count"]
    top = report.ranks[0].top_kernels()
    assert [(r["name"], r["count"], r["ns"]) for r in one["rows"]] == [
        (row.name, row.count_, row.dur_ns) for row in top.rename(columns={"count": "count_"}).head(60).itertuples()
    ]


def test_occurrences_of_nothing() -> None:
    times = rank_times(rank_of(kernels(), steps()), 0)
    found = matches(times, matching(times.names.full, matcher("x", False)))
    assert occurrence(found, 0, 1) is None and found.lanes == ()
