"""`perflab lab`: JupyterLab, opened on the start notebook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from perflab import places

START = "00_start_here.ipynb"


def lab_command(folder: Path, extra: Sequence[str] = ()) -> list[str]:
    """The command that opens JupyterLab (this Python's, loopback only) on the start notebook in `folder`."""
    # In a container everyone is root, and JupyterLab refuses root unless told otherwise.
    as_root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    return [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", *as_root, *extra, str(folder / START)]


def notebooks_to_work_in(here: Path) -> Path:
    """The checkout's notebooks, or, for an installed perflab, a copy of them in `here` that is the user's own."""
    source = places.notebooks()
    if (source.parent / "pyproject.toml").is_file():
        return source
    copy = here / "perflab-notebooks"
    for notebook in source.rglob("*.ipynb"):
        target = copy / notebook.relative_to(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(notebook, target)
    return copy


def open_lab(extra: Sequence[str] = ()) -> int:
    """Run JupyterLab until the user stops it; returns its exit status."""
    return subprocess.run(lab_command(notebooks_to_work_in(Path.cwd()), extra), check=False).returncode
