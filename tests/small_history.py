"""Many small runs over days, written by hand: what tests of history and its benchmark work on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from perflab.runs import SCHEMA, Engine, Gpu, Hardware, Load, Manifest, Point

START = datetime(2026, 1, 1, tzinfo=UTC)


def write_run(
    folder: Path, day: float, tokens_per_s: float, *, version: str = "0.25.1", repeats: int = 1, load: int = 8,
    **settings: Any,
) -> Path:  # fmt: skip
    """A run directory of one measurement, `repeats` times, whose results are not detailed."""
    (folder / "bench").mkdir(parents=True)
    points = []
    for repeat in range(repeats):
        name = f"closed-c{load}-n{repeat}"
        result = {
            "date": "20260101-000000", "backend": "vllm", "model_id": "m", "tokenizer_id": "m", "num_prompts": 8,
            "request_rate": "inf", "max_concurrency": load, "duration": 1.0, "completed": 8, "total_input_tokens": 128,
            "total_output_tokens": 40, "request_throughput": tokens_per_s / 5, "output_throughput": tokens_per_s,
            "total_token_throughput": 4 * tokens_per_s, "mean_ttft_ms": 100.0, "median_ttft_ms": 1e5 / tokens_per_s,
            "p99_ttft_ms": 2e5 / tokens_per_s, "mean_tpot_ms": 10.0, "median_tpot_ms": 1e4 / tokens_per_s,
        }  # fmt: skip
        (folder / "bench" / f"{name}.json").write_text(json.dumps(result))
        points.append(Point(
            id=name, workload="closed", input_len=16, output_len=5, load=Load(concurrency=load), repeat=repeat,
            status="complete", bench=f"bench/{name}.json",
        ))  # fmt: skip
    manifest = Manifest(
        schema=SCHEMA, id=folder.name, title=folder.name, origin="captured", perflab_version="0.1.0", status="complete",
        created=(START + timedelta(days=day)).isoformat(timespec="milliseconds"), points=points,
        engine=Engine(
            flavour="gpu", vllm_version=version, model="/models/m", settings={"max_num_seqs": 256, **settings}
        ),
        hardware=Hardware(gpus=[Gpu(name="NVIDIA H200")], driver="580.1"),
    )  # fmt: skip
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return folder
