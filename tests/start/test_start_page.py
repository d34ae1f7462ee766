"""The start page on a user's own files, operated by its controls; the report is a real one."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perflab import places
from perflab.runs import is_run, open_run
from perflab.start.page import OwnFiles

TRACE = "profile/steps/rank0.pt.trace.json.xz"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace as a user has it: a file somewhere, with a name that is no one's idea of safe."""
    run = open_run(places.recorded() / "llama3-8b-eager")
    source = run.file(run.manifest.profiles[0].traces[0])
    target = tmp_path / "in" / f"my trace <b>{''.join(source.suffixes[-2:])}"
    target.parent.mkdir()
    shutil.copyfile(source, target)
    return target


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFiles:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(places.WORK, str(tmp_path))
    return OwnFiles(tmp_path / "runs", tmp_path / "reports")


def test_it_offers_what_lies_near_and_says_what_it_is(trace: Path, page: OwnFiles) -> None:
    page.search()
    ((label, _),) = page.near.options
    assert label.startswith("in/my trace <b>") and "torch profiler" in label
    page.near.value = (0,)
    assert "torch profiler" in page.what.value and not page.go.disabled
    assert page.name.value == "my-trace-b"


def test_a_path_typed_is_looked_at_at_once_and_completed(trace: Path, page: OwnFiles) -> None:
    page.path.value = "in/my"
    assert page.go.disabled and "no such file" in page.what.value
    assert [Path(option).name for option in page.path.options] == [trace.name]
    page.path.value = "in/my*"
    assert not page.go.disabled and "torch profiler" in page.what.value


def test_own_trace_broken_down_and_the_original_left_alone(trace: Path, page: OwnFiles, tmp_path: Path) -> None:
    before = trace.read_bytes()
    page.path.value = str(trace)
    page.go.click()
    assert trace.read_bytes() == before
    assert is_run(tmp_path / "runs" / "my-trace-b") and page.run is not None
    assert "Where the time goes" in page.answer.value and "<svg" in page.answer.value
    trust, answer = page.answer.value.index('class="trust"'), page.answer.value.index("<svg")
    assert trust < answer, "trust before the answer"
    assert "waits for the host" in page.answer.value, "the finding of an eager engine"
    assert "<b>.pt" not in page.answer.value + page.said.value, "names are escaped"
    notebook = tmp_path / "runs" / "my-trace-b.notebooks" / "03_gpu_time_breakdown.ipynb"
    assert 'runs = [\\"../my-trace-b\\"]' in notebook.read_text()
    assert "03_gpu_time_breakdown.ipynb" in page.deeper.outputs[0]["data"]["text/markdown"]
    page.go.click()
    assert is_run(tmp_path / "runs" / "my-trace-b-2"), "a second time makes a second run"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")) == []


@pytest.mark.notebooks
def test_the_report_is_saved_and_never_over_another(trace: Path, page: OwnFiles, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "my-trace-b.html").write_text("mine")
    page.path.value = str(trace)
    page.go.click()
    page.save.click()
    assert page.saving is not None
    page.saving.join()
    saved = tmp_path / "reports" / "my-trace-b-2.html"
    assert "Saved the report" in page.saved.value, page.saved.value
    assert (tmp_path / "reports" / "my-trace-b.html").read_text() == "mine"
    assert "<h1" in saved.read_text() and saved.name in page.links.outputs[0]["data"]["text/markdown"]
    assert not page.save.disabled


def test_what_is_no_run_of_vllm_is_said_in_a_line(page: OwnFiles, tmp_path: Path) -> None:
    for name, content in {
        "x.json": b'{"a": 1}',
        "y.json.gz": b"\x1f\x8b broken",
        "z.log": b"",
        "p.png": b"\x89PNG",
    }.items():
        (tmp_path / name).write_bytes(content)
        page.path.value = str(tmp_path / name)
        assert page.go.disabled and "Nothing here tells of a run" in page.what.value, name
        assert "Traceback" not in page.what.value
    page.path.value = str(tmp_path / "nothing-there.json")
    assert page.go.disabled and "no such file" in page.what.value


def test_a_run_directory_is_opened_and_not_imported(page: OwnFiles, tmp_path: Path) -> None:
    page.path.value = str(places.recorded() / "llama3-8b-fp8")
    assert "is a run directory" in page.what.value
    page.go.click()
    assert "Opened run" in page.said.value and not list((tmp_path / "runs").glob("llama3*[!s]"))
    assert "How fast it was" in page.answer.value and "Where the time goes" in page.answer.value
    made = sorted(path.name for path in (tmp_path / "runs" / "llama3-8b-fp8.notebooks").iterdir())
    assert made[:2] == ["02_latency_and_throughput.ipynb", "03_gpu_time_breakdown.ipynb"]


def test_an_upload_is_kept_apart_and_taken_in(trace: Path, page: OwnFiles, tmp_path: Path) -> None:
    page.upload.value = ({
        "name": "../../up.pt.trace.json.xz", "type": "", "size": 1, "content": memoryview(trace.read_bytes()),
        "last_modified": datetime(2026, 1, 2, tzinfo=UTC),
    },)  # fmt: skip
    kept = list((tmp_path / "runs" / "uploads").rglob("*.xz"))
    assert len(kept) == 1 and kept[0].name == "up.pt.trace.json.xz"
    page.go.click()
    assert is_run(tmp_path / "runs" / "up")


def test_a_fault_of_ours_is_one_line_too(trace: Path, page: OwnFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: object) -> None:
        raise ValueError("inside <x>")

    monkeypatch.setattr("perflab.start.page.answers", fail)
    page.path.value = str(trace)
    page.go.click()
    assert "fault of perflab" in page.said.value and "inside &lt;x&gt;" in page.said.value
    assert not page.go.disabled
