"""Prometheus text, recorded scrapes, telemetry."""

import gzip
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.errors import InputError
from perflab.read.prometheus import canonical_name, label_text, read_metrics, read_samples, read_telemetry
from perflab.schema import validate

TEXT = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 12.0
vllm:generation_tokens_total{engine="1",model_name="m"} 30.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0"} 0.41
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="0.3"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 4.0
vllm:e2e_request_latency_seconds_count 4.0
vllm:e2e_request_latency_seconds_sum 9.5
"""


def values(frame):
    return {(m, labels): v for m, labels, v in zip(frame["metric"], frame["labels"], frame["value"], strict=True)}


def test_one_scrape():
    frame = validate(read_metrics(TEXT, 7), "samples")
    assert set(frame["t_ns"]) == {7}
    assert values(frame) == {
        ("vllm:generation_tokens_total", "engine=0,model_name=m"): 12.0,
        ("vllm:generation_tokens_total", "engine=1,model_name=m"): 30.0,
        ("vllm:kv_cache_usage_perc", "engine=0"): 0.41,
        ("vllm:e2e_request_latency_seconds_bucket", "le=0.3"): 1.0,
        ("vllm:e2e_request_latency_seconds_bucket", "le=+Inf"): 4.0,
        ("vllm:e2e_request_latency_seconds_count", ""): 4.0,
        ("vllm:e2e_request_latency_seconds_sum", ""): 9.5,
    }
    assert frame.attrs == {"created": 1, "renamed_twice": 0, "cut": 0}


@pytest.mark.parametrize("old, new", [
    ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
    ("vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"),
    ("vllm:time_per_output_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"),
    ("vllm:request_time_per_output_token_seconds_sum", "vllm:request_time_per_output_token_seconds_sum"),
    ("vllm:iteration_tokens_total", "vllm:iteration_tokens_total"),
    ("vllm:cache_config_info", "vllm:cache_config_info"),
    ("process_cpu_seconds_total", "process_cpu_seconds_total"),
])  # fmt: skip
def test_names(old, new):
    assert canonical_name(old) == new


@pytest.mark.parametrize("order", [1, -1])
def test_of_an_old_and_a_new_name_the_new_one_counts(order):
    lines = ["vllm:gpu_cache_usage_perc 0.1", "vllm:kv_cache_usage_perc 0.2"][::order]
    frame = read_metrics("\n".join(lines), 0)
    assert values(frame) == {("vllm:kv_cache_usage_perc", ""): 0.2}
    assert frame.attrs["renamed_twice"] == 1


def test_time_stamps_of_samples_are_not_values():
    frame = read_metrics('a 1.5 1700000000000\na{x="1 2"} 2.5 1700000000001\n', 7)
    assert values(frame) == {("a", ""): 1.5, ("a", "x=1 2"): 2.5}


def test_values_that_are_not_finite():
    found = values(read_metrics("a NaN\nb +Inf\n", 0))
    assert math.isnan(found["a", ""]) and found["b", ""] == math.inf


def test_files_plain_and_packed_and_cut(tmp_path):
    file = tmp_path / "metrics.txt"
    file.write_text(TEXT)
    assert len(read_metrics(file, 0)) == len(read_metrics(str(file), 0)) == 7
    file.write_bytes(gzip.compress(TEXT.encode()))
    assert len(read_metrics(file, 0)) == 7
    file.write_text(TEXT[:-3])  # "9." could be the beginning of any number
    frame = read_metrics(file, 0)
    assert len(frame) == 6 and frame.attrs["cut"] == 1


@pytest.mark.parametrize("text, line, words", [
    ("", None, "holds no metrics"),
    ("# only a comment\n", None, "holds no metrics"),
    ("<html>\n<body>\n", 1, "not Prometheus text"),
    (TEXT + "vllm:x{a=1 3\n", 14, "not Prometheus text"),
    ("a 1\nb two\n", 2, "not Prometheus text"),
    ("hello world\n", 1, "not Prometheus text"),
    ('{"traceEvents": [{"ph": "X", "cat": "kernel"}]}\n', None,
     "is a torch profiler .Kineto. trace, not Prometheus text"),
])  # fmt: skip
def test_malformed(tmp_path, text, line, words):
    file = tmp_path / "m.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_metrics(file, 0)
    assert (caught.value.line, "\n" in str(caught.value)) == (line, False)


def labels_of(text):
    pairs = (part.partition("=") for part in re.findall(r"(?:[^,\\]|\\.)+", text))
    return {name: re.sub(r"\\(.)", r"\1", value) for name, _, value in pairs}


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.text(max_size=8), max_size=4))
def test_labels_come_back(labels):
    assert labels_of(label_text(labels)) == labels


def test_labels_as_text():
    assert label_text({"b": "2", "a": "1"}) == "a=1,b=2"
    assert label_text({"a": "x,y=z\\"}) == r"a=x\,y\=z\\"


@pytest.fixture
def lines(tmp_path):
    def to_file(*records, end="\n"):
        file = tmp_path / "samples.jsonl"
        file.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + end)
        return file

    return to_file


def test_scrapes_over_time(lines):
    file = lines({"t_ns": 1, "text": TEXT}, "", {"t_ns": 2, "text": "vllm:num_requests_running 3"})
    frame = validate(read_samples(file), "samples")
    assert frame.groupby("t_ns").size().to_dict() == {1: 7, 2: 1}
    later = TEXT.replace("0.41", "0.5")
    again = read_samples(lines({"t_ns": 1, "text": TEXT}, {"t_ns": 2, "text": later}))
    assert values(again[again["t_ns"] == 2])["vllm:kv_cache_usage_perc", "engine=0"] == 0.5
    assert len(again) == 14 and again.attrs["created"] == 2
    file = lines({"t_ns": 1, "text": TEXT}, {"t_ns": 2, "text": "vllm:num_requests_running 3"})
    some = read_samples(file, prefixes=("vllm:kv_", "vllm:num_"))
    assert list(some["metric"]) == ["vllm:kv_cache_usage_perc", "vllm:num_requests_running"]


def test_last_line_cut_by_a_killed_run(lines):
    file = lines({"t_ns": 1, "text": "a 1"}, '{"t_ns": 2, "text": "a ', end="")
    frame = read_samples(file)
    assert list(frame["t_ns"]) == [1]
    assert frame.attrs["cut"] == 1


@pytest.mark.parametrize("records, line, words", [
    ([{"t_ns": 1, "text": "a 1"}, "{bad", {"t_ns": 3, "text": "a 1"}], 2, "not valid JSON"),
    ([{"t_ns": 1, "text": "a 1"}, {"t_ns": 2, "text": "b 1\nno number"}], 2,
     "line 2 is not Prometheus text: 'no number'"),
    ([{"t_ns": 1, "text": "a 1"}, {"t_ns": 2}], 2, "lacks 'text'"),
    ([{"t_ns": 1.5, "text": "a 1"}], 1, "t_ns is '1.5'"),
    ([{"t_ns": 1, "text": 5}], 1, "'5' where text is wanted"),
    ([{"t_ns": 1, "text": "a 1"}, [1]], 2, "recorded scrapes"),
    (["hello", "you"], None, "is not recorded scrapes of /metrics"),
    ([{"t_ns": 1, "metric": "a", "value": 1}], None, "is recorded telemetry, not recorded scrapes"),
])  # fmt: skip
def test_malformed_scrapes(lines, records, line, words):
    with pytest.raises(InputError, match=words) as caught:
        read_samples(lines(*records))
    assert (caught.value.line, "\n" in str(caught.value)) == (line, False)


def test_telemetry(lines):
    file = lines(
        {"t_ns": 5, "metric": "gpu_power_watts", "labels": {"gpu": 0}, "value": 412.5},
        {"t_ns": 6, "metric": "host_cpu_share", "labels": {}, "value": None},
        '{"t_ns": 7, "metric": "gpu_po',
        end="",
    )
    frame = validate(read_telemetry(file), "samples")
    assert list(frame["labels"]) == ["gpu=0", ""]
    assert frame["value"].iloc[0] == 412.5 and math.isnan(frame["value"].iloc[1])
    assert frame.attrs["cut"] == 1


@pytest.mark.parametrize("record, words", [
    ({"t_ns": 1, "metric": "a"}, "is not recorded telemetry"),
    ({"t_ns": 1, "metric": "a", "value": "x"}, "could not convert"),
    ({"t_ns": 1, "metric": "a", "value": 1, "labels": 5}, "recorded telemetry"),
])  # fmt: skip
def test_malformed_telemetry(lines, record, words):
    with pytest.raises(InputError, match=words):
        read_telemetry(lines(record))


def test_an_empty_file_has_no_samples(lines):
    assert validate(read_samples(lines()), "samples").empty


def test_recordings(shared):
    found = values(read_metrics(shared / "recordings/h200/llama3-8b-tp2/metrics.txt", 1))
    by_name = {}
    for (name, _), value in found.items():
        by_name[name] = by_name.get(name, 0) + value
    # warm, c1, c32, c256 and r8: 8 * 16 + (4 + 128 + 512 + 64) * 128 output tokens
    assert by_name["vllm:generation_tokens_total"] == 8 * 16 + (4 + 128 + 512 + 64) * 128
    assert not any(name.endswith("_created") for name in by_name)
    config = next(labels_of(labels) for name, labels in found if name == "vllm:cache_config_info")
    assert config["enable_prefix_caching"] == "False"
    file = shared / "facts/samples/metrics.txt"
    wanted = [line for line in file.read_text().splitlines() if line[:1] not in ("#", "") and "_created" not in line]
    assert len(read_metrics(file, 1)) == len(wanted)
