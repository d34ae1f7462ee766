"""Running notebooks: strict parameters, this Python, one clear error."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflab import places
from perflab.errors import InputError

_KERNEL = "python3"
_LONGEST_SOCKET = 90
"""Paths of local sockets may have about 100 characters; perflab's have a few more than the connection file's."""


def find_notebook(name: str | Path) -> Path:
    """A notebook by path, or by the name of one that comes with perflab (`02_latency_and_throughput`, or `02`).

    Raises
    ------
    InputError
        When there is none; the message lists those there are.
    """
    path = Path(name)
    if path.is_file():
        return path
    ours = sorted(places.notebooks().glob("*.ipynb"))
    found = [p for p in ours if str(name) in (p.name, p.stem, p.stem.split("_")[0])]
    if len(found) == 1:
        return found[0]
    raise InputError(f"no such notebook; perflab has {', '.join(p.stem for p in ours)}", path=name)


def parameters_of(notebook: str | Path) -> dict[str, str]:
    """Names and defaults (as source text) of a notebook's parameters; empty where it takes none."""
    import papermill

    path = find_notebook(notebook)
    try:
        found = papermill.inspect_notebook(str(path))
    except (ValueError, KeyError, json.JSONDecodeError) as error:
        raise InputError(f"is not a notebook papermill can read: {error}", path=path) from error
    return {name: str(detail["default"]) for name, detail in found.items()}


def execute(notebook: str | Path, parameters: Mapping[str, Any] | None = None, out: str | Path | None = None) -> Path:
    """Run a notebook with parameters and write it, with its outputs, to `out`.

    It runs in this Python, wherever a kernel named python3 may point, in the current directory, and without the
    user's IPython profile, so that it gives the same on every machine.

    Parameters
    ----------
    notebook
        Path, or name of one that comes with perflab.
    parameters
        Values for names in its cell tagged `parameters`. Paths become text.
    out
        Where to write the executed notebook (default: `<name>.executed.ipynb` here).

    Raises
    ------
    InputError
        When a parameter is unknown (the message lists the known ones), or when a cell fails (it names notebook and
        cell). The notebook as far as it came is then in `out`.
    """
    path = find_notebook(notebook)
    given = {name: _plain(value) for name, value in (parameters or {}).items()}
    known = parameters_of(path)
    if unknown := sorted(set(given) - set(known)):
        names = ", ".join(known) or "none"
        raise InputError(f"unknown parameter {', '.join(unknown)}; this notebook takes: {names}", path=path)
    target = Path(out) if out is not None else Path(f"{path.stem}.executed.ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perflab-kernel-") as scratch:
        _run(path, target, given, Path(scratch))
    return target


def _run(path: Path, target: Path, parameters: dict[str, Any], scratch: Path) -> None:
    import nbclient.exceptions
    import papermill
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            str(path), str(target), parameters, kernel_name=_KERNEL, language="python", progress_bar=False,
            log_output=False, kernel_manager_class=_kernel_manager(scratch),
        )  # fmt: skip
    except PapermillExecutionError as error:
        source = next((line.strip() for line in error.source.splitlines() if line.strip()), "")
        raise InputError(
            f"cell {error.cell_index + 1} (`{source}`) failed: {error.ename}: {_one_line(error.evalue)}; "
            f"the notebook as far as it came is in {target}",
            path=path,
        ) from error
    except (nbclient.exceptions.DeadKernelError, nbclient.exceptions.CellTimeoutError, RuntimeError) as error:
        raise InputError(
            f"the notebook's Python ended early: {_one_line(str(error))}; what it wrote is in {target}", path=path
        ) from error


def _kernel_manager(scratch: Path) -> type:
    """A kernel manager whose only kernel is this Python: no kernel needs to be registered anywhere."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    spec = KernelSpec(
        argv=[sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python 3", language="python", interrupt_mode="signal",
        env={"IPYTHONDIR": str(scratch), "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )  # fmt: skip

    class ThisPython(AsyncKernelManager):
        """Starts the running interpreter, and talks to it through files only this user can open."""

        def __init__(self, **kwargs: Any) -> None:
            file = str(scratch / "kernel.json")
            local = sys.platform != "win32" and len(file) < _LONGEST_SOCKET
            super().__init__(**{**kwargs, "connection_file": file, "transport": "ipc" if local else "tcp"})

        @property
        def kernel_spec(self) -> KernelSpec:
            return spec

        async def _async_interrupt_kernel(self) -> None:
            # A kernel is interrupted before it is asked to end; an idle one may complain of that on stderr.
            if not self.shutting_down:
                await super()._async_interrupt_kernel()

    return ThisPython


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
