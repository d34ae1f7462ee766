"""vLLM's log."""

# ruff: noqa: E501 (log lines stand as they are)

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.errors import InputError
from perflab.read.files import sniff
from perflab.read.log_lines import log_lines
from perflab.read.python_repr import flattened, read_fields, read_value
from perflab.read.server_log import read_server_log
from perflab.schema import validate
from perflab.units import GIB

CONFIG = (
    "model='org/m, v2', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2, "
    "pipeline_parallel_size=1, enforce_eager=False, served_model_name=org/m, enable_prefix_caching=True, "
    "compilation_config={'mode': <CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: "
    "(2, 1)>, 'cudagraph_capture_sizes': [1, 2, 4]}, kernel_config=KernelConfig(moe_backend='auto')"
)
GPU = f"""(APIServer pid=1) INFO 11-30 15:22:11 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.25.1
(APIServer pid=1) INFO 11-30 15:22:11 [api_utils.py:273] non-default args: {{'model': 'org/m', 'max_model_len': 4096, 'profiler_config': ProfilerConfig(profiler='torch', delay_iterations=0)}}
(APIServer pid=1) WARNING 11-30 15:22:11 [system_utils.py:299] Found ulimit of 20000 and failed to increase
(APIServer pid=1) INFO 11-30 15:22:38 [model.py:619] Resolved architecture: LlamaForCausalLM
(APIServer pid=1) INFO 11-30 15:22:38 [scheduler.py:252] Chunked prefill is enabled with max_num_batched_tokens=8192.
(APIServer pid=1) INFO 11-30 15:22:38 [vllm.py:1042] Asynchronous scheduling is enabled.
(EngineCore pid=2) INFO 11-30 15:22:58 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: {CONFIG}
(Worker pid=3) INFO 11-30 15:23:16 [parallel_state.py:1607] world_size=2 rank=0 local_rank=0 backend=nccl
(Worker pid=4) INFO 11-30 15:23:19 [parallel_state.py:1607] world_size=2 rank=1 local_rank=1 backend=nccl
(Worker pid=3) INFO 11-30 15:23:20 [pynccl.py:113] vLLM is using nccl==2.28.9
(Worker pid=3) INFO 11-30 15:23:21 [cuda_communicator.py:264] Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of potential backends: ['QUICK_REDUCE'].
(Worker_TP0 pid=3) INFO 11-30 15:23:22 [cuda.py:476] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(Worker_TP0 pid=3) INFO 11-30 15:23:22 [auto_awq.py:451] Using MacheteLinearKernel for AutoAWQMarlinLinearMethod
Loading shards:   0% Completed | 0/1\rLoading shards: 100% Completed | 1/1\r(Worker_TP1 pid=4) (Worker_TP0 pid=3) INFO 11-30 15:23:24 [model_runner.py:302] Model loading took 7.48 GiB and 2.286218 seconds
INFO 11-30 15:23:24 [model_runner.py:302] Model loading took 7.5 GiB and 2.337864 seconds
(Worker_TP0 pid=3) WARNING 11-30 15:23:31 [fusion.py:978] Flashinfer is not installed, skipping allreduce fusion pass
(Worker_TP1 pid=4) WARNING 11-30 15:23:32 [fusion.py:978] Flashinfer is not installed, skipping allreduce fusion pass
(Worker_TP0 pid=3) INFO 11-30 15:23:47 [monitor.py:53] torch.compile took 22.55 s in total
(Worker_TP0 pid=3) INFO 11-30 15:23:50 [gpu_worker.py:538] Available KV cache memory: 119.75 GiB
(EngineCore pid=2) INFO 11-30 15:23:50 [kv_cache_utils.py:2146] GPU KV cache size: 1,962,048 tokens
(EngineCore pid=2) INFO 11-30 15:23:50 [kv_cache_utils.py:2147] Maximum concurrency for 4,096 tokens per request: 479.02x
(Worker_TP0 pid=3) \rCapturing CUDA graphs (FULL):  22%|██▏       | 11/51 [00:00<00:01, 32.67it/s]
(Worker_TP0 pid=3) INFO 11-30 15:23:55 [model_runner.py:722] Graph capturing finished in 4 secs, took 0.72 GiB
(Worker_TP1 pid=4) INFO 11-30 15:23:55 [gpu_worker.py:1013] Free memory on device (138.0/139.8 GiB) on startup. Desired GPU memory utilization is (0.92, 128.62 GiB). Actual usage is 8.5 GiB for consumed memory (weights + non-torch), 1.25 GiB for peak activation, and 0.75 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1`
(EngineCore pid=2) INFO 11-30 15:24:12 [core.py:337] init engine (profile, create kv cache, warmup model) took 48.41 s (compilation: 22.55 s)
(APIServer pid=1) INFO 11-30 15:24:16 [api_server.py:616] Starting vLLM server on http://127.0.0.1:8000
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     127.0.0.1:52874 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 11-30 15:24:25 [loggers.py:335] Engine 000: Avg prompt throughput: 64.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 7 reqs, Deferred: 1 reqs, GPU KV cache usage: 41.0%, Prefix cache hit rate: 12.5%, External prefix cache hit rate: 2.0%
"""


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="server.log"):
        file = tmp_path / name
        file.write_bytes(text.encode())
        return file

    return to_file


def memory(log):
    table = validate(log.memory, "memory")
    return {(r.rank, r.component): round(r.bytes / GIB, 3) for r in table.itertuples()}


def test_settings(write):
    log = read_server_log(write(GPU))
    assert (log.vllm_version, log.model, log.architecture) == ("0.25.1", "org/m, v2", "LlamaForCausalLM")
    assert log.settings["dtype"] == "bfloat16"
    assert (log.settings["max_seq_len"], log.settings["max_model_len"]) == (4096, 4096)
    assert (log.settings["max_num_batched_tokens"], log.settings["async_scheduling"]) == (8192, True)
    assert log.settings["compilation_config.cudagraph_capture_sizes"] == [1, 2, 4]
    assert log.settings["kernel_config.moe_backend"] == "auto"
    assert (log.cudagraph_mode, log.enforce_eager) == ("FULL_AND_PIECEWISE", False)
    assert log.non_default_args == {
        "model": "org/m", "max_model_len": 4096, "profiler_config.profiler": "torch", "profiler_config.delay_iterations": 0,
    }  # fmt: skip


def test_secrets_stay_in_the_log(write):
    log = read_server_log(
        write(
            "INFO 11-30 15:22:11 [a.py:1] non-default args: {'api_key': ['abc'], 'hf_token': 'abc', 'tokenizer': 't'}\n"
        )
    )
    assert log.non_default_args == {"api_key": "REDACTED", "hf_token": "REDACTED", "tokenizer": "t"}


def test_facts(write):
    log = read_server_log(write(GPU))
    assert (log.attention_backend, log.all_reduce_backends) == ("FLASH_ATTN", ("CUSTOM", "PYNCCL"))
    assert log.quantization_kernels == ("MacheteLinearKernel for AutoAWQMarlinLinearMethod",)
    assert (log.kv_cache_tokens, log.max_concurrency) == (1_962_048, 479.02)
    assert (log.compile_s, log.graph_capture_s, log.engine_init_s, log.startup_s) == (22.55, 4.0, 48.41, 125.0)
    assert (log.is_ready, log.is_dead, log.error, log.errors) == (True, False, None, ())
    assert [(p.text, p.count) for p in log.warnings] == [
        ("Flashinfer is not installed, skipping allreduce fusion pass", 2)
    ]


def test_memory_by_rank_even_where_two_wrote_at_once(write):
    assert memory(read_server_log(write(GPU))) == {
        (0, "weights"): 7.48, (1, "weights"): 7.5, (0, "kv_cache"): 119.75, (0, "cuda_graphs"): 0.72,
        (1, "non_torch"): 1.0, (1, "peak_activation"): 1.25,
    }  # fmt: skip


def test_free_memory_where_all_parts_are_known(write):
    text = GPU + "(Worker_TP1 pid=4) INFO 11-30 15:23:55 [g.py:1] Available KV cache memory: 100.0 GiB\n" \
                 "(Worker_TP1 pid=4) INFO 11-30 15:23:55 [g.py:1] Graph capturing finished in 4 secs, took 0.5 GiB\n"  # fmt: skip
    assert memory(read_server_log(write(text)))[1, "free"] == 138.0 - 8.5 - 1.25 - 0.5 - 100.0


def test_periodic_line(write):
    table = read_server_log(write(GPU)).throughput
    assert table.to_dict("records") == [{
        "seconds": 134.0, "engine": 0, "prompt_tokens_per_s": 64.5, "generation_tokens_per_s": 2.0, "running": 3,
        "waiting": 7, "swapped": None, "deferred": 1, "preemptions": None, "kv_cache_usage": 0.41,
        "prefix_cache_hit_rate": 0.125, "external_prefix_cache_hit_rate": 0.02,
    }]  # fmt: skip


def test_iterations(write):
    log = read_server_log(write(
        "(APIServer pid=1) INFO 11-30 15:24:44 [loggers.py:199] Engine 001: Iteration(5): 1 context requests, 128 context "
        "tokens, 2 generation requests, 3 generation tokens, iteration elapsed time: 521.61 ms (dummy), CPU KV cache usage: 0.6%\n"
    ))  # fmt: skip
    assert log.iterations.to_dict("records") == [{
        "seconds": 0.0, "engine": 1, "iteration": 5, "context_requests": 1, "context_tokens": 128, "generation_requests": 2,
        "generation_tokens": 3, "elapsed_ns": 521_610_000, "kv_cache_usage": 0.006, "is_dummy": True,
    }]  # fmt: skip


def test_old_formats(write):
    log = read_server_log(write(
        "INFO 10-28 11:16:30 llm_engine.py:237] Initializing an LLM engine (v0.6.6) with config: model='m', dtype=torch.float16, \n"
        "INFO 10-28 11:16:31 selector.py:120] Using Flash Attention backend.\n"
        "(VllmWorkerProcess pid=21) INFO 10-28 11:16:33 model_runner.py:1077] Loading model weights took 7.5 GB\n"
        "INFO 10-28 11:16:33 model_runner.py:1077] Loading model weights took 7.25 GB\n"
        "INFO 10-28 11:16:34 worker.py:241] model weights take 7.25GiB; non_torch_memory takes 0.10GiB; PyTorch activation "
        "peak memory takes 1.20GiB; the rest of the memory reserved for KV Cache is 54.90GiB.\n"
        "INFO 10-28 11:16:34 gpu_executor.py:76] # GPU blocks: 7000, # CPU blocks: 512\n"
        "INFO 10-28 11:16:44 metrics.py:467] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.5 tokens/s, "
        "Running: 2 reqs, Swapped: 1 reqs, Pending: 4 reqs, GPU KV cache usage: 99.5%, CPU KV cache usage: 3.0%.\n"
        "WARNING 10-28 11:16:50 scheduler.py:1] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is "
        "not enough KV cache space. total_num_cumulative_preemption=51\n"
    ))  # fmt: skip
    assert (log.vllm_version, log.attention_backend, log.preemptions) == ("0.6.6", "Flash Attention", 51)
    assert memory(log) == {
        (0, "weights"): 7.25, (1, "weights"): 7.5, (0, "non_torch"): 0.1, (0, "peak_activation"): 1.2, (0, "kv_cache"): 54.9,
    }  # fmt: skip
    row = log.throughput.iloc[0]
    assert (row["swapped"], row["waiting"], row["kv_cache_usage"]) == (1, 4, 0.995)
    assert len(log.warnings) == 1


def test_rank_of_pipeline_stages(write):
    log = read_server_log(write(
        "(EngineCore pid=2) INFO 11-30 15:22:58 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
        "tensor_parallel_size=2, pipeline_parallel_size=2\n"
        "(Worker_DP1_PP1_TP0 pid=9) INFO 11-30 15:23:24 [a.py:302] Model loading took 1.0 GiB memory and 2.2 seconds\n"
    ))  # fmt: skip
    assert memory(log) == {(6, "weights"): 1.0}


def test_new_year(write):
    lines = list(
        log_lines(
            write("INFO 12-31 23:59:50 [a.py:1] x\nINFO 01-01 00:00:10 [a.py:1] y\nINFO 02-30 00:00:10 [a.py:1] z\n")
        )
    )
    assert lines[1].seconds - lines[0].seconds == 20
    assert lines[2].seconds is None


def failing(*lines, before=GPU):
    return before + "".join(f"{line}\n" for line in lines)


def test_error_that_explains_a_server_that_never_came_up(write):
    log = read_server_log(write(failing(
        "(EngineCore pid=2) ERROR 11-30 15:23:00 [core.py:1510] EngineCore failed to start.",
        "(EngineCore pid=2) ERROR 11-30 15:23:00 [core.py:1510] Traceback (most recent call last):",
        '(EngineCore pid=2) ERROR 11-30 15:23:00 [core.py:1510]   File "site-packages/vllm/v1/engine/core.py", line 1, in x',
        "(EngineCore pid=2) ERROR 11-30 15:23:00 [core.py:1510]     raise ValueError(",
        "(EngineCore pid=2) ERROR 11-30 15:23:00 [core.py:1510] ValueError: To serve at least one request, 0.35 GiB are needed",
        "(APIServer pid=1) Traceback (most recent call last):",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        before="(APIServer pid=1) INFO 11-30 15:22:38 [model.py:619] Resolved architecture: LlamaForCausalLM\n",
    )))  # fmt: skip
    assert (log.is_ready, log.is_dead) == (False, True)
    assert log.error == "ValueError: To serve at least one request, 0.35 GiB are needed"


@pytest.mark.parametrize("lines, error", [
    (["(Worker_TP0 pid=3) ERROR 11-30 15:30:00 [x.py:1] WorkerProc hit an exception.",
      "(Worker_TP0 pid=3) ERROR 11-30 15:30:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
      "(EngineCore pid=2) ERROR 11-30 15:30:00 [core.py:1] EngineCore encountered a fatal error.",
      "(EngineCore pid=2) ERROR 11-30 15:30:00 [core.py:1] RuntimeError: Worker failed with error 'CUDA out of memory'",
      "(APIServer pid=1) ERROR 11-30 15:30:00 [a.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an "
      "issue. See stack trace (above) for the root cause."],
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    (["[rank0]:[E517 20:17:34.985814210 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=19, OpType=_ALLGATHER_BASE)",
      "[rank0]:[E517 20:17:34.985901862 ProcessGroupNCCL.cpp:2303] [PG ID 2]  failure detected by watchdog at work 19",
      "#0 all_gather from site-packages/torch/distributed/distributed_c10d.py:4186"],
     "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=19, OpType=_ALLGATHER_BASE)"),
    (["(EngineCore pid=2) ERROR 11-30 15:30:00 [x.py:1] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down"],
     "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down"),
])  # fmt: skip
def test_error_of_a_server_that_died_while_serving(write, lines, error):
    log = read_server_log(write(failing(*lines)))
    assert log.is_dead
    assert log.error == error


def test_bad_arguments(write):
    start = "INFO 11-30 15:22:38 [a.py:1] x\n"
    usage = read_server_log(
        write(
            failing("usage: vllm serve [-h]", "vllm serve: error: unrecognized arguments: --swap-space 4", before=start)
        )
    )
    assert usage.error == "vllm serve: error: unrecognized arguments: --swap-space 4"
    alone = write("usage: vllm serve [-h]\nvllm serve: error: unrecognized arguments: --swap-space 4\n")
    assert sniff(alone) == "server_log"
    assert read_server_log(alone).error == "vllm serve: error: unrecognized arguments: --swap-space 4"
    imports = write(
        'Traceback (most recent call last):\n  File "x/site-packages/vllm/a.py", line 1, in b\nOSError: no libcuda\n'
    )
    assert read_server_log(imports).error == "OSError: no libcuda"
    pydantic = read_server_log(write(failing(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, User-specified max_model_len (100000) is greater than 8192. [type=value_error, input_value=Args, input_type=A]",
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error", before=start,
    )))  # fmt: skip
    assert pydantic.error == "User-specified max_model_len (100000) is greater than 8192."


def test_an_error_that_the_server_outlives_is_no_death(write):
    log = read_server_log(
        write(failing("(APIServer pid=1) ERROR 11-30 15:25:00 [x.py:1] RuntimeError: Profiling is not enabled."))
    )
    assert (log.is_dead, log.error) == (False, None)
    assert [p.text for p in log.errors] == ["RuntimeError: Profiling is not enabled."]


def test_being_stopped_is_no_death(write):
    log = read_server_log(write(failing(
        "(EngineCore pid=2) INFO 11-30 16:21:18 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM",
        "(APIServer pid=1) ERROR 11-30 16:21:18 [a.py:704] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    )))  # fmt: skip
    assert (log.is_dead, log.error, log.errors) == (False, None, ())


def test_colours_and_packed_files(tmp_path):
    file = tmp_path / "log.gz"
    file.write_bytes(
        gzip.compress(
            b"\x1b[0;36m(EngineCore pid=2)\x1b[0;0m INFO 11-30 15:23:50 [k.py:1] GPU KV cache size: 5 tokens\n"
        )
    )
    assert read_server_log(file).kv_cache_tokens == 5


@pytest.mark.parametrize("text, words", [
    ("", "no line of it is one that vLLM writes"),
    ("hello\nworld\n", "no line of it is one that vLLM writes"),
    ("\x00\xff\x00" * 50, "no line of it is one that vLLM writes"),
    ("# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x 1.0\n", "is Prometheus text, not a vLLM log"),
])  # fmt: skip
def test_what_is_no_log(write, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_server_log(write(text))
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="abc=,()[]{}<>'\": 1.\\"))
def test_reprs_never_fail(text):
    read_value(text)
    flattened(read_fields(f"a={text}"))


@pytest.mark.parametrize("text, value", [
    ("'a\\'b'", "a'b"), ("1e-3", 0.001), ("-5", -5), ("None", None), ("torch.float16", "float16"), ("<E.X: 'b>c'>", "X"),
    ("<object at 0x1>", "<object at 0x1>"), ("{1, 2}", [1, 2]), ("{}", {}), ("()", []), ("C()", {}), ("[inf]", ["inf"]),
    ("a/b c", "a/b c"), ("[" * 500, "[" * 500), ("__import__('os')", {"0": "os"}),
])  # fmt: skip
def test_reprs(text, value):
    found = read_value(text)
    assert found == value or (text.startswith("[[") and found is not None)


# Weights GiB and KV tokens of the table in the recordings' README.
TABLE = {
    "llama3-8b-bf16": (14.96, 920_192), "llama3-8b-fp8": (8.49, 972_928), "llama3-8b-awq": (5.44, 998_144),
    "llama3-8b-eager": (14.96, 922_064), "llama3-8b-tp2": (7.48, 1_962_048), "llama3-70b-bf16-tp2": (65.71, 428_576),
    "llama3-70b-awq-tp2": (18.96, 707_472),
}  # fmt: skip
KV_GIB = {"llama3-8b-bf16": 112.33, "llama3-8b-tp2": 119.75, "llama3-70b-bf16-tp2": 65.4}


@pytest.mark.parametrize("name", TABLE)
def test_recordings(shared, name):
    log = read_server_log(shared / "recordings/h200" / name / "server.log")
    weights, tokens = TABLE[name]
    found = memory(log)
    ranks = range(2 if name.endswith("tp2") else 1)
    assert {found[rank, "weights"] for rank in ranks} == {weights}
    assert log.kv_cache_tokens == tokens
    assert found[0, "kv_cache"] == KV_GIB.get(name, found[0, "kv_cache"])
    assert (log.vllm_version, log.attention_backend, log.is_ready, log.error) == ("0.25.1", "FLASH_ATTN", True, None)
    assert log.settings["tensor_parallel_size"] == len(ranks)
    assert log.enforce_eager == (name == "llama3-8b-eager")


def test_logs_of_others(shared):
    hang = read_server_log(shared / "fixtures/logs/jasl-ds4/nccl_hang_serve_log_excerpt.txt")
    assert hang.is_dead and hang.error.startswith("[Rank 0] Watchdog caught collective operation timeout")
    offline = read_server_log(shared / "fixtures/logs/mystous-vllm_hybrid/vanilla_run3/engine.log.stdout")
    assert (offline.kv_cache_tokens, offline.is_ready, offline.settings["kv_cache_dtype"]) == (2_504_368, True, "fp8")
    assert offline.throughput["kv_cache_usage"].max() == 1.0
    assert (offline.throughput["running"].max(), offline.throughput["running"].iloc[20]) == (256, 243)


def test_cpu_engine(shared):
    log = read_server_log(shared / "facts/samples/server_0.32_cpu.log")
    assert memory(log) == {(0, "kv_cache"): 1.0}
    assert (log.kv_cache_tokens, log.max_concurrency, log.enforce_eager) == (23_296, 45.5, True)
    assert len(read_server_log(shared / "facts/samples/server_prefix_exp.log").iterations) == 128


@pytest.mark.parametrize("what", ["Running: 3", "Waiting: 7", "throughput: 64", "Engine 0", "usage: 41"])
def test_a_line_whose_figures_are_damaged_is_left_out(tmp_path, what):
    line = (
        "INFO 11-30 15:24:25 [l.py:1] Engine 000: Avg prompt throughput: 64.5 tokens/s, Avg generation throughput: "
        "2.0 tokens/s, Running: 3 reqs, Waiting: 7 reqs, GPU KV cache usage: 41.0%\n"
    )
    (tmp_path / "a.log").write_text(line + line.replace(what, what + "9" * 400))
    assert len(read_server_log(tmp_path / "a.log").throughput) == 1


def test_the_kernel_of_a_format_is_told_in_both_ways_vllm_says_it() -> None:
    recorded = Path(__file__).resolve().parents[2] / "data" / "recorded"
    found = {
        name: read_server_log(recorded / name / "server.log.xz").quantization_kernels
        for name in ("llama3-8b-bf16", "llama3-8b-fp8", "llama3-8b-awq")
    }
    assert found == {
        "llama3-8b-bf16": (),
        "llama3-8b-fp8": ("CutlassFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod",),
        "llama3-8b-awq": ("MacheteLinearKernel for AutoAWQMarlinLinearMethod",),
    }
