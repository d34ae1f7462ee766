"""Figures of these tests: drawn without a window, closed afterwards, and no warning passes."""

import warnings
from collections.abc import Iterator

import matplotlib as mpl
import pytest

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _strict_and_tidy() -> Iterator[None]:
    from matplotlib import pyplot

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    pyplot.close("all")
