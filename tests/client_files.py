"""Small results as other benchmark clients write them, made by hand: the same three requests for all.

Sent at 0, 1 and 2 s; first tokens after 100, 200 and 300 ms; 11 tokens each, then 10, 20 and 30 ms apart. So TTFT is
200 ms in the mean, TPOT 20 ms, E2EL 400 ms, and the run ends at 2.6 s.
"""

# ruff: noqa: E501 (records stand as they are)

from __future__ import annotations

import json
from typing import Any

BASE_S = 1_790_000_000.0
SENT = (0.0, 1.0, 2.0)
TTFT = (0.1, 0.2, 0.3)
GAP = (0.01, 0.02, 0.03)
TOKENS, PROMPT = 11, 50
E2EL = tuple(ttft + gap * (TOKENS - 1) for ttft, gap in zip(TTFT, GAP, strict=True))
SECONDS = 2.6


def statistics(values: tuple[float, ...], names: dict[str, str], scale: float = 1.0) -> dict[str, float]:
    """Mean, median and the largest value as p90 and p99, by a client's names."""
    ordered = sorted(values)
    known = {
        "mean": sum(values) / len(values),
        "median": ordered[len(values) // 2],
        "p90": ordered[-1],
        "p99": ordered[-1],
    }
    return {theirs: known[ours] * scale for ours, theirs in names.items()}


PLAIN = {"mean": "mean", "median": "median", "p90": "p90", "p99": "p99"}
AVG = {"mean": "avg", "median": "p50", "p90": "p90", "p99": "p99"}


def guidellm(*, requests: bool = True, lengths: tuple[int, int] = (TOKENS, TOKENS), version: int = 2) -> dict[str, Any]:
    """A report of GuideLLM with one benchmark; `version` 1 is that of 0.2 and 0.3."""

    def summary(values: tuple[float, ...], scale: float = 1.0) -> dict[str, Any]:
        found = statistics(values, PLAIN, scale)
        percentiles = {"p50": found["median"], "p90": found["p90"], "p99": found["p99"], "p999": found["p99"]}
        whole = {"mean": found["mean"], "median": found["median"], "std_dev": 1.0, "min": min(values) * scale,
                 "max": max(values) * scale, "total_sum": sum(values) * scale, "percentiles": percentiles}  # fmt: skip
        return {"successful": whole, "errored": None, "incomplete": None}

    metrics = {
        "request_totals": {"successful": 3, "errored": 1, "incomplete": 2, "total": 6},
        "request_latency": summary(E2EL),
        "time_to_first_token_ms": summary(TTFT, 1000),
        "time_per_output_token_ms": summary(tuple(e / TOKENS for e in E2EL), 1000),
        "inter_token_latency_ms": summary(GAP, 1000),
        "prompt_token_count": summary((PROMPT,) * 3),
        "output_token_count": summary((lengths[0], lengths[0], lengths[1])),
    }
    rows = [_guidellm_request(n, version) for n in range(3)] if requests else []
    failed = [{"request_id": "x", "info": {"timings": {"request_start": BASE_S + 1.5}}, "start_time": BASE_S + 1.5}]
    one: dict[str, Any] = {
        "type_": "generative_benchmark", "duration": SECONDS, "start_time": BASE_S, "end_time": BASE_S + SECONDS,
        "metrics": metrics, "requests": {"successful": rows, "errored": failed if requests else [], "incomplete": []},
    }  # fmt: skip
    strategy = {"type_": "concurrent", "streams": 4}
    if version == 1:
        one["args"] = {"strategy": strategy, "max_number": 6}
        one["worker"] = {"backend_model": "m"}
        return {"benchmarks": [one]}
    one["config"] = {"strategy": strategy, "backend": {"kind": "openai_http", "model": "m"}, "constraints": {}}
    return {"metadata": {"version": 2, "guidellm_version": "0.8.0"}, "config": {}, "benchmarks": [one]}


def _guidellm_request(n: int, version: int) -> dict[str, Any]:
    start, first, last = BASE_S + SENT[n], BASE_S + SENT[n] + TTFT[n], BASE_S + SENT[n] + E2EL[n]
    if version == 1:
        return {"request_id": str(n), "prompt_tokens": PROMPT, "output_tokens": TOKENS, "start_time": start,
                "end_time": last + 0.005, "first_token_time": first, "last_token_time": last}  # fmt: skip
    timings = {
        "request_start": start,
        "first_token_iteration": first,
        "last_token_iteration": last,
        "request_end": last + 0.005,
    }
    return {
        "request_id": str(n),
        "info": {"status": "completed", "timings": timings},
        "prompt_tokens": PROMPT,
        "output_tokens": TOKENS,
    }


def aiperf(**more: Any) -> dict[str, Any]:
    """A summary of AIPerf; without `aiperf_version` and with GenAI-Perf's configuration it is GenAI-Perf's."""

    def metric(values: tuple[float, ...], unit: str = "ms", scale: float = 1000.0) -> dict[str, Any]:
        return {"unit": unit, **statistics(values, AVG, scale)}

    return {
        "schema_version": "1.4", "aiperf_version": "0.13.0",
        "request_throughput": {"unit": "requests/sec", "avg": 3 / SECONDS},
        "request_latency": metric(E2EL), "request_count": {"unit": "requests", "avg": 3.0},
        "error_request_count": {"unit": "requests", "avg": 1.0},
        "time_to_first_token": metric(TTFT), "inter_token_latency": metric(GAP), "inter_chunk_latency": metric(GAP),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 3 * TOKENS / SECONDS},
        "total_osl": {"unit": "tokens", "avg": 3.0 * TOKENS}, "total_isl": {"unit": "tokens", "avg": 3.0 * PROMPT},
        "benchmark_duration": {"unit": "sec", "avg": SECONDS},
        "input_config": {"endpoint": {"model_names": ["m"], "type": "chat"}, "loadgen": {"concurrency": 4, "request_count": 4},
                         "input": {"random_seed": 7}},
        **more,
    }  # fmt: skip


def aiperf_records(*, text_tokens: int = TOKENS, usage: bool = False) -> str:
    """AIPerf's records: a warm-up, three requests, one cancelled.

    Newer versions leave `error` out of requests that were answered, and tell the usage that the server reported.
    """
    made = [_aiperf_record(n) for n in range(3)]
    for record in made:
        record["metrics"]["output_sequence_length"]["value"] = text_tokens
        if usage:
            del record["error"]
            record["metrics"]["usage_completion_tokens"] = {"value": TOKENS, "unit": "tokens"}
    warm = json.loads(json.dumps(made[0]))
    warm["metadata"]["benchmark_phase"] = "warmup"
    failed = {"metadata": {"request_start_ns": int((BASE_S + 1.5) * 1e9), "benchmark_phase": "profiling", "was_cancelled": True},
              "metrics": {}, "error": {"code": 499, "message": "cancelled"}}  # fmt: skip
    return "\n".join(json.dumps(record) for record in (warm, *made, failed)) + "\n"


def _aiperf_record(n: int) -> dict[str, Any]:
    return {
        "metadata": {"request_start_ns": round((BASE_S + SENT[n]) * 1e9), "benchmark_phase": "profiling", "was_cancelled": False},
        "metrics": {
            "time_to_first_token": {"value": TTFT[n] * 1000, "unit": "ms"},
            "request_latency": {"value": E2EL[n] * 1000, "unit": "ms"},
            "inter_chunk_latency": {"value": [GAP[n] * 1000] * (TOKENS - 1), "unit": "ms"},
            "input_sequence_length": {"value": PROMPT, "unit": "tokens"},
            "output_sequence_length": {"value": TOKENS, "unit": "tokens"},
        },
        "error": None,
    }  # fmt: skip


AIPERF_CSV = """Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),200.00,100.00,300.00,300.00,300.00,300.00,250.00,200.00,150.00
Request Latency (ms),"1,400.00",200.00,600.00,"2,600.00",600.00,600.00,500.00,400.00,300.00
Inter Token Latency (ms),20.00,10.00,30.00,30.00,30.00,30.00,25.00,20.00,15.00

Metric,Value
Output Token Throughput (per sec),12.69
Request Throughput (per sec),1.15

Metric,GPU,avg
GPU Power Usage (W),0,400.0
"""


def perf_analyzer(*, usage: bool = True) -> dict[str, Any]:
    """GenAI-Perf's raw export: chat chunks, of which the first holds only the role and the last only usage."""
    requests = []
    for n in range(3):
        start = (BASE_S + SENT[n]) * 1e9
        times = (
            [start + 1e6]
            + [start + (TTFT[n] + GAP[n] * k) * 1e9 for k in range(TOKENS)]
            + [start + (E2EL[n] + 0.001) * 1e9]
        )
        deltas: list[dict[str, Any]] = [
            {"role": "assistant", "content": ""},
            *({"content": "x"} for _ in range(TOKENS)),
            {},
        ]
        told = {"usage": {"prompt_tokens": PROMPT, "completion_tokens": TOKENS}} if usage else {}
        outputs = [
            {"response": "data: " + json.dumps({"choices": [{"delta": delta}], **({} if delta else told)}) + "\n\n"}
            for delta in deltas
        ]
        requests.append(
            {"timestamp": round(start), "response_timestamps": [round(t) for t in times], "response_outputs": outputs}
        )
    return {"service_kind": "openai", "endpoint": "v1/chat/completions", "experiments": [
        {"experiment": {"mode": "concurrency", "value": 4}, "requests": requests}]}  # fmt: skip


def inference_perf(*, stage: bool = True) -> dict[str, Any]:
    """A stage of inference-perf, or the summary, which does not tell the rate."""
    load = {"count": 4, "schedule_delay": {"mean": 0.001, "p90": 0.002}}
    if stage:
        load |= {"send_duration": 2.0, "requested_rate": 1.0, "achieved_rate": 1.0}
    latency = {"request_latency": statistics(E2EL, PLAIN), "time_to_first_token": statistics(TTFT, PLAIN),
               "time_per_output_token": statistics(GAP, PLAIN), "inter_token_latency": statistics(GAP, PLAIN),
               "normalized_time_per_output_token": statistics(tuple(e / TOKENS for e in E2EL), PLAIN)}  # fmt: skip
    rates = {"requests_per_sec": 3 / SECONDS, "output_tokens_per_sec": 3 * TOKENS / SECONDS,
             "input_tokens_per_sec": 3 * PROMPT / SECONDS, "total_tokens_per_sec": 3 * (TOKENS + PROMPT) / SECONDS}  # fmt: skip
    lengths = {"prompt_len": {"mean": float(PROMPT)}, "output_len": {"mean": float(TOKENS)}}
    return {"load_summary": load, "successes": {"count": 3, "latency": latency, "throughput": rates, **lengths},
            "failures": {"count": 1, "request_latency": None}}  # fmt: skip


def inference_perf_requests() -> list[dict[str, Any]]:
    """inference-perf's requests, on a clock of its own."""
    rows: list[dict[str, Any]] = [
        {
            "start_time": 100.0 + SENT[n], "end_time": 100.0 + SENT[n] + E2EL[n] + 0.005, "request": json.dumps({"model": "m"}),
            "response": "x", "error": None,
            "info": {"input_tokens": PROMPT, "output_tokens": TOKENS,
                     "output_token_times": [100.0 + SENT[n] + TTFT[n] + GAP[n] * k for k in range(TOKENS)]},
        }
        for n in range(3)
    ]  # fmt: skip
    return [*rows, {"start_time": 101.5, "end_time": 101.6, "request": "{}", "response": "", "info": {"input_tokens": PROMPT, "output_tokens": 0, "output_token_times": []}, "error": {"error_type": "Timeout"}}]  # fmt: skip


def sglang(**more: Any) -> dict[str, Any]:
    """A result of SGLang's bench_serving with details; the last request failed."""
    return {
        "backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 4, "duration": SECONDS,
        "completed": 3, "total_input_tokens": 3 * PROMPT, "total_output_tokens": 3 * TOKENS,
        "total_output_tokens_retokenized": 3 * TOKENS, "request_throughput": 3 / SECONDS,
        "input_throughput": 3 * PROMPT / SECONDS, "output_throughput": 3 * TOKENS / SECONDS,
        "total_throughput": 3 * (TOKENS + PROMPT) / SECONDS, "mean_e2e_latency_ms": 400.0, "median_e2e_latency_ms": 400.0,
        "mean_ttft_ms": 200.0, "median_ttft_ms": 200.0, "p99_ttft_ms": 298.0, "mean_tpot_ms": 20.0, "median_tpot_ms": 20.0,
        "mean_itl_ms": 20.0, "median_itl_ms": 20.0, "concurrency": 0.46, "accept_length": None,
        "input_lens": [PROMPT] * 4, "output_lens": [TOKENS] * 3 + [0], "ttfts": [*TTFT, 0.0],
        "itls": [[gap] * (TOKENS - 1) for gap in GAP] + [[]], "generated_texts": [""] * 4, "errors": ["", "", "", "boom"],
        **more,
    }  # fmt: skip


LLMD = """version: '0.1'
scenario:
  model:
    name: m
  load:
    name: {tool}
metrics:
  time:
    duration: 2.6
  requests:
    total: 4
    failures: 1
    incomplete: 0
    input_length: {{units: count, mean: 50}}
    output_length: {{units: count, mean: 11}}
  latency:
    time_to_first_token: {{units: s, mean: 0.2, p50: 0.2, p99: 0.3}}
    time_per_output_token: {{units: ms/token, mean: 36.4}}
    inter_token_latency: {{units: s/token, mean: 0.02, p99p9: 0.03}}
    request_latency: {{units: s, mean: 0.4}}
  throughput:
    output_tokens_per_sec: 12.6923
"""

SGLANG_CONSOLE = """
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    2.0
Successful requests:                     996
Benchmark duration (s):                  264.25
Total input tokens:                      342460
Total generated tokens:                  218257
Total generated tokens (retokenized):    103837
Request throughput (req/s):              3.77
Input token throughput (tok/s):          1295.95
Output token throughput (tok/s):         825.94
Total throughput (tok/s):                2121.89
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   2098.07
Median E2E Latency (ms):                 606.86
---------------Time to First Token----------------
Mean TTFT (ms):                          2074.09
Median TTFT (ms):                        606.88
P99 TTFT (ms):                           15089.74
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          1.76
Median TPOT (ms):                        -0.00
P99 TPOT (ms):                           28.33
---------------Inter-token Latency----------------
Mean ITL (ms):                           0.00
Median ITL (ms):                         0.00
P99 ITL (ms):                            0.00
==================================================
"""


def forward() -> list[dict[str, Any]]:
    """Two cases of `vllm bench forward` of 0.33."""
    times = {"timer": "graph_events", "median": 4100.0, "sample_spread_pct": 0.2, "mean": 4110.0, "std": 5.0, "min": 4095.0,
             "p90": 4120.0, "count": 3, "samples_us": [4095.0, 4100.0, 4120.0]}  # fmt: skip
    rank = {"num_tokens": 32, "kv_blocks": 64, "routing": "real", "latency_us": times}
    case = {
        "case": "decode32",
        "requests": [{"query_len": 1, "kv_len": 512}] * 32,
        "median_us": 4100.0,
        "ranks": [rank],
    }
    return [case, {**case, "case": "decode64", "median_us": 5000.0}]
