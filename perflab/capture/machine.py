"""What can be found out about this machine, each part within a time limit.

Nothing here judges: `perflab.tasks.doctor` does. Every part is asked on its own thread, so that a driver, a file
system or a program that does not answer costs its part and not the rest.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pynvml

from perflab.capture.cache import cache_folder
from perflab.capture.hardware import cpu_says, hardware
from perflab.runs import Hardware

DEADLINE_S = 20.0
_PROGRAM_S = 10.0
_OWN_PLACES = {
    "nsys": ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-systems*/*/bin", "/opt/nvidia/nsight-systems*/bin"),
    "ncu": ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"),
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class Program:
    """A program: where it is, and the version it tells; `problem` where it does not run."""

    path: str
    version: str | None = None
    problem: str | None = None
    on_path: bool = True


@dataclass(frozen=True)
class Space:
    """A folder (or the nearest one above it that exists), and the room on its disk."""

    path: str
    free: int
    total: int
    writable: bool


@dataclass(frozen=True)
class ModelCache:
    """Where Hugging Face keeps models here, how many there are, and whether more can be stored."""

    path: str
    models: int
    writable: bool


@dataclass(frozen=True)
class Machine:
    """What was found; None, or empty, where it could not be found out.

    Attributes
    ----------
    cpu_flags
        Instruction sets as the kernel names them (`avx2`, `avx512f`, `amx_bf16`); None where it does not tell.
    memory_limit
        What a container allows, None without a limit.
    nvml_problem
        Why NVML does not answer, None where it does.
    counters_restricted
        Whether only administrators may read GPU performance counters, which ncu needs.
    unanswered
        Parts that gave no answer in time, or failed, and why.
    """

    python_version: str = platform.python_version()
    python: str = sys.executable
    architecture: str = platform.machine()
    hardware: Hardware = field(default_factory=Hardware)
    cpu_flags: frozenset[str] | None = None
    memory_available: int | None = None
    memory_limit: int | None = None
    nvml_problem: str | None = None
    nvidia_smi: Program | None = None
    has_kfd: bool = False
    nsys: Program | None = None
    ncu: Program | None = None
    counters_restricted: bool | None = None
    chromium: str | None = None
    loopback_port: int | None = None
    runs: Space | None = None
    cache: Space | None = None
    shm: Space | None = None
    open_files: int | None = None
    model_cache: ModelCache | None = None
    has_hf_token: bool = False
    unanswered: Mapping[str, str] = field(default_factory=dict)


def inspect_machine(folder: str | Path = ".", deadline_s: float = DEADLINE_S) -> Machine:
    """Look at the machine.

    Parameters
    ----------
    folder
        Where run directories would be made.
    deadline_s
        What has not answered by then is left out and named in `unanswered`.
    """
    runs = Path(folder).absolute()
    questions: dict[str, Callable[[], Any]] = {
        "hardware": hardware,
        "cpu_flags": cpu_flags,
        "memory_available": lambda: psutil.virtual_memory().available,
        "memory_limit": memory_limit,
        "nvml_problem": nvml_problem,
        "nvidia_smi": lambda: program("nvidia-smi", "--version"),
        "has_kfd": lambda: Path("/dev/kfd").exists(),
        "nsys": nsys,
        "ncu": lambda: program("ncu", "--version"),
        "counters_restricted": counters_restricted,
        "chromium": chromium,
        "loopback_port": loopback_port,
        "runs": lambda: space(runs),
        "cache": lambda: space(cache_folder("doctor").parent),
        "shm": lambda: space(Path("/dev/shm")) if Path("/dev/shm").is_dir() else None,
        "open_files": open_files,
        "model_cache": model_cache,
        "has_hf_token": has_hf_token,
    }
    found, unanswered = answers(questions, deadline_s)
    return Machine(**{name: value for name, value in found.items() if value is not None}, unanswered=unanswered)


def answers(questions: Mapping[str, Callable[[], Any]], deadline_s: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Ask all at once; what has answered by the deadline, and why the rest has not."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            found[name] = question()
        except Exception as error:  # one part must not take the others along
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]

    threads = {
        name: threading.Thread(target=ask, args=(name, question), daemon=True, name=f"doctor-{name}")
        for name, question in questions.items()
    }
    until = time.monotonic() + deadline_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    late = {name: f"no answer within {deadline_s:g} s" for name, thread in threads.items() if thread.is_alive()}
    # A late thread may still write: what is handed out is a copy.
    return {name: value for name, value in dict(found).items() if name not in late}, dict(failed) | late


def cpu_flags() -> frozenset[str] | None:
    """Instruction sets of the first CPU, None where the system does not tell (macOS)."""
    said = cpu_says("flags", "Features")
    return None if said is None else frozenset(said.split())


def memory_limit() -> int | None:
    """The container's memory limit in bytes, None without one."""
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(place).read_text(encoding="utf-8"))
            return limit if limit < psutil.virtual_memory().total else None
    return None


def nvml_problem() -> str | None:
    """Why NVML finds no GPU, None where it finds one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return str(error)
    try:
        return None if pynvml.nvmlDeviceGetCount() else "the driver answers, but shows no GPU"
    except pynvml.NVMLError as error:
        return str(error)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def program(name: str, *arguments: str, seconds: float = _PROGRAM_S) -> Program | None:
    """A program on the PATH or at the usual place of its installer, asked for its version; None where there is none."""
    on_path = shutil.which(name)
    path = on_path or _in_own_place(name)
    if path is None:
        return None
    status, said = _run([path, *arguments], seconds)
    lines = [line.strip() for line in said.splitlines() if any(letter.isdigit() for letter in line)]
    version = next((line for line in lines if "version" in line.lower()), lines[0] if lines else None)
    if status is None:
        return Program(path, problem=f"did not answer within {seconds:g} s", on_path=on_path is not None)
    if status != 0:
        why = (said.strip().splitlines() or [f"exit status {status}"])[-1][:200]
        return Program(path, problem=why, on_path=on_path is not None)
    return Program(path, version=version, on_path=on_path is not None)


def nsys() -> Program | None:
    """Nsight Systems; one without its importer (minimal installs) records what it cannot turn into a report."""
    found = program("nsys", "--version")
    if found is None or found.problem is not None:
        return found
    folder = Path(found.path).resolve().parent
    # Elsewhere than in its own folder stands a script, which does not tell.
    if folder.name.startswith("target-") and not any(folder.parent.glob("host-*/QdstrmImporter")):
        return replace(found, problem="its QdstrmImporter is missing, so it records but cannot make a report")
    return found


def _in_own_place(name: str) -> str | None:
    for place in _OWN_PLACES.get(name, ()):
        for folder in sorted(Path("/").glob(place.lstrip("/")), reverse=True):
            if found := shutil.which(name, path=str(folder)):
                return found
    return None


def _run(argv: list[str], seconds: float) -> tuple[int | None, str]:
    """Exit status (None: it had to be stopped) and output; its whole process group ends with it."""
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return 127, f"{error.strerror or error}"
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if status is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)  # a process stuck in the kernel does not end; it is left
        out.seek(0)
        return status, out.read(100_000).decode("utf-8", errors="replace")


def counters_restricted() -> bool | None:
    """Whether the NVIDIA driver keeps performance counters for administrators; None without its parameters."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/driver/nvidia/params").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "RmProfilingAdminOnly":
                return value.strip() == "1" and os.geteuid() != 0
    return None


def chromium() -> str | None:
    """A Chromium or Chrome on the PATH, or the one that playwright brought."""
    if found := next((path for name in _BROWSERS if (path := shutil.which(name))), None):
        return found
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    root = Path(given) if given not in ("", "0") else Path.home() / ".cache" / "ms-playwright"
    return next((str(path) for path in sorted(root.glob("chromium*/*/*")) if path.name in ("chrome", "Chromium")), None)


def loopback_port() -> int:
    """A free port on 127.0.0.1 that a client of this machine reaches."""
    with socket.socket() as listening:
        listening.settimeout(2.0)
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        port = int(listening.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=2.0):
            return port


def space(folder: Path) -> Space:
    """Room and write access where `folder` is or would be made."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(place)
    return Space(str(folder), usage.free, usage.total, _can_write(place))


def _can_write(folder: Path) -> bool:
    """Tried, not asked: permissions alone do not tell of read-only mounts, quotas or full disks."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".perflab-doctor-") as file:
            file.write(b"x")
    except OSError:
        return False
    return True


def open_files() -> int | None:
    """How many files (and connections) a process may have open, None without a limit."""
    import resource  # not on Windows

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else int(limit)


def model_cache() -> ModelCache:
    """The model cache of huggingface_hub, by its environment variables."""
    home = os.environ.get("HF_HOME") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    )
    place = Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or Path(home) / "hub")
    models = sum(1 for path in place.glob("models--*") if path.is_dir()) if place.is_dir() else 0
    return ModelCache(str(place), models, space(place).writable)


def has_hf_token() -> bool:
    """Whether Hugging Face would be asked with a token; the token itself is not looked at."""
    if any(os.environ.get(name) for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")):
        return True
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_TOKEN_PATH") or home / "token").is_file()
