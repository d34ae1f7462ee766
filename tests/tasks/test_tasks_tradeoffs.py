"""Trade-offs of studies written by hand, and of the recorded runs: what is joined, what never is, what is missing."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from quantization_study import AWQ, GIB, accuracy_document, three, write_study, write_variant

from perflab.analysis.quantization.tradeoffs import Comparison
from perflab.analysis.quantization.words import claim_measured, duel_sentences, recommendation_sentences
from perflab.cli import main
from perflab.errors import InputError
from perflab.messages import say
from perflab.report import quantization_tables as tables
from perflab.report import quantization_views as views
from perflab.tasks.quantize.sources import find_sources, is_study
from perflab.tasks.quantize.tradeoffs import again, tradeoffs

FP8 = {"quantization": "fp8"}
PINNED = {"kv_cache_memory_bytes": 40 * GIB}


def full(folder: Path, **changes: Any) -> Path:
    """Baseline, FP8 and AWQ, pinned and free, three server runs; accuracy of two of them."""
    runs = {
        "baseline-pinned": {"rates": {1: three(100), 32: three(2000)}, **PINNED},
        "fp8-pinned": {"rates": {1: three(140), 32: three(2400)}, "weights": 8.5, **FP8, **PINNED},
        "awq-pinned": {"rates": {1: three(160), 32: three(2000)}, "weights": 5.4, "checkpoint": AWQ,
                       "kernel": "MacheteLinearKernel", **PINNED},
        "baseline-free": {"rates": {1: three(100), 32: three(2000)}, "kv": 110.0},
        "fp8-free": {"rates": {1: three(140), 32: three(3000)}, "weights": 8.5, "kv": 118.0, **FP8},
    }  # fmt: skip
    accuracy = {
        "baseline": accuracy_document("baseline", (1.0, 1.0, 1.0)),
        "fp8": accuracy_document("fp8", (1.004, 1.001, 1.007)),
    }
    given = {"runs": runs, "accuracy": accuracy} | changes
    return write_study(folder, **given)


def only(comparisons: tuple[Comparison, ...], **kind: bool) -> Comparison:
    [found] = [one for one in comparisons if all(getattr(one, name) is value for name, value in kind.items())]
    return found


def test_a_study_becomes_one_table(tmp_path: Path) -> None:
    report = tradeoffs(full(tmp_path / "s"), why=False)
    one = only(report.comparisons, has_speed=True)
    assert [v.name for v in one.variants] == ["baseline", "fp8", "awq"]
    assert one.kvs == ("pinned", "free") and one.lengths == "512/128"
    fp8 = one.variant("fp8")
    assert fp8 is not None
    at = fp8.speeds("output_tokens_per_s", "pinned", "512/128")
    assert at[1.0].gain is not None and at[1.0].gain.value == pytest.approx(1.4)
    assert at[32.0].gain is not None and at[32.0].gain.value == pytest.approx(1.2)
    assert at[1.0].gain.low is not None and at[1.0].gain.low < 1.4 < (at[1.0].gain.high or 0)
    tpot = fp8.speeds("tpot_p50_ms", "pinned", "512/128")[1.0]
    assert tpot.gain is not None and tpot.gain.value == pytest.approx(1.4), "a shorter latency is above 1 too"
    memory = fp8.memory_of("pinned")
    assert memory is not None and memory.weights_bytes == round(8.5 * GIB) and memory.gpu_bytes == 140 * GIB
    # 8-bit layers and 16-bit embedding and head: 6.98e9 + 2 * 2 * 0.525e9 bytes.
    assert memory.predicted_weights_bytes == pytest.approx(9.08e9, rel=0.01)
    assert memory.predicted_kv_tokens == 40 * GIB // 131072 == memory.kv_tokens


def test_random_weights_get_no_accuracy_of_their_own(tmp_path: Path) -> None:
    report = tradeoffs(full(tmp_path / "s"), why=False)
    speed, accuracy = (only(report.comparisons, has_speed=yes) for yes in (True, False))
    assert speed.place.random_weights and not any(v.accuracy for v in speed.variants)
    assert {v.name for v in accuracy.variants} == {"baseline", "fp8"}
    assert accuracy.place.model == "small-real-model" and accuracy.place.machine == "a CPU"
    table = tables.whole_table(report)
    [row] = table[table["variant"] == "FP8"].to_dict("records")
    assert row["x at 32, pinned"].startswith("1.20 (") and row["x at 32, free"].startswith("1.50 (")
    assert row["perplexity"] == "+0.40 % (+0.10 to +0.70)" and row["accuracy of"].startswith("small-real-model")
    [first, *_] = views.pareto_pieces(report)
    assert first["accuracy_of"].model == "small-real-model" and first["speed_of"] == speed.place


@pytest.mark.parametrize(("name", "scored", "rise"), [("int4-g128", "int4-g64", "+25"), ("awq", "awq-g64", "+20")])
def test_accuracy_of_groups_nobody_scored_is_that_of_the_nearest_groups(
    tmp_path: Path, name: str, scored: str, rise: str
) -> None:
    loss = {"int4-g32": 1.30, "int4-g64": 1.25, "awq-g32": 1.22, "awq-g64": 1.20}
    judged = {one: accuracy_document(one, (by, by - 0.02, by + 0.02)) for one, by in loss.items()}
    runs = {"baseline-free": {"rates": {1: three(100)}}, f"{name}-free": {"rates": {1: three(110)}, "checkpoint": AWQ}}
    report = tradeoffs([write_study(tmp_path / "s", runs), write_study(tmp_path / "a", {}, judged)], why=False)
    [row] = tables.whole_table(report).query(f"variant == '{name.upper()}'").to_dict("records")
    assert row["perplexity"].startswith(f"{rise}.00 %") and row["accuracy of"].startswith("small-real-model")


def test_real_weights_keep_accuracy_and_speed_together(tmp_path: Path) -> None:
    runs = {
        "baseline-free": {"rates": {1: three(100)}, "load_format": "auto"},
        "fp8-free": {"rates": {1: three(140)}, "load_format": "auto", **FP8},
    }
    study = write_study(tmp_path / "s", runs, {"fp8": accuracy_document("fp8", (1.05, 1.04, 1.06))})
    report = tradeoffs(study, why=False)
    [one] = report.comparisons
    assert one.has_speed and any(v.accuracy for v in one.variants)
    by_profile = {answer.profile: answer for _, answer in report.recommendations}
    fast = by_profile["interactive"]
    assert fast.chosen is not None and fast.chosen.variant == "baseline", "FP8 loses 5 % here"
    told = " ".join(recommendation_sentences(fast))
    assert "FP8 is held back: perplexity +5.00 % (+4.00 to +6.00)" in told


def test_pinned_and_free_split_into_kernels_and_batches(tmp_path: Path) -> None:
    report = tradeoffs(full(tmp_path / "s"), why=False)
    one = only(report.comparisons, has_speed=True)
    at = {(s.variant, s.load): s.split for s in one.splits if s.metric == "output_tokens_per_s"}
    assert at["fp8", 32.0].kernels.value == pytest.approx(1.2) and at["fp8", 32.0].whole.value == pytest.approx(1.5)
    assert at["fp8", 32.0].batches.value == pytest.approx(1.25) and at["fp8", 32.0].batches.low is not None
    assert ("awq", 32.0) not in at, "it was not measured with the cache free"
    [row] = tables.splits_table(report).query("load == '32 at once'").to_dict("records")
    assert row["x, KV free"].startswith("1.50 (") and row["x of kernels"].startswith("1.20 (")
    assert row["x of batches"].startswith("1.25 (")


def test_where_four_bits_beat_fp8_and_where_not(tmp_path: Path) -> None:
    report = tradeoffs(full(tmp_path / "s"), why=False)
    one = only(report.comparisons, has_speed=True)
    outcomes = {d.load: d.outcome for d in one.duels if d.metric == "output_tokens_per_s" and d.kv == "pinned"}
    assert outcomes == {1.0: "faster", 32.0: "slower"}
    told = next(text for text in duel_sentences(one) if "throughput" in text)
    assert "faster at 1: 1.14" in told and "slower at 32: 0.83" in told
    [ends] = [e for e in one.ends if (e.variant, e.metric, e.kv) == ("awq", "output_tokens_per_s", "pinned")]
    assert ends.measured.status == "found" and ends.measured.above == 32 and ends.measured.banded
    assert ends.measured.low is not None and ends.measured.low < (ends.measured.at or 0)
    assert ends.predicted is not None and ends.predicted.at == pytest.approx(224, rel=0.1)
    told = tables.ends_table(report).set_index("variant").loc["AWQ"]
    assert told["throughput, pinned"] == "28 (25 to 30)"
    assert told["throughput, roofline"] == f"{ends.predicted.at:.0f}" and told["large batch, roofline"] == "1.0 x"


def test_models_machines_and_versions_are_never_mixed(tmp_path: Path) -> None:
    base = {"rates": {1: [100.0]}}
    write_variant(tmp_path / "a", **base)
    write_variant(tmp_path / "b", rates={1: [150.0]}, gpu="NVIDIA A100-SXM4-80GB", **FP8)
    write_variant(tmp_path / "c", rates={1: [150.0]}, version="0.33.0", **FP8)
    report = tradeoffs([tmp_path / name for name in "abc"], why=False)
    assert len(report.comparisons) == 3
    for one in report.comparisons:
        for variant in one.variants:
            assert all(speed.gain is None for speed in variant.speed)
    assert sum("no baseline" in text for one in report.comparisons for text in one.missing) == 2


def test_a_study_and_single_runs_of_the_same_place_stay_apart(tmp_path: Path) -> None:
    write_variant(tmp_path / "run", rates={1: [100.0]})
    report = tradeoffs([full(tmp_path / "s"), tmp_path / "run"], why=False)
    assert [one.place.source for one in report.comparisons if one.has_speed] == ["s", ""]


def test_one_server_run_has_no_interval_and_says_so(tmp_path: Path) -> None:
    for name, rate, more in (("a", 100.0, {}), ("b", 140.0, FP8)):
        write_variant(tmp_path / name, rates={1: [rate]}, **more)
    report = tradeoffs([tmp_path / "a", tmp_path / "b"], why=False)
    [one] = report.comparisons
    fp8 = one.variant("fp8")
    assert fp8 is not None
    speed = fp8.speeds("output_tokens_per_s", "free", "512/128")[1.0]
    assert speed.gain is not None and speed.gain.low is None and speed.verdict == "undecided"
    assert any("1 server run" in check.detail for check in views.tradeoff_checks(report) if check.status == "warn")
    told = [text for _, answer in report.recommendations for text in recommendation_sentences(answer)]
    assert any("fewer than three server runs" in text for text in told)
    assert any("Not known: what FP8 (W8A8) loses" in text for text in told)


@pytest.mark.parametrize("absent", ["speed", "accuracy", "study.json", "everything"])
def test_any_part_may_be_absent(tmp_path: Path, absent: str) -> None:
    import shutil

    study = full(tmp_path / "s")
    for name in ("speed", "accuracy") if absent == "everything" else (absent,):
        path = study / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = tradeoffs(study, why=False)
    said = " ".join(text for one in report.comparisons for text in one.missing)
    assert ("No speed" in said) == (absent in ("speed", "everything"))
    assert ("No accuracy" in said) == (absent in ("accuracy", "everything"))
    json.dumps(report.to_json(), allow_nan=False)
    for cut in (
        tables.whole_table,
        tables.other_table,
        tables.speed_table,
        tables.accuracy_table,
        tables.claims_table,
        tables.places_table,
        tables.ends_table,
        tables.splits_table,
    ):
        cut(report)
    for told in (views.gain_sentences, views.reason_sentences, views.recommendation_sentences, views.effect_sentences):
        assert told(report)
    assert views.tradeoffs_answer(report).sentences


def test_a_part_of_the_variants_may_be_missing(tmp_path: Path) -> None:
    study = full(tmp_path / "s")
    told = json.loads((study / "study.json").read_text())
    told["variants"].append({"name": "int8", "format": "int8", "label": "INT8"})
    (study / "study.json").write_text(json.dumps(told))
    said = [text for one in tradeoffs(study, why=False).comparisons for text in one.missing]
    assert "Speed and memory of int8 are not measured yet." in said
    assert "Accuracy of awq is not measured yet." in said


def test_a_baseline_of_another_name_is_the_baseline(tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "s", {"bf16-free": {"rates": {1: [100.0]}}, "fp8-free": {"rates": {1: [140.0]}, **FP8}}
    )
    told = json.loads((study / "study.json").read_text())
    told["variants"][0]["format"] = "baseline"
    (study / "study.json").write_text(json.dumps(told))
    [one] = tradeoffs(study, why=False).comparisons
    assert one.baseline is not None and one.baseline.label == "BF16"


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("study.json", "{", "study.json: cannot be read"),
        ("study.json", "[]", "has to be a JSON object"),
        ("study.json", '{"schema": 9}', "newer than this perflab"),
    ],
)
def test_a_broken_study_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: str, why: str
) -> None:
    study = full(tmp_path / "s")
    (study / file).write_text(content)
    assert main(["quantize", "show", str(study)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and why in said.err and said.err.count("\n") == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 9}', '{"perplexity": 3, "engine": [], "notes": 5}', "{}"])
def test_broken_accuracy_costs_only_itself(tmp_path: Path, content: str) -> None:
    study = full(tmp_path / "s")
    (study / "accuracy" / "fp8" / "accuracy.json").write_text(content)
    report = tradeoffs(study, why=False)
    assert only(report.comparisons, has_speed=True).variant("fp8") is not None
    broken = [text for one in report.comparisons for text in one.missing if "fp8/accuracy.json" in text]
    assert bool(broken) == (content not in ("{}", '{"perplexity": 3, "engine": [], "notes": 5}'))


def test_a_control_is_no_variant(tmp_path: Path) -> None:
    study = full(tmp_path / "s")
    (study / "accuracy" / "control").mkdir()
    (study / "accuracy" / "control" / "accuracy.json").write_text(
        json.dumps(accuracy_document("baseline", (9.0, 8.0, 10.0)))
    )
    found = only(tradeoffs(study, why=False).comparisons, has_speed=False)
    base = found.variant("baseline")
    assert base is not None and base.accuracy is not None and base.accuracy.perplexity_ratio is not None
    assert base.accuracy.perplexity_ratio.value == 1.0


def test_what_is_no_study_or_run_is_refused(tmp_path: Path) -> None:
    for name in ("nowhere", tmp_path):
        with pytest.raises(InputError):
            tradeoffs(str(name))
    with pytest.raises(InputError, match="no study or run"):
        find_sources([])
    assert not is_study(tmp_path)


def test_objectives_are_checked_and_can_be_changed_without_reading_again(tmp_path: Path) -> None:
    study = full(tmp_path / "s", slos={"interactive": {"tpot_ms": 6.5}, "batch": {}})
    report = tradeoffs(study, why=False)
    fast = next(answer for _, answer in report.recommendations if answer.profile == "interactive")
    assert fast.slos == {"tpot_ms": 6.5} and fast.kv == "free"
    # 1000 / 100 = 10 ms breaks the limit, 1000 / 140 = 7.1 ms too.
    assert fast.chosen is None
    loose = again(report, {"tpot_ms": 8.0})
    fast = next(answer for _, answer in loose.recommendations if answer.profile == "interactive")
    assert fast.chosen is not None and fast.chosen.variant == "fp8"
    with pytest.raises(InputError):
        tradeoffs(study, slos={"speed": 3.0})


def test_the_document_has_integers_for_times_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "show", str(full(tmp_path / "s")), "--json", "--no-why", "--slo", "ttft_ms=100"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    one = next(c for c in told["comparisons"] if c["variants"][0]["speed"])
    speed = [s for v in one["variants"] for s in v["speed"]]
    assert {s["metric"] for s in speed} >= {"tpot_p50_ns", "ttft_p99_ns", "output_tokens_per_s"}
    base = next(s for s in speed if s["metric"] == "tpot_p50_ns" and s["concurrency"] == 1)
    assert base["value"] == pytest.approx(10_000_000, rel=1e-6) and isinstance(base["value"], int)
    memory = one["variants"][0]["memory"][0]
    assert all(isinstance(memory[name], int) for name in ("weights_bytes", "kv_bytes", "gpu_bytes"))
    assert one["vllm_version"] == "0.25.1" and one["random_weights"] is True
    assert {r["profile"] for r in told["recommendations"]} == {"interactive", "batch"}


def test_the_terminal_says_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "show", str(full(tmp_path / "s")), "--no-why"]) == 0
    said = capsys.readouterr().out
    for part in (
        "Memory of a GPU", "Accuracy against the baseline", "Speed, KV cache pinned", "Speed, KV cache free", "Why",
        "What to take", "Claims of the guide", "random weights", "The small model was itself dequantized.",
    ):  # fmt: skip
        assert part in said
    assert "{" not in said and "None" not in said and "nan" not in said


RECORDED = ["llama3-8b-bf16", "llama3-8b-fp8", "llama3-8b-awq", "llama3-70b-bf16-tp2", "llama3-70b-awq-tp2"]


@pytest.fixture(scope="module")
def recorded() -> Any:
    return tradeoffs(RECORDED)


def test_recorded_runs_are_recognised_and_set_side_by_side(recorded: Any) -> None:
    small, large = recorded.comparisons
    assert [v.name for v in small.variants] == ["baseline", "fp8", "awq"]
    assert [v.name for v in large.variants] == ["baseline", "awq"] and large.place.parallel == 2
    assert small.place.label == "llama 8.0B (32 layers of 4096), random weights; 1 x NVIDIA H200; vLLM 0.25.1"
    sizes = {v.name: v.memory_of().weights_bytes / GIB for v in small.variants}
    assert sizes == pytest.approx({"baseline": 14.96, "fp8": 8.49, "awq": 5.44}, abs=0.005)
    for one in recorded.comparisons:
        for variant in one.variants:
            memory = variant.memory_of()
            assert memory.weights_bytes == pytest.approx(memory.predicted_weights_bytes, rel=0.025)
            assert memory.kv_tokens == pytest.approx(memory.predicted_kv_tokens, rel=1e-3)


def test_the_parts_of_recorded_steps_add_up_and_name_their_kernels(recorded: Any) -> None:
    small = recorded.comparisons[0]
    for name, kernel in (("fp8", "CUTLASS scaled mm, FP8"), ("awq", "Machete")):
        why = small.variant(name).reasons
        for step in why.steps:
            for side in ("baseline_ns", "variant_ns"):
                parts = sum(getattr(p, side) for p in why.categories if p.phase == step.phase)
                assert parts == getattr(step, side)
            most = max((p for p in why.matmuls if p.phase == step.phase), key=lambda p: p.variant_ns)
            assert most.part == kernel and most.baseline_ns == 0
    # Quantizing activations costs FP8 time that no other format has.
    quantize = {v.name: sum(p.variant_ns for p in v.reasons.categories if p.part == "quantize") for v in small.variants}
    assert quantize["fp8"] > 0 and quantize["awq"] == quantize["baseline"] == 0


def test_claims_about_recorded_runs(recorded: Any) -> None:
    found = {one.claim.id: one for one in recorded.claims}
    assert found["awq_memory"].verdict == "too_high" and "2.75 (llama 8.0B" in claim_measured(found["awq_memory"])
    assert found["awq_speed"].verdict == "too_high"
    assert found["awq_loss"].verdict == "not_measured"


def test_an_eager_run_is_no_baseline_and_slower() -> None:
    report = tradeoffs(["llama3-8b-bf16", "llama3-8b-eager"], why=False)
    [one] = report.comparisons
    assert [v.name for v in one.variants] == ["baseline", "baseline-eager"]
    [claim] = [c for c in report.claims if c.claim.id == "eager"]
    assert claim.verdict == "wrong" and claim.seen[0].high < 1


def test_what_is_taken_says_what_it_rests_on(tmp_path: Path) -> None:
    """A small share of the GPU, variants that had no chance under that load, and how many servers."""
    small: dict[str, Any] = {"gpu_memory_utilization": 0.16}
    pinned: dict[str, Any] = {"kv_cache_memory_bytes": 40 * 1024**3}
    runs: dict[str, dict[str, Any]] = {
        "baseline-free": {"rates": {128: [100.0]}, **small},
        "fp8-free": {"rates": {128: [170.0]}, **small, **FP8},
        "baseline-pinned": {"rates": {8: [100.0]}, **pinned},
        "fp8-pinned": {"rates": {8: [140.0]}, **pinned, **FP8},
        "int4-g128-pinned": {"rates": {8: [130.0]}, "checkpoint": AWQ, **pinned},
    }
    report = tradeoffs(write_study(tmp_path / "s", runs, {}), why=False)
    told = {answer.profile: recommendation_sentences(answer)[0] for _, answer in report.recommendations}
    assert "KV cache free in 16.0 % of the GPU's memory (one server run)." in told["batch"]
    assert told["batch"].endswith("Not measured so: INT4-G128.")
    assert "KV cache pinned (one server run)." in told["interactive"] and "Not measured" not in told["interactive"]


def test_unfinished_runs_stand_in_one_sentence_and_neighbours_are_told(tmp_path: Path) -> None:
    study = full(tmp_path / "s")
    note = say("quantize.neighbours", mine="GPU 0", n=16, others="GPU 1")
    for name in ("baseline-pinned", "fp8-pinned"):
        file = study / "speed" / name / "manifest.json"
        manifest = json.loads(file.read_text())
        file.write_text(json.dumps(manifest | {"status": "partial", "reason": "x", "notes": [note]}))
    told = [text for one in tradeoffs(study, why=False).comparisons for text in one.missing]
    assert [text for text in told if "Partial" in text] == [
        "Partial so far, shown with what they measured: baseline-pinned, fp8-pinned"
    ]
    assert sum("slowed one another" in text for text in told) == 1
    assert not any(
        "slowed one another" in t for one in tradeoffs(full(tmp_path / "t"), why=False).comparisons for t in one.missing
    )


def test_two_sources_of_one_place_are_named(tmp_path: Path) -> None:
    write_variant(tmp_path / "a", rates={1: [100.0]})
    write_variant(tmp_path / "b", rates={1: [140.0]}, **FP8)
    report = tradeoffs([full(tmp_path / "s"), tmp_path / "a", tmp_path / "b"], why=False)
    told = " ".join(views.tradeoffs_answer(report).sentences)
    assert "(s)**" in told and "(single runs)**" in told
    alone = " ".join(views.tradeoffs_answer(tradeoffs(full(tmp_path / "u"), why=False)).sentences)
    assert "(u)**" not in alone


def test_a_column_of_memory_is_of_one_kv_mode(tmp_path: Path) -> None:
    table = tables.whole_table(tradeoffs(full(tmp_path / "s"), why=False))
    tokens = dict(zip(table["variant"], table["KV tokens, free"], strict=True))
    assert "KV tokens, pinned" not in table
    assert [name for name, count in tokens.items() if pd.isna(count)] == ["AWQ"], "it was measured pinned only"
    assert table["weights_bytes"].notna().all()
