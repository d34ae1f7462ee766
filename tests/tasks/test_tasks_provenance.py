"""The facts that stand before any figure."""

from perflab.tasks.find import find_runs
from perflab.tasks.provenance import provenance


def test_a_captured_run_says_what_its_records_cost() -> None:
    captured, imported = provenance(find_runs("llama3-8b-bf16-3x, llama3-8b-tp2"))
    assert captured.step_records > 10_000
    assert captured.facts["Step records"].endswith("µs each to take")
    assert "Step records" not in imported.facts
    assert captured.facts["Engine"] == "vLLM 0.25.1 (gpu build)"
    assert captured.facts["Hardware"].startswith("NVIDIA H200 (140.4 GiB), driver 580")
    assert imported.facts["Hardware"] == "2 x NVIDIA H200"
    assert imported.facts["Tensor parallel"] == "2"
