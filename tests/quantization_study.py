"""Studies of quantization written by hand, whose answers can be seen by eye: folders as perflab makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perflab.runs import SCHEMA, Engine, Gpu, Hardware, Load, Manifest, Point, Server

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GIB = 1024**3
LOG = """INFO 11-30 15:05:21 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: model='m'
INFO 11-30 15:05:26 [gpu_model_runner.py:1] Model loading took {weights} GiB and 2.0 seconds
INFO 11-30 15:05:27 [gpu_worker.py:1] Available KV cache memory: {kv} GiB
INFO 11-30 15:05:27 [kv_cache_utils.py:1] GPU KV cache size: {tokens:,} tokens
"""


def write_variant(
    run: Path,
    rates: Mapping[int, Sequence[float]],
    *,
    weights: float = 15.0,
    kv: float = 40.0,
    checkpoint: Mapping[str, Any] | None = None,
    kernel: str = "",
    gpu: str = "NVIDIA H200",
    version: str = "0.25.1",
    **settings: Any,
) -> Path:
    """A run directory: for each load the output tokens a second of each server run; TPOT is 1000 over rate / load.

    Parameters
    ----------
    weights, kv
        What the log says, in GiB.
    checkpoint
        `quantization_config` of the model.
    kernel
        What the log names after `Using` for linear layers.
    """
    (run / "bench").mkdir(parents=True)
    points = []
    servers = max(len(values) for values in rates.values())
    for load, values in rates.items():
        for server, rate in enumerate(values):
            name = f"c{load}-s{server}"
            (run / "bench" / f"{name}.json").write_text(json.dumps(_bench(load, rate, f"{run.name}-{name}")))
            points.append(Point(
                id=name, workload="closed", input_len=512, output_len=128, load=Load(concurrency=load),
                server_run=server, status="complete", bench=f"bench/{name}.json",
            ))  # fmt: skip
    log = LOG.format(weights=weights, kv=kv, tokens=round(kv * GIB / 131072))
    if kernel:
        log += f"INFO 11-30 15:05:28 [awq.py:1] Using {kernel} for AutoAWQMarlinLinearMethod\n"
    (run / "server.log").write_text(log)
    config = LLAMA | ({"quantization_config": dict(checkpoint)} if checkpoint else {})
    (run / "config.json").write_text(json.dumps(config))
    base = {"dtype": "bfloat16", "load_format": "dummy", "tensor_parallel_size": 1, "max_num_batched_tokens": 8192}
    manifest = Manifest(
        schema=SCHEMA, id=run.name, title=run.name, origin="captured", perflab_version="0.1.0", status="complete",
        created="2026-11-30T00:00:00.000+00:00", points=points, log="server.log", model_config="config.json",
        servers=[Server(server_run=i, log="server.log") for i in range(servers)],
        engine=Engine(flavour="gpu", vllm_version=version, model="/models/m", settings={**base, **settings}),
        hardware=Hardware(gpus=[Gpu(name=gpu, memory_bytes=140 * GIB)]),
    )  # fmt: skip
    (run / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return run


def _bench(load: int, rate: float, label: str) -> dict[str, Any]:
    tpot = 1000 * load / rate
    return {
        "date": "20261130-000000", "backend": "vllm", "model_id": "m", "tokenizer_id": "m", "num_prompts": 4 * load,
        "request_rate": "inf", "max_concurrency": load, "duration": 4 * load * 128 / rate, "completed": 4 * load,
        "failed": 0, "total_input_tokens": 4 * load * 512, "total_output_tokens": 4 * load * 128,
        "request_throughput": rate / 128, "output_throughput": rate, "total_token_throughput": 5 * rate,
        "label": label,
        **{
            f"{statistic}_{name}_ms": value
            for name, value in (("tpot", tpot), ("ttft", 20.0 * load), ("itl", tpot), ("e2el", 128 * tpot))
            for statistic in ("mean", "median", "p50", "p99")
        },
    }  # fmt: skip


def accuracy_document(variant: str, ratio: tuple[float, float, float], **changes: Any) -> dict[str, Any]:
    """What `accuracy.json` holds: the ratio of perplexities with its interval, agreement and KL."""
    return {
        "schema": 1, "variant": variant, "format": variant, "model": {"name": "small-real-model"},
        "executed": "vLLM 0.32.0 on the CPU", "engine": {"vllm": "0.32.0", "device": "a CPU"},
        "text": {"what": "English", "tokens": 20000, "documents": 100},
        "perplexity": _estimate(18.0 * ratio[0]), "perplexity_ratio": _estimate(*ratio),
        "agreement": _estimate(0.97, 0.96, 0.98), "kl": _estimate(0.01, 0.008, 0.012), "kl_is_lower_bound": False,
        "control": {"kl": _estimate(0.0005)}, "notes": ["The small model was itself dequantized."],
    } | changes  # fmt: skip


def _estimate(value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    return {"value": value, "ci_low": low, "ci_high": high, "n": 100}


def write_study(
    folder: Path,
    runs: Mapping[str, Mapping[str, Any]] | None = None,
    accuracy: Mapping[str, Mapping[str, Any]] | None = None,
    **told: Any,
) -> Path:
    """A study: `runs` by directory name (`fp8-pinned`) are arguments of `write_variant`, `accuracy` whole documents."""
    folder.mkdir(parents=True)
    names = dict.fromkeys([*(name.rpartition("-")[0] for name in runs or {}), *(accuracy or {})])
    variants = [{"name": name, "format": name, "label": name.upper()} for name in names]
    study = {"schema": 1, "name": folder.name, "model": {"name": "m"}, "variants": variants} | told
    (folder / "study.json").write_text(json.dumps(study))
    for name, given in (runs or {}).items():
        write_variant(folder / "speed" / name, **given)
    for name, document in (accuracy or {}).items():
        (folder / "accuracy" / name).mkdir(parents=True)
        (folder / "accuracy" / name / "accuracy.json").write_text(json.dumps(document))
    return folder


def three(value: float) -> list[float]:
    """Three server runs, half a percent apart, whose geometric mean is the value."""
    return [value / 1.005, value, value * 1.005]
