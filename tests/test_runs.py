import json
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.runs import Load, Manifest, Point, RunWriter, open_run


def manifest(**changes: object) -> Manifest:
    return Manifest(
        schema=1, id="a", title="A run", origin="captured", created="2026-01-01T00:00:00+00:00",
        perflab_version="0", **changes,
    )  # fmt: skip


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest())
    writer.put_point(Point(id="p", workload="w", load=Load(concurrency=8), num_prompts=4))
    writer.put_point(Point(id="p", workload="w", load=Load(concurrency=8), num_prompts=4, status="complete"))
    writer.note("random weights")
    writer.note("random weights")
    writer.update(status="complete")
    run = open_run(tmp_path / "run")
    assert run.manifest == writer.manifest
    assert [p.status for p in run.manifest.points] == ["complete"]
    assert run.manifest.notes == ["random weights"]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["manifest.json"], "no temporary file stays"


def test_a_run_is_readable_from_its_first_moment(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", manifest())
    assert open_run(tmp_path / "run").manifest.status == "running"


def test_keys_of_a_later_perflab_are_ignored(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest())
    file = writer.path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "invented_later": 1}))
    assert open_run(writer.path).manifest.title == "A run"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a valid manifest"),
        ('{"schema": 1}', "missing required field"),
        ("\udcff".encode("utf-8", "surrogateescape"), "not a valid manifest"),
    ],
)
def test_a_bad_manifest_is_refused_in_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    file = tmp_path / "manifest.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=says) as caught:
        open_run(tmp_path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest())
    file = writer.path / "manifest.json"
    file.write_text(file.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(InputError, match="schema 99, newer"):
        open_run(writer.path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        open_run(tmp_path)


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", manifest())
    with pytest.raises(InputError, match="not empty"):
        RunWriter(tmp_path / "run", manifest())


def test_files_stay_inside_the_run(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest())
    (tmp_path / "secret").write_text("x")
    run = open_run(writer.path)
    with pytest.raises(InputError, match="outside the run directory"):
        run.file("../secret")
    with pytest.raises(InputError, match="missing"):
        run.file("bench/p.json")


@pytest.mark.parametrize(
    ("load", "label"),
    [
        (Load(), "inf"),
        (Load(concurrency=8), "c8"),
        (Load(rate=2.5), "r2.5"),
        (Load(concurrency=8, rate=2), "c8-r2"),
    ],
)
def test_load_labels(load: Load, label: str) -> None:
    assert load.label == label
