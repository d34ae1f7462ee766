# ruff: noqa: E501 (lines of a log are as long as they are)
"""What a dead engine's log says, in one sentence with a remedy. The errors are those of real logs, cut."""

import re

import pytest

from perflab.analysis.log.remedies import explained, remedy
from perflab.knowledge.failures import failure_of, known_failures
from perflab.messages import catalogue

HEAD = "(EngineCore pid=8) ERROR 11-30 16:49:25 [core.py:1510] "
CASES = [
    ("kv_too_small",
     "ValueError: To serve at least one request with the model's max seq len (8192), (0.35 GiB KV cache is needed, which is larger than the available KV cache memory (0.06 GiB). Based on the available memory, the estimated maximum model length is 1280. Try increasing",
     "set engine.args.max_model_len to 1280 or less"),
    ("kv_too_small_for_any",
     "ValueError: To serve at least one request with the model's max seq len (8192), (0.35 GiB KV cache is needed, which is larger than the available KV cache memory (0.0 GiB). Try increasing",
     "use more GPUs"),
    ("no_kv", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "raise gpu_memory_utilization"),
    ("no_kv", "ValueError: Available memory on node 0 (10.38/12.84 GiB) on kv cache allocation is less than requested memory for kv (-1.08/0.26 GiB).", "raise gpu_memory_utilization"),
    ("too_long", "Value error, User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=8192.0 or model_max_length=None in model's config.json).", "to 8192 or less"),
    ("gpu_in_use", "ValueError: Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.92, 72.8 GiB).", "nvidia-smi"),
    ("gpu_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "max_num_seqs"),
    ("host_memory", "Killed", "too little memory"),
    ("host_memory", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", "too little memory"),
    ("port", "OSError: [Errno 98] Address already in use", "another program listens there"),
    ("gated", "OSError: You are trying to access a gated repo.", "HF_TOKEN in the shell"),
    ("no_weights", "RuntimeError: Cannot find any model weights with `org/m`", "holds no weights"),
    ("no_model", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder", "no such model here"),
    ("bad_weights", "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered", "damaged or cut short"),
    ("quantization_missing", "ValueError: Cannot find the config file for gptq", "not quantized with gptq"),
    ("quantization_differs", "ValueError: Quantization method specified in the model config (fp8) does not match the quantization method specified in the `quantization` argument (awq).", "that it is fp8"),
    ("quantization_unknown", "ValueError: Unknown quantization method: x4. Must be one of [...]", "correct engine.args.quantization"),
    ("heads", "ValueError: Total number of attention heads (9) must be divisible by tensor parallel size (2).", "that divides 9"),
    ("gpus", "ValueError: World size (8) is larger than the number of available GPUs (2) in this node.", "fewer GPUs"),
    ("batched_tokens", "ValueError: max_num_batched_tokens (1024) is smaller than max_model_len (8192).", "max_num_batched_tokens to 8192 or more"),
    ("remote_code", "ValueError: Failed to load the model config. Set `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag", "if you trust it"),
    ("architecture", "ValueError: Model architectures ['NewForCausalLM'] are not supported for now.", "newer vLLM"),
    ("profile_timeout", "TimeoutError: RPC call to profile timed out.", "VLLM_RPC_TIMEOUT"),
    ("disk", "OSError: [Errno 28] No space left on device: '/x'", "make room"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "error", "says"), CASES)
def test_a_known_error_comes_with_its_remedy(kind, error, says):
    assert failure_of(error).id == kind
    echo = f"{HEAD}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}"
    prefix = "" if error == "Killed" else HEAD
    pydantic = error.startswith("Value error")
    found = explained([f"{HEAD}EngineCore failed to start.", f"  {error}" if pydantic else prefix + error, echo])
    assert says in found and "Engine core initialization" not in found
    assert "\n" not in found and "?" not in found


def test_a_worker_that_was_killed_is_named_and_not_what_followed():
    lines = [
        "(APIServer pid=7) INFO 11-30 16:49:20 [loggers.py:271] Engine 000: Avg prompt throughput: 3.2 tokens/s",
        "(EngineCore pid=8) ERROR 11-30 16:49:25 [multiproc_executor.py:305] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
        "(EngineCore pid=8) ERROR 11-30 16:49:25 [core.py:1520] RuntimeError: cancelled",
        "(APIServer pid=7) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    ]
    found = explained(lines)
    assert found.startswith("Worker proc VllmWorker-0 died unexpectedly") and "out-of-memory killer" in found


def test_an_unknown_error_stands_alone():
    assert explained([HEAD + "ValueError: something else."]) == "ValueError: something else."
    assert explained(["nanobind: leaked 4 instances!", ""]) is None
    assert remedy("ValueError: something else") is None


def test_every_kind_has_a_case_or_a_reason_and_a_sentence():
    sentences = {name.removeprefix("remedy.") for name in catalogue() if name.startswith("remedy.")}
    assert sentences == set(known_failures())
    # Seen in source only, or told by the system rather than by vLLM.
    unseen = {"quantization_unsupported", "argument", "driver", "shared_memory", "worker_died"}
    assert {kind for kind, _, _ in CASES} | unseen == set(known_failures())
    for name in sentences:
        assert not re.search(r"[.\s]$", catalogue()[f"remedy.{name}"])
