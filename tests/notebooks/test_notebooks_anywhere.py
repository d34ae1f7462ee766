"""Notebooks from any folder: papermill in a shell, an installed copy nobody may write to, a run of the user's own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perflab import lab, places
from perflab.capture.process import free_port
from perflab.runs import open_run
from perflab.tasks.filled import filled_notebooks
from perflab.tasks.find import find_runs
from perflab.tasks.own_files import take_in

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A run of the user's own, of a trace and results that were lying about."""
    source = places.recorded() / "llama3-8b-eager"
    (tmp_path / "in").mkdir()
    for name in ("profile", "bench"):
        shutil.copytree(source / name, tmp_path / "in" / name)
    take_in([tmp_path / "in"], tmp_path / "runs", "mine")
    return tmp_path


def shell(argv: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=800
    )


def problems(notebook: Path) -> list[str]:
    """What a notebook shows that it should not: errors, and anything on stdout or stderr."""
    cells = json.loads(notebook.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [str(output)[:300] for output in outputs if output["output_type"] in ("error", "stream")]


def shown(notebook: Path) -> str:
    return notebook.read_text()


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["02_latency_and_throughput", "03_gpu_time_breakdown"])
@pytest.mark.parametrize("how", ["-y", "-p"])
def test_papermill_from_another_folder_on_a_run_of_ones_own(mine: Path, name: str, how: str) -> None:
    given = ["-y", "runs: [runs/mine]"] if how == "-y" else ["-p", "runs", "runs/mine"]
    argv = [sys.executable, "-m", "papermill", str(FOLDER / f"{name}.ipynb"), "out.ipynb", *given, "--no-progress-bar"]
    done = shell(argv, mine)
    assert done.returncode == 0, done.stderr[-2000:]
    assert problems(mine / "out.ipynb") == []
    assert "llama3-8b-tp2" not in shown(mine / "out.ipynb").split("parameters", 1)[1].split("What ran", 1)[1]


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.timeout(900)
def test_report_from_another_folder_out_of_an_installed_copy_nobody_may_write_to(mine: Path) -> None:
    """As a wheel has it: package, notebooks and recorded runs in one folder, read-only."""
    package = mine / "site" / "perflab"
    shutil.copytree(FOLDER.parent / "perflab", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(FOLDER, package / "_notebooks", ignore=shutil.ignore_patterns("workshop"))
    shutil.copytree(places.recorded(), package / "_data" / "recorded")
    shutil.copytree(places.experiments(), package / "_data" / "experiments")
    subprocess.run(["chmod", "-R", "a-w", str(mine / "site")], check=True)
    try:
        argv = [sys.executable, "-m", "perflab", "report", "runs/mine", "-o", "out/report.html"]
        done = shell(argv, mine, PYTHONPATH=str(mine / "site"), PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stderr[-2000:]
        text = (mine / "out" / "report.html").read_text()
        assert "waits for the host" in text and str(mine) not in text
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(mine / "site")], check=True)


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.timeout(900)
def test_a_copy_with_the_run_filled_in_runs_where_it_lies(mine: Path) -> None:
    runs = [open_run(mine / "runs" / "mine")]
    made = filled_notebooks(runs, [FOLDER / "03_gpu_time_breakdown.ipynb"], mine / "runs" / "mine.notebooks")
    argv = [sys.executable, "-m", "papermill", made[0].name, "out.ipynb", "--no-progress-bar"]
    done = shell(argv, made[0].parent)
    assert done.returncode == 0, done.stderr[-2000:]
    assert problems(made[0].parent / "out.ipynb") == []


def test_a_copy_is_the_users_and_is_not_written_twice(mine: Path) -> None:
    runs = [open_run(mine / "runs" / "mine")]
    chosen = [FOLDER / "02_latency_and_throughput.ipynb", FOLDER / "03_gpu_time_breakdown.ipynb"]
    folder = mine / "runs" / "mine.notebooks"
    made = filled_notebooks(runs, chosen, folder)
    cells = json.loads(made[1].read_text())["cells"]
    parameters = "".join(next(cell["source"] for cell in cells if cell["id"] == "parameters"))
    assert parameters.startswith('runs = ["../mine"]  # names of recorded runs')
    links = [part.split(")")[0] for cell in cells for part in "".join(cell["source"]).split("](")[1:]]
    assert "02_latency_and_throughput.ipynb" in links
    assert links and all((folder / link).resolve().is_file() for link in links), links
    made[1].write_text("changed by its user")
    assert filled_notebooks(runs, chosen, folder) == made and made[1].read_text() == "changed by its user"


def test_runs_are_found_from_where_the_user_works(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine / "elsewhere").mkdir()
    monkeypatch.chdir(mine / "elsewhere")
    monkeypatch.setenv(places.WORK, str(mine))
    assert [run.path.name for run in find_runs("runs/mine")] == ["mine"]
    assert [run.path.name for run in find_runs("runs")] == ["mine"]


def test_outside_the_checkout_notebooks_are_copied_without_the_solutions(tmp_path: Path) -> None:
    folder = lab.notebooks_to_work_in(tmp_path)
    assert folder == tmp_path / "perflab-notebooks"
    assert {path.name for path in folder.rglob("*")} == {path.name for path in FOLDER.glob("*.ipynb")}
    (folder / lab.START).write_text("mine")
    assert (lab.notebooks_to_work_in(tmp_path) / lab.START).read_text() == "mine"
    assert lab.notebooks_to_work_in(FOLDER.parent) == FOLDER == lab.notebooks_to_work_in(FOLDER)


def test_notebooks_know_where_the_user_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr("perflab.lab._replace_by", lambda argv, env: asked.update(argv=argv, env=env) or 0)
    monkeypatch.chdir(tmp_path)
    assert lab.open_lab() == 0
    assert asked["env"][places.WORK] == str(tmp_path)
    assert f"--ServerApp.root_dir={tmp_path}" in asked["argv"], "runs, reports and notebooks in one tree"
    config = Path(asked["env"]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0]) / "labconfig" / "page_config.json"
    assert "announcements" in config.read_text(), "no news, no network"


@pytest.mark.skipif(os.name != "posix", reason="JupyterLab takes perflab's place where the system can do that")
def test_ended_perflab_leaves_no_jupyterlab(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perflab", "lab", "--no-browser", f"--ServerApp.port={free_port()}"]
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while "is running at" not in (tmp_path / "log").read_text() and time.monotonic() < until:
            time.sleep(0.2)
        assert "is running at" in (tmp_path / "log").read_text()
        started.terminate()
        started.wait(30)
        left = [one.pid for one in psutil.process_iter() if one.pid != started.pid and _group(one) == started.pid]
        assert left == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)


def _group(process: psutil.Process) -> int | None:
    with contextlib.suppress(ProcessLookupError, psutil.Error):
        return os.getpgid(process.pid)
    return None
