"""Metrics of two sides compared: run values whose answer is visible, what withholds a verdict, the exit status."""

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compared_runs import write_side

from perflab import schema, terminal
from perflab.analysis.compare.metrics import MetricRow, comparison_table
from perflab.cli import main
from perflab.errors import InputError
from perflab.runs import MANIFEST
from perflab.tasks.compare import CompareReport, compare

BEFORE = [10.0, 10.1, 9.9, 10.05, 9.95]
SLOWER = [11.0, 11.1, 10.9, 11.05, 10.95]
TURNS = ([0, 20, 40, 60, 80], [10, 30, 50, 70, 90])


def by_turns(tmp_path: Path, before: list[float], after: list[float], **more: Any) -> tuple[Path, Path]:
    first = write_side(tmp_path / "before", before, minutes=TURNS[0][: len(before)], enforce_eager=False, **more)
    return first, write_side(tmp_path / "after", after, minutes=TURNS[1][: len(after)], enforce_eager=True, **more)


def row(report: CompareReport, metric: str = "tpot_p50_ms") -> MetricRow:
    return next(one for one in report.metrics if one.metric.name == metric)


def checks(report: CompareReport) -> dict[str, str]:
    return {check.check: check.status for check in report.measured.checks}


def test_ten_percent_slower_is_a_regression(tmp_path: Path) -> None:
    report = compare(*by_turns(tmp_path, BEFORE, SLOWER))
    primary = report.primary
    assert primary is not None and primary.metric.name == "tpot_p50_ms" and primary.verdict == "worse"
    assert primary.found is not None and primary.found.ratio == pytest.approx(1.1, abs=1e-3)
    assert primary.found.low is not None and 1.085 < primary.found.low < 1.09 and primary.found.n_baseline == 5
    assert checks(report)["interleaved"] == checks(report)["server_runs"] == checks(report)["drift"] == "pass"
    finding = report.metric_findings[0]
    assert finding.id == "regression" and finding.severity == "warning"
    assert finding.impact is not None and finding.impact["unit"] == "ms TPOT"
    assert finding.impact["value"] == pytest.approx(1.0, abs=0.01)
    assert "`enforce_eager`" in finding.change and "output tokens/s" in finding.evidence[-1]
    assert row(report, "output_tokens_per_s").verdict == "worse"
    assert row(report, "output_tokens_per_s").metric.better == "higher"


def test_the_other_way_round_is_an_improvement_and_the_same_engine_the_same(tmp_path: Path) -> None:
    before, after = by_turns(tmp_path, BEFORE, SLOWER)
    assert compare(after, before).metric_findings[0].id == "improvement"
    again = write_side(tmp_path / "again", [10.02, 9.98, 10.07, 9.96, 10.0], minutes=TURNS[1], enforce_eager=False)
    report = compare(before, again)
    assert report.metric_findings[0].id == "no_change" and report.gate(["undecided"]) == (0, "")


def test_proportional_metrics_are_one_hypothesis_for_holm(tmp_path: Path) -> None:
    # Every metric of these runs is a multiple of TPOT or of one over it: Holm has one hypothesis, not many.
    report = compare(*by_turns(tmp_path, BEFORE, SLOWER))
    others = [one for one in report.metrics if not one.primary and one.verdict != "withheld"]
    assert len(others) > 3
    for one in others:
        assert one.found is not None and one.adjusted == pytest.approx(one.found.p)


@pytest.mark.parametrize(("n", "interval"), [(1, False), (2, False), (3, True), (4, True)])
def test_few_runs_get_no_verdict_however_clear(tmp_path: Path, n: int, interval: bool) -> None:
    report = compare(*by_turns(tmp_path, BEFORE[:n], [2 * value for value in BEFORE[:n]]))
    primary = row(report)
    assert primary.verdict == "undecided" and primary.found is not None
    assert (primary.found.low is not None) == interval
    assert checks(report)["server_runs"] == "warn" and f"{n} run" in primary.reason
    assert report.metric_findings[0].impact is None and report.metric_findings[0].confidence == 0
    assert report.gate(["regression"])[0] == 0 and report.gate(["undecided"])[0] == 1


def test_wide_runs_are_undecided_and_say_how_many_more_would_decide(tmp_path: Path) -> None:
    report = compare(*by_turns(tmp_path, [9.0, 11.0, 10.0, 9.5, 10.5], [9.5, 11.5, 10.6, 10.0, 11.1]))
    primary = row(report)
    assert primary.verdict == "undecided" and primary.needed is not None and primary.needed > 5
    assert f"About {primary.needed - 5} runs more a side" in primary.reason and "truly as observed" in primary.reason


def test_repeats_on_one_server_count_once(tmp_path: Path) -> None:
    before, after = by_turns(tmp_path, BEFORE[:1], SLOWER[:1], repeats=6)
    report = compare(before, after)
    found = row(report).found
    assert found is not None and (found.n_baseline, found.n_candidate, found.low) == (1, 1, None)
    told = next(check for check in report.measured.checks if check.check == "server_runs")
    assert "Repeats on one server (up to 6) are averaged" in told.detail


def test_starts_of_a_server_within_one_run_count_each(tmp_path: Path) -> None:
    sides = by_turns(tmp_path, BEFORE[:1], SLOWER[:1], repeats=5)
    for side in sides:
        manifest = side / "run0" / MANIFEST
        document = json.loads(manifest.read_text())
        for number, point in enumerate(document["points"]):
            point["server_run"] = number
        manifest.write_text(json.dumps(document))
    found = row(compare(sides[0] / "run0", sides[1] / "run0")).found
    assert found is not None and (found.n_baseline, found.n_candidate) == (5, 5)


def test_sides_are_folders_lists_and_names_with_commas(tmp_path: Path) -> None:
    before, after = by_turns(tmp_path, BEFORE, SLOWER)
    runs = [before / f"run{i}" for i in range(5)]
    reports = [compare(one, after) for one in (before, runs, ",".join(map(str, runs)), [before, runs[0]])]
    assert len({row(report).found for report in reports}) == 1
    assert reports[0].baseline.name == "before" and len(reports[0].baseline.runs) == 5


def test_result_files_compare_without_run_directories(tmp_path: Path) -> None:
    sides = by_turns(tmp_path, BEFORE, SLOWER)
    loose = []
    for side in sides:
        folder = tmp_path / f"{side.name}-files"
        folder.mkdir()
        for number in range(5):
            shutil.copy(next((side / f"run{number}" / "bench").iterdir()), folder / f"start{number}.json")
        loose.append(folder)
    report = compare(*loose)
    assert row(report).verdict == "worse" and checks(report)["servers_told"] == "warn"
    for folder in loose:
        for number in range(5):
            (folder / f"start{number}.json").rename(folder / f"run={number}.json")
    found = row(compare(*loose)).found
    assert found is not None and found.n_baseline == 1  # what `vllm bench sweep` names so are repeats on one server


def test_a_copy_of_a_run_is_no_second_run(tmp_path: Path) -> None:
    before, after = by_turns(tmp_path, BEFORE[:4], SLOWER)
    shutil.copytree(before / "run0", before / "run4")
    report = compare(before, after)
    assert row(report).verdict == "withheld" and "byte for byte" in row(report).reason
    assert report.metric_findings[0].withheld
    itself = compare(after, after)
    assert row(itself).verdict == "withheld" and "compared with itself" in row(itself).reason


def test_burstiness_is_no_regression_of_the_server(tmp_path: Path) -> None:
    rate = {"points": {"load": {"rate": 8.0}}}
    before = write_side(tmp_path / "before", BEFORE, bench={"burstiness": 1.0, "request_rate": 8.0}, **rate)
    after = write_side(tmp_path / "after", SLOWER, bench={"burstiness": 0.11, "request_rate": 8.0}, **rate)
    report = compare(before, after)
    assert {one.verdict for one in report.metrics} == {"withheld"} and "burstiness" in row(report).reason
    assert report.gate(["regression"])[0] == 0


def test_other_prompts_withhold_every_verdict(tmp_path: Path) -> None:
    before = write_side(tmp_path / "before", BEFORE, bench={"total_input_tokens": 128})
    after = write_side(tmp_path / "after", SLOWER, bench={"total_input_tokens": 160})
    report = compare(before, after)
    assert {one.verdict for one in report.metrics} == {"withheld"} and "prompt tokens a request" in row(report).reason


def test_another_number_of_requests_withholds_throughput_only(tmp_path: Path) -> None:
    more = {"num_prompts": 16, "completed": 16, "total_input_tokens": 256, "total_output_tokens": 80}
    before = write_side(tmp_path / "before", BEFORE)
    report = compare(before, write_side(tmp_path / "after", SLOWER, bench=more, points={"num_prompts": 16}))
    assert row(report).verdict == "worse"
    assert row(report, "output_tokens_per_s").verdict == "withheld"


def test_failed_requests_withhold_the_verdict_with_the_run_that_has_them(tmp_path: Path) -> None:
    before = write_side(tmp_path / "before", BEFORE)
    after = write_side(tmp_path / "after", SLOWER)
    file = next((after / "run3" / "bench").iterdir())
    file.write_text(json.dumps(json.loads(file.read_text()) | {"completed": 6, "failed": 2}))
    report = compare(before, after)
    assert row(report).verdict == "withheld"


def test_runs_of_a_side_that_differ_are_no_repeats(tmp_path: Path) -> None:
    before = write_side(tmp_path / "before", BEFORE)
    after = write_side(tmp_path / "after", SLOWER)
    manifest = json.loads((after / "run2" / MANIFEST).read_text())
    manifest["engine"]["settings"]["max_num_seqs"] = 64
    (after / "run2" / MANIFEST).write_text(json.dumps(manifest))
    report = compare(before, after)
    assert row(report).verdict == "withheld" and "max_num_seqs" in row(report).reason


def test_a_point_without_a_result_is_named(tmp_path: Path) -> None:
    before, after = by_turns(tmp_path, BEFORE, SLOWER)
    manifest = json.loads((after / "run2" / MANIFEST).read_text())
    manifest["points"][0] |= {"status": "failed", "reason": "the server died", "bench": None}
    (after / "run2" / MANIFEST).write_text(json.dumps(manifest))
    report = compare(before, after)
    assert row(report).verdict == "undecided"  # four runs are left
    told = next(check for check in report.measured.checks if check.check == "all_measured")
    assert told.status == "warn" and "the server died" in told.detail


def test_one_side_after_the_other_is_said_and_a_drift_then_withholds(tmp_path: Path) -> None:
    before = write_side(tmp_path / "before", BEFORE, minutes=range(5))
    after = write_side(tmp_path / "after", SLOWER, minutes=range(10, 15))
    report = compare(before, after)
    assert checks(report)["interleaved"] == "warn" and row(report).verdict == "worse"
    assert "BBBBBCCCCC" in next(one.detail for one in report.measured.checks if one.check == "interleaved")
    # Each run a little slower than the last: what looks like a regression is the machine.
    before = write_side(tmp_path / "b2", [10.0, 10.1, 10.2, 10.3, 10.4], minutes=range(5))
    after = write_side(tmp_path / "c2", [10.5, 10.6, 10.7, 10.8, 10.9], minutes=range(10, 15))
    report = compare(before, after)
    assert checks(report)["drift"] == "fail" and row(report).verdict == "withheld"


def test_points_of_one_side_only_are_named_and_nothing_shared_is_refused_a_verdict(tmp_path: Path) -> None:
    before = write_side(tmp_path / "before", BEFORE, load=8)
    after = write_side(tmp_path / "after", SLOWER, load=32)
    report = compare(before, after)
    assert report.metrics == [] and report.primary is None
    assert checks(report)["points_matched"] == "fail"
    assert "c32" in next(one.detail for one in report.measured.checks if one.check == "points_matched")
    assert report.gate(["regression"])[0] == 2


def test_what_decides_can_be_asked_for(tmp_path: Path) -> None:
    sides = by_turns(tmp_path, BEFORE, SLOWER)
    report = compare(*sides, primary="output_tokens_per_s", point="c8")
    assert report.metrics[0].primary and report.metrics[0].metric.name == "output_tokens_per_s"
    assert "as asked" in report.measured.why
    with pytest.raises(InputError, match="tpot_p50_ms"):
        compare(*sides, primary="tpot_p42_ms")
    with pytest.raises(InputError, match="16/5 c8"):
        compare(*sides, point="c9")


def test_the_users_threshold_moves_the_verdict(tmp_path: Path) -> None:
    sides = by_turns(tmp_path, BEFORE, SLOWER)
    mine = tmp_path / "mine.toml"
    mine.write_text("[run_change]\npractical = 0.15\nwarning = 0.15\n")
    assert row(compare(*sides, thresholds=mine)).verdict == "same"


def test_the_contract_and_the_table(tmp_path: Path) -> None:
    report = compare(*by_turns(tmp_path, BEFORE, SLOWER))
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    keys = {"metric", "unit", "better", "baseline", "candidate", "ratio", "ci_low", "ci_high", "n_baseline"}
    for one in document["metrics"]:
        assert keys | {"n_candidate", "verdict"} <= set(one)
        assert one["verdict"] in ("better", "worse", "same", "undecided", "withheld")
    assert document["findings"][0]["id"] == "regression"
    assert [one["primary"] for one in document["metrics"]].count(True) == 1 and document["metrics"][0]["primary"]
    table = schema.validate(comparison_table(report.metrics), "comparison")
    assert table["verdict"].iloc[0] == "worse" and math.isnan(table["p_adjusted"].iloc[0])
    text = terminal.compare(report)
    assert "WORSE" in text and "1.100" in text and "decides" in text and "Regression" in text


def test_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, by_turns(tmp_path, BEFORE, SLOWER))
    assert main(["compare", before, after]) == 0
    assert main(["compare", before, after, "--fail-on", "regression"]) == 1
    assert "is worse" in capsys.readouterr().err
    assert main(["compare", after, before, "--fail-on", "regression", "--fail-on", "undecided"]) == 0
    few = str(write_side(tmp_path / "few", SLOWER[:2]))
    assert main(["compare", before, few, "--fail-on", "regression"]) == 0
    assert "is undecided" in capsys.readouterr().err
    assert main(["compare", before, few, "--fail-on", "undecided", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["metrics"][0]["verdict"] == "undecided"
    other = str(write_side(tmp_path / "other", SLOWER, load=2))
    assert main(["compare", before, other, "--fail-on", "regression"]) == 2
    assert main(["compare", before, after, "--primary", "nothing"]) == 2
    assert main(["compare", before, str(tmp_path / "missing")]) == 2


def test_the_guides_exercise_reads_off_the_recorded_runs() -> None:
    report = compare("llama3-70b-bf16-tp2", "llama3-70b-awq-tp2")
    one = next(r for r in report.metrics if r.metric.name == "output_tokens_per_s" and r.point == "512/128 c1")
    assert one.found is not None
    assert (f"{one.found.baseline:.1f}", f"{one.found.candidate:.1f}") == ("47.6", "70.8")
    assert one.verdict == "undecided" and one.found.low is None and "no interval" in one.reason
    assert {r.verdict for r in report.metrics} == {"undecided", "withheld"}


def test_recorded_repeats_on_one_server_are_one_run() -> None:
    report = compare("llama3-8b-tp2-nccl", "llama3-8b-tp2-custom", point="c1")
    found = row(report).found
    # Counted here: the medians of three repeats are 3.7559, 3.7663, 3.7441 and 3.5202, 3.5040, 3.5092 ms.
    assert found is not None and found.n_baseline == 1
    assert found.ratio == pytest.approx(
        (3.520224 * 3.503980 * 3.509248 / 3.755941 / 3.766252 / 3.744130) ** (1 / 3), abs=1e-6
    )


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [(SLOWER, 1, "regression: see"), (BEFORE[::-1], 0, "no regression"), (None, 2, "could")],
)
def test_the_shell_snippet_of_the_docs_works(
    root: Path, tmp_path: Path, after: list[float] | None, status: int, said: str
) -> None:
    text = (root / "docs" / "compare.md").read_text()
    snippet = text.split("Plain shell:", 1)[1].split("```sh\n", 1)[1].split("```", 1)[0]
    command = tmp_path / "bin" / "perflab"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perflab "$@"\n')
    command.chmod(0o755)
    write_side(tmp_path / "runs" / "before", BEFORE)
    if after is not None:
        write_side(tmp_path / "runs" / "after", after)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", snippet], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, said in done.stdout) == (status, True), done.stderr
    if status != 2:
        assert json.loads((tmp_path / "compare.json").read_text())["schema"] == 1


def test_the_actions_snippet_of_the_docs_is_a_workflow(root: Path) -> None:
    text = (root / "docs" / "compare.md").read_text()
    steps = yaml.safe_load(text.split("```yaml\n", 1)[1].split("```", 1)[0])["jobs"]["latency"]["steps"]
    gate = next(step["run"] for step in steps if "--fail-on" in step.get("run", ""))
    assert shlex.split(gate)[:2] == ["perflab", "compare"]
