"""The harness of JupyterLab: it does what a person does, and sees what one would complain about."""

from pathlib import Path
from typing import Any

import pytest
from browser.lab import NARROW, WIDE_DARK, Lab
from PIL import Image, ImageStat
from small_runs import write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

WIDGETS = """\
import ipywidgets
from IPython.display import display
fruit = ipywidgets.Dropdown(options=["apple", "pear"], description="fruit")
name = ipywidgets.Text(description="name", continuous_update=False)
part = ipywidgets.FloatRangeSlider(value=(0.0, 1.0), max=1.0, step=0.01, description="part")
button, told = ipywidgets.Button(description="Say it"), ipywidgets.HTML()
def say(_): told.value = f"{name.value} takes {fruit.value} from {part.value[0]:.2f} to {part.value[1]:.2f}"
button.on_click(say)
display(ipywidgets.VBox([fruit, name, part, button, told]))
"""
WRONG = [
    "import sys; print('to stdout'); print('to stderr', file=sys.stderr)",
    "from IPython.display import HTML, Javascript\nJavascript(\"console.error('oh dear')\")",
    'HTML(\'<img src="http://perflab.invalid/x.png" width="50" height="50">\')',
    "HTML('<div style=\"width:3000px\">wide</div>')",
    'HTML(\'<div class="box" style="width:90px; overflow:hidden; white-space:nowrap">more than has room</div>\')',
    "1 / 0",
    "print('never')",
]


def written(lab: Lab, name: str, *sources: str) -> Path:
    return write_notebook(lab.server.root / f"{name}.ipynb", *[("code", source, []) for source in sources])


def test_widgets_are_operated_as_a_person_does(lab: Lab) -> None:
    with lab.notebook(written(lab, "widgets", WIDGETS), NARROW) as notebook:
        notebook.run_all()
        assert notebook.options("fruit") == ["apple", "pear"]
        notebook.select("fruit", "pear")
        notebook.type("name", "Ada")
        notebook.drag_slider("part", 0.25)
        notebook.drag_slider("part", 0.75, handle=1)
        notebook.click("Say it")
        said = notebook.page.locator(".widget-html-content").inner_text()
        assert said.startswith("Ada takes pear from 0.2") and said.rpartition(" ")[2].startswith("0.7")
        assert (notebook.problems(), notebook.looks()) == ([], [])


def test_what_is_wrong_is_seen(lab: Lab) -> None:
    with lab.notebook(written(lab, "wrong", *WRONG)) as notebook:
        notebook.run_all()
        problems = "\n".join(notebook.problems())
        for part in ("wrote to stdout: to stdout", "wrote to stderr: to stderr", "console: oh dear", "failed: ZeroDiv",
                     "asks for http://perflab.invalid/x.png"):  # fmt: skip
            assert part in problems
        assert "never" not in problems, "Run All stops at an error"
        looks = "\n".join(notebook.looks())
        for part in ("an output is 30", "img has no text alternative", "img shows nothing", "div.box cuts off"):
            assert part in looks


def test_pictures_show_the_whole_notebook_in_its_theme(lab: Lab) -> None:
    path = written(lab, "long", *["from IPython.display import HTML\nHTML('<p style=\"height:400px\">text</p>')"] * 6)
    brightness: dict[str, Any] = {}
    with lab.notebook(path, NARROW) as notebook:
        notebook.run_all()
        pictures = {NARROW: notebook.shoot()}
        notebook.view(WIDE_DARK)
        pictures[WIDE_DARK] = notebook.shoot()
    for window, picture in pictures.items():
        with Image.open(picture) as image:
            assert 6 * 400 < image.height < 6 * 700 and 0.8 * window.width < image.width <= window.width
            brightness[window.scheme] = ImageStat.Stat(image.convert("L")).mean[0]
        picture.unlink()
    assert brightness["light"] > 180 and brightness["dark"] < 80


def test_each_notebook_has_a_kernel_of_its_own_that_ends(lab: Lab) -> None:
    with lab.notebook(written(lab, "kernel", "x = 1")) as notebook:
        notebook.run_all()
        assert len(lab.server.ask("api/kernels")) == 1
    assert lab.server.ask("api/kernels") == []
