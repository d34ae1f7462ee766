"""Files of a vLLM run made by others -> a run directory.

Each file is told by its content, whatever its name. Benchmark results become points, traces profiling passes; a
result that was written while a trace was being recorded belongs to that pass and is not a measurement. What is
not understood is kept under `other/` and named.
"""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perflab import __version__, units
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.bench import BenchResult, read_bench
from perflab.read.files import NAMES, read_head, read_text, sniff
from perflab.read.kineto import Trace, read_kineto
from perflab.read.server_log import ServerLog, read_server_log
from perflab.runs import SCHEMA, Engine, Gpu, Hardware, Load, Manifest, Point, Profile, Run, RunWriter, now, open_run

BENCH_KINDS = {"bench_serve": "serve", "bench_latency": "latency", "bench_throughput": "throughput"}
_FLUSH_NS = 600 * units.NS_PER_S
_SECOND = units.NS_PER_S


@dataclass
class _Found:
    """Files by what they are, in the order they were found."""

    bench: list[Path] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    frontend: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    metrics: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    other: list[tuple[Path, str]] = field(default_factory=list)


def import_files(
    paths: Sequence[Path], out: Path, *, title: str | None = None, notes: Sequence[str] = (), pack: bool = False
) -> Run:
    """Make a run directory of files and folders of one vLLM run.

    Parameters
    ----------
    paths
        Files, or folders that are searched.
    out
        The run directory to make; must not hold anything yet.
    title, notes
        What a reader should see. The title defaults to the name of `out`.
    pack
        Store text and traces xz-compressed; a third to a half smaller than gzip for traces.

    Raises
    ------
    InputError
        When a path does not exist, or nothing given is understood.
    """
    found = _sorted_out(paths)
    if not (found.bench or found.traces or found.logs or found.metrics):
        seen = "; ".join(f"{path.name}: {why}" for path, why in found.other[:3])
        raise InputError(f"nothing here is a file of a vLLM run ({seen or 'no files'})", path=paths[0])
    writer = RunWriter(
        out,
        Manifest(
            schema=SCHEMA,
            id=out.name,
            title=title or out.name,
            origin="imported",
            created=now(),
            perflab_version=__version__,
            notes=list(notes),
        ),
    )
    _fill(writer, found, pack)
    return open_run(out)


def _sorted_out(paths: Sequence[Path]) -> _Found:
    found = _Found()
    homes: dict[str, list[Path]] = {
        "kineto": found.traces,
        "kineto_frontend": found.frontend,
        "profiler_table": found.tables,
        "metrics": found.metrics,
        "server_log": found.logs,
        "model_config": found.configs,
    } | dict.fromkeys(BENCH_KINDS, found.bench)
    for path in _files(paths):
        kind = sniff(path)
        if kind in homes:
            homes[kind].append(path)
        else:
            found.other.append((path, NAMES[kind] if kind else say("import.unknown")))
    return found


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", path=path)
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        files += [p for p in inside if p not in files]
    return files


def _fill(writer: RunWriter, found: _Found, pack: bool) -> None:
    logs = [(path, read_server_log(path)) for path in found.logs]
    traces = [(path, read_kineto(path, cpu_ops=False)) for path in found.traces]
    results = [(path, read_bench(path)) for path in found.bench]
    log = logs[0][1] if logs else None
    profiles, profiled = _profiles(writer, found, traces, results, pack)
    points: list[Point] = []
    for path, result in results:
        if path not in profiled:
            points.append(_point(writer, path, result, {point.id for point in points}, pack))
    other = list(found.other) + [(path, say("import.second_log")) for path, _ in logs[1:]]
    writer.update(
        created=_made(results, traces) or writer.manifest.created,
        engine=_engine(log, traces, results),
        hardware=_hardware(traces),
        points=sorted(points, key=lambda point: point.id),
        profiles=profiles,
        log=_copy(writer, found.logs[0], "server.log", pack) if found.logs else None,
        metrics=[_copy(writer, path, f"metrics/{path.name}", pack) for path in found.metrics],
        model_config=_copy(writer, found.configs[0], "config.json", False) if found.configs else None,
        other_files=[_copy(writer, path, f"other/{path.name}", pack) for path, _ in other],
        status="complete",
    )
    for path, why in other:
        writer.note(say("import.not_understood", name=path.name, why=why))


def _point(writer: RunWriter, path: Path, result: BenchResult, taken: set[str], pack: bool) -> Point:
    meta = result.meta
    return Point(
        id=_unused(path.stem.removesuffix(".json"), taken),
        workload=say("import.workload"),
        data=str(meta.extra.get("dataset_name") or "unknown"),
        kind=result.kind if result.kind in ("serve", "latency", "throughput") else "serve",
        input_len=_one_length(result.total_input_tokens, result.completed),
        output_len=_one_length(result.total_output_tokens, result.completed),
        load=Load(concurrency=meta.max_concurrency, rate=meta.request_rate),
        num_prompts=meta.num_prompts,
        status="complete" if not result.failed else "partial",
        reason=say("import.failed_requests", failed=result.failed) if result.failed else None,
        bench=_copy(writer, path, f"bench/{path.name}", pack),
    )


def _profiles(
    writer: RunWriter,
    found: _Found,
    traces: list[tuple[Path, Trace]],
    results: list[tuple[Path, BenchResult]],
    pack: bool,
) -> tuple[list[Profile], set[Path]]:
    """One profiling pass for all traces that overlap in time, and the results that were written under them."""
    passes = _passes(traces)
    profiles, profiled = [], set()
    for number, members in enumerate(passes):
        identity = "torch" if len(passes) == 1 else f"torch-{number}"
        under = _written_under(members, results)
        profiled |= {path for path, _ in under}
        first = under[0][1] if under else None
        profiles.append(
            Profile(
                id=identity,
                status="complete",
                traces=[_copy(writer, path, f"profile/{identity}/{path.name}", pack) for path, _ in members],
                # Front-end traces and tables carry no time that could be trusted: they go with the first pass.
                frontend_traces=[_copy(writer, p, f"profile/{identity}/{p.name}", pack) for p in found.frontend]
                if number == 0
                else [],
                tables=[_copy(writer, p, f"profile/{identity}/{p.name}", pack) for p in found.tables]
                if number == 0
                else [],
                bench=_copy(writer, under[0][0], f"profile/{identity}/{under[0][0].name}", pack) if under else None,
                input_len=_one_length(first.total_input_tokens, first.completed) if first else None,
                output_len=_one_length(first.total_output_tokens, first.completed) if first else None,
                load=Load(concurrency=first.meta.max_concurrency, rate=first.meta.request_rate) if first else Load(),
            )
        )
    return profiles, profiled


def _passes(traces: list[tuple[Path, Trace]]) -> list[list[tuple[Path, Trace]]]:
    """Traces grouped by overlapping time: the ranks of one profiling pass."""
    passes: list[list[tuple[Path, Trace]]] = []
    end = None
    for path, trace in sorted(traces, key=lambda pair: _window(pair[1])[0]):
        start, stop = _window(trace)
        if end is None or start > end or any(trace.rank == other.rank for _, other in passes[-1]):
            passes.append([])
            end = stop
        passes[-1].append((path, trace))
        end = max(end, stop)
    return [sorted(members, key=lambda pair: pair[1].rank) for members in passes]


def _window(trace: Trace) -> tuple[int, int]:
    """First start and last end of everything recorded; (0, 0) for an empty trace."""
    frames = [f for f in (trace.kernels, trace.launches, trace.ranges) if len(f)]
    if not frames:
        return 0, 0
    return (
        min(int(f["start_ns"].min()) for f in frames),
        max(int((f["start_ns"] + f["dur_ns"]).max()) for f in frames),
    )


def _written_under(
    members: list[tuple[Path, Trace]], results: list[tuple[Path, BenchResult]]
) -> list[tuple[Path, BenchResult]]:
    """The result written first after the traces end, if its benchmark ran while they were recorded.

    vLLM's client writes `date`, the local time in whole seconds, after the profiler was stopped. The clocks of client
    and server are taken as one, and local time as UTC; where that is wrong nothing matches: it stays a point.
    """
    start = min(_window(trace)[0] for _, trace in members)
    end = max(_window(trace)[1] for _, trace in members)
    dated = [(_date_ns(result), path, result) for path, result in results]
    after = [(date, path, result) for date, path, result in dated if date is not None and date >= end - _SECOND]
    if not after:
        return []
    # Of two results of one second the shorter benchmark is the later one.
    date, path, result = min(after, key=lambda found: (found[0], found[2].duration_s or 0.0))
    began = date - units.ns_from_seconds(result.duration_s or 0.0) - _FLUSH_NS
    return [(path, result)] if began <= start else []


def _date_ns(result: BenchResult) -> int | None:
    try:
        moment = datetime.strptime(result.meta.date or "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return units.ns_from_seconds(moment.timestamp())


def _made(results: list[tuple[Path, BenchResult]], traces: list[tuple[Path, Trace]]) -> str | None:
    """When the run was made: the first result, else the first trace."""
    times = [t for _, r in results if (t := _date_ns(r)) is not None] or [
        start for _, t in traces if (start := _window(t)[0])
    ]
    if not times:
        return None
    return datetime.fromtimestamp(units.seconds(min(times)), UTC).isoformat(timespec="milliseconds")


def _engine(log: ServerLog | None, traces: list[tuple[Path, Trace]], results: list[tuple[Path, BenchResult]]) -> Engine:
    settings: dict[str, Any] = dict(log.settings) if log else {}
    if log and log.attention_backend:
        settings["attention_backend"] = log.attention_backend
    device = settings.get("device_config")
    on_gpu = any(trace.has_gpu for _, trace in traces) or device == "cuda"
    version = (log.vllm_version if log else None) or next((t.vllm_version for _, t in traces if t.vllm_version), None)
    model = (log.model if log else None) or next((r.meta.model for _, r in results if r.meta.model), None)
    return Engine(
        flavour="gpu" if on_gpu else "cpu" if device == "cpu" else "unknown",
        vllm_version=version,
        model=model,
        settings=settings,
    )


def _hardware(traces: list[tuple[Path, Trace]]) -> Hardware:
    """The GPUs the ranks ran on: one a rank, as the traces name them."""
    gpus = [
        Gpu(name=trace.device_name)
        for _, trace in sorted(_first_of_each_rank(traces), key=lambda pair: pair[1].rank)
        if trace.device_name
    ]
    return Hardware(gpus=gpus)


def _first_of_each_rank(traces: list[tuple[Path, Trace]]) -> list[tuple[Path, Trace]]:
    return list({trace.rank: (path, trace) for path, trace in reversed(traces)}.values())


def _one_length(total: int | None, requests: int | None) -> int | None:
    """The length all requests share, None where the mean is no whole number."""
    return total // requests if total is not None and requests and total % requests == 0 else None


def _unused(name: str, taken: set[str]) -> str:
    return name if name not in taken else next(n for i in range(2, 10**6) if (n := f"{name}-{i}") not in taken)


def _copy(writer: RunWriter, source: Path, name: str, pack: bool) -> str:
    """Copy a file into the run, never over another; with `pack` as xz. Returns its name in the manifest."""
    target = writer.path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if pack and not read_head(source, 16).startswith(b"SQLite"):
        target = target.with_name(target.name.removesuffix(".gz").removesuffix(".xz") + ".xz")
    target = _free(target)
    if target.suffix == ".xz" and source.suffix != ".xz":
        text, _ = read_text(source)
        target.write_bytes(lzma.compress(text.encode(), preset=6))
    else:
        shutil.copyfile(source, target)
    return writer.relative(target)


def _free(target: Path) -> Path:
    if not target.exists():
        return target
    stem, dot, suffix = target.name.partition(".")
    return next(path for i in range(2, 10**6) if not (path := target.with_name(f"{stem}-{i}{dot}{suffix}")).exists())
