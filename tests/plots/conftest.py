"""Figures of these tests: drawn without a window, closed afterwards, and no warning passes."""

import gc
import warnings
from collections.abc import Iterator

import matplotlib as mpl
import pytest

mpl.use("Agg")


@pytest.fixture(autouse=True, scope="module")
def _others_are_gone() -> None:
    """What other files left behind (event loops of Jupyter, say) is cleared away before warnings are errors."""
    gc.collect()


@pytest.fixture(autouse=True)
def _strict_and_tidy() -> Iterator[None]:
    from matplotlib import pyplot

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    pyplot.close("all")
