"""A new user's first five minutes: a trace of their own broken down and a report saved, in a real JupyterLab."""

import shutil
import time
from pathlib import Path

import pytest
from browser.lab import NARROW_DARK, WIDE, Lab, Notebook
from page_references import external_references

from perflab import places
from perflab.runs import is_run, open_run

pytestmark = [pytest.mark.browser, pytest.mark.notebooks, pytest.mark.timeout(600)]

FIVE_MINUTES_S = 300
DONE = "() => document.body.innerText.includes({text!r}) || document.querySelector('.problem')"


def until(notebook: Notebook, text: str, seconds: float = 240) -> None:
    notebook.page.wait_for_function(DONE.format(text=text), timeout=seconds * 1000)
    assert notebook.page.locator(".perflab-start .problem").all_inner_texts() == []


@pytest.fixture
def traces(lab: Lab) -> Path:
    """Both ranks of a pass, as a profiler leaves them."""
    run = open_run(places.recorded() / "llama3-8b-tp2")
    folder = lab.server.root / "traces"
    folder.mkdir(exist_ok=True)
    for name in run.manifest.profiles[0].traces:
        shutil.copyfile(run.file(name), folder / Path(name).name)
    return folder


def test_own_traces_are_broken_down_and_a_report_saved_within_five_minutes(lab: Lab, traces: Path) -> None:
    began = time.monotonic()
    with lab.notebook("00_start_here.ipynb") as notebook:
        notebook.run_all()
        offered = notebook.options("found")
        both = [option for option in offered if option.replace("\xa0", " ").startswith("traces · 2 traces")]
        assert len(both) == 1, offered
        notebook.select("found", both[0])
        until(notebook, "2 files, each a torch profiler")
        notebook.click("Break it down")
        until(notebook, "and broke it down")
        text = notebook.page.locator("body").inner_text()
        assert "Where the time goes" in text and "a decode step takes" in text
        notebook.click("Save report")
        until(notebook, "Open the report")
        took = time.monotonic() - began
        assert took < FIVE_MINUTES_S
        report = lab.server.root / "reports" / "traces.html"
        assert is_run(lab.server.root / "runs" / "traces") and external_references(report.read_text()) == []
        assert notebook.problems() == []
        for window in (WIDE, NARROW_DARK):
            notebook.view(window)
            assert notebook.looks() == []
            notebook.shoot("broken-down")
        notebook.view(WIDE)
        notebook.page.get_by_role("link", name="Open the report").click()
        notebook.page.wait_for_selector(".lm-TabBar-tab:has-text('traces.html')")


def test_a_path_is_typed_and_what_is_no_trace_is_said_in_a_line(lab: Lab, traces: Path) -> None:
    (lab.server.root / "holiday.json").write_text('{"beach": true}')
    with lab.notebook("00_start_here.ipynb") as notebook:
        notebook.run_all()
        notebook.type("path", "traces/")
        until(notebook, "2 files, each a torch profiler")
        notebook.type("path", "holiday.json")
        notebook.page.wait_for_selector(".perflab-start .problem")
        said = notebook.page.locator(".perflab-start .problem").all_inner_texts()
        assert len(said) == 1 and said[0].startswith("Nothing here tells of a run of vLLM")
        assert notebook.page.get_by_role("button", name="Break it down").is_disabled()
        assert notebook.problems() == []


def test_an_experiment_is_edited_and_told_what_is_wrong_with_it(lab: Lab) -> None:
    with lab.notebook("01_capture_a_run.ipynb") as notebook:
        notebook.run_all()
        notebook.page.wait_for_selector("text=Points: 14; profiling passes: 1")
        notebook.type("repeats", "2")
        notebook.page.wait_for_selector("text=Points: 10; profiling passes: 1")
        notebook.page.locator("input[placeholder='max_model_len']").nth(2).fill("max_modell_len")
        notebook.page.locator("input[placeholder='max_model_len']").nth(2).press("Enter")
        notebook.page.get_by_role("tab", name="File (YAML)").click()
        assert "max_modell_len: 512" in notebook.page.locator("textarea").last.input_value()
        assert notebook.problems() == [] and notebook.looks() == []
        notebook.shoot("editor")
