"""The table of GPUs: names as they are printed, figures that agree with one another."""

import json
import re
from pathlib import Path

import pytest

from perflab.knowledge.gpus import gpu_spec, known_gpus

PRINTED = {
    "NVIDIA A100-SXM4-40GB": "A100 SXM 40 GB", "NVIDIA A100-SXM4-80GB": "A100 SXM 80 GB",
    "A100-SXM4-80GB": "A100 SXM 80 GB", "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB", "NVIDIA H100 80GB HBM3": "H100 SXM", "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL", "NVIDIA H200": "H200 SXM", "NVIDIA H200 NVL": "H200 NVL", "NVIDIA B200": "B200",
    "NVIDIA L40S": "L40S", "AMD Instinct MI300X": "MI300X", "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI300X OAM": "MI300X", "AMD_Instinct_MI300X_OAM": "MI300X",
}  # fmt: skip


@pytest.mark.parametrize("device", PRINTED)
def test_a_printed_name_finds_its_gpu(device: str) -> None:
    spec = gpu_spec(device)
    assert spec is not None
    assert spec.name == PRINTED[device]


@pytest.mark.parametrize(
    "device",
    [None, "", "NVIDIA H20", "NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "NVIDIA L40",
     "NVIDIA GH200 480GB", "AMD Instinct MI300A", "AMD Instinct MI325X", "NVIDIA A100-PG509-200", "Tesla T4"],
)  # fmt: skip
def test_what_is_not_in_the_table_is_not_guessed(device: str | None) -> None:
    assert gpu_spec(device) is None


def test_figures_are_dense_and_agree() -> None:
    h200, h100, b200, a100, mi300x = (
        gpu_spec(name)
        for name in (
            "NVIDIA H200",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA B200",
            "NVIDIA A100-SXM4-80GB",
            "AMD Instinct MI300X",
        )
    )
    assert h200 and h100 and b200 and a100 and mi300x
    assert h200.peak("bf16") == h200.peak("fp16") == 989.5e12, "half of the 1,979 of the sheet"
    assert h200.sparse_halved["bf16"] == 1979e12
    assert h200.peaks == h100.peaks, "the same chip with other memory"
    assert (h200.memory_bytes_per_s, h100.memory_bytes_per_s) == (4.8e12, 3.35e12)
    assert a100.peak("fp8") is None, "Ampere has no FP8 units"
    assert a100.peak("int8") == 624e12
    assert b200.peak("fp4") == 2 * (b200.peak("fp8") or 0) == 9e15
    # Two GPUs of a mesh have one link; eight use all seven.
    assert [mi300x.link.among(n) for n in (2, 4, 8)] == [64e9, 192e9, 448e9]
    assert [h200.link.among(n) for n in (2, 8)] == [450e9, 450e9]
    for name in PRINTED:
        spec = gpu_spec(name)
        assert spec is not None
        # Units of half the width are twice as fast on all of these.
        for narrow, wide in (("bf16", "tf32"), ("int8", "bf16"), ("fp8", "bf16")):
            if spec.peak(narrow):
                assert (spec.peak(narrow) or 0) / (spec.peak(wide) or 1) == pytest.approx(2, rel=0.02), (name, narrow)
        assert "data sheet" in spec.source
        # Below this intensity a GPU waits for its memory: between 100 and 500 operations a byte since Ampere.
        assert 100 < (spec.peak("bf16") or 0) / spec.memory_bytes_per_s < 500
    assert len(known_gpus()) == 12


def test_the_gpus_of_real_traces_are_known_or_said_to_be_unknown(shared: Path) -> None:
    names = set()
    for path in (shared / "fixtures" / "kineto").rglob("*.json"):
        text = path.read_text(errors="replace")[:20_000]
        if match := re.search(r'"deviceProperties":\s*(\[.*?\]\s*),\s*"', text, re.DOTALL):
            names |= {device.get("name") for device in json.loads(match[1])}
    known = {name for name in names if gpu_spec(name)}
    assert known <= set(PRINTED)
    assert names - known <= {"NVIDIA A100-PG509-200", "AMD Instinct MI210", "AMD Radeon Graphics", None, ""}
