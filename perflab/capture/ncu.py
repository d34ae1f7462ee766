"""Nsight Compute on a few kernels, in an engine of its own.

ncu runs every chosen launch many times over, once per group of counters, so nothing about it is a latency. The engine
is an offline one without CUDA graphs (a launch inside a graph cannot be replayed by itself), see `hosted/ncu_host.py`.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perflab.analysis.log.remedies import explained
from perflab.capture.environment import HOSTED
from perflab.capture.probe import Probe
from perflab.capture.process import Group
from perflab.experiment.commands import without_graphs
from perflab.experiment.plan import PlannedProfile
from perflab.experiment.spec import Experiment
from perflab.knowledge.installs import commands
from perflab.messages import say
from perflab.runs import Command, Profile, RunWriter, now

_IMPORT_S = 300.0
_TICK_S = 0.5
# One process, so that the kernels run where the counters are switched on; no pool of compilers to follow.
_KV_CACHE = 2 << 30
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


@dataclass(frozen=True)
class Ncu:
    """What is needed to run it: the program, and the kernels by their bare names."""

    program: str
    kernels: Sequence[str]


def bare_name(name: str) -> str:
    """A kernel's name as ncu's `--kernel-name-base function` has it: no type, namespace, template, parameters."""
    kept, depth = [], 0
    # `(anonymous namespace)::` is part of a name, not of its parameters.
    for letter in name.replace("(anonymous namespace)::", "").strip():
        if letter in "<([":
            if depth == 0 and letter == "(":
                break
            depth += 1
        elif letter in ">)]":
            depth -= 1
        elif depth == 0:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1].rpartition("::")[2] if words else ""


def ncu_argv(ncu: Ncu, report: Path, launches: int) -> list[str]:
    """The front part of the command; the program to profile follows it. `report` has no suffix."""
    pattern = "|".join(re.escape(name) for name in ncu.kernels)
    return [
        ncu.program, "--target-processes", "all", "--profile-from-start", "off", "--kernel-name-base", "function",
        "--kernel-name", f"regex:^({pattern})$", "--launch-count", str(launches),
        "--filter-mode", "per-launch-config", "--set", "basic", "--section", "MemoryWorkloadAnalysis",
        "--force-overwrite", "--export", str(report),
    ]  # fmt: skip


def run_ncu(
    experiment: Experiment,
    probe: Probe,
    writer: RunWriter,
    planned: PlannedProfile,
    record: Profile,
    ncu: Ncu,
    *,
    model: str,
    local: bool,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Profile, Command]:
    """Profile the kernels; a failure is an outcome, not an exception."""
    folder = writer.folder(f"profile/{record.id}")
    report, printed = folder / record.id, folder / "ncu.txt"
    task = folder / "task.json"
    spec = planned.spec
    arguments = {
        # ncu saves and restores device memory around each pass; with the card full it has to go to the host: seen on an
        # H200, minutes a kernel. The few requests of this pass need no more cache than this.
        "kv_cache_memory_bytes": _KV_CACHE,
        **without_graphs(experiment).engine.args,
        "model": model,
        "enable_prefix_caching": experiment.prefix_caching,
        "trust_remote_code": experiment.model.trust_remote_code,
    }
    asked = {"llm": arguments, "input_len": spec.input_len, "output_len": spec.output_len, "prompts": spec.num_prompts}
    task.write_bytes(msgspec.json.encode(asked))
    argv = [*ncu_argv(ncu, report, spec.launches), probe.python, str(HOSTED / "ncu_host.py"), str(task)]
    env = {**probe.engine_environment(offline=local, extra=experiment.engine.env), **_ENVIRONMENT}
    started = now()
    deadline_s = experiment.point_deadline_s + _IMPORT_S
    with Group(argv, env, printed, run=writer.path) as group:
        end = time.monotonic() + deadline_s
        while group.running and time.monotonic() < end:
            tick()
            time.sleep(_TICK_S)
        late = group.running
    command = Command(
        purpose=say("capture.purpose_profile", id=record.id),
        argv=argv,
        started=started,
        ended=now(),
        exit_status=None if late else group.exit_status,
    )
    said = printed.read_text(encoding="utf-8", errors="replace").splitlines() if printed.is_file() else []
    found = report.with_suffix(".ncu-rep")
    if not found.is_file():
        return _without_report(record, said, deadline_s if late else None, group.ending), command
    tables = [writer.relative(table)] if (table := _table(ncu.program, found)) is not None else []
    names = [writer.relative(file) for file in (found, printed)]
    return msgspec.structs.replace(record, status="complete", reports=names, tables=tables), command


def _without_report(record: Profile, said: list[str], late_s: float | None, ending: str) -> Profile:
    text = "\n".join(said)
    if "ERR_NVGPUCTRPERM" in text:
        how = "; ".join(f"{tool}: {line}" for tool, line in commands("ncu_counters").items())
        return msgspec.structs.replace(record, status="skipped", reason=say("profilers.ncu_counters", how=how))
    if "No kernels were profiled" in text:
        return msgspec.structs.replace(record, status="skipped", reason=say("profilers.ncu_no_kernel"))
    if late_s is not None:
        return msgspec.structs.replace(record, status="failed", reason=say("profilers.too_long", seconds=f"{late_s:g}"))
    why = explained(said) or next((line.strip() for line in reversed(said) if line.strip()), ending)
    return msgspec.structs.replace(record, status="failed", reason=say("profilers.ncu_failed", ending=ending, why=why))


def _table(program: str, report: Path) -> Path | None:
    """The report's figures as CSV, beside it; the report itself needs NVIDIA's viewer."""
    try:
        done = subprocess.run(
            [program, "--import", str(report), "--csv", "--page", "details"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_IMPORT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not done.stdout:
        return None
    table = report.with_suffix(".csv")
    table.write_bytes(done.stdout)
    return table
