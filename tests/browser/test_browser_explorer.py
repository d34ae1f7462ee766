"""The explorer in JupyterLab, operated as a person does: wheel, drag, click, type, keys; looked at in both themes."""

from typing import Any

import pytest
from browser.lab import NARROW, NARROW_DARK, WIDE, WIDE_DARK, Lab, Notebook, Window
from small_runs import EVIL, small_run, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

_STATE = """() => { const s = document.querySelector('.pl').plState(), t = s.timeline;
  return { view: t.view, marked: t.marked, width: t.width, gutter: t.gutter, plot: t.plot, fresh: s.isFresh(),
           places: t.places.map(p => [p.label, p.rank, p.top, p.high]) }; }"""


_WORDS = """() => [...document.querySelectorAll('.pl-part')].flatMap(part => [...part.children].map(word => {
  const box = part.getBoundingClientRect(), its = word.getBoundingClientRect();
  const seen = its.top < box.bottom - 1 && its.width > 0;
  const whole = its.right <= box.right + 1 && its.bottom <= box.bottom + 1;
  return seen && !whole ? `${word.innerText} in ${Math.round(box.width)} px` : null; }).filter(Boolean))"""


class Page:
    """The explorer of an open notebook."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook, self.page = notebook, notebook.page
        self.timeline = self.page.locator("[data-view=timeline]")

    def state(self) -> dict[str, Any]:
        """What is drawn, once nothing is asked any more."""
        self.page.wait_for_function("() => document.querySelector('.pl').plState().isFresh()", timeout=60_000)
        self.notebook.wait()
        return self.page.evaluate(_STATE)

    def lane(self, label: str, rank: int = 0) -> float:
        """The middle of a lane, as part of the timeline's height."""
        state = self.state()
        top, high = next((top, high) for name, of, top, high in state["places"] if (name, of) == (label, rank))
        return (top + high / 2) / self.timeline.bounding_box()["height"]

    def rows(self) -> list[list[str]]:
        """The table of kernels."""
        return [
            [cell.strip() for cell in row.locator("td").all_inner_texts()]
            for row in self.page.locator(".pl-table tbody tr").all()
        ]

    def span(self) -> float:
        low, high = self.state()["view"]
        return high - low


def opened(lab: Lab, name: str, code: str) -> Any:
    path = write_notebook(
        lab.server.root / f"{name}.ipynb", ("code", f"from perflab.explorer import explore\n{code}", [])
    )
    return lab.notebook(path)


def ready(notebook: Notebook) -> Page:
    notebook.run_all()
    notebook.page.wait_for_selector(".pl-bars .pl-part")
    page = Page(notebook)
    page.state()
    return page


def test_the_timeline_is_zoomed_moved_and_summed_up(lab: Lab) -> None:
    with opened(lab, "timeline", "explore('llama3-8b-tp2-custom')") as notebook:
        page = ready(notebook)
        at = page.lane("stream 17", rank=1)
        low, high = page.state()["view"]
        state = page.state()
        under = (state["gutter"] + 0.5 * state["plot"]) / state["width"]
        for _ in range(5):
            notebook.wheel(page.timeline, (under, at), -120)
        near, far = page.state()["view"]
        assert far - near < 0.4 * (high - low) and (near + far) / 2 == pytest.approx((low + high) / 2, rel=1e-3)
        assert "shown" in page.page.locator(".pl-told").first.inner_text()

        notebook.hover(page.timeline, (under, at))
        tip = page.page.locator(".pl-timeline .pl-tip")
        tip.locator("dt", has_text="stream").wait_for()
        told = tip.inner_text()
        assert (
            "µs" in told
            and "17" in told
            and any(word in told for word in ("GEMM", "attention", "communication", "norm"))
        )

        notebook.drag(page.timeline, (0.7, at), (0.5, at))
        moved = page.state()["view"]
        assert moved[0] > near and moved[1] - moved[0] == pytest.approx(far - near)

        page.page.keyboard.down("Shift")
        notebook.drag(page.timeline, (0.3, at), (0.6, at))
        page.page.keyboard.up("Shift")
        marked = page.state()["marked"]
        assert marked[1] - marked[0] == pytest.approx(0.3 * state["width"] / state["plot"] * (far - near), rel=0.02)
        sums = page.page.locator("[data-view=sums]")
        assert sums.inner_text().count("busy") == 2 and "idle" in sums.inner_text()
        notebook.shoot("marked")

        page.timeline.press("Escape")
        assert page.state()["marked"] is None and sums.inner_text() == ""
        page.timeline.press("ArrowRight")
        assert page.state()["view"][0] > moved[0]
        page.timeline.press("-")
        assert page.span() > far - near
        page.timeline.press("Home")
        assert page.state()["view"] == pytest.approx([low, high])
        page.timeline.press("End")
        assert page.span() > 5 * (high - low)
        page.timeline.dblclick(position={"x": 400, "y": 100})
        assert page.state()["view"] == pytest.approx([low, high])
        assert notebook.problems() == []


def test_views_are_linked_and_look_right(lab: Lab) -> None:
    with opened(lab, "linked", "w = explore(['llama3-8b-tp2-custom', 'llama3-8b-eager'])\nw") as notebook:
        page = ready(notebook)
        page.page.wait_for_function("() => document.querySelectorAll('.pl-bars .pl-row-name').length === 3")
        for window in (WIDE, WIDE_DARK, NARROW, Window(640, "dark")):
            notebook.view(window)
            page.state()
            assert notebook.looks() == []
            assert page.page.evaluate(_WORDS) == [], "words in a bar are seen whole or not at all"
            notebook.shoot()
        notebook.view(WIDE)

        heading = page.page.locator(".pl-page h3").nth(2)
        before = heading.inner_text()
        notebook.click("prefill")
        page.state()
        assert "(prefill)" in heading.inner_text() and heading.inner_text() != before
        steps = page.page.locator("[data-view=steps]")
        steps.press("End")
        steps.press("Enter")
        page.state()
        assert "(decode)" in heading.inner_text()

        box = page.page.locator(".pl-search")
        box.press_sequentially("flash")
        page.state()
        found = page.rows()
        assert found and all("flash" in row[0] for row in found)
        assert "names" in page.page.locator(".pl-found").inner_text()
        low, high = page.state()["view"]
        box.press("Enter")
        page.state()
        assert page.span() < 0.2 * (high - low) and " of " in page.page.locator(".pl-found").inner_text()
        notebook.shoot("found")
        page.page.get_by_label("Regular expression").click()
        box.fill("(")
        page.page.locator(".pl-found", has_text="no regular expression").wait_for()
        box.fill("")
        # The table is of what is in view, and the view is that of the kernel found.
        page.timeline.press("Home")
        page.state()
        page.page.locator(".pl-legend [data-category=gemm]").click()
        page.state()
        assert {row[0].split("_")[0] for row in page.rows()} == {"nvjet", "cublasLt::splitKreduce"}

        page.page.get_by_label("Run", exact=True).select_option("llama3-8b-eager")
        page.page.locator(".pl-mine", has_text="llama3-8b-eager").wait_for()
        assert page.state()["places"][0][1] == 0
        assert notebook.problems() == []


def test_code_steers_the_page(lab: Lab) -> None:
    path = write_notebook(
        lab.server.root / "steered.ipynb",
        ("code", "from perflab.explorer import explore\nw = explore('llama3-8b-bf16', step=2)\nw", []),
    )  # fmt: skip
    with lab.notebook(path) as notebook:
        page = ready(notebook)
        assert page.page.locator(".pl-page h3").nth(2).inner_text().startswith("Step 2 ")
        notebook.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({ code: 'w.step = 5; w.text = \"nvjet\"' }).done"
        )
        page.page.locator(".pl-page h3", has_text="Step 5 ").wait_for()
        page.state()
        assert page.rows() and all("nvjet" in row[0] for row in page.rows())
        assert notebook.problems() == []


def test_what_a_trace_calls_a_kernel_is_only_text(lab: Lab) -> None:
    run = small_run(lab.server.root / "evil")
    with opened(lab, "evil", f"explore({str(run.path)!r})") as notebook:
        page = ready(notebook)
        assert any(EVIL in row[0] for row in page.rows())
        page.page.locator(".pl-name", has_text="onerror").click()
        page.state()
        notebook.hover(page.timeline, (0.55, page.lane("stream 7")))
        assert page.page.locator(".pl img").count() == 0
        assert notebook.problems() == []


def test_from_requests_to_their_cause_and_on_to_kernels(lab: Lab) -> None:
    with opened(lab, "requests", "explore('llama3-8b-tp2-custom', tab='requests')") as notebook:
        notebook.run_all()
        page = Page(notebook)
        plot = page.page.locator("[data-view=requests]")
        page.page.locator(".pl-told-wide", has_text="over when they were sent").wait_for()
        notebook.wait()
        notebook.drag(plot, (0.03, 0.05), (0.99, 0.5))
        cause = page.page.locator("[data-view=cause]")
        cause.locator("h3").wait_for()
        assert "TTFT above that of the others mostly by" in cause.inner_text()
        assert "chosen (" in cause.inner_text() and "all others (" in cause.inner_text()
        page.page.locator("[data-view=steps-of-request]").wait_for()
        for window in (WIDE, NARROW_DARK):
            notebook.view(window)
            notebook.wait()
            assert notebook.looks() == []
            notebook.shoot()
        notebook.view(WIDE)

        notebook.click("E2EL")
        page.page.locator("[data-view=cause] h3", has_text="E2EL above").wait_for()
        life = page.page.locator("[data-view=steps-of-request]")
        for _ in range(60):
            life.press("ArrowRight")
            life.press("Enter")
            notebook.wait()
            if page.page.locator(".pl-go").count():
                break
        notebook.shoot("similar")
        button = page.page.locator(".pl-go").first
        step = button.inner_text().split()[1]
        button.click()
        page.page.wait_for_selector(".pl-bars .pl-part")
        page.state()
        assert page.page.locator(".pl-page h3").nth(2).inner_text().startswith(f"Step {step} ")
        assert notebook.problems() == []
