"""Whatever is handed over, a reader gives a result or one clear line."""

# ruff: noqa: E501 (log lines stand as they are)

import gzip
import json
import tempfile
from pathlib import Path

import client_files as made
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_nsys import Export

from perflab.errors import InputError
from perflab.read.bench import read_bench_all
from perflab.read.files import sniff
from perflab.read.kinds import NAMES
from perflab.read.kineto import read_kineto
from perflab.read.nsys_sqlite import read_nsys
from perflab.read.prometheus import read_metrics, read_samples, read_telemetry
from perflab.read.results import read_results
from perflab.read.server_log import read_server_log

TRACE = json.dumps({
    "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H200"}], "distributedInfo": {"rank": 0, "world_size": 1},
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2, "pid": 0, "tid": 7,
         "args": {"device": 0, "stream": 7, "correlation": n, "bytes": 3}} for n in range(3)
    ],
    "baseTimeNanoseconds": 5,
})  # fmt: skip
BENCH = json.dumps({
    "model_id": "m", "num_prompts": 2, "request_rate": 1.5, "max_concurrency": 3, "duration": 2.0, "completed": 2,
    "input_lens": [1, 2], "output_lens": [2, 1], "ttfts": [0.1, 0.2], "itls": [[0.01], []], "start_times": [1.0, 2.0],
    "errors": ["", ""], "mean_ttft_ms": 150.0,
})  # fmt: skip
LOG = (
    "(EngineCore pid=2) INFO 11-30 15:22:58 [core.py:114] Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
    "a={'b': <E.X: 1>}\n(Worker_TP0 pid=3) INFO 11-30 15:23:24 [r.py:1] Model loading took 7.48 GiB and 2.2 seconds\n"
    "INFO 11-30 15:24:25 [l.py:1] Engine 000: Avg prompt throughput: 64.5 tokens/s, Avg generation throughput: 2.0 tokens/s, "
    "Running: 3 reqs, Waiting: 7 reqs, GPU KV cache usage: 41.0%\n"
)
METRICS = '# TYPE vllm:x gauge\nvllm:x{engine="0"} 1.0\nvllm:y_total 2\n'
SAMPLES = json.dumps({"t_ns": 1, "text": METRICS}) + "\n" + json.dumps({"t_ns": 2, "text": METRICS}) + "\n"
TELEMETRY = json.dumps({"t_ns": 1, "metric": "m", "labels": {"a": 1}, "value": 2.5}) + "\n"


def nsys() -> bytes:
    """An export of Nsight Systems of several pages."""
    export = Export()
    for n in range(40):
        export.kernel(f"kernel_{n}<int>", 1000 * n + 500, 1000 * n + 900)
        export.range(f"execute_context_0(0)_generation_{n}({n})", 1000 * n + 400, 1000 * n + 950)
    export.copy(1, 50_000, 60_000)
    export.graph(4, 70_000, 80_000, launched=69_000)
    with tempfile.TemporaryDirectory() as folder:
        return export.write(Path(folder) / "x.sqlite").read_bytes()


READERS = {
    "kineto": (TRACE, read_kineto), "bench": (BENCH, read_bench_all), "log": (LOG, read_server_log),
    "metrics": (METRICS, lambda path: read_metrics(path, 1)), "samples": (SAMPLES, read_samples),
    "telemetry": (TELEMETRY, read_telemetry), "nsys": (nsys(), read_nsys),
    **{f"client {name}": (text, read_results) for name, text in {
        "guidellm": json.dumps(made.guidellm()), "guidellm summary": json.dumps(made.guidellm(requests=False)),
        "aiperf": json.dumps(made.aiperf()), "aiperf csv": made.AIPERF_CSV, "aiperf records": made.aiperf_records(),
        "perf_analyzer": json.dumps(made.perf_analyzer()), "inference-perf": json.dumps(made.inference_perf()),
        "inference-perf requests": json.dumps(made.inference_perf_requests()), "sglang": json.dumps(made.sglang()),
        "llm-d": made.LLMD.format(tool="guidellm"), "console": made.SGLANG_CONSOLE, "forward": json.dumps(made.forward()),
    }.items()},
}  # fmt: skip
PIECES = st.sampled_from([
    b"", b"\x00", b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"null", b"NaN", b"-1", b"1e400", b"9" * 30, b"[[]]", b"{}",
    b"\xff\xfe", b"true", b"\r", b"'", b" ", b"\\",
])  # fmt: skip
changes = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), max_size=4)
often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def changed(text, some, share):
    data = text if isinstance(text, bytes) else text.encode()
    for where, length, piece in some:
        at = int(where * len(data))
        data = data[:at] + piece + data[at + length :]
    return data[: int(share * len(data))]


@pytest.mark.parametrize("name", READERS)
@often
@given(changes, st.floats(0.5, 1), st.booleans())
@example([], 1.0, False)
@example([], 1.0, True)
def test_damaged_input(tmp_path, name, some, share, packed):
    text, read = READERS[name]
    data = changed(text, some, share)
    file = tmp_path / "input"
    if packed:
        data = gzip.compress(changed(text, some, 1))
        data = data[: int(share * len(data))]
    file.write_bytes(data)
    try:
        assert read(file) is not None
    except InputError as error:
        assert "\n" not in str(error)
        assert some or share < 1 or packed
    assert sniff(file) in (None, *NAMES)


@often
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path, data):
    file = tmp_path / "input"
    file.write_bytes(data)
    for _, read in READERS.values():
        try:
            read(file)
        except InputError as error:
            assert "\n" not in str(error)
