"""`with perflab.profile(llm):` around the generation of an offline `LLM(...)`, in a notebook or a script.

vLLM computes in processes of its own, where a profiler of this process sees nothing. So the recording is done by
vLLM's profiler over there, and this module only switches it, collects what it writes, and leaves a run directory::

    import perflab
    from perflab.tasks.breakdown import breakdown
    from vllm import LLM

    llm = LLM("Qwen/Qwen3-0.6B", **perflab.profiler_kwargs("traces"))
    llm.generate(prompts)                                   # warm up
    with perflab.profile(llm, out="runs/generate") as p:
        llm.generate(prompts)
    breakdown(p.run.path)

vLLM is never imported here: all that is used is the object that is given.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from perflab import __version__
from perflab.capture.hardware import hardware
from perflab.capture.torch_profile import is_whole
from perflab.errors import CaptureError, InputError
from perflab.messages import say
from perflab.runs import SCHEMA, Engine, Manifest, Profile, Run, RunWriter, now, open_run

_WRITTEN_S = 600.0
_MODEL, _CACHE, _PARALLEL = "model_config", "cache_config", "parallel_config"
# What a reader of a breakdown needs to know of the engine: vLLM's own names, and where its configuration keeps them.
_SETTINGS = {
    "max_model_len": _MODEL, "dtype": _MODEL, "quantization": _MODEL, "enforce_eager": _MODEL,
    "enable_prefix_caching": _CACHE, "gpu_memory_utilization": _CACHE, "num_gpu_blocks": _CACHE, "block_size": _CACHE,
    "tensor_parallel_size": _PARALLEL, "pipeline_parallel_size": _PARALLEL, "data_parallel_size": _PARALLEL,
    "max_num_seqs": "scheduler_config", "max_num_batched_tokens": "scheduler_config",
    "async_scheduling": "scheduler_config",
}  # fmt: skip


@dataclass
class Profiling:
    """What `profile` yields. `run` is there once the block has ended."""

    _run: Run | None = None

    @property
    def run(self) -> Run:
        """The run directory; the tasks and notebooks take `run.path`."""
        if self._run is None:
            raise CaptureError(say("profiling.not_ended"))
        return self._run


def profiler_kwargs(
    folder: str | Path, *, with_stack: bool = False, record_shapes: bool = True, max_steps: int = 0
) -> dict[str, Any]:
    """What to pass to `LLM(...)` so that it can be profiled: `LLM(model, **perflab.profiler_kwargs("traces"))`.

    Parameters
    ----------
    folder
        Where vLLM's processes write their traces; made if need be. `profile` moves them into its run directory.
    with_stack
        Python stacks: traces ten times larger, steps slower.
    record_shapes
        Shapes of operators' inputs.
    max_steps
        Engine steps recorded at most in one block; 0: all of them.
    """
    path = Path(folder).expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True)
    return {
        "profiler_config": {
            "profiler": "torch",
            "torch_profiler_dir": str(path),
            "torch_profiler_with_stack": with_stack,
            "torch_profiler_record_shapes": record_shapes,
            "max_iterations": max_steps,
            "ignore_frontend": True,
        }
    }


@contextlib.contextmanager
def profile(llm: Any, out: str | Path | None = None, *, title: str | None = None) -> Iterator[Profiling]:
    """Record what `llm` computes in the block, and leave a run directory.

    Parameters
    ----------
    llm
        A `vllm.LLM` made with `profiler_kwargs`.
    out
        The run directory, new or empty; `runs/profile-<time>` unless given.
    title
        Heading in reports; the model's name unless given.

    Raises
    ------
    InputError
        Before the block: `llm` was made without a profiler (the message says how to make it), or `out` is in use.
    CaptureError
        After the block: vLLM wrote no trace, because nothing was generated in it.
    """
    source = _trace_folder(llm)
    config = llm.llm_engine.vllm_config
    model = str(getattr(config.model_config, "served_model_name", None) or config.model_config.model)
    target = Path(out) if out is not None else Path("runs") / f"profile-{time.strftime('%Y%m%d-%H%M%S')}"
    writer = RunWriter(target.resolve(), _manifest(config, title or model, model))
    record = Profile(id="generate")
    writer.put_profile(record)
    known = _files(source)
    found = Profiling()
    try:
        llm.start_profile()
        try:
            yield found
        finally:
            llm.stop_profile()
        writer.put_profile(_collected(writer, record, source, known, _ranks(config)))
        writer.update(status="complete")
    except BaseException as error:
        why = (
            " ".join(f"{type(error).__name__}: {error}".split()) if not isinstance(error, CaptureError) else str(error)
        )
        writer.put_profile(msgspec.structs.replace(record, status="failed", reason=why))
        writer.update(status="failed", reason=why)
        raise
    found._run = open_run(writer.path)


def _trace_folder(llm: Any) -> Path:
    if not hasattr(llm, "start_profile") or not hasattr(llm, "llm_engine"):
        raise InputError(say("profiling.no_llm", what=type(llm).__name__))
    config = getattr(llm.llm_engine.vllm_config, "profiler_config", None)
    folder = getattr(config, "torch_profiler_dir", "")
    if getattr(config, "profiler", None) != "torch" or not folder:
        raise InputError(say("profiling.no_profiler"))
    return Path(folder)


def _files(folder: Path) -> dict[Path, int]:
    """Files with the time of their last change: vLLM overwrites its tables."""
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def _collected(writer: RunWriter, record: Profile, source: Path, known: dict[Path, int], ranks: int) -> Profile:
    end = time.monotonic() + _WRITTEN_S
    while True:
        new = sorted(file for file, changed in _files(source).items() if known.get(file) != changed)
        traces = [file for file in new if file.name.endswith((".trace.json", ".trace.json.gz"))]
        # The workers have answered, so they have begun to write; a step that was never made leaves no file at all.
        if not traces or (len(traces) >= ranks and all(map(is_whole, traces))) or time.monotonic() > end:
            break
        time.sleep(0.2)
    whole = [file for file in traces if is_whole(file)]
    if not whole:
        raise CaptureError(say("profiling.no_trace"))
    folder = writer.folder(f"profile/{record.id}")
    moved = {file: Path(shutil.move(file, folder / file.name)) for file in new if file in whole or file not in traces}
    tables = [writer.relative(moved[file]) for file in moved if file not in whole]
    kept = [writer.relative(moved[file]) for file in whole]
    if len(whole) < ranks:
        reason = say("capture.traces_missing", found=len(whole), ranks=ranks)
        return msgspec.structs.replace(record, status="partial", reason=reason, traces=kept, tables=tables)
    return msgspec.structs.replace(record, status="complete", traces=kept, tables=tables)


def _ranks(config: Any) -> int:
    return int(getattr(config.parallel_config, "world_size", 1))


def _manifest(config: Any, title: str, model: str) -> Manifest:
    settings = {
        name: _plain(value)
        for name, part in _SETTINGS.items()
        if (value := getattr(getattr(config, part, None), name, None)) is not None
    }
    compilation = getattr(config, "compilation_config", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    if mode is not None:
        settings["compilation_config"] = {"cudagraph_mode": str(getattr(mode, "name", mode))}
    device = str(getattr(getattr(config, "device_config", None), "device_type", ""))
    return Manifest(
        schema=SCHEMA,
        id=uuid4().hex[:12],
        title=title,
        origin="captured",
        created=now(),
        perflab_version=__version__,
        notes=[say("profiling.note")],
        engine=Engine(
            flavour="cpu" if device == "cpu" else "gpu" if device else "unknown",
            vllm_version=_version("vllm"),
            torch_version=_version("torch"),
            python_version=sys.version.split()[0],
            model=model,
            settings=settings,
        ),
        hardware=hardware(),
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else str(value).removeprefix("torch.")


def _version(module: str) -> str | None:
    """Of a module that is imported already: whoever made the engine imported it."""
    found = getattr(sys.modules.get(module), "__version__", None)
    return None if found is None else str(found)
