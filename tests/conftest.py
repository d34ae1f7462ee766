"""What all tests share."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from perflab.capture.probe import engine_python, has_vllm
from perflab.errors import PerflabError

# How long an example takes depends on what else the machine does; a test is wrong or right, not slow.
settings.register_profile("perflab", deadline=None)
settings.load_profile("perflab")

ROOT = Path(__file__).resolve().parents[1]
LONG = ("engine", "lab", "notebooks")
"""Groups that take minutes, in the order in which they are begun: what comes last should be short."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run in several processes (`--dist loadfile`), keep together what cannot share the machine, too.

    The tests of a file run in one process, one after the other, so that what they share is made once. Files that run a
    real engine are one group: an engine takes memory and every core, and some of them look for its processes. So are
    those in JupyterLab, which is started once.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(ROOT / nodeid.partition("::")[0])

    return ByGroup(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long groups first; in a group tests keep their order."""
    items.sort(key=lambda item: next((n for n, name in enumerate(LONG) if _group(item.path).startswith(name)), 9))


@cache
def _group(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if "mark.engine" in text:
        return "engine"
    return "lab" if "from browser.lab import" in text else file.relative_to(ROOT / "tests").as_posix()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def vllm() -> str:
    """A Python that has vLLM: what tests with a real engine need."""
    try:
        python = engine_python()
    except PerflabError as error:
        pytest.skip(str(error))
    if not has_vllm(python):
        pytest.skip(f"vLLM is not installed in {python}; name a Python that has it in PERFLAB_VLLM_PYTHON")
    return python


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real files of others, kept beside the checkout and never committed."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the checkout (real files of others)")
    return folder
