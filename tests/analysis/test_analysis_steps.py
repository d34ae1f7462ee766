import analysis_tables as tables
import pytest

from perflab.analysis.steps import step_marks, step_of, steps_from_ranges
from perflab.schema import validate

PREFILL = "execute_context_2(512)_generation_0(0)"
MIXED = "execute_context_1(100)_generation_3(3)"
DECODE = "execute_context_0(0)_generation_8(8)"
DUMMY = "execute_context_0(0)_generation_0(0)"
DETAILED = "execute_32_context_1(sq20sk120sqsq400sqsk2400)_generation_12(sq12sk4785sqsq12sqsk4785)"


def test_a_step_runs_to_the_start_of_the_next() -> None:
    found = steps_from_ranges(
        tables.ranges(("device", 7, PREFILL, 100, 50), ("device", 7, DECODE, 170, 20), ("device", 7, MIXED, 200, 30)),
        tables.kernels({"start": 100, "dur": 50}, {"start": 205, "dur": 25}, {"start": 240, "dur": 5}),
    )
    assert validate(found, "steps") is found
    assert found["start_ns"].tolist() == [100, 170, 200]
    assert found["dur_ns"].tolist() == [70, 30, 45], "the last one holds its tail"
    assert found["forward_ns"].tolist() == [50, 20, 30]
    assert found["phase"].tolist() == ["prefill", "decode", "mixed"]
    assert found["prefill_tokens"].tolist() == [512, 0, 100]
    assert found["decode_requests"].tolist() == [0, 8, 3]
    assert found["kv_tokens"].isna().all() and found["kv_pairs"].isna().all()
    assert set(found["bounded_by"]) == {"device"}


def test_host_annotations_and_dummies_never_bound_device_time() -> None:
    found = steps_from_ranges(
        tables.ranges(
            ("host", 1, PREFILL, 0, 10),
            ("host", 1, DECODE, 12, 3),
            ("host", 1, DUMMY, 16, 1),
            ("device", 7, DUMMY, 90, 1),
            ("device", 7, PREFILL, 100, 50),
            ("device", 7, DECODE, 170, 20),
        ),
        tables.kernels({"start": 100, "dur": 90}),
    )
    assert found["start_ns"].tolist() == [100, 170]


def test_one_annotation_on_several_streams_is_one_step() -> None:
    found = steps_from_ranges(
        tables.ranges(
            ("device", 7, DECODE, 100, 50),
            ("device", 13, DECODE, 110, 60),
            ("device", 7, DECODE, 200, 50),
            ("device", 13, DECODE, 210, 30),
            ("device", 7, DECODE, 260, 50),
        ),
        tables.kernels({"start": 100, "dur": 210}),
    )
    assert found["start_ns"].tolist() == [100, 200, 260], "the same name again on one stream is another step"
    assert found["forward_ns"].tolist() == [70, 50, 50]


def test_the_last_step_ends_with_its_own_work() -> None:
    marks = tables.ranges(
        ("host", 1, DECODE, 50, 10),
        ("device", 7, DECODE, 100, 20),
        ("host", 1, DUMMY, 80, 1),
        ("host", 1, DUMMY, 400, 1),
    )
    work = tables.kernels(
        {"start": 100, "dur": 20, "correlation_id": 1},
        {"start": 125, "dur": 5, "correlation_id": 2},  # sampling, called for after the annotation
        {"start": 500, "dur": 5, "correlation_id": 3},  # called for after the next dummy had begun
    )
    calls = tables.launches({"id": 1, "start": 55}, {"id": 2, "start": 70}, {"id": 3, "start": 490})
    assert steps_from_ranges(marks, work, calls)["dur_ns"].tolist() == [30]
    assert steps_from_ranges(marks, work)["dur_ns"].tolist() == [405], "without launches nothing is known against it"


def test_detailed_annotations_tell_the_kv_tokens() -> None:
    found = steps_from_ranges(tables.ranges(("device", 7, DETAILED, 0, 5)), tables.kernels({"start": 0, "dur": 5}))
    # 20 new tokens after 100 see 101 to 120 tokens each; 12 that decode see all 4785 of theirs.
    assert found["kv_pairs"].tolist() == [sum(range(101, 121)) + 4785]
    row = found.iloc[0]
    assert (row["prefill_requests"], row["prefill_tokens"]) == (1, 20)
    assert (row["decode_requests"], row["decode_tokens"], row["kv_tokens"]) == (12, 12, 120 + 4785)
    assert row["phase"] == "mixed"


def test_steps_from_launches_where_the_device_was_not_annotated() -> None:
    found = steps_from_ranges(
        tables.ranges(("host", 1, PREFILL, 0, 10), ("host", 1, DUMMY, 12, 2), ("host", 1, DECODE, 20, 10)),
        tables.kernels(
            {"start": 100, "dur": 30, "correlation_id": 1},
            {"start": 140, "dur": 10, "correlation_id": 2},
            {"start": 155, "dur": 10, "correlation_id": 3},
        ),
        tables.launches({"id": 1, "start": 5}, {"id": 2, "start": 21}, {"id": 3, "start": 33}),
    )
    assert found["start_ns"].tolist() == [100, 140]
    assert found["dur_ns"].tolist() == [40, 25]
    assert found["forward_ns"].tolist() == [30, 10]
    assert set(found["bounded_by"]) == {"launches"}


def test_device_work_without_device_side_of_a_step_is_no_step() -> None:
    found = steps_from_ranges(tables.ranges(("host", 1, PREFILL, 0, 10)), tables.kernels({"start": 100, "dur": 30}))
    assert found.empty
    assert validate(found, "steps") is found


def test_a_cpu_engine_is_bounded_by_the_host() -> None:
    found = steps_from_ranges(
        tables.ranges(("host", 9, PREFILL, 0, 10), ("host", 9, DECODE, 12, 10), ("host", 9, DUMMY, 40, 1)),
        tables.kernels(
            {"kind": "cpu_op", "stream": 9, "start": 1, "dur": 8},
            {"kind": "cpu_op", "stream": 9, "start": 23, "dur": 4},  # sampling, after the annotation
            {"kind": "cpu_op", "stream": 8, "start": 30, "dur": 4},  # another thread
            {"kind": "cpu_op", "stream": 9, "start": 41, "dur": 4},  # the dummy's
        ),
    )
    assert found["dur_ns"].tolist() == [12, 15]
    assert set(found["bounded_by"]) == {"host"}


def test_ranks_are_apart() -> None:
    found = steps_from_ranges(
        tables.ranges(("device", 7, DECODE, 0, 5, 0), ("device", 7, DECODE, 3, 5, 1), ("device", 7, DECODE, 9, 5, 1)),
        tables.kernels({"start": 0, "dur": 5, "rank": 0}, {"start": 3, "dur": 11, "rank": 1}),
    )
    assert found["rank"].tolist() == [0, 1, 1]
    assert found["step"].tolist() == [0, 0, 1]
    assert found["dur_ns"].tolist() == [5, 6, 5]


def test_other_annotations_are_no_steps() -> None:
    marks = step_marks(tables.ranges(("device", 7, "## Call CompiledFxGraph fe ##", 0, 9), ("host", 1, DUMMY, 0, 9)))
    assert marks["dummy"].tolist() == [True]
    assert steps_from_ranges(tables.ranges(), tables.kernels()).empty


def test_step_of() -> None:
    rows = tables.steps(("prefill", 10, 10), ("decode", 20, 5))
    assert step_of([9, 10, 19, 20, 24, 25], rows).tolist() == [-1, 0, 0, 1, 1, -1]
    assert step_of([9], tables.steps()).tolist() == [-1]


@pytest.mark.parametrize("name", [PREFILL, MIXED, DECODE, DETAILED])
def test_names_inside_longer_text_count(name: str) -> None:
    assert len(step_marks(tables.ranges(("host", 1, f"vllm/{name}", 0, 1)))) == 1
