"""What an experiment will do: its points in order, their commands, and about how long it takes."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from perflab.experiment.commands import (
    Arguments,
    Request,
    Target,
    bench_argv,
    offline_argv,
    profile_request,
    profiler_config,
    serve_argv,
)
from perflab.experiment.spec import Experiment, Load, ProfilePass, Workload

# Stand-ins for what is known only when the run goes on.
MODEL, PORT, RUN = "MODEL", 8000, "RUN"
# A server that runs already only has to be asked.
_ATTACH_S = 1.0


@dataclass(frozen=True)
class Pace:
    """A guess at a machine's speed, good for "about five minutes": corrected by what is measured.

    A decode step of `n` requests takes `step_s + n * step_request_s`; prompts are computed one after the
    other at `prefill_tokens_per_s`.
    """

    startup_s: float
    client_s: float
    call_s: float
    prefill_tokens_per_s: float
    step_s: float
    step_request_s: float

    def duration(self, request: Request) -> float:
        """Seconds one benchmark call takes."""
        tokens_in, tokens_out = request.input_len or 512, request.output_len or 128
        batch = request.load.concurrency or min(request.num_prompts, 64)
        prefill = tokens_in / self.prefill_tokens_per_s
        decode = tokens_out * (self.step_s + batch * self.step_request_s)
        served = math.ceil(request.num_prompts / batch) * (batch * prefill + decode)
        if request.workload.kind == "latency":
            served = request.num_prompts * (batch * prefill + decode)
        arriving = request.num_prompts / request.load.rate + prefill + decode if request.load.rate else 0.0
        return self.call_s + max(served, arriving)


# Two cores and a model of 135M in float32; one current GPU and a model of 8B. Measured, then rounded.
PACES = {
    "cpu": Pace(40.0, 10.0, 1.5, 450.0, 0.035, 0.004),
    "gpu": Pace(120.0, 20.0, 2.0, 20_000.0, 0.008, 0.00005),
}


@dataclass(frozen=True)
class PlannedPoint:
    """One measurement to make."""

    id: str
    request: Request
    warmup: Request | None
    repeat: int
    server_run: int
    argv: tuple[str, ...]
    estimate_s: float

    @property
    def workload(self) -> Workload:
        """The workload it is a point of."""
        return self.request.workload

    @property
    def offline(self) -> bool:
        """Whether the benchmark builds its own engine, so that no server may run meanwhile."""
        return self.workload.kind != "serve"


@dataclass(frozen=True)
class PlannedProfile:
    """One profiling pass to make."""

    spec: ProfilePass
    request: Request
    warmup: Request
    argv: tuple[str, ...]
    estimate_s: float


@dataclass(frozen=True)
class Plan:
    """All of it, in the order it is done: offline points, then each server with its points, then profiles.

    `servers` are those measured on; `servers_in_all` counts the ones that are only profiled too. `serve_argv` is
    empty where the server runs already.
    """

    points: tuple[PlannedPoint, ...]
    profiles: tuple[PlannedProfile, ...]
    servers: int
    servers_in_all: int
    serve_argv: tuple[str, ...]
    startup_s: float
    estimate_s: float

    @property
    def estimated_minutes(self) -> float:
        """About how long it takes, without the preparation of the model."""
        return self.estimate_s / 60

    def of_server(self, server_run: int) -> list[PlannedPoint]:
        """The points measured on one server."""
        return [point for point in self.points if not point.offline and point.server_run == server_run]

    @property
    def offline(self) -> list[PlannedPoint]:
        """The points whose benchmark builds its own engine."""
        return [point for point in self.points if point.offline]

    @property
    def server_runs(self) -> list[int]:
        """The numbers of the servers that are measured on, in order."""
        return sorted({point.server_run for point in self.points if not point.offline})

    def part(self, points: Iterable[str], *, profiles: bool) -> Plan:
        """The plan of some of its points, with all profiling passes or none. Seeds stay those of the whole plan."""
        wanted = set(points)
        kept = tuple(point for point in self.points if point.id in wanted)
        passes = self.profiles if profiles else ()
        servers = len({point.server_run for point in kept if not point.offline})
        groups = [group for group in profile_groups(tuple(one.spec for one in passes)) if group]
        shared = bool(groups) and bool(servers) and rides_along(groups[0])
        in_all = servers + len(groups) - shared
        left = sum(point.estimate_s for point in kept) + sum(one.estimate_s for one in passes)
        overhead = self.estimate_s - sum(point.estimate_s for point in self.points)
        overhead -= sum(one.estimate_s for one in self.profiles) + self.servers_in_all * self.startup_s
        return replace(
            self,
            points=kept,
            profiles=passes,
            servers=servers,
            servers_in_all=in_all,
            estimate_s=left + in_all * self.startup_s + max(overhead, 0.0),
        )


def plan(experiment: Experiment, flavour: Literal["cpu", "gpu"] = "gpu", *, serve: Arguments | None = None) -> Plan:
    """What `experiment` will do, and about how long it takes on a machine of that flavour.

    Repeats of a server are interleaved (first all points once, then all again), so that a drift of the
    machine does not pass for a difference between points. Every point and every warm-up has its own seed,
    which follows from its id: the same point of two runs sends the same prompts, two points never do.
    """
    pace = PACES[flavour]
    seeds = _Seeds(experiment.seed)
    points = [
        _planned(experiment, pace, seeds, cell, repeat, server_run) for cell, repeat, server_run in _ordered(experiment)
    ]
    served = [point for point in points if not point.offline]
    servers = experiment.server_runs if served else 0
    profiles = [_profile(experiment, pace, seeds, one) for one in experiment.profiles]
    groups = [list(experiment.profiles)] if experiment.engine.url else profile_groups(experiment.profiles)
    groups = [group for group in groups if group]
    # The last measuring server takes the first group of profiles; each further group starts one. A server that runs
    # already takes them all.
    shared = bool(groups) and rides_along(groups[0])
    servers_in_all = servers + len(groups) - (1 if servers and shared else 0)
    config = profiler_config(groups[0][0], f"{RUN}/profile") if shared and servers_in_all == 1 else None
    total = sum(point.estimate_s for point in points) + sum(one.estimate_s for one in profiles)
    attached = experiment.engine.url is not None
    startup_s = _ATTACH_S if attached else pace.startup_s
    total += servers_in_all * startup_s + (pace.client_s if servers_in_all else 0.0)
    serve_line = serve_argv(experiment, model=MODEL, port=PORT, known=serve or {}, profiler=config)
    return Plan(
        points=tuple(points),
        profiles=tuple(profiles),
        servers=servers,
        servers_in_all=servers_in_all,
        serve_argv=() if attached else tuple(serve_line),
        startup_s=startup_s,
        estimate_s=total,
    )


def profile_groups(profiles: tuple[ProfilePass, ...]) -> list[list[ProfilePass]]:
    """Passes that can share a server: the profiler is configured when the server starts.

    Those that a measured server can take come first; `ncu` passes are in none, they build their own engine.
    """
    groups: dict[str, list[ProfilePass]] = {}
    for one in profiles:
        if one.kind == "torch":
            key = repr((one.teacher, sorted(profiler_config(one, "").items())))
            groups.setdefault(key, []).append(one)
        elif one.kind == "nsys":
            groups[one.id] = [one]
    return sorted(groups.values(), key=lambda group: not rides_along(group))


def rides_along(group: list[ProfilePass]) -> bool:
    """Whether the last measured server can take these passes, because it serves as they want it."""
    return group[0].kind == "torch" and not group[0].teacher


@dataclass(frozen=True)
class _Cell:
    workload: Workload
    input_len: int | None
    output_len: int | None
    load: Load

    @property
    def label(self) -> str:
        parts = [self.workload.name]
        parts += [f"i{self.input_len}"] if self.input_len is not None else []
        parts += [f"o{self.output_len}"] if self.output_len is not None else []
        parts += [] if self.workload.kind == "throughput" else [self.load.label]
        return "-".join(parts)


def _cells(workload: Workload) -> Iterator[_Cell]:
    for input_len, output_len, load in itertools.product(workload.input_lens, workload.output_lens, workload.loads):
        yield _Cell(workload, input_len, output_len, load)


def _ordered(experiment: Experiment) -> Iterator[tuple[_Cell, int, int]]:
    offline = [cell for w in experiment.workloads if w.kind != "serve" for cell in _cells(w)]
    served = [cell for w in experiment.workloads if w.kind == "serve" for cell in _cells(w)]
    for cells, runs in ((offline, 1), (served, experiment.server_runs)):
        most = max((cell.workload.repeats for cell in cells), default=0)
        for server_run, repeat in itertools.product(range(runs), range(most)):
            for cell in cells:
                if repeat < cell.workload.repeats:
                    yield cell, repeat, server_run


class _Seeds:
    """Seeds that follow from names, none given twice."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.used: set[int] = set()

    def seed(self, name: str) -> int:
        # Below a million: short enough to read, and numpy takes no more than 32 bits.
        found = (self.base + zlib.crc32(name.encode())) % 1_000_000
        while found in self.used:
            found = (found + 1) % 1_000_000
        self.used.add(found)
        return found


def _planned(
    experiment: Experiment, pace: Pace, seeds: _Seeds, cell: _Cell, repeat: int, server_run: int
) -> PlannedPoint:
    workload = cell.workload
    name = f"{cell.label}-s{server_run}-n{repeat}"
    prompts = workload.num_prompts.prompts(cell.load)
    request = Request(workload, cell.load, prompts, seeds.seed(name), cell.input_len, cell.output_len, workload.slos)
    count = _warmup_count(workload, cell.load, prompts)
    estimate = pace.duration(request)
    if workload.kind != "serve":
        estimate += pace.startup_s
        argv = offline_argv(experiment, request, model=MODEL, result=f"{RUN}/bench/{name}.json", warmup=count)
        return PlannedPoint(name, request, None, repeat, server_run, tuple(argv), estimate)
    warmup = None
    if count:
        load = Load(concurrency=cell.load.concurrency or min(count, 8))
        warmup = Request(workload, load, count, seeds.seed(f"{name}/warmup"), cell.input_len, cell.output_len)
        estimate += pace.duration(warmup)
    target = _target(experiment)
    argv = bench_argv(request, target, result=(f"{RUN}/bench", f"{name}.json"))
    return PlannedPoint(name, request, warmup, repeat, server_run, tuple(argv), estimate)


def _warmup_count(workload: Workload, load: Load, prompts: int) -> int:
    if workload.warmup_prompts is not None:
        return workload.warmup_prompts
    if workload.kind == "latency":
        return 3
    # As many as the point keeps in flight, so that its batch sizes have been met before it is measured.
    wanted = load.concurrency or (math.ceil(load.rate) if load.rate else prompts)
    return min(max(wanted, 2), 32)


def offline_warmup(point: PlannedPoint) -> int:
    """Warm-up prompts or iterations of a point whose benchmark does its own warming up."""
    return _warmup_count(point.workload, point.request.load, point.request.num_prompts)


def _profile(experiment: Experiment, pace: Pace, seeds: _Seeds, one: ProfilePass) -> PlannedProfile:
    request = profile_request(one, seeds.seed(f"profile/{one.id}"))
    warm = profile_request(one, seeds.seed(f"profile/{one.id}/warmup"))
    warm = Request(
        warm.workload, warm.load, min(one.num_prompts, one.concurrency), warm.seed, one.input_len, one.output_len
    )
    target = _target(experiment)
    argv = bench_argv(request, target, result=(f"{RUN}/bench", f"profile-{one.id}.json"))
    # Recording slows the steps, and writing the trace takes as long again.
    estimate = pace.duration(warm) + 3 * pace.duration(request) + 5.0
    if one.kind == "ncu":
        # An engine of its own, and every launch replayed some ten times.
        argv = ["ncu", "--kernel-name", "KERNELS", "--launch-count", str(one.launches), "python", "ncu_host.py", MODEL]
        return PlannedProfile(one, request, warm, tuple(argv), estimate + 1.5 * pace.startup_s)
    return PlannedProfile(one, request, warm, tuple(argv), estimate)


def _target(experiment: Experiment) -> Target:
    model = experiment.model
    return Target(model.served_name, MODEL, PORT, model.trust_remote_code, experiment.engine.url)
