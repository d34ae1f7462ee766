"""Every file of vLLM there is: what it becomes, or why it is refused. A file that is not in the table fails."""

import json
import re
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.runs import Run
from perflab.tasks.imports import import_files

FOLDERS = ("facts/samples", "fixtures/bench", "fixtures/metrics", "fixtures/logs")
UNKNOWN = "nothing perflab knows by its content"
TABLE = "a table printed by the torch profiler; the trace it sums up is not here"
S, B, F = "facts/samples", "facts/samples/bench", "fixtures"
SWEEP = f"{S}/sweep/results/exp1/SERVE--max_num_seqs=4-BENCH--"

# What a file becomes when it is imported alone: points (their names), one profiling pass, a log (vLLM's version and
# what it tells of the engine), or metrics; a regular expression is the reason why it is refused.
POINTS = {
    f"{B}/serve.json": ["serve"],
    f"{B}/serve_detailed.json": ["serve_detailed"],
    f"{B}/latency.json": ["latency"],
    f"{B}/throughput.json": ["throughput"],
    f"{B}/startup.json": ["startup"],
    f"{B}/serve.stdout.txt": ["serve.stdout"],
    f"{B}/serve_detailed.stdout.txt": ["serve_detailed.stdout"],
    f"{SWEEP}in32/run=0.json": ["max_num_seqs=4-in32-n0"],
    f"{SWEEP}in32/run=1.json": ["max_num_seqs=4-in32-n1"],
    f"{SWEEP}in32/summary.json": ["max_num_seqs=4-in32-n0", "max_num_seqs=4-in32-n1"],
    f"{SWEEP}in96/run=0.json": ["max_num_seqs=4-in96-n0"],
    f"{SWEEP}in96/run=1.json": ["max_num_seqs=4-in96-n1"],
    f"{SWEEP}in96/summary.json": ["max_num_seqs=4-in96-n0", "max_num_seqs=4-in96-n1"],
    f"{F}/bench/jasl-ds4/gb10_conv_mtp2_bench.json": [f"gb10_conv_mtp2_bench-{n}" for n in range(1, 5)],
    f"{F}/bench/jasl-ds4/gb10_conv_nomtp_bench.json": [f"gb10_conv_nomtp_bench-{n}" for n in range(1, 5)],
    f"{F}/bench/jasl-ds4/sm120_mtp1_mt_bench_bench.json": [f"sm120_mtp1_mt_bench_bench-{n}" for n in range(1, 5)],
    f"{F}/bench/jasl-ds4/sm120_random_isl8k_mtp2_warmed_num72_bench.json": [
        f"sm120_random_isl8k_mtp2_warmed_num72_bench-{n}" for n in range(1, 6)
    ],
    f"{F}/bench/jasl-ds4/sm120_random_isl8k_mtp2_warmup_c24_num24_bench.json": [
        "sm120_random_isl8k_mtp2_warmup_c24_num24_bench"
    ],
    f"{F}/bench/mystous-vllm_hybrid/vanilla_run3/result.json": ["result"],
    f"{F}/bench/llm-d-benchmark/br_v0_1_example.yaml": ["br_v0_1_example"],
    f"{F}/bench/llm-d-benchmark/br_v0_2_example.yaml": ["br_v0_2_example"],
    f"{F}/bench/llm-d-benchmark/guidellm_report_v2.json": ["guidellm_report_v2-1", "guidellm_report_v2-2"],
}
PASSES = {
    f"{S}/trace_bench_latency/rank0.1796052710063406962.pt.trace.json.gz",
    f"{S}/trace_llm/runA_rank0.1796051726688941608.pt.trace.json.gz",
    f"{S}/trace_llm/runB_rank0.1796051731701603616.pt.trace.json.gz",
}
FORK = "0.1.dev16040+g93ea1fcd5.d20260508"
LOGS = {
    f"{S}/server_0.32_cpu.log": "0.32.0",
    f"{S}/server_prefix_exp.log": "0.32.0",
    f"{S}/errors_0.32.txt": "0.32.0",
    f"{S}/layerwise_cpu_zerodiv.txt": "0.32.0",
    f"{S}/llm_preemption_and_profile_log.txt": "0.32.0",
    f"{S}/torch_profiler_in_parent_mp0.txt": "0.32.0",
    f"{S}/torch_profiler_in_parent_mp1.txt": "0.32.0",
    f"{B}/latency.out": "0.32.0",
    f"{B}/latency_profile.out": "0.32.0",
    f"{B}/throughput.out": "0.32.0",
    f"{B}/startup.out": "0.32.0",
    f"{F}/logs/mystous-vllm_hybrid/vanilla_run1/engine.log.stdout": FORK,
    f"{F}/logs/mystous-vllm_hybrid/vanilla_run3/engine.log.stdout": FORK,
    # No engine started in these: they tell of an error, or are cut out of a log.
    f"{S}/guide_kwargs_tried.txt": None,
    f"{S}/layerwise_import_error.txt": None,
    f"{S}/sweep/stdout.txt": None,
    f"{B}/latency_guide.out": None,
    f"{B}/latency_guide2.out": None,
    f"{B}/profiler_guide.out": None,
    f"{B}/sched_guide.out": None,
    f"{F}/logs/jasl-ds4/nccl_hang_serve_log_excerpt.txt": None,
}
METRICS = {f"{S}/metrics.txt"}
REFUSED = {
    f"{S}/README.md": UNKNOWN,
    f"{B}/serve.stderr.txt": UNKNOWN,  # a progress bar
    f"{B}/serve_detailed.stderr.txt": UNKNOWN,
    f"{S}/engine_args.json": UNKNOWN,
    f"{S}/engine_args_by_version.json": UNKNOWN,
    f"{S}/env_vars_by_version.json": UNKNOWN,
    f"{S}/metrics_by_version.json": UNKNOWN,
    f"{S}/metrics_catalog_0.32.json": UNKNOWN,
    f"{S}/error_too_long_max_tokens.json": UNKNOWN,
    f"{S}/error_too_long_prompt.json": UNKNOWN,
    f"{S}/prefix_cache_experiment.txt": UNKNOWN,
    f"{S}/process_tree.txt": UNKNOWN,
    f"{S}/sweep/bench_params.json": UNKNOWN,
    f"{S}/sweep/serve_params.json": UNKNOWN,
    f"{S}/help/serve.txt": "a help text of vLLM, which import does not use",
    f"{S}/help/bench_serve.txt": "a help text of vLLM, which import does not use",
    f"{S}/trace_bench_latency/rank0.profiler_out.txt": TABLE,
    f"{S}/trace_llm/runA_rank0.profiler_out.txt": TABLE,
    f"{S}/trace_llm/runB_rank0.profiler_out.txt": TABLE,
    f"{S}/trace_server/rank0.profiler_out.txt": TABLE,
    f"{S}/trace_server/vm_28451.async_llm.profiler_out.txt": TABLE,
    f"{S}/trace_server/vm_28451.async_llm.1796051261553177605.pt.trace.json.gz": "a trace of vLLM's front end; without",
    f"{F}/metrics/production-stack/eks_vllm-dashboard.json": "a Grafana dashboard",
    f"{F}/metrics/production-stack/helm_vllm-dashboard.json": "a Grafana dashboard",
    f"{F}/metrics/production-stack/helm_vllm-model-metrics-dashboard.json": "a Grafana dashboard",
}
KNOWN = {*POINTS, *PASSES, *LOGS, *METRICS, *REFUSED}


def test_the_table_names_every_file(shared: Path) -> None:
    there = {
        file.relative_to(shared).as_posix()
        for folder in FOLDERS for file in (shared / folder).rglob("*") if file.is_file()
    }  # fmt: skip
    assert there == KNOWN
    assert len(KNOWN) == sum(len(table) for table in (POINTS, PASSES, LOGS, METRICS, REFUSED)), (
        "no file has two answers"
    )


@pytest.mark.parametrize("name", sorted(KNOWN - REFUSED.keys()))
def test_what_it_becomes(name: str, shared: Path, tmp_path: Path) -> None:
    manifest = import_files([shared / name], tmp_path / "run").manifest
    assert [point.id for point in manifest.points] == POINTS.get(name, [])
    assert len(manifest.profiles) == (name in PASSES)
    assert (manifest.log is not None) == (name in LOGS)
    assert len(manifest.metrics) == (name in METRICS)
    if name in LOGS:
        assert manifest.engine.vllm_version == LOGS[name]
    assert manifest.other_files == [] and manifest.notes == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_why_it_is_refused(name: str, shared: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(REFUSED[name])) as caught:
        import_files([shared / name], tmp_path / "run")
    assert Path(name).name in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_alone_is_kept_and_named_beside_a_run(name: str, shared: Path, tmp_path: Path) -> None:
    if "async_llm" in name or "profiler_out" in name:
        pytest.skip("goes with a trace where there is one")
    manifest = import_files([shared / f"{B}/latency.json", shared / name], tmp_path / "run").manifest
    assert [Path(kept).name for kept in manifest.other_files] == [Path(name).name]
    assert len(manifest.notes) == 1 and Path(name).name in manifest.notes[0] and REFUSED[name] in manifest.notes[0]


@pytest.fixture(scope="module")
def sweep(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return import_files([shared / S / "sweep"], tmp_path_factory.mktemp("sweep") / "run")


def test_a_sweep_is_points_and_repeats_and_nothing_twice(sweep: Run) -> None:
    points = {(p.id, p.workload, p.repeat, p.server_run) for p in sweep.manifest.points}
    assert points == {
        (f"max_num_seqs=4-{lengths}-n{repeat}", f"max_num_seqs=4, {lengths}", repeat, 0)
        for lengths in ("in32", "in96") for repeat in (0, 1)
    }  # fmt: skip
    assert [p.input_len for p in sweep.manifest.points] == [32, 32, 96, 96]
    others = sorted(Path(name).name for name in sweep.manifest.other_files)
    assert others == ["bench_params.json", "serve_params.json", "summary-2.json", "summary.json"]
    said = [note for note in sweep.manifest.notes if "summary.json" in note]
    assert len(said) == 2 and all("one by one" in note for note in said)


def test_all_of_the_samples_at_once_are_told_apart(shared: Path, tmp_path: Path) -> None:
    run = import_files([shared / S], tmp_path / "run")
    manifest = run.manifest
    assert len(manifest.profiles) == 3, "three passes at three times"
    assert [len(profile.traces) for profile in manifest.profiles] == [1, 1, 1]
    tables = {Path(p.traces[0]).name.split(".")[0]: [Path(t).name for t in p.tables] for p in manifest.profiles}
    assert "runA_rank0.profiler_out.txt" in tables["runA_rank0"]
    assert "runB_rank0.profiler_out.txt" in tables["runB_rank0"]
    points = {point.id: point for point in manifest.points}
    assert points["serve"].printed == "bench/serve.stdout.txt"
    assert points["serve_detailed"].printed == "bench/serve_detailed.stdout.txt"
    assert {point.repeat for name, point in points.items() if "in32" in name} == {0, 1}
    assert len(points) == 9 and points["startup"].kind == "startup"
    assert any("WARNING: the logs are of" in note for note in manifest.notes)
    kept = [file for file in run.path.rglob("*") if file.is_file() and file.name != "manifest.json"]
    assert len(kept) == sum(name.startswith(S) for name in KNOWN), "every file is kept, and once"
    assert manifest.engine.vllm_version == "0.32.0"


def test_the_log_of_the_time_that_was_measured_is_the_engines(shared: Path, tmp_path: Path) -> None:
    logs = [shared / S / "server_prefix_exp.log", shared / S / "server_0.32_cpu.log", shared / B / "sched_guide.out"]
    manifest = import_files([*logs, shared / B / "serve.json"], tmp_path / "run").manifest
    assert manifest.log == "server.log"
    first = (tmp_path / "run" / "server.log").read_text()[:3000]
    assert "11-30 15:06" in first, "serve.json was written at 15:07:24; the other engine started at 15:23"
    notes = " ".join(manifest.notes)
    assert "server_prefix_exp.log was kept but not used: a log of another time" in notes
    assert "sched_guide.out was kept but not used: a log in which no engine started" in notes


def test_two_engines_in_one_import_are_warned_of(shared: Path, tmp_path: Path) -> None:
    files = [shared / S / "server_0.32_cpu.log", shared / B / "serve.json", shared / F / "logs" / "mystous-vllm_hybrid"]
    other = json.loads((shared / B / "serve.json").read_text()) | {"model_id": "org/another-8B", "duration": 4.5}
    (tmp_path / "other.json").write_text(json.dumps(other))
    manifest = import_files([*files, tmp_path / "other.json"], tmp_path / "run").manifest
    warnings = [note for note in manifest.notes if note.startswith("WARNING")]
    assert any("several models" in note and "org/another-8B" in note for note in warnings)
    assert any("different engines" in note for note in warnings)
    assert {point.id: point.model for point in manifest.points} == {"serve": None, "other": "org/another-8B"}
