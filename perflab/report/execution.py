"""Running notebooks: strict parameters, this Python, one clear error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflab import places
from perflab.errors import InputError

_KERNEL = "python3"


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

    from perflab.report.kernel import kernel_manager

    try:
        papermill.execute_notebook(
            str(path), str(target), parameters, kernel_name=_KERNEL, language="python", progress_bar=False,
            log_output=False, kernel_manager_class=kernel_manager(scratch),
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


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
