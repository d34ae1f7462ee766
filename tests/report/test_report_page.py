"""Executed notebooks as one page: what is in it, what is left out, and that it needs nothing else."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from page_references import external_references
from small_runs import EVIL, write_notebook
from test_report_blocks import Page

from perflab.errors import InputError
from perflab.report import execute, render, report
from perflab.report.alternative import describe
from perflab.report.rendering import page_html
from perflab.report.show import MEDIA
from perflab.report.svg import inline_svg, svg_of
from perflab.runs import Run

V4: Any = nbformat.v4


def notebook(*cells: Any) -> Any:
    return V4.new_notebook(cells=list(cells))


def code(*outputs: Any, source: str = "secret_source()", tags: tuple[str, ...] = ()) -> Any:
    return V4.new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)} if tags else {})


def ours(kind: str, **data: Any) -> Any:
    html = data.pop("html", "")
    return V4.new_output("display_data", {"text/html": html, MEDIA: {"kind": kind, **data}})


def html_of(*cells: Any, **settings: Any) -> str:
    return page_html([notebook(*cells)], **settings)


def test_code_parameters_and_widgets_are_left_out() -> None:
    text = html_of(
        code(source="runs = ['secret parameter']", tags=("parameters",)),
        code(source="runs = ['secret injected']", tags=("injected-parameters",)),
        code(ours("text", html="<p>shown</p>")),
        code(ours("text", html="<p>slider</p>"), tags=("interactive",)),
    )
    assert "<p>shown</p>" in text
    assert "secret" not in text and "slider" not in text


def test_code_comes_back_when_asked_for() -> None:
    text = html_of(code(source="a < b"), code(source="x = 1", tags=("parameters",)), show_code=True)
    assert "<code>a &lt; b</code>" in text and "x = 1" not in text


def test_checks_and_findings_call_runs_by_their_names() -> None:
    run = {"run": "short", "title": "A long title", "facts": [], "notes": []}
    finding = {"id": "f", "severity": "info", "confidence": 1, "title": "Waits", "evidence": [], "run": "A long title"}
    check = {"check": "c", "status": "warn", "detail": "Few.", "source": "A long title (pass steps)"}
    text = html_of(code(ours("runs", runs=[run])), code(ours("trust", checks=[check])),
                   code(ours("findings", findings=[finding])))  # fmt: skip
    assert "short (pass steps)" in text and "A long title" not in Page(text).text


def test_what_two_notebooks_find_alike_is_told_once_at_the_head() -> None:
    finding = {"id": "f", "severity": "warning", "confidence": 1, "title": "Waits", "impact": None, "evidence": []}
    other = {**finding, "title": "Copies"}
    first, second = (notebook(code(ours("findings", findings=found))) for found in ([finding], [finding, other]))
    summary = page_html([first, second])
    assert (summary.count("Waits"), summary.count("Copies")) == (3, 2), "once at the head, once in each notebook"


def test_the_head_tells_runs_and_findings_first() -> None:
    run = {"run": "a", "facts": [["Run", "A"]], "notes": []}
    finding = {"id": "f", "severity": "warning", "confidence": 1, "title": "Waits", "impact": None, "evidence": []}
    text = html_of(
        V4.new_markdown_cell("# Where?\n\nWhy."), V4.new_markdown_cell("## What ran"), code(ours("runs", runs=[run])),
        V4.new_markdown_cell("## What it means"), code(ours("findings", findings=[finding])),
    )  # fmt: skip
    page = Page(text.split("<main", 1)[1])
    assert page.text.index("Waits") < page.text.index("Why.") < page.text.rindex("Waits")
    assert page.text.count("Run A") == 1
    ids = {attrs.get("id") for _, attrs in page.tags}
    for link in page.all("a"):
        assert (link["href"] or "").removeprefix("#") in ids


def test_headings_with_nothing_left_under_them_go_and_leave_the_contents() -> None:
    run = {"run": "a", "facts": [], "notes": []}
    text = html_of(
        V4.new_markdown_cell("# T"), V4.new_markdown_cell("## Empty"), code(ours("runs", runs=[run])),
        V4.new_markdown_cell("## Full\n\nSome text."), V4.new_markdown_cell("## Last"),
    )  # fmt: skip
    page = Page(text)
    assert "Empty" not in page.text and "Last" not in page.text
    assert page.text.count("Full") == 3  # in both contents, and in place


def test_every_contents_entry_leads_somewhere_in_a_page_of_two_notebooks() -> None:
    one = notebook(V4.new_markdown_cell("# One\n\ntext"), V4.new_markdown_cell("## Same\n\ntext"))
    page = Page(page_html([one, one], title="Both"))
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert {(a["href"] or "").removeprefix("#") for a in page.all("a")} <= set(ids)
    assert "Both" in page.text and page.text.count("Same") == 6


def test_links_out_of_the_page_become_text() -> None:
    text = html_of(
        V4.new_markdown_cell("See [next](03.ipynb), [docs](https://example.org/x), ![p](http://e.org/i.png), [up](#a).")
    )
    assert external_references(text) == []
    assert "See next, docs (https://example.org/x), p," in Page(text).text


def test_streams_and_errors_are_escaped_and_plain() -> None:
    out = V4.new_output("stream", name="stderr", text=f"\x1b[31mred\x1b[0m {EVIL}")
    failed = V4.new_output("error", ename="E", evalue="v", traceback=[f"\x1b[0;31mE\x1b[0m: {EVIL}"])
    page = Page(html_of(code(out, failed)))
    assert not page.all("img") and page.text.count(EVIL) == 2 and "\x1b" not in page.text


def test_pictures_of_other_libraries_are_kept_inside_and_named() -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    picture = V4.new_output("display_data", {"image/png": dot, "text/plain": "<Figure>"})
    image = Page(html_of(code(picture))).all("img")[0]
    assert (image["src"] or "").startswith("data:image/png;base64,") and image["alt"] == "<Figure>"


def test_the_page_forbids_scripts_and_loading() -> None:
    policy = next(m for m in Page(html_of()).all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "") and "script-src" not in (policy["content"] or "")


@pytest.mark.parametrize(
    "planted",
    ['<script src="https://x/r.js"></script>', "<script>1</script>", '<img src="a.png">', '<link rel="x" href="http://f/c.css">',
     '<svg><use xlink:href="other.svg#a"/></svg>', '<p onclick="x()">', "<iframe></iframe>", '<a href="page.html">',
     "<style>@import 'x.css'; p { background: url(http://x/y.png) }</style>", '<p style="background:url(x.png)">',
     '<img srcset="a.png 2x">', '<object data="x.svg"></object>'],
)  # fmt: skip
def test_whatever_reaches_out_is_found(planted: str) -> None:
    assert external_references(f"<html><body>{planted}</body></html>")


def test_what_stays_inside_is_not_complained_about() -> None:
    inside = (
        '<a href="#x"><img src="data:image/png;base64,AA"><svg><use xlink:href="#g"/></svg><p style="fill:url(#g)">'
    )
    assert external_references(inside) == []


def test_figures_follow_the_theme_and_keep_their_ids_apart() -> None:
    from matplotlib import pyplot

    from perflab.plots import style

    figure, ax = pyplot.subplots(layout="constrained")
    ax.bar([0], [1], color=style.CATEGORY_COLOURS["gemm"])
    ax.set_xlabel("time (ms)")
    style.head(ax, 'Title with "quotes" & <tags>', whole=True)
    document = svg_of(figure)
    assert document == svg_of(figure)
    a, b = (inline_svg(document, prefix, describe(figure)["alt"]) for prefix in ("a", "b"))
    pyplot.close(figure)
    for colour in style.INTERFACE.values():
        assert colour not in a
    assert "var(--ink)" in a and style.CATEGORY_COLOURS["gemm"] in a
    assert 'aria-label="Title with &quot;quotes&quot; &amp; &lt;tags&gt;. Axes: time (ms). ' in a
    ids = [{attrs["id"] for _, attrs in Page(svg).tags if attrs.get("id")} for svg in (a, b)]
    assert ids[0] and not ids[0] & ids[1]
    assert external_references(a) == []


def test_the_whole_report_of_a_run_with_html_in_its_names(run: Run, tmp_path: Path) -> None:
    out = report(run.path, tmp_path / "deep" / "report.html", title="A & B")
    text = out.read_text()
    page = Page(text)
    assert external_references(text) == []
    assert not page.all("img") and not page.all("script")
    assert page.text.count(EVIL) >= 4  # title, note, kernel name in a check, and more
    assert "How fast is it?" in page.text and "Where do time and memory go?" in page.text
    assert f'aria-label="{"GEMM takes 60.0"}' in text
    assert page.all("title") and "A & B" in page.text
    assert sorted(p.name for p in (tmp_path / "deep" / "report.notebooks").iterdir()) == [
        "02_latency_and_throughput.ipynb",
        "03_gpu_time_breakdown.ipynb",
    ]


def test_only_what_is_there_is_reported(run: Run, tmp_path: Path) -> None:
    import shutil

    import msgspec

    only = tmp_path / "only-bench"
    shutil.copytree(run.path, only)
    manifest = msgspec.json.decode((only / "manifest.json").read_bytes())
    (only / "manifest.json").write_bytes(msgspec.json.encode({**manifest, "profiles": []}))
    page = Page(report([only], tmp_path / "report.html").read_text())
    assert "How fast is it?" in page.text and "Where do time and memory go?" not in page.text


def test_a_run_with_nothing_in_it_is_an_error_not_an_empty_page(run: Run, tmp_path: Path) -> None:
    import shutil

    import msgspec

    bare = tmp_path / "bare"
    shutil.copytree(run.path, bare)
    manifest = msgspec.json.decode((bare / "manifest.json").read_bytes())
    (bare / "manifest.json").write_bytes(msgspec.json.encode({**manifest, "profiles": [], "points": []}))
    with pytest.raises(InputError, match="nothing measured and no trace"):
        report([bare], tmp_path / "report.html")


def test_notebooks_of_ones_own_make_a_report_too(run: Run, tmp_path: Path) -> None:
    own = write_notebook(
        tmp_path / "own.ipynb", ("markdown", "# Mine", []), ("code", "runs = []", ["parameters"]),
        ("code", "from perflab.report.show import show\nshow(f'{len(runs)} run')", []),
    )  # fmt: skip
    page = Page(report(run.path, tmp_path / "own.html", notebooks=[own]).read_text())
    assert "Mine" in page.text and "1 run" in page.text


def test_rendering_needs_an_executed_notebook(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such notebook"):
        render(tmp_path / "absent.ipynb", tmp_path / "x.html")
    (tmp_path / "n.ipynb").write_text("{}")
    with pytest.raises(InputError, match="is not a Jupyter notebook"):
        render(tmp_path / "n.ipynb", tmp_path / "x.html")


def test_what_notebooks_show_carries_plain_data(tmp_path: Path) -> None:
    source = """
from perflab.report.show import show, show_command, show_file, show_findings, show_trust
import pandas as pd
from perflab.plots.breakdown import plot_top_kernels
top = pd.DataFrame({"name": ["k"], "category": ["gemm"], "count": [1], "dur_ns": [10**6], "share": [1.0]})
show(plot_top_kernels(top)); show(top, caption="c"); show("a **b**")
show_trust([]); show_findings([]); show_command("perflab", "run", "a b.yaml")
"""
    out = execute(write_notebook(tmp_path / "n.ipynb", ("code", source, [])), {}, tmp_path / "out.ipynb")
    outputs = nbformat.read(str(out), as_version=4).cells[0].outputs
    kinds = [output["data"][MEDIA]["kind"] for output in outputs]
    assert kinds == ["figure", "table", "text", "trust", "findings", "command"]
    figure = outputs[0]["data"]
    assert {"text/html", "image/svg+xml", "text/plain"} <= set(figure)
    assert figure[MEDIA]["title"] == "One kernel takes 100.0 % of all kernel time"
    assert figure[MEDIA]["axes"] == [{"x": "total time (ms)", "y": ""}]
    assert outputs[-1]["data"]["text/plain"] == "perflab run 'a b.yaml'"


def test_a_table_is_folded_by_the_rows_that_it_shows() -> None:
    few = ours("table", html="<table></table>", rows=2490, shown=6, caption="Gaps")
    many = ours("table", html="<table></table>", rows=40, shown=40, caption="Gaps")
    assert "<summary>Gaps" not in html_of(code(few)) and "<summary>Gaps" in html_of(code(many))
