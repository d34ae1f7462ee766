"""Files that are not what one would like: results in one file, copies, damage, run directories, any bytes."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_runs import bench, kineto, small_run

from perflab.errors import InputError
from perflab.runs import open_run
from perflab.tasks.imports import import_files
from perflab.tasks.imports.copying import safe_name
from perflab.tasks.latency import latency


def write(path: Path, what: object) -> Path:
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    return path


def other(concurrency: int, **changes: object) -> dict[str, object]:
    return bench(concurrency) | changes


def test_json_lines_are_a_point_each(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(other(c, date=f"20261130-15000{c}")) for c in (1, 2, 4))
    run = import_files([write(tmp_path / "all.jsonl", lines)], tmp_path / "run")
    assert [(p.id, p.load.concurrency) for p in run.manifest.points] == [("all-1", 1), ("all-2", 2), ("all-3", 4)]
    assert latency(run.path).points["concurrency"].tolist() == [1, 2, 4], "each point reads its own result"


def test_a_cut_last_line_costs_only_itself(tmp_path: Path) -> None:
    lines = (
        json.dumps(other(1)) + "\n" + json.dumps(other(2, date="20261130-150009")) + "\n" + json.dumps(other(4))[:90]
    )
    run = import_files([write(tmp_path / "all.jsonl", lines)], tmp_path / "run")
    assert [p.load.concurrency for p in run.manifest.points] == [1, 2]


def test_repeats_are_numbered_in_time(tmp_path: Path) -> None:
    for name, second, duration in (("b", 1, 1.0), ("a", 2, 1.1), ("c", 3, 1.2)):
        write(tmp_path / f"{name}.json", other(4, date=f"20261130-15000{second}", duration=duration))
    run = import_files(sorted(tmp_path.glob("*.json")), tmp_path / "run")
    assert {p.id: p.repeat for p in run.manifest.points} == {"b": 0, "a": 1, "c": 2}


def test_other_conditions_are_no_repeats(tmp_path: Path) -> None:
    write(tmp_path / "a.json", other(4))
    write(tmp_path / "b.json", other(4, variant="fp8", duration=1.5))
    write(tmp_path / "c.json", other(4, model_id="m2", duration=1.6))
    run = import_files(sorted(tmp_path.glob("*.json")), tmp_path / "run")
    assert [p.repeat for p in run.manifest.points] == [0, 0, 0]


def test_one_measurement_in_two_files_counts_once_and_the_detailed_one_is_kept(tmp_path: Path) -> None:
    detailed = bench(4)
    plain = {key: value for key, value in detailed.items() if not isinstance(value, list)}
    write(tmp_path / "a.json", plain)
    write(tmp_path / "b.json", detailed)
    run = import_files([tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "run")
    assert [p.id for p in run.manifest.points] == ["b"]
    assert run.manifest.other_files == ["other/a.json"]
    assert "the same measurements as b.json" in run.manifest.notes[0]


def test_a_summary_that_has_more_than_the_runs_gives_the_rest(tmp_path: Path) -> None:
    runs = [other(4, run_number=n, duration=1.0 + n, max_num_seqs=8) for n in range(3)]
    folder = tmp_path / "SERVE--max_num_seqs=8-BENCH--short"
    folder.mkdir()
    write(folder / "run=0.json", runs[0])
    write(folder / "summary.json", runs)
    run = import_files([folder], tmp_path / "run")
    assert [(p.id, p.repeat) for p in run.manifest.points] == [(f"max_num_seqs=8-short-n{n}", n) for n in range(3)]
    assert len(latency(run.path).points) == 3


def test_a_sweep_over_server_settings_is_warned_of(tmp_path: Path) -> None:
    for size in (4, 8):
        folder = tmp_path / f"SERVE--max_num_seqs={size}-BENCH--short"
        folder.mkdir()
        write(folder / "run=0.json", other(4, run_number=0, max_num_seqs=size, duration=float(size)))
    run = import_files([tmp_path], tmp_path / "run")
    assert {p.workload: p.server_run for p in run.manifest.points} == {
        "max_num_seqs=4, short": 0, "max_num_seqs=8, short": 1,
    }  # fmt: skip
    assert any("WARNING: a sweep over server settings" in note for note in run.manifest.notes)


PRINTED = """============ Serving Benchmark Result ============
Successful requests:                     8
Benchmark duration (s):                  {duration}
Total generated tokens:                  40
"""


def test_console_text_goes_with_its_result(tmp_path: Path) -> None:
    duration = bench(4)["duration"]
    write(tmp_path / "x.out", PRINTED.format(duration=f"{duration:.2f}"))
    write(tmp_path / "y.out", PRINTED.format(duration="99.00"))
    write(tmp_path / "x.json", bench(4))
    run = import_files([tmp_path / name for name in ("x.out", "y.out", "x.json")], tmp_path / "run")
    points = {point.id: point for point in run.manifest.points}
    assert points["x"].printed == "bench/x.out"
    assert (points["y.out"].bench, points["y.out"].printed) == ("bench/y.out", None), "nothing else holds its figures"
    assert run.manifest.other_files == [] and run.manifest.notes == []


def test_ranks_that_overlap_are_one_pass_and_later_traces_another(tmp_path: Path) -> None:
    for name, rank, shift in (("a", 0, 0), ("b", 1, 0), ("c", 0, 60_000_000_000)):
        trace = kineto()
        trace["distributedInfo"] |= {"rank": rank, "world_size": 2}
        trace["baseTimeNanoseconds"] += shift
        write(tmp_path / f"{name}.json", trace)
    manifest = import_files(sorted(tmp_path.glob("*.json")), tmp_path / "run").manifest
    names = [[Path(trace).name for trace in profile.traces] for profile in manifest.profiles]
    assert names == [["a.json", "b.json"], ["c.json"]]


def test_a_damaged_result_is_kept_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "good.json", bench(1))
    write(tmp_path / "cut.json", json.dumps(bench(4))[:-30])
    manifest = import_files([tmp_path / "good.json", tmp_path / "cut.json"], tmp_path / "run").manifest
    assert [p.id for p in manifest.points] == ["good"] and manifest.other_files == ["other/cut.json"]
    assert "cut.json" in manifest.notes[0] and "JSON" in manifest.notes[0]


def test_a_run_directory_brings_its_points_profiles_and_notes(tmp_path: Path) -> None:
    first = small_run(tmp_path, "first")
    write(tmp_path / "more.json", other(8, date="20261130-160000"))
    second = import_files([first.path, tmp_path / "more.json"], tmp_path / "second")
    assert [p.id for p in second.manifest.points] == [*(p.id for p in first.manifest.points), "more"]
    assert [p.id for p in second.manifest.profiles] == ["torch"]
    assert second.manifest.notes == first.manifest.notes and second.manifest.hardware == first.manifest.hardware
    assert second.manifest.engine == first.manifest.engine and second.manifest.created == first.manifest.created
    assert second.manifest.other_files == [], "the manifest is not a file of its own"
    assert len(latency(second.path).points) == 3


def test_a_captured_run_can_be_imported(root: Path, tmp_path: Path) -> None:
    there = open_run(root / "data" / "recorded" / "llama3-8b-bf16-3x")
    again = import_files([there.path], tmp_path / "run")
    assert [(p.id, p.repeat, p.seed) for p in again.manifest.points] == sorted(
        (p.id, p.repeat, p.seed) for p in there.manifest.points
    )
    assert again.manifest.engine.settings["num_gpu_blocks"] == there.manifest.engine.settings["num_gpu_blocks"]
    ours, theirs = (latency(path).points.sort_values("point") for path in (again.path, there.path))
    assert ours["ttft_p99_ms"].tolist() == theirs["ttft_p99_ms"].tolist()


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        import_files([tmp_path / "pipe"], tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files"):
        import_files([tmp_path / "empty"], tmp_path / "run")


def test_names_no_manifest_could_hold(tmp_path: Path) -> None:
    write(tmp_path / "good.json", bench(1))
    strange = Path(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe.bin"))
    strange.write_bytes(b"\x00\x01")
    manifest = import_files([tmp_path / "good.json", strange], tmp_path / "run").manifest
    assert "\\xff\\xfe.bin" in manifest.notes[0]
    assert len(manifest.other_files) == 1 and (tmp_path / "run" / manifest.other_files[0]).read_bytes() == b"\x00\x01"


SECRETS = """INFO 11-30 15:22:11 [a.py:1] non-default args: {'api_key': ['top-secret-1'], 'hf_token': None}
vllm serve m --api-key top-secret-2 --max-num-batched-tokens 512
HF_TOKEN=top-secret-3 max_tokens=4 eos_token='<|end|>'
curl -H "Authorization: Bearer top-secret-4" https://user:top-secret-5@host/x
hf_AbCdEfGhIjKlMnOpQrStUv
"""


@pytest.mark.parametrize("pack", [False, True])
def test_secrets_in_what_others_recorded_are_not_kept(tmp_path: Path, pack: bool) -> None:
    from perflab.read.files import read_text

    write(tmp_path / "server.log", SECRETS)
    write(tmp_path / "note.md", "password: 'top-secret-6'")
    write(tmp_path / "a.json", bench(4) | {"api_key": "top-secret-7"})
    run = import_files([tmp_path / name for name in ("server.log", "note.md", "a.json")], tmp_path / "run", pack=pack)
    everything = "".join(read_text(file)[0] for file in run.path.rglob("*") if file.is_file())
    assert "top-secret" not in everything and "hf_AbC" not in everything
    assert "--max-num-batched-tokens 512" in everything and "max_tokens=4 eos_token='<|end|>'" in everything
    assert "'hf_token': None" in everything, "nothing is hidden where there is nothing"
    assert sum("were replaced" in note for note in run.manifest.notes) == 3
    assert latency(run.path).points["concurrency"].tolist() == [4]


def test_half_a_surrogate_pair_is_told_as_it_is_written(tmp_path: Path) -> None:
    result = bench(4) | {
        "model_id": "m\ud800",
        "dataset_name": "d\udcff",
        "run_number": 0,
        "_benchmark_name": "b\ud800",
    }
    write(tmp_path / "a.json", result)
    (point,) = import_files([tmp_path / "a.json"], tmp_path / "run").manifest.points
    assert (point.id, point.data) == ("b\\ud800-n0", "d\\udcff")


def test_packing_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    import lzma

    write(tmp_path / "good.json", bench(1))
    (tmp_path / "blob").write_bytes(bytes(range(256)))
    manifest = import_files([tmp_path / "good.json", tmp_path / "blob"], tmp_path / "run", pack=True).manifest
    assert lzma.decompress((tmp_path / "run" / manifest.other_files[0]).read_bytes()) == bytes(range(256))


PIECES = st.sampled_from([
    b"", b"{", b"}", b'{"completed": 1, "duration": null}', b'[{"ph": "X"}]', b'{"traceEvents": []}', b"\x1f\x8b",
    b"\xfd7zXZ\x00",
    b"SQLite format 3\x00", b"INFO 11-30 15:22:11 [core.py:1] x", b"# TYPE a gauge\na 1\n",
    b'{"avg_latency": 1, "latencies": []}',
    b'{"schema": 1, "perflab_version": "0"}', b'{"architectures": 1}', b"= Serving Benchmark Result =\n",
    b"\xff\xfe", b"[[]]",
    b'{"t_ns": 1, "metric": "m", "value": 1}', b"PK\x03\x04", b"NaN", b"1e999",
])  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=60), PIECES), min_size=1, max_size=4), st.booleans())
@example([b'{"schema": 1, "perflab_version": "0"}'], True)
def test_any_bytes_are_kept_or_refused(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], pack: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "manifest.json").write_bytes(b"".join(parts))
    try:
        import_files([folder / "manifest.json"], folder / "alone", pack=pack)
    except InputError as error:
        assert "\n" not in str(error)
    write(folder / "good.json", bench(1))
    manifest = import_files([folder / "manifest.json", folder / "good.json"], folder / "run", pack=pack).manifest
    assert "good" in [point.id for point in manifest.points]
    kept = [p for p in (folder / "run").rglob("*") if p.is_file()]
    assert len(kept) >= 2, "the manifest and the good result at least"


@given(st.text(max_size=300))
def test_names_are_safe(name: str) -> None:
    safe = safe_name(name)
    assert safe and "/" not in safe and not safe.startswith(".") and len(safe.encode(errors="replace")) <= 200
