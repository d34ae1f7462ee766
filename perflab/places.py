"""Where things that come with perflab lie: notebooks, recorded runs, experiment files.

In a checkout they stand beside the package (`notebooks/`, `data/`); in an installed wheel they are inside it.
"""

from __future__ import annotations

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
