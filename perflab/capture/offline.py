"""Points whose benchmark builds its own engine: `vllm bench latency` and `vllm bench throughput`.

Each runs in a process of its own, while no server does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from perflab.analysis.log.remedies import explained
from perflab.capture.client import Outcome
from perflab.capture.clock import Anchor, anchor
from perflab.capture.point import begun
from perflab.capture.probe import Probe
from perflab.capture.process import Group
from perflab.experiment.commands import offline_argv
from perflab.experiment.plan import PlannedPoint, offline_warmup
from perflab.experiment.spec import Experiment
from perflab.messages import say
from perflab.runs import Command, Point, RunWriter, now


def measure_offline(
    experiment: Experiment,
    probe: Probe,
    writer: RunWriter,
    planned: PlannedPoint,
    *,
    model: str,
    local: bool,
    tick: Callable[[], None],
) -> tuple[Point, Command, list[Anchor]]:
    """Measure one point; a failure is an outcome, not an exception. `tick` is called a few times a second."""
    result = writer.folder("bench") / f"{planned.id}.json"
    printed = result.with_suffix(".txt")
    argv = offline_argv(
        experiment,
        planned.request,
        model=model,
        result=str(result),
        known=probe.arguments[f"bench {planned.workload.kind}"],
        warmup=offline_warmup(planned),
    )
    env = probe.engine_environment(offline=local, extra=experiment.engine.env)
    point, anchors = begun(planned), [anchor(planned.id, "before")]
    with Group(probe.vllm_command(argv), env, printed, run=writer.path) as group:
        outcome = _awaited(group, printed, experiment.point_deadline_s, tick)
    anchors.append(anchor(planned.id, "after"))
    done = outcome.ok and result.is_file()
    point = msgspec.structs.replace(
        point,
        status="complete" if done else "failed",
        reason=None if done else outcome.error or say("capture.no_result"),
        bench=writer.relative(result) if result.is_file() else None,
        printed=writer.relative(printed) if printed.is_file() else None,
        ended=now(),
    )
    command = Command(
        purpose=say("capture.purpose_point", id=planned.id),
        argv=argv,
        started=point.started,
        ended=point.ended,
        exit_status=outcome.status,
    )
    return point, command, anchors


def _awaited(group: Group, printed: Path, deadline_s: float, tick: Callable[[], None]) -> Outcome:
    end = time.monotonic() + deadline_s
    while group.running:
        if time.monotonic() > end:
            return Outcome(None, say("capture.over_deadline", seconds=f"{deadline_s:g}"))
        tick()
        time.sleep(0.25)
    if group.exit_status == 0:
        return Outcome(0)
    lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
    return Outcome(group.exit_status, explained(lines) or say("capture.no_error_text"))
