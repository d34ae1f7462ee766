from pathlib import Path
from typing import Any

import pytest

from perflab.analysis.checks import Check
from perflab.analysis.finding import bench_command
from perflab.analysis.findings import pass_findings, server_findings
from perflab.analysis.idle import CAUSES
from perflab.analysis.rules import PassFacts, RankFacts
from perflab.analysis.unprofiled import Unprofiled, slowdown_check
from perflab.knowledge.thresholds import Thresholds, load_thresholds, own_thresholds
from perflab.runs import Engine
from perflab.schema import CATEGORIES, PHASES

MS = 1_000_000


def rank_findings(records, idles, engine, checks, *, run=""):
    """Findings about a pass of several ranks."""
    ranks = [RankFacts(record, idle) for record, idle in zip(records, idles, strict=True)]
    return pass_findings(PassFacts(ranks, engine, checks, run))


def pass_with(rank, waits, unprofiled):
    """Findings about a pass of one rank of which it is known what a decode step takes unprofiled."""
    return pass_findings(PassFacts([RankFacts(rank, waits)], engine(), unprofiled=unprofiled))


def breakdown_findings(record, idle, engine, checks, *, run=""):
    """Findings about a pass of one rank."""
    return rank_findings([record], [idle], engine, checks, run=run)


def record(
    *, decode: dict[str, int] | None = None, steps: int = 10, window_ms: int = 100, rank: int = 0, kind: str = "gpu"
) -> dict[str, Any]:
    """A rank whose decode steps have so many milliseconds of some categories; the rest is gemm."""

    def phase(parts: dict[str, int], count: int, window: int) -> dict[str, Any]:
        idle = parts.get("idle", 0)
        given = {**parts, "gemm": window - sum(parts.values())} if window else {}
        return {
            "steps": count,
            "window_ns": window * MS,
            "idle_ns": idle * MS,
            "busy_ns": (window - idle) * MS,
            "categories": {
                c: {"exclusive_ns": given.get(c, 0) * MS, "share": given.get(c, 0) / window if window else None}
                for c in CATEGORIES
            },
        }

    phases = {name: phase({}, 0, 0) for name in PHASES} | {"decode": phase(decode or {}, steps, window_ms)}
    return {"rank": rank, "kind": kind, "phases": phases}


def idle(**decode_ms: int) -> dict[str, Any]:
    causes = {name: decode_ms.get(name, 0) * MS for name in CAUSES}
    nothing = dict.fromkeys(CAUSES, 0)
    return {"phases": {name: {"causes": causes if name == "decode" else nothing} for name in PHASES}}


def engine(**settings: Any) -> Engine:
    return Engine(flavour="gpu", model="some/model", settings=settings)


def only(found):
    assert len(found) == 1, [finding.id for finding in found]
    return found[0]


EAGER = engine(enforce_eager=True)


def test_eager_is_named_as_the_cause_of_a_waiting_gpu() -> None:
    found = only(breakdown_findings(record(decode={"idle": 65}), idle(host_bound=60), EAGER, [], run="r"))
    assert (found.id, found.severity, found.confidence) == ("host_bound", "critical", 0.9)
    assert found.impact == {"value": pytest.approx(6.0), "unit": "ms/step"}
    assert "60.0 %" in found.title
    assert any("enforce_eager" in text for text in found.evidence)
    assert "--enforce-eager" in found.change
    assert found.check.startswith("vllm bench serve --model some/model ")
    assert found.to_json()["run"] == "r"
    assert "withheld" not in found.to_json()


@pytest.mark.parametrize(
    ("settings", "flag", "confidence"),
    [
        ({"enforce_eager": "True"}, "--enforce-eager", 0.9),
        ({"cudagraph_mode": "NONE"}, "cudagraph_mode", 0.9),
        ({"compilation_config": "{'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"}, "cudagraph_mode", 0.9),
        ({"compilation_config": "{'cudagraph_mode': <CUDAGraphMode.FULL: 2>}"}, "--max-concurrency", 0.4),
        ({"async_scheduling": False}, "--no-async-scheduling", 0.7),
        ({}, "--max-concurrency", 0.4),
    ],
)
def test_the_change_follows_the_settings(settings: dict[str, Any], flag: str, confidence: float) -> None:
    found = only(breakdown_findings(record(decode={"idle": 20}), idle(host_bound=20), engine(**settings), []))
    assert flag in found.change
    assert (found.severity, found.confidence) == ("warning", confidence)


def test_weak_evidence_is_silence() -> None:
    eager = engine(enforce_eager=True)
    assert breakdown_findings(record(decode={"idle": 4}), idle(host_bound=4), eager, []) == [], "too little"
    assert breakdown_findings(record(decode={"idle": 60}, steps=2), idle(host_bound=60), eager, []) == [], "two steps"
    assert breakdown_findings(record(decode={"idle": 60}), idle(in_graph=30, not_started=30), eager, []) == []
    assert breakdown_findings({"rank": 0, "kind": "gpu", "phases": {}}, {}, eager, []) == [], "nothing recorded"


def test_stacks_leave_only_what_the_settings_say() -> None:
    stacks = Check("profiler_overhead", "warn", "stacks", ("causes of idle time",))
    found = only(breakdown_findings(record(decode={"idle": 60}), idle(host_bound=60), EAGER, [stacks]))
    assert (found.severity, found.impact, found.confidence) == ("info", None, 0.5)
    assert breakdown_findings(record(decode={"idle": 60}), idle(host_bound=60), engine(), [stacks]) == []


def test_a_failed_check_withholds_the_verdict_and_says_why() -> None:
    failed = Check("clocks_agree", "fail", "The clocks disagree by 3 ms.", ("causes of idle time",))
    found = only(breakdown_findings(record(decode={"idle": 60}), idle(host_bound=60), EAGER, [failed]))
    assert found.withheld
    assert found.title.startswith("Withheld: ")
    assert found.evidence == ("The clocks disagree by 3 ms.",)
    assert (found.impact, found.confidence, found.check) == (None, 0.0, "")
    assert found.to_json()["withheld"] is True
    unrelated = Check("ranks_present", "fail", "x", ("communication",))
    assert not only(breakdown_findings(record(decode={"idle": 60}), idle(host_bound=60), EAGER, [unrelated])).withheld


def test_exposed_communication_is_judged_over_ranks() -> None:
    ranks = [record(decode={"communication": 10}), record(decode={"communication": 20}, rank=1)]
    found = only(rank_findings(ranks, [idle(), idle()], engine(tensor_parallel_size=2), []))
    assert (found.id, found.severity) == ("exposed_communication", "warning")
    assert "15.0 %" in found.title
    assert found.impact == {"value": pytest.approx(1.0), "unit": "ms/step"}, "what the least waiting rank spends"
    assert "10.0 % to 20.0 %" in found.evidence[0]
    off = only(rank_findings(ranks, [idle(), idle()], engine(disable_custom_all_reduce=True), []))
    assert "--disable-custom-all-reduce" in off.change
    assert off.confidence > found.confidence
    assert rank_findings([record(decode={"communication": 3})], [idle()], engine(), []) == []


def test_copies() -> None:
    found = only(breakdown_findings(record(decode={"memory": 12}), idle(), engine(cpu_offload_gb=4), []))
    assert (found.id, found.severity, found.confidence) == ("copies_in_step", "warning", 0.8)
    assert "--cpu-offload-gb" in found.change
    assert (
        only(breakdown_findings(record(decode={"memory": 4}), idle(), engine(cpu_offload_gb="0"), [])).confidence == 0.4
    )
    assert breakdown_findings(record(decode={"memory": 2}), idle(), engine(), []) == []


def test_an_eager_cpu_engine_spends_time_outside_operators() -> None:
    found = only(breakdown_findings(record(decode={"idle": 24}, kind="cpu"), {}, EAGER, []))
    assert (found.id, found.severity, found.impact) == ("outside_operators", "info", None)
    assert "24.0 %" in found.title
    assert "--enforce-eager" in found.change
    assert breakdown_findings(record(decode={"idle": 24}, kind="cpu"), {}, engine(), []) == [], "compiled already"
    assert breakdown_findings(record(decode={"idle": 9}, kind="cpu"), {}, EAGER, []) == []
    assert breakdown_findings(record(decode={"idle": 24}, kind="cpu", steps=2), {}, EAGER, []) == []


def test_the_gravest_comes_first() -> None:
    found = breakdown_findings(
        record(decode={"idle": 60, "communication": 6, "memory": 12}),
        idle(host_bound=60),
        engine(enforce_eager=True),
        [],
    )
    assert [finding.id for finding in found] == ["host_bound", "copies_in_step", "exposed_communication"]


def test_prefix_cache_contamination() -> None:
    deltas = {"prefix_cache_queries": 768.0, "prefix_cache_hits": 576.0}
    found = only(server_findings(deltas, engine()))
    assert (found.id, found.severity) == ("prefix_cache_contaminated", "warning")
    assert found.impact == {"value": 0.75, "unit": "share"}
    assert "--no-enable-prefix-caching" in found.change
    assert "--seed 2" in found.check
    assert server_findings(deltas, engine(), data="prefix_repetition") == []
    assert server_findings({"prefix_cache_queries": 768.0, "prefix_cache_hits": 4.0}, engine()) == []
    assert server_findings({}, engine()) == []


def test_preemptions() -> None:
    found = only(
        server_findings(
            {"num_preemptions": 6.0, "request_success": 12.0}, engine(max_num_seqs=256), kv_usage=0.998, run="r"
        )
    )
    assert (found.id, found.impact) == ("kv_preemptions", {"value": 0.5, "unit": "preemptions/request"})
    assert any("99.8 % full" in text for text in found.evidence)
    assert any("`max_num_seqs` 256" in text for text in found.evidence)
    assert "--gpu-memory-utilization" in found.change
    cpu = only(server_findings({"num_preemptions": 6.0}, Engine(flavour="cpu")))
    assert "VLLM_CPU_KVCACHE_SPACE" in cpu.change
    assert cpu.impact is None
    assert server_findings({"num_preemptions": 0.0}, engine()) == []


def test_few_prefix_hits_are_a_finding_only_where_a_user_asks(tmp_path: Path) -> None:
    deltas = {"prefix_cache_hits": 50.0, "prefix_cache_queries": 100.0}
    file = tmp_path / "mine.toml"
    file.write_text("[prefix_hits_least]\nwarning = 0.9\n")
    mine = load_thresholds(file)

    def found(data: str, given: Thresholds | None) -> dict[str, str]:
        return {f.id: f.severity for f in server_findings(deltas, Engine(), data=data, thresholds=given)}

    assert "prefix_cache_below_limit" not in found("prefix_repetition", None)
    assert found("prefix_repetition", mine)["prefix_cache_below_limit"] == "warning"
    assert found("random", mine)["prefix_cache_below_limit"] == "info"
    assert server_findings({}, Engine(), thresholds=mine) == []


def test_waiting_that_the_profiler_made_is_taken_off() -> None:
    # 10 steps of 10 ms, of which the GPU waits 4; unprofiled a token took 8 ms: 2 of the 4 can be the engine's own.
    profiled, waits = record(decode={"idle": 40}), idle(host_bound=40)
    found = only(pass_with(profiled, waits, Unprofiled(8 * MS, 32, "c32", 8)))
    assert found.impact == {"value": 2.0, "unit": "ms/step"}
    assert found.severity == "warning", "a quarter of 8 ms"
    assert any("8.00 ms" in text and "2.00 ms" in text for text in found.evidence)
    alone = only(pass_with(profiled, waits, None))
    assert (alone.impact, alone.severity) == ({"value": 4.0, "unit": "ms/step"}, "critical")
    assert pass_with(profiled, waits, Unprofiled(6 * MS, 32, "c32", 8)) == [], "nothing of it can be the engine's"
    assert only(pass_with(profiled, waits, Unprofiled(20 * MS, 32, "c32", 8))).impact == alone.impact


@pytest.mark.parametrize(("measured_ms", "status"), [(8, "warn"), (9.9, "pass"), (12, "pass")])
def test_a_profiled_step_is_held_against_measured_tokens(measured_ms: float, status: str) -> None:
    check = only(slowdown_check([record(decode={})], Unprofiled(measured_ms * MS, 32, "c32", 8), own_thresholds()))
    assert (check.check, check.status) == ("profiler_slowdown", status)
    assert ("at least 2.00 ms" in check.detail) == (status == "warn")
    assert slowdown_check([record(decode={})], None, own_thresholds()) == []
    assert slowdown_check([record(steps=0, window_ms=0)], Unprofiled(MS, 32, "c32", 8), own_thresholds()) == []


@pytest.mark.parametrize(
    ("phase", "version", "said"),
    [("decode", "0.25.1", "`--kv-cache-dtype fp8`"), ("prefill", "0.25.1", "`--enable-prefix-caching`")],
)
def test_attention_above_a_users_limit_names_what_helps_in_its_phase(
    phase: str, version: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[attention_share]\nwarning = 0.6\n")
    for share, spoken in ((70, True), (50, False)):
        of_rank = record(decode={"attention": share})
        if phase == "prefill":
            swapped = {"decode": of_rank["phases"]["prefill"], "prefill": of_rank["phases"]["decode"]}
            of_rank["phases"] = of_rank["phases"] | swapped
        facts = PassFacts([RankFacts(of_rank, {})], Engine(vllm_version=version), thresholds=load_thresholds(file))
        found = [finding for finding in pass_findings(facts) if finding.id == "attention_share"]
        assert bool(found) is spoken
        if spoken:
            assert found[0].severity == "warning" and said in found[0].change


def test_the_command_that_confirms_fits_the_server() -> None:
    assert "--random-input-len 512 --random-output-len 128" in bench_command(Engine(settings={"max_model_len": 8192}))
    assert "--random-input-len 384 --random-output-len 96" in bench_command(Engine(settings={"max_model_len": 512}))
