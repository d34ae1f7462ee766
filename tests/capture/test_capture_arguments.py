"""Arguments of an experiment against what an installed vLLM (0.32.0, CPU) really said it accepts."""

import dataclasses
import json
from pathlib import Path

import pytest

from perflab.capture.arguments import check_arguments
from perflab.capture.probe import probe_from
from perflab.errors import InputError
from perflab.experiment import read_experiment

RECORDED = Path(__file__).with_name("probe_vllm_cpu_0.32.json")


@pytest.fixture(scope="module")
def probe():
    said = json.loads(RECORDED.read_text())
    return probe_from("python", said["identity"], said["answer"])


def experiment(tmp_path, args="", env="", workload="load: {concurrency: 1}", bench=""):
    file = tmp_path / "e.yaml"
    file.write_text(
        f"model: org/name\nengine:\n  args:\n    {args or 'max_num_seqs: 4'}\n"
        f"  env: {{{env}}}\n"
        f"workloads:\n  - name: w\n    input_lens: 8\n    output_lens: 8\n    {workload}\n"
        f"    bench_args: {{{bench}}}\n"
    )
    return read_experiment(file)


def test_the_recorded_probe(probe):
    assert (probe.flavour, probe.vllm_version) == ("cpu", "0.32.0")
    assert probe.arguments["serve"]["enforce_eager"].flag
    assert probe.arguments["serve"]["cudagraph_capture_sizes"].many


@pytest.mark.parametrize(
    "args",
    [
        "max-model-len: 8k",
        "enforce_eager: false",
        "dtype: float32",
        "cudagraph_capture_sizes: [1, 2, 4]",
        "compilation_config: {mode: 0}",
        "compilation_config.cudagraph_mode: NONE",
        "device_memory_utilization: 0.5",
        "disable-log-stats: true",
    ],
)
def test_what_vllm_accepts_passes(tmp_path, probe, args):
    assert check_arguments(experiment(tmp_path, args), probe) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("max_num_seqz: 4", "has no argument max_num_seqz for `vllm serve`; did you mean max_num_seqs"),
        ("cuda_graph_sizes: [8]", "the last listed with it is 0.10.2, use cudagraph_capture_sizes"),
        ("swap-space: 4", "use kv_offloading_size or cpu_offload_gb"),
        ("max_num_partial_prefills: 2", "the last listed with it is 0.25.1, leave it out"),
        ("monokernel: true", "it came by vLLM 0.33.0: install that or a later one"),
        ("tensor-paralel-size: 2", "did you mean tensor_parallel_size"),
        ("swap_space: 4", "has no argument swap_space"),
        ("enforce_eager: 1", "it is a switch: true or false"),
        ("dtype: floaty", "vLLM takes auto, bfloat16, float, float16, float32, half"),
        ("max_num_seqs: many", "vLLM takes a whole number"),
        ("max_num_seqs: 2.5", "vLLM takes a whole number"),
        ("gpu_memory_utilization: most", "vLLM takes a number"),
        ("cudagraph_capture_sizes: [1, two]", "is 'two'; vLLM takes a whole number"),
    ],
)
def test_what_vllm_does_not_accept_is_refused_with_its_line(tmp_path, probe, args, says):
    with pytest.raises(InputError) as caught:
        check_arguments(experiment(tmp_path, args), probe)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'e.yaml'}:4: engine.args.")


def test_arguments_of_the_client(tmp_path, probe):
    assert check_arguments(experiment(tmp_path, bench="burstiness: 0.5"), probe) == []
    with pytest.raises(InputError, match="did you mean burstiness") as caught:
        check_arguments(experiment(tmp_path, bench="burstyness: 0.5"), probe)
    assert caught.value.line == 11
    with pytest.raises(InputError, match="the plan decides it"):
        check_arguments(experiment(tmp_path, bench="num_prompts: 5"), probe)
    with pytest.raises(InputError, match="the plan decides it"):
        check_arguments(experiment(tmp_path, bench="num-warmups: 5"), probe)


def test_a_serving_argument_is_no_argument_of_an_offline_benchmark(tmp_path, probe):
    text = "kind: latency\n    load: {concurrency: 1}"
    with pytest.raises(InputError, match="has no argument disable_log_stats for `vllm bench latency`"):
        check_arguments(experiment(tmp_path, "disable_log_stats: true", workload=text), probe)


def test_unknown_variables_are_remarked_upon_and_others_are_not(tmp_path, probe):
    env = "VLLM_USE_V1: 1, VLLM_LOGING_LEVEL: DEBUG, VLLM_SERVER_DEV_MODE: 1, OMP_NUM_THREADS: 2"
    first, second = check_arguments(experiment(tmp_path, env=env), probe)
    assert "VLLM_USE_V1" in first and "0.32.0" in first and "Line 5" in first
    assert "Did you mean VLLM_LOGGING_LEVEL" in second


def test_a_profiler_key_that_this_vllm_lacks_is_refused_before_anything_starts(tmp_path, probe):
    # vLLM 0.25.1 has no detailed_trace_annotation: its server ended half a minute later with pydantic's words.
    asked = experiment(tmp_path)
    file = asked.path
    file.write_text(file.read_text() + "profile:\n  - {id: steps, detailed_steps: true}\n")
    asked = read_experiment(file)
    assert check_arguments(asked, probe) == []
    older = dataclasses.replace(
        probe, vllm_version="0.25.1", profiler_keys=probe.profiler_keys - {"detailed_trace_annotation"}
    )
    with pytest.raises(InputError, match=r"profile steps: detailed_steps needs .* vLLM 0\.25\.1 does not have"):
        check_arguments(asked, older)
    unknown = dataclasses.replace(older, profiler_keys=frozenset())
    assert check_arguments(asked, unknown) == []
