"""Servers that run already: addresses, what answers there, and what a file may say of them."""

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from typing import ClassVar

import pytest

from perflab.capture.arriving import arriving_traces
from perflab.capture.attached import attach
from perflab.cli import main
from perflab.errors import CaptureError, InputError
from perflab.experiment import plan, read_experiment

FILE = """\
model: org/name
engine: {{url: "{url}"{more}}}
workloads:
  - {{name: w, input_lens: 8, output_lens: 8, load: {{concurrency: 1}}}}
{end}"""

OFFLINE = "  - {name: l, kind: latency, input_lens: 8, output_lens: 8, load: {concurrency: 1}}\n"


@pytest.fixture
def write(tmp_path):
    def make(url, more="", end=""):
        file = tmp_path / "e.yaml"
        file.write_text(FILE.format(url=url, more=more, end=end))
        return file

    return make


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def one_line(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    assert sum(line.startswith("perflab: ") for line in lines) == 1
    return lines[-1]


def test_a_dead_address_is_one_line_and_nothing_is_written(write, tmp_path, capsys):
    file = write(f"http://127.0.0.1:{free()}")
    assert main(["run", str(file), "-o", str(tmp_path / "run")]) == 2
    assert "nothing answers at http://127.0.0.1:" in one_line(capsys)
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_not_vllms_is_one_line_and_nothing_is_written(write, tmp_path, capsys):
    port = free()
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 20
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < end:
            time.sleep(0.05)
        assert main(["run", str(write(f"http://127.0.0.1:{port}")), "-o", str(tmp_path / "run")]) == 2
    finally:
        server.kill()
        server.wait()
    said = one_line(capsys)
    assert "is not vLLM's server (GET /version: HTTP 404)" in said and "engine.url" in said
    assert not (tmp_path / "run").exists()


def test_what_does_not_speak_http_is_not_vllm_either(write):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def greet():
            conversation, _ = listening.accept()
            conversation.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
            conversation.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(CaptureError, match="is not vLLM's server"):
            attach(read_experiment(write(f"http://127.0.0.1:{listening.getsockname()[1]}")))


class Answers(http.server.BaseHTTPRequestHandler):
    """Gives fixed answers, to test how they are taken; measuring is tested against real servers."""

    given: ClassVar[dict] = {}

    def do_GET(self):
        status, text = self.given.get(self.path, (404, ""))
        if self.path == "/v1/models" and self.headers.get("Authorization") != self.given.get("key"):
            status, text = 401, "{}"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def answering():
    started = []

    def start(**given):
        answers = {
            "/version": (200, '{"version": "0.99.1"}'),
            "/health": (200, ""),
            "/v1/models": (200, json.dumps({"data": [{"id": "served", "root": "org/name", "max_model_len": 77}]})),
            "/metrics": (
                200,
                'x 1\nvllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0"} 1.0\n',
            ),
        }
        handler = type("Handler", (Answers,), {"given": {**answers, **given}})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_the_name_settings_and_notes_are_the_servers(answering, write):
    server = attach(read_experiment(write(answering() + "/")))
    assert (server.served_name, server.version) == ("served", "0.99.1")
    assert server.settings() == {"block_size": 16, "enable_prefix_caching": True, "max_model_len": 77}
    assert server.healthy and server.is_local and not server.profiles
    notes = " ".join(server.notes({"random"}))
    assert "0.99.1" in notes and "prefix cache is on" in notes and "neither started nor changed" in notes
    assert "prefix cache is on" not in " ".join(server.notes({"prefix_repetition"}))


def test_what_is_not_known_is_said(answering, write):
    server = attach(read_experiment(write(answering(**{"/metrics": (404, ""), "/start_profile": (405, "")}))))
    assert server.settings() == {"max_model_len": 77} and server.profiles
    notes = " ".join(server.notes({"random"}))
    assert "reports no metrics" in notes and "is not known; if it is" in notes


def test_a_server_that_starts_up_or_serves_another_model_is_refused(answering, write):
    with pytest.raises(CaptureError, match=r"not well \(/health: HTTP 503\)"):
        attach(read_experiment(write(answering(**{"/health": (503, "")}))))
    models = json.dumps({"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(InputError, match=r"e.yaml:2: the server at \S+ serves a, b, not org/name"):
        attach(read_experiment(write(answering(**{"/v1/models": (200, models)}))))
    with pytest.raises(CaptureError, match="no version in the answer"):
        attach(read_experiment(write(answering(**{"/version": (200, "<html>")}))))


def test_a_key_comes_from_the_environment_only(answering, write, monkeypatch):
    url = answering(key="Bearer sesame-open-sesame")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(CaptureError, match="wants an API key: set OPENAI_API_KEY"):
        attach(read_experiment(write(url)))
    monkeypatch.setenv("OPENAI_API_KEY", "wrong-wrong-wrong")
    with pytest.raises(CaptureError, match="refuses the key") as refused:
        attach(read_experiment(write(url)))
    assert "wrong-wrong" not in str(refused.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sesame-open-sesame")
    assert attach(read_experiment(write(url))).served_name == "served"


@pytest.mark.parametrize(
    ("url", "more", "end", "says"),
    [
        ("http://me:sesame-open@127.0.0.1:8000", "", "", "holds credentials"),
        ("ftp://127.0.0.1", "", "", "write it like http://"),
        ("127.0.0.1:8000", "", "", "write it like http://"),
        ("http://127.0.0.1:99999", "", "", "is no URL"),
        ("http://127.0.0.1:8000/v1", "", "", "without a path: http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000?key=sesame", "", "", "without a path"),
        ("http://10.0.0.7:8000", "", "", "say allow_remote: true"),
        ("http://localhost.example.com:8000", "", "", "say allow_remote: true"),
        ("http://localhost:8000", ", args: {max_num_seqs: 4}", "", "runs already"),
        ("http://localhost:8000", ", startup_deadline_s: 4", "", "runs already"),
        ("http://localhost:8000", ", trace_dir: absent", "", "no such folder"),
        ("http://localhost:8000", "", "server_runs: 2\n", "runs already"),
        ("http://localhost:8000", "", "prefix_caching: true\n", "runs already"),
        ("http://localhost:8000", "", OFFLINE, "builds an engine of its own"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(write, url, more, end, says):
    with pytest.raises(InputError, match=r"e\.yaml:\d+: .*") as refused:
        read_experiment(write(url, more, end))
    assert says in str(refused.value) and "sesame" not in str(refused.value).replace("?key=sesame", "")


def test_addresses_that_are_fine(write):
    for url, more in (
        ("http://localhost:8000", ""), ("http://127.3.2.1", ""), ("http://[::1]:80/", ""),
        ("https://gpu.example.com", ", allow_remote: true"),
    ):  # fmt: skip
        experiment = read_experiment(write(url, more))
        assert experiment.engine.url == url.rstrip("/")
    steps = plan(experiment)
    assert (steps.serve_argv, steps.servers_in_all) == ((), 1)
    assert (
        steps.points[0].argv[7:9] == ("--base-url", "https://gpu.example.com") and "--port" not in steps.points[0].argv
    )


def test_only_what_arrives_meanwhile_is_copied_and_only_whole(tmp_path):
    source, incoming = tmp_path / "theirs", tmp_path / "ours"
    source.mkdir()
    incoming.mkdir()
    (source / "old.pt.trace.json").write_text("{}")
    with arriving_traces(source, incoming):
        (source / "new.pt.trace.json").write_text('{"traceEvents": [')
        time.sleep(0.8)
        assert not list(incoming.iterdir())
        (source / "new.pt.trace.json").write_text('{"traceEvents": []}')
        end = time.monotonic() + 10
        while not list(incoming.iterdir()) and time.monotonic() < end:
            time.sleep(0.05)
    assert [file.name for file in incoming.iterdir()] == ["new.pt.trace.json"]
    assert sorted(file.name for file in source.iterdir()) == ["new.pt.trace.json", "old.pt.trace.json"]
