"""Runs over time: rows, changes with what explains them, and an index that is fast and never the truth."""

import json
import os
from pathlib import Path

import pytest
from small_history import write_run

from perflab import terminal
from perflab.cli import main
from perflab.errors import InputError
from perflab.tasks import history_index
from perflab.tasks.history import history
from perflab.tasks.history_index import index_of, run_folders
from perflab.tasks.latency import latency

WOBBLE = (0.3, -0.4, 0.1, -0.2, 0.4, 0.0, -0.1, 0.2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "perflab" / "history"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Sixteen runs; from the ninth on another vLLM, slower by 10 %. The number of blocks differs in every run."""
    for n in range(16):
        write_run(
            tmp_path / "runs" / f"week{n // 8}" / f"run{n:02d}", n, (400 if n < 8 else 360) + WOBBLE[n % 8] + n / 1000,
            version="0.25.1" if n < 8 else "0.32.0", num_gpu_blocks=57_000 + n, repeats=3, port=8000 + n,
            max_num_batched_tokens=8192 if n < 8 else 4096,
        )  # fmt: skip
    return tmp_path / "runs"


def test_a_row_a_run_point_and_metric_in_order_of_time(runs: Path) -> None:
    table = history(runs, ["output_tokens_per_s", "ttft_p50_ms"]).table
    assert len(table) == 32
    first = table.iloc[0]
    assert (first["run"], first["created"][:10], first["vllm_version"], first["model"]) == (
        "week0/run00", "2026-01-01", "0.25.1", "m",
    )  # fmt: skip
    assert (first["workload"], first["input_len"], first["output_len"], first["load"]) == ("closed", 16, 5, "c8")
    assert (first["metric"], first["value"], first["repeats"]) == ("output_tokens_per_s", pytest.approx(400.3), 3)
    assert table["created"].is_monotonic_increasing


def test_the_change_is_found_and_what_explains_it_comes_first(runs: Path) -> None:
    report = history(runs, ["output_tokens_per_s"])
    (series,) = report.series
    (change,) = series.found.changes
    assert change.at == 8 and series.verdict(change) == "worse"
    assert change.ratio == pytest.approx(0.9, abs=0.001)
    told = [(d.key, d.before, d.after, d.steady) for d in series.differences[0]]
    assert told == [
        ("vLLM", "0.25.1", "0.32.0", True), ("max_num_batched_tokens", 8192, 4096, True),
        ("num_gpu_blocks", 57_007, 57_008, False),
    ], "the port says where the engine is, not what it does"  # fmt: skip
    text = terminal.history(report)
    assert "worse: output_tokens_per_s of closed, 16 in, 5 out, c8" in text and "vLLM: 0.25.1 -> 0.32.0" in text
    assert "after week0/run07, from week1/run08 on (2026-01-09)" in text


def test_what_changed_a_run_beside_the_change_is_named_with_how_far(tmp_path: Path) -> None:
    for n in range(16):
        write_run(
            tmp_path / "runs" / f"run{n:02d}", n, (400 if n < 8 else 360) + WOBBLE[n % 8] + n / 1000,
            version="0.25.1" if n < 9 else "0.32.0",
        )  # fmt: skip
    report = history(tmp_path / "runs", ["output_tokens_per_s"])
    (found,) = report.series[0].differences
    assert [(d.key, d.before, d.after, d.steady, d.offset) for d in found] == [("vLLM", "0.25.1", "0.32.0", True, 1)]
    assert "vLLM: 0.25.1 -> 0.32.0 (1 run later)" in terminal.history(report)


def test_lower_is_better_for_latencies(runs: Path) -> None:
    (series,) = history(runs, ["ttft_p50_ms"]).series
    (change,) = series.found.changes
    assert change.after > change.before and series.verdict(change) == "worse"


def test_json_is_one_document(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(runs), "--json", "--metric", "output_tokens_per_s", "tpot_p50_ms"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["schema"], document["runs"], len(document["series"]), err) == (1, 16, 2, "")
    change = document["series"][0]["changes"][0]
    assert (change["last_before"], change["first_after"], change["verdict"]) == ("week0/run07", "week1/run08", "worse")
    assert change["differences"][0] == {
        "key": "vLLM",
        "before": "0.25.1",
        "after": "0.32.0",
        "steady": True,
        "offset": 0,
    }


def test_other_hardware_models_and_loads_are_other_series(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", 0, 400)
    write_run(tmp_path / "runs" / "b", 1, 400, load=32)
    path = write_run(tmp_path / "runs" / "c", 2, 100)
    text = (path / "manifest.json").read_text().replace("NVIDIA H200", "NVIDIA L4")
    (path / "manifest.json").write_text(text)
    path = write_run(tmp_path / "runs" / "d", 3, 100)
    (path / "manifest.json").write_text((path / "manifest.json").read_text().replace("/models/m", "other/place/m"))
    report = history(tmp_path / "runs", ["output_tokens_per_s"])
    found = {(s.key["hardware"], s.key["load"]): s.found.n for s in report.series}
    assert found == {("1 x NVIDIA H200", "c8"): 2, ("1 x NVIDIA H200", "c32"): 1, ("1 x NVIDIA L4", "c8"): 1}
    assert all(s.found.too_few for s in report.series)
    assert "too few" in terminal.history(report)


def test_figures_are_those_of_latency(root: Path) -> None:
    recorded = root / "data" / "recorded"
    table = history(recorded, ["ttft_p99_ms"]).table
    points = latency(recorded / "llama3-8b-bf16").points
    ours = table[table["run"] == "llama3-8b-bf16"].set_index("load")["value"]
    theirs = points[points["input_len"] == 512].set_index("load")["ttft_p99_ms"]
    for load in ("c1", "c32", "c256"):
        assert ours[load].max() if hasattr(ours[load], "max") else ours[load] == theirs[load]


def test_what_cannot_be_read_is_named(runs: Path) -> None:
    (runs / "week0" / "run03" / "manifest.json").write_text("{")
    (runs / "week0" / "run04" / "bench" / "closed-c8-n0.json").unlink()
    report = history(runs)
    said = "\n".join(report.skipped)
    assert "week0/run03: is not a valid manifest" in said and "closed-c8-n0 has no figures: names bench" in said
    assert report.runs == 16 and "Not in it" in terminal.history(report)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["history", "nope"], "nope: is not a folder of runs"),
        (["history", "."], "holds no run directory"),
        (["history", ".", "--metric", "speed"], "no such metric: speed"),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_a_run_without_figures_is_no_history(tmp_path: Path) -> None:
    path = write_run(tmp_path / "runs" / "a", 0, 400)
    (path / "bench" / "closed-c8-n0.json").write_text("{}")
    with pytest.raises(InputError, match="no run here has figures"):
        history(tmp_path / "runs")


def read_again(runs: Path) -> int:
    count = 0

    def on_read(so_far: int) -> None:
        nonlocal count
        count = so_far

    index_of(runs, on_read=on_read)
    return count


def test_only_what_changed_is_read_again(runs: Path) -> None:
    assert (read_again(runs), read_again(runs)) == (16, 0)
    manifest = runs / "week0" / "run02" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("0.25.1", "0.26.0"))
    assert read_again(runs) == 1
    assert index_of(runs).runs["week0/run02"].vllm_version == "0.26.0"
    write_run(runs / "week1" / "new", 20, 360)
    assert read_again(runs) == 1
    for file in sorted((runs / "week0" / "run02").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    (runs / "week0" / "run02").rmdir()
    assert read_again(runs) == 0 and "week0/run02" not in index_of(runs).runs


def test_a_change_of_the_same_length_is_seen_by_its_time(runs: Path) -> None:
    index_of(runs)
    manifest = runs / "week0" / "run02" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("0.25.1", "0.25.9"))
    os.utime(manifest, ns=(1, 1))
    assert index_of(runs).runs["week0/run02"].vllm_version == "0.25.9"


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "text", "older", "facts"])
def test_a_damaged_index_is_ignored(runs: Path, cache: Path, damage: str) -> None:
    whole = index_of(runs)
    (kept,) = cache.glob("*.json")
    text = kept.read_text()
    index = json.loads(text)
    kept.write_text({
        "cut": text[: len(text) // 2], "empty": "", "other": "[1, 2]", "text": "\ufffd\x00",
        "older": json.dumps(index | {"format": 0}), "facts": json.dumps(index | {"facts": {}}),
    }[damage])  # fmt: skip
    assert index_of(runs) == whole
    assert json.loads(kept.read_text()) == index, "and written anew"


def test_without_a_place_to_remember_it_works_all_the_same(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the cache should be")
    assert (read_again(runs), read_again(runs)) == (16, 16)


def test_runs_inside_runs_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    outer = write_run(tmp_path / "outer", 0, 400)
    write_run(outer / "inner", 0, 400)
    write_run(tmp_path / ".trash" / "old", 0, 400)
    assert list(run_folders(tmp_path)) == [outer]
    assert list(run_folders(outer)) == [outer] and len(index_of(outer).runs) == 1


def test_every_metric_has_a_direction() -> None:
    assert all(name.endswith(("_ms", "_per_s")) for name in history_index.METRICS)
