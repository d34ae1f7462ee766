"""A run directory as a capture writes it, from the tables of a small or simulated engine."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from request_tables import EPOCH, MS, Asked, simulated

__all__ = ["MS", "burst", "write_run"]


def burst() -> list[Asked]:
    """Twenty requests, each alone, then four at once: on an engine with one seat three of them have to wait."""
    alone = [Asked(sent=300 * k * MS, prompt=20, output=5) for k in range(20)]
    return alone + [Asked(sent=7000 * MS + k, prompt=20, output=5) for k in range(4)]


def write_run(folder: Path, asked: list[Asked], *, seats: int, settings: dict[str, Any] | None = None) -> Path:
    """The run of one point `c4` on a simulated engine: detailed result, step records, clock anchors, manifest."""
    requests, chunks, iterations = simulated(asked, seats=seats)
    (folder / "bench").mkdir(parents=True)
    (folder / "bench/c4.json").write_text(json.dumps(_bench(requests, chunks)))
    lines: list[dict[str, Any]] = [{"format": 1, "pid": 7, "t": EPOCH, "m": 0}]
    lines += [
        {
            "t": int(row.t_ns), "m": int(row.monotonic_ns), "engine": 0, "running": int(row.running),
            "waiting": int(row.waiting),
            "kv": 0.1, "generated": int(row.generated_tokens), "prompt": int(row.prompt_tokens), "preempted": 0,
            "finished": int(row.finished), "ns": 100,
        }
        for row in iterations.itertuples()
    ]  # fmt: skip
    (folder / "step_records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = int(iterations["monotonic_ns"].max()) + MS
    anchors = [
        {"point": "c4", "when": when, "perf_counter_ns": at, "time_ns": EPOCH + at, "width_ns": 200}
        for when, at in (("before", 0), ("after", last))
    ]
    clock = {"schema": 1, "clock": "clock_gettime(CLOCK_MONOTONIC)", "shared_between_processes": True}
    (folder / "clock.json").write_text(json.dumps(clock | {"anchors": anchors}))
    manifest = {
        "schema": 1, "id": "1", "title": "simulated", "origin": "captured", "created": "2026-11-30T00:00:00+00:00",
        "perflab_version": "0", "status": "complete", "clock": "clock.json",
        "engine": {"vllm_version": "0.25.1", "settings": settings or {}},
        "step_records": [{"file": "step_records.jsonl"}],
        "points": [{"id": "c4", "workload": "c4", "bench": "bench/c4.json", "status": "complete"}],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def change(folder: Path, name: str, **changes: Any) -> Path:
    """Replace keys of one of its JSON files; None takes a key away."""
    document = json.loads((folder / name).read_text())
    document = {k: v for k, v in (document | changes).items() if v is not None}
    (folder / name).write_text(json.dumps(document))
    return folder


def _bench(requests: pd.DataFrame, chunks: pd.DataFrame) -> dict[str, Any]:
    sent, first = (requests[name].astype("int64") / 1e9 for name in ("arrival_ns", "first_token_ns"))
    gaps = chunks.groupby("request_id")["arrival_ns"].apply(lambda times: (times.diff().dropna() / 1e9).tolist())
    output = requests["output_tokens"].tolist()
    return {
        "completed": len(requests), "num_prompts": len(requests), "duration": 10.0, "request_throughput": 1.0,
        "total_input_tokens": int(requests["prompt_tokens"].sum()), "total_output_tokens": sum(output),
        "input_lens": requests["prompt_tokens"].tolist(), "output_lens": output, "start_times": sent.tolist(),
        "ttfts": (first - sent).tolist(), "itls": gaps.tolist(), "errors": [""] * len(requests),
    }  # fmt: skip
