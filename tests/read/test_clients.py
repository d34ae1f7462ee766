"""Results of other benchmark clients: the same three requests give the same figures, and nothing is made up."""

import json

import client_files as made
import pandas as pd
import pytest

from perflab.errors import InputError
from perflab.knowledge.clients import client_marks
from perflab.messages import say
from perflab.read.files import sniff
from perflab.read.results import READERS, read_results
from perflab.schema import validate
from perflab.tasks.latency import measured_metrics

TEXTS = {
    "guidellm": json.dumps(made.guidellm()),
    "guidellm 1": json.dumps(made.guidellm(version=1)),
    "aiperf": json.dumps(made.aiperf()),
    "aiperf_records": made.aiperf_records(),
    "perf_analyzer": json.dumps(made.perf_analyzer()),
    "inference_perf": json.dumps(made.inference_perf()),
    "inference_perf_requests": json.dumps(made.inference_perf_requests()),
    "sglang": json.dumps(made.sglang()),
}


@pytest.fixture
def read(tmp_path):
    def of(text, name="result.json"):
        file = tmp_path / name
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return read_results(file)

    return of


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_requests_give_the_same_figures(name, read, tmp_path):
    (result,) = read(TEXTS[name])
    assert sniff(tmp_path / "result.json") == name.split()[0]
    metrics = measured_metrics(result, {})
    assert metrics["ttft_ms"]["mean"] == pytest.approx(200)
    assert metrics["tpot_ms"]["mean"] == pytest.approx(20)
    assert metrics["e2el_ms"]["mean"] == pytest.approx(400)
    assert metrics["requests_per_s"] == pytest.approx(3 / 2.6, rel=1e-6)
    assert metrics["output_tokens_per_s"] == pytest.approx(33 / 2.6, rel=1e-6)
    assert result.completed == 3
    assert (result.total_input_tokens, result.total_output_tokens) == (150, 33)
    assert result.failed == (0 if name == "perf_analyzer" else 1)


@pytest.mark.parametrize(
    "name", ["guidellm", "guidellm 1", "aiperf_records", "perf_analyzer", "inference_perf_requests", "sglang"]
)
def test_requests_are_a_table(name, read):
    (result,) = read(TEXTS[name])
    requests = validate(result.requests, "requests")
    assert (requests["status"] == "ok").sum() == 3
    ok = requests[requests["status"] == "ok"]
    assert list(ok["ttft_ns"]) == pytest.approx([1e8, 2e8, 3e8], abs=500)
    assert list(ok["latency_ns"]) == pytest.approx([2e8, 4e8, 6e8], abs=500)
    assert set(ok["output_tokens"]) == {11}
    failed = requests[requests["status"] == "failed"]
    assert failed[["first_token_ns", "finish_ns", "output_tokens"]].isna().all(axis=None)


@pytest.mark.parametrize("name", ["aiperf_records", "perf_analyzer", "inference_perf_requests", "sglang"])
def test_chunks_where_the_file_has_them(name, read):
    chunks = validate(read(TEXTS[name])[0].chunks, "chunks")
    assert len(chunks) == 33 and set(chunks["token_count"]) == {1}
    gaps = chunks.groupby("request_id")["arrival_ns"].diff().dropna()
    assert gaps.mean() == pytest.approx(20e6, rel=1e-3)


def test_guidellm_has_no_gaps_so_there_is_no_itl(read):
    result = read(made.guidellm())[0]
    assert result.chunks is None
    assert measured_metrics(result, {})["itl_ms"] is None


def test_guidellms_own_tpot_is_never_shown(read):
    """Its time per output token spans the first: 36 ms here, where TPOT is 20."""
    equal = read(made.guidellm(requests=False))[0]
    assert equal.reported["mean_tpot_ms"] == pytest.approx(20)
    assert "tpot_from_itl" in equal.marks
    unequal = read(made.guidellm(requests=False, lengths=(11, 12)))[0]
    assert not any("tpot" in key for key in unequal.reported)
    assert "tpot_with_first" in unequal.marks
    assert measured_metrics(unequal, {})["tpot_ms"] is None


def test_percentiles_without_interpolation_are_marked_where_it_matters(read):
    document = made.guidellm(requests=False)
    assert "taken_percentiles" in read(document)[0].marks
    document["benchmarks"][0]["metrics"]["request_totals"]["successful"] = 1000
    assert "taken_percentiles" not in read(document)[0].marks


def test_guidellm_says_what_was_cut_off_and_how_requests_came(read):
    result = read(made.guidellm())[0]
    assert result.notes == (say("read.cut_off", n=2),)
    assert (result.meta.max_concurrency, result.meta.model, result.meta.request_rate) == (4, "m", None)
    document = made.guidellm()
    document["benchmarks"][0]["config"]["strategy"] = {"type_": "constant", "rate": 2.0, "max_concurrency": 10240}
    meta = read(document)[0].meta
    assert (meta.request_rate, meta.max_concurrency, meta.extra["arrivals"]) == (2.0, None, "constant")


def test_every_benchmark_of_a_guidellm_report_is_a_result(shared):
    results = read_results(shared / "fixtures/bench/llm-d-benchmark/guidellm_report_v2.json")
    assert [(r.meta.request_rate, r.completed, r.total_output_tokens) for r in results] == [(2.0, 2, 16), (4.0, 2, 16)]
    first = results[0].reported
    assert first["mean_ttft_ms"] == pytest.approx(11.481165885925293)
    assert first["mean_tpot_ms"] == first["mean_itl_ms"] == pytest.approx(1.1508464813232422)
    assert first["mean_e2el_ms"] == pytest.approx(19.78909969329834)
    assert first["request_throughput"] == pytest.approx(0.39843430656414264)


def test_aiperfs_inter_token_latency_is_tpot(read):
    result = read(made.aiperf())[0]
    assert result.reported["mean_tpot_ms"] == pytest.approx(20)
    assert (result.client, result.marks) == ("AIPerf", ("itl_is_tpot", "client_tokenizer"))
    assert (result.meta.max_concurrency, result.meta.num_prompts, result.meta.seed) == (4, 4, 7)
    document = {
        key: value for key, value in made.aiperf().items() if key not in ("inter_chunk_latency", "aiperf_version")
    }
    older = read({**document, "input_config": {"model": ["m"], "concurrency": 4}})[0]
    assert older.client == "GenAI-Perf" and older.meta.model == "m"
    assert not any("itl" in key for key in older.reported), "no gaps, no ITL"


def test_older_aiperf_keeps_metrics_under_records(read):
    document = made.aiperf()
    metrics = {key: value for key, value in document.items() if key != "input_config"}
    assert read({"records": metrics, "input_config": document["input_config"]})[0].reported["p50_ttft_ms"] == 200


def test_units_of_a_summary_are_read(read):
    seconds = made.aiperf(time_to_first_token={"unit": "ns", "avg": 2e8, "p50": 2e8})
    assert read(seconds)[0].reported["mean_ttft_ms"] == pytest.approx(200)


def test_aiperf_csv(read, tmp_path):
    (result,) = read(made.AIPERF_CSV, "profile_export_genai_perf.csv")
    assert sniff(tmp_path / "profile_export_genai_perf.csv") == "aiperf_csv"
    assert result.reported["mean_e2el_ms"] == 1400.0, "thousands are separated by commas"
    assert (result.reported["p99_ttft_ms"], result.reported["mean_tpot_ms"]) == (300.0, 20.0)
    assert result.reported["output_throughput"] == 12.69
    assert result.completed is None and "rounded" in result.marks


def test_warm_up_records_are_left_out_and_said(read):
    assert read(made.aiperf_records(), "profile_export.jsonl")[0].notes == (say("read.warm_ups_left_out", n=1),)


def test_aiperfs_usage_of_the_server_goes_before_its_count_of_the_text(read, tmp_path):
    """As AIPerf 0.13 wrote it of GuideLLM's mock server: 10 tokens by the text, 16 by usage (here 6 and 11)."""
    (result,) = read(made.aiperf_records(text_tokens=6, usage=True), "profile_export.jsonl")
    assert sniff(tmp_path / "profile_export.jsonl") == "aiperf_records"
    assert (result.total_output_tokens, result.meta.extra["total_output_tokens_text"]) == (33, 18)
    assert result.marks == ()
    assert measured_metrics(result, {})["tpot_ms"]["mean"] == pytest.approx(20)
    assert set(result.chunks["token_count"]) == {1}
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(made.aiperf()))
    assert read(made.aiperf_records(), "profile_export.jsonl")[0].meta.max_concurrency == 4, "asked for in the summary"


def test_a_summary_by_text_is_converted_where_all_answers_have_one_length(read):
    """By text 6 tokens, so 36 ms a token where 20 are right: (6 - 1) / (11 - 1) of 40."""
    fixed = {"unit": "tokens", "avg": 6.0, "min": 6.0, "max": 6.0}
    usage = {"total_usage_completion_tokens": {"avg": 33.0}, "total_osl": {"avg": 18.0},
             "inter_token_latency": {"unit": "ms", "avg": 40.0}, "output_sequence_length": fixed}  # fmt: skip
    whole = read(made.aiperf(**usage, usage_completion_tokens={**fixed, "min": 11.0, "max": 11.0}))[0]
    assert whole.reported["mean_tpot_ms"] == pytest.approx(20)
    assert (whole.total_output_tokens, whole.marks) == (33, ("itl_is_tpot",))
    assert whole.reported["output_throughput"] == pytest.approx(33 / 2.6)
    mixed = read(made.aiperf(**usage, usage_completion_tokens={**fixed, "min": 10.0, "max": 12.0}))[0]
    assert mixed.reported["mean_tpot_ms"] == 40.0 and "client_tokenizer" in mixed.marks


def test_aiperfs_newer_configuration(read):
    config = {"models": {"items": [{"name": "m"}]}, "phases": [{"kind": "warmup", "concurrency": 9},
              {"kind": "profiling", "type": "concurrency", "requests": 24, "concurrency": 4}]}  # fmt: skip
    meta = read(made.aiperf(input_config=config))[0].meta
    assert (meta.model, meta.max_concurrency, meta.num_prompts) == ("m", 4, 24)


def test_guidellm_that_counts_chunks_says_so(read):
    document = made.guidellm()
    for request in document["benchmarks"][0]["requests"]["successful"]:
        request["output_metrics"] = {"text_tokens": None, "text_words": None}
    assert "tokens_by_chunks" in read(document)[0].marks


def test_a_role_chunk_is_no_token(read):
    """The first chunk of chat servers comes after 1 ms and holds no text."""
    requests = read(made.perf_analyzer())[0].requests
    assert requests["ttft_ns"].min() > 99e6


def test_texts_without_usage_have_no_tokens(read):
    result = read(made.perf_analyzer(usage=False))[0]
    assert result.total_output_tokens is None and result.requests["output_tokens"].isna().all()
    metrics = measured_metrics(result, {})
    assert metrics["tpot_ms"] is None and metrics["output_tokens_per_s"] is None
    assert metrics["itl_ms"]["mean"] == pytest.approx(20)
    assert "texts_only" in result.marks


def test_inference_perf_tells_the_load_of_a_stage(read):
    result = read(made.inference_perf())[0]
    assert (result.meta.request_rate, result.meta.num_prompts) == (1.0, 4)
    assert result.meta.extra["schedule_delay_p90_s"] == 0.002
    assert result.marks == ("tpot_by_chunks",)
    assert read(made.inference_perf(stage=False))[0].meta.request_rate is None


def test_inference_perfs_failures_may_be_null(read):
    document = made.inference_perf()
    document["successes"]["latency"]["time_to_first_token"] = None
    assert measured_metrics(read(document)[0], {})["ttft_ms"] is None


def test_sglangs_mean_concurrency_is_no_limit(read):
    result = read(made.sglang(max_concurrency=None))[0]
    assert result.meta.max_concurrency is None
    assert result.failed == 1, "lists of four, three of which completed"
    assert result.reported["mean_e2el_ms"] == 400.0
    assert result.latency_from_gaps


@pytest.mark.parametrize("tool, has_tpot, marks", [
    ("inference-perf", True, ("tpot_by_chunks",)),
    ("guidellm", False, ("taken_percentiles", "itl_of_requests", "tpot_with_first")),
    ("vllm-benchmark", True, ()),
    ("nop", True, ("unknown_client",)),
])  # fmt: skip
def test_llmd_report(read, tool, has_tpot, marks):
    (result,) = read(made.LLMD.format(tool=tool), "report.yaml")
    assert (result.completed, result.failed, result.total_output_tokens) == (3, 1, 33)
    assert result.reported["mean_ttft_ms"] == pytest.approx(200)
    assert result.reported["p99.9_itl_ms"] == pytest.approx(30)
    assert ("mean_tpot_ms" in result.reported) == has_tpot
    assert result.marks == marks and result.client == f"llm-d-benchmark ({tool})"


def test_llmd_examples(shared):
    folder = shared / "fixtures/bench/llm-d-benchmark"
    (one,), (two,) = (read_results(folder / f"br_v0_{n}_example.yaml") for n in (1, 2))
    assert (one.completed, one.meta.model, one.meta.request_rate) == (31, "deepseek-ai/DeepSeek-R1-0528", 1.34)
    assert two.reported["p99_ttft_ms"] == pytest.approx(50.29489721637218)
    assert (two.completed, two.meta.model, two.meta.max_concurrency) == (500, "Qwen/Qwen3-0.6B", None)


def test_console_text_of_vllm_has_the_digits_of_its_json(shared):
    bench = shared / "facts/samples/bench"
    (printed,), (whole,) = read_results(bench / "serve.stdout.txt"), read_results(bench / "serve.json")
    shown = [key for key in printed.reported if key in whole.reported]
    assert len(shown) == 26
    for key in shown:
        assert f"{whole.reported[key]:.2f}" == f"{printed.reported[key]:.2f}", key
    assert (printed.completed, printed.failed, printed.total_output_tokens) == (6, 0, 96)
    assert (printed.meta.request_rate, printed.meta.max_concurrency, printed.meta.burstiness) == (4.0, 4, 1.0)


def test_several_tables_in_one_console_text(read):
    two = made.SGLANG_CONSOLE + made.SGLANG_CONSOLE.replace("264.25", "260.14").replace("2.0  ", "4.0  ")
    results = read(two, "console.txt")
    assert [result.duration_s for result in results] == [264.25, 260.14]
    assert {result.client for result in results} == {"SGLang bench_serving"}


def test_forward_cases_are_results(read):
    first, second = read(made.forward())
    assert (first.kind, first.meta.label, first.meta.num_prompts) == ("forward", "decode32", 32)
    assert first.reported["p50_latency"] == pytest.approx(4.1e-3) and second.reported["p50_latency"] == pytest.approx(
        5e-3
    )
    assert first.series["latencies"] == pytest.approx((4.095e-3, 4.1e-3, 4.12e-3))


@pytest.mark.parametrize("text, words", [
    ({"metadata": {}, "config": {}, "benchmarks": {}}, "is not a report of GuideLLM"),
    ({"metadata": {}, "config": {}, "benchmarks": []}, "holds no benchmark"),
    ({"metadata": {}, "config": {}, "benchmarks": [1]}, "is not a report of GuideLLM"),
    ({"load_summary": {}, "successes": []}, "is not a report of inference-perf"),
    ([{"start_time": 1, "end_time": 2}], "is not inference-perf's records"),
    ({"experiments": {}, "endpoint": ""}, "is not a raw export of GenAI-Perf"),
    ({"experiments": [], "endpoint": ""}, "holds no experiment"),
    ('{"metadata": {}, "metrics": {}, "error": null}\n{"metadata": 1}\n', "is not AIPerf's records"),
    ("Metric,avg\nnothing,1\n", "is not a CSV summary"),
    ("version: '0.1'\nscenario: {}\nmetrics: [", "is not valid YAML"),
    ("version: '0.1'\nscenario: {}\nmetrics: 3\n", "is not a report of llm-d-benchmark"),
    ('[{"case": "a", "requests": []}]', "is not a result of `vllm bench forward`"),
    ("= Serving Benchmark Result =\nTTFT", "ends before the figures"),
    ('{"completed": "x", "duration": 1, "total_output_tokens_retokenized": 1}', "completed is 'x', not a number"),
])  # fmt: skip
def test_what_is_wrong_is_one_line_with_the_file(read, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read(text)
    assert "\n" not in str(caught.value) and "result.json" in str(caught.value)


@pytest.mark.parametrize("name", TEXTS)
def test_values_of_the_wrong_type_are_not_known_and_never_0(name, read):
    """Every number replaced by a text, a huge number, or null: no crash, no figure."""
    for other in ('"x"', "1e999", "9" * 400, "null", "[]", "{}"):
        text = (
            TEXTS[name]
            .replace(": 0.1", f": {other}")
            .replace(": 200.0", f": {other}")
            .replace('"value": 100.0', f'"value": {other}')
        )
        try:
            results = read(text)
        except InputError as error:
            assert "\n" not in str(error)
            continue
        values = [value for result in results for value in result.reported.values()]
        assert all(value is None or value > 0 for value in values)
        for result in results:
            for table in (result.requests, result.chunks):
                assert table is None or not (table.select_dtypes("Int64") == 0).any(axis=None) or "chunk_index" in table


def test_every_mark_is_known_and_said():
    for code in client_marks():
        assert say(f"definition.{code}")
    assert set(READERS) >= {
        "guidellm",
        "aiperf",
        "inference_perf",
        "sglang",
        "llmd_report",
        "bench_printed",
        "bench_forward",
    }


def test_order_of_requests_is_that_of_arrival(read):
    rows = made.inference_perf_requests()
    result = read(list(reversed(rows)))[0]
    assert result.requests["arrival_ns"].is_monotonic_increasing
    assert isinstance(result.requests["ttft_ns"].dtype, pd.Int64Dtype)
