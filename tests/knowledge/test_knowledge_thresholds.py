"""Every figure has its reason, and every sentence of checks and findings is said somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from perflab.knowledge.thresholds import threshold
from perflab.messages import catalogue


def test_every_threshold_says_why_and_is_used(root: Path) -> None:
    table = tomllib.loads((root / "perflab" / "knowledge" / "thresholds.toml").read_text())
    code = "\n".join(path.read_text() for path in (root / "perflab" / "analysis").glob("*.py"))
    for name, entry in table.items():
        assert len(entry.pop("why")) > 30, name
        assert all(isinstance(value, int | float) and value >= 0 for value in entry.values()), name
        assert f'"{name}"' in code, f"{name} is used nowhere"


def test_a_missing_threshold_is_a_bug() -> None:
    assert threshold("other_share", "warn") == 0.03
    with pytest.raises(KeyError):
        threshold("other_share", "maybe")


def test_no_sentence_of_checks_and_findings_is_orphaned(root: Path) -> None:
    code = "\n".join(path.read_text() for path in (root / "perflab" / "analysis").glob("*.py"))
    asked = set(re.findall(r'"((?:trust|validity|finding)\.[a-z_.]+)"', code))
    there = {name for name in catalogue() if name.split(".")[0] in ("trust", "validity", "finding")}
    assert there == asked
