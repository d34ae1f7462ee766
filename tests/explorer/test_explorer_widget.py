"""The widget without a page: its module, what a page is told, what it answers, and that code can steer it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_runs import EVIL, small_run

import perflab
from perflab.explorer import Explorer, explore
from perflab.explorer.rank_times import CODES
from perflab.explorer.widget import MODULES, module, sheet
from perflab.messages import catalogue
from perflab.tasks.breakdown import breakdown

JS = Path(perflab.__file__).parent / "explorer" / "js"


class Heard(Explorer):
    """Keeps what it would send."""

    def send(self, content: Any, buffers: Any = None) -> None:
        if isinstance(content, dict) and "id" in content:
            self.__dict__.setdefault("heard", []).append((content, buffers))


def test_all_modules_are_one_that_javascript_accepts(tmp_path: Path) -> None:
    assert {path.stem for path in JS.glob("*.js")} == set(MODULES)
    text = module()
    assert not any(line.startswith("import ") for line in text.splitlines())
    assert text.count("export default") == 1
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to check the module's syntax")
    for name in MODULES:
        file = _as(tmp_path, name, (JS / f"{name}.js").read_text())
        checked = subprocess.run([node, "--check", file], capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr.decode()
    whole = json.dumps("file://" + _as(tmp_path, "whole", text))
    run = f"const m = await import({whole}); console.log(typeof m.default.render)"
    told = subprocess.run([node, "--input-type=module", "-e", run], capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "function", told.stderr


def _as(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.mjs"
    path.write_text(text)
    return str(path)


def test_it_asks_no_other_machine_and_puts_no_text_into_the_page_as_html() -> None:
    text = module() + sheet()
    assert "http://" not in text and "https://" not in text and "@import" not in text and "url(" not in text
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text


def test_every_word_the_page_uses_is_in_the_catalogue() -> None:
    words = {name.removeprefix("explorer.page.") for name in catalogue() if name.startswith("explorer.page.")}
    text = module()
    used = set(re.findall(r"words\.(\w+)", text)) | set(re.findall(r'(?:told|say)\("(\w+)"', text))
    assert used <= words, used - words
    spoken = used | set(re.findall(r'"(\w+)"', text)) | {"who_chosen", "who_others"}
    prefixes = ("column_", "tab_", "scope_")
    assert {word for word in words if word not in spoken and not word.startswith(prefixes)} <= {"call", "wait"}


def test_a_page_is_told_what_can_be_chosen(tmp_path: Path) -> None:
    widget = explore([small_run(tmp_path).path, "llama3-8b-bf16"])
    facts = widget.facts
    json.dumps(facts)
    assert [(run["name"], run["trace"], run["requests"]) for run in facts["runs"]] == [
        ("small", True, True), ("llama3-8b-bf16", True, True)
    ]  # fmt: skip
    assert set(facts["colours"]) == set(facts["names"]) == set(CODES)
    assert (widget.run, widget.step, widget.tab, widget.span) == (0, -1, "device", [])


def test_it_answers_the_page_with_the_number_of_its_question(tmp_path: Path) -> None:
    widget = Heard(explore(small_run(tmp_path).path).session)
    widget._answer(widget, {"id": "a-1", "what": "open", "run": 0}, [])
    widget._answer(widget, {"id": "a-2", "what": "names", "run": 0, "names": [[0, 0], [0, 1], [0, 2]]}, [])
    widget._answer(widget, {"id": "a-3", "what": "open", "run": 5}, [])
    for nonsense in ("text", None, {"what": "open"}, 3):
        widget._answer(widget, nonsense, [])
    replies = {content["id"]: content for content, _ in widget.heard}
    assert list(replies) == ["a-1", "a-2", "a-3"]
    assert EVIL in [full for full, _ in replies["a-2"]["names"]], "as it is: the page shows text, not HTML"
    assert "error" in replies["a-3"]


def test_a_breakdown_already_made_is_not_made_again() -> None:
    report = breakdown("llama3-8b-bf16", attribution=False)
    widget = explore(report, step=3, phase="decode", categories=["gemm"])
    assert widget.session.read(0).broken is report.passes[0]
    assert (widget.step, widget.phase, widget.categories) == (3, "decode", ["gemm"])


def test_perflab_offers_it_without_importing_it() -> None:
    code = (
        "import sys, perflab; assert 'anywidget' not in sys.modules; perflab.explore; assert 'anywidget' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
    assert "explore" in dir(perflab)


def test_the_wheel_holds_the_page(root: Path) -> None:
    """Everything in the package goes into the wheel; what git ignores would not."""
    found = subprocess.run(
        ["git", "check-ignore", *map(str, JS.glob("*.js"))], cwd=root, capture_output=True, check=False
    )
    assert found.returncode == 1, found.stdout
