"""A short pass under vLLM's own profiler (torch, or cuda for nsys), after measuring and never part of it.

The profiler is configured when the server starts and runs only between `/start_profile` and `/stop_profile`.
The worker creates it on the first start, so that until then a configured server does exactly what another
does: one server can be measured and then profiled (docs/experiment-file.md says how that was checked).
"""

from __future__ import annotations

import gzip
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from perflab.capture import http
from perflab.capture.point import Bench, judged
from perflab.errors import CaptureError
from perflab.experiment.plan import PlannedProfile
from perflab.messages import say
from perflab.runs import Command, Profile, now

# vLLM's own documentation speaks of ten minutes to write the trace of a large model.
_FLUSH_S = 1800.0
_COMPLETE_S = 120.0


def profile_begun(planned: PlannedProfile, server_run: int) -> Profile:
    """The manifest's record of a pass as it begins."""
    request = planned.request
    return Profile(
        id=planned.spec.id,
        kind=planned.spec.kind,
        role="teacher" if planned.spec.teacher else "measured",
        input_len=request.input_len,
        output_len=request.output_len,
        load=request.load,
        server_run=server_run,
    )


def profile(
    bench: Bench, planned: PlannedProfile, incoming: Path, *, server_run: int, ranks: int
) -> tuple[Profile, Command | None]:
    """Profile one pass on a running server; a failure is an outcome, not an exception.

    Parameters
    ----------
    incoming
        The folder the server was told to write traces to; they are moved to `profile/<id>/` of the run.
    ranks
        Workers, each of which writes a trace.

    Raises
    ------
    ServerGoneError
        The server ended before the pass began.
    """
    record = profile_begun(planned, server_run)
    bench.require_server()
    warm = bench.warm_up(planned.warmup, f"profile-{planned.spec.id}")
    if not warm.ok:
        bench.require_server()
        return _failed(record, say("capture.warmup_failed", why=warm.error)), None
    limits = {"delay_iterations": planned.spec.delay_steps, "max_iterations": planned.spec.max_steps}
    try:
        # Servers that know no body ignore it; their limits are those of the configuration.
        http.post(f"{bench.server.url}/start_profile", limits)
    except OSError as error:
        return _failed(record, say("capture.profile_not_started", why=http.why(error))), None
    result = bench.writer.folder("bench") / f"profile-{planned.spec.id}.json"
    argv = bench.argv(planned.request, result)
    started = now()
    try:
        outcome = bench.host.call(argv, result.with_suffix(".txt"), bench.experiment.point_deadline_s, bench.trouble)
    finally:
        stopped = _stop(bench)
    command = Command(
        purpose=say("capture.purpose_profile", id=planned.spec.id),
        argv=argv,
        started=started,
        ended=now(),
        exit_status=outcome.status,
    )
    status, reason = judged(outcome, result, planned.request.num_prompts)
    bench_file = bench.writer.relative(result) if result.is_file() else None
    if planned.spec.kind == "nsys":
        # Its report is there once the server has ended.
        status, reason = (status, reason) if stopped is None else ("partial", stopped)
        return msgspec.structs.replace(record, status=status, reason=reason, bench=bench_file), command
    try:
        traces, frontend, tables = _collect(bench, incoming, planned.spec.id, ranks)
    except CaptureError as error:
        return _failed(record, stopped or str(error)), command
    if stopped is not None or len(traces) < ranks:
        status, reason = "partial", stopped or say("capture.traces_missing", found=len(traces), ranks=ranks)
    return msgspec.structs.replace(
        record,
        status=status,
        reason=reason,
        traces=traces,
        frontend_traces=frontend,
        tables=tables,
        bench=bench_file,
    ), command


def _failed(record: Profile, reason: str) -> Profile:
    return msgspec.structs.replace(record, status="failed", reason=reason)


def _stop(bench: Bench) -> str | None:
    """End profiling, which returns when the traces are written; why it could not, or None."""
    if not bench.server.running:
        return bench.trouble()
    try:
        http.post(f"{bench.server.url}/stop_profile", timeout_s=_FLUSH_S)
    except OSError as error:
        return say("capture.profile_not_stopped", why=http.why(error))
    return None


def _collect(bench: Bench, incoming: Path, name: str, ranks: int) -> tuple[list[str], list[str], list[str]]:
    """Move what the server wrote into the run; traces, front-end traces, tables, as the manifest names them."""
    end = time.monotonic() + _COMPLETE_S
    while not (found := list(_traces(incoming))) or len(found) < ranks or not all(map(is_whole, found)):
        if time.monotonic() > end or not bench.server.running:
            break
        time.sleep(0.5)
    whole = [file for file in found if is_whole(file)]
    if not whole:
        raise CaptureError(say("capture.no_trace"))
    folder = bench.writer.folder(f"profile/{name}")
    kept: tuple[list[str], list[str], list[str]] = ([], [], [])
    for file in sorted(incoming.rglob("*")):
        if not file.is_file() or (file in found and file not in whole):
            continue
        target = folder / file.name
        shutil.move(file, target)
        kind = 2 if not _is_trace(file) else 1 if ".async_llm." in file.name else 0
        kept[kind].append(bench.writer.relative(target))
    return kept


def _is_trace(file: Path) -> bool:
    return file.name.endswith((".trace.json", ".trace.json.gz"))


def _traces(incoming: Path) -> Iterator[Path]:
    return (file for file in sorted(incoming.rglob("*")) if _is_trace(file) and ".async_llm." not in file.name)


def is_whole(file: Path) -> bool:
    """Whether a trace has been written to its end: a gzip stream with its checksum, or a closed JSON object."""
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                last = b""
                while chunk := stream.read(1 << 20):
                    last = chunk
        else:
            with file.open("rb") as plain:
                plain.seek(max(file.stat().st_size - 64, 0))
                last = plain.read()
    except (OSError, EOFError, zlib.error):
        return False
    return last.rstrip().endswith(b"}")
