"""Tasks of lm-eval answered by the engine that serves: a job for `hosted/scoring/score_tasks.py`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflab.capture.compressor import last_line
from perflab.capture.probe import Probe
from perflab.capture.scoring import CPU_KV_BYTES, KV_BYTES, run_hosted
from perflab.errors import CaptureError
from perflab.messages import say

PACKAGE = "lm-eval>=0.4.13,<0.5"
_SCRIPT = "score_tasks.py"
_TRY = "import lm_eval.tasks, lm_eval.evaluator"
# A study's server settings that tasks do not need, or that are set below.
_NOT_TAKEN = frozenset({
    "host", "port", "max_logprobs", "logprobs_mode", "async_scheduling", "enable_prefix_caching",
    "max_num_batched_tokens", "kv_cache_memory_bytes", "num_gpu_blocks_override", "gpu_memory_utilization",
})  # fmt: skip


@dataclass(frozen=True)
class TaskJob:
    """Tasks that one variant is asked.

    Attributes
    ----------
    name
        Of its files in `work`.
    args
        Engine arguments of the variant.
    tasks
        Each with `name`, `path`, `limit`, `shots`, and `key`, which comes back with its answer.
    """

    name: str
    model: str
    args: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    env: Mapping[str, str] | None = None
    trust_remote_code: bool = False


def answers(work: Path, name: str) -> dict[str, Any]:
    """What a job has answered so far, also one that was cut short: task -> its answer; empty where there is none."""
    try:
        found = json.loads((work / f"{name}.json").read_text(encoding="utf-8"))
        return {str(task): {**one, "lm_eval": found.get("lm_eval")} for task, one in found["tasks"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def ask_tasks(
    job: TaskJob, probe: Probe, work: Path, tick: Callable[[int, int], None] = lambda _, __: None
) -> dict[str, Any]:
    """Run a job; returns its `answers`. `tick` hears how many documents of how many are done.

    Raises
    ------
    CaptureError
        With the last error of the engine's log, which stays in `work`; tasks that were done by then are in `answers`.
    """
    work.mkdir(parents=True, exist_ok=True)
    (work / f"{job.name}.json").unlink(missing_ok=True)
    # Data sets may have to be asked for, so a model that lies in a folder does not take the network away.
    env = probe.engine_environment(offline=False, extra=job.env)
    status, why, log = run_hosted(_SCRIPT, job.name, _document(job, probe, work), probe, env, work, tick)
    if status != 0:
        raise CaptureError(say("quantize_accuracy.failed", name=job.name, why=why, log=log))
    return answers(work, job.name)


def _document(job: TaskJob, probe: Probe, work: Path) -> dict[str, Any]:
    args = {key: value for key, value in job.args.items() if key not in _NOT_TAKEN}
    args.setdefault("max_num_seqs", 64)
    args.setdefault("max_model_len", -1)  # the model's own, or what the cache below can hold
    # A prompt's logits take a float for each token of the vocabulary: few tokens at once, and room beside the cache.
    args |= {
        "max_num_batched_tokens": 2048,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": CPU_KV_BYTES if probe.flavour == "cpu" else KV_BYTES,
    }
    if job.trust_remote_code:
        args["trust_remote_code"] = True
    return {
        "model": job.model, "args": args, "tasks": [dict(one) for one in job.tasks],
        "out": str(work / f"{job.name}.json"),
    }  # fmt: skip


def need_lm_eval(probe: Probe) -> None:
    """See that lm-eval can be imported where the engine is.

    Raises
    ------
    CaptureError
        Saying where it is missing and how to have it, or why it cannot be imported.
    """
    done = subprocess.run(
        [probe.python, "-c", _TRY], env=probe.engine_environment(offline=True), capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode == 0:
        return
    why = last_line(done.stderr)
    missing = "No module named 'lm_eval'" in why
    which = "quantize_tasks.no_lm_eval" if missing else "quantize_tasks.broken_lm_eval"
    raise CaptureError(say(which, python=probe.python, package=PACKAGE, why=why))
