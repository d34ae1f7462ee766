"""JupyterLab for tests in a browser; test files that import `browser.lab` run in one process (tests/conftest.py)."""

from collections.abc import Iterator

import pytest
from browser.lab import Lab, Server, browser
from browser.screenshots import chromium


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One JupyterLab for all tests."""
    if chromium() is None:
        pytest.skip("needs chromium or google-chrome on the path")
    with Server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="module")
def lab(lab_server: Server) -> Iterator[Lab]:
    """A browser on that JupyterLab. Not for the session: while it is open, this thread has an event loop."""
    with browser() as running:
        yield Lab(lab_server, running)
