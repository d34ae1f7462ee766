"""The example files of the docs are what users start from: they load, and do what the docs say."""

import re
from pathlib import Path

from perflab.knowledge.categories import load_rules
from perflab.knowledge.thresholds import load_thresholds
from perflab.tasks.breakdown import breakdown


def test_the_guides_limits_load_and_mute_what_perflab_would_say(root: Path) -> None:
    file = root / "docs" / "examples" / "guide-thresholds.toml"
    limits = load_thresholds(file)
    assert limits.limit("attention_share", "warning") == 0.60
    assert limits.limit("exposed_communication", "info") == 0.30
    assert limits.limit("prefix_hits_least", "warning") == 0.90
    plain = {finding.id for finding in breakdown("llama3-8b-tp2").findings}
    theirs = {finding.id for finding in breakdown("llama3-8b-tp2", thresholds=file).findings}
    assert "exposed_communication" in plain and "exposed_communication" not in theirs
    assert "attention_share" not in theirs


def test_the_example_rules_load_and_name_their_kernels(root: Path) -> None:
    rules = load_rules(root / "docs" / "examples" / "kernel-rules.toml")
    assert rules.users == 3
    assert rules.category("acme_k17<16>") == "norm_act"
    assert load_rules().category("acme_k17<16>") == "other"
    assert rules.category("acme::pack_int4", "cpu_op") == "quantize"


def test_rules_in_the_text_are_rules(root: Path, tmp_path: Path) -> None:
    text = (root / "docs" / "own-rules-and-thresholds.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    files = [tmp_path / "rules.toml", tmp_path / "thresholds.toml"]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    assert load_rules(files[0]).users == 1
    assert set(load_thresholds(files[1]).changed) == {"host_bound.warning", "attention_share.warning"}
