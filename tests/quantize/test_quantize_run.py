"""Carrying out a study: what is left, in which order, joined into runs; with runs written by hand, no engine needed."""

import json
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perflab.cli import main
from perflab.errors import InputError
from perflab.experiment import plan
from perflab.experiment.spec import Load
from perflab.experiment.study_file import read_study
from perflab.messages import say
from perflab.runs import Engine, Gpu, Hardware, Manifest, Point, RunWriter, Server, StepRecords
from perflab.tasks.quantize.experiments import pairs, variant_experiment
from perflab.tasks.quantize.folder import StudyFolder, begin
from perflab.tasks.quantize.joined import join_runs
from perflab.tasks.quantize.merging import merge_studies
from perflab.tasks.quantize.run import Outcome, Session
from perflab.tasks.quantize.shapes import make_shape
from perflab.tasks.quantize.side_by_side import next_job, seats
from perflab.tasks.quantize.speed import join, schedule

STUDY = """\
name: small
model: {path: model}
variants: [baseline, fp8, int4-g128]
engine: {args: {load_format: dummy, max_model_len: 1024}}
server_runs: 2
workloads:
  - {name: chat, input_lens: 128, output_lens: 16, load: {concurrency: [1, 8]}}
kv: {pinned_bytes: 1GiB, free_loads: [8], free_memory_utilization: 0.2, free_server_runs: 1}
profile:
  - {id: steps}
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 256}))
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    file = tmp_path / "study.yaml"
    file.write_text(textwrap.dedent(STUDY))
    return read_study(file)


@pytest.fixture
def folder(study, tmp_path):
    return begin(study, tmp_path / "out", lambda: [{"name": one.name} for one in study.variants])


def planner(experiment):
    return plan(experiment, "gpu")


def left(study, folder, **more):
    make_shape(study, study.variant("int4-g128"), folder)
    return schedule(study, folder, planner, "0.25.1", **more)


def part(path, points, *, status="complete", server_run=0, reason=None, gpu="NVIDIA H200", statuses=None, passes=()):
    """A run directory with those points, as a server of a study leaves it."""
    records = []
    for index, name in enumerate(points):
        bench = f"bench/{name}.json"
        records.append(
            Point(
                id=name, workload="chat", input_len=128, output_len=16, load=Load(concurrency=1), server_run=server_run,
                status=(statuses or {}).get(name, "complete"), bench=bench,
                started=f"2026-11-30T10:0{index}:10.000+00:00", ended=f"2026-11-30T10:0{index}:40.000+00:00",
            )
        )  # fmt: skip
    manifest = Manifest(
        schema=1, id="x", title="t", origin="captured", created="2026-11-30T10:00:00.000+00:00", perflab_version="1",
        status=status, reason=reason, engine=Engine(flavour="gpu", vllm_version="0.25.1"),
        hardware=Hardware(gpus=[Gpu(name=gpu)]), points=records, log="server.log", clock="clock.json",
        telemetry="telemetry.jsonl", step_records=[StepRecords(file="step_records.jsonl", server_run=server_run)],
        servers=[Server(server_run=server_run, log="server.log", started="2026-11-30T10:00:00.000+00:00",
                        ready="2026-11-30T10:00:50.000+00:00", ended="2026-11-30T10:02:00.000+00:00")],
        other_files=["experiment.yaml", "client.log"], asked={"points": 4},
    )  # fmt: skip
    path.mkdir(parents=True)
    for name in points:
        (path / "bench").mkdir(exist_ok=True)
        (path / "bench" / f"{name}.json").write_text(f"{path.name} {name}")
    said = path.name
    for name in ("server.log", "client.log", "telemetry.jsonl", "step_records.jsonl", "experiment.yaml"):
        (path / name).write_text(f"{name} of {said}\n")
    anchors = [{"point": name, "when": said, "perf_counter_ns": 1, "time_ns": 2, "width_ns": 0} for name in points]
    (path / "clock.json").write_text(json.dumps({"schema": 1, "clock": "c", "anchors": anchors}))
    work = path / "w"
    RunWriter(work, manifest)
    (work / "manifest.json").rename(path / "manifest.json")
    work.rmdir()
    return path


C1, C8 = "chat-i128-o16-c1-s{}-n0", "chat-i128-o16-c8-s{}-n0"


def ids(server_run):
    return [C1.format(server_run), C8.format(server_run)]


def test_variants_take_turns(study):
    order = [f"{one.name}-{mode}-s{server}" for server, mode, one in pairs(study)]
    assert order == [
        "baseline-pinned-s0", "fp8-pinned-s0", "int4-g128-pinned-s0",
        "baseline-free-s0", "fp8-free-s0", "int4-g128-free-s0",
        "baseline-pinned-s1", "fp8-pinned-s1", "int4-g128-pinned-s1",
    ]  # fmt: skip


def test_what_is_measured_of_a_variant(study, folder):
    pinned = variant_experiment(study, study.variant("fp8"), "pinned", folder, "0.25.1")
    assert dict(pinned.engine.args) == {
        "load_format": "dummy", "max_model_len": 1024, "quantization": "fp8", "kv_cache_memory_bytes": 1024**3,
    }  # fmt: skip
    assert (pinned.server_runs, [one.id for one in pinned.profiles]) == (2, ["steps"])
    free = variant_experiment(study, study.variant("fp8"), "free", folder, "0.32.0")
    assert free.engine.args["quantization"] == "fp8_per_tensor"
    assert free.engine.args["gpu_memory_utilization"] == 0.2
    assert "kv_cache_memory_bytes" not in free.engine.args
    assert [load.concurrency for load in free.workloads[0].loads] == [8]
    assert free.profiles == ()
    assert pinned.model.served_name == "model"
    # All variants are sent the same prompts.
    base = variant_experiment(study, study.baseline, "pinned", folder, "0.25.1")
    assert [p.request.seed for p in plan(base).points] == [p.request.seed for p in plan(pinned).points]


def test_a_shape_gets_a_checkpoint_without_weights(study, folder):
    with pytest.raises(InputError, match="no checkpoint yet"):
        variant_experiment(study, study.variant("int4-g128"), "pinned", folder, None)
    made = make_shape(study, study.variant("int4-g128"), folder)
    config = json.loads((made / "config.json").read_text())
    assert config["hidden_size"] == 256
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == 128
    assert (made / "tokenizer.json").is_file()
    served = variant_experiment(study, study.variant("int4-g128"), "pinned", folder, None).model
    assert (served.name, served.served_name) == (str(made), "model")


def test_nothing_done_yet(study, folder):
    found = left(study, folder)
    assert [job.name for job in found.jobs][:4] == [
        "baseline-pinned-s0", "fp8-pinned-s0", "int4-g128-pinned-s0", "baseline-free-s0",
    ]  # fmt: skip
    assert len(found.jobs) == 9
    assert [job.profiles for job in found.jobs] == [True] * 3 + [False] * 6
    assert found.jobs[0].points == tuple(ids(0))


def test_what_is_complete_is_not_measured_again(study, folder):
    part(folder.new_part("baseline", "pinned", 0), ids(0))
    part(folder.new_part("baseline", "pinned", 1), ids(1)[:1], server_run=1, status="partial")
    jobs = {job.name: job for job in left(study, folder).jobs}
    # Of the first server only the profile is left; of the second the point that a visit did not come to.
    assert (jobs["baseline-pinned-s0"].points, jobs["baseline-pinned-s0"].profiles) == ((), True)
    assert jobs["baseline-pinned-s1"].points == (C8.format(1),)
    assert folder.new_part("baseline", "pinned", 1).name == "baseline-pinned-s1.1"


def test_what_came_to_nothing_twice_is_given_up(study, folder):
    for _ in range(2):
        skipped = dict.fromkeys(ids(0), "skipped")
        part(folder.new_part("fp8", "free", 0), ids(0), status="failed", reason="no kernel", statuses=skipped)
    found = left(study, folder)
    assert found.given_up == {"fp8-free-s0": "no kernel"}
    assert "fp8-free-s0" not in [job.name for job in found.jobs]
    assert "fp8-free-s0" in [job.name for job in left(study, folder, retry=True).jobs]


def test_visits_that_were_cut_short_do_not_count_as_failures(study, folder):
    for _ in range(3):
        part(folder.new_part("fp8", "free", 0), [], status="failed", reason=say("capture.not_closed"))
    assert "fp8-free-s0" in [job.name for job in left(study, folder).jobs]


def test_estimates_follow_what_was_measured(study, folder):
    before = {job.name: job.estimate_s for job in left(study, folder).jobs}
    part(folder.new_part("fp8", "pinned", 0), ids(0))
    after = {job.name: job.estimate_s for job in left(study, folder).jobs}
    assert before["fp8-pinned-s1"] > 121
    # Two minutes from the first to the last of the server that was measured, for it and for the others.
    assert after["fp8-pinned-s1"] == pytest.approx(120)
    assert after["baseline-pinned-s1"] == pytest.approx(120)


def test_only_some_variants_and_memory_only(study, folder):
    assert {job.variant.name for job in left(study, folder, variants=["fp8"]).jobs} == {"fp8"}
    found = left(study, folder, only_memory=True).jobs
    assert [(job.name, len(job.points), job.profiles) for job in found] == [
        ("baseline-free-s0", 1, False), ("fp8-free-s0", 1, False), ("int4-g128-free-s0", 1, False),
    ]  # fmt: skip


def test_parts_join_into_one_run(study, folder):
    first = part(folder.new_part("fp8", "pinned", 0), ids(0), statuses={C8.format(0): "failed"})
    again = part(folder.new_part("fp8", "pinned", 0), ids(0)[1:])
    second = part(folder.new_part("fp8", "pinned", 1), ids(1), server_run=1)
    (run,) = [one for one in join(study, folder) if one.path.name == "fp8-pinned"]
    assert run.path == folder.run("fp8", "pinned")
    assert [(point.id, point.status) for point in run.manifest.points] == [
        (C1.format(0), "complete"), (C8.format(0), "complete"), (C1.format(1), "complete"), (C8.format(1), "complete"),
    ]  # fmt: skip
    assert run.manifest.status == "complete"
    assert run.file(run.manifest.points[1].bench).read_text() == f"{again.name} {C8.format(0)}"
    assert [server.log for server in run.manifest.servers] == ["server.log", "server-1.log", "server-2.log"]
    assert run.file("server-2.log").read_text() == f"server.log of {second.name}\n"
    assert [one.file for one in run.manifest.step_records] == [
        "step_records.jsonl", "step_records-1.jsonl", "step_records-2.jsonl",
    ]  # fmt: skip
    assert run.file("telemetry.jsonl").read_text().count("\n") == 3
    anchors = json.loads(run.file("clock.json").read_text())["anchors"]
    assert {one["point"]: one["when"] for one in anchors} == {
        C1.format(0): first.name, C8.format(0): again.name, C1.format(1): second.name, C8.format(1): second.name,
    }  # fmt: skip
    assert any("started more than once" in note for note in run.manifest.notes)
    # The parts stay, and joining again gives the same.
    before = {path: path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}
    join(study, folder)
    assert {path: path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()} == before


def test_a_run_that_is_not_whole_says_so(study, folder):
    part(folder.new_part("fp8", "pinned", 0), ids(0))
    (run,) = join(study, folder)
    assert run.manifest.status == "partial"
    assert run.manifest.reason == "2 of 4 points so far"


def test_other_machines_are_not_mixed_in(tmp_path):
    one = part(tmp_path / "a-pinned-s0", ids(0))
    other = part(tmp_path / "a-pinned-s1", ids(1)[:1], server_run=1, gpu="NVIDIA A100")
    run = join_runs([one, other], tmp_path / "a-pinned", points=4)
    assert {point.server_run for point in run.manifest.points} == {0}
    assert any("another machine" in note and "a-pinned-s1" in note for note in run.manifest.notes)
    assert join_runs([], tmp_path / "none", points=4) is None
    assert not (tmp_path / "none").exists()


def test_folders_of_one_study_are_put_together(study, tmp_path):
    """Two visits on bare machines both began with server 0: they are servers 0 and 1 of one study."""
    folders = []
    for name in ("visit1", "visit2"):
        made = begin(study, tmp_path / name, lambda: [{"name": "baseline"}, {"name": "fp8"}])
        shown = part(made.new_part("fp8", "pinned", 0), ids(0))
        manifest = json.loads((shown / "manifest.json").read_text())
        (shown / "manifest.json").write_text(json.dumps(manifest | {"id": name}))
        folders.append(made.path)
    (folders[1] / "accuracy" / "fp8").mkdir(parents=True)
    (folders[1] / "accuracy" / "fp8" / "accuracy.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.glob("visit*/**/*") if path.is_file()}

    merged = merge_studies(folders, tmp_path / "all")
    assert merged.taken == {
        "visit1/fp8-pinned-s0": "fp8-pinned-s0", "visit2/fp8-pinned-s0": "fp8-pinned-s1",
    }  # fmt: skip
    assert merged.others == ["accuracy/fp8"]
    (run,) = merged.runs
    assert [(one.id, one.server_run) for one in run.manifest.points] == [
        (C1.format(0), 0), (C8.format(0), 0), (C1.format(1), 1), (C8.format(1), 1),
    ]  # fmt: skip
    assert run.file(run.manifest.points[2].bench).name == f"{C1.format(1)}.json"
    assert [one.server_run for one in run.manifest.step_records] == [0, 1]
    anchors = json.loads(run.file("clock.json").read_text())["anchors"]
    assert [one["point"] for one in anchors] == [*ids(0), *ids(1)]
    assert any("was number 0" in note for note in run.manifest.notes)

    again = merge_studies(folders, tmp_path / "all")
    assert (again.taken, sorted(again.there)) == ({}, ["fp8-pinned-s0", "fp8-pinned-s0"])
    assert {path: path.read_bytes() for path in tmp_path.glob("visit*/**/*") if path.is_file()} == before
    # The study goes on from there: nothing of the pinned comparison of fp8 is left but its profile.
    jobs = [job.name for job in left(study, StudyFolder(tmp_path / "all")).jobs if job.points]
    assert not [name for name in jobs if name.startswith("fp8-pinned")]


def test_other_studies_are_not_put_together(study, tmp_path):
    one = begin(study, tmp_path / "one", list)
    study.path.write_text(STUDY.replace("name: small", "name: other"))
    two = begin(read_study(study.path), tmp_path / "two", list)
    with pytest.raises(InputError, match="of the study 'other'"):
        merge_studies([one.path, two.path], tmp_path / "all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no study that was begun"):
        merge_studies([tmp_path / "empty"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_the_folder_of_a_study(study, tmp_path, folder):
    told = json.loads(folder.record.read_text())
    assert (told["schema"], told["name"], told["model"]["shape_only"]) == (1, "small", True)
    assert [one["name"] for one in told["variants"]] == ["baseline", "fp8", "int4-g128"]
    # More servers may be asked for, another load may not.
    study.path.write_text(STUDY.replace("server_runs: 2", "server_runs: 3"))
    begin(read_study(study.path), folder.path, list)
    assert "server_runs: 3" in (folder.path / "study.yaml").read_text()
    study.path.write_text(STUDY.replace("input_lens: 128", "input_lens: 256"))
    with pytest.raises(InputError, match="in workloads"):
        begin(read_study(study.path), folder.path, list)
    study.path.write_text(STUDY.replace("name: small", "name: other"))
    with pytest.raises(InputError, match="of the study 'small'"):
        begin(read_study(study.path), folder.path, list)


def test_a_folder_with_other_things_is_left_alone(study, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        begin(study, tmp_path / "mine", list)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        begin(study, tmp_path / "broken", list)


def test_seats():
    found = seats(["0", "1"], 1, range(8))
    assert [one.gpus for one in found] == [("0",), ("1",)]
    assert not set(found[0].cpus) & set(found[1].cpus)
    assert sorted(found[0].cpus + found[1].cpus) == list(range(8))
    assert [one.label for one in seats(["0", "1", "2", "3"], 2, range(4))] == ["GPUs 0,1", "GPUs 2,3"]
    with pytest.raises(InputError, match="each server needs 2"):
        seats(["0", "1", "2"], 2, range(4))
    with pytest.raises(InputError, match="once"):
        seats(["0", "0"], 1, range(4))


def test_variants_change_seats_from_start_to_start(study, folder):
    """Each variant's servers of one comparison run on both GPUs, none twice at once."""
    order = [one.name for one in study.variants]
    waiting = [job for job in left(study, folder).jobs if job.mode == "pinned"]
    taken: dict[str, set[int]] = {}
    while waiting:
        busy = []
        for seat in range(2):
            job = next_job(waiting, busy, seat, 2, order)
            if job is None:
                continue
            assert job.pair not in {one.pair for one in busy}
            waiting.remove(job)
            busy.append(job)
            taken.setdefault(job.variant.name, set()).add(seat)
    assert all(seen == {0, 1} for seen in taken.values()), taken


def test_the_command_plans(study, capsys, monkeypatch):
    monkeypatch.setenv("PERFLAB_VLLM_PYTHON", str(Path("/bin/false")))
    argv = ["quantize", "plan", str(study.path), "--gpu", "H200", "--vllm", "0.25.1"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # The config is no whole one, so that widths are not checked; that keeps nothing from running.
    assert [one["state"] for one in found["variants"]] == ["remark"] * 3
    assert [one["name"] for one in found["servers"]][:2] == ["baseline-pinned-s0", "fp8-pinned-s0"]
    assert found["machine"]["compute_capability"] == 9.0
    assert main(argv) == 0
    assert "9 servers to start" in capsys.readouterr().out
    assert found["config_known"]
    assert main([*argv, "--set", "model=nobody/none", "--json"]) == 0
    unknown = json.loads(capsys.readouterr().out)
    assert not unknown["config_known"]
    assert [one["predicted"] for one in unknown["variants"]] == [{}, {}, {}]
    assert main([*argv, "--set", "model=nobody/none"]) == 0
    assert "is not on this machine yet" in capsys.readouterr().out
    assert main([*argv, "--set", "variants=[baseline, fp9]"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["quantize", "plan", str(study.path), "--gpu", "Abacus", "--vllm", "0.25.1"]) == 2


def test_folders_list_only_their_own_parts(tmp_path):
    """`fp8` and `fp8-kv`, `s1` and `s10`: names begin alike."""
    place = StudyFolder(tmp_path)
    for name in ("fp8-pinned-s10", "fp8-pinned-s2", "fp8-kv-pinned-s0", "fp8-free-s0", "fp8-pinned-s2.1"):
        (tmp_path / "speed" / "parts" / name).mkdir(parents=True)
    assert [one.name for one in place.parts("fp8", "pinned")] == ["fp8-pinned-s2", "fp8-pinned-s2.1", "fp8-pinned-s10"]


def test_what_fits_into_a_visit_follows_what_servers_took_in_it(study, folder):
    """Planned are four minutes a server; the first took two, so that another fits into the three that are left."""
    jobs = {job.name: job for job in left(study, folder).jobs}
    session = Session(study, folder, None, None, Outcome(folder.path), print, time.monotonic() + 130)
    assert not session.fits(jobs["fp8-pinned-s1"])
    part(folder.new_part("baseline", "pinned", 0), ids(0))
    assert session.fits(jobs["fp8-pinned-s1"])
    # Of the other comparison nothing is known yet.
    assert not session.fits(replace(jobs["fp8-free-s0"], estimate_s=131.0))
    session.limit = None
    assert session.fits(jobs["fp8-pinned-s1"])
