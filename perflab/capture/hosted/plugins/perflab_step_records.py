"""One JSON line per engine step, written by the API server of vLLM itself: a plugin of `vllm.stat_logger_plugins`.

perflab puts this folder on the PYTHONPATH of the servers it starts; the folder's `dist-info` makes vLLM find the
class below, and nothing is installed anywhere. PERFLAB_STEP_RECORDS names the file; without it nothing is written.

vLLM hands over its statistics once per step, on the event loop that serves requests. So `record` only picks numbers
out and puts them into a queue; a thread formats and writes them, twice a second. Whatever goes wrong switches the
records off, says so in the log once, and is never seen by vLLM. Standard library and vLLM only; names of fields that
a version of vLLM lacks read as absent (0.25.1 to 0.33).
"""

import atexit
import collections
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

VARIABLE = "PERFLAB_STEP_RECORDS"
FORMAT = 1
_FLUSH_S = 0.5
# A disk that hangs must not fill the memory: a hundred thousand steps are several minutes of the fastest engine.
_MOST_WAITING = 100_000
# vLLM configures the loggers below this name; another one would print nothing.
_log = logging.getLogger("vllm.perflab_step_records")


class Sink:
    """The file of one process. `put` never waits for it."""

    def __init__(self, path: Path, flush_s: float = _FLUSH_S) -> None:
        self.dropped = self.written = self.record_ns = self.flush_ns = 0
        self._waiting: collections.deque[tuple[Any, ...]] = collections.deque()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._flush_s = flush_s
        self._file: int | None = _created(path)
        self._write([{"format": FORMAT, "pid": os.getpid(), "t": time.time_ns(), "m": time.monotonic_ns()}])
        self._thread = threading.Thread(target=self._run, name="perflab-step-records", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def open(self) -> bool:
        """Whether it still takes records."""
        return self._file is not None

    def put(self, values: "tuple[Any, ...]") -> None:
        """Take one record."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(values)
        else:
            self.dropped += 1

    def close(self) -> None:
        """Write what is left, and what the records themselves cost."""
        self._done.set()
        if threading.current_thread() is not self._thread:
            # A hung disk must not keep the server from ending.
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        try:
            while not self._done.wait(self._flush_s):
                self._flush()
            self._flush()
            self._write([{"end": True, "written": self.written, "dropped": self.dropped,
                          "record_ns": self.record_ns, "flush_ns": self.flush_ns}])  # fmt: skip
        except Exception as error:
            _log.warning("perflab: no more step records: %s: %s", type(error).__name__, error)
        finally:
            with self._lock:
                file, self._file = self._file, None
                if file is not None:
                    os.close(file)

    def _flush(self) -> None:
        begin = time.thread_time_ns()
        rows = []
        while self._waiting:
            values = self._waiting.popleft()
            self.record_ns += values[-1]
            rows.append({name: value for name, value in zip(NAMES, values, strict=True) if value is not None})
        if rows:
            self._write(rows)
            self.written += len(rows)
        self.flush_ns += time.thread_time_ns() - begin

    def _write(self, rows: "list[dict[str, Any]]") -> None:
        if self._file is None:
            return
        data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
        while data:
            data = data[os.write(self._file, data) :]


def _created(path: Path) -> int:
    """A new file. Servers with several front ends have a process each: the others add their number to the name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
    try:
        return os.open(path, flags, 0o644)
    except FileExistsError:
        return os.open(path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}"), flags, 0o644)


# In the order in which `_picked` gives them. What is absent is left out of a line; zeros are written.
NAMES = (
    "t", "m", "engine", "running", "waiting", "deferred", "kv", "generated", "prompt", "computed", "cached",
    "preempted", "finished", "scheduled", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens",
    "engine_ms", "graph", "ns",
)  # fmt: skip


def _picked(scheduler: Any, iteration: Any, engine: int) -> "list[Any]":
    """The numbers of one step in the order of `NAMES`; None where this vLLM, or this step, has none."""
    row: list[Any] = [time.time_ns(), time.monotonic_ns(), engine]
    if scheduler is None:
        row += [None] * 4
    else:
        row += [
            scheduler.num_running_reqs,
            scheduler.num_waiting_reqs,
            getattr(scheduler, "num_skipped_waiting_reqs", None),
            scheduler.kv_cache_usage,
        ]
    if iteration is None:
        row += [0, 0, None, None, 0, 0]
    else:
        prompts = getattr(iteration, "prompt_token_stats", None)
        row += [
            iteration.num_generation_tokens,
            iteration.num_prompt_tokens,
            getattr(prompts, "computed", None),
            getattr(prompts, "cached_tokens", None),
            iteration.num_preempted_reqs,
            len(iteration.finished_requests),
        ]
    details = getattr(scheduler, "iteration_details", None)
    graph = getattr(scheduler, "cudagraph_stats", None)
    if details is not None:
        row += [
            details.num_ctx_tokens + details.num_generation_tokens,
            details.num_ctx_requests,
            details.num_ctx_tokens,
            details.num_generation_requests,
            details.num_generation_tokens,
            details.elapsed_ms,
        ]
    else:
        row += [None if graph is None else graph.num_unpadded_tokens, None, None, None, None, None]
    row.append(None if graph is None else f"{graph.runtime_mode}:{graph.num_padded_tokens}")
    return row


_sink: "Sink | None" = None
_asked = False


def _the_sink() -> "Sink | None":
    """The one file of this process: with data parallelism vLLM makes a logger per engine."""
    global _sink, _asked
    if not _asked:
        _asked = True
        path = os.environ.get(VARIABLE)
        _sink = Sink(Path(path)) if path else None
    return _sink


class StepRecords(StatLoggerBase):  # type: ignore[misc]
    """What vLLM calls, once per step and engine."""

    def __init__(self, vllm_config: Any = None, engine_index: int = 0, **_more: Any) -> None:
        self._engine = engine_index
        self._sink: Sink | None = None
        try:
            self._sink = _the_sink()
        except Exception as error:
            _log.warning("perflab: no step records: %s: %s", type(error).__name__, error)

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,
        engine_idx: "int | None" = None,
        **_more: Any,
    ) -> None:
        """Take the statistics of one step."""
        sink = self._sink
        if sink is None or (scheduler_stats is None and iteration_stats is None):
            return
        try:
            begin = time.perf_counter_ns()
            row = _picked(scheduler_stats, iteration_stats, self._engine if engine_idx is None else engine_idx)
            sink.put((*row, time.perf_counter_ns() - begin))
            if not sink.open:
                self._sink = None
        except Exception as error:
            self._sink = None
            _log.warning("perflab: no more step records: %s: %s", type(error).__name__, error)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


# A method that a later vLLM asks for must not keep its server from starting: the base's, which does nothing, will do.
StepRecords.__abstractmethods__ = frozenset()
