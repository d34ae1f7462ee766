"""Benchmark results."""

import gzip
import json
import math

import numpy as np
import pandas as pd
import pytest

from perflab.errors import InputError
from perflab.read.bench import read_bench, read_bench_all
from perflab.schema import validate

# Three requests: two chunks of one token after the first; one token only; failed.
DETAILED = {
    "date": "20260101-000000", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": "m",
    "tokenizer_id": "t", "num_prompts": 3, "gpu": "H200", "request_rate": "inf", "burstiness": 1.0,
    "max_concurrency": 2, "duration": 2.0, "completed": 2, "failed": 1, "total_input_tokens": 20,
    "total_output_tokens": 4, "request_throughput": 1.0, "request_goodput": None, "output_throughput": 2.0,
    "total_token_throughput": 12.0, "input_lens": [10, 10, 10], "output_lens": [3, 1, 0],
    "ttfts": [0.1, 0.2, 0.0], "itls": [[0.01, 0.03], [], []], "latencies": [0.14, 0.2, 0.0],
    "start_times": [100.5, 101.0, 101.25], "queue_times": [0.0, 0.5, 0.25],
    "generated_texts": ["abc", "d", ""], "errors": ["", "", "Traceback ..."],
    "mean_ttft_ms": 150.0, "median_ttft_ms": 150.0, "p99_ttft_ms": 199.0, "mean_tpot_ms": 20.0,
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def to_file(*records, name="result.json", text=None):
        file = tmp_path / name
        file.write_text("\n".join(json.dumps(r) for r in records) if text is None else text)
        return file

    return to_file


def test_requests_of_a_detailed_result(write):
    result = read_bench(write(DETAILED))
    table = validate(result.requests, "requests")
    assert list(table["status"]) == ["ok", "ok", "failed"]
    assert list(table["arrival_ns"]) == [100_500_000_000, 101_000_000_000, 101_250_000_000]
    assert list(table["first_token_ns"][:2]) == [100_600_000_000, 101_200_000_000]
    assert list(table["finish_ns"][:2]) == [100_640_000_000, 101_200_000_000]
    assert list(table["prompt_tokens"]) == [10, 10, 10]
    assert list(table["queue_ns"]) == [0, 500_000_000, 250_000_000]
    failed = table.iloc[2]
    assert all(failed[c] is pd.NA for c in ("first_token_ns", "finish_ns", "output_tokens", "ttft_ns", "latency_ns"))
    assert (result.clock, result.notes) == ("client", ())


def test_chunks_start_with_the_first_token(write):
    chunks = validate(read_bench(write(DETAILED)).chunks, "chunks")
    assert list(chunks["request_id"]) == [0, 0, 0, 1]
    assert list(chunks["chunk_index"]) == [0, 1, 2, 0]
    assert list(chunks["arrival_ns"]) == [100_600_000_000, 100_610_000_000, 100_640_000_000, 101_200_000_000]
    assert list(chunks["token_count"]) == [1, 1, 1, 1]


def test_tokens_of_a_chunk_are_unknown_when_chunks_are_fewer(write):
    raw = {**DETAILED, "output_lens": [30, 1, 0]}
    assert list(read_bench(write(raw)).chunks["token_count"].isna()) == [True, True, True, False]


def test_meta_and_reported(write):
    result = read_bench(write(DETAILED))
    assert (result.kind, result.completed, result.failed, result.failed_inferred) == ("serve", 2, 1, False)
    assert (result.meta.model, result.meta.tokenizer, result.meta.backend, result.meta.label) == (
        "m",
        "t",
        "vllm",
        None,
    )
    assert (result.meta.request_rate, result.meta.rate_unbounded) == (None, True)
    assert (result.meta.max_concurrency, result.meta.num_prompts, result.meta.burstiness) == (2, 3, 1.0)
    assert result.meta.extra == {"gpu": "H200"}
    assert result.reported["p99_ttft_ms"] == 199.0
    assert result.reported["request_goodput"] is None
    assert "duration" not in result.reported and result.duration_s == 2.0


@pytest.mark.parametrize("rate, number, unbounded", [(4.0, 4.0, False), ("inf", None, True), ("2.5", 2.5, False),
                                                      (None, None, False)])  # fmt: skip
def test_request_rate(write, rate, number, unbounded):
    meta = read_bench(write({**DETAILED, "request_rate": rate})).meta
    assert (meta.request_rate, meta.rate_unbounded) == (number, unbounded)


def test_numbers_json_does_not_know(write):
    text = json.dumps({**DETAILED, "mean_itl_ms": math.nan, "request_rate": math.inf})
    assert "NaN" in text and "Infinity" in text
    result = read_bench(write(text=text))
    assert result.reported["mean_itl_ms"] is None
    assert result.meta.rate_unbounded


def test_zero_throughout_is_not_measured(write):
    raw = {**DETAILED, "mean_itl_ms": 0.0, "median_itl_ms": 0.0, "p99_itl_ms": 0.0, "std_ttft_ms": 0.0, "rtfx": 0.0}
    reported = read_bench(write(raw)).reported
    assert reported["mean_itl_ms"] is reported["p99_itl_ms"] is reported["rtfx"] is None
    assert reported["std_ttft_ms"] == 0.0


def test_old_result_without_failed_and_start_times(write):
    raw = {k: v for k, v in DETAILED.items() if k not in ("failed", "start_times", "latencies", "queue_times")}
    result = read_bench(write(raw))
    assert (result.failed, result.failed_inferred) == (1, True)
    assert "1 asked for" in result.notes[0]
    assert result.clock == "per_request"
    assert result.requests["arrival_ns"].isna().all()
    assert list(result.requests["ttft_ns"][:2]) == [100_000_000, 200_000_000]
    assert list(result.requests["finish_ns"][:2]) == [140_000_000, 200_000_000]
    assert list(result.chunks["arrival_ns"]) == [100_000_000, 110_000_000, 140_000_000, 200_000_000]


def test_failed_without_error_texts(write):
    raw = {k: v for k, v in DETAILED.items() if k != "errors"}
    assert list(read_bench(write(raw)).requests["status"]) == ["ok", "ok", "failed"]


@pytest.mark.parametrize("reported, status", [(2, "failed"), (1, "ok"), (None, "unknown"), (5, "unknown")])
def test_first_token_but_no_tokens_is_settled_by_the_count(write, reported, status):
    raw = {**DETAILED, "output_lens": [3, 0, 0], "failed": reported, "num_prompts": None}
    result = read_bench(write(raw))
    assert list(result.requests["status"]) == ["ok", status, "failed"]
    assert bool(result.notes) == (reported == 5)


def test_null_ttft_is_na(write):
    result = read_bench(write({**DETAILED, "ttfts": [None, 0.2, 0.0]}))
    assert result.requests["first_token_ns"].isna().tolist() == [True, False, True]
    assert list(result.chunks["request_id"]) == [1]


def test_not_detailed(write):
    raw = {k: v for k, v in DETAILED.items() if k not in
           ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")}  # fmt: skip
    result = read_bench(write(raw))
    assert result.requests is result.chunks is result.clock is None
    assert result.series["latencies"] == (0.14, 0.2, None)


def test_all_failed_has_no_chunks(write):
    raw = {**DETAILED, "ttfts": [0.0] * 3, "itls": [[]] * 3, "output_lens": [0] * 3, "latencies": [0.0] * 3,
           "completed": 0, "failed": 3}  # fmt: skip
    result = read_bench(write(raw))
    assert set(result.requests["status"]) == {"failed"}
    assert validate(result.chunks, "chunks").empty


def test_appended_results(write, tmp_path):
    file = write(DETAILED, {**DETAILED, "completed": 3}, name="results.jsonl")
    assert [r.completed for r in read_bench_all(file)] == [2, 3]
    with pytest.raises(InputError, match="holds 2 results"):
        read_bench(file)
    file.write_text(file.read_text()[:-20])
    results = read_bench_all(file)
    assert [r.completed for r in results] == [2]
    assert "Line 2" in results[0].notes[0]
    file.write_text(json.dumps(DETAILED) + "\n{bad\n" + json.dumps(DETAILED))
    with pytest.raises(InputError, match=r"results.jsonl:2: "):
        read_bench_all(file)


def test_latency_and_throughput_and_startup(write):
    latency = read_bench(
        write({"model_id": "m", "avg_latency": 2.0, "latencies": [1.5, 2.5], "percentiles": {"50": 2.0}})
    )
    assert (latency.kind, latency.reported, latency.series) == (
        "latency", {"avg_latency": 2.0, "p50_latency": 2.0}, {"latencies": (1.5, 2.5)},
    )  # fmt: skip
    throughput = read_bench(write({"model_id": "m", "elapsed_time": 2.0, "num_requests": 6, "total_num_tokens": 240,
                                   "requests_per_second": 3.0, "tokens_per_second": 120.0}))  # fmt: skip
    assert (throughput.kind, throughput.duration_s, throughput.meta.num_prompts) == ("throughput", 2.0, 6)
    assert throughput.reported == {
        "request_throughput": 3.0,
        "total_token_throughput": 120.0,
        "total_num_tokens": 240.0,
    }
    startup = read_bench(write({"avg_cold_startup_time": 9.0, "cold_startup_times": [9.0],
                                "cold_startup_percentiles": {"10": 9.0}}))  # fmt: skip
    assert (startup.kind, startup.reported) == ("startup", {"avg_cold_startup_time": 9.0, "p10_cold_startup": 9.0})


def test_wrapped_points_even_skipped_ones(write):
    points = [
        {"concurrency": 2, "ok": True, "metrics": {"successful_requests": 80, "benchmark_duration_s": 4.0,
         "spec_per_position_acceptance_percent": [50.0]}, "command": ["vllm", "bench", "serve", "--model", "m",
         "--num-prompts", "80", "--request-rate=2", "--ignore-eos", "--seed", "7"]},
        {"concurrency": 4, "ok": False, "detail": "server gone", "metrics": {}, "command": None},
    ]  # fmt: skip
    first, second = read_bench_all(write(text=json.dumps(points)))
    assert (first.completed, first.failed, first.duration_s) == (80, 0, 4.0)
    assert (first.meta.model, first.meta.max_concurrency, first.meta.request_rate, first.meta.seed) == ("m", 2, 2.0, 7)
    assert first.meta.extra["ignore_eos"] is True
    assert first.series["spec_decode_per_position_acceptance_rates"] == (0.5,)
    assert (second.completed, second.meta.max_concurrency) == (None, 4)
    assert "server gone" in second.notes[0]


@pytest.mark.parametrize("text, words", [
    ("", "is not a benchmark result"),
    ("hello", "is not a benchmark result"),
    ("[]", "is not a benchmark result"),
    ("{}", "is not a benchmark result"),
    ("[1, 2]", "is not a benchmark result"),
    ("[" * 100_000, "nested too deeply"),
    ('{"duration": 1.0, "completed": 1', ":1: is not valid JSON"),
    ('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}', "is a torch profiler .Kineto. trace"),
    (json.dumps({**DETAILED, "completed": "six"}), "completed is 'six', not a number"),
    (json.dumps({**DETAILED, "ttfts": [0.1]}), "lists differ in length"),
    (json.dumps({**DETAILED, "ttfts": ["a", 0, 0]}), "ttfts holds 'a'"),
    (json.dumps({**DETAILED, "ttfts": 3}), "ttfts is not a list"),
    (json.dumps({**DETAILED, "itls": [0.1, 0, 0]}), "itls.0. is not a list"),
    (json.dumps({**DETAILED, "itls": [[None], [], []]}), "itls.0. holds 'None'"),
])  # fmt: skip
def test_malformed(write, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_bench(write(text=text))
    assert "\n" not in str(caught.value)
    assert "result.json" in str(caught.value)


def test_truncated_gzip_is_named(tmp_path):
    packed = gzip.compress(json.dumps({**DETAILED, "generated_texts": [str(n) for n in range(5000)]}).encode())
    file = tmp_path / "r.json.gz"
    file.write_bytes(packed[:-3000])
    with pytest.raises(InputError, match="the compressed file ends early"):
        read_bench(file)


STATISTICS = {"mean": np.mean, "median": np.median, "std": np.std}


@pytest.mark.parametrize("name", [
    "recordings/h200/llama3-8b-awq/bench/c32.json", "recordings/h200/llama3-70b-bf16-tp2/bench/r8.json",
    "recordings/h200/llama3-8b-nograph-stacks/bench/c8a.json", "facts/samples/bench/serve_detailed.json",
])  # fmt: skip
def test_tables_give_vllms_figures_again(shared, name):
    result = read_bench(shared / name)
    ok = result.requests.query("status == 'ok'")
    ttft, latency = (ok[c].to_numpy(dtype=float) / 1e6 for c in ("ttft_ns", "latency_ns"))
    tokens = ok["output_tokens"].to_numpy(dtype=float)
    gaps = result.chunks.groupby("request_id")["arrival_ns"].diff().dropna().to_numpy(dtype=float) / 1e6
    again = {"ttft": ttft, "e2el": latency, "tpot": (latency - ttft) / (tokens - 1), "itl": gaps}
    compared = 0
    for key, reported in result.reported.items():
        statistic, _, metric = key.removesuffix("_ms").partition("_")
        if metric in again and reported is not None:
            how = STATISTICS.get(statistic, lambda values, q=statistic[1:]: np.percentile(values, float(q)))
            # Before 0.32 vLLM read the clock twice for the first token: E2EL differs by some 0.3 microseconds.
            assert how(again[metric]) == pytest.approx(reported, abs=5e-4), key
            compared += 1
    assert compared >= 12
    assert len(ok) == result.completed
    assert tokens.sum() == result.total_output_tokens
    assert tokens.sum() / result.duration_s == pytest.approx(result.reported["output_throughput"])


def test_results_of_others(shared):
    bench = shared / "fixtures/bench"
    points = read_bench_all(bench / "jasl-ds4/sm120_random_isl8k_mtp2_warmed_num72_bench.json")
    assert [p.meta.max_concurrency for p in points] == [1, 4, 8, 16, 24]
    assert [round(p.reported["output_throughput"], 1) for p in points] == [74.8, 99.0, 117.1, 122.7, 124.7]
    broken = read_bench_all(bench / "jasl-ds4/sm120_mtp1_mt_bench_bench.json")
    assert [p.failed for p in broken] == [0, 0, 76, None, None, None]
    offline = read_bench(bench / "mystous-vllm_hybrid/vanilla_run3/result.json")
    assert (offline.kind, offline.total_output_tokens) == ("throughput", 4_096_000)
    assert offline.reported["output_throughput"] == pytest.approx(4691.04, abs=0.01)
    with pytest.raises(InputError, match="not a benchmark result of vLLM"):
        read_bench(bench / "llm-d-benchmark/guidellm_report_v2.json")


def test_sweep_summary(shared):
    folder = shared / "facts/samples/sweep/results/exp1/SERVE--max_num_seqs=4-BENCH--in32"
    runs = read_bench_all(folder / "summary.json")
    assert [r.meta.extra["run_number"] for r in runs] == [0, 1]
    assert runs[0].meta.extra["max_num_seqs"] == 4
