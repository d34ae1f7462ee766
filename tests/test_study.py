"""The study file: what it accepts, and which line a mistake is on."""

import textwrap

import pytest

from perflab import places
from perflab.errors import InputError
from perflab.experiment.spec import Load, Slos
from perflab.experiment.study import TaskSpec
from perflab.experiment.study_file import read_study
from perflab.knowledge.quantization_formats import format_named, format_names

GOOD = """\
name: small
model: {id: Qwen/Qwen3-0.6B}
variants:
  - baseline
  - fp8
  - int4-g64
  - {name: theirs, format: awq, checkpoint: Qwen/Qwen3-0.6B-AWQ, label: AWQ of somebody, args: {dtype: float16}}
engine:
  args: {max_model_len: 1024}
server_runs: 3
workloads:
  - name: chat
    input_lens: 128
    output_lens: [16, 32]
    load: {concurrency: [1, 8, 64]}
kv:
  pinned_bytes: 2GiB
  free_loads: [64]
  free_server_runs: 1
accuracy: {tokens: 5000, top_k: 20}
slos:
  interactive: {ttft_ms: 500, tpot_ms: 20}
"""


def write(tmp_path, text):
    file = tmp_path / "study.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def test_a_study(tmp_path):
    study = read_study(write(tmp_path, GOOD))
    assert [one.name for one in study.variants] == ["baseline", "fp8", "int4-g64", "theirs"]
    assert study.baseline is study.variants[0]
    theirs = study.variants[3]
    assert (theirs.format.name, theirs.label, dict(theirs.args)) == ("awq", "AWQ of somebody", {"dtype": "float16"})
    assert theirs.checkpoint.name == "Qwen/Qwen3-0.6B-AWQ"
    assert study.variant("int4-g64").format.weights.group == 64
    assert study.kv.pinned_bytes == 2 * 1024**3
    assert study.kv.modes == ("pinned", "free")
    assert study.kv.free_loads == (Load(concurrency=64),)
    assert (study.server_runs_of("pinned"), study.server_runs_of("free")) == (3, 1)
    assert (study.accuracy.tokens, study.accuracy.top_k, study.accuracy.text.english) == (5000, 20, True)
    assert study.slos["interactive"] == Slos(ttft_ms=500, tpot_ms=20)
    assert not study.is_shape_only


def test_what_is_left_out(tmp_path):
    text = GOOD.replace("accuracy: {tokens: 5000, top_k: 20}\n", "").replace("  free_loads: [64]\n", "  free: false\n")
    study = read_study(write(tmp_path, text.replace("  free_server_runs: 1\n", "")))
    assert study.accuracy is None
    assert study.kv.modes == ("pinned",)
    whole = read_study(write(tmp_path, GOOD.replace("top_k: 20", "top_k: all")))
    assert whole.accuracy.top_k is None


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("  - fp8\n", "  - fp9\n"), 5, "did you mean fp8"),
        (("  - fp8\n", "  - int4-g96x\n"), 5, "is no format"),
        (("  - baseline\n", ""), 3, "needs one variant of format baseline"),
        (("  - fp8\n", "  - baseline\n"), 5, "twice"),
        (("variants:", "varants:"), 3, "did you mean variants"),
        (("max_model_len: 1024", "quantization: fp8"), 9, "a variant brings it"),
        (("max_model_len: 1024", "kv_cache_memory_bytes: 1"), 9, "kv.pinned_bytes"),
        (("pinned_bytes: 2GiB", "pinned_bytes: two"), 17, "40GiB"),
        (("pinned_bytes: 2GiB", "pinned_bytes: 2.5.1GiB"), 17, "40GiB"),
        (("free_loads: [64]", "free_loads: [65]"), 18, "no workload has"),
        (("top_k: 20", "top_k: many"), 20, "all"),
        (("tokens: 5000", "tokens: 5000, window: 4096"), 20, "over engine.args.max_model_len"),
        (("tokens: 5000", "tokens: 5000, text: [none.txt]"), 20, "no such file"),
        (("tokens: 5000", "tokens: 5000, tasks: []"), 20, "an empty list"),
        (("tokens: 5000", "tokens: 5000, tasks: [7]"), 20, "the name of a task"),
        (("tokens: 5000", "tokens: 5000, tasks: [a, {name: a, limit: 3}]"), 20, "there twice"),
        (("tokens: 5000", "tokens: 5000, tasks: [{limit: 3}]"), 20, "tasks.0..name is missing"),
        (("tokens: 5000", "tokens: 5000, tasks: [{name: a, limit: 0}]"), 20, "at least 1"),
        (("tokens: 5000", "tokens: 5000, tasks: [{name: a, shots: -1}]"), 20, "at least 0"),
        (("tokens: 5000", "tokens: 5000, tasks: [{name: a, fewshot: 1}]"), 20, "unknown key accuracy.tasks.0..fewshot"),
        (("tokens: 5000", "tokens: 5000, tasks: [{name: a, path: no.yaml}]"), 20, "no such file or folder"),
        (("tokens: 5000", "tokens: 5000, tasks: [{name: a, path: study.yaml.txt}]"), 20, "no such file"),
        (("interactive:", "interactiv:"), 22, "did you mean interactive"),
        (("format: awq", "format: awk"), 7, "did you mean awq"),
        (("args: {dtype: float16}", "algorithm: awq"), 7, "no checkpoint is made"),
        (("  - fp8\n", "  - {name: int4-g64, algorithm: awk}\n"), 5, "it can be rtn, gptq, awq"),
        (("max_model_len: 1024", "max_model_len: 100"), 13, "over engine.args.max_model_len"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, change, line, says):
    text = GOOD.replace(*change, 1)
    assert text != GOOD
    with pytest.raises(InputError, match=says) as caught:
        read_study(write(tmp_path, text))
    assert caught.value.line == line


def test_tasks_are_names_or_mappings(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.yaml").write_text("task: one")
    (tmp_path / "mine" / "one.jsonl").write_text("{}")
    asked = "[arc_easy, {name: mine, path: mine/one.yaml, limit: 200, shots: 0}, {name: one, path: mine}]"
    found = read_study(write(tmp_path, GOOD.replace("top_k: 20", f"top_k: 20, tasks: {asked}"))).accuracy.tasks
    assert found == (
        TaskSpec("arc_easy"),
        TaskSpec("mine", tmp_path / "mine" / "one.yaml", 200, 0),
        TaskSpec("one", tmp_path / "mine"),
    )
    alone = read_study(write(tmp_path, GOOD.replace("top_k: 20", "top_k: 20, tasks: arc_easy")))
    assert alone.accuracy.tasks == (TaskSpec("arc_easy"),)
    with pytest.raises(InputError, match=r"a task is a \.yaml file"):
        read_study(write(tmp_path, GOOD.replace("top_k: 20", "top_k: 20, tasks: [{name: a, path: mine/one.jsonl}]")))


def test_a_workload_without_a_server_is_refused(tmp_path):
    text = GOOD.replace("  - name: chat", "  - kind: latency\n    name: chat")
    with pytest.raises(InputError, match="a study measures a server"):
        read_study(write(tmp_path, text))


def test_a_value_can_be_set_over_the_file(tmp_path):
    assert read_study(write(tmp_path, GOOD), ["server_runs=1"]).server_runs == 1


def test_the_studies_that_come_with_perflab():
    names = {file.stem: read_study(file) for file in places.studies().glob("*.yaml")}
    assert set(names) >= {"smollm2-cpu", "smollm2-h200", "llama3-8b-h200", "llama3-70b-h200x2"}
    assert all(study.name == name for name, study in names.items())
    assert names["llama3-8b-h200"].is_shape_only
    assert [one.name for one in names["llama3-8b-h200"].variants] == [
        "baseline", "fp8", "fp8-kv", "int8", "int4-g128", "awq",
    ]  # fmt: skip


def test_spelling_follows_the_version():
    fp8 = format_named("fp8")
    assert fp8.args("0.25.1") == {"quantization": "fp8"}
    assert fp8.args("0.32.0+cpu") == {"quantization": "fp8_per_tensor"}
    assert format_named("fp8-block").args("0.10.2") is None
    assert format_named("baseline").args(None) == {}


def test_every_name_is_a_format_with_a_source():
    for name in format_names():
        found = format_named(name)
        assert found.name == name
        assert found.source
        assert "{" not in found.label
    assert format_named("int4-g96").weights.group == 96
    assert format_named("int5-g64") is None
