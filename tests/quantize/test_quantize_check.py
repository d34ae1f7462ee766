"""Did a quantization take effect: recorded runs, logs and traces alone, and logs written by hand."""

import json
import shutil

import pytest

from perflab import places
from perflab.analysis.kernel_names import short_kernel_name
from perflab.analysis.quantization.effect import EffectFacts, LogRemark, parameters_of, took_effect
from perflab.cli import main
from perflab.errors import InputError
from perflab.knowledge.kernel_families import kernel_family
from perflab.knowledge.quantized_kernels import quantized_kernels
from perflab.runs import open_run
from perflab.tasks.quantize.check import check, log_remarks, run_effect

RECORDED = {"llama3-8b-fp8": "fp8", "llama3-8b-awq": "awq", "llama3-70b-awq-tp2": "awq"}
PREFIX = "(EngineCore pid=9) INFO 11-30 15:12:02 [model_runner.py:302] "


def log(folder, *lines, name="server.log"):
    file = folder / name
    banner = (
        "Initializing a V1 LLM engine (v0.25.1) with config: model='models/llama3-8b', speculative_config=None,"
        " tensor_parallel_size=1, quantization={quantization}, kv_cache_dtype={kv}, dtype=torch.bfloat16"
    )
    first, *rest = lines
    quantization, _, kv = first.partition("/")
    text = [PREFIX + banner.format(quantization=quantization, kv=kv or "auto"), *(PREFIX + line for line in rest)]
    file.write_text("\n".join(text) + "\n")
    return file


def config(folder):
    shutil.copyfile(places.experiments().parent / "models" / "llama3-8b" / "config.json", folder / "config.json")


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_quantized_runs(name):
    (found,) = check([name]).effects
    assert (found.asked, found.answer, found.kv_answer) == (RECORDED[name], "yes", "not_asked")
    memory, kernels, trace = found.evidence
    assert "16 bits" in memory
    assert "Kernel" in kernels
    assert "that ran are of the quantization" in trace
    assert found.ok


def test_a_run_that_asked_for_nothing():
    (found,) = check(["llama3-8b-bf16"]).effects
    assert (found.answer, found.ok, found.findings) == ("not_asked", True, ())
    assert run_effect(open_run(places.recorded() / "llama3-8b-bf16")) is None


@pytest.mark.parametrize("asked", ["fp8", "int8", "int4-g128"])
def test_a_baseline_taken_for_quantized_is_found_out(asked):
    """Weights and kernels of the BF16 run, as if it had been asked for a quantization."""
    (found,) = check(["llama3-8b-bf16"], asked=asked).effects
    assert (found.answer, found.ok) == ("no", False)
    assert [one.id for one in found.findings] == ["quantization_without_effect"]
    assert found.findings[0].severity == "critical"
    assert "nvjet" in found.evidence[-1]
    assert check(["llama3-8b-fp8"], asked="fp8").ok


def test_by_the_trace_alone(tmp_path):
    run = open_run(places.recorded() / "llama3-8b-awq")
    trace = run.file(run.manifest.profiles[0].traces[0])
    alone = tmp_path / "alone" / "deep" / trace.name
    alone.parent.mkdir(parents=True)
    shutil.copyfile(trace, alone)
    assert check([alone], asked="awq").effects[0].answer == "yes"
    assert check([alone], asked="fp8").effects[0].answer == "no"
    (unasked,) = check([alone]).effects
    assert unasked.answer == "not_asked"
    assert "machete" in unasked.evidence[0]


def test_by_the_log_alone(tmp_path):
    """Online INT8 of a dense model quantizes nothing: the flag is there, the weights are as large as before."""
    config(tmp_path)
    file = log(tmp_path, "int8_per_channel_weight_only", "Model loading took 14.96 GiB and 2.9 seconds")
    (found,) = check([file]).effects
    assert (found.asked, found.answer) == ("int8_per_channel_weight_only", "no")
    assert "they are not quantized" in found.evidence[0]
    assert found.findings[0].impact["unit"] == "bytes"
    fine = log(tmp_path, "fp8", "Model loading took 8.49 GiB and 2.9 seconds", name="fine.log")
    assert check([fine]).effects[0].answer == "yes"


def test_a_log_without_a_config_goes_by_the_models_name(tmp_path):
    text = PREFIX + (
        "Initializing a V1 LLM engine (v0.25.1) with config: model='meta/Llama-3.3-70B-Instruct',"
        " tensor_parallel_size=8, quantization=fp8, dtype=torch.bfloat16\n"
    )
    file = tmp_path / "server.log"
    file.write_text(text + PREFIX + "Model loading took 16.6 GiB and 2.9 seconds\n")
    (found,) = check([file]).effects
    assert found.answer == "no"
    assert "roughly" in found.evidence[0]
    assert found.findings[0].confidence < 0.7
    file.write_text(text + PREFIX + "Model loading took 8.7 GiB and 2.9 seconds\n")
    assert check([file]).effects[0].answer == "yes"


def test_what_cannot_be_told_is_not_called_a_success(tmp_path):
    (found,) = check([log(tmp_path, "fp8")]).effects
    assert (found.answer, found.ok) == ("unknown", False)


def test_an_engine_that_never_came_up_took_no_effect(tmp_path):
    """Its log names the kernel that would have computed; then it ends."""
    kernel = "Selected PerTensorTorchFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod"
    file = log(tmp_path, "fp8_per_tensor", kernel)
    assert check([file]).effects[0].answer == "yes"
    with file.open("a") as more:
        more.write("RuntimeError: _C::static_scaled_fp8_quant() expected at most 0 argument(s)\n")
    (found,) = check([file]).effects
    assert (found.answer, found.ok) == ("unknown", False)
    assert "static_scaled_fp8_quant" in found.evidence[-1]


def test_the_cache(tmp_path):
    config(tmp_path)
    lines = ["None/fp8", "Available KV cache memory: 10.0 GiB", "GPU KV cache size: {tokens} tokens"]
    half, whole = (
        log(tmp_path, *(line.format(tokens=tokens) for line in lines), name=f"{tokens}.log")
        for tokens in ("163,840", "81,920")
    )
    assert check([half]).effects[0].kv_answer == "yes"
    (bad,) = check([whole]).effects
    assert (bad.answer, bad.kv_answer, bad.ok) == ("not_asked", "no", False)
    assert "131,072 bytes" in bad.findings[0].evidence[0]


def test_a_pinned_cache(tmp_path):
    """vLLM 0.25.1 does not log the size of a cache that was given; then the argument tells."""
    config(tmp_path)
    given = "non-default args: {'kv_cache_memory_bytes': 42949672960, 'kv_cache_dtype': 'fp8'}"
    file = log(tmp_path, "None/fp8", given, "GPU KV cache size: 655,360 tokens")
    (found,) = check([file]).effects
    assert found.kv_answer == "yes"
    assert "65,536 bytes" in found.evidence[-1]


def test_int8_kernels_of_hopper_are_known():
    """As recorded on an H200: the name says neither int8 nor s8."""
    name = (
        "void cutlass::device_kernel<vllm::cutlass_3x_gemm<signed char, cutlass::bfloat16_t, vllm::c3x::ScaledEpilogue,"
        " cute::tuple<cute::C<128>, cute::C<128>, cute::C<128> >, cutlass::epilogue::TmaWarpSpecialized>::GemmKernel>()"
    )
    assert quantized_kernels("int8").search(name)
    assert not quantized_kernels("int8").search(name.replace("signed char", "cutlass::bfloat16_t"))
    assert kernel_family(name) == "CUTLASS (INT8)"
    assert short_kernel_name(name) == "vllm::cutlass_3x_gemm 128x128x128 int8"


LINES = {
    "forced": "Detected that the model can run with awq_marlin, however you specified quantization=awq explicitly, so"
    " forcing awq. Use quantization=awq_marlin for faster inference",
    "unoptimized": "awq quantization is not fully optimized yet. The speed can be slower than non-quantized models.",
    "layers": "Layer 'model.layers.0.self_attn.qkv_proj' is not supported by AutoAWQMarlin. Falling back to unoptimized"
    " AWQ kernels.",
    "weight_only": "Your GPU does not have native support for FP8 computation but FP8 quantization is being used.",
    "padded": "Marlin requires thread-tile padding for some weight shapes in this model.",
    "deprecated": "--quantization fp8 is deprecated for online quantization; use fp8_per_tensor.",
    "kv_one": "Using KV cache scaling factor 1.0 for fp8_e4m3. If this is unintended, verify that k/v_scale",
    "kv_no_scales": "Using fp8 data type to store kv cache. It reduces the GPU memory footprint and boosts the"
    " performance. Meanwhile, it may cause accuracy drop without a proper scaling factor",
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_the_log(tmp_path, name):
    file = log(tmp_path, "fp8", "nothing", LINES[name], LINES[name])
    assert [(one.name, one.line, one.count) for one in log_remarks(file)] == [(name, 3, 2)]
    (found,) = [one for one in check([file]).effects[0].findings if one.id == f"quantization_log_{name}"]
    assert found.evidence == ("Line 3 of the log, 2 times.",)
    assert found.title
    assert "{" not in found.title + found.change


def test_layers_that_fall_back_are_one_finding(tmp_path):
    more = [LINES["layers"].replace("layers.0", f"layers.{n}") for n in range(5)]
    (found,) = log_remarks(log(tmp_path, "awq", *more))
    assert (found.name, found.count) == ("layers", 5)


def test_a_real_log_with_an_fp8_cache(shared):
    file = shared / "fixtures/logs/mystous-vllm_hybrid/vanilla_run1/engine.log.stdout"
    (found,) = check([file]).effects
    assert (found.asked, found.kv_asked, found.kv_answer) == (None, "fp8", "yes")
    assert [one.id for one in found.findings] == ["quantization_log_kv_no_scales"]


def test_a_run_shows_it_in_its_breakdown(tmp_path):
    """The BF16 run with a flag that nothing came of: found by its memory, beside what the trace shows."""
    from perflab.tasks.breakdown import breakdown

    folder = tmp_path / "run"
    shutil.copytree(places.recorded() / "llama3-8b-bf16", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["engine"]["settings"]["quantization"] = "fp8"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    ids = [one.id for one in breakdown(folder, attribution=False).findings]
    assert "quantization_without_effect" in ids
    assert "quantization_without_kernels" in ids


def test_nothing_of_the_kind(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError):
        check([tmp_path / "notes.txt"])
    with pytest.raises(InputError, match="no format 'fp9'"):
        check(["llama3-8b-fp8"], asked="fp9")
    (tmp_path / "speed").mkdir()
    with pytest.raises(InputError, match="no run yet"):
        check([tmp_path])


def test_weighing():
    """Evidence against outweighs evidence for; nearly unquantizable weights say nothing."""
    base = {"asked": "fp8", "sixteen_bytes": 100.0, "predicted_bytes": 60.0}
    assert took_effect(EffectFacts(**base, weights_bytes=61, traced=False, traced_names=("x",))).answer == "no"
    assert took_effect(EffectFacts(**base, weights_bytes=79)).answer == "yes"
    assert took_effect(EffectFacts(**base, weights_bytes=81)).answer == "no"
    assert took_effect(EffectFacts(**{**base, "predicted_bytes": 95.0}, weights_bytes=100)).answer == "unknown"
    lines = (LogRemark("kv_one", "warning", "", 1), LogRemark("kv_no_scales", "info", "", 1))
    both = EffectFacts(kv_asked="fp8", remarks=lines)
    assert [one.id for one in took_effect(both).findings] == ["quantization_log_kv_one"]


@pytest.mark.parametrize(
    ("name", "count"),
    [("meta/Llama-3.3-70B-Instruct", 70e9), ("Qwen3-30B-A3B", 30e9), ("m", None), ("Qwen2.5-0.5B", 0.5e9), (None, None),
     ("llama3-8b", 8e9)],
)  # fmt: skip
def test_parameters_by_name(name, count):
    assert parameters_of(name) == count


def test_the_command(capsys):
    assert main(["quantize", "check", "llama3-8b-fp8"]) == 0
    assert "fp8: took effect" in capsys.readouterr().out
    assert main(["quantize", "check", "llama3-8b-bf16", "--asked", "fp8", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["checks"][0]["answer"]) == (False, "no")
    assert main(["quantize", "check", "nowhere"]) == 2


def test_the_prediction_is_that_of_the_plan():
    """Machete unpacks AWQ's zero points: 5.41 GiB, of which the log shows 5.44."""
    effect = run_effect(open_run(places.recorded() / "llama3-8b-awq"), traces=False)
    assert "5.41 GiB were predicted" in " ".join(effect.evidence)


def test_a_cache_without_scales_is_confirmed_by_accuracy(tmp_path):
    config(tmp_path)
    line = "Using KV cache scaling factor 1.0 for fp8_e4m3."
    [report] = check([log(tmp_path, "fp8/fp8", line)]).effects
    [found] = [one for one in report.findings if one.id.startswith("quantization_log_kv")]
    assert found.check == "perflab quantize run STUDY.yaml -o DIR --only accuracy"
    assert found.evidence == ("Line 2 of the log.",)
