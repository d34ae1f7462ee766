"""Results of `vllm bench forward` (0.33 and later): the time of one replayed step of an exact batch, a case each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perflab.read.bench import json_records
from perflab.read.bench_result import BenchMeta, BenchResult
from perflab.read.clients.common import at, known, number
from perflab.read.files import read_text, refusal

_S_PER_US = 1e-6
_LATENCIES = {
    "mean": "avg_latency",
    "median": "p50_latency",
    "p90": "p90_latency",
    "std": "std_latency",
    "min": "min_latency",
}


def read_forward(path: str | Path) -> list[BenchResult]:
    """Every case of a file. Each time is that of the slowest rank; latencies are in seconds, as in `bench latency`.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    body, damage = read_text(path)
    records, notes = json_records(body, damage, Path(path), "bench_forward")
    if not all("case" in record and "median_us" in record for record in records):
        raise refusal(path, "bench_forward")
    return [_result(record, Path(path), notes) for record in records]


def forward_part(path: Path, place: int) -> str:
    """The file with only the case at `place`, from 0."""
    return json.dumps([json_records(read_text(path)[0], None, path, "bench_forward")[0][place]])


def _result(record: dict[str, Any], path: Path, notes: tuple[str, ...]) -> BenchResult:
    times = at(record, "ranks", 0, "latency_us")
    told = {ours: number(at(times, theirs)) for theirs, ours in _LATENCIES.items()}
    told["p50_latency"] = number(record.get("median_us"))
    samples = at(times, "samples_us")
    series = [found for one in samples if (found := number(one)) is not None] if isinstance(samples, list) else []
    requests = record.get("requests")
    return BenchResult(
        path=path,
        kind="forward",
        meta=BenchMeta(
            label=str(record["case"]), num_prompts=len(requests) if isinstance(requests, list) else None,
            extra=known({"num_tokens": number(at(record, "ranks", 0, "num_tokens")),
                         "sample_spread_pct": number(at(times, "sample_spread_pct"))}),
        ),
        reported={name: value * _S_PER_US for name, value in told.items() if value is not None},
        series={"latencies": tuple(value * _S_PER_US for value in series)} if series else {},
        notes=notes,
    )  # fmt: skip
