import os
from pathlib import Path

import nbformat
import pytest
from small_runs import write_notebook

from perflab.errors import InputError
from perflab.report import execute
from perflab.report.execution import find_notebook, parameters_of

PARAMETERS = ("code", "runs = ['a']  # which runs\nlimit = 3", ["parameters"])


def text_of(path: Path) -> str:
    notebook = nbformat.read(str(path), as_version=4)
    return "".join(str(output.get("text", "")) for cell in notebook.cells for output in cell.get("outputs", []))


def test_parameters_reach_the_notebook_and_the_rest_keeps_its_default(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", PARAMETERS, ("code", "print(runs, limit)", []))
    out = execute(notebook, {"runs": [tmp_path / "x"]}, tmp_path / "deep" / "out.ipynb")
    assert text_of(out).strip() == f"{[str(tmp_path / 'x')]} 3"


def test_an_unknown_parameter_is_refused_before_anything_runs(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", PARAMETERS, ("code", "print('ran')", []))
    with pytest.raises(InputError, match=r"unknown parameter limits; this notebook takes: runs, limit") as raised:
        execute(notebook, {"limits": 3}, tmp_path / "out.ipynb")
    assert str(raised.value).startswith(f"{notebook}: ")
    assert not (tmp_path / "out.ipynb").exists()


def test_a_notebook_without_parameters_takes_none(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", ("code", "1", []))
    with pytest.raises(InputError, match="this notebook takes: none"):
        execute(notebook, {"runs": 1}, tmp_path / "out.ipynb")


def test_a_failing_cell_gives_one_line_that_names_it_and_the_partial_notebook_stays(tmp_path: Path) -> None:
    cells = [("code", "print('so far')", []), ("code", "# why\nraise ValueError('two\\nlines')", []), ("code", "2", [])]
    notebook = write_notebook(tmp_path / "n.ipynb", *cells)
    with pytest.raises(InputError) as raised:
        execute(notebook, {}, tmp_path / "out.ipynb")
    message = str(raised.value)
    assert message.startswith(f"{notebook}: cell 2 (`# why`) failed: ValueError: two lines;")
    assert message.endswith(f"is in {tmp_path / 'out.ipynb'}") and "\n" not in message
    assert "so far" in text_of(tmp_path / "out.ipynb")


def test_a_kernel_that_dies_is_an_error_of_one_line(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", ("code", "import os; os._exit(3)", []))
    with pytest.raises(InputError, match=r"n\.ipynb: .*ended early") as raised:
        execute(notebook, {}, tmp_path / "out.ipynb")
    assert "\n" not in str(raised.value)


@pytest.mark.timeout(180)
def test_output_widgets_do_not_make_it_wait_for_ever(tmp_path: Path) -> None:
    """Nbclient answers each print on the socket on which it awaits the reply; a few were enough to hang it."""
    drawn = """import ipywidgets
out = ipywidgets.Output()
for n in range(3):
    out.clear_output(wait=True)
    with out:
        print(str(n) * 200_000)
out"""
    notebook = write_notebook(tmp_path / "n.ipynb", *[("code", drawn, [])] * 30)
    out = execute(notebook, {}, tmp_path / "out.ipynb")
    states = nbformat.read(str(out), as_version=4).metadata.widgets["application/vnd.jupyter.widget-state+json"].state
    written = [one["state"]["outputs"] for one in states.values() if one["model_name"] == "OutputModel"]
    assert len(written) == 30
    assert all("".join(output["text"]) == "2" * 200_000 + "\n" for (output,) in written)


def test_it_runs_this_python_whatever_kernel_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel called python3 that cannot start, first on Jupyter's path, and a home that holds a broken profile."""
    spec = tmp_path / "share" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["false"], "display_name": "broken", "language": "python"}')
    profile = tmp_path / "ipython" / "profile_default" / "startup"
    profile.mkdir(parents=True)
    (profile / "00.py").write_text("raise SystemExit('startup file of the user')")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = write_notebook(tmp_path / "n.ipynb", ("code", "import sys; print(sys.executable)", []))
    import sys

    assert text_of(execute(notebook, {}, tmp_path / "out.ipynb")).strip() == sys.executable


def test_it_works_from_any_directory_and_leaves_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    notebook = write_notebook(tmp_path / "n.ipynb", ("code", "import os; print(os.getcwd())", []))
    monkeypatch.chdir(elsewhere)
    out = execute(notebook, {}, Path("out.ipynb"))
    assert text_of(out).strip() == str(elsewhere)
    assert os.listdir(elsewhere) == ["out.ipynb"]  # noqa: PTH208


def test_nothing_reaches_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    execute(write_notebook(tmp_path / "n.ipynb", PARAMETERS, ("code", "1", [])), {"limit": 4}, tmp_path / "out.ipynb")
    assert capfd.readouterr().err == ""


def test_notebooks_are_found_by_path_name_and_number() -> None:
    full = find_notebook("03_gpu_time_breakdown")
    assert find_notebook("03") == find_notebook("03_gpu_time_breakdown.ipynb") == find_notebook(full) == full
    with pytest.raises(InputError, match="no such notebook; perflab has 00_start_here, 01_capture"):
        find_notebook("99")


def test_parameters_come_with_their_defaults(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", PARAMETERS)
    assert parameters_of(notebook) == {"runs": "['a']", "limit": "3"}


def test_what_is_no_notebook_is_said(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text("not json")
    with pytest.raises(InputError, match="is not a notebook"):
        execute(tmp_path / "n.ipynb", {}, tmp_path / "out.ipynb")
