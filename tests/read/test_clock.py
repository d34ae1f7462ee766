"""Clock anchors as a capture writes them."""

import json
from pathlib import Path

import pytest

from perflab.capture.clock import anchor, write_anchors
from perflab.errors import InputError
from perflab.read.clock import read_clock


def test_what_a_capture_writes_is_read(tmp_path: Path) -> None:
    anchors = [anchor("c8", "before"), anchor("c8", "after"), anchor("c32", "before")]
    write_anchors(tmp_path / "clock.json", anchors)
    found = read_clock(tmp_path / "clock.json")
    assert [(one.point, one.when, one.perf_counter_ns, one.width_ns) for one in found.anchors] == [
        (one.point, one.when, one.perf_counter_ns, one.width_ns) for one in anchors
    ]
    assert [one.when for one in found.of_point("c8")] == ["before", "after"]
    assert found.of_point("nope") == ()
    assert found.anchors[0].offset_ns == anchors[0].time_ns - anchors[0].perf_counter_ns
    assert found.is_shared == ("CLOCK_MONOTONIC" in found.clock)


def test_a_recorded_file_is_read_compressed(root: Path) -> None:
    found = read_clock(root / "data/recorded/llama3-8b-bf16-3x/clock.json.xz")
    assert (len(found.anchors), found.clock, found.is_shared) == (24, "clock_gettime(CLOCK_MONOTONIC)", True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"anchors": 3}', json.dumps({"anchors": [{"point": "c8"}]})])
def test_what_is_no_clock_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "clock.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"clock\.json.*does not hold clock anchors"):
        read_clock(file)
