"""Benchmark results -> points: repeats, sweeps and files of several results told apart by what they say."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perflab.messages import say
from perflab.read.bench_printed import is_printed_of
from perflab.read.bench_result import BenchResult
from perflab.read.files import read_text
from perflab.read.results import result_part
from perflab.runs import Load, Point, Run
from perflab.tasks.imports.cleaning import cleaned
from perflab.tasks.imports.copying import Copier, safe_name, shown, valid
from perflab.tasks.imports.sorting import date_ns
from perflab.tasks.result_files import KnownFile, told_better

# `vllm bench sweep` keeps each combination of its parameters in a folder of this name.
_SWEEP_FOLDER = re.compile(r"SERVE--(?P<serve>.*?)-BENCH--(?P<bench>.*)")
_WRAPPED = ("bench_wrapped", "sweep_summary")


@dataclass(frozen=True)
class Result:
    """One result: its file, and its place in it where the file holds several."""

    path: Path
    kind: str
    number: int
    of: int
    result: BenchResult

    @property
    def run_number(self) -> int | None:
        """The repeat, as `vllm bench sweep` numbers it; None elsewhere."""
        number = self.result.meta.extra.get("run_number")
        return number if isinstance(number, int) and not isinstance(number, bool) else None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What a sweep or `--metadata` added, as far as it is one value."""
        return {
            name: value
            for name, value in self.result.meta.extra.items()
            if name != "run_number" and isinstance(value, str | int | float)
        }

    @property
    def sweep(self) -> tuple[str, str] | None:
        """A sweep's combination: the server's parameters and the benchmark's, as text; None outside sweeps."""
        if self.run_number is None:
            return None
        if match := _SWEEP_FOLDER.fullmatch(self.path.parent.name):
            return match["serve"], match["bench"]
        name = self.parameters.get("_benchmark_name")
        rest = [f"{key}={value}" for key, value in self.parameters.items() if key != "_benchmark_name"]
        return "", str(name) if name is not None else "-".join(rest)

    @property
    def name(self) -> str:
        """What the point is called: the sweep's combination and repeat, else the file's name."""
        if self.sweep is not None:
            return valid("-".join(part for part in (*self.sweep, f"n{self.run_number}") if part))
        stem = self.path.name
        for suffix in (".xz", ".gz", ".jsonl", ".json", ".csv", ".yaml", ".yml", ".txt", ".log"):
            stem = stem.removesuffix(suffix)
        return safe_name(shown(Path(stem))) if self.of == 1 else f"{safe_name(shown(Path(stem)))}-{self.number}"

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """The same for two copies of one measurement, detailed or not."""
        r = self.result
        told = ("mean_ttft_ms", "avg_latency", "p50_latency", "output_throughput", "avg_cold_startup_time")
        figures = (r.reported.get(name) for name in told)
        return r.kind, r.meta.date, r.meta.label, r.duration_s, r.completed, r.total_output_tokens, *figures

    @property
    def condition(self) -> tuple[Any, ...]:
        """The same for two repeats of one measurement: what was asked and what was sent."""
        r, meta = self.result, self.result.meta
        asked = (r.kind, meta.model, meta.num_prompts, meta.request_rate, meta.max_concurrency, meta.burstiness)
        added = tuple(sorted((name, str(value)) for name, value in self.parameters.items()))
        return (*asked, r.total_input_tokens, self.sweep, added)


def results_of(
    files: Sequence[KnownFile], printed: Sequence[tuple[Path, list[BenchResult]]]
) -> tuple[list[Result], list[tuple[Path, str]]]:
    """Every result once, and the files that only repeat others, with why they are not used.

    Of two copies a detailed one is kept, then one in a file of its own: a sweep's summary repeats its runs. What was
    printed is a result where no file holds what it shows.
    """
    better = {file.path: told_better(file, files) for file in files}
    told = [(path, say("import.same_run", name=shown(other))) for path, other in better.items() if other is not None]
    files = [file for file in files if better[file.path] is None]
    every = [Result(file.path, file.kind, number, len(file.results), result)
             for file in files for number, result in enumerate(file.results, start=1)]  # fmt: skip
    best: dict[tuple[Any, ...], Result] = {}
    for one in sorted(every, key=lambda one: (one.result.requests is None, one.kind in _WRAPPED, one.of > 1)):
        best.setdefault(one.fingerprint, one)
    kept = [one for one in every if best[one.fingerprint] is one]
    used = {one.path for one in kept}
    repeated = []
    for file in files:
        if file.path not in used:
            first = best[Result(file.path, file.kind, 1, len(file.results), file.results[0]).fingerprint]
            what = "import.summary" if file.kind == "sweep_summary" else "import.copy"
            repeated.append((file.path, say(what, name=shown(first.path))))
    return [*kept, *_printed_alone(printed, every)], [*told, *repeated]


def _printed_alone(printed: Sequence[tuple[Path, list[BenchResult]]], results: Sequence[Result]) -> list[Result]:
    alone = [
        Result(path, "bench_printed", number, len(tables), table)
        for path, tables in printed
        for number, table in enumerate(tables, start=1)
        if table.duration_s is not None and not any(is_printed_of(table, one.result) for one in results)
    ]
    return list({one.fingerprint: one for one in reversed(alone)}.values())[::-1]


def points_of(
    results: Sequence[Result],
    printed: Sequence[tuple[Path, list[BenchResult]]],
    copier: Copier,
    taken: set[str],
    model_of: Callable[[BenchResult], str | None],
) -> list[Point]:
    """A point for each result.

    `taken` are names that are in use already; `model_of` names a result's model where it is not the engine's.
    """
    repeats = _repeats(results)
    servers = list(dict.fromkeys(one.sweep[0] for one in results if one.sweep is not None))
    points = []
    for one in results:
        name = _unused(one.name, taken)
        taken.add(name)
        point = _point(one, name, repeats[one.path, one.number], copier)
        if one.sweep is not None:
            label = ", ".join(part for part in one.sweep if part)
            point = msgspec.structs.replace(point, workload=label, server_run=servers.index(one.sweep[0]))
        console = next((path for path, tables in printed if _is_of(tables, one.result)), None)
        if console and console != one.path:
            point = msgspec.structs.replace(point, printed=copier.copy(console, "bench", clean=True))
        points.append(msgspec.structs.replace(point, model=model_of(one.result)))
    return points


def servers_of(results: Sequence[Result]) -> list[str]:
    """The combinations of server parameters that a sweep went through."""
    return list(dict.fromkeys(one.sweep[0] for one in results if one.sweep is not None and one.sweep[0]))


def unmatched(printed: Sequence[tuple[Path, list[BenchResult]]], results: Sequence[Result]) -> list[tuple[Path, str]]:
    """Console texts that are of a result which is no measurement, with the reason why their figures are not used."""
    return [
        (path, say("import.printed_profiled"))
        for path, tables in printed
        if not any(one.path == path or _is_of(tables, one.result) for one in results)
    ]


def copied_point(run: Run, point: Point, copier: Copier, taken: set[str]) -> Point:
    """A point of a run directory with its files."""
    name = _unused(point.id, taken)
    taken.add(name)

    def copy(file: str | None, folder: str) -> str | None:
        return None if file is None else copier.copy(run.file(file), folder)

    return msgspec.structs.replace(
        point, id=name, bench=copy(point.bench, "bench"), printed=copy(point.printed, "bench"),
        metrics_before=copy(point.metrics_before, "metrics"), metrics_after=copy(point.metrics_after, "metrics"),
        samples=copy(point.samples, "metrics"),
    )  # fmt: skip


def one_length(total: int | None, requests: int | None) -> int | None:
    """The length all requests share, None where the mean is no whole number."""
    return total // requests if total is not None and requests and total % requests == 0 else None


def load_of(result: BenchResult) -> Load:
    """How requests arrived."""
    return Load(concurrency=result.meta.max_concurrency, rate=result.meta.request_rate)


def result_file(one: Result, copier: Copier, folder: str) -> str:
    """The result as a file of its own in the run; returns its name in the manifest."""
    if one.of == 1 and one.kind not in _WRAPPED and one.sweep is None:
        return copier.copy(one.path, folder, clean=True)
    if one.of == 1:
        return copier.copy(one.path, folder, f"{one.name}.json", clean=True)
    part = result_part(one.path, one.kind, one.number - 1)
    if part is not None:
        return copier.write(cleaned(part), folder, f"{one.name}{'.txt' if one.kind == 'bench_printed' else '.json'}")
    record = _records(one.path)[one.number - 1]
    text = cleaned(json.dumps([record] if one.kind == "bench_wrapped" else record))
    return copier.write(text, folder, f"{one.name}.json")


def _records(path: Path) -> list[Any]:
    """The results of a file as they stand: a list, or a JSON document a line."""
    text = read_text(path)[0]
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = []
        for line in filter(str.strip, text.splitlines()):
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break  # the last line, cut short; the reader has refused any other
    return found if isinstance(found, list) else [found]


def _point(one: Result, name: str, repeat: int, copier: Copier) -> Point:
    result, meta = one.result, one.result.meta
    nothing = result.completed is None and result.duration_s is None and not any(result.reported.values())
    status, reason = ("failed", "; ".join(result.notes) or None) if nothing else ("complete", None)
    if result.failed:
        status, reason = "partial", say("import.failed_requests", failed=result.failed)
    return Point(
        id=name,
        workload=say("import.workload"),
        data=str(meta.extra.get("dataset_name") or "unknown"),
        kind=result.kind,
        input_len=one_length(result.total_input_tokens, result.completed),
        output_len=one_length(result.total_output_tokens, result.completed),
        load=load_of(result),
        num_prompts=meta.num_prompts,
        repeat=repeat,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        bench=result_file(one, copier, "bench"),
    )


def _repeats(results: Sequence[Result]) -> dict[tuple[Path, int], int]:
    """Which repeat each result is: a sweep's number, else its place in time among those of one condition."""
    seen: Counter[tuple[Any, ...]] = Counter()
    out = {}
    for one in sorted(results, key=lambda one: (date_ns(one.result) or 0, str(one.path), one.number)):
        number = seen[one.condition] if one.run_number is None else one.run_number
        seen[one.condition] += 1
        out[one.path, one.number] = number
    return out


def _is_of(tables: Sequence[BenchResult], result: BenchResult) -> bool:
    return any(is_printed_of(table, result) for table in tables)


def _unused(name: str, taken: set[str]) -> str:
    return name if name not in taken else next(n for i in range(2, 10**6) if (n := f"{name}-{i}") not in taken)
