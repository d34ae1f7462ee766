"""The Python that has llm-compressor, apart from the engine's: the two pin different versions of what they share.

It is what `$PERFLAB_LLMCOMPRESSOR_PYTHON` names, else an environment in perflab's cache, made when it is first needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflab.capture.cache import cache_folder, write_whole
from perflab.capture.environment import HOSTED, engine_environment
from perflab.capture.hardware import hardware
from perflab.capture.process import Group
from perflab.errors import CaptureError
from perflab.messages import say

PYTHON_VARIABLE = "PERFLAB_LLMCOMPRESSOR_PYTHON"
# Versions that were tried together; torch's CPU build is not on PyPI, so the plain one is what is asked for last.
LLMCOMPRESSOR = "llmcompressor==0.14.0.1"
TORCH = "2.13.0"
_TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Built for another torch they break the import of transformers, and nothing here needs them.
_BREAKING = ("torchvision", "torchaudio")
_READY = "perflab-ready.json"
_TRY = "import llmcompressor, llmcompressor.modifiers.gptq, transformers"


@dataclass(frozen=True)
class Compressor:
    """A Python that can make checkpoints; `ours` says whether perflab made its environment."""

    python: str
    ours: bool

    def run(self, job: Mapping[str, Any], folder: Path, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """Make one checkpoint as `hosted/make_checkpoint.py` describes; its log stays in `folder`.

        Raises
        ------
        CaptureError
            With the last error of its log.
        """
        file, log = folder / f"{name}.job.json", folder / f"{name}.log"
        file.write_text(json.dumps(job), encoding="utf-8")
        env = engine_environment(offline=True, extra={"LOGURU_LEVEL": "WARNING", "TOKENIZERS_PARALLELISM": "false"})
        with Group([self.python, str(HOSTED / "make_checkpoint.py"), str(file)], env, log) as group:
            while group.wait(1.0) is None:
                tick()
            status, ending = group.exit_status, group.ending
        if status != 0 or not Path(str(job["facts"])).is_file():
            raise CaptureError(say("quantize_make.failed", name=name, why=why_ended(status, ending, log), log=log.name))


def ready_compressor(said: Callable[[str], None] = lambda _: None) -> Compressor:
    """The Python that has llm-compressor; `said` hears what is being done where it has to be made first.

    An environment whose making was cut short is made again; parts that pip has downloaded are not downloaded twice.

    Raises
    ------
    CaptureError
        The named Python has none, or the environment cannot be made.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        python = shutil.which(str(Path(named).expanduser()))
        if python is None or _broken(python) is not None:
            why = "" if python is None else _broken(python)
            raise CaptureError(say("quantize_make.named_python", python=named, variable=PYTHON_VARIABLE, why=why))
        return Compressor(str(Path(python).absolute()), False)
    folder = environment_folder()
    python = str(folder / "bin" / "python")
    if not (folder / _READY).is_file():
        _make(folder, python, said)
    return Compressor(python, True)


def environment_folder() -> Path:
    """Where perflab's own environment lies, or will: another set of versions lies elsewhere."""
    wanted = [LLMCOMPRESSOR, TORCH, *map(str, sys.version_info[:3]), _flavour()]
    return cache_folder("") / f"quantize-env-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]}"


def _flavour() -> str:
    return "gpu" if hardware().gpus else "cpu"


def _make(folder: Path, python: str, said: Callable[[str], None]) -> None:
    if folder.exists():
        said(say("quantize_make.again", folder=folder))
        shutil.rmtree(folder)
    said(say("quantize_make.making", folder=folder))
    _checked([sys.executable, "-m", "venv", str(folder)])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    said(say("quantize_make.torch", version=TORCH))
    if _flavour() == "gpu":
        _checked([*pip, f"torch=={TORCH}"])
    else:
        cpu = f"torch=={TORCH}+cpu"
        if _tried([*pip, cpu]) and _tried([*pip, cpu, "--index-url", _TORCH_CPU_INDEX]):
            _checked([*pip, f"torch=={TORCH}"])
    said(say("quantize_make.compressor", package=LLMCOMPRESSOR))
    _checked([*pip, LLMCOMPRESSOR])
    if _broken(python) is not None:
        _tried([python, "-m", "pip", "--disable-pip-version-check", "-q", "uninstall", "-y", *_BREAKING])
    if (why := _broken(python)) is not None:
        raise CaptureError(say("quantize_make.broken", package=LLMCOMPRESSOR, why=why))
    write_whole(folder / _READY, json.dumps({"llmcompressor": LLMCOMPRESSOR, "torch": TORCH}))


def _broken(python: str) -> str | None:
    """Why llm-compressor cannot be imported there; None where it can."""
    env = engine_environment(offline=True)
    done = subprocess.run(
        [python, "-c", _TRY], env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return None if done.returncode == 0 else last_line(done.stderr)


def _tried(command: Sequence[str]) -> str | None:
    """Run a command; None where it went well, else the last line of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return None if done.returncode == 0 else last_line(done.stderr)


def _checked(command: Sequence[str]) -> None:
    if (why := _tried(command)) is not None:
        what = " ".join(Path(command[0]).name if i == 0 else part for i, part in enumerate(command))
        raise CaptureError(say("quantize_make.command_failed", command=what, why=why, variable=PYTHON_VARIABLE))


def why_ended(status: int | None, ending: str, log: Path) -> str:
    """Why a program came to nothing: the signal that killed it, else the last line of its log that tells an error."""
    if status is not None and status < 0:
        return f"it {ending}"
    return last_line(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else "no message"


def last_line(text: str) -> str:
    """The last line that names an error, else the last line."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line.split(": ")[0] or line.startswith("the ")]
    return (errors or lines or ["no message"])[-1][:400]
