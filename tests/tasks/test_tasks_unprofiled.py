"""What a profiled step is held against, read off recorded runs."""

import json

import pandas as pd
import pytest

from perflab.read.files import read_text
from perflab.runs import open_run
from perflab.tasks.breakdown import breakdown
from perflab.tasks.find import find_runs
from perflab.tasks.unprofiled import unprofiled_step


def batches(*requests):
    return [pd.DataFrame({"phase": ["decode"] * len(requests), "decode_requests": pd.array(requests, dtype="Int64")})]


def test_the_least_load_that_is_not_below_the_batch_counts():
    run = find_runs("llama3-8b-bf16")[0]
    results = {p.load.concurrency: json.loads(read_text(run.file(p.bench))[0]) for p in run.manifest.points}
    found = unprofiled_step(run, batches(8, 8, 1))
    assert (found.concurrency, found.batch) == (32, 8)
    assert found.step_ns == pytest.approx(results[32]["median_tpot_ms"] * 1e6)
    assert unprofiled_step(run, batches(1)).concurrency == 1
    assert unprofiled_step(run, batches(500)) is None, "no point is as large"
    assert unprofiled_step(run, []) is None
    assert unprofiled_step(None, batches(8)) is None


def test_repeats_give_their_median():
    run = find_runs("llama3-8b-tp2-custom")[0]
    of = [p for p in run.manifest.points if p.load.concurrency == 32]
    times = sorted(json.loads(read_text(run.file(p.bench))[0])["median_tpot_ms"] for p in of)
    assert len(times) == 3
    assert unprofiled_step(run, batches(8)).step_ns == pytest.approx(times[1] * 1e6)


def test_speculative_decoding_tells_nothing_about_a_step(tmp_path):
    run = find_runs("llama3-8b-bf16")[0]
    manifest = json.loads((run.path / "manifest.json").read_text())
    manifest["engine"]["settings"]["speculative_config"] = {"method": "ngram"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert unprofiled_step(open_run(tmp_path), batches(8)) is None


def test_two_gpus_under_the_profiler_are_said_to_be_slower_than_measured():
    report = breakdown("llama3-8b-tp2-nccl")
    check = next(c for c in report.trust if c.check == "profiler_slowdown")
    assert check.status == "warn"
    finding = next(f for f in report.findings if f.id == "host_bound")
    decode = [rank.record["phases"]["decode"] for rank in report.ranks]
    profiled = max(d["window_ns"] / d["steps"] for d in decode) / 1e6
    assert 0 < finding.impact["value"] < profiled - 4.9, "what is left of the waiting, not all of it"
