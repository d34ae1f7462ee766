"""The harness sees what a reader would complain about, and a real report gives no reason to."""

from collections.abc import Callable
from pathlib import Path

import pytest
from browser.screenshots import VIEWS, View, chromium, look_at, main
from PIL import Image
from small_runs import small_run

from perflab.report import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="needs chromium or google-chrome on the path"),
]

WIDE = [View(1280, "light")]
TEXT = "<p>Enough text for a page that is meant to be read by somebody who looks for numbers and their meaning.</p>"
DRAWING = '<path d="M0 0H100V100H0Z" fill="#0072b2"/><path d="M20 20H60V60H20Z" fill="#fff"/>'
LABEL = '<g id="a-text_1" style="fill:#000">{}</g>'


@pytest.fixture
def wrong(tmp_path: Path) -> Callable[..., str]:
    """What the harness says about a page with this body, in one window."""

    def look(body: str, views: list[View] = WIDE) -> str:
        page = tmp_path / "page.html"
        page.write_text(f"<!DOCTYPE html><html><head><meta charset=utf-8></head><body>{body}</body></html>")
        return "; ".join(problem for one in look_at(page, tmp_path / "shots", views) for problem in one.problems)

    return look


def test_a_plain_page_is_fine(wrong: Callable[..., str]) -> None:
    assert wrong(TEXT) == ""


def test_an_empty_page_is_seen(wrong: Callable[..., str]) -> None:
    assert "blank" in wrong("") and "hardly any text" in wrong("")
    invisible = f'<div style="color:#fff">{TEXT}</div>'
    assert wrong(invisible) == "the page is blank"


def test_text_that_is_cut_off_is_seen(wrong: Callable[..., str]) -> None:
    clipped = (
        '<div class="box" style="width:200px;overflow:hidden;white-space:nowrap">' + "a very long line " * 9 + "</div>"
    )
    assert "div.box cuts off its content" in wrong(TEXT + clipped)
    low = f'<div style="height:10px;overflow:hidden">{TEXT}</div>'
    assert "high in 10" in wrong(TEXT + low)


def test_what_is_wider_than_the_window_is_seen_unless_it_scrolls(wrong: Callable[..., str]) -> None:
    wide = '<div style="width:1700px">wide</div>'
    said = wrong(TEXT + wide)
    assert "the page is 1" in said and "sticks out of the window" in said
    assert wrong(TEXT + f'<div style="overflow-x:auto">{wide}</div>') == ""
    assert wrong(TEXT + '<div style="width:600px">x</div>', [View(420, "light")]) != ""


def test_figures_must_show_something_say_what_and_keep_their_labels(wrong: Callable[..., str]) -> None:
    figure = '<figure><svg viewBox="0 0 100 100" width="200" height="200" {}>{}</svg></figure>'
    named = 'role="img" aria-label="Title"'
    assert wrong(TEXT + figure.format(named, DRAWING)) == ""
    assert "no text alternative" in wrong(TEXT + figure.format("", DRAWING))
    assert "is empty" in wrong(TEXT + figure.format(named, "")) and "blank" in wrong(TEXT + figure.format(named, ""))
    inside, outside = (LABEL.format(f'<path d="M{x} 90h30v8h-30z"/>') for x in (10, 85))
    assert wrong(TEXT + figure.format(named, DRAWING + inside)) == ""
    assert "is cut off at its edge (a-text_1)" in wrong(TEXT + figure.format(named, DRAWING + outside))


def test_a_picture_that_is_missing_is_seen(wrong: Callable[..., str]) -> None:
    said = wrong(f'{TEXT}<figure><img src="missing.png" alt="x" width="50" height="50"></figure>')
    assert "asks for file://" in said and "shows nothing" in said


def test_requests_scripts_and_dialogs_are_seen(wrong: Callable[..., str]) -> None:
    assert "asks for http://127.0.0.1:9/x.css" in wrong(
        f'{TEXT}<link rel="stylesheet" href="http://127.0.0.1:9/x.css">'
    )
    assert "script error" in wrong(f"{TEXT}<script>throw new Error('no')</script>")
    assert "console: oh" in wrong(f"{TEXT}<script>console.error('oh')</script>")
    assert "a dialog opened: 1" in wrong(f"{TEXT}<img src=x alt=y onerror=alert(1)>")


def test_a_real_report_with_html_in_its_names_has_nothing_wrong(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    page = report(run.path, tmp_path / "report.html", title="Small run", show_code=True)
    looks = look_at(page, tmp_path / "shots")
    assert {look.view.name: look.problems for look in looks if look.problems} == {}
    assert [look.view for look in looks] == list(VIEWS)
    brightness = {}
    for look in looks:
        with Image.open(look.picture) as picture:
            assert picture.width == look.view.width and picture.height > 2000
            brightness[look.view.name] = picture.convert("L").resize((1, 1)).getpixel((0, 0))
    assert brightness["1280-light"] > 180 and brightness["1280-dark"] < 80
    notebook = next((tmp_path / "report.notebooks").glob("03*.ipynb"))
    assert main([str(notebook), "-o", str(tmp_path / "of-notebook")]) == 0


def test_the_exit_status_says_whether_something_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<p>short</p>")
    assert main([str(page), "-o", str(tmp_path / "shots")]) == 1
    assert "hardly any text" in capsys.readouterr().out
