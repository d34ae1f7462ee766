"""Cutting and decoding events in blocks."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perflab.errors import InputError
from perflab.read.trace_events import MAX_EVENT, EventStream

# Text that looks like structure, in names and arguments.
nasty = st.lists(
    st.sampled_from(["}, {", '"', "\\", "]", "}],", '{"ph":', '"traceEvents": [', "\n", "é", "x", " ", '\\"}']),
    max_size=4,
).map("".join)
values = st.recursive(
    st.one_of(nasty, st.integers(-5, 5), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(nasty, inner, max_size=3)),
)
arguments = st.dictionaries(nasty, values, max_size=3)
events = st.lists(st.fixed_dictionaries({"ph": st.just("X"), "name": nasty, "args": arguments}), max_size=12)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " : ")])
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def names(stream):
    return [event.name for batch in stream for event in batch]


def written(tmp_path, text, name="t.json"):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@quick
@given(events, separators, st.sampled_from([None, 2]), st.integers(20, 3000), st.booleans())
def test_any_layout_and_block_size(tmp_path, some, separators, indent, block, bare):
    whole = (
        some
        if bare
        else {"schemaVersion": 1, "x": [{"a": 1}, {"b": 2}], "traceEvents": some, "y": [{"c": 3}, {"d": "}, {"}]}
    )
    file = written(tmp_path, json.dumps(whole, separators=separators, indent=indent))
    stream = EventStream(file, block=block)
    assert names(stream) == [event["name"] for event in some]
    assert (stream.truncated, stream.unreadable, stream.damage) == (False, 0, None)
    if not bare:
        assert stream.header == {"schemaVersion": 1, "x": [{"a": 1}, {"b": 2}], "y": [{"c": 3}, {"d": "}, {"}]}


@quick
@given(events.filter(len), separators, st.integers(20, 3000), st.floats(0, 1))
def test_cut_anywhere_keeps_what_was_whole(tmp_path, some, separators, block, share):
    head = '{"schemaVersion": 1, "traceEvents": ['
    parts = [json.dumps(event, separators=separators) for event in some]
    text = head + ",".join(parts) + "]}"
    cut = len(head) + int(share * (len(text) - 1 - len(head)))
    whole, end = 0, len(head)
    for part in parts:
        end += len(part)
        whole += end <= cut
        end += 1
    stream = EventStream(written(tmp_path, text[:cut]), block=block)
    assert names(stream) == [event["name"] for event in some[:whole]]
    assert stream.truncated
    assert stream.unreadable == 0


def event(name, more=""):
    return f'{{"ph": "X", "name": "{name}", "args": {{"a": 1{more}}}}}'


def trace(*parts, tail="]}"):
    return '{"schemaVersion": 1, "traceEvents": [' + ", ".join(parts) + tail


@pytest.mark.parametrize("block", [40, 1 << 20])
@pytest.mark.parametrize("odd, kept", [
    (event("odd", ', "b": NaN'), True), (event("odd", ', "b": -Infinity'), True),
    (event("odd", ', "b": [inf, nan]'), True),
    ('{"ph": "X", "name": "odd", "args": {"s": "NaN\tInfinity"}}', True),
    ('{"ph": "X", "name": "od\nd"}', True),
    ('{"ph": "X", "name": 5, "args": {"device": {}}}', False), ('{"ph": 7}', False),
    ("5", False), ('"a string"', False),
    ("garbage", False), ('{"ph": "X", "na{"ph": "X"}', False), ('{"ph": "X" "name": "odd"}', False),
    ("{" * 20, False),
])  # fmt: skip
def test_odd_events_are_read_around(tmp_path, block, odd, kept):
    stream = EventStream(
        written(tmp_path, trace(event("a"), odd, event("b"), event("c"), tail='], "z": 1}')), block=block
    )
    found = names(stream)
    assert [name for name in found if name in ("a", "b", "c")] == ["a", "b", "c"] if kept else found[-1] == "c"
    assert len(found) == 3 + kept
    assert (stream.unreadable == 0) == kept
    assert (stream.damage is None) == kept
    assert stream.header == {"schemaVersion": 1, "z": 1}
    assert not stream.truncated


@pytest.mark.parametrize("odd", ['{"ph": 7}', "garbage", event("last", ', "b": NaN')])
def test_odd_last_event_does_not_hide_the_end(tmp_path, odd):
    stream = EventStream(written(tmp_path, trace(event("a"), odd, tail='], "z": [{"q": 1}, {"q": 2}]}')))
    assert names(stream)[0] == "a"
    assert stream.header["z"] == [{"q": 1}, {"q": 2}]
    assert not stream.truncated


def test_damage_says_where(tmp_path):
    bad = '{"ph": "X" "b"}'
    text = trace(event("a"), bad, event("c"))
    stream = EventStream(written(tmp_path, text))
    assert names(stream) == ["a", "c"]
    assert stream.damage == f"not an event at byte {text.index(bad)} of the text"


def test_two_writers_in_one_file(tmp_path):
    good = ", ".join(event(f"e{n}") for n in range(50))
    text = trace(good, '{"ph": "X", "name": "cut he' + trace(*(event(f"f{n}") for n in range(50))))
    stream = EventStream(written(tmp_path, text), block=1000)
    found = names(stream)
    assert found[:50] == [f"e{n}" for n in range(50)]
    assert set(found) >= {f"f{n}" for n in range(1, 50)}
    assert stream.unreadable >= 1


def test_nan_behind_damage(tmp_path):
    text = trace(event("a"), '{"ph": "X", "na", {"ph": "X" "', event("c", ', "b": nan'), event("d"))
    stream = EventStream(written(tmp_path, text))
    assert names(stream)[-1] == "d"


def test_bad_utf8_and_bom(tmp_path):
    text = b"\xef\xbb\xbf" + trace(event("a"), event("bad"), event("c")).encode().replace(b"bad", b"b\xffd")
    stream = EventStream(written(tmp_path, text))
    assert names(stream) == ["a", "b�d", "c"]
    assert stream.unreadable == 0


def test_an_event_across_many_blocks(tmp_path):
    big = event("big", ', "s": "' + "x}, {" * 20_000 + '"')
    stream = EventStream(written(tmp_path, trace(event("a"), big, event("c"))), block=1000)
    assert names(stream) == ["a", "big", "c"]


def test_many_objects_within_an_event(tmp_path):
    big = event("big", ', "l": [' + ", ".join('{"k": 1}' for _ in range(3000)) + "]")
    stream = EventStream(written(tmp_path, trace(event("a"), big, event("c"))), block=4000)
    assert names(stream) == ["a", "big", "c"]


def test_endless_garbage_is_bounded(tmp_path):
    stream = EventStream(
        written(tmp_path, trace(event("a"), '{"ph": "' + "x" * (MAX_EVENT + (3 << 20)), event("c"), tail=""))
    )
    assert names(stream)[0] == "a"
    assert stream.truncated and stream.unreadable >= 1


def test_traceevents_in_strings_and_deeper_are_not_it(tmp_path):
    text = '{"a": "\\"traceEvents\\": [", "b": {"traceEvents": [{"name": "no"}]}, "traceEvents": [{"name": "yes"}]}'
    for block in (10, 1000):
        assert names(EventStream(written(tmp_path, text), block=block)) == ["yes"]


def test_numbers_json_does_not_know_in_the_header(tmp_path):
    stream = EventStream(written(tmp_path, '{"m": {"f": NaN, "g": 1}, "traceEvents": [], "z": Infinity}'))
    assert names(stream) == []
    assert stream.header == {"m": {"f": "", "g": 1}, "z": ""}


@pytest.mark.parametrize("text", [
    "", "{}", "[", "[1]", "[[1]]", "hello", '{"traceEvents": 5}', '{"traceEvents": {"a": []}}', '{"a": [1, 2',
    "{" * 1000,
])  # fmt: skip
def test_what_is_no_trace(tmp_path, text):
    stream = EventStream(written(tmp_path, text))
    if text == "[":
        assert names(stream) == [] and stream.truncated
    else:
        with pytest.raises(InputError, match="not a torch profiler"):
            list(stream)


def test_truncated_gzip(tmp_path):
    packed = gzip.compress(trace(*(event(f"e{n}") for n in range(20_000))).encode())
    stream = EventStream(written(tmp_path, packed[: len(packed) * 7 // 10], "t.json.gz"))
    found = names(stream)
    assert found == [f"e{n}" for n in range(len(found))]
    assert 10_000 < len(found) < 20_000
    assert stream.truncated and stream.damage == "the compressed file ends early"
