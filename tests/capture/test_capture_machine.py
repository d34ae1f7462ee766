"""What is found out about a machine, with programs and places made for the test; nothing hangs."""

import os
import sys
import time
from pathlib import Path

import pytest

from perflab.capture import machine
from perflab.capture.machine import answers, has_hf_token, inspect_machine, loopback_port, model_cache, program, space


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_part_that_hangs_or_fails_costs_only_itself() -> None:
    started = time.monotonic()
    found, failed = answers({"good": lambda: 1, "slow": lambda: time.sleep(30), "bad": lambda: 1 / 0}, deadline_s=0.3)
    assert time.monotonic() - started < 5
    assert found == {"good": 1}
    assert failed == {"slow": "no answer within 0.3 s", "bad": "ZeroDivisionError: division by zero"}


def test_a_program_tells_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "nsys", 'echo "NVIDIA Nsight Systems version 2026.2.1.210-1"')
    monkeypatch.setenv("PATH", str(tmp_path))
    found = program("nsys", "--version")
    assert found is not None and found.on_path
    assert found.path == str(tmp_path / "nsys")
    assert found.version == "NVIDIA Nsight Systems version 2026.2.1.210-1"


def test_a_program_that_never_ends_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "child"
    script(tmp_path, "nsys", f"sleep 60 & echo $! > {pid_file}; wait")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started = time.monotonic()
    found = program("nsys", "--version", seconds=0.5)
    assert time.monotonic() - started < 5
    assert found is not None and found.problem == "did not answer within 0.5 s"
    child = int(pid_file.read_text())
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "\tZ" in (Path(f"/proc/{child}/status").read_text()):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the program's child is still alive")


def test_a_program_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "nvidia-smi", 'echo "couldn\'t communicate with the NVIDIA driver"; exit 9')
    monkeypatch.setenv("PATH", str(tmp_path))
    found = program("nvidia-smi")
    assert found is not None and found.problem == "couldn't communicate with the NVIDIA driver"
    (tmp_path / "nvidia-smi").write_text("not a program")
    assert (program("nvidia-smi") or found).problem == "Exec format error"


def test_nsys_without_its_importer_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "2026.2" / "target-linux-x64"
    own.mkdir(parents=True)
    script(own, "nsys", "echo NVIDIA Nsight Systems version 2026.2")
    (tmp_path / "nsys").symlink_to(own / "nsys")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.nsys()
    assert found is not None and "QdstrmImporter is missing" in (found.problem or "")
    (tmp_path / "2026.2" / "host-linux-x64").mkdir()
    (tmp_path / "2026.2" / "host-linux-x64" / "QdstrmImporter").touch()
    found = machine.nsys()
    assert found is not None and found.problem is None and "2026.2" in (found.version or "")


def test_no_program_on_an_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_OWN_PLACES", {"nsys": (str(tmp_path / "toolkit-*"),)})
    assert program("nsys", "--version") is None
    folder = tmp_path / "toolkit-13"
    folder.mkdir()
    script(folder, "nsys", "echo version 1")
    found = program("nsys", "--version")
    assert found is not None and not found.on_path


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_closed_folder_is_no_place_for_runs(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not space(tmp_path / "runs").writable
    tmp_path.chmod(0o700)


def test_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    found = space(tmp_path / "a" / "b")
    assert found.writable and 0 < found.free <= found.total
    assert not (tmp_path / "a").exists() and list(tmp_path.iterdir()) == []


def test_a_token_is_known_and_never_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert not has_hf_token()
    (tmp_path / "token").write_text("hf_secret")
    assert has_hf_token()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "hf_secret" not in repr(inspect_machine(tmp_path))


def test_models_in_the_cache_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--a--b").mkdir()
    (tmp_path / "datasets--a--b").mkdir()
    assert (model_cache().models, model_cache().path) == (1, str(tmp_path))


def test_this_machine(tmp_path: Path) -> None:
    found = inspect_machine(tmp_path)
    assert found.unanswered == {}
    assert found.python == sys.executable
    assert found.hardware.memory_bytes and found.loopback_port and found.runs and found.runs.writable
    assert loopback_port() > 0
    if sys.platform == "linux":
        assert found.cpu_flags and found.shm and found.open_files
    assert bool(found.hardware.gpus) == (found.nvml_problem is None)
