"""`--set KEY=VALUE` over an experiment file, and the one command that checks a finding."""

import shlex

import pytest

from perflab.analysis.finding import Again
from perflab.errors import InputError
from perflab.experiment import read_experiment

FILE = """\
model: org/name
engine:
  args:
    enforce-eager: true
    compilation_config.mode: 3
workloads:
  - {name: w, input_lens: 8, output_lens: 8, load: {concurrency: [1, 2]}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(FILE)
    return path


def test_a_value_is_replaced_added_or_put_into_a_list(file):
    file.write_text(FILE.replace("workloads:", "  env:\nworkloads:"))
    changes = ["engine.args.enforce_eager=false", "engine.args.max_num_seqs=64", "workloads.0.load.concurrency=[4]"]
    found = read_experiment(file, [*changes, "repeats=3", "engine.env.VLLM_LOGGING_LEVEL=DEBUG"])
    assert dict(found.engine.args) == {"enforce_eager": False, "max_num_seqs": 64, "compilation_config.mode": 3}
    assert [load.concurrency for load in found.workloads[0].loads] == [4]
    assert found.workloads[0].repeats == 3 and dict(found.engine.env) == {"VLLM_LOGGING_LEVEL": "DEBUG"}


def test_a_dotted_name_of_an_argument_is_one_name(file):
    found = read_experiment(file, ["engine.args.compilation_config.mode=0"])
    assert found.engine.args["compilation_config.mode"] == 0
    nested = read_experiment(file, ["engine.args.kv_transfer_config.kv_role=kv_both"])
    assert nested.engine.args["kv_transfer_config"] == {"kv_role": "kv_both"}


def test_what_was_set_is_kept_with_the_run_and_read_again(file, tmp_path):
    found = read_experiment(file, ["engine.args.enforce_eager=false"])
    assert found.text.startswith("# --set engine.args.enforce_eager=false\n")
    again = tmp_path / "again.yaml"
    again.write_text(found.text)
    assert read_experiment(again).engine.args == found.engine.args
    assert read_experiment(file).text == FILE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("enforce_eager", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("a..b=1", "KEY=VALUE"),
        ("repeats=", "there is no value"),
        ("repeats=[1", "not YAML"),
        ("workloads.4.repeats=1", "no item of a list of 1"),
        ("workloads.w.repeats=1", "no item of a list of 1"),
        ("model.x.y=1", "below a single value"),
        ("model.path=x", "single value"),
        ("repeets=2", "unknown key repeets"),
        ("repeats=many", "must be a whole number"),
    ],
)
def test_a_change_that_cannot_be_made_is_one_clear_line(file, change, says):
    with pytest.raises(InputError, match=r"[^\n]+") as caught:
        read_experiment(file, [change])
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_the_command_that_checks_a_finding_changes_that_and_compares(file):
    command = Again("my e.yaml", "runs/a").with_settings({"enforce_eager": False, "quantization": "fp8", "dtype": "on"})
    run, _, compare = command.partition(" && ")
    words = shlex.split(run)
    assert words[:3] == ["perflab", "run", "my e.yaml"] and words[-2:] == ["-o", "runs/changed"]
    changes = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    found = read_experiment(file, changes)
    assert (found.engine.args["enforce_eager"], found.engine.args["quantization"]) == (False, "fp8")
    assert found.engine.args["dtype"] == "on" and "engine.args.quantization=fp8" in words
    assert shlex.split(compare) == ["perflab", "compare", "runs/a", "runs/changed"]
