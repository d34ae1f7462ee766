"""Loads of recorded runs, counted again in plain Python from the files themselves."""

import dataclasses
import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from perflab.analysis.checks import Check
from perflab.cli import main
from perflab.errors import InputError
from perflab.knowledge.thresholds import own_thresholds
from perflab.read.files import read_text
from perflab.report.load_views import (
    cost_pieces,
    goodput_pieces,
    goodput_sentences,
    load_pieces,
    load_sentences,
    load_table,
    phase_pieces,
    phase_table,
    split_pieces,
    split_sentences,
)
from perflab.runs import open_run
from perflab.tasks.find import find_runs
from perflab.tasks.latency import LatencyReport, MeasuredPoint, latency
from perflab.tasks.load import load_answers

SLOS = {"ttft_ms": 500.0, "tpot_ms": 12.0}
OURS = "llama3-8b-bf16-3x"


@pytest.fixture(scope="module")
def report() -> LatencyReport:
    return latency([OURS], slos=SLOS, statistic="p90", price_per_gpu_hour=3.0)


@pytest.fixture(scope="module")
def imported() -> LatencyReport:
    return latency(["llama3-8b-fp8", "llama3-70b-bf16-tp2"], slos={"ttft_ms": 500})


def raw(measured: MeasuredPoint) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_text(measured.source)[0])
    return found


def histogram(text: str, name: str) -> tuple[float, float]:
    """Sum and count of a histogram in Prometheus text, over all labels."""
    return tuple(  # type: ignore[return-value]
        sum(float(m) for m in re.findall(rf"^vllm:{name}_{part}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
        for part in ("sum", "count")
    )


def test_goodput_is_what_vllms_loop_counts(report: LatencyReport) -> None:
    counts = []
    for measured in report.runs:
        data = raw(measured)
        good = 0
        for ttft, gaps, tokens in zip(data["ttfts"], data["itls"], data["output_lens"], strict=True):
            tpot = sum(gaps) / (tokens - 1) if tokens > 1 else 0.0
            good += ttft <= 0.5 and tpot <= 0.012
        found = measured.goodput
        assert found is not None and (found.good, found.answered) == (good, data["completed"])
        assert found.per_s == pytest.approx(good / data["duration"])
        assert measured.metrics["goodput_per_s"] == pytest.approx(found.per_s)
        counts.append(good)
    assert 0 in counts and 128 in counts, "loads that meet the objectives and loads that do not"


def test_requests_in_flight_by_their_own_times(report: LatencyReport) -> None:
    for measured in report.runs:
        data = raw(measured)
        ends = [s + t + sum(g) for s, t, g in zip(data["start_times"], data["ttfts"], data["itls"], strict=True)]
        lives = sum(end - start for start, end in zip(data["start_times"], ends, strict=True))
        span = max(ends) - min(data["start_times"])
        whole = measured.over_time.of("whole", "in_flight")
        assert whole == pytest.approx(lives / span, rel=1e-6)
        begin, end = measured.over_time.steady_from_s, measured.over_time.steady_to_s
        assert begin is not None and end is not None
        first = min(data["start_times"])
        inside = [
            t for start, t in zip(data["start_times"], data["ttfts"], strict=True) if begin <= start - first < end
        ]
        mean = measured.over_time.of("steady", "ttft_mean_ms")
        assert mean == pytest.approx(1000 * statistics.fmean(inside), rel=0.02)


def test_the_time_to_first_token_in_parts_is_the_servers(report: LatencyReport) -> None:
    run = find_runs(OURS)[0]
    for measured in report.runs:
        point = measured.point
        assert point.metrics_before is not None and point.metrics_after is not None
        before, after = (read_text(run.file(name))[0] for name in (point.metrics_before, point.metrics_after))
        means = {}
        for name in ("time_to_first_token_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"):
            (s0, n0), (s1, n1) = histogram(before, name), histogram(after, name)
            assert n1 - n0 == measured.result.completed
            means[name] = 1000 * (s1 - s0) / (n1 - n0)
        split = measured.ttft_split
        assert split is not None and split.doubts == ()
        assert split.queue_ms == pytest.approx(means["request_queue_time_seconds"])
        assert split.prefill_ms == pytest.approx(means["request_prefill_time_seconds"])
        parts = [split.part(name) or 0.0 for name in ("queue", "prefill", "front_end", "outside")]
        assert sum(parts) == pytest.approx(1000 * statistics.fmean(raw(measured)["ttfts"])), "parts make the client's"
        assert min(parts) > 0


def test_steps_of_a_point_from_the_records_themselves(report: LatencyReport) -> None:
    run = find_runs(OURS)[0]
    lines = read_text(run.file(run.manifest.step_records[0].file))[0].splitlines()
    records = [json.loads(line) for line in lines if '"generated"' in line]
    for measured in report.runs[:4]:
        data = raw(measured)
        ends = [s + t + sum(g) for s, t, g in zip(data["start_times"], data["ttfts"], data["itls"], strict=True)]
        # Both processes read CLOCK_MONOTONIC of one host.
        first, last = min(data["start_times"]) * 1e9, max(ends) * 1e9
        inside = [r for r in records if first <= r["m"] <= last]
        figures = measured.evidence.steps
        assert figures is not None
        # A record or two at the edges belong to the point by one clock and not by the other.
        assert figures.steps + figures.left_out == pytest.approx(sum(r["generated"] > 0 for r in inside), abs=2)
        assert figures.left_out >= (12 if measured.point.load.concurrency == 1 else 1) and figures.steps > 400
        tokens = sum(r["generated"] for r in inside)
        assert tokens == pytest.approx(128 * data["completed"], abs=260)
        assert figures.most_running == max(r["running"] for r in inside) == (measured.point.load.concurrency or 10)
        assert figures.most_waiting == max(r["waiting"] for r in inside)
        # Little's law at the server: queue, prefill and decode times from its histograms make its requests in flight.
        spent = sum(measured.server.means[f"request_{part}_time_seconds"] for part in ("queue", "prefill", "decode"))
        assert measured.evidence.in_flight == pytest.approx(data["completed"] / data["duration"] * spent, rel=0.04)


def test_the_knee_from_the_results_themselves(report: LatencyReport, imported: LatencyReport) -> None:
    for told in (report, imported):
        for answer in told.load:
            if answer.curve.kind == "open":
                assert answer.curve.knee.status == "too_few"
                continue
            power: dict[int, list[float]] = {}
            for measured in told.runs:
                if measured.run == answer.curve.run and measured.point.load.rate is None:
                    data = raw(measured)
                    life = data.get("mean_e2el_ms") or measured.metrics["e2el_ms"]["mean"]
                    power.setdefault(data["max_concurrency"], []).append(data["request_throughput"] / life)
            best = max(power, key=lambda load: statistics.median(power[load]))
            assert (answer.curve.knee.status, answer.curve.knee.load) == ("found", best)
    assert {answer.curve.knee.load for answer in report.load if answer.curve.kind == "closed"} == {32.0}


def test_what_limits_the_load_past_the_knee(report: LatencyReport) -> None:
    closed = next(answer for answer in report.load if answer.curve.kind == "closed")
    assert [one.cause for one in closed.reasons[128.0]] == ["compute", "token_budget"]
    assert [one.cause for one in closed.reasons[1.0]] == ["weights"]
    assert [finding.id for finding in closed.findings] == ["load_compute"]
    assert closed.limit is not None and closed.limit.breaks == "ttft_ms" and 32 < (closed.limit.load or 0) < 128
    # By hand: 200 tokens a second at 3.0 an hour.
    first = closed.curve.table.iloc[0]
    assert closed.cost is not None
    assert closed.cost["output"].iloc[0] == pytest.approx(3.0 / 3600 / first["output_tokens_per_s"] * 1e6)


def test_rates_a_gpu(imported: LatencyReport) -> None:
    table = imported.points.set_index(["run", "point"])
    for (run, _), row in table.iterrows():
        gpus = 2 if "70B" in str(run) else 1
        assert row["gpus"] == gpus
        assert row["total_tokens_per_s_per_gpu"] * gpus == pytest.approx(row["total_tokens_per_s"])
        assert row["input_tokens_per_s"] == pytest.approx(row["total_tokens_per_s"] - row["output_tokens_per_s"])


def test_a_contaminated_point_is_left_out_and_named(report: LatencyReport) -> None:
    tainted = Check("prefix_cache", "fail", "80 % from the cache")
    deltas = {"prefix_cache_queries": 10.0, "prefix_cache_hits": 8.0}
    runs = [
        dataclasses.replace(one, validity=[tainted], server=dataclasses.replace(one.server, deltas=deltas))
        if one.point.load.concurrency == 32
        else one
        for one in report.runs
    ]
    answers = load_answers(
        runs, report.points, slos={}, statistic="p99", price_per_gpu_hour=None, thresholds=own_thresholds()
    )
    closed = answers[0]
    assert closed.curve.table["load"].tolist() == ["c1", "c128"] and closed.curve.knee.status == "too_few"
    assert len(closed.curve.excluded) == 3 and "80.0 %" in closed.curve.excluded[0].why
    told = load_sentences(dataclasses.replace(report, load=answers))
    assert (
        "Left out of the curves: llama3-8b-bf16-3x c32 (80.0 % of the prompt tokens came from the prefix cache)" in told
    )


def test_views_have_what_the_report_has(report: LatencyReport, imported: LatencyReport) -> None:
    assert load_table(report)["limited by"].tolist()[2] == "compute, step's token budget"
    assert [piece["kind"] for piece in load_pieces(report)] == ["closed"], "an open loop of one load is no curve"
    assert len(goodput_pieces(report)) == len(cost_pieces(report)) == len(split_pieces(report)) == 1
    assert {str(piece["of"]) for piece in phase_pieces(report)} == {f"{OURS}, c128", f"{OURS}, r8"}
    assert phase_table(report)["part"].tolist() == ["waves", "whole", "steady", "whole"]
    assert "36.1 % is prefill" in split_sentences(report)
    assert "vLLM's" in goodput_sentences(report)
    assert split_pieces(imported) == [] and cost_pieces(imported) == []
    assert "cannot be split" in split_sentences(imported)
    assert load_sentences(imported).count("cannot be told") == 1, "without records; compute shows by the work alone"


def test_without_objectives_there_is_no_goodput_and_no_limit() -> None:
    plain = latency("llama3-8b-awq")
    assert all(measured.goodput is None for measured in plain.runs)
    assert all(answer.limit is None and answer.cost is None for answer in plain.load)
    assert goodput_pieces(plain) == [] and "slo_ttft_ms" in goodput_sentences(plain)


def test_a_folder_of_results_makes_curves_too(tmp_path: Path) -> None:
    run = find_runs("llama3-8b-fp8")[0]
    for measured in latency(run.path).runs:
        (tmp_path / f"{measured.point.id}.json").write_text(read_text(measured.source)[0])
    told = latency(tmp_path)
    assert len(told.runs) == 4 and not any(measured.evidence.steps for measured in told.runs)
    assert all(measured.gpus is None for measured in told.runs)
    json.dumps(told.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"slos": {"tps": 4}}, "tps"),
        ({"statistic": "p42"}, "p42"),
        ({"price_per_gpu_hour": -1.0}, "-1.0"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        latency("llama3-8b-awq", **asked)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["latency", "llama3-8b-fp8", "--slo", "ttft=500", "--statistic", "p90", "--price-per-gpu-hour", "3"]) == 0
    )
    told = capsys.readouterr().out
    assert "c32 *" in told and "knee between 1 and 256, best measured 32" in told and "cost/M output" in told
    assert main(["latency", "llama3-8b-fp8", "--json", "--slo", "ttft_ms=500"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["load_curves"][0]["within_slos"]["slos"] == {"ttft_ms": 500.0}
    keys = {"per_gpu", "goodput", "over_time", "ttft_split", "evidence"}
    assert all(keys <= point.keys() for point in document["runs"])
    assert main(["latency", "llama3-8b-fp8", "--slo", "speed=500"]) == 2


def test_the_run_itself_is_left_alone() -> None:
    run = find_runs(OURS)[0]
    before = sorted(p.stat().st_mtime_ns for p in run.path.rglob("*"))
    latency(OURS)
    assert sorted(p.stat().st_mtime_ns for p in run.path.rglob("*")) == before
    assert open_run(run.path).manifest == run.manifest


def test_a_damaged_record_costs_only_what_it_would_have_told(tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(find_runs("llama3-8b-tp2-custom")[0].path, copy, ignore=shutil.ignore_patterns("profile"))
    manifest = json.loads((copy / "manifest.json").read_text())
    for name, text in (("step_records", "not json\nat all\n"), ("clock", "{}"), ("telemetry", "[1]\n")):
        old = manifest[name][0]["file"] if name == "step_records" else manifest[name]
        (copy / old).unlink()
        (copy / f"{name}.txt").write_text(text)
        manifest[name] = [{"file": "step_records.txt"}] if name == "step_records" else f"{name}.txt"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    told = latency(copy)
    assert len(told.runs) == 6 and all(measured.metrics["ttft_ms"] for measured in told.runs)
    assert all(measured.evidence.steps is None for measured in told.runs)
    assert all(
        any(name in text for text in told.skipped) for name in ("step_records.txt", "clock.txt", "telemetry.txt")
    )
