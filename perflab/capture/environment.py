"""The environment of the processes that run in the engine's Python, and what of it a manifest may show."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from perflab.experiment.secrets import redact_env, secret_values

HOSTED = Path(str(files("perflab.capture"))) / "hosted"

# Nothing here is measured, and none of it should leave the machine.
_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
_LOOPBACK = ("127.0.0.1", "localhost")
# Inherited variables that can change what is measured.
_TELLING = (
    "VLLM_", "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "OMP_", "KMP_", "MKL_", "TORCH_", "PYTORCH_", "TRITON_",
    "HF_", "TRANSFORMERS_", "TOKENIZERS_", "LD_PRELOAD", "FLASHINFER_", "PERFLAB_",
)  # fmt: skip


def engine_environment(
    *,
    cpu: bool = False,
    hidden: tuple[str, ...] = (),
    offline: bool = False,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """perflab's own environment, made fit for the engine.

    `hidden` are installed modules that must look absent (see `hosted/startup/sitecustomize.py`), `offline`
    keeps Hugging Face from being asked, `extra` are the experiment's variables and win over all else.
    """
    env = {**os.environ, **_QUIET}
    if cpu:
        env.setdefault("VLLM_TARGET_DEVICE", "cpu")
    if offline:
        env.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"})
    env.update(extra or {})
    startup = str(HOSTED / "startup")
    inherited = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part and part != startup]
    env["PYTHONPATH"] = os.pathsep.join([startup, *inherited])
    # A proxy for the outside must not come between the client and a server on this machine.
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in env.get(name, "").split(",") if host]
        env[name] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    if hidden:
        env["PERFLAB_HIDE"] = ",".join(hidden)
    return env


def with_step_records(env: Mapping[str, str], file: Path) -> dict[str, str]:
    """`env` in which a server finds the plugin of step records (see `hosted/plugins`) and writes them to `file`."""
    name, plugins = "perflab_step_records", env.get("VLLM_PLUGINS")
    parts = [*env.get("PYTHONPATH", "").split(os.pathsep), str(HOSTED / "plugins")]
    found = {**env, "PYTHONPATH": os.pathsep.join(part for part in parts if part), "PERFLAB_STEP_RECORDS": str(file)}
    if plugins is not None and name not in plugins.split(","):
        # The user's choice of plugins; vLLM loads none that is not in it.
        found["VLLM_PLUGINS"] = ",".join([*filter(None, plugins.split(",")), name])
    return found


def shown_environment(env: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a manifest records of `env`: variables that can change a measurement, secrets replaced."""
    names = sorted(name for name in env if name.startswith(_TELLING) or name in (given or {}))
    return redact_env({name: env[name] for name in names}, secret_values(env))
