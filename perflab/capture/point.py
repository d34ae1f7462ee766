"""One served point: warmed up, measured by vLLM's own client, and surrounded by what explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perflab.capture.attached import AttachedServer
from perflab.capture.client import BenchHost, Outcome
from perflab.capture.clock import Anchor, anchor
from perflab.capture.engine import Server, ServerGoneError
from perflab.capture.metrics import MetricsSampler, cached_prompt_tokens, increase, scrape, settled, total
from perflab.capture.probe import Probe
from perflab.experiment.commands import Request, Target, bench_argv
from perflab.experiment.plan import PlannedPoint
from perflab.experiment.spec import Experiment
from perflab.messages import say
from perflab.runs import Command, Point, RunWriter, Status, now

Tick = Callable[[int, int], None]


@dataclass(frozen=True)
class Bench:
    """What every call of the client needs."""

    experiment: Experiment
    probe: Probe
    writer: RunWriter
    host: BenchHost
    server: Server | AttachedServer
    tokenizer: str

    @property
    def target(self) -> Target:
        """The server to talk to."""
        model = self.experiment.model
        if isinstance(self.server, AttachedServer):
            return Target(model.served_name, self.tokenizer, 0, model.trust_remote_code, self.server.url)
        return Target(model.served_name, self.tokenizer, self.server.port, model.trust_remote_code)

    def argv(self, request: Request, result: Path | None = None) -> list[str]:
        """The command line of one call; `result` is the JSON file it writes."""
        where = None if result is None else (str(result.parent), result.name)
        return bench_argv(request, self.target, known=self.probe.arguments["bench serve"], result=where)

    def warm_up(self, request: Request, name: str) -> Outcome:
        """Send prompts that no point measures. vLLM's own warm-ups would resend the first measured prompt."""
        printed = self.writer.folder("bench") / f"{name}.warmup.txt"
        return self.host.call(self.argv(request), printed, self.experiment.point_deadline_s, self.trouble)

    def trouble(self) -> str | None:
        """Why a call cannot go on."""
        if self.server.running:
            return None
        return say("capture.server_ended", ending=self.server.ending, cause=self.server.cause())

    def require_server(self) -> None:
        """Raise `ServerGoneError` when the server no longer serves."""
        if not self.server.healthy:
            raise ServerGoneError(self.trouble() or say("capture.unhealthy", cause=self.server.cause()))


def begun(planned: PlannedPoint) -> Point:
    """The manifest's record of a point as it begins."""
    request = planned.request
    return Point(
        id=planned.id,
        workload=planned.workload.name,
        data=planned.workload.data.kind,
        kind=planned.workload.kind,
        input_len=request.input_len,
        output_len=request.output_len,
        load=request.load,
        num_prompts=request.num_prompts,
        slos={f"{name}_ms": limit for name, limit in planned.workload.slos.given.items()},
        repeat=planned.repeat,
        server_run=planned.server_run,
        seed=request.seed,
        started=now(),
    )


def measure(bench: Bench, planned: PlannedPoint, tick: Tick) -> tuple[Point, Command, list[Anchor], list[str]]:
    """Measure one point on a running server.

    Returns
    -------
    The point with its outcome (a failure is an outcome, not an exception), the command, the clock anchors
    around it, and remarks a reader needs. `tick` hears requests finished and requests in all as it goes on.

    Raises
    ------
    ServerGoneError
        The server ended before the measurement began: on another server the point can still be measured.
    """
    writer = bench.writer
    bench.require_server()
    if planned.warmup is not None:
        outcome = bench.warm_up(planned.warmup, planned.id)
        if not outcome.ok:
            bench.require_server()
            point = msgspec.structs.replace(
                begun(planned), status="failed", reason=say("capture.warmup_failed", why=outcome.error), ended=now()
            )
            return point, Command(purpose=say("capture.purpose_point", id=planned.id), argv=[]), [], []
    result = writer.folder("bench") / f"{planned.id}.json"
    printed = result.with_suffix(".txt")
    stem = writer.folder("metrics") / planned.id
    argv = bench.argv(planned.request, result)
    before = _scraped(bench.server.url, stem.with_name(f"{planned.id}.before.txt"), scrape)
    sampler = MetricsSampler(
        bench.server.url, stem.with_name(f"{planned.id}.jsonl"), bench.experiment.telemetry_interval_s
    )
    point, anchors = begun(planned), [anchor(planned.id, "before")]
    with sampler:
        outcome = bench.host.call(
            argv, printed, bench.experiment.point_deadline_s, _watching(bench, sampler, before, planned, tick)
        )
    anchors.append(anchor(planned.id, "after"))
    after = _scraped(bench.server.url, stem.with_name(f"{planned.id}.after.txt"), settled)
    command = Command(
        purpose=say("capture.purpose_point", id=planned.id),
        argv=argv,
        started=point.started,
        ended=now(),
        exit_status=outcome.status,
    )
    status, reason = judged(outcome, result, planned.request.num_prompts)
    point = msgspec.structs.replace(
        point,
        status=status,
        reason=reason,
        ended=command.ended,
        bench=_named(writer, result),
        printed=_named(writer, printed),
        metrics_before=_named(writer, stem.with_name(f"{planned.id}.before.txt")),
        metrics_after=_named(writer, stem.with_name(f"{planned.id}.after.txt")),
        samples=_named(writer, sampler.file),
    )
    return point, command, anchors, list(_remarks(bench, planned, before, after, sampler))


def judged(outcome: Outcome, result: Path, asked: int) -> tuple[Status, str | None]:
    """What an outcome and its result file make of a point: complete, partial (some requests failed), failed."""
    found = _result(result)
    if found is None:
        return "failed", outcome.error or say("capture.no_result")
    completed = int(found.get("completed") or 0)
    failed = max(int(found.get("failed") or 0), asked - completed)
    if completed == 0:
        return "failed", say("capture.all_failed", asked=asked, error=_first_error(found))
    if failed > 0:
        return "partial", say("capture.some_failed", failed=failed, asked=asked, error=_first_error(found))
    return ("complete", None) if outcome.ok else ("partial", outcome.error)


def _result(file: Path) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) else None


def _first_error(found: dict[str, Any]) -> str:
    errors: Sequence[Any] = found.get("errors") or []
    for error in errors:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return say("capture.no_error_text")


def _watching(
    bench: Bench, sampler: MetricsSampler, before: str, planned: PlannedPoint, tick: Tick
) -> Callable[[], str | None]:
    def look() -> str | None:
        done = increase(before, sampler.latest, "vllm:request_success_total") if sampler.latest else None
        tick(int(done or 0), planned.request.num_prompts)
        return bench.trouble()

    return look


def _scraped(url: str, file: Path, read: Callable[[str], str]) -> str:
    try:
        text = read(url)
    except OSError:
        return ""
    file.write_text(text, encoding="utf-8")
    return text


def _named(writer: RunWriter, file: Path) -> str | None:
    return writer.relative(file) if file.is_file() else None


def _remarks(bench: Bench, planned: PlannedPoint, before: str, after: str, sampler: MetricsSampler) -> Iterator[str]:
    cached = cached_prompt_tokens(before, after)
    if cached is not None and cached[0] > 0 and planned.workload.data.kind != "prefix_repetition":
        yield say("capture.cache_hits", id=planned.id, hits=f"{cached[0]:.0f}", queries=f"{cached[1]:.0f}")
    preempted = increase(before, after, "vllm:num_preemptions_total")
    if preempted:
        yield say("capture.preempted", id=planned.id, count=f"{preempted:.0f}")
    finished = increase(before, after, "vllm:request_success_total")
    if finished is not None and finished > planned.request.num_prompts:
        others = finished - planned.request.num_prompts
        yield say("capture.others", id=planned.id, count=f"{others:.0f}")
    if total(before, "vllm:num_requests_running"):
        yield say("capture.not_idle", id=planned.id)
    if sampler.failures:
        yield say("capture.samples_lost", id=planned.id, count=sampler.failures, why=sampler.last_failure)
