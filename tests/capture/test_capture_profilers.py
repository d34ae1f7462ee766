"""Passes under nsys and ncu: commands, skips, and what is made of the tools' outcomes.

The tools need a GPU. Where one is run here it is a script that ends as the real one can end: that tests what perflab
makes of it, not the tool.
"""

import dataclasses
import json
import os
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_runs import kineto

from perflab.capture import ncu as ncu_module
from perflab.capture.launch import launch_for
from perflab.capture.ncu import Ncu, bare_name, ncu_argv, run_ncu
from perflab.capture.nsys import absent, collect, end_server, nsys_argv
from perflab.capture.process import Group
from perflab.errors import InputError
from perflab.experiment import plan, read_experiment
from perflab.experiment.commands import profiler_config, without_graphs
from perflab.experiment.plan import profile_groups
from perflab.experiment.spec import ProfilePass
from perflab.runs import Manifest, Profile, Run, RunWriter, now
from perflab.tasks import capture_profiles
from perflab.tasks.breakdown import breakdown
from perflab.tasks.capture_profiles import tools, top_kernels
from perflab.tasks.capture_records import Manuscript, Outlook

FILE = """\
model: Qwen/Qwen3-0.6B
engine:
  args: {max_model_len: 256, compilation_config.mode: 3, compilation_config: {cudagraph_mode: FULL, level: 3}}
workloads: [{input_lens: 8, output_lens: 8, load: {concurrency: 1}}]
profile:
  - {id: deep, teacher: true}
  - {id: graphs, kind: nsys, max_steps: 5}
  - {id: steps, max_steps: 16}
  - {id: counters, kind: ncu, of: steps, kernels: 2}
"""


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(FILE)
    return read_experiment(file)


@pytest.fixture
def writer(tmp_path):
    manifest = Manifest(schema=1, id="x", title="t", origin="captured", created=now(), perflab_version="0")
    return RunWriter(tmp_path / "run", manifest)


def program(folder: Path, name: str, body: str) -> str:
    """An executable script in Python."""
    file = folder / name
    file.write_text("#!/usr/bin/env python3\nimport pathlib, subprocess, sys, time\n" + textwrap.dedent(body))
    file.chmod(0o755)
    return str(file)


def option(argv, name):
    return argv[argv.index(name) + 1]


# What is planned


def test_a_teacher_pass_is_few_steps_with_stacks(experiment):
    deep, _, steps, _ = experiment.profiles
    assert (deep.with_stack, deep.max_steps, deep.teacher) == (True, 8, True)
    assert (steps.with_stack, steps.max_steps, steps.teacher) == (False, 16, False)


def test_only_a_pass_of_the_measured_engine_rides_on_a_measured_server(experiment):
    groups = profile_groups(experiment.profiles)
    assert [[one.id for one in group] for group in groups] == [["steps"], ["deep"], ["graphs"]]
    # One measured (with `steps`), one for the teacher pass, one under nsys; ncu builds its own engine.
    assert plan(experiment).servers_in_all == 3


def test_the_teacher_is_the_same_engine_without_graphs(experiment):
    args = without_graphs(experiment).engine.args
    assert args == {"max_model_len": 256, "compilation_config": {"mode": 3, "level": 3, "cudagraph_mode": "NONE"}}
    assert experiment.engine.args["compilation_config"]["cudagraph_mode"] == "FULL"
    steps = {one.spec.id: one for one in plan(experiment).profiles}
    launch = launch_for(experiment, [steps["deep"]], Path("/in"), {})
    assert not launch.measured and launch.experiment.engine.args == args and launch.under == ()
    assert launch.profiler["torch_profiler_with_stack"] is True
    assert launch_for(experiment, [steps["steps"]], Path("/in"), {}).measured
    assert launch_for(experiment, [], None, {}) == launch_for(experiment, [], Path("/in"), {})


def test_sizes_of_graphs_go_with_the_graphs(tmp_path):
    file = tmp_path / "g.yaml"
    file.write_text(FILE.replace("{max_model_len: 256,", "{max_model_len: 256, cudagraph_capture_sizes: [1, 2],"))
    assert "cudagraph_capture_sizes" not in without_graphs(read_experiment(file)).engine.args


def test_an_ncu_pass_makes_the_batch_of_the_pass_it_looks_at(tmp_path):
    file = tmp_path / "g.yaml"
    load = "input_len: 64, output_len: 7, concurrency: 3, num_prompts: 30"
    file.write_text(FILE.replace("{id: steps, max_steps: 16}", f"{{id: steps, {load}}}").replace("of: steps, ", ""))
    counters = read_experiment(file).profiles[-1]
    assert (counters.of, counters.input_len, counters.output_len, counters.num_prompts) == ("steps", 64, 7, 3)
    assert (counters.kernels, counters.launches) == (2, 2)


# nsys


def test_the_nsys_command_follows_processes_and_opens_graphs(experiment):
    steps = {one.spec.id: one for one in plan(experiment).profiles}
    launch = launch_for(experiment, [steps["graphs"]], Path("/in"), {"nsys": "/opt/nsys"})
    assert launch.under[:2] == ("/opt/nsys", "profile")
    assert {
        "--trace=cuda,nvtx", "--trace-fork-before-exec=true", "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi", "--capture-range-end=repeat", "--output=/in/graphs",
    } <= set(launch.under)  # fmt: skip
    assert launch.more == {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    assert launch.profiler == {"profiler": "cuda", "max_iterations": 5, "delay_iterations": 0}
    # Graphs stay on: it is the measured engine that is looked at.
    assert launch.experiment is experiment


EXPORTS = """
target = next(a.partition("=")[2] for a in sys.argv if a.startswith("--output="))
assert sys.argv[1] == "export" and "--type=sqlite" in sys.argv
pathlib.Path(target).write_text("tables")
"""
CANNOT = """
target = next(a.partition("=")[2] for a in sys.argv if a.startswith("--output="))
pathlib.Path(target).write_text("half")
print("Importer error status: An unknown error occurred.", file=sys.stderr)
sys.exit(1)
"""
RECORD = Profile(id="graphs", kind="nsys", status="complete")


def incoming_with_report(writer):
    incoming = writer.folder("profile/.server-0")
    (incoming / "graphs.nsys-rep").write_bytes(b"report")
    return incoming


def test_a_report_is_kept_and_exported(writer, tmp_path):
    found = collect(writer, RECORD, incoming_with_report(writer), program(tmp_path, "nsys", EXPORTS))
    assert (found.status, found.reason) == ("complete", None)
    assert found.reports == ["profile/graphs/graphs.nsys-rep", "profile/graphs/graphs.sqlite"]
    assert all((writer.path / name).is_file() for name in found.reports)


def test_where_nsys_cannot_export_the_report_stays_and_the_command_is_named(writer, tmp_path):
    found = collect(writer, RECORD, incoming_with_report(writer), program(tmp_path, "nsys", CANNOT))
    assert found.status == "skipped" and found.reports == ["profile/graphs/graphs.nsys-rep"]
    assert "An unknown error occurred." in found.reason
    assert "nsys export --type=sqlite" in found.reason and str(writer.path) not in found.reason
    assert not (writer.path / "profile/graphs/graphs.sqlite").exists()


def test_no_report_is_a_skip(writer, tmp_path):
    incoming = writer.folder("profile/.server-0")
    (incoming / "graphs.nsys-rep").write_bytes(b"")
    found = collect(writer, RECORD, incoming, program(tmp_path, "nsys", EXPORTS))
    assert (found.status, found.reports) == ("skipped", []) and "wrote no report" in found.reason


def test_a_recording_without_an_importer_is_kept(writer, tmp_path):
    incoming = writer.folder("profile/.server-0")
    (incoming / "graphs.qdstrm").write_bytes(b"raw")
    found = collect(writer, RECORD, incoming, program(tmp_path, "nsys", EXPORTS))
    assert (found.status, found.reports) == ("skipped", ["profile/graphs/graphs.qdstrm"])
    assert "QdstrmImporter" in found.reason and "nsight-systems" in found.reason


NSYS_LIKE = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
child.wait()
time.sleep(0.5)
pathlib.Path(sys.argv[1]).write_text("report")
"""


def test_the_server_is_ended_below_nsys_which_then_writes_its_report(tmp_path):
    report = tmp_path / "r.nsys-rep"
    running_group = Group([program(tmp_path, "nsys", NSYS_LIKE), str(report)], dict(os.environ))
    time.sleep(1.0)

    class Server:
        group, stop = running_group, running_group.stop
        running = property(lambda _: running_group.running)

    end_server(Server(), patience_s=20.0)
    assert report.read_text() == "report" and not running_group.members()


# ncu


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("nvjet_sm90_tst_64x8_TNT", "nvjet_sm90_tst_64x8_TNT"),
        ("void cutlass::device_kernel<flash::enable_sm90<int> >(flash::Params)", "device_kernel"),
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, float)", "rms_norm_kernel"),
        ("void (anonymous namespace)::elementwise<4>(int)", "elementwise"),
        ("triton_red_fused_add_0", "triton_red_fused_add_0"),
        ("void at::native::vectorized_elementwise_kernel<4, at::F<float>, std::array<char*, 2ul> >(int, F)",
         "vectorized_elementwise_kernel"),
        ("", ""),
    ],
)  # fmt: skip
def test_bare_names(name, bare):
    assert bare_name(name) == bare


def test_the_ncu_command_is_limited_and_off_until_switched_on():
    argv = ncu_argv(Ncu("/opt/ncu", ["a_kernel", "b.kernel"]), Path("/r"), 2)
    assert option(argv, "--kernel-name") == r"regex:^(a_kernel|b\.kernel)$"
    assert option(argv, "--kernel-name-base") == "function"
    # Two of each kernel and size: else the many launches of prefill would be all that is looked at.
    assert option(argv, "--launch-count") == "2" and option(argv, "--filter-mode") == "per-launch-config"
    assert option(argv, "--profile-from-start") == "off"


def traced(writer, profile="steps", role="measured"):
    folder = writer.folder(f"profile/{profile}")
    (folder / "rank0.1.pt.trace.json").write_text(json.dumps(kineto(kernel="ncclDevKernel_AllReduce_Sum_bf16")))
    name = f"profile/{profile}/rank0.1.pt.trace.json"
    writer.put_profile(Profile(id=profile, role=role, status="complete", traces=[name]))


def test_top_kernels_come_from_the_named_pass_without_collectives(writer):
    traced(writer)
    run = Run(writer.path, writer.manifest)
    both = ["nvjet_sm90_tst_64x8_TNT", "flash_fwd_kernel"]
    assert top_kernels(run, ProfilePass("n", "ncu", kernels=5, of="steps")) == both
    assert top_kernels(run, ProfilePass("n", "ncu", kernels=1, of="steps")) == ["nvjet_sm90_tst_64x8_TNT"]
    with pytest.raises(InputError, match="no trace with GPU kernels"):
        top_kernels(run, ProfilePass("n", "ncu", of="other"))


PERMISSION = "print('==ERROR== ERR_NVGPUCTRPERM - no permission to access counters'); sys.exit(1)"
NONE_MET = "print('==WARNING== No kernels were profiled.')"
BREAKS = "print('ValueError: bad'); sys.exit(3)"
WORKS = """
if "--import" in sys.argv:
    print("ID,Kernel Name"); sys.exit(0)
pathlib.Path(sys.argv[sys.argv.index("--export") + 1] + ".ncu-rep").write_text("report")
"""


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (PERMISSION, "skipped", "NVreg_RestrictProfilingToAdminUsers=0"),
        (NONE_MET, "skipped", "none of the kernels"),
        (BREAKS, "failed", "ended with status 3: ValueError: bad"),
        (WORKS, "complete", None),
    ],
)
def test_what_becomes_of_ncus_endings(experiment, writer, tmp_path, monkeypatch, body, status, said):
    monkeypatch.setattr(ncu_module, "_TICK_S", 0.05)
    probe = SimpleNamespace(python="python3", engine_environment=lambda **_: dict(os.environ))
    planned = {one.spec.id: one for one in plan(experiment).profiles}["counters"]
    found, command = run_ncu(
        experiment, probe, writer, planned, Profile(id="counters", kind="ncu"),
        Ncu(program(tmp_path, "ncu", body), ["k"]), model="m", local=True,
    )  # fmt: skip
    assert found.status == status and (found.reason is None if said is None else said in found.reason)
    task = json.loads((writer.path / "profile/counters/task.json").read_text())
    assert task["llm"]["compilation_config"]["cudagraph_mode"] == "NONE" and task["llm"]["model"] == "m"
    assert task["llm"]["kv_cache_memory_bytes"] == 2 << 30, "a full card would be saved to the host around each pass"
    assert command.argv[-1].endswith("task.json")
    if status == "complete":
        assert found.reports[0] == "profile/counters/counters.ncu-rep"
        assert found.tables == ["profile/counters/counters.csv"]


# Where a pass cannot be made


def test_on_a_cpu_engine_what_needs_a_gpu_is_not_even_looked_for(experiment, monkeypatch):
    for name in ("program", "nsys"):
        monkeypatch.setattr(capture_profiles, name, lambda *_: pytest.fail("looked for it"))
    found, reasons = tools(plan(experiment).profiles, SimpleNamespace(flavour="cpu"))
    assert found == {} and set(reasons) == {"nsys", "ncu"}
    assert all("GPU" in reason for reason in reasons.values())


def test_an_absent_tool_is_a_reason_with_the_command_that_brings_it(experiment, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("perflab.capture.machine._OWN_PLACES", {})
    found, reasons = tools(plan(experiment).profiles, SimpleNamespace(flavour="gpu"))
    assert found == {}
    assert reasons["nsys"] == absent("nsys") and "apt-get install nsight-systems-cli" in reasons["nsys"]
    assert "nsight-compute" in reasons["ncu"]


def test_a_tool_that_does_not_run_is_a_reason_too(experiment, monkeypatch, tmp_path):
    program(tmp_path, "nsys", "print('libfoo.so 1: cannot open'); sys.exit(127)")
    program(tmp_path, "ncu", "print('Version 2025.3')")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found, reasons = tools(plan(experiment).profiles, SimpleNamespace(flavour="gpu"))
    assert found == {"ncu": str(tmp_path / "ncu")} and "cannot open" in reasons["nsys"]


def test_a_pass_that_cannot_be_made_leaves_the_run_complete(experiment, writer):
    record = Manuscript(experiment, writer)
    record.excuse(Profile(id="graphs", kind="nsys", reason=absent("nsys")))
    traced(writer)
    steps = plan(experiment)
    record.close(dataclasses.replace(steps, points=(), profiles=()), None)
    assert writer.manifest.status == "complete"
    (skipped,) = [one for one in writer.manifest.profiles if one.status == "skipped"]
    assert "nsight-systems-cli" in skipped.reason
    assert any("graphs was skipped" in note for note in writer.manifest.notes)


# What readers see


def test_a_breakdown_never_mixes_teacher_and_measured_passes(writer):
    traced(writer, "deep", role="teacher")
    with pytest.raises(InputError, match="--teacher"):
        breakdown(writer.path)
    assert [rank.run for rank in breakdown(writer.path, teacher=True).ranks] == ["t"]
    traced(writer, "steps")
    assert [rank.source.parent.name for rank in breakdown(writer.path).ranks] == ["steps"]
    assert [rank.source.parent.name for rank in breakdown(writer.path, teacher=True).ranks] == ["deep"]


def test_asking_for_a_teacher_pass_that_is_not_there_says_how_to_get_one(writer):
    traced(writer, "steps")
    with pytest.raises(InputError, match="teacher: true"):
        breakdown(writer.path, teacher=True)


def test_profiler_configurations():
    assert profiler_config(ProfilePass("a", "nsys"), "/x")["profiler"] == "cuda"
    assert profiler_config(ProfilePass("a"), "/x")["torch_profiler_dir"] == "/x"
    assert nsys_argv("nsys", Path("/x/a"))[0] == "nsys"


def test_the_outlook_does_not_wait_for_what_will_not_be_made(experiment):
    heard = []
    outlook = Outlook(heard.append)
    outlook.expect(plan(experiment))
    outlook.say("prepare", "")
    outlook.forget("profile graphs", startups=1)
    outlook.forget("profile graphs")
    outlook.say("prepare", "")
    before, after = heard
    assert (before.total, after.total) == (5, 4)
    assert before.remaining_s - after.remaining_s > plan(experiment).startup_s
