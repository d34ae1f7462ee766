"""Attribution of real traces, against what the test works out by itself and against what others published."""

import csv
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perflab.analysis.attribution import Attribution, attribute, captures
from perflab.analysis.attribution.summary import layer_table, module_table, rung_table, slow_layers
from perflab.analysis.kernels import categorize
from perflab.analysis.steps import steps_from_ranges
from perflab.read.files import read_text
from perflab.read.host_side import read_host_side
from perflab.read.kineto import read_kineto
from perflab.tasks.breakdown import BreakdownReport, breakdown

RUNS = {
    "llama3-70b-awq-tp2": 80, "llama3-70b-bf16-tp2": 80, "llama3-8b-awq": 32, "llama3-8b-bf16": 32,
    "llama3-8b-bf16-3x": 32, "llama3-8b-eager": 32,
    "llama3-8b-fp8": 32, "llama3-8b-tp2": 32, "llama3-8b-tp2-nccl": 32, "qwen3-30b-a3b-ep2": 48,
}  # fmt: skip
LLAMA_LAYER = (
    "self_attn.qkv_proj", "self_attn.rotary", "self_attn.kv_cache", "self_attn.attn", "self_attn.attn",
    "self_attn.o_proj", "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_up_proj", "mlp.act_fn",
    "mlp.down_proj", "mlp.down_proj", "input_layernorm",
)  # fmt: skip
"""What the 13 kernels of a decode layer are (two of attention, two split-K reductions), as vLLM's Llama calls them."""


@pytest.fixture(scope="module", params=RUNS)
def report(request: pytest.FixtureRequest) -> tuple[str, BreakdownReport]:
    return request.param, breakdown(request.param, attribution=True)


def attributed(
    path: Path, *, capture: Path | None = None, teacher: Attribution | None = None, host: bool = True
) -> Attribution:
    trace = read_kineto(path)
    kernels = categorize(trace.kernels)
    steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
    return attribute(
        kernels, steps, host=read_host_side(path) if host else None,
        captured=captures(read_host_side(capture)) if capture else (), teacher=teacher,
    )  # fmt: skip


def test_every_recorded_run_has_its_layers_and_sums_to_the_nanosecond(report: tuple[str, BreakdownReport]) -> None:
    name, found = report
    for rank in found.ranks:
        assert rank.attribution is not None
        assert rank.attribution.n_layers == RUNS[name]
        assert int(rung_table(rank.attribution)["exclusive_ns"].sum()) == rank.busy_ns
        for table in (module_table(rank.attribution), layer_table(rank.attribution)):
            for phase, ns in table.groupby("phase")["exclusive_ns"].sum().items():
                assert ns == rank.record["phases"][phase]["busy_ns"]
        parts = module_table(rank.attribution)
        assert parts.loc[parts["module"].isna(), "exclusive_ns"].sum() < 0.001 * rank.busy_ns
        known = rank.attribution.rows.dropna(subset="layer")
        assert sorted(known["layer"].unique()) == list(range(RUNS[name]))


def test_parts_have_the_categories_they_must_have(report: tuple[str, BreakdownReport]) -> None:
    """The category comes from a kernel's own name, the part from its place: they agree."""
    allowed = {
        "self_attn.attn": {"attention"}, "self_attn.kv_cache": {"kv_cache"}, "mlp.act_fn": {"norm_act", "quantize"},
        "self_attn.communication": {"communication"}, "mlp.communication": {"communication"},
        "self_attn.qkv_proj": {"gemm", "memory"}, "self_attn.o_proj": {"gemm", "memory", "quantize"},
        "mlp.gate_up_proj": {"gemm", "memory", "quantize"}, "mlp.down_proj": {"gemm", "memory", "quantize"},
        "input_layernorm": {"norm_act", "quantize"}, "post_attention_layernorm": {"norm_act", "quantize"},
        "mlp.gate": {"gemm", "memory"}, "mlp.experts": {"moe", "memory"},
    }  # fmt: skip
    for rank in report[1].ranks:
        assert rank.attribution is not None
        rows = rank.attribution.rows
        for module, categories in allowed.items():
            found = set(rows.loc[rows["module"] == module, "category"].astype(str))
            # Workspace sets precede a matmul; the first kernel of attention may clear a counter.
            assert found <= categories | {"memory"}, module


def raw_replays(root: Path) -> list[list[dict[str, Any]]]:
    """Kernels of every CUDA graph replay of a whole decode step, from the file as it is."""
    (path,) = (root / "data/recorded/llama3-8b-bf16-3x/profile/torch").glob("rank0*")
    events = json.loads(read_text(path)[0], parse_float=Decimal)["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    sizes = Counter(e["args"]["correlation"] for e in work)
    whole = [correlation for correlation, n in sizes.items() if n == 418]
    return [sorted((e for e in work if e["args"]["correlation"] == c), key=lambda e: Decimal(e["ts"])) for c in whole]


def test_decode_against_an_independent_count(root: Path) -> None:
    """A replay is the embedding, 32 layers of 13 kernels, and a copy: part and layer follow from the position alone."""
    replays = raw_replays(root)
    assert len(replays) == 7
    expected: dict[int, tuple[str, int | None]] = {}
    sums: Counter[str] = Counter()
    for replay in replays:
        for i, event in enumerate(replay):
            layer, part = divmod(i - 1, 13)
            module = LLAMA_LAYER[part]
            here: tuple[str, int | None] = (module, layer + (module == "input_layernorm"))
            if i == 0:
                here = ("embed_tokens + input_layernorm", None)
            elif i == 417:
                here = ("lm_head", None)
            elif here == ("input_layernorm", 32):
                here = ("norm", None)
            expected[int(Decimal(event["ts"]) * 1000)] = here
            sums[here[0]] += int(Decimal(event["dur"]) * 1000)
    (rank,) = breakdown("llama3-8b-bf16-3x").ranks
    assert rank.attribution is not None
    (path,) = (root / "data/recorded/llama3-8b-bf16-3x/profile/torch").glob("rank0*")
    base = read_kineto(path).base_ns
    rows = rank.attribution.rows
    rows = rows[(rows["start_ns"] - base).isin(list(expected)) & rows["replayed"]]
    assert len(rows) == 7 * 418
    for row in rows.itertuples():
        module, layer = expected[int(row.start_ns) - base]
        if module != "lm_head":
            assert row.module == module
        assert (None if row.layer is rows["layer"].dtype.na_value else int(row.layer)) == layer
    by_module = rows.groupby("module")["dur_ns"].sum()
    assert {m: int(by_module[m]) for m in sums if m != "lm_head"} == {m: ns for m, ns in sums.items() if m != "lm_head"}


def test_the_teacher_gives_operators_to_almost_all_of_the_replayed_time() -> None:
    (rank,) = breakdown("llama3-8b-bf16-3x").ranks
    assert rank.attribution is not None
    rows = rank.attribution.rows
    inside = rows[rows["replayed"]]
    assert inside.loc[inside["rung"] == "teacher", "exclusive_ns"].sum() > 0.999 * inside["exclusive_ns"].sum()
    by_name = (
        inside.dropna(subset="operator").groupby("operator")["name"].agg(lambda names: {str(n)[:20] for n in names})
    )
    assert by_name["triton_poi_fused_mul_silu_slice_1"] == {"triton_poi_fused_mul"}
    assert {name[:5] for name in by_name["aten::mm"]} == {"nvjet", "void ", "Memse"}, "split-K and workspace too"
    assert all(match.accepted and match.share > 0.9 for match in rank.attribution.matches)
    qkv = inside[(inside["module"] == "self_attn.qkv_proj") & (inside["phase"] == "decode")]
    # 4096 hidden, 32 heads and twice 8 of K and V, 128 each: what is multiplied is what the part must be.
    assert set(qkv["shapes"].str.replace(" ", "")) <= {"[[8,4096],[4096,6144]]", "[[8,4096],[4096,6144],[8,6144]]"}
    rest = inside[inside["rung"] != "teacher"]
    assert set(rest["name"].astype(str)) <= {"memcpy32_post", "Memset (Device)"}


def test_teacher_and_order_of_kernels_agree(root: Path) -> None:
    """Two rungs that know nothing of each other: the place of a kernel in its step, and the one it pairs with."""
    (path,) = (root / "data/recorded/llama3-8b-bf16-3x/profile/torch").glob("rank0*")
    (other,) = (root / "data/recorded/llama3-8b-bf16-3x/profile/teacher").glob("rank0*")
    alone = attributed(path).rows
    taught = attributed(path, teacher=attributed(other)).rows
    in_layers = alone["layer"].notna() & taught["layer"].notna()
    assert in_layers.sum() > 3600
    assert (alone["layer"] == taught["layer"])[in_layers].all()
    assert (alone["module"] == taught["module"])[in_layers].mean() > 0.99


def test_a_clock_that_falls_within_a_step_is_seen_as_such() -> None:
    """3584 prompt tokens at once: the same matmuls take 10 % longer in the last third of the layers."""
    (rank,) = breakdown("llama3-8b-bf16-3x").ranks
    assert rank.attribution is not None
    (slow,) = slow_layers(layer_table(rank.attribution))
    assert (slow.phase, slow.last, slow.within, slow.because) == ("mixed", 31, True, "mlp.gate_up_proj")
    assert 1.08 < slow.ratio < 1.12
    rows = rank.attribution.rows
    up = rows[(rows["module"] == "mlp.gate_up_proj") & (rows["phase"] == "mixed") & (rows["kind"] == "kernel")]
    assert up["name"].nunique() == 1, "one kernel in all layers: it is not the work that differs"


def test_a_config_with_other_layers_withholds_what_only_the_order_tells(root: Path) -> None:
    (path,) = (root / "data/recorded/llama3-8b-bf16/profile/torch").glob("rank0*")
    trace = read_kineto(path)
    kernels = categorize(trace.kernels)
    steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
    assert attribute(kernels, steps, layers=32).n_layers == 32
    found = attribute(kernels, steps, layers=40)
    assert found.n_layers == 0
    assert set(found.rows["rung"]) <= {"name", "none"}


# ------------------------------------------------------- recordings of others


def test_another_recording_teaches_too(shared: Path, root: Path) -> None:
    """The same shape without graphs, recorded apart with other prompts: operators still pass over by order."""
    (path,) = (shared / "recordings/h200/llama3-8b-nograph-stacks/trace").glob("rank0*")
    (measured,) = (root / "data/recorded/llama3-8b-bf16/profile/torch").glob("rank0*")
    found = attributed(measured, teacher=attributed(path))
    accepted = [match for match in found.matches if match.accepted]
    assert len(accepted) >= 7
    decode = found.rows[(found.rows["phase"] == "decode") & found.rows["replayed"]]
    assert decode.loc[decode["rung"] == "teacher", "exclusive_ns"].sum() > 0.97 * decode["exclusive_ns"].sum()
    assert set(decode.loc[decode["rung"] == "position", "module"]) <= {"self_attn.attn", "lm_head"}


def published(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "perf_csvs" / name).open() as file:
        return list(csv.DictReader(file))


def test_sglang_capture_against_published_times(shared: Path) -> None:
    """Qwen3-8B on MI300X: every kernel of the replay from its capture, times by module as TraceLens published them."""
    folder = shared / "fixtures/kineto/tracelens/inference/sglang_decode"
    found = attributed(next(folder.glob("*.json.gz")), capture=folder / "capture_traces/bs_32_rank0.json.gz")
    rows = found.rows
    assert rows.loc[rows["replayed"], "rung"].tolist() == ["capture"] * 544
    assert set(rows.loc[rows["rung"] == "capture", "confidence"]) == {1.0}
    assert found.n_layers == 36
    ms = rows.groupby("module")["exclusive_ns"].sum() / 1e6
    told = {
        "MergedColumnParallelLinear": ms["mlp.gate_up_proj"],
        "RowParallelLinear": ms["mlp.down_proj"] + ms["self_attn.o_proj"],
        "QKVParallelLinear": ms["self_attn.qkv_proj"],
        "RadixAttention": ms["self_attn.attn"] + ms["self_attn.kv_cache"],
        "SiluAndMul": ms["mlp.act_fn"],
        "RotaryEmbedding": ms["self_attn.rotary"],
    }
    theirs: Counter[str] = Counter()
    for row in published(folder, "ops_summary_by_category.csv"):
        theirs[row["parent_module"].removeprefix("nn.Module: ")] += float(row["total_direct_kernel_time_ms"])  # type: ignore[assignment]
    for module, time in told.items():
        assert time == pytest.approx(theirs[module], rel=2e-5), module


def test_the_order_of_kernels_finds_what_the_module_stack_says(shared: Path) -> None:
    """What position infers without any stack, judged by the stacks of the capture: an engine, GPU and libraries it was
    not made from."""
    folder = shared / "fixtures/kineto/tracelens/inference/sglang_decode"
    path = next(folder.glob("*.json.gz"))
    told = attributed(path, capture=folder / "capture_traces/bs_32_rank0.json.gz").rows
    inferred = attributed(path, host=False).rows
    inside = told["replayed"]
    assert (told["layer"].fillna(-1) == inferred["layer"].fillna(-1))[inside].all()
    agree = (told["module"] == inferred["module"]) & inside
    assert told.loc[agree, "exclusive_ns"].sum() > 0.999 * told.loc[inside, "exclusive_ns"].sum()


def test_vllm_piecewise_capture_against_published_times(shared: Path) -> None:
    """gpt-oss on MI300X: 25 pieces a step, each from its own capture, attention launched between them."""
    folder = shared / "fixtures/kineto/tracelens/inference/vllm_prefilldecode_piecewise"
    capture = next((folder / "capture_traces").glob("*.json.gz"))
    found = attributed(folder / "graph_execution.json.gz", capture=capture)
    rows = found.rows
    assert rows.loc[rows["replayed"], "rung"].eq("capture").all()
    assert rows["replayed"].sum() == 4 + 23 * 15 + 12
    assert found.n_layers == 24
    ms = rows.groupby("operator")["exclusive_ns"].sum() / 1e6
    theirs = {row["op category"]: row for row in published(folder, "ops_summary_by_category.csv")}
    by_category = {
        "GEMM": ms["aten::addmm"],
        "InferenceAttention": ms["vllm::unified_attention_with_output"] + ms["_C_cache_ops::reshape_and_cache_flash"],
        "RMSNorm": ms["aiter::rmsnorm2d_fwd_with_add_ck"] + ms["aiter::rms_norm"],
    }
    for category, time in by_category.items():
        row = next(r for r in published(folder, "ops_summary_by_category.csv") if r["op category"] == category)
        assert time == pytest.approx(float(row["total_direct_kernel_time_ms"]), rel=2e-5), category
    assert len(theirs) > 5
    moe = rows[rows["module"] == "mlp.experts"]
    assert set(moe["operator"]) <= {"vllm::moe_forward", "TopK", "SortTokens"}
    assert moe["exclusive_ns"].sum() / 1e6 > 122.53, "the experts' two matmuls alone, as published"


def test_captures_of_one_engine_do_not_fit_the_replays_of_another(shared: Path) -> None:
    folder = shared / "fixtures/kineto/tracelens/inference"
    found = attributed(
        next((folder / "sglang_decode").glob("*.json.gz")),
        capture=next((folder / "vllm_prefilldecode_piecewise/capture_traces").glob("*.json.gz")),
    )
    assert "capture" not in set(found.rows["rung"])
