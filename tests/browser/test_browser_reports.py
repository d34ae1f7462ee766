"""Reports are read by everybody, by keyboard, in the dark, and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from browser.screenshots import CHROMIUM_FLAGS, VIEWS, chromium, look_at
from matplotlib import pyplot
from PIL import ImageStat

from perflab.plots import style
from perflab.plots.breakdown import plot_top_kernels
from perflab.report import blocks
from perflab.report.alternative import describe
from perflab.report.rendering import page_html
from perflab.report.show import MEDIA
from perflab.report.svg import svg_of
from perflab.report.tables import table_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="needs chromium or google-chrome on the path"),
]

ACCESS = Path(__file__).with_name("page_access.js").read_text(encoding="utf-8")
V4: Any = nbformat.v4
ROWS = 90
LINE = "A sentence of the usual length that says what the figure shows and how it was measured. "


def output(kind: str, html: str = "", **data: Any) -> Any:
    return V4.new_code_cell(
        "", outputs=[V4.new_output("display_data", {"text/html": html, MEDIA: {"kind": kind, **data}})]
    )


def figure(names: int) -> Any:
    categories = ["gemm", "attention", "moe", "quantize", "norm_act"]
    top = pd.DataFrame({
        "name": [f"kernel_{n}" for n in range(names)], "category": categories[:names],
        "count": 1, "dur_ns": [10**6 * (names - n) for n in range(names)], "share": 1 / names,
    })  # fmt: skip
    drawn = style.figure_of(plot_top_kernels(top))
    document = svg_of(drawn)
    told = describe(drawn)
    pyplot.close(drawn)
    cell = output("figure", **told)
    cell.outputs[0]["data"]["image/svg+xml"] = document
    return cell


def finding(n: int, severity: str) -> dict[str, Any]:
    return {
        "id": f"rule{n}", "severity": severity, "confidence": 0.9, "title": f"Finding {n} takes 12.5 % of a step",
        "impact": {"value": 1.5, "unit": "ms/step"}, "evidence": ["1.5 ms of 12 ms."], "change": "Set `--flag 1`.",
        "check": "vllm bench serve --model m", "run": "a",
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything a report can hold, several pages long on paper."""
    frame = pd.DataFrame({"run": [f"row {n}" for n in range(ROWS)], "dur_ns": range(10**6, 10**6 + ROWS), "share": 0.5})
    table = table_html(frame, caption="A long table", limit=ROWS)
    checks = [{"check": "c", "status": s, "detail": f"It {s}s.", "undermines": []} for s in ("pass", "warn", "fail")]
    run = {"run": "a", "title": "A", "facts": [["Run", "A"], ["Engine", "vLLM 1"]], "notes": ["Weights are random."]}
    run |= {"machine": "NVIDIA H200", "hardware": "NVIDIA H200", "engine": "vLLM 1", "created": "2026-01-01"}
    found = [finding(n, severity) for n, severity in enumerate(("critical", "warning", "info", "info"))]
    tiles = [{"label": "time per token", "value": "4.82 ms", "note": "c1"}]
    cells = [
        V4.new_markdown_cell("# Where does it go?\n\n" + LINE), output("runs", runs=[run]),
        output("answer", sentences=["A step takes **5 ms**, and GEMM is 80 % of it."], tiles=tiles),
        V4.new_markdown_cell("## Can it be trusted?\n\n" + LINE), output("trust", checks=checks),
    ]  # fmt: skip
    for n in range(8):
        cells += [V4.new_markdown_cell(f"## Question number {n}?\n\n" + LINE * 3), figure(2 + n % 4)]
    cells += [V4.new_markdown_cell("## All rows\n\n" + LINE), output("table", table, rows=ROWS, caption="A long table")]
    cells += [V4.new_markdown_cell("## What it means"), output("findings", findings=found)]
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page_html([V4.new_notebook(cells=cells)], title="A report"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def opened(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        made.append(browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        made[-1].goto(path.as_uri())
        return made[-1]

    yield opened
    for one in made:
        one.close()


def test_nothing_is_wrong_with_how_a_report_looks(page: Path, tmp_path: Path) -> None:
    assert {look.view.name: look.problems for look in look_at(page, tmp_path) if look.problems} == {}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_report_can_be_read_by_everybody(page: Path, tab: Callable[..., Any], view: Any) -> None:
    assert tab(page, view.width, view.scheme).evaluate(ACCESS) == []


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("<h4>Deep</h4>", "follows a heading of level 2"),
        ('<p style="color:#999;background:#fff">grey words</p>', "grey words\" has a contrast of 2.85"),
        ("<table><tr><th>x</th></tr></table>", "does not say of what"),
        ("<a href='#gone'>there</a>", "leads nowhere"),
        ("<a href='#content'></a>", "has no name"),
        ("<p id='content'>again</p>", "the id content is used twice"),
        (f'<figure><svg role="img" aria-label="{LINE}"></svg></figure>', "no number"),
        ("<div tabindex='0'>box</div>", "takes the focus and has no name"),
        ("<h1>Second</h1>", "not exactly one first heading"),
    ],
)  # fmt: skip
def test_what_keeps_somebody_out_is_seen(tab: Callable[..., Any], tmp_path: Path, planted: str, said: str) -> None:
    whole = '<a class="skip" href="#content">Skip</a><main id="content"><h1>A</h1><h2>B</h2>{}</main>'
    file = tmp_path / "page.html"
    for body, expected in ((whole.format("<p>fine</p>"), ""), (whole.format(planted), said)):
        file.write_text(f'<!DOCTYPE html><html lang="en"><head><title>t</title><meta charset=utf-8></head><body>{body}')
        found = "; ".join(tab(file).evaluate(ACCESS))
        assert (expected in found) if expected else found == ""


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(page: Path, tab: Callable[..., Any]) -> None:
    opened = tab(page)
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    assert opened.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "it shows itself"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "content"
    seen = []
    for _ in range(60):
        opened.keyboard.press("Tab")
        if opened.evaluate("document.activeElement === document.body"):
            break  # past the last one
        told = opened.evaluate(
            """() => { const e = document.activeElement, css = getComputedStyle(e);
            return [e.getBoundingClientRect().top + scrollY, css.outlineStyle, parseFloat(css.outlineWidth)]; }"""
        )
        seen.append(told)
    assert all(style != "none" and width >= 2 for _, style, width in seen)
    tops = [top for top, _, _ in seen]
    assert tops == sorted(tops) and len(set(tops)) > 10, "from top to bottom"


def paper(opened: Any) -> str:
    return str(opened.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_reader_chooses_light_or_dark_without_a_script(page: Path, tab: Callable[..., Any]) -> None:
    opened = tab(page, scheme="dark")
    assert paper(opened) == "rgb(21, 24, 28)"
    opened.get_by_label("light").check()
    assert paper(opened) == "rgb(255, 255, 255)"
    opened.get_by_label("dark").check()
    opened.emulate_media(color_scheme="light")
    assert paper(opened) == "rgb(21, 24, 28)"
    assert opened.evaluate(ACCESS) == []
    opened.emulate_media(media="print")
    assert paper(opened) == "rgb(255, 255, 255)", "whatever was chosen, paper is white"


def test_paper(page: Path, tab: Callable[..., Any], tmp_path: Path) -> None:
    """Light whatever the screen is; nothing cut, no heading left alone at a page's foot, heads of tables repeated."""
    pdfium = pytest.importorskip("pypdfium2")
    opened = tab(page, scheme="dark")
    opened.pdf(path=str(tmp_path / "page.pdf"), prefer_css_page_size=True, print_background=True)
    document = pdfium.PdfDocument(str(tmp_path / "page.pdf"))
    texts = [leaf.get_textpage().get_text_range() for leaf in document]
    lines = [[" ".join(line.split()) for line in text.splitlines() if line.strip()] for text in texts]
    assert len(texts) >= 5
    assert "Where does it go?" in texts[0] and "A step takes 5 ms" in texts[0] and "Finding 0" in texts[0]
    # Where letters are set apart pdfium takes each for a line.
    dense = ["".join(text.split()) for text in texts]
    rows = [n for n, text in enumerate(dense) if "row5" in text or "row80" in text]
    assert len(rows) > 1, "the table is longer than a page"
    for n in range(rows[0], rows[-1] + 1):
        assert "dur(ms)" in dense[n], f"page {n + 1} has rows without heads"
    assert f"row{ROWS - 1}" in "".join(dense), "what is folded away on the screen is on paper"
    headings = [f"1.{n + 2} Question number {n}?" for n in range(8)]
    assert all(any(heading in line for of in lines for line in of) for heading in headings)
    for of in lines:
        last = [line for line in of if "/" not in line or len(line) > 9][-1]
        assert last not in headings, f"{last} stands alone at the foot of a page"
    assert any(f"(see 1.{len(headings) + 3})" in " ".join(of) for of in lines), "links say where they lead"
    for leaf in document:
        picture = leaf.render(scale=1).to_pil().convert("L")
        width, height = picture.size
        assert ImageStat.Stat(picture).mean[0] > 200, "light"
        margin = picture.crop((width - 25, 0, width, height - 60))
        assert ImageStat.Stat(margin).extrema[0][0] > 240, "nothing runs out of the page"


def test_no_figure_is_taller_than_a_page(page: Path, tab: Callable[..., Any]) -> None:
    opened = tab(page, width=688)  # 182 mm, what A4 leaves between the margins
    opened.emulate_media(media="print")
    tall = opened.evaluate("[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().height)")
    assert tall and max(tall) < 990
    kept = opened.evaluate(
        "[...document.querySelectorAll('figure, tr, pre')].every(e => getComputedStyle(e).breakInside === 'avoid')"
    )
    assert kept


def test_findings_are_told_by_word_not_by_colour_alone() -> None:
    html = blocks.findings_html([finding(0, "critical")])
    assert ">critical<" in html
