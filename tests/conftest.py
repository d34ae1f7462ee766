"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; a test is wrong or right, not slow.
settings.register_profile("perflab", deadline=None)
settings.load_profile("perflab")

ROOT = Path(__file__).resolve().parents[1]
LONG = ("engine", "lab", "notebooks")
"""Groups that take minutes, in the order in which they are begun: what comes last should be short."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in several processes, keep together what shares fixtures or cannot share the machine.

    The tests of a file run in one process, one after the other, so that what they share is made once. All tests that
    run a real engine are one group: an engine takes memory and every core, and some of them look for its processes. So
    are those in JupyterLab, which is started once.
    """
    for item in items:
        group = next(item.iter_markers("xdist_group"), None)
        if group is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)  # stable: in a group they keep their order


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("engine") is not None:
        return "engine"
    if "lab_server" in getattr(item, "fixturenames", ()):
        return "lab"
    return item.path.relative_to(ROOT / "tests").with_suffix("").as_posix()


def _turn(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    group = mark.args[0] if mark is not None else ""
    return next((turn for turn, name in enumerate(LONG) if group.startswith(name)), len(LONG))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real files of others, kept beside the checkout and never committed."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the checkout (real files of others)")
    return folder
