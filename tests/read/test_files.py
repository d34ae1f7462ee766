"""Opening files and telling what they are."""

import gzip
import lzma
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.read.files import Blocks, outline, read_head, read_text, refusal, sniff
from perflab.read.kinds import NAMES

TEXT = "".join(f"line {n}\n" for n in range(200_000)).encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_content_is_the_same_however_packed(tmp_path, pack):
    file = tmp_path / "named_wrongly.txt"
    file.write_bytes(pack(TEXT))
    blocks = Blocks(file, size=100_000)
    parts = list(blocks)
    assert b"".join(parts) == TEXT
    assert max(map(len, parts)) <= 100_000
    assert blocks.damage is None
    assert read_head(file, 10) == TEXT[:10]


def test_members_one_after_the_other_and_padding(tmp_path):
    file = tmp_path / "two.gz"
    file.write_bytes(gzip.compress(b"first ") + gzip.compress(b"second") + b"\0" * 100)
    assert read_text(file) == ("first second", None)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_truncated_is_read_as_far_as_it_goes(tmp_path, pack):
    packed = pack(TEXT)
    file = tmp_path / "cut"
    file.write_bytes(packed[: len(packed) * 7 // 10])
    text, damage = read_text(file)
    assert TEXT.decode().startswith(text)
    assert len(text) > len(TEXT) // 2
    assert damage == "the compressed file ends early"


def test_damaged_gzip_is_read_up_to_the_damage(tmp_path):
    packed = bytearray(gzip.compress(TEXT))
    at = len(packed) // 2
    packed[at : at + 50] = b"\xff" * 50
    file = tmp_path / "bad.gz"
    file.write_bytes(packed)
    text, damage = read_text(file)
    assert TEXT.decode().startswith(text[: len(TEXT) // 3])
    assert damage is not None and "damaged" in damage


def test_a_bomb_comes_in_small_blocks(tmp_path):
    file = tmp_path / "bomb.gz"
    file.write_bytes(gzip.compress(b"\0" * 50_000_000))
    sizes = [len(block) for block in Blocks(file, size=1 << 20)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 1 << 20


def test_encodings(tmp_path):
    file = tmp_path / "windows.txt"
    file.write_bytes("größer\n".encode("utf-16"))
    assert read_text(file)[0] == "größer\n"
    file.write_bytes(b"\xef\xbb\xbfbom \xff")
    assert read_text(file)[0] == "bom �"


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "no such file"),
    (lambda path: path.mkdir(), "directory"),
])  # fmt: skip
def test_what_cannot_be_opened(tmp_path, make, words):
    path = tmp_path / "x"
    make(path)
    with pytest.raises(InputError, match=words):
        sniff(path)


@pytest.mark.parametrize("text, kind", [
    ('{"schema": 1, "id": "a", "perflab_version": "0"}', "manifest"),
    ('\n {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [', "kineto"),
    ('[{"ph": "X", "name": "k", "ts": 1}', "kineto"),
    ('{"traceEvents": [{"ph": "X", "cat": "python_function", "name": "a"}]}', "kineto_frontend"),
    ('{"traceEvents": [{"ph": "X", "cat": "python_function"}, {"cat": "cpu_op"}]}', "kineto"),
    ('{"traceEvents": [{"ph": "X", "cat": "python_function"}], "distributedInfo": {}}', "kineto"),
    ('{"date": "d", "duration": 1.0, "completed": 1', "bench_serve"),
    ('{"date": "d", "duration": 1.0, "completed": 1}\n{"date": "d"', "bench_serve"),
    ('[{"duration": 1.0, "completed": 1, "run_number": 0}]', "sweep_summary"),
    ('[{"concurrency": 1, "metrics": {"completed": 1}}]', "bench_wrapped"),
    ('{"avg_latency": 1, "latencies": [1], "percentiles": {}}', "bench_latency"),
    ('{"elapsed_time": 1, "requests_per_second": 1}', "bench_throughput"),
    ('{"avg_cold_startup_time": 1}', "bench_startup"),
    ('{"t_ns": 1, "text": "# HELP"}\n', "samples"),
    ('{"t_ns": 1, "metric": "gpu", "labels": {}, "value": 1}\n', "telemetry"),
    ('{"schema": "1.0", "nodes": []}', "execution_trace"),
    ('{"rocprofiler-sdk-tool": [{"metadata"', "rocprof"),
    ("[[-1, 1, 2], [3]]", "memory_timeline"),
    ('{"architectures": ["LlamaForCausalLM"]}', "model_config"),
    ("# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x 1.0\n", "metrics"),
    ('vllm:num_requests_running{engine="0"} 1.0\n', "metrics"),
    ("INFO 05-10 08:49:16 [model.py:554] x\n", "server_log"),
    ("[launcher] hello\n(APIServer pid=1) INFO 05-10 08:49:16 [a.py:1] x\n", "server_log"),
    ("50%|#####     |\r100%|##########|\rINFO 05-10 08:49:16 [a.py:1] x\n", "server_log"),
    ("-----  ------\n Name   Self CPU %\n-----  ------\n", "profiler_table"),
    ("============ Serving Benchmark Result ============\n", "bench_printed"),
    ('{"nested": {"traceEvents": []}}', None),
    ('{"a string": "\\"traceEvents\\": ["}', None),
    ("hello\n", None),
    ("", None),
    ("{", None),
    ("[", None),
    ('"', None),
])  # fmt: skip
def test_sniff_by_content(tmp_path, text, kind):
    file = tmp_path / "file.bin"
    file.write_text(text)
    assert sniff(file) == kind
    assert kind is None or kind in NAMES


def test_front_end_by_name_where_it_holds_nothing(tmp_path):
    file = tmp_path / "vm_1.async_llm.17.pt.trace.json.gz"
    file.write_bytes(gzip.compress(b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}'))
    assert sniff(file) == "kineto_frontend"


def test_outline_skips_strings_and_stops_at_the_end():
    assert outline(b'{"a": "}{[\\"", "b": {"c": 1}, "d": [1]} {"e": 1}') == ("object", ["a", "b", "d"])
    assert outline(b'[{"a": {"x": 1}, "b": 2}, {"c": 3}]') == ("objects", ["a", "b"])


def test_outline_ends_in_a_string_that_is_cut_off():
    escaped = b'\\"{' * 300_000  # JSON in a string of JSON: tried anew at every quote, this would take hours
    assert outline(b'{"a": {"b": 1}, "c": "' + escaped) == ("object", ["a", "c"])
    assert outline(b'{"' + escaped) == ("object", [])


def test_refusal_says_what_it_is(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"rocprofiler-sdk-tool": []}')
    assert str(refusal(file, "kineto")).endswith("is a rocprofiler-sdk result, not a torch profiler (Kineto) trace")
    file.write_text("{}")
    assert str(refusal(file, "kineto")).endswith("is not a torch profiler (Kineto) trace")


def test_real_files(shared: Path):
    recording = shared / "recordings/h200/llama3-8b-tp2"
    assert {sniff(file) for file in (recording / "bench").iterdir()} == {"bench_serve"}
    kinds = {file.name.split(".")[0]: sniff(file) for file in (recording / "trace").iterdir()}
    assert kinds == {
        "rank0": "kineto", "rank1": "kineto", "vm_675": "kineto_frontend",
        "profiler_out_0": "profiler_table", "profiler_out_1": "profiler_table",
    }  # fmt: skip
    assert sniff(recording / "server.log") == "server_log"
    assert sniff(recording / "metrics.txt") == "metrics"
    assert sniff(next((shared / "facts/samples/trace_server").glob("*async_llm*.gz"))) == "kineto_frontend"
    negative = shared / "fixtures/kineto/negative"
    assert sniff(negative / "rocprof_908_results.json.gz") == "rocprof"
    assert sniff(negative / "hta_memory_timeline.raw.gz") == "memory_timeline"
    assert sniff(negative / "hta_benchmark_simple_add_et.json.gz") == "execution_trace"
    assert sniff(negative / "chakra_1.0.2-chakra.0.0.4.tgz") == "archive"
