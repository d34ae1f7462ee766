"""Text scored by the engine that serves: jobs for `hosted/scoring`, which runs in the engine's Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from perflab.capture.compressor import why_ended
from perflab.capture.environment import HOSTED
from perflab.capture.probe import Probe
from perflab.capture.process import Group
from perflab.errors import CaptureError
from perflab.messages import say

Executor = Literal["vllm", "transformers"]
_FOLDER = HOSTED / "scoring"
_SCRIPTS: Mapping[Executor, str] = {"vllm": "score_tokens.py", "transformers": "score_decompressed.py"}
# Room for some windows; the rest of a GPU is left to the comparison itself.
KV_BYTES = 2 << 30
CPU_KV_BYTES = 512 << 20
# What would change how prompts run one at a time, or is set below.
_NOT_TAKEN = frozenset({
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "gpu_memory_utilization",
    "kv_cache_memory_bytes", "max_logprobs", "async_scheduling", "num_gpu_blocks_override", "host", "port",
    "enable_chunked_prefill", "logprobs_mode",
})  # fmt: skip


@dataclass(frozen=True)
class ScoreJob:
    """One pass over the text.

    Attributes
    ----------
    name
        Of its files in `work`.
    role
        `write`: keep the next-token distributions as the reference; `compare`: with it.
    args
        Engine arguments of the variant.
    window, tokens
        Tokens of a prompt, and how many are to be scored at least.
    chunk
        Tokens of a prompt computed at once; None: all. The control differs in it.
    limit
        Windows to score, the first ones; None: all.
    decode
        Prefix lengths and number of documents for decoding steps; None: none.
    """

    name: str
    role: Literal["write", "compare"]
    model: str
    args: Mapping[str, Any]
    window: int
    tokens: int
    top_k: int | None = None
    chunk: int | None = None
    limit: int | None = None
    decode: Mapping[str, Any] | None = None
    env: Mapping[str, str] | None = None
    executor: Executor = "vllm"
    trust_remote_code: bool = False


def score(job: ScoreJob, probe: Probe, work: Path, tick: Callable[[int, int], None] = lambda _, __: None) -> Path:
    """Run a job; returns the file of its numbers (`.npz`), beside which `.npz.json` tells how it ran.

    `work` holds `documents.json`, and what jobs share: `windows.json` and the reference. `tick` hears how many windows
    of how many are done.

    Raises
    ------
    CaptureError
        With the last error of the engine's log, which stays in `work`.
    """
    out = work / f"{job.name}.npz"
    env = probe.engine_environment(offline=Path(job.model).is_dir(), extra=job.env)
    document = _document(job, probe, work, out)
    status, why, log = run_hosted(_SCRIPTS[job.executor], job.name, document, probe, env, work, tick)
    if status != 0 or not out.is_file():
        raise CaptureError(say("quantize_accuracy.failed", name=job.name, why=why, log=log))
    return out


def run_hosted(
    script: str,
    name: str,
    document: Mapping[str, Any],
    probe: Probe,
    env: dict[str, str],
    work: Path,
    tick: Callable[[int, int], None],
) -> tuple[int | None, str, Path]:
    """Run one of the scripts of `hosted/scoring` on a job; its exit status, why it ended where it failed, its log.

    The job lies beside its log in `work`; besides what `document` says it names the file of its progress.
    """
    log, progress, file = (work / f"{name}{end}" for end in (".log", ".progress", ".job.json"))
    for old in (log, progress):
        old.unlink(missing_ok=True)
    file.write_text(json.dumps({**document, "progress": str(progress)}), encoding="utf-8")
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), str(_FOLDER)])
    if probe.flavour == "cpu":
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        # vLLM leaves a core to a server's front end; here there is none.
        env.setdefault("OMP_NUM_THREADS", str(psutil.cpu_count(logical=False) or 1))
    with Group([probe.python, str(_FOLDER / script), str(file)], env, log) as group:
        while group.wait(0.5) is None:
            tick(*_done(progress))
        status, ending = group.exit_status, group.ending
    return status, "" if status == 0 else why_ended(status, ending, log), log


def _document(job: ScoreJob, probe: Probe, work: Path, out: Path) -> dict[str, Any]:
    args = {key: value for key, value in job.args.items() if key not in _NOT_TAKEN}
    args |= {
        "max_model_len": job.window + 8,
        "max_num_seqs": 1,
        "max_num_batched_tokens": job.chunk or max(2048, job.window + 8),
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_logprobs": 1,
        "async_scheduling": False,
        "kv_cache_memory_bytes": CPU_KV_BYTES if probe.flavour == "cpu" else KV_BYTES,
    }
    if job.trust_remote_code:
        args["trust_remote_code"] = True
    return {
        "model": job.model, "args": args, "documents": str(work / "documents.json"),
        "windows": str(work / "windows.json"), "window": job.window, "tokens": job.tokens, "role": job.role,
        "reference": str(work / "reference"), "top_k": job.top_k, "decode": job.decode, "out": str(out),
        "limit": job.limit,
    }  # fmt: skip


def _done(progress: Path) -> tuple[int, int]:
    try:
        found = json.loads(progress.read_text(encoding="utf-8"))
        return int(found["done"]), int(found["of"])
    except (OSError, ValueError, KeyError):
        return 0, 0


def kernels_named(log: Path) -> list[str]:
    """Lines of the engine's log that name the kernel of quantized layers, without their prefix."""
    if not log.is_file():
        return []
    found: list[str] = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        _, _, said = line.partition("] ")
        if said.startswith(("Using ", "Selected ")) and ("Kernel" in said or "LinearMethod" in said):
            found.append(said.strip())
    return list(dict.fromkeys(found))
