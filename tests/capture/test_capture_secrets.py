"""A canary through every way into a run directory: none of its files may hold it."""

import os
from types import SimpleNamespace

import msgspec
import pytest

from perflab.capture.environment import engine_environment, shown_environment
from perflab.capture.point import begun
from perflab.errors import InputError
from perflab.experiment import plan, read_experiment
from perflab.experiment.commands import serve_argv
from perflab.experiment.secrets import redact_data
from perflab.runs import SCHEMA, Command, Manifest, RunWriter, open_run
from perflab.tasks.capture_records import Manuscript

CANARY = "hf_canaryCanary42"
FILE = """\
# my token is hf_canaryCanary42
model: {id: org/name%s}
engine:
  args: {download_dir: "s3://me:hf_canaryCanary42@bucket/x"%s}
  env: {SOME_URL: "https://me:hf_canaryCanary42@host/x"}
workloads:
  - {name: w, input_lens: 8, output_lens: 8, load: {concurrency: 1}}
"""


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CANARY)
    file = tmp_path / "e.yaml"
    file.write_text(FILE % ("", ""))
    return read_experiment(file)


def test_no_file_of_a_run_holds_it(experiment, tmp_path):
    manifest = Manifest(schema=SCHEMA, id="a", title="t", origin="captured", created="", perflab_version="0")
    record = Manuscript(experiment, RunWriter(tmp_path / "run", manifest))
    writer, log = record.writer, tmp_path / "run" / "server.log"
    for name in ("server.log", "client.log", "printed.txt"):
        (writer.path / name).write_text(
            f"GET https://u:{CANARY}@hf.co\nHF_TOKEN={CANARY}\nAuthorization: Bearer {CANARY}\n"
        )
    argv = [*serve_argv(experiment, model="org/name", port=1), "--hf-token", CANARY, f"--api-key={CANARY}"]
    env = shown_environment(engine_environment(extra=experiment.engine.env), experiment.engine.env)
    server = SimpleNamespace(
        log=log, argv=argv, phases={}, settings=lambda: {"hf_token": CANARY, "a": {"b": [f"x {CANARY}"]}, "n": 1}
    )
    kept = record.server_started(server, 0, env)
    kept = record.server_ready(server, kept)
    (planned,) = plan(experiment).points
    point = msgspec.structs.replace(begun(planned), status="failed", reason=f"it said {CANARY}", printed="printed.txt")
    record.point(point, Command(purpose="p", argv=argv), env)
    record.server_ended(server, kept, f"died: https://me:{CANARY}@host")
    record.close(plan(experiment), f"because of {CANARY}")
    for file in writer.path.rglob("*"):
        if file.is_file():
            assert CANARY not in file.read_text(), file
    manifest = open_run(writer.path).manifest
    assert manifest.engine.settings == {"hf_token": "***", "a": {"b": ["x ***"]}, "n": 1}
    assert manifest.commands[0].env["HF_TOKEN"] == "***" and "***@" in manifest.commands[0].env["SOME_URL"]
    # The engine itself gets it.
    assert engine_environment()["HF_TOKEN"] == os.environ["HF_TOKEN"] == CANARY


def test_data_is_cleaned_by_value_by_name_and_by_shape():
    found = redact_data({"token": "short", "max_tokens": 5, "a": [{"url": "http://u:p@h/x"}, CANARY]}, [CANARY])
    assert found == {"token": "***", "max_tokens": 5, "a": [{"url": "http://***@h/x"}, "***"]}


@pytest.mark.parametrize("args", ["kv_transfer_config: {x: {auth_token: abc}}", "hf-token: abc", "api_key: abc"])
def test_a_secret_in_the_file_is_refused_wherever_it_stands(tmp_path, args):
    file = tmp_path / "e.yaml"
    file.write_text(FILE % ("", f", {args}"))
    with pytest.raises(InputError, match=r"e\.yaml:4: ") as refused:
        read_experiment(file)
    assert "abc" not in str(refused.value)


def test_code_of_a_model_runs_only_when_asked_for(tmp_path):
    file = tmp_path / "e.yaml"
    for more, there in (("", False), (", trust_remote_code: false", False), (", trust_remote_code: true", True)):
        file.write_text(FILE % (more, ""))
        steps = plan(read_experiment(file))
        assert ("--trust-remote-code" in steps.serve_argv) is there
        assert ("--trust-remote-code" in steps.points[0].argv) is there
    file.write_text(FILE % ("", ", trust_remote_code: true"))
    with pytest.raises(InputError, match=r"use model\.trust_remote_code"):
        read_experiment(file)
