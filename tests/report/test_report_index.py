"""A report over many runs: an index and a page a run, linked relatively; which notebooks apply to what."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pandas as pd
import pytest
from matplotlib import pyplot
from page_references import external_references
from small_runs import EVIL, small_run
from test_report_blocks import Page

from perflab.cli import main
from perflab.errors import InputError
from perflab.plots.multiples import plot_run_multiples
from perflab.report import report_folder
from perflab.report.choosing import CHOICES, Given, chosen, given
from perflab.report.composing import fitting
from perflab.report.rendering import without_paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one GPU and one of a CPU, and the report over them, made as a user would."""
    home = tmp_path_factory.mktemp("many")
    runs = [small_run(home, name) for name in ("first", "second", "on cpu")]
    file = runs[-1].path / "manifest.json"
    manifest = msgspec.json.decode(file.read_bytes())
    manifest |= {"hardware": {"cpu": "AMD EPYC"}, "profiles": [], "engine": {"flavour": "cpu", "model": "m"}}
    file.write_bytes(msgspec.json.encode(manifest))
    assert main(["report", *(str(run.path) for run in runs), "-o", f"{home / 'out'}/"]) == 0
    return home / "out"


def test_every_run_has_a_page_and_links_lead_somewhere_from_wherever_the_folder_lies(folder: Path) -> None:
    assert {path.name for path in folder.glob("*.html")} == {"index.html", "first.html", "second.html", "on-cpu.html"}
    for page in folder.glob("*.html"):
        text = page.read_text()
        for link in Page(text).all("a"):
            where = urlsplit(link["href"] or "")
            assert not where.scheme and not where.path.startswith("/")
            target = page if not where.path else folder / where.path
            assert target.is_file(), link
            if where.fragment:
                assert f'id="{where.fragment}"' in target.read_text()
        relative = [what for what in external_references(text) if ".html" not in what]
        assert relative == [] and str(folder.parent) not in text


def test_the_index_says_what_each_run_comes_to_machines_apart(folder: Path) -> None:
    page = Page((folder / "index.html").read_text())
    table = page.text[page.text.index("All runs Figures") : page.text.index("Side by side")]
    assert table.index("NVIDIA H200 first") < table.index("second") < table.index("CPU: AMD EPYC on cpu")
    assert "143 16/5 c4 10.0 100" in table, "throughput, load, time per token and to the first, at the best load"
    assert "1 failed" in table and table.count("2026-") == 3
    assert "On CPU: AMD EPYC" in page.text and "2 kinds of machine" in page.text
    assert EVIL not in (folder / "index.html").read_text()


def test_a_page_of_a_folder_leads_back_to_the_index(folder: Path) -> None:
    assert '<a href="index.html">All runs</a>' in (folder / "first.html").read_text()


def test_two_runs_with_one_title_are_told_apart_in_findings(folder: Path) -> None:
    page = Page((folder / "index.html").read_text())
    assert "· first" in page.text or "· second" in page.text
    assert any((link["href"] or "").startswith("first.html#") for link in page.all("a"))


def test_the_same_name_twice_makes_two_pages(tmp_path: Path) -> None:
    one, other = small_run(tmp_path / "a"), small_run(tmp_path / "b")
    index = report_folder([one.path, other.path], tmp_path / "all.html", pages=tmp_path / "all.pages")
    assert {path.name for path in (tmp_path / "all.pages").glob("*.html")} == {"small.html", "small-2.html"}
    links = [link["href"] or "" for link in Page(index.read_text()).all("a")]
    assert "all.pages/small-2.html" in links
    assert '<a href="../all.html">All runs</a>' in (tmp_path / "all.pages" / "small.html").read_text()


def test_a_comparison_goes_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"{tmp_path}/"
    assert main(["report", "--compare", "llama3-8b-bf16", "llama3-8b-fp8", "-o", out]) == 2
    assert "--compare makes one page" in capsys.readouterr().err


def test_notebooks_are_chosen_by_what_is_there() -> None:
    def names(*runs: str, **more: object) -> list[str]:
        return [path.stem.split("_")[0] for path, _ in chosen(given(list(runs), **more))]  # type: ignore[arg-type]

    assert names("llama3-8b-bf16") == ["02", "03"]
    assert names("llama3-8b-tp2") == ["02", "03", "04"]
    assert names(sides=("llama3-8b-bf16", "llama3-8b-fp8")) == ["05"]
    assert names("llama3-8b-tp2", sides=("llama3-8b-bf16", "llama3-8b-fp8")) == ["05", "02", "03", "04"]
    assert [choice.notebook[:2] for choice in CHOICES] == ["05", "06", "02", "03", "04"]


def test_the_start_page_gets_notebooks_with_their_runs() -> None:
    asked = given(["llama3-8b-bf16"])
    assert [(path.stem[:2], [run.path.name for run in runs]) for path, runs in fitting(asked.runs)] == [
        ("02", ["llama3-8b-bf16"]), ("03", ["llama3-8b-bf16"]),
    ]  # fmt: skip
    assert chosen(Given()) == []


def test_sides_are_located_since_a_notebook_may_run_elsewhere(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    ((_, parameters),) = chosen(given(sides=(run.path, "llama3-8b-bf16, llama3-8b-fp8")))
    assert parameters["baseline"] == str(run.path.resolve())
    assert [Path(part).name for part in parameters["candidate"].split(",")] == ["llama3-8b-bf16", "llama3-8b-fp8"]
    assert all(Path(part).is_dir() for part in parameters["candidate"].split(","))


def test_nothing_named_is_an_error() -> None:
    with pytest.raises(InputError, match="no run was named"):
        given([])


def test_paths_of_this_machine_become_names() -> None:
    names = {"/data/x/run": "run", "/data/x/run-2": "second"}
    text = "perflab compare /data/x/run runs/changed; /data/x/run-2/log; /data/x/runs; &#x27;/data/x/run&#x27;"
    assert without_paths(text, names) == ("perflab compare run runs/changed; second/log; /data/x/runs; &#x27;run&#x27;")
    assert without_paths(f"{Path.home()}/models/m", {}) == "~/models/m"


def test_small_multiples_share_their_axes_and_say_who_is_best() -> None:
    rows = [("a", "c1", 100.0, 5.0), ("a", "c8", 700.0, 9.0), ("b", "c1", 200.0, 4.0), ("b", "c8", 600.0, None)]
    loads = pd.DataFrame(rows, columns=["run", "load", "output_tokens_per_s", "tpot_p50_ms"])
    figure = plot_run_multiples(loads)
    assert figure.get_label() == "Most tokens: a, 700 a second; shortest time per token: b, 4.00 ms"
    panels = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title("left") for ax in panels] == ["a", "b"]
    assert len({ax.get_xlim() for ax in panels}) == len({ax.get_ylim() for ax in panels}) == 1
    assert [list(line.get_xdata()) for line in panels[0].lines] == [[100.0, 700.0], [200.0]], "the other run behind it"
    pyplot.close(figure)
    empty = plot_run_multiples(loads.assign(tpot_p50_ms=None))
    assert empty.get_label() == "Nothing was measured"
    pyplot.close(empty)
