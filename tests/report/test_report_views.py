"""Answers of the tasks cut for figures, and the sentences about them."""

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pandas as pd
import pytest

from perflab import schema, units
from perflab.errors import InputError
from perflab.experiment import plan, read_experiment
from perflab.plots.breakdown import parts_of_phases
from perflab.report import answers, load_views, points, sentences, views
from perflab.runs import Load, Run
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown, breakdown
from perflab.tasks.latency import LatencyReport, latency
from perflab.tasks.memory import memory
from perflab.tasks.provenance import provenance


@pytest.fixture(scope="module")
def measured(run: Run) -> LatencyReport:
    return latency(run.path)


@pytest.fixture(scope="module")
def broken_down(run: Run) -> BreakdownReport:
    return breakdown(run.path)


def changed(report: LatencyReport, *changes: dict[str, Any]) -> LatencyReport:
    """The report with changed points, one mapping of changes a point."""
    made = [
        dataclasses.replace(
            report.runs[i % len(report.runs)], point=msgspec.structs.replace(report.runs[0].point, **change)
        )
        for i, change in enumerate(changes)
    ]
    return dataclasses.replace(report, runs=made)


def test_runs_are_called_by_their_directory(run: Run, tmp_path: Path) -> None:
    assert views.run_name(run.path / "bench" / "c1.json") == "small"
    assert views.run_name(tmp_path / "loose.json") == "loose.json"


def test_the_parts_of_a_step_add_up(broken_down: BreakdownReport) -> None:
    (piece,) = views.breakdown_pieces(broken_down)
    parts = parts_of_phases(piece["table"], "group")
    phases = parts.groupby("phase", sort=False).agg({"steps": "first", "step_ns": "sum", "share": "sum"})
    assert phases["steps"].to_dict() == {"prefill": 1, "decode": 3}
    assert phases["step_ns"].tolist() == pytest.approx([10 * units.NS_PER_MS, 2.95 / 3 * units.NS_PER_MS])
    assert phases["share"].tolist() == pytest.approx([1.0, 1.0])
    assert parts.query("part == 'compute'")["share"].tolist() == pytest.approx([0.7, 2.1 / 2.95])


def test_pieces_are_what_the_plots_take(broken_down: BreakdownReport) -> None:
    assert [(p["device"], set(p["table"]["run"])) for p in views.breakdown_pieces(broken_down)] == [("GPU", {"small"})]
    (kernels,) = views.kernel_pieces(broken_down)
    assert kernels["of"] == "small" and kernels["top"]["share"].sum() == pytest.approx(1.0)
    (idle,) = views.idle_pieces(broken_down)
    by_split = idle["idle"].groupby("split")["ns"].sum()
    assert by_split["place"] == by_split["cause"] == broken_down.ranks[0].idle_ns
    (line,) = views.timeline_pieces(broken_down)
    assert line["span"].what.startswith("step 1 (decode")
    assert views.timeline_pieces(broken_down, step=0)[0]["span"].what.startswith("step 0 (prefill")
    assert views.timeline_pieces(broken_down, step=77) == []


def with_ranks(report: BreakdownReport, ranks: list[RankBreakdown]) -> BreakdownReport:
    return dataclasses.replace(report, passes=[dataclasses.replace(report.passes[0], ranks=ranks)])


def test_a_cpu_engine_has_pieces_of_its_own_and_no_idle_device(broken_down: BreakdownReport) -> None:
    cpu = dataclasses.replace(broken_down.ranks[0], kind="cpu", source=Path("/elsewhere/cpu.json"))
    both = with_ranks(broken_down, [*broken_down.ranks, cpu])
    assert [p["device"] for p in views.breakdown_pieces(both)] == ["GPU", "CPU"]
    assert [p["of"] for p in views.idle_pieces(both)] == ["small"]
    line = sentences.breakdown_sentences(with_ranks(both, [cpu]))
    assert "is a CPU engine" in line and "nothing of a GPU" in line and "outside operators" in line


def test_what_a_breakdown_means(broken_down: BreakdownReport) -> None:
    assert sentences.breakdown_sentences(broken_down) == (
        "- **small**, rank 0 (NVIDIA H200): a decode step takes 983 µs on average over 3 steps. "
        "Its largest part is GEMM with 61.0 %; for 8.5 % the GPU is idle."
    )


def test_a_trace_without_activity_says_so(broken_down: BreakdownReport) -> None:
    nothing = dataclasses.replace(broken_down.ranks[0], table=schema.empty("breakdown"))
    assert "no activity" in sentences.breakdown_sentences(with_ranks(broken_down, [nothing]))


@pytest.mark.parametrize(
    ("durations", "step"), [({"decode": [5, 1, 3]}, 2), ({"prefill": [9]}, 0), ({"decode": [4, 2]}, 1), ({}, None)]
)
def test_the_typical_step_is_the_median_of_decode(durations: dict[str, list[int]], step: int | None) -> None:
    rows = [(phase, d) for phase, many in durations.items() for d in many]
    steps = pd.DataFrame({"step": range(len(rows)), "phase": [p for p, _ in rows], "dur_ns": [d for _, d in rows]})
    assert views.typical_step(steps) == step


def test_points_come_by_load_and_columns_without_news_are_left_out(measured: LatencyReport) -> None:
    loads = [Load(rate=2), Load(concurrency=32), Load(concurrency=4)]
    table = points.points_table(changed(measured, *({"load": load} for load in loads)))
    assert table["load"].tolist() == ["16/5 c4", "16/5 c32", "16/5 r2"]
    assert "repeat" not in table and "failed" not in table
    repeated = points.points_table(changed(measured, {"repeat": 0}, {"repeat": 1}))
    assert repeated["repeat"].tolist() == [1, 2]


def test_workloads_that_differ_are_never_taken_for_repeats(measured: LatencyReport) -> None:
    def lengths(*changes: dict[str, Any]) -> list[str]:
        return points.named_points(changed(measured, *changes))["lengths"].tolist()

    assert lengths({"workload": "a"}, {"workload": "a"}) == ["16/5", "16/5"]
    assert lengths({"workload": "a"}, {"workload": "b"}) == ["a 16/5", "b 16/5"]
    assert lengths({"workload": "a"}, {"workload": "b", "load": Load(rate=1)}) == ["16/5", "16/5"]
    assert lengths({"data": "sharegpt"}, {}) == ["16/5 sharegpt", "16/5"]
    assert lengths({"workload": "chat", "input_len": None}) == ["chat"]


def test_a_workload_of_one_load_has_no_curve(measured: LatencyReport) -> None:
    assert len(points.throughput_pieces(measured)) == 1
    assert points.throughput_pieces(dataclasses.replace(measured, runs=measured.runs[:1])) == []


def test_values_are_compared_where_runs_share_a_load_and_colours_agree(
    measured: LatencyReport, run: Run, tmp_path: Path
) -> None:
    (alone,) = points.latency_pieces(measured)
    assert alone["of"] == "small" and list(dict.fromkeys(alone["values"]["series"])) == ["16/5 c1", "16/5 c4"]
    shutil.copytree(run.path, tmp_path / "other")
    moved = [tmp_path / "other" / m.source.relative_to(run.path) for m in measured.runs]
    other = [dataclasses.replace(m, source=at, run="other") for m, at in zip(measured.runs, moved, strict=True)]
    both = points.latency_pieces(dataclasses.replace(measured, runs=[*measured.runs, *other]))
    assert [p["of"] for p in both] == ["16/5 c1", "16/5 c4"]
    assert set(both[0]["values"]["series"]) == {"small", "other"}
    assert both[0]["colours"] == both[1]["colours"]


def test_runs_of_two_machines_never_share_a_figure_or_a_table_without_a_heading(run: Run, tmp_path: Path) -> None:
    """The same loads on a CPU: a reader who skips the first page must not take them for a slow GPU."""
    shutil.copytree(run.path, tmp_path / "on-cpu")
    manifest = msgspec.json.decode((tmp_path / "on-cpu" / "manifest.json").read_bytes())
    manifest |= {"title": "On a CPU", "hardware": {"cpu": "AMD EPYC", "cores": 2}}
    manifest["engine"] = manifest.get("engine", {}) | {"flavour": "cpu"}
    (tmp_path / "on-cpu" / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    report = latency([tmp_path / "on-cpu", run.path])
    table = points.points_table(report)
    assert list(dict.fromkeys(table["machine"])) == ["NVIDIA H200", "CPU: AMD EPYC"], "CPU engines come last"
    for pieces in (points.throughput_pieces(report), points.latency_pieces(report)):
        for piece in pieces:
            shown = piece.get("points", piece.get("values"))
            assert shown["machine"].nunique() == 1
    curves = load_views.load_pieces(report)
    assert [piece["table"]["run"].nunique() for piece in curves] == [1, 1]
    assert {piece["of"] for piece in curves} == {"16/5, CPU: AMD EPYC", "16/5, NVIDIA H200"}
    answer = answers.latency_answer(report)
    assert len(answer.sentences) == 2 and "not to be compared with a GPU" in answer.sentences[1]
    assert answer.tiles == ()


def test_requests_are_shown_of_the_point_with_most(measured: LatencyReport) -> None:
    (piece,) = points.request_pieces(measured)
    assert piece["of"] == "small, 16/5 c1" and len(piece["requests"]) == 8


def test_checks_say_of_which_point_they_are(measured: LatencyReport) -> None:
    assert {check.source for check in points.validity_checks(measured)} == {"c1", "c4"}


def test_limits_are_those_given_else_the_experiments_own(measured: LatencyReport) -> None:
    assert points.limits(measured, ttft=None, tpot=None) == {"ttft": None, "tpot": None}
    asked = changed(measured, {"slos": {"ttft_ms": 200.0}}, {"slos": {"ttft_ms": 200.0}})
    assert points.limits(asked, ttft=None, tpot=7.0) == {"ttft": 200.0, "tpot": 7.0}
    differ = changed(measured, {"slos": {"ttft_ms": 200.0}}, {})
    assert points.limits(differ, ttft=None) == {"ttft": None}


def test_what_latencies_mean(measured: LatencyReport) -> None:
    said = sentences.latency_sentences(measured)
    assert "from c1 to c4, output throughput goes from 36 to 143 tokens/s (4.0 times)" in said
    assert "median time per output token from 10.0 ms to 10.0 ms" in said
    assert said.endswith("small differences between runs say nothing.")
    repeated = changed(measured, {"repeat": 0}, {"repeat": 1})
    assert "at least 2 times" in sentences.latency_sentences(repeated)


def test_what_was_not_measured_is_said_so(measured: LatencyReport) -> None:
    unknown = [dataclasses.replace(m, metrics=m.metrics | {"tpot_ms": None}) for m in measured.runs]
    assert "from not measured to not measured" in sentences.latency_sentences(
        dataclasses.replace(measured, runs=unknown)
    )


def table(*rows: tuple[str, int, str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["run", "rank", "component", "gib"])
    return frame.assign(bytes=frame["gib"] * units.GIB, kv_cache_tokens=1000, source="log")


def test_memory_of_a_cpu_engine_is_the_hosts(run: Run) -> None:
    title = run.manifest.title
    rows = [(title, 0, "weights", 2.0), (title, 1, "weights", 2.0)]
    gpu = views.memory_table(table(*rows), [run])
    (piece,) = views.memory_pieces(gpu)
    assert piece["memory"][["run", "rank"]].values.tolist() == [["small, each of 2 ranks", 0]]
    unlike = views.memory_table(table(*rows[:1], (title, 1, "weights", 3.0), (title, 0, "kv_cache", 9.0)), [run])
    (piece,) = views.memory_pieces(unlike)
    assert piece["memory"][["run", "rank", "gib"]].values.tolist() == [
        ["small, rank 0", 0, 2.0],
        ["small, rank 1", 1, 3.0],
        ["small, rank 0", 0, 9.0],
    ]
    said = sentences.memory_sentences(gpu)
    assert said == "- **small**, on each GPU: weights 2.00 GiB. The KV cache holds 1,000 tokens."
    engine = msgspec.structs.replace(run.manifest.engine, flavour="cpu")
    host = Run(run.path, msgspec.structs.replace(run.manifest, engine=engine))
    cpu = views.memory_table(table(*rows), [host])
    assert views.memory_pieces(cpu) == []
    assert "in the memory of the host" in sentences.memory_sentences(cpu)
    nothing = views.memory_table(memory([run]), [run])
    assert views.memory_pieces(nothing) == [] and "not known" in sentences.memory_sentences(nothing)


def test_a_run_that_was_not_sampled_has_no_telemetry(run: Run) -> None:
    assert points.telemetry_pieces([run]) == []


def test_runs_in_a_folder(run: Run, tmp_path: Path) -> None:
    assert [r.path for r in views.runs_in(run.path.parent)] == [run.path]
    assert views.runs_in(tmp_path / "absent") == []
    assert views.runs_table([run]).iloc[0][["run", "points measured", "traces"]].tolist() == ["small", 2, 1]


def test_experiments_are_found_by_name_or_path_and_planned(tmp_path: Path) -> None:
    path = views.find_experiment("demo-cpu")
    assert path == views.find_experiment(path)
    with pytest.raises(InputError, match=r"no such experiment file; perflab has .*demo-cpu"):
        views.find_experiment("absent")
    steps = plan(read_experiment(path), "cpu")
    planned = views.plan_table(steps)
    assert len(planned) == len(steps.points) + len(steps.profiles)
    assert (planned["about_s"] > 0).all()
    assert views.plan_facts(steps)["points"] == str(len(steps.points))


def test_facts_of_runs_are_plain_data(run: Run) -> None:
    from perflab.report import show

    shown: list[Any] = []
    original, show._display = show._display, lambda data, **_: shown.append(data)
    try:
        show.show_runs(provenance([run]))
        show.show_trust(
            [SimpleNamespace(to_json=lambda: {"check": "c", "status": "pass", "detail": "d", "undermines": []})]
        )
    finally:
        show._display = original
    facts = dict(shown[0][show.MEDIA]["runs"][0]["facts"])
    assert facts["Hardware"].startswith("NVIDIA H200")
    assert shown[1][show.MEDIA]["checks"][0]["detail"] == "d"
