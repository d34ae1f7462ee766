"""What files there are, and by which keys a JSON text is known."""

from __future__ import annotations

# What a JSON object is, by keys that only it has; the first line that fits wins.
OBJECTS: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (kind, frozenset(keys.split()))
    for kind, keys in (
        ("manifest", "schema perflab_version"),
        ("kineto", "traceEvents"),
        ("kineto", "schemaVersion deviceProperties"),
        ("sglang", "completed duration total_output_tokens_retokenized"),
        ("bench_serve", "completed duration"),
        ("bench_latency", "avg_latency latencies"),
        ("bench_throughput", "elapsed_time requests_per_second"),
        ("bench_throughput", "generate_wall_s output_tps"),
        ("bench_startup", "avg_cold_startup_time"),
        ("bench_startup", "avg_warm_startup_time"),
        ("samples", "t_ns text"),
        ("telemetry", "t_ns metric value"),
        ("execution_trace", "schema nodes"),
        ("rocprof", "rocprofiler-sdk-tool"),
        ("model_config", "architectures"),
        ("model_config", "model_type"),
        ("dashboard", "panels templating"),
        ("guidellm", "metadata config benchmarks"),
        ("guidellm", "metadata args benchmarks"),
        ("inference_perf", "load_summary successes"),
        ("aiperf_records", "metadata metrics error"),  # of a request that was answered, by newer versions: see `sniff`
        ("aiperf", "request_throughput request_latency"),
        ("aiperf", "records input_config"),
        ("perf_analyzer", "experiments endpoint"),
        ("perf_analyzer", "experiments service_kind"),
        ("perf_analyzer", "experiments version"),
        ("perf_analyzer", "version service_kind"),
    )
)
IN_ARRAYS: tuple[tuple[str, frozenset[str]], ...] = (
    ("kineto", frozenset(("ph",))),
    ("sweep_summary", frozenset(("completed", "duration"))),
    ("bench_wrapped", frozenset(("concurrency", "metrics"))),
    ("bench_forward", frozenset(("case", "median_us"))),
    ("bench_forward", frozenset(("case", "requests"))),
    ("inference_perf_requests", frozenset(("start_time", "end_time"))),
)

NAMES = {
    "manifest": "a run directory's manifest",
    "kineto": "a torch profiler (Kineto) trace",
    "kineto_frontend": "a trace of vLLM's front end",
    "bench": "a benchmark result of vLLM",
    "bench_serve": "a result of `vllm bench serve`",
    "bench_latency": "a result of `vllm bench latency`",
    "bench_throughput": "a result of `vllm bench throughput`",
    "bench_startup": "a result of `vllm bench startup`",
    "bench_forward": "a result of `vllm bench forward`",
    "bench_wrapped": "a list of benchmark results",
    "bench_printed": "what `vllm bench serve` or SGLang printed",
    "sweep_summary": "a summary of `vllm bench sweep`",
    "samples": "recorded scrapes of /metrics",
    "telemetry": "recorded telemetry",
    "execution_trace": "a PyTorch execution trace",
    "memory_timeline": "a PyTorch memory timeline",
    "rocprof": "a rocprofiler-sdk result",
    "model_config": "a model's config.json",
    "profiler_table": "a table printed by the torch profiler",
    "metrics": "Prometheus text",
    "server_log": "a vLLM log",
    "dashboard": "a Grafana dashboard",
    "guidellm": "a report of GuideLLM",
    "aiperf": "a summary of AIPerf or GenAI-Perf",
    "aiperf_csv": "a CSV summary of AIPerf or GenAI-Perf",
    "aiperf_records": "AIPerf's records of requests",
    "perf_analyzer": "a raw export of GenAI-Perf",
    "inference_perf": "a report of inference-perf",
    "inference_perf_requests": "inference-perf's records of requests",
    "sglang": "a result of SGLang's `bench_serving`",
    "llmd_report": "a report of llm-d-benchmark",
    "vllm_help": "a help text of vLLM",
    "nsys": "an SQLite export of Nsight Systems",
    "nsys_report": "a report of Nsight Systems, which only its own tools can read",
    "sqlite": "an SQLite database",
    "archive": "an archive",
}
"""Every kind `sniff` tells, in words."""
