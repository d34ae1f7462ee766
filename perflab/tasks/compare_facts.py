"""The facts of a run and a profiling pass that a comparison sets side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from perflab.analysis.compare.differences import LOAD, Differences, differences
from perflab.read.files import read_text
from perflab.runs import Profile, Run

# Names of places and ports tell how a server was reached, not how it computes.
_PLACES = re.compile(r"(?:^|[._])(?:port|ports|dir|path|ip|host|root|url|id|served_model_name|tokenizer)$")
_SHAPE = (
    "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "num_experts", "num_local_experts", "num_experts_per_tok",
)  # fmt: skip

# Of a config.json, what tells of the files and of Python and not of the network.
_OF_FILES = ("_name_or_path", "transformers_version", "use_cache")


def run_differences(
    runs: Sequence[Run | None], passes: Sequence[Profile | None] = (None, None), varied: Sequence[str] = ()
) -> Differences:
    """How the second of two runs differs from the first, by `compared_facts` and `differences`."""
    baseline, candidate = (compared_facts(run, one) for run, one in zip(runs, passes, strict=True))
    shapes = [_random_model(run) for run in runs]
    # Random weights of one config.json are one model, whatever its folder was called.
    if shapes[0] is not None and shapes[0] == shapes[1] and "model" in baseline and "model" in candidate:
        del baseline["model"], candidate["model"]
    return differences(baseline, candidate, varied)


def compared_facts(run: Run | None, profile: Profile | None) -> dict[str, Any]:
    """Facts by name; a name that is absent is not told, None is a value (a setting that is off)."""
    if run is None:
        return {}
    m = run.manifest
    facts: dict[str, Any] = {
        "vLLM": m.engine.vllm_version, "torch": m.engine.torch_version, "Python": m.engine.python_version,
        "build": None if m.engine.flavour == "unknown" else m.engine.flavour,
        "GPU": m.hardware.gpus[0].name if m.hardware.gpus else None, "GPUs": len(m.hardware.gpus) or None,
        "driver": m.hardware.driver, "host": m.hardware.cpu,
    }  # fmt: skip
    told = {name: value for name, value in facts.items() if value is not None}
    settings = {name: _plain(value) for name, value in m.engine.settings.items() if not _PLACES.search(name)}
    # Where a checkpoint lies differs from machine to machine; what it is called does not.
    if isinstance(settings.get("model"), str):
        settings["model"] = PurePosixPath(str(settings["model"])).name
    return told | settings | _shape(run) | _load(profile)


def _load(profile: Profile | None) -> dict[str, Any]:
    if profile is None:
        return {}
    asked = {
        "prompt tokens": profile.input_len, "output tokens": profile.output_len,
        "concurrency": profile.load.concurrency, "requests per second": profile.load.rate,
    }  # fmt: skip
    return {f"{LOAD}{name}": value for name, value in asked.items()}


def _random_model(run: Run | None) -> dict[str, Any] | None:
    """The config of a model whose weights were made up; None where they were read, or the config is not there."""
    if run is None or run.manifest.engine.settings.get("load_format") != "dummy":
        return None
    return {name: value for name, value in _config(run).items() if name not in _OF_FILES} or None


def _config(run: Run) -> dict[str, Any]:
    """config.json; empty where the run does not hold it."""
    if run.manifest.model_config is None:
        return {}
    try:
        config = json.loads(read_text(run.file(run.manifest.model_config))[0])
    except json.JSONDecodeError:
        return {}  # not told
    return config if isinstance(config, dict) else {}


def _shape(run: Run) -> dict[str, Any]:
    """The model's shape, where the run holds its config."""
    config = _config(run)
    config = config.get("text_config", config)
    return {f"model: {name}": _plain(config[name]) for name in _SHAPE if config.get(name) is not None}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, default=str)
