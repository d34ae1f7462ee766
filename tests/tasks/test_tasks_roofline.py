"""The roofline in a breakdown: where the model's config comes from, and what is said without one."""

import json
import shutil
from pathlib import Path

import pytest

from perflab.read.files import read_text
from perflab.tasks.breakdown import breakdown
from perflab.tasks.imports import import_files


@pytest.fixture
def recorded(root: Path) -> Path:
    return root / "data" / "recorded" / "llama3-8b-bf16"


def trace_of(run: Path) -> Path:
    return next((run / "profile" / "torch").glob("rank0*"))


def test_a_run_has_its_roofline_in_the_json(recorded: Path) -> None:
    rank = json.loads(json.dumps(breakdown(recorded).to_json(), allow_nan=False))["ranks"][0]
    found = rank["roofline"]
    assert found["gpu"] == "H200 SXM"
    assert found["missing"] == []
    assert found["weight_bytes"] == pytest.approx(14.96 * 2**30, rel=0.001)
    assert found["kv_bytes_per_token"] == 128 * 1024
    decode = found["phases"]["decode"]
    assert decode["bound"] == "memory"
    assert decode["share_of_peak_bandwidth"] == pytest.approx(0.615, abs=0.02)
    # The steps do not tell their KV tokens; 8 prompts of 512 and 1 to 7 tokens more do, 516 on average.
    assert decode["kernels"]["attention"]["bytes"] == pytest.approx((6 * 8 + 7) / 7 * 516 * 128 * 1024, rel=0.01)
    assert any("512 tokens" in text for text in decode["notes"])
    assert decode["withheld"] == []


def test_a_trace_alone_says_what_to_give(recorded: Path) -> None:
    found = breakdown(trace_of(recorded)).ranks[0].roofline
    assert found is not None
    assert found.phases == {} and found.parts.empty
    assert "perflab import" in found.missing[0]


def test_a_config_beside_a_trace_is_found(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(trace_of(recorded), tmp_path / "rank0.1.pt.trace.json.xz")
    config = read_text(recorded / "config.json.xz")[0]
    (tmp_path / "config.json").write_text(config)
    found = breakdown(tmp_path).ranks[0].roofline
    assert found is not None and found.phases["decode"].verdict.bound == "memory"
    assert found.phases["decode"].padding is None, "no settings tell the sizes of graphs"
    assert found.phases["decode"].kernels["attention"].flops is None, "not 0: nothing tells the KV tokens"
    assert "detailed_steps" in found.phases["decode"].withheld[0]
    (tmp_path / "config.json").write_text(config[:60])
    cut = breakdown(tmp_path).ranks[0].roofline
    assert cut is not None and cut.phases == {}


def test_importing_a_config_gives_the_run_its_roofline(recorded: Path, tmp_path: Path) -> None:
    shutil.copy(trace_of(recorded), tmp_path / "rank0.1.pt.trace.json.xz")
    (tmp_path / "config.json").write_text(read_text(recorded / "config.json.xz")[0])
    run = import_files([tmp_path / "rank0.1.pt.trace.json.xz", tmp_path / "config.json"], tmp_path / "run")
    assert run.manifest.model_config == "config.json"
    found = breakdown(tmp_path / "run").ranks[0].roofline
    assert found is not None and found.phases["mixed"].verdict.bound == "compute"


def test_a_verdict_that_rests_on_a_failed_check_is_withheld(recorded: Path, tmp_path: Path) -> None:
    mine = tmp_path / "rules.toml"
    mine.write_text("[[rule]]\ncategory = 'other'\npattern = 'nvjet'\n")
    report = breakdown(recorded, rules=mine)
    assert any(check.check == "unknown_kernels" and check.status == "fail" for check in report.trust)
    found = report.ranks[0].roofline
    assert found is not None
    assert found.phases == {} and found.parts.empty
    assert any("withheld" in text for text in found.missing)
    bounds = [finding for finding in report.findings if finding.id == "bandwidth_bound_decode"]
    assert all(finding.withheld for finding in bounds)
