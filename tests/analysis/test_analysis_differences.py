"""What differs between two runs: what was varied, what follows from it, what should not differ."""

from perflab.analysis.compare.differences import differences


def test_a_single_difference_is_what_was_varied() -> None:
    found = differences({"quantization": None, "dtype": "bfloat16"}, {"quantization": "awq", "dtype": "float16"})
    assert [(one.key, one.expected, one.follows) for one in found.found] == [
        ("quantization", True, None),
        ("dtype", True, "quantization"),
    ]
    assert [one.key for one in found.varied] == ["quantization"]
    assert found.unexpected == ()


def test_of_several_differences_none_is_taken_for_the_one_that_was_meant() -> None:
    before, after = {"enforce_eager": True, "GPU": "A"}, {"enforce_eager": False, "GPU": "B"}
    assert [one.key for one in differences(before, after).unexpected] == ["GPU", "enforce_eager"]
    named = differences(before, after, ["enforce_eager"])
    assert [one.key for one in named.varied] == ["enforce_eager"]
    assert [one.key for one in named.unexpected] == ["GPU"]


def test_dtype_alone_stands_for_itself() -> None:
    found = differences({"dtype": "bfloat16"}, {"dtype": "float16"})
    assert [(one.key, one.follows) for one in found.found] == [("dtype", None)]


def test_a_chain_ends_at_what_was_varied() -> None:
    before = {"enforce_eager": True, "compilation_config.cudagraph_mode": "NONE", "compilation_config.cudagraph_x": 0}
    after = {"enforce_eager": False, "compilation_config.cudagraph_mode": "FULL", "compilation_config.cudagraph_x": 1}
    found = differences(before, after)
    assert [one.key for one in found.own] == ["enforce_eager"]
    assert all(one.expected for one in found.found)


def test_what_one_side_does_not_tell_is_no_difference() -> None:
    found = differences({"torch": "2.11", "dtype": "bfloat16"}, {"dtype": "bfloat16", "driver": "580"})
    assert found.found == () and found.untold == ("driver", "torch")


def test_the_load_is_never_taken_for_what_was_varied() -> None:
    found = differences({"load: concurrency": 8}, {"load: concurrency": 16})
    assert [(one.key, one.expected) for one in found.found] == [("load: concurrency", False)]
    named = differences({"load: concurrency": 8}, {"load: concurrency": 16}, ["load: concurrency"])
    assert named.found[0].expected


def test_what_starting_the_engine_gave_is_no_setting() -> None:
    found = differences({"kv_cache_size_tokens": 10}, {"kv_cache_size_tokens": 20})
    assert found.own == () and found.found[0].expected
