"""Benchmark reports of llm-d-benchmark: YAML of versions 0.1 and 0.2, which sum up another client's result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from perflab.errors import InputError
from perflab.read.bench_result import BenchMeta, BenchResult
from perflab.read.clients.common import at, count, family, known, number, positive, rates, text
from perflab.read.files import read_text, refusal

_FAMILIES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2el",
}
_RATES = {
    "request_throughput": ("requests_per_sec", "request_rate"),
    "input_throughput": ("input_tokens_per_sec", "input_token_rate"),
    "output_throughput": ("output_tokens_per_sec", "output_token_rate"),
    "total_token_throughput": ("total_tokens_per_sec", "total_token_rate"),
}
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def read_llmd(path: str | Path) -> list[BenchResult]:
    """The one result of a report.

    Raises
    ------
    InputError
        When it is not such a report, or is damaged.
    """
    body, damage = read_text(path)
    try:
        document = yaml.safe_load(body)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        why = damage or str(getattr(error, "problem", None) or "cannot be parsed").splitlines()[0]
        raise InputError(f"is not valid YAML ({why})", path=path, line=mark.line + 1 if mark else None) from error
    metrics = at(document, "metrics") or at(document, "results", "request_performance", "aggregate")
    if not isinstance(metrics, dict) or "latency" not in metrics:
        raise refusal(path, "llmd_report")
    return [_result(document, metrics, Path(path))]


def _result(document: Any, metrics: dict[str, Any], path: Path) -> BenchResult:
    reported: dict[str, float | None] = {}
    for key, name in _FAMILIES.items():
        values = at(metrics, "latency", key)
        scale = _MILLISECONDS.get(str(at(values, "units")).partition("/")[0])
        reported |= family(name, values, scale) if scale else {}
    tool = text(at(document, "scenario", "load", "name")) or text(
        at(document, "scenario", "load", "standardized", "tool")
    )
    marks = _marks(tool or "", reported)
    if "tpot_with_first" in marks:
        reported = {key: value for key, value in reported.items() if not key.endswith("_tpot_ms")}
    all_of, failed, cut = (count(at(metrics, "requests", name)) for name in ("total", "failures", "incomplete"))
    done = None if all_of is None else max(all_of - (failed or 0) - (cut or 0), 0)
    duration = positive(at(metrics, "time", "duration"))
    lengths = (number(at(metrics, "requests", f"{name}_length", "mean")) for name in ("input", "output"))
    prompt, output = (count(round(mean * done)) if mean is not None and done else None for mean in lengths)
    told = {ours: _rate(metrics, names) for ours, names in _RATES.items()}
    return BenchResult(
        path=path, kind="serve", meta=_meta(document), completed=done, failed=failed, duration_s=duration,
        total_input_tokens=prompt, total_output_tokens=output,
        reported={**rates(duration, done, prompt, output), **known(told), **known(reported)},
        client=f"llm-d-benchmark ({tool})" if tool else "llm-d-benchmark", marks=marks,
    )  # fmt: skip


def _marks(tool: str, reported: dict[str, float | None]) -> tuple[str, ...]:
    """What the tool whose result is summed up does differently."""
    names = {key.rsplit("_", 2)[-2] for key in reported}
    if tool == "guidellm":
        return ("taken_percentiles", *(("itl_of_requests",) if "itl" in names else ()), "tpot_with_first")
    if tool == "inference-perf":
        return ("tpot_by_chunks",) if "tpot" in names else ()
    return () if tool in ("vllm-benchmark", "vllm") else ("unknown_client",)


def _rate(metrics: dict[str, Any], names: tuple[str, str]) -> float | None:
    flat = number(at(metrics, "throughput", names[0]))
    return flat if flat is not None else number(at(metrics, "throughput", names[1], "mean"))


def _meta(document: Any) -> BenchMeta:
    load = at(document, "scenario", "load")
    asked = at(load, "standardized")
    return BenchMeta(
        model=text(at(document, "scenario", "model", "name"))
        or text(at(load, "native", "config", "server", "model_name")),
        request_rate=positive(at(asked, "rate_qps")) or positive(at(load, "args", "qps_values")),
        max_concurrency=count(at(asked, "concurrency")) or None,
        label=text(at(document, "run", "eid")),
    )
