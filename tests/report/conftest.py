"""What tests of the report share: a small run."""

import pytest
from small_runs import small_run

from perflab.runs import Run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run written by hand, in whose names there is HTML."""
    return small_run(tmp_path_factory.mktemp("runs"))
