"""What belongs together is recognised; what is not understood is named."""

import json
import shutil
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.tasks.breakdown import breakdown
from perflab.tasks.find import find_runs
from perflab.tasks.imports import import_files
from perflab.tasks.latency import latency
from perflab.tasks.provenance import provenance


@pytest.fixture
def raw(shared: Path) -> Path:
    return shared / "recordings" / "h200" / "llama3-8b-tp2"


def test_a_folder_of_a_run_becomes_a_run(raw: Path, tmp_path: Path) -> None:
    run = import_files([raw], tmp_path / "run", title="TP 2", notes=["random weights"])
    manifest = run.manifest
    assert [point.id for point in manifest.points] == ["c1", "c256", "c32", "r8", "warm"]
    assert {point.id: (point.input_len, point.output_len, point.load.label) for point in manifest.points} == {
        "c1": (512, 128, "c1"), "c32": (512, 128, "c32"), "c256": (512, 128, "c256"), "r8": (512, 128, "r8"),
        "warm": (128, 16, "c8"),
    }  # fmt: skip
    (profile,) = manifest.profiles
    assert len(profile.traces) == 2 and len(profile.frontend_traces) == 1
    assert profile.bench == "profile/torch/profiled.json", "a result under the profiler is no measurement"
    assert (manifest.engine.vllm_version, manifest.engine.flavour) == ("0.25.1", "gpu")
    assert manifest.engine.settings["tensor_parallel_size"] == 2
    assert [gpu.name for gpu in manifest.hardware.gpus] == ["NVIDIA H200", "NVIDIA H200"]
    assert manifest.created.startswith("2026-11-30T15:24")
    assert manifest.notes[0] == "random weights" and "run.json" in manifest.notes[1]
    assert provenance([run])[0].facts["Engine"] == "vLLM 0.25.1 (gpu build)"


def test_packed_is_smaller_and_says_the_same(raw: Path, tmp_path: Path) -> None:
    plain = import_files([raw], tmp_path / "plain")
    packed = import_files([raw], tmp_path / "packed", pack=True)
    size = [sum(f.stat().st_size for f in run.path.rglob("*") if f.is_file()) for run in (plain, packed)]
    assert size[1] < 0.5 * size[0]
    ours, theirs = (breakdown(run.path).ranks[0].record for run in (plain, packed))
    assert ours == theirs
    assert latency(plain.path).points["ttft_p99_ms"].tolist() == latency(packed.path).points["ttft_p99_ms"].tolist()


def test_what_is_not_understood_is_kept_and_named(tmp_path: Path, raw: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    shutil.copy(raw / "bench" / "c1.json", source)
    (source / "notes.txt").write_text("remember the milk")
    run = import_files([source], tmp_path / "run")
    assert run.manifest.other_files == ["other/notes.txt"]
    assert run.file("other/notes.txt").read_text() == "remember the milk"
    assert any("notes.txt" in note for note in run.manifest.notes)


def test_two_files_of_one_name_are_both_kept(tmp_path: Path, raw: Path) -> None:
    for folder, name in (("a", "c1.json"), ("b", "c32.json")):
        (tmp_path / folder).mkdir()
        shutil.copy(raw / "bench" / name, tmp_path / folder / "c1.json")
    run = import_files([tmp_path / "a", tmp_path / "b"], tmp_path / "run")
    assert [(point.id, point.bench) for point in run.manifest.points] == [
        ("c1", "bench/c1.json"),
        ("c1-2", "bench/c1-2.json"),
    ]


def test_failed_requests_make_a_point_partial(tmp_path: Path, raw: Path) -> None:
    result = json.loads((raw / "bench" / "c1.json").read_text()) | {"completed": 3, "failed": 1}
    (tmp_path / "x.json").write_text(json.dumps(result))
    run = import_files([tmp_path / "x.json"], tmp_path / "run")
    assert run.manifest.points[0].status == "partial"
    assert "1" in (run.manifest.points[0].reason or "")


def test_nothing_understood_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    with pytest.raises(InputError, match="nothing here is a file of a vLLM run"):
        import_files([tmp_path / "notes.txt"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_not_touched(tmp_path: Path, raw: Path) -> None:
    import_files([raw / "bench"], tmp_path / "run")
    with pytest.raises(InputError, match="not empty"):
        import_files([raw / "bench"], tmp_path / "run")


def test_recorded_runs_are_found_by_name_path_and_list() -> None:
    by_name = find_runs("llama3-8b-bf16, llama3-8b-tp2")
    assert [run.path.name for run in by_name] == ["llama3-8b-bf16", "llama3-8b-tp2"]
    assert [run.path for run in find_runs([run.path for run in by_name])] == [run.path for run in by_name]
    folder = by_name[0].path.parent
    assert len(find_runs(folder)) == len(list(folder.glob("*/manifest.json"))) >= 8
    with pytest.raises(InputError, match="no run was named"):
        find_runs([])
