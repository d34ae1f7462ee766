"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; a test is wrong or right, not slow.
settings.register_profile("perflab", deadline=None)
settings.load_profile("perflab")

ROOT = Path(__file__).resolve().parents[1]


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
