import json
from pathlib import Path

import pytest

from perflab.runs import SCHEMA, Load, Manifest, Point, RunWriter, open_run
from perflab.tasks.find import find_runs
from perflab.tasks.observed import GAUGES, TELEMETRY, observed, spans

HOUR_NS = 3_600_000_000_000


def hour(n: int) -> str:
    return f"1970-01-01T{n:02}:00:00.000+00:00"


def written(folder: Path, *points: Point, telemetry: str | None = None) -> Path:
    manifest = Manifest(schema=SCHEMA, id="x", title="x", origin="captured", created="", perflab_version="0")
    writer = RunWriter(folder / "run", manifest)
    (writer.folder("metrics") / "p.jsonl").write_text(
        json.dumps({"t_ns": 5, "text": "vllm:num_requests_running 3\nvllm:num_requests_running_more 4\nother 1\n"})
        + "\n"
    )
    if telemetry is not None:
        (writer.path / "telemetry.jsonl").write_text(telemetry)
        writer.update(telemetry="telemetry.jsonl")
    for point in points:
        writer.put_point(point)
    return writer.path


def test_gauges_and_telemetry_of_a_run_in_one_table(tmp_path: Path) -> None:
    line = json.dumps({"t_ns": 7, "metric": "gpu_power_watts", "labels": {"gpu": "0"}, "value": 99.5})
    other = json.dumps({"t_ns": 7, "metric": "gpu_throttle_reasons", "labels": {"gpu": "0"}, "value": 1})
    path = written(tmp_path, Point(id="p", workload="w", samples="metrics/p.jsonl"), telemetry=f"{line}\n{other}\n")
    table = observed(open_run(path))
    assert table[["t_ns", "metric", "value"]].values.tolist() == [
        [5, "vllm:num_requests_running", 3.0],
        [7, "gpu_power_watts", 99.5],
    ]


def test_a_run_that_was_not_sampled_has_no_rows_and_no_error(tmp_path: Path) -> None:
    path = written(tmp_path, Point(id="p", workload="w"))
    assert observed(open_run(path)).empty


def test_spans_are_when_points_ran_in_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        Point(id="b", workload="w", load=Load(rate=2), started=hour(2), ended=hour(3)),
        Point(id="a", workload="w", load=Load(concurrency=8), started=hour(0), ended=hour(1)),
        Point(id="never", workload="w", started=hour(4)),
    )
    assert spans(open_run(path)).values.tolist() == [["a", "c8", 0, HOUR_NS], ["b", "r2", 2 * HOUR_NS, 3 * HOUR_NS]]


def test_the_recorded_capture_was_sampled_during_every_point() -> None:
    (run,) = find_runs("llama3-8b-bf16-3x")
    table, when = observed(run), spans(run)
    assert {*GAUGES, *TELEMETRY} == set(table["metric"])
    assert len(when) == len(run.manifest.points) == 12
    running = table[table["metric"] == GAUGES[0]]
    for row in when.itertuples():
        inside = running[running["t_ns"].between(row.start_ns, row.end_ns)]
        assert len(inside) >= 3
    # At most 128 requests at once were sent: the engine cannot have run more.
    assert running["value"].max() == pytest.approx(128)
