# ruff: noqa: E501 (lines of a log are as long as they are)
"""What a server's log says: phases, settings, and the error that ended it."""

import pytest

from perflab.analysis.log.problems import root_cause
from perflab.capture.serverlog import phase_of, settings

START = """\
(APIServer pid=7) INFO 11-30 17:10:46 [api_utils.py:286] non-default args: {'model': 'm', 'port': 4, 'max_num_seqs': 8, 'served_model_name': ['m'], 'profiler_config': ProfilerConfig(profiler='torch', torch_profiler_dir='/x, y')}
(EngineCore pid=8) INFO 11-30 17:10:56 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m', dtype=torch.float32, max_seq_len=512, tensor_parallel_size=2, quantization=None, pooler_config=PoolerConfig(a=[1, 2], b='c, d'), enforce_eager=True
(EngineCore pid=8) INFO 11-30 17:10:57 [scheduler.py:307] Chunked prefill is enabled with max_num_batched_tokens=2048.
(Worker pid=9) INFO 11-30 17:11:06 [cpu_model_runner.py:68] Starting to load model m...
(Worker pid=9) INFO 11-30 17:11:08 [default_loader.py:501] Loading weights took 0.43 seconds
(EngineCore pid=8) INFO 11-30 17:11:09 [kv_cache_utils.py:2327] GPU KV cache size: 11,648 tokens, Maximum concurrency for 512 tokens per request: 22.75x
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|#| 5/5
(EngineCore pid=8) INFO 11-30 17:11:11 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.37 s
INFO:     Application startup complete.
""".splitlines()

DEATH = """\
(EngineCore pid=8) ERROR 11-30 16:49:25 [multiproc_executor.py:953] WorkerProc failed to start.
(Worker pid=9) ERROR 11-30 16:49:25 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=9) ERROR 11-30 16:49:25 [multiproc_executor.py:953]   File "/x/cpu_worker.py", line 83, in __init__
(Worker pid=9) ERROR 11-30 16:49:25 [multiproc_executor.py:953]     raise ValueError(
(Worker pid=9) ERROR 11-30 16:49:25 [multiproc_executor.py:953] ValueError: Available memory is less than desired.
(EngineCore pid=8) ERROR 11-30 16:49:27 [core.py:1510] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
nanobind: leaked 4 instances!
""".splitlines()


def test_phases_come_in_order():
    found = [phase for line in START if (phase := phase_of(line))]
    assert found == ["configured", "loading", "loaded", "kv_cache", "capturing", "initialized", "serving"]


def test_settings_are_vllms_own():
    found = settings(START)
    assert found["max_num_seqs"] == 8 and found["max_num_batched_tokens"] == 2048
    assert found["dtype"] == "float32" and found["max_model_len"] == 512 and "max_seq_len" not in found
    assert found["tensor_parallel_size"] == 2 and found["quantization"] is None and found["enforce_eager"] is True
    assert found["pooler_config"] == "PoolerConfig(a=[1, 2], b='c, d')"
    assert not {"port", "profiler_config"} & set(found)


def test_the_first_cause_is_named_and_not_its_echoes():
    assert root_cause(DEATH) == "ValueError: Available memory is less than desired."
    assert "Engine core initialization failed" not in (root_cause(DEATH[4:]) or "")
    # When nothing else is there, an echo is better than nothing.
    assert "WorkerProc initialization failed" in (root_cause(DEATH[5:]) or "")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["usage: vllm [-h]", "vllm serve: error: unrecognized arguments: --no-such"],
         "vllm serve: error: unrecognized arguments: --no-such"),
        (["pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
          "  Value error, too long [type=value_error]", "    For further information visit https://x"],
         "too long"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"],
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        (["x.py:1: FutureWarning: old", "Killed"], "Killed"),
        (["", ""], None),
        ([], None),
    ],
)  # fmt: skip
def test_kinds_of_ends(lines, cause):
    assert root_cause(lines) == cause


def test_a_real_log(shared):
    lines = (shared / "facts/samples/server_0.32_cpu.log").read_text(errors="replace").splitlines()
    found = settings(lines)
    assert found["enforce_eager"] is True and found["max_model_len"] > 0
    assert {"configured", "loading", "kv_cache", "initialized", "serving"} <= {phase_of(line) for line in lines}
