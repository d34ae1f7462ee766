"""Nsight Systems around a server: the command that fits vLLM's processes, and what becomes of its report.

vLLM is a tree of processes, and kernels run in the lower ones. `--trace-fork-before-exec` follows children, workers
are started by spawn (a forked one would inherit a tracer in an unknown state), and the capture range is what vLLM's
`cuda` profiler opens and closes on `/start_profile` and `/stop_profile`, so that start-up is not in the report.
`--cuda-graph-trace=node` shows the kernels inside CUDA graphs, which otherwise are one block each.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path
from types import MappingProxyType

import msgspec
import psutil

from perflab.capture.engine import Server
from perflab.knowledge.installs import commands
from perflab.messages import say
from perflab.runs import Profile, RunWriter

NSYS_ENVIRONMENT = MappingProxyType({"VLLM_WORKER_MULTIPROC_METHOD": "spawn"})
_REPORT_S = 300.0
_EXPORT_S = 600.0


def nsys_argv(nsys: str, report: Path) -> list[str]:
    """The front part of the command; the server's own command follows it. `report` has no suffix."""
    return [
        nsys, "profile", "--trace=cuda,nvtx", "--trace-fork-before-exec=true", "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi", "--capture-range-end=repeat", "--sample=none", "--cpuctxsw=none",
        "--force-overwrite=true", f"--output={report}",
    ]  # fmt: skip


def export_argv(nsys: str, report: Path) -> list[str]:
    """The command that turns a report into SQLite."""
    target = report.with_suffix(".sqlite")
    return [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}", str(report)]


def end_server(server: Server, patience_s: float = _REPORT_S) -> None:
    """End the server below nsys and let nsys write its report; then end what is left."""
    with contextlib.suppress(psutil.Error):
        # Asked itself, nsys might be killed in the middle of its report. Its child is asked, and nsys follows.
        for child in psutil.Process(server.group.pid).children():
            with contextlib.suppress(psutil.Error):
                child.terminate()
    end = time.monotonic() + patience_s
    while server.running and time.monotonic() < end:
        time.sleep(0.2)
    server.stop()


def collect(writer: RunWriter, record: Profile, incoming: Path, nsys: str) -> Profile:
    """Move the reports of a pass into the run and export them; called once the server has ended.

    Where nsys wrote nothing, or cannot export, the pass is skipped and the reason holds the command to run.
    """
    reports = [file for file in sorted(incoming.glob("*.nsys-rep")) if file.stat().st_size > 0]
    folder = writer.folder(f"profile/{record.id}")
    if not reports:
        # Without its importer nsys leaves what it recorded as it is; another nsys can still read it.
        raw = [Path(shutil.move(file, folder / file.name)) for file in sorted(incoming.glob("*.qdstrm"))]
        why = say("profilers.nsys_no_importer", how=how("nsys")) if raw else say("profilers.nsys_wrote_nothing")
        return _skipped(record, why, [writer.relative(file) for file in raw])
    kept, troubles = [], []
    for report in reports:
        target = folder / report.name
        shutil.move(report, target)
        kept.append(target)
        trouble = _export(nsys, target)
        if trouble is None:
            kept.append(target.with_suffix(".sqlite"))
        else:
            troubles.append(
                say("profilers.nsys_no_export", why=trouble, command=" ".join(_shown(writer, nsys, target)))
            )
    names = [writer.relative(file) for file in kept]
    if troubles:
        return _skipped(record, troubles[0], names)
    return msgspec.structs.replace(record, reports=names)


def _shown(writer: RunWriter, nsys: str, report: Path) -> list[str]:
    return ["nsys" if part == nsys else part.replace(f"{writer.path}/", "") for part in export_argv(nsys, report)]


def _export(nsys: str, report: Path) -> str | None:
    """Why a report could not be exported; None where it was."""
    try:
        done = subprocess.run(
            export_argv(nsys, report), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_EXPORT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return say("profilers.too_long", seconds=f"{_EXPORT_S:g}")
    except OSError as error:
        return error.strerror or str(error)
    target = report.with_suffix(".sqlite")
    if done.returncode == 0 and target.is_file():
        return None
    target.unlink(missing_ok=True)
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return said[-1][:300] if said else say("profilers.status", status=done.returncode)


def _skipped(record: Profile, why: str, reports: list[str]) -> Profile:
    return msgspec.structs.replace(record, status="skipped", reason=why, reports=reports)


def absent(name: str) -> str:
    """That a tool is not there, and the commands that bring it."""
    return say("profilers.absent", name=name, how=how(name))


def how(name: str) -> str:
    """The commands that bring a tool, in one line."""
    return "; ".join(f"{tool}: {text}" for tool, text in commands(name).items())
