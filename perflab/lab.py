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
_CONFIG = Path(__file__).resolve().parent / "lab_config"


def lab_command(folder: Path, root: Path, extra: Sequence[str] = ()) -> list[str]:
    """The command that opens JupyterLab (this Python's, loopback only) on the start notebook in `folder`.

    It shows `root` and what lies below: notebooks, runs and reports alike, or links from one to the other lead nowhere.
    """
    # In a container everyone is root, and JupyterLab refuses root unless told otherwise.
    as_root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    told = [f"--ServerApp.root_dir={root}", "--ServerApp.ip=127.0.0.1", *as_root]
    return [sys.executable, "-m", "jupyterlab", *told, *extra, str(folder / START)]


def notebooks_to_work_in(here: Path) -> Path:
    """The checkout's notebooks where `here` lies in it; else a copy of them in `here` that is the user's own.

    The workshop is not among them: `perflab workshop new` makes a folder of exercises, without the solutions.
    """
    source = places.notebooks()
    if (source.parent / "pyproject.toml").is_file() and here.resolve().is_relative_to(source.parent):
        return source
    copy = here / "perflab-notebooks"
    copy.mkdir(parents=True, exist_ok=True)
    for notebook in source.glob("*.ipynb"):
        if not (target := copy / notebook.name).exists():
            shutil.copyfile(notebook, target)
    return copy


def open_lab(extra: Sequence[str] = ()) -> int:
    """Run JupyterLab until the user stops it; returns its exit status.

    Where the system can, JupyterLab takes the place of this process, so that what ends the one ends the other.
    """
    here = Path.cwd()
    folder = notebooks_to_work_in(here)
    work = folder.parent if here.resolve() == folder.resolve() else here
    # JupyterLab's own news would ask the network, and the user, before anything else.
    paths = [str(_CONFIG), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    environment = {**os.environ, places.WORK: str(work), "JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}
    return _replace_by(lab_command(folder, folder.parent, extra), environment)


def _replace_by(command: list[str], environment: dict[str, str]) -> int:
    if os.name == "posix":
        sys.stdout.flush()
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode
