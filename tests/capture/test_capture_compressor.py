"""The environment of llm-compressor: which one counts, and what is said where there is none."""

import sys

import pytest

from perflab.capture.compressor import PYTHON_VARIABLE, environment_folder, last_line, ready_compressor, why_ended
from perflab.errors import CaptureError


def test_a_named_python_without_it_is_refused(monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    with pytest.raises(CaptureError, match="cannot import llm-compressor") as caught:
        ready_compressor()
    assert PYTHON_VARIABLE in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_that_is_no_program(monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")
    with pytest.raises(CaptureError, match="/nowhere/python"):
        ready_compressor()


def test_the_environment_lies_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = environment_folder()
    assert found.parent == tmp_path / "perflab" and found.name.startswith("quantize-env-")
    assert found == environment_folder()


def test_a_finished_environment_is_taken_as_it_is(monkeypatch, tmp_path):
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = environment_folder()
    folder.mkdir(parents=True)
    (folder / "perflab-ready.json").write_text("{}")
    said: list[str] = []
    found = ready_compressor(said.append)
    assert found.python == str(folder / "bin" / "python") and found.ours and not said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("loading\nValueError: no such layer\nbye", "ValueError: no such layer"),
        ("loading 1%\rloading 2%\nend", "end"),
        ("", "no message"),
    ],
)
def test_the_line_that_tells_the_error(text, told):
    assert last_line(text) == told


def test_a_killed_program_is_said_to_be_killed(tmp_path):
    log = tmp_path / "log"
    log.write_text("WARNING: something else")
    assert why_ended(-9, "was killed by SIGKILL", log) == "it was killed by SIGKILL"
    assert why_ended(1, "ended with status 1", log) == "WARNING: something else"
