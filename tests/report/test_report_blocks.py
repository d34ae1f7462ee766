"""Pieces of a page: what they say, and that whatever a run brought along comes out as text."""

from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import EVIL

from perflab.messages import say
from perflab.report import blocks
from perflab.report.tables import table_html


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).replace("\u00a0", " ").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "id": "idle.host", "severity": "warning", "confidence": 0.9, "title": "The GPU waits",
        "impact": {"value": 1.84, "unit": "ms/step"}, "evidence": ["1.84 ms of 5.27 ms"],
        "change": "Drop `--enforce-eager`.", "check": "vllm bench serve --seed 1", "run": "a",
    } | changes  # fmt: skip


def check(status: str = "pass", **changes: Any) -> dict[str, Any]:
    return {"check": "c", "status": status, "detail": "All is there.", "undermines": ["breakdown"], **changes}


EVERYWHERE = {
    "text": blocks.text_html(f"**a** {EVIL}"),
    "runs": blocks.runs_html([{"run": EVIL, "facts": [(EVIL, EVIL)], "notes": [EVIL]}]),
    "trust": blocks.trust_html(
        [check("fail", detail=EVIL, source=EVIL, undermines=[EVIL]), check(detail=EVIL)], title=EVIL
    ),
    "findings": blocks.findings_html(
        [finding(id=EVIL, title=EVIL, evidence=[EVIL], change=EVIL, check=EVIL, run=EVIL, severity=EVIL)]
    ),
    "answer": blocks.answer_html([EVIL]),
    "machine": table_html(pd.DataFrame({"run": ["a"], "machine": [EVIL]})),
    "file": blocks.file_html(EVIL, EVIL),
    "caution": blocks.caution_html(EVIL),
    "table": table_html(pd.DataFrame({"name": [EVIL], EVIL: [EVIL], "dur_ns": [1]}), caption=EVIL),
    "long name": table_html(pd.DataFrame({"name": [f'void k<{"x" * 200}>("{EVIL}")']})),
}  # fmt: skip


@pytest.mark.parametrize("piece", EVERYWHERE)
def test_html_in_names_stays_text(piece: str) -> None:
    page = Page(EVERYWHERE[piece])
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    if piece != "long name":
        assert EVIL in page.text


@given(st.text(alphabet="<>&\"'`*-[](){}!javascript:/ \n=", max_size=200))
def test_no_prose_makes_tags_of_its_own(text: str) -> None:
    assert {tag for tag, _ in Page(blocks.text_html(text)).tags} <= {"div", "p", "ul", "li", "strong", "code", "span"}


def test_prose_has_strong_code_and_lists() -> None:
    page = blocks.text_html("A **b** `c`.\n\n- one\n- two 5 % of 3 ms")
    assert "<strong>b</strong> <code>c</code>" in page
    assert page.count("<li>") == 2
    assert "5\u00a0% of 3\u00a0ms" in page


def test_a_line_breaks_neither_in_an_option_nor_behind_a_minus() -> None:
    page = blocks.text_html("GEMM -7.67 ms (-33.5 %) with `--max-num-seqs 8`, as c-1 and `top -1`")
    assert "GEMM \u22127.67\u00a0ms (\u221233.5\u00a0%)" in page and "as c-1" in page
    assert '<code><span class="flag">--max-num-seqs</span> 8</code>' in page and "<code>top -1</code>" in page
    command = blocks.command_html("vllm bench serve --num-prompts 128")
    assert '<span class="flag">--num-prompts</span> 128' in command and "num-prompts 128" in Page(command).text


def test_what_claims_nothing_has_no_confidence() -> None:
    assert "Confidence" not in Page(blocks.findings_html([finding(confidence=0.0)])).text


def test_facts_stand_side_by_side_and_notes_once() -> None:
    runs = [
        {"run": "a", "facts": [("Run", "A"), ("Hardware", "H200")], "notes": ["Weights are random.", "Only a."]},
        {"run": "b", "facts": [("Run", "B")], "notes": ["Weights are random."]},
    ]
    page = Page(blocks.runs_html(runs))
    assert page.text.startswith("What ran a b Run A B Hardware H200 –")
    assert page.text.count("Weights are random.") == 1
    assert page.text.endswith("Only a. a")


def test_what_failed_is_told_and_what_passed_is_folded_away() -> None:
    html = blocks.trust_html([check(detail="Fine."), check("warn", detail="Few."), check("fail", detail="Cut off.")])
    opened, folded = html.split("<details>")
    assert "Few." in opened and "Cut off." in opened and "Fine." not in opened
    assert "Fine." in folded
    assert say("report.trust.fail", n=3, fail=1) in opened


def test_the_same_said_of_several_points_is_said_once() -> None:
    html = blocks.trust_html([check("warn", source="a, c1"), check("warn", source="b, c1")])
    assert html.count("All is there.") == 1
    assert "a, c1; b, c1" in html
    several = blocks.trust_html([check("warn", source=source) for source in ("a, c1", "a, c32", "b (pass)")])
    assert "a, c1, c32; b (pass)" in several
    titles = blocks.trust_html([check("warn", source=f"Llama 8B, BF16, {n} x H200") for n in (1, 2)])
    assert "Llama 8B, BF16, 1 x H200; Llama 8B, BF16, 2 x H200" in titles
    assert say("report.trust.warn", n=2, warn=2) in html, "each counts, as on the first page"


def test_nothing_checked_is_not_all_passed() -> None:
    assert say("report.trust.none") in Page(blocks.trust_html([])).text


def test_a_finding_says_what_how_sure_why_and_what_to_do() -> None:
    page = Page(blocks.findings_html([finding()], blocks.anchors([finding()], "s2-")))
    for part in (
        "The GPU waits",
        "Impact: 1.84 ms/step",
        "Confidence 90 %",
        "1.84 ms of 5.27 ms",
        "vllm bench serve",
    ):
        assert part in page.text
    assert page.all("article")[0]["id"] == "s2-finding-idle-host-a"


def test_two_findings_of_one_rule_and_run_have_cards_of_their_own() -> None:
    twice = [finding(title="Prefill"), finding(title="Decode"), finding(run="b")]
    ids = [card["id"] for card in Page(blocks.findings_html(twice, blocks.anchors(twice, "s1-"))).all("article")]
    assert sorted(filter(None, ids)) == sorted(blocks.anchors(twice, "s1-")) and len(set(ids)) == 3


def test_rows_of_different_machines_stand_under_their_machine() -> None:
    frame = pd.DataFrame({"run": ["a", "b", "c"], "rate": [1, 2, 3], "machine": ["H200", "CPU", "H200"]})
    page = Page(table_html(frame))
    assert page.text == "run rate H200 a 1 c 3 CPU b 2"
    assert [head.get("scope") for head in page.all("th")] == ["col", "col", "rowgroup", "rowgroup"]


@pytest.mark.parametrize(
    ("impact", "text"),
    [(None, ""), ({"value": None, "unit": "ms"}, ""), ({"value": 0.354, "unit": "share"}, "35.4 %"),
     ({"value": 1234.5, "unit": "tokens/s"}, "1,234 tokens/s")],
)  # fmt: skip
def test_impact_in_words(impact: dict[str, Any] | None, text: str) -> None:
    assert blocks.impact_text(impact) == text


def cells(html: str) -> list[str]:
    return Page(html.replace("<td", " | <td")).text.split(" | ")


def test_a_column_has_one_unit() -> None:
    frame = pd.DataFrame(
        {"dur_ns": [1_500_000, 40_000, 2_000_000], "bytes": [2**30, 2**31, 2**29], "share": [0.5, 0, 1]}
    )
    heads, *values = cells(table_html(frame))
    assert heads.split(" (") == ["dur", "ms) bytes", "GiB) share", "%)"]
    assert values == ["1.50", "1.00", "50.0", "0.0400", "2.00", "0.0", "2.00", "0.50", "100.0"]


def test_what_was_not_measured_is_a_dash_never_zero() -> None:
    frame = pd.DataFrame(
        {"ttft_p50_ms": pd.array([None, 0.0], "Float64"), "n": pd.array([None, 3], "Int64"), "w": [None, "x"]}
    )
    _, *values = cells(table_html(frame))
    assert values == ["–", "–", "–", "0", "3", "x"]


def test_long_tables_say_what_was_left_out_and_empty_ones_that_they_are() -> None:
    assert "(the first 2 of 5)" in table_html(pd.DataFrame({"a": range(5)}), limit=2)
    assert "no rows" in table_html(pd.DataFrame({"a": []}))
