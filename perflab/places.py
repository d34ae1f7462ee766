"""Where things that come with perflab lie: notebooks, recorded runs, experiment files.

In a checkout they stand beside the package (`notebooks/`, `data/`); in an installed wheel they are inside it.
"""

from __future__ import annotations

import os
from pathlib import Path

from perflab.errors import InputError

_PACKAGE = Path(__file__).resolve().parent


def _place(in_checkout: str, in_wheel: str) -> Path:
    for folder in (_PACKAGE.parent / in_checkout, _PACKAGE / in_wheel):
        if folder.is_dir():
            return folder
    raise InputError(f"perflab was installed without its {in_checkout}; reinstall it")


def notebooks() -> Path:
    """The folder of the notebooks."""
    return _place("notebooks", "_notebooks")


def recorded() -> Path:
    """The folder of the recorded runs."""
    return _place("data/recorded", "_data/recorded")


def experiments() -> Path:
    """The folder of the experiment files that come with perflab."""
    return _place("data/experiments", "_data/experiments")


def studies() -> Path:
    """The folder of the quantization studies that come with perflab."""
    return _place("data/studies", "_data/studies")


WORK = "PERFLAB_WORK"
"""Names the folder the user works in; `perflab lab` sets it for the notebooks it opens."""


def work() -> Path:
    """The folder the user works in: runs and reports go below it.

    What `PERFLAB_WORK` names; else the current directory, or the one above where that is the folder of the notebooks.
    """
    named = os.environ.get(WORK)
    if named and Path(named).is_dir():
        return Path(named)
    here = Path.cwd()
    return here.parent if (here / "00_start_here.ipynb").is_file() else here
