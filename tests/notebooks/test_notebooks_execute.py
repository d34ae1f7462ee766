"""Every notebook, executed with its defaults: that it ran is no test, so look at what it shows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from page_references import external_references

from perflab.plots.breakdown import parts_of_phases
from perflab.report import execute, render
from perflab.report.show import MEDIA
from perflab.report.views import breakdown_pieces
from perflab.tasks.breakdown import breakdown

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
UNIT = re.compile(
    r"\((%|ms|µs|s|GiB|W|MHz|tokens/s|requests/s|operations a byte)\)|output tokens/s|TFLOP/s|in flight"
    r"|requests, by arrival|requests waiting|^requests running$|^collectives .* in order$|^layer$|^bytes "
    r"|^time of a collective$|currency of the price|x, above 1 is faster\)|over baseline \(x\)"
    r"|^(requests|prompt tokens) .*\(at most [\d,]+\)$"
)

EXPECTED = {
    "00_start_here": {"table": 1},
    "01_capture_a_run": {"file": 1, "table": 1, "text": 2, "command": 1},
    "02_latency_and_throughput": {"runs": 1, "trust": 1, "table": 4, "figure": 18, "text": 6, "findings": 2},
    "03_gpu_time_breakdown": {"runs": 1, "trust": 1, "table": 2, "figure": 24, "text": 4, "findings": 1},
    "04_multi_gpu": {"runs": 1, "trust": 1, "table": 4, "figure": 16, "text": 2, "findings": 1},
    "05_compare_runs": {"runs": 1, "trust": 1, "table": 2, "figure": 6, "text": 3, "findings": 1},
    "06_quantization_tradeoffs": {"runs": 1, "trust": 1, "table": 4, "figure": 12, "text": 4, "findings": 1},
}
"""At least so many outputs of each kind."""


Executed = Callable[[str], Path]


@pytest.fixture(scope="session")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """The notebook of a name, executed when it is first asked for: one that fails, or hangs, does so once."""
    folder = tmp_path_factory.mktemp("notebooks")
    done: dict[str, Path | BaseException] = {}

    def ask(name: str) -> Path:
        if name not in done:
            try:
                done[name] = execute(FOLDER / f"{name}.ipynb", {}, folder / f"{name}.ipynb")
            except BaseException as error:  # a test's time running out is one, too
                done[name] = error
        result = done[name]
        if isinstance(result, BaseException):
            raise result
        return result

    return ask


def shown(path: Path) -> list[dict[str, Any]]:
    notebook = nbformat.read(str(path), as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["data"][MEDIA] for output in outputs if MEDIA in output.get("data", {})]


def test_every_notebook_is_expected_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_but_what_was_meant_is_shown(executed: Executed, name: str) -> None:
    notebook = nbformat.read(str(executed(name)), as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output["output_type"] not in ("stream", "error"), output
            widget = "application/vnd.jupyter.widget-view+json" in output["data"]
            assert MEDIA in output["data"] or (widget and "interactive" in cell.metadata.tags)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_expected_outputs_are_there(executed: Executed, name: str) -> None:
    kinds = [data["kind"] for data in shown(executed(name))]
    counts = {kind: kinds.count(kind) for kind in EXPECTED[name]}
    assert all(counts[kind] >= least for kind, least in EXPECTED[name].items()), counts


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_state_a_finding_and_their_units(executed: Executed, name: str) -> None:
    for figure in (data for data in shown(executed(name)) if data["kind"] == "figure"):
        assert re.search(r"\d", figure["title"]), figure["title"]
        labels = [label for axes in figure["axes"] for label in axes.values() if label]
        assert all(UNIT.search(label) or label.endswith("(%)") for label in labels), labels
        # Without axes every bar has its figure and unit beside it; a picture of nothing has neither.
        assert labels or "%" in figure["title"], figure["title"]
        assert figure["title"] in figure["alt"] and all(label in figure["alt"] for label in labels[:1])


@pytest.mark.parametrize("name", EXPECTED)
def test_tables_have_rows_and_text_has_its_numbers(executed: Executed, name: str) -> None:
    for data in shown(executed(name)):
        if data["kind"] == "table":
            assert data["rows"] > 0, data["caption"]
        if data["kind"] == "text":
            assert "{" not in data["text"] and not re.search(r"\bnan\b|<NA>|None\b", data["text"]), data["text"]


def test_random_weights_are_told_before_any_figure(executed: Executed) -> None:
    for name in ("02_latency_and_throughput", "03_gpu_time_breakdown", "05_compare_runs"):
        data = shown(executed(name))
        runs = next(i for i, d in enumerate(data) if d["kind"] == "runs")
        figure = next(i for i, d in enumerate(data) if d["kind"] == "figure")
        assert runs < figure
        assert all(any("random" in note for note in run["notes"]) for run in data[runs]["runs"])


def test_the_parts_of_a_step_add_up_to_it() -> None:
    (piece,) = breakdown_pieces(breakdown("llama3-8b-bf16"))
    shares = parts_of_phases(piece["table"], "group").groupby("phase")["share"].sum()
    assert len(shares) >= 2
    assert shares.tolist() == pytest.approx([1.0] * len(shares))


def test_the_explorer_starts_on_a_decode_step() -> None:
    from perflab.explorer import explore

    session = explore(breakdown("llama3-8b-bf16")).session
    (rank,) = session.answer({"what": "open", "run": 0})[0]["ranks"]
    steps = session.read(0).ranks[0].steps.set_index("step")
    assert steps.loc[rank["typical"], "phase"] == "decode"


@pytest.mark.browser
def test_the_report_of_all_notebooks_looks_right(executed: Executed, tmp_path: Path) -> None:
    from browser.screenshots import chromium, look_at

    page = render([executed(name) for name in EXPECTED], tmp_path / "all.html", title="All notebooks")
    assert external_references(page.read_text()) == []
    if chromium() is None:
        pytest.skip("needs chromium or google-chrome on the path")
    looks = look_at(page, tmp_path / "shots")
    assert {look.view.name: look.problems for look in looks if look.problems} == {}


def test_objectives_and_a_price_show_goodput_and_cost(tmp_path: Path) -> None:
    asked = {
        "runs": ["llama3-8b-fp8"], "slo_ttft_ms": 260, "slo_tpot_ms": 12, "statistic": "p90", "price_per_gpu_hour": 3.0,
    }  # fmt: skip
    data = shown(execute(FOLDER / "02_latency_and_throughput.ipynb", asked, tmp_path / "02.ipynb"))
    titles = [one["title"] for one in data if one["kind"] == "figure"]
    assert "The knee lies between 1 and 256; best measured load 32" in titles
    assert "Highest goodput: 20.7 of 35.4 requests/s (load c32)" in titles
    assert "A million output tokens cost from 3.00 at c1 down to 0.11 at c256" in titles
    texts = "\n".join(one["text"] for one in data if one["kind"] == "text")
    assert "interpolated between 1, measured to hold, and 32, measured not to; TTFT gives way first" in texts
    assert "75 of 128 requests (58.6 %) meet every limit" in texts
