"""The runs below a folder with their figures, remembered so that thousands of them are looked at in a second.

The index is a file in the user's cache. For each run it holds the size and time stamp of the manifest it was made
from: where these differ the run is read again, where the index is damaged all are. It is never the truth.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perflab import __version__
from perflab.analysis.latency import DISTRIBUTIONS, RATES
from perflab.capture.cache import cache_folder, write_whole
from perflab.errors import CaptureError, InputError
from perflab.messages import say
from perflab.read.results import read_results
from perflab.runs import MANIFEST, Hardware, Manifest, Point, Run, open_run
from perflab.tasks.latency import measured_metrics
from perflab.tasks.provenance import describe_hardware

_FORMAT = 1
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
METRICS: tuple[str, ...] = (
    *(f"{name.removesuffix('_ms')}_{statistic}_ms" for name in DISTRIBUTIONS for statistic in _STATISTICS),
    *RATES,
)
"""Figures a run is remembered with."""

# Settings that say where something is, and not what it does.
_PLACES = re.compile(r"(?:^|[._])(?:port|ports|dir|path|ip|host|root|url|id|model|tokenizer|served_model_name)$")


class PointRecord(msgspec.Struct, frozen=True):
    """One measured point: what it is of, and its figures."""

    workload: str
    data: str
    input_len: int | None
    output_len: int | None
    load: str
    model: str | None
    metrics: dict[str, float]


class RunRecord(msgspec.Struct, frozen=True):
    """One run: the manifest it was made from, what ran, and the points. `error` where it cannot be read."""

    mtime_ns: int
    size: int
    title: str = ""
    created: str = ""
    vllm_version: str | None = None
    model: str | None = None
    hardware: str | None = None
    facts: str = ""
    points: list[PointRecord] = []
    skipped: list[str] = []
    error: str | None = None


class Index(msgspec.Struct, frozen=True):
    """Runs by their path below the folder; `facts` of runs by a name that they share where they are the same."""

    format: int
    perflab: str
    runs: dict[str, RunRecord]
    facts: dict[str, dict[str, Any]]


def index_of(folder: Path, *, on_read: Callable[[int], None] | None = None) -> Index:
    """The index of the runs below a folder, brought up to date and remembered.

    Parameters
    ----------
    folder
        Searched to any depth; run directories are not searched inside.
    on_read
        Told after each run that had to be read, with how many were.

    Raises
    ------
    InputError
        When the folder does not exist, or no run is there.
    """
    if not folder.is_dir():
        raise InputError("is not a folder of runs", path=folder)
    kept = _place(folder)
    old = _read(kept)
    runs: dict[str, RunRecord] = {}
    facts: dict[str, dict[str, Any]] = {}
    fresh = 0
    for path in run_folders(folder):
        name = path.relative_to(folder).as_posix()
        stamp = _stamp(path)
        record = old.runs.get(name)
        if record is None or (record.mtime_ns, record.size) != stamp or not _has_facts(record, old):
            record, said = _record(path, stamp)
            facts |= {record.facts: said} if said else {}
            fresh += 1
            if on_read is not None:
                on_read(fresh)
        elif record.facts:
            facts[record.facts] = old.facts[record.facts]
        runs[name] = record
    if not runs:
        raise InputError("holds no run directory; see `perflab run` and `perflab import`", path=folder)
    index = Index(_FORMAT, __version__, runs, facts)
    if kept is not None and (fresh or runs.keys() != old.runs.keys()):
        _write(kept, index)
    return index


def _has_facts(record: RunRecord, index: Index) -> bool:
    return not record.facts or record.facts in index.facts


def run_folders(folder: Path) -> Iterator[Path]:
    """Run directories at or below a folder, in the order of their names; hidden folders are left out."""
    if (folder / MANIFEST).is_file():
        yield folder
        return
    try:
        with os.scandir(folder) as entries:
            inside = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return
    for name in inside:
        yield from run_folders(folder / name)


def _stamp(path: Path) -> tuple[int, int]:
    found = (path / MANIFEST).stat()
    return found.st_mtime_ns, found.st_size


def _record(path: Path, stamp: tuple[int, int]) -> tuple[RunRecord, dict[str, Any]]:
    try:
        run = open_run(path)
    except (InputError, OSError) as error:
        return RunRecord(*stamp, error=error.what if isinstance(error, InputError) else str(error)), {}
    points, skipped = _points(run)
    manifest = run.manifest
    said = facts_of(manifest)
    record = RunRecord(
        *stamp,
        title=manifest.title,
        created=manifest.created,
        vllm_version=manifest.engine.vllm_version,
        model=manifest.engine.model,
        hardware=machine_of(manifest.hardware),
        facts=hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()[:16],
        points=points,
        skipped=skipped,
    )
    return record, said


def machine_of(hardware: Hardware) -> str | None:
    """What a series has to share to be one: `2 x NVIDIA H200`, or the CPU and its cores. The driver may change."""
    if hardware.gpus:
        return " + ".join(f"{count} x {name}" for name, count in Counter(gpu.name for gpu in hardware.gpus).items())
    return None if hardware.cpu is None else f"{hardware.cpu}, {hardware.cores or '?'} cores"


def _points(run: Run) -> tuple[list[PointRecord], list[str]]:
    found, skipped = [], []
    for point in run.manifest.points:
        if point.kind != "serve":
            continue
        if point.bench is None or point.status != "complete":
            skipped.append(say("history.point_skipped", point=point.id, why=point.reason or point.status))
            continue
        try:
            found.append(_point(run, point))
        except (InputError, OSError) as error:
            why = error.what if isinstance(error, InputError) else str(error)
            skipped.append(say("history.point_skipped", point=point.id, why=why))
    return found, skipped


def _point(run: Run, point: Point) -> PointRecord:
    metrics = measured_metrics(read_results(run.file(point.bench or ""))[0], point.slos)
    return PointRecord(
        point.workload, point.data, point.input_len, point.output_len, point.load.label, point.model, figures(metrics)
    )


def figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The figures of `METRICS` that were measured."""
    found: dict[str, float] = {}
    for name in DISTRIBUTIONS:
        for statistic in _STATISTICS:
            value = (metrics[name] or {}).get(statistic)
            if value is not None:
                found[f"{name.removesuffix('_ms')}_{statistic}_ms"] = float(value)
    return found | {name: float(metrics[name]) for name in RATES if metrics[name] is not None}


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """What may explain a change: versions, machine, settings, arguments and environment variables of the engine."""
    engine, hardware = manifest.engine, manifest.hardware
    facts: dict[str, Any] = {
        "vLLM": engine.vllm_version, "torch": engine.torch_version, "Python": engine.python_version,
        "build": None if engine.flavour == "unknown" else engine.flavour, "driver": hardware.driver,
        "machine": describe_hardware(hardware), "system": hardware.os, "perflab": manifest.perflab_version,
    }  # fmt: skip
    facts |= {f"argument {name}": value for name, value in (manifest.asked.get("engine_args") or {}).items()}
    serving = next((command for command in manifest.commands if "serve" in command.argv), None)
    facts |= {f"variable {name}": value for name, value in (serving.env if serving else {}).items()}
    facts |= {name: value for name, value in engine.settings.items() if not _PLACES.search(name)}
    return {name: _told(value) for name, value in facts.items() if value is not None}


def _told(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else msgspec.json.encode(value).decode()


def _place(folder: Path) -> Path | None:
    try:
        return cache_folder("history") / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]}.json"
    except (OSError, CaptureError):
        return None  # nothing can be remembered here


def _read(kept: Path | None) -> Index:
    nothing = Index(_FORMAT, __version__, {}, {})
    if kept is None:
        return nothing
    try:
        index = msgspec.json.decode(kept.read_bytes(), type=Index)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return nothing
    return index if (index.format, index.perflab) == (_FORMAT, __version__) else nothing


def _write(kept: Path, index: Index) -> None:
    try:
        write_whole(kept, msgspec.json.encode(index).decode())
    except OSError:
        return
