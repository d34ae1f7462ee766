"""Groups of processes, with real processes that do not want to end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from perflab.capture.process import Group, Interrupted, ends_on_signals, free_port
from perflab.errors import CaptureError
from perflab.runs import SCHEMA, Manifest, Point, Profile, RunWriter, as_ended, open_run

# A program with a child, a grandchild, and a grandchild that leaves the session; all of them ignore SIGTERM
# if told to. It writes every pid to the file named first.
STUBBORN = """
import os, signal, subprocess, sys, time
file, depth, stubborn = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "stubborn"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
with open(file, "a") as out:
    out.write(f"{os.getpid()}\\n")
if depth:
    for leave in ([False, True] if depth == 1 else [False]):
        subprocess.Popen([sys.executable, __file__, file, str(depth - 1), sys.argv[3]], start_new_session=leave)
time.sleep(600)
"""


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids_of(file, count):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"only {found} came up")


@pytest.fixture
def tree(tmp_path):
    """Starts the program; ends whatever a failing test leaves."""
    script, file = tmp_path / "stubborn.py", tmp_path / "pids"
    script.write_text(STUBBORN)
    pids = []

    def start(kind):
        group = Group([sys.executable, str(script), str(file), "2", kind], os.environ, tmp_path / "log", grace_s=0.3)
        pids.extend(pids_of(file, 4))
        # The one that leaves the session is noticed while it still has a parent in the group.
        assert len(group.members()) == 4
        return group, pids

    yield start
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_group_that_ignores_sigterm_is_ended_to_the_last_process(tree):
    group, pids = tree("stubborn")
    assert group.running and all(map(alive, pids))
    begin = time.monotonic()
    assert group.stop() is False
    assert time.monotonic() - begin < 10
    assert not any(map(alive, pids))
    assert group.exit_status == -signal.SIGKILL


def test_a_group_whose_program_ends_when_asked_leaves_no_children_either(tree):
    group, pids = tree("polite")
    group.stop()
    assert not any(map(alive, pids))
    assert group.exit_status == -signal.SIGTERM


def test_children_of_a_program_that_died_are_ended(tree):
    group, pids = tree("stubborn")
    os.kill(group.pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while group.running and time.monotonic() < end:
        time.sleep(0.02)
    assert not group.running and any(map(alive, pids))
    group.stop()
    assert not any(map(alive, pids))


def test_leaving_the_block_by_an_exception_ends_the_group(tree):
    group, pids = tree("stubborn")
    with pytest.raises(KeyboardInterrupt), group:
        raise KeyboardInterrupt
    assert not any(map(alive, pids))


def test_stopping_twice_is_fine(tmp_path):
    group = Group([sys.executable, "-c", "pass"], os.environ)
    assert group.wait(20) == 0
    group.stop()
    group.stop()
    assert group.exit_status == 0


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(CaptureError, match="cannot start"):
        Group([str(tmp_path / "absent")], os.environ)


HOLDER = """
import sys, time, os
from pathlib import Path
from perflab.capture.process import Group, Interrupted, ends_on_signals
try:
    with ends_on_signals(), Group([sys.executable, *sys.argv[1:5]], os.environ):
        time.sleep(600)
except Interrupted as stopped:
    Path(sys.argv[5]).write_text(str(stopped))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_perflab_ends_the_engine(tmp_path, number):
    script, file, said = tmp_path / "stubborn.py", tmp_path / "pids", tmp_path / "said"
    script.write_text(STUBBORN)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(script), str(file), "1", "polite", str(said)])
    try:
        pids = pids_of(file, 3)
        holder.send_signal(number)
        assert holder.wait(timeout=60) == 0
        assert said.read_text() == signal.Signals(number).name
        assert not any(map(alive, pids))
    finally:
        holder.kill()


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with ends_on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_free_port_can_be_listened_on():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = free_port()
        assert port != taken.getsockname()[1]
        with socket.socket() as ours:
            ours.bind(("127.0.0.1", port))


MANIFEST = Manifest(schema=SCHEMA, id="a", title="t", origin="captured", created="", perflab_version="0")
KILLED = """
import os, sys, time
from pathlib import Path
from perflab.capture.process import Group
from perflab.runs import SCHEMA, Manifest, Point, RunWriter
keys = {"schema": SCHEMA, "id": "a", "title": "t", "origin": "captured", "created": "", "perflab_version": "0"}
writer = RunWriter(sys.argv[1], Manifest(**keys))
writer.put_point(Point(id="first", workload="w", status="complete"))
writer.put_point(Point(id="second", workload="w"))
log = writer.path / "server.log"
log.write_text("token is " + os.environ["A_TOKEN"] + "\\n")
group = Group([sys.executable, *sys.argv[2:]], os.environ, log, run=writer.path, grace_s=0.3)
time.sleep(600)
"""


@pytest.fixture
def killed(tmp_path):
    """A perflab in the middle of a run, with a tree of processes below it."""
    script, file, code = tmp_path / "stubborn.py", tmp_path / "pids", tmp_path / "killed.py"
    script.write_text(STUBBORN)
    code.write_text(KILLED)
    env = {**os.environ, "A_TOKEN": "sesame-open-sesame"}
    holder = subprocess.Popen(
        [sys.executable, str(code), str(tmp_path / "run"), str(script), str(file), "2", "stubborn"], env=env
    )
    pids = pids_of(file, 4)
    yield holder, pids, tmp_path / "run"
    for pid in (holder.pid, *pids):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    holder.wait()


def until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def test_when_perflab_is_killed_everything_below_ends_and_the_run_is_closed(killed):
    holder, pids, run = killed
    assert open_run(run).manifest.status == "running"
    holder.kill()
    holder.wait()
    # Before the supervisor is done, a reader is told the truth as well.
    assert open_run(run).manifest.status == "partial"
    assert until(lambda: not any(map(psutil.pid_exists, pids)))
    assert until(lambda: json.loads((run / "manifest.json").read_text()).get("status", "running") != "running")
    manifest = open_run(run).manifest
    assert (manifest.status, manifest.process) == ("partial", None)
    assert "perflab was killed" in manifest.reason
    assert [(point.id, point.status) for point in manifest.points] == [("first", "complete"), ("second", "failed")]
    assert until(lambda: "***" in (run / "server.log").read_text())
    assert "sesame" not in (run / "server.log").read_text()
    # What perflab would have written is still what a manifest is.
    assert msgspec.json.decode((run / "manifest.json").read_bytes(), type=Manifest) == manifest


def test_a_run_that_is_over_is_not_closed_again(tmp_path):
    from perflab.capture.hosted import supervise

    writer = RunWriter(tmp_path / "run", MANIFEST)
    writer.update(status="complete")
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    supervise.close_run(str(tmp_path / "run"), "no")
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before
    assert not (tmp_path / "run" / ".reserve").exists()


def test_the_supervisor_closes_a_run_as_a_reader_would_show_it(tmp_path):
    from perflab.capture.hosted import supervise

    writer = RunWriter(tmp_path / "run", MANIFEST)
    for name, status in (("a", "complete"), ("b", "partial"), ("c", "running"), ("d", "skipped")):
        writer.put_point(Point(id=name, workload="w", status=status))
    writer.put_profile(Profile(id="p"))
    shown = as_ended(writer.manifest, "because")
    supervise.close_run(str(tmp_path / "run"), "because")
    assert open_run(tmp_path / "run").manifest == shown
    nothing = RunWriter(tmp_path / "nothing", MANIFEST)
    supervise.close_run(str(tmp_path / "nothing"), "because")
    assert open_run(tmp_path / "nothing").manifest == as_ended(nothing.manifest, "because")
    assert open_run(tmp_path / "nothing").manifest.status == "failed"


def test_when_the_supervisor_is_killed_the_program_ends_and_perflab_ends_the_rest(tree):
    group, pids = tree("stubborn")
    group.process.kill()
    assert until(lambda: not alive(pids[0]))
    assert any(map(alive, pids))
    group.stop()
    assert not any(map(alive, pids))
    assert group.exit_status == -signal.SIGKILL


def test_what_a_program_leaves_when_it_ends_is_ended_and_reaped(tree):
    group, pids = tree("stubborn")
    os.kill(pids[0], signal.SIGKILL)
    assert until(lambda: not group.running, 3.0)
    # Nobody had to ask, and no zombie is left for a container's idle init.
    assert until(lambda: not any(map(psutil.pid_exists, pids)))
    assert group.ending == "was killed by SIGKILL"
    group.stop()


def test_the_exit_status_is_the_programs(tmp_path):
    for code, status in (("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 11)", -11), ("pass", 0)):
        group = Group([sys.executable, "-c", code], os.environ)
        assert group.wait(20) == status
        group.stop()
        assert group.process.returncode == status


def test_input_and_output_of_a_piped_program_end_when_it_does(tmp_path):
    code = "import sys; print(sys.stdin.readline().upper(), end='', flush=True); sys.stdin.read()"
    with Group([sys.executable, "-c", code], os.environ, tmp_path / "log", piped=True) as group:
        group.process.stdin.write(b"hello\n")
        group.process.stdin.flush()
        assert group.process.stdout.readline() == b"HELLO\n"
        group.process.stdin.close()
        assert group.process.stdout.read() == b""
        assert group.wait(20) == 0
