"""Crossings, splits, the roofline of formats, recommendations and claims: by eye, and by properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.compare.run_statistics import run_ratio
from perflab.analysis.model.quantization import Quantization
from perflab.analysis.model.shape import ModelShape
from perflab.analysis.model.workload import workload
from perflab.analysis.quantization.claims import confront
from perflab.analysis.quantization.crossing import RatioPoint, crossing
from perflab.analysis.quantization.estimate import Estimate, contrast, mean_of_runs
from perflab.analysis.quantization.ideal import Format, closed_loop_ratios, decode_ns, vanishing
from perflab.analysis.quantization.kv_split import kv_split
from perflab.analysis.quantization.recognised import recognised
from perflab.analysis.quantization.recommend import keeps_accuracy, recommend
from perflab.analysis.quantization.tradeoffs import Accuracy, Comparison, Memory, Place, Reasons, Speed, Variant
from perflab.knowledge.gpus import gpu_spec
from perflab.knowledge.guide_claims import guide_claims
from perflab.knowledge.kernel_families import kernel_family
from perflab.knowledge.matmul_kernels import matmul_of_family, matmul_of_log
from perflab.knowledge.quantization_formats import format_named
from perflab.knowledge.thresholds import own_thresholds

H200 = gpu_spec("NVIDIA H200")
SHAPE = ModelShape("llama", 32, 4096, 32, 8, 128, 14336, 128256, "bfloat16")
PLACE = Place("", "a model", True, "1 x NVIDIA H200", "0.25.1")
POSITIVE = st.floats(0.2, 5.0)


def on_h200(quantization: Quantization | None) -> Format:
    from dataclasses import replace

    assert H200 is not None
    return Format.on(H200, workload(replace(SHAPE, quantization=quantization)))


BF16 = on_h200(None)
FP8 = on_h200(Quantization("fp8", 8, activations="fp8"))
INT4 = on_h200(Quantization("awq", 4, 128, zero_points=True))


# Crossings


def test_a_straight_line_of_logarithms_crosses_where_it_does() -> None:
    # From 4 at load 1 to 1/4 at load 256 it is 1 half way: at load 16.
    found = crossing([RatioPoint(1, 4.0), RatioPoint(256, 0.25)])
    assert (found.status, found.below, found.above) == ("found", 1, 256)
    assert found.at == pytest.approx(16)
    assert not found.banded and found.low is None and found.high is None


def test_the_interval_of_a_crossing_is_where_the_band_meets_the_level() -> None:
    # The lower end falls to 1 at load 4, the upper at 64.
    points = [RatioPoint(1, 4.0, 2.0, 8.0), RatioPoint(256, 1 / 4, 1 / 8, 1 / 2)]
    found = crossing(points)
    assert (found.low, found.at, found.high) == (pytest.approx(4), pytest.approx(16), pytest.approx(64))


def test_an_advantage_that_lasts_or_was_never_there() -> None:
    assert crossing([RatioPoint(1, 1.4), RatioPoint(256, 1.2)], 1.02).status == "keeps"
    assert crossing([RatioPoint(1, 1.01), RatioPoint(256, 1.2)], 1.02).status == "never"
    assert crossing([RatioPoint(1, 1.4)]).status == "too_few"
    unsure = crossing([RatioPoint(1, 1.4, 1.3, 1.5), RatioPoint(100, 1.1, 0.9, 1.3)])
    assert unsure.status == "keeps" and unsure.low == pytest.approx(100 ** (math.log(1.3) / math.log(1.3 / 0.9)))


def test_an_advantage_that_comes_back_is_said_to() -> None:
    found = crossing([RatioPoint(1, 1.4), RatioPoint(32, 0.9), RatioPoint(256, 1.3)])
    assert found.status == "found" and found.returns


def test_what_cannot_be_a_ratio_is_refused() -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0"):
            crossing([RatioPoint(1, 1.0), RatioPoint(2, bad)])


@given(st.lists(st.tuples(POSITIVE, st.floats(1.0, 1.5), st.floats(1.0, 1.5)), min_size=2, max_size=6), POSITIVE)
def test_a_crossing_lies_in_its_interval_and_between_its_neighbours(
    curve: list[tuple[float, float, float]], level: float
) -> None:
    points = [RatioPoint(2.0**i, y, y / down, y * up) for i, (y, down, up) in enumerate(curve)]
    found = crossing(points, level)
    if found.status != "found":
        return
    assert found.at is not None and found.below is not None and found.above is not None
    assert found.below < found.at <= found.above * (1 + 1e-12)
    assert found.low is None or found.low <= found.at * (1 + 1e-12)
    assert found.high is None or found.high >= found.at * (1 - 1e-12)


@given(st.lists(POSITIVE, min_size=2, max_size=6), st.floats(0.1, 100), POSITIVE)
def test_a_crossing_moves_with_the_unit_of_the_load(values: list[float], scale: float, level: float) -> None:
    plain = crossing([RatioPoint(2.0**i, y) for i, y in enumerate(values)], level)
    scaled = crossing([RatioPoint(2.0**i * scale, y) for i, y in enumerate(values)], level)
    assert plain.status == scaled.status
    if plain.at is not None:
        assert scaled.at == pytest.approx(plain.at * scale, rel=1e-9)


@given(st.lists(st.tuples(POSITIVE, st.floats(1.0, 1.3)), min_size=2, max_size=6), st.floats(1.0, 1.3), POSITIVE)
def test_wider_intervals_never_make_a_crossing_surer(
    curve: list[tuple[float, float]], more: float, level: float
) -> None:
    narrow = crossing([RatioPoint(2.0**i, y, y / w, y * w) for i, (y, w) in enumerate(curve)], level)
    wide = crossing([RatioPoint(2.0**i, y, y / w / more, y * w * more) for i, (y, w) in enumerate(curve)], level)
    assert narrow.at == wide.at
    if narrow.status == "found":
        low, high = (one.low or 0.0 for one in (narrow, wide)), (one.high or math.inf for one in (narrow, wide))
        narrow_low, wide_low = low
        narrow_high, wide_high = high
        assert wide_low <= narrow_low * (1 + 1e-9) and wide_high >= narrow_high * (1 - 1e-9)


# Estimates and splits

RUNS = st.lists(st.floats(1.0, 1e4), min_size=3, max_size=8)


@given(RUNS, RUNS)
def test_two_groups_get_the_interval_of_compare(baseline: list[float], candidate: list[float]) -> None:
    ours, theirs = contrast([(1.0, candidate), (-1.0, baseline)]), run_ratio(baseline, candidate)
    assert ours.value == pytest.approx(theirs.ratio, rel=1e-9)
    assert theirs.low is not None and theirs.high is not None
    assert ours.low == pytest.approx(theirs.low, rel=1e-6) and ours.high == pytest.approx(theirs.high, rel=1e-6)


def test_below_three_runs_there_is_no_interval() -> None:
    assert mean_of_runs([4.0, 9.0]) == Estimate(pytest.approx(6.0), n=2)
    assert mean_of_runs([5.0, 5.0, 5.0]) == Estimate(*[pytest.approx(5.0)] * 3, n=3)


def test_a_gain_splits_into_kernels_and_batches_by_eye() -> None:
    # Pinned 100 -> 120: the kernels are 1.2 times as fast. Free 100 -> 180: what is left is 1.5.
    found = kv_split(([100.0], [120.0]), ([100.0], [180.0]))
    assert (found.kernels.value, found.whole.value) == (pytest.approx(1.2), pytest.approx(1.8))
    assert found.batches.value == pytest.approx(1.5) and found.batches.low is None and found.n == (1, 1, 1, 1)
    latency = kv_split(([12.0], [10.0]), ([12.0], [5.0]), lower_is_better=True)
    assert (latency.kernels.value, latency.whole.value) == (pytest.approx(1.2), pytest.approx(2.4))


@given(RUNS, RUNS, RUNS, RUNS, st.booleans())
def test_kernels_times_batches_is_the_whole(
    a: list[float], b: list[float], c: list[float], d: list[float], lower: bool
) -> None:
    found = kv_split((a, b), (c, d), lower_is_better=lower)
    assert found.kernels.value * found.batches.value == pytest.approx(found.whole.value, rel=1e-9)
    for part in (found.whole, found.kernels, found.batches):
        assert part.low is not None and part.high is not None
        assert part.low <= part.value * (1 + 1e-12) and part.value <= part.high * (1 + 1e-12)


# The roofline of formats


def test_the_batch_at_which_weights_of_four_bits_gain_nothing() -> None:
    # 989.5 TFLOP/s over 4.8 TB/s: 206 operations a byte, two a weight of two bytes. With 4.16 bits 3.85 times fewer.
    assert BF16.balanced_tokens == pytest.approx(989.5 / 4.8, rel=1e-3)
    assert INT4.balanced_tokens == pytest.approx(989.5 / 4.8 * 4.15625 / 16, rel=1e-3)
    found = vanishing(BF16, INT4, 0.02)
    assert found.best == pytest.approx(16 / 4.15625, rel=0.01) and found.last == pytest.approx(1)
    # Activations are moved too, which puts the end a little beyond the ridge.
    assert found.tokens is not None and 206 * 0.98 < found.tokens < 206 * 1.1


def test_fp8_gains_in_any_batch_because_it_computes_in_fewer_bits() -> None:
    found = vanishing(BF16, FP8, 0.02)
    assert found.tokens is None and found.best == pytest.approx(2, rel=0.01) and found.last == pytest.approx(2)
    assert vanishing(BF16, BF16, 0.02).tokens == 1.0


def test_ratios_over_loads_fall_and_are_never_over_those_of_the_weights() -> None:
    table = closed_loop_ratios(BF16, INT4, [1, 8, 32, 128, 256, 1024], 512, 128)
    assert table["throughput"].is_monotonic_decreasing and table["throughput"].iloc[-1] == pytest.approx(1)
    assert table["decode"].iloc[0] < 16 / 4.15625
    fp8 = closed_loop_ratios(BF16, FP8, [1, 1024], 512, 128)
    assert (fp8["throughput"] > 1.2).all()


@given(st.integers(1, 512), st.floats(16, 4000))
def test_a_decode_step_is_never_shorter_than_reading_weights_and_cache(batch: int, context: float) -> None:
    for one in (BF16, FP8, INT4):
        bytes_read = one.work.read_weight_bytes + round(batch * context) * (one.work.kv_bytes_per_token or 0)
        assert decode_ns(one, batch, context) >= 0.999 * bytes_read / one.peaks.memory * 1e9


# Which variant a run is


@pytest.mark.parametrize(
    ("config", "settings", "name"),
    [
        ({}, {}, "baseline"),
        ({}, {"quantization": "fp8"}, "fp8"),
        ({}, {"quantization": "fp8", "kv_cache_dtype": "fp8"}, "fp8-kv"),
        ({}, {"cache_dtype": "fp8_e4m3"}, "kv-fp8"),
        ({}, {"quantization": "fp8_per_block"}, "fp8-block"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "fp8-block"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, {"quantization": "auto_awq"}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, {}, "gptq"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {
                "weights": {"num_bits": 4, "group_size": 32},
            }}},
            {}, "int4-g32",
        ),
        (format_named("int4-asym-g64").config, {}, "int4-asym-g64"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {
                "weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8, "type": "int"},
            }}},
            {}, "int8",
        ),
        ({}, {"enforce_eager": True}, "baseline-eager"),
    ],
)  # fmt: skip
def test_a_run_is_recognised(config: dict, settings: dict, name: str) -> None:
    found = recognised({"dtype": "bfloat16", "quantization_config": config}, {"dtype": "bfloat16", **settings})
    assert found.name == name


def test_an_unknown_quantization_is_no_baseline() -> None:
    assert recognised({"quantization_config": {"quant_method": "new_kind"}}, {}).name != "baseline"


# Kernels


def test_kernels_of_traces_and_logs_are_the_same() -> None:
    machete = "cutlass::gemm::GemmUniversal<machete::MacheteCollectiveMma>"
    fp8 = "CUTLASS scaled mm, FP8"
    for trace, log, name, gain in (
        ("vllm::cutlass_3x_gemm_sm90_fp8<x>", "CutlassFP8ScaledMMLinearKernel for A", fp8, "operations"),
        (machete, "MacheteLinearKernel for B", "Machete", "bytes"),
        ("marlin::Marlin<x>", "MarlinLinearKernel for C", "Marlin", "bytes"),
    ):  # fmt: skip
        by_trace, by_log = matmul_of_family(kernel_family(trace)), matmul_of_log(log)
        assert by_trace == by_log and by_trace is not None
        assert (by_trace.name, by_trace.gain) == (name, gain)
    plain = matmul_of_family(kernel_family("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT"))
    assert plain is not None and plain.gain == "none"
    assert matmul_of_log("SomethingNew for D") is None and matmul_of_family(None) is None


# Recommendations and claims


def variant(name: str, rates: dict[float, list[float]], ratio: tuple[float, ...] = (), gib: float = 15.0) -> Variant:
    speeds = []
    for load, values in rates.items():
        tpots = [1000 * load / value for value in values]
        for metric, mine in (("output_tokens_per_s", values), ("tpot_p50_ms", tpots), ("tpot_p99_ms", tpots)):
            base = [1.0] * len(mine)
            sign = -1.0 if metric.endswith("_ms") else 1.0
            gain = None if name == "baseline" else contrast([(sign, mine), (-sign, base)])
            speeds.append(Speed("free", f"512/128 c{load:g}", "512/128", load, metric, mean_of_runs(mine), gain,
                                values=tuple(mine)))  # fmt: skip
    accuracy = None if not ratio else Accuracy(PLACE, perplexity_ratio=Estimate(*ratio))
    memory = Memory("free", round(gib * 2**30), None, None, None)
    return Variant(name, name.upper(), speed=tuple(speeds), accuracy=accuracy, memory=(memory,))


def three(value: float) -> list[float]:
    return [value * 0.999, value, value * 1.001]


def test_the_fastest_that_keeps_objectives_and_accuracy_is_chosen() -> None:
    one = Comparison(PLACE, (
        variant("baseline", {1: three(100), 256: three(5000)}),
        variant("fp8", {1: three(140), 256: three(7000)}, (1.003, 1.001, 1.005)),
        variant("int4-g128", {1: three(200), 256: three(5200)}, (1.05, 1.04, 1.06)),
    ))  # fmt: skip
    fast = recommend(one, "interactive", [one], {}, own_thresholds())
    assert fast is not None and fast.chosen is not None and fast.chosen.variant == "fp8", "int4 loses 5 %"
    assert (fast.load, fast.metric, fast.told_apart) == (1, "tpot_p50_ms", True)
    assert [c.variant for c in fast.candidates] == ["int4-g128", "fp8", "baseline"]
    assert [c.keeps_accuracy for c in fast.candidates] == [False, True, True]
    much = recommend(one, "batch", [one], {}, own_thresholds())
    assert much is not None and much.load == 256 and much.chosen is not None and much.chosen.variant == "fp8"
    assert much.lead is not None and much.lead.value == pytest.approx(7000 / 5000, rel=1e-3)


def test_objectives_hold_back_what_breaks_them_and_what_is_not_measured_is_said() -> None:
    one = Comparison(PLACE, (variant("baseline", {1: three(100)}), variant("fp8", {1: three(125)})))
    found = recommend(one, "interactive", [one], {"tpot_ms": 9.0, "ttft_ms": 100.0}, own_thresholds())
    assert found is not None and found.chosen is not None and found.chosen.variant == "fp8"
    base = next(c for c in found.candidates if c.variant == "baseline")
    assert base.broken == {"tpot_ms": pytest.approx(10.0, rel=1e-2)} and base.unknown == ("ttft_ms",)
    none = recommend(one, "interactive", [one], {"tpot_ms": 1.0}, own_thresholds())
    assert none is not None and none.chosen is None and none.lead is None


def test_variants_within_chance_of_each_other_are_said_to_be() -> None:
    one = Comparison(PLACE, (variant("baseline", {1: [99, 100, 103]}), variant("fp8", {1: [97, 101, 106]})))
    found = recommend(one, "interactive", [one], {}, own_thresholds())
    assert found is not None and found.told_apart is False
    single = Comparison(PLACE, (variant("baseline", {1: [100]}), variant("fp8", {1: [150]})))
    alone = recommend(single, "interactive", [single], {}, own_thresholds())
    assert alone is not None and alone.told_apart is None


def test_accuracy_is_kept_only_with_the_whole_interval() -> None:
    for ratio, kept in (((1.01, 1.0, 1.019), True), ((1.01, 1.0, 1.03), None), ((1.05, 1.03, 1.07), False)):
        assert keeps_accuracy(Accuracy(PLACE, perplexity_ratio=Estimate(*ratio)), 0.02) is kept
    assert keeps_accuracy(None, 0.02) is None


def test_without_speeds_nothing_is_recommended() -> None:
    assert recommend(Comparison(PLACE, (Variant("fp8", "FP8"),)), "batch", [], {}, own_thresholds()) is None


def test_claims_are_held_against_what_was_measured() -> None:
    base = variant("baseline", {1: [1.0], 256: [1.0]})
    awq = variant("awq", {1: [1.9], 256: [1.0]}, (1.005, 1.002, 1.008), gib=15 / 2.75)
    fp8 = variant("fp8", {1: [1.4], 256: [1.3]}, (1.02, 1.015, 1.025), gib=7.6)
    awq = Variant(**{**awq.__dict__, "reasons": Reasons(logged=("MacheteLinearKernel for X",))})
    found = {one.claim.id: one.verdict for one in confront([Comparison(PLACE, (base, awq, fp8))], 0.05)}
    assert set(found) == {claim.id for claim in guide_claims()}
    assert found["awq_memory"] == "too_high", "2.75 times less, not 3.9"
    assert found["fp8_memory"] == "holds", "1.97 is within 5 % of 2"
    assert found["awq_speed"] == "holds_at_some_loads", "1.9 at 1, 1.0 at 256; 1.8 is between"
    assert found["fp8_speed"] == "too_low", "never below 1.3"
    assert found["awq_loss"] == "holds" and found["fp8_loss"] == "too_low"
    assert found["awq_kernel"] == "holds" and found["gptq_memory"] == "not_measured"
    assert found["a100_fp8"] == "contradicts_itself" and found["eager"] == "not_measured"


def test_a_claimed_range_of_loss_that_an_interval_straddles_is_undecided() -> None:
    base, gptq = variant("baseline", {1: [1.0]}), variant("gptq", {1: [1.0]}, (1.01, 1.005, 1.015))
    found = {one.claim.id: one.verdict for one in confront([Comparison(PLACE, (base, gptq))], 0.05)}
    assert found["gptq_loss"] == "undecided"
