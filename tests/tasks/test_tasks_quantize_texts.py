"""Text to score and to calibrate with: what any machine has, own files, disjointness, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflab.errors import InputError
from perflab.experiment.study import TextSpec
from perflab.tasks.quantize.texts import Document, Text, text_to_calibrate, text_to_score

LONG = "The quick brown fox jumps over the lazy dog and says hello to everyone it meets on its way home. "


@pytest.fixture(scope="module")
def english():
    return text_to_score(TextSpec())


def test_english_is_there_on_any_machine(english):
    assert len(english.documents) >= 70
    assert sum(len(one.text) for one in english.documents) > 400_000
    assert any(one.name == "assert" and "debugging assertions" in one.text for one in english.documents)


def test_calibration_shares_no_passage_with_what_is_scored(english):
    calibration, left_out = text_to_calibrate(TextSpec(), english)
    assert len(calibration.documents) > 100
    whole = "\n".join(" ".join(one.text.split()).lower() for one in english.documents)
    for one in calibration.documents:
        plain = " ".join(one.text.split()).lower()
        starts = range(0, len(plain) - 120, 6007)
        # Any 120 characters hold 100 that begin at a word.
        assert not any(plain[at : at + 120] in whole for at in starts)
    assert left_out >= 1  # the module that prints the topics says some of them itself


def test_own_files_text_and_lines(tmp_path):
    (tmp_path / "a.txt").write_text(LONG * 4)
    rows = [{"text": LONG * 3}, LONG * 5, {"text": "short"}, {"content": LONG * 3}]
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    found = text_to_score(TextSpec(False, (tmp_path / "a.txt", tmp_path / "b.jsonl")))
    assert [one.name for one in found.documents] == ["a.txt", "b.jsonl:1", "b.jsonl:2", "b.jsonl:4"]
    assert "a.txt" in found.what and "b.jsonl" in found.what


def test_the_same_own_file_for_both_is_refused(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text(LONG * 4)
    spec = TextSpec(False, (file,))
    with pytest.raises(InputError, match="shares a passage"):
        text_to_calibrate(spec, text_to_score(spec))


def test_own_lines_that_are_scored_are_left_out(tmp_path):
    other = "Something else altogether is written in this line, about ships and the sea and the people who sail. " * 3
    (tmp_path / "scored.txt").write_text(LONG * 4)
    (tmp_path / "both.jsonl").write_text(json.dumps("Before. " + LONG * 4) + "\n" + json.dumps(other) + "\n")
    scored = text_to_score(TextSpec(False, (tmp_path / "scored.txt",)))
    kept, left_out = text_to_calibrate(TextSpec(False, (tmp_path / "both.jsonl",)), scored)
    assert [one.text for one in kept.documents] == [other.strip()]
    assert left_out == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"\xff\xfe\x00bad", "not UTF-8"),
        ("a.txt", b"too short", "no document of at least"),
        ("a.jsonl", b'{"text": "x"}\n{broken', "no JSON"),
        ("a.jsonl", b'{"title": "x"}', "has no text"),
        ("a.jsonl", b"[1, 2]", "has no text"),
        ("a.jsonl", b"", "no document of at least"),
    ],
)
def test_malformed_files_are_named(tmp_path, name, content, said):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        text_to_score(TextSpec(False, (file,)))
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_the_line_of_a_bad_row_is_told(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(LONG * 3) + "\n{broken\n")
    with pytest.raises(InputError) as caught:
        text_to_score(TextSpec(False, (file,)))
    assert caught.value.line == 2


@given(st.lists(st.text(max_size=30), max_size=4), st.lists(st.text(max_size=30), max_size=4))
def test_the_hash_is_of_documents_not_of_their_join(one, other):
    def text(parts):
        return Text("x", tuple(Document(str(i), part) for i, part in enumerate(parts)))

    assert (text(one).sha256 == text(other).sha256) == (one == other)
