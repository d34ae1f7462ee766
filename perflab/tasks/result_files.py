"""Which of several result files tell of one measurement, and which one to take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perflab.errors import InputError
from perflab.read.bench_result import BenchResult
from perflab.read.files import sniff
from perflab.read.results import READERS, read_results

# Clients write one run into several files; of those in one folder, the first kind that is there is taken.
_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("aiperf_records", "aiperf", "aiperf_csv", "perf_analyzer"),
    ("inference_perf", "inference_perf_requests"),
)
RESULTS = tuple(kind for kind in READERS if kind not in ("sweep_summary", "bench_printed"))
"""Kinds of files that are taken from a folder: what a client printed and summaries of sweeps repeat others."""

_PHASES = "phases"
_SUFFIXES = frozenset((".json", ".jsonl", ".csv", ".yaml", ".yml", ".gz", ".xz"))


@dataclass(frozen=True)
class KnownFile:
    """A file of benchmark results, its kind as `perflab.read.files.sniff` tells it, and what it holds."""

    path: Path
    kind: str
    results: Sequence[BenchResult]


def result_files(folder: Path) -> list[KnownFile]:
    """The results in a folder (`RESULTS`), each measurement once.

    Raises
    ------
    InputError
        When a file is a result by its beginning but cannot be read.
    """
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix in _SUFFIXES]
    known = [KnownFile(file, kind, read_results(file)) for file in files if (kind := _kind(file)) in RESULTS and kind]
    return [one for one in known if told_better(one, known) is None]


def _kind(file: Path) -> str | None:
    try:
        return sniff(file)
    except InputError:
        return None


def told_better(one: KnownFile, among: Iterable[KnownFile]) -> Path | None:
    """The file that tells of the same measurement as `one` and is to be taken instead; None where none does.

    AIPerf and GenAI-Perf write records, a summary and its CSV, AIPerf besides a summary of each phase. GenAI-Perf's raw
    export has no token counts, so its summary goes first. inference-perf writes its stages, the sum of them, and all
    requests: stages go first, whose loads are known, then requests.
    """
    if one.kind in _FAMILIES[0] and one.path.parent.parent.name == _PHASES:
        whole = [other for other in among if other.path.parent == one.path.parent.parent.parent]
        if whole := [other for other in whole if other.kind in _FAMILIES[0]]:
            return whole[0].path
    beside = [other for other in among if other.path.parent == one.path.parent and other.path != one.path]
    if one.kind == "inference_perf" and not _is_stage(one):
        beside = [other for other in beside if other.kind == "inference_perf_requests" or _is_stage(other)]
        return beside[0].path if beside else None
    for family in _FAMILIES:
        if one.kind in family:
            better = family[: family.index(one.kind)]
            found = [other for other in beside if other.kind in better]
            if one.kind == "inference_perf_requests":
                found = [other for other in found if _is_stage(other)]
            return found[0].path if found else None
    return None


def _is_stage(file: KnownFile) -> bool:
    return file.kind == "inference_perf" and any(
        result.meta.request_rate is not None or result.meta.max_concurrency is not None for result in file.results
    )
