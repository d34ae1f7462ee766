"""What the terminal says of the roofline."""

import shutil
from pathlib import Path

import pytest

from perflab.tasks.breakdown import breakdown
from perflab.terminal.rooflines import rooflines


def said(path: Path) -> str:
    return rooflines(breakdown(path).passes[0])


def test_a_row_a_phase_with_its_verdict(root: Path) -> None:
    text = said(root / "data" / "recorded" / "llama3-70b-bf16-tp2")
    lines = text.splitlines()
    assert lines[0] == "What bounds a step? H200 SXM: BF16 990 TFLOP/s, 4.8 TB/s; rank 0"
    decode = next(line for line in lines if line.strip().startswith("decode"))
    assert "bound by memory bandwidth" in decode and "of bandwidth" in decode
    mixed = next(line for line in lines if line.strip().startswith("mixed"))
    assert "bound by compute" in mixed and "of compute" in mixed
    assert "Memory's bandwidth in decode" in text
    assert "has 512 tokens" in " ".join(text.split()), "where attention's KV tokens come from"


def test_what_is_missing_is_said_instead(root: Path, tmp_path: Path) -> None:
    trace = next((root / "data" / "recorded" / "llama3-8b-bf16" / "profile" / "torch").glob("rank0*"))
    shutil.copy(trace, tmp_path / "rank0.1.pt.trace.json.xz")
    assert "config.json is missing" in said(tmp_path)


@pytest.mark.parametrize("name", ["llama3-8b-awq", "llama3-8b-eager", "llama3-8b-fp8"])
def test_lines_fit_a_terminal(name: str, root: Path) -> None:
    assert max(map(len, said(root / "data" / "recorded" / name).splitlines())) <= 130
