"""The explorer as a widget: one ES module drawn in the page, answered by a `Session` in the kernel."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from perflab.explorer.rank_times import CODES
from perflab.explorer.requests import RequestViews
from perflab.explorer.session import Session
from perflab.explorer.sources import Paths, entries
from perflab.messages import catalogue
from perflab.plots import style
from perflab.plots.request_path import CAUSE_COLOURS, CAUSE_WORDS
from perflab.tasks.breakdown import BreakdownReport
from perflab.tasks.slow_requests import SlowReport

MODULES = ("dom", "link", "theme", "scatter", "track", "timeline", "steps", "bars", "kernels", "requests", "app")
"""In the order in which they need one another; `app` is what a page loads."""
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


@lru_cache(maxsize=1)
def module() -> str:
    """The ES modules in `js/` as one, since a widget is one module: each in a scope of its own, `app` the outermost."""
    folder = files(__package__) / "js"
    return "\n".join(_scoped(name, (folder / f"{name}.js").read_text(encoding="utf-8")) for name in MODULES)


def _scoped(name: str, text: str) -> str:
    inner = _IMPORT.sub(r"const \1 = _\2;", text)
    if name == MODULES[-1]:
        return inner
    exported = ", ".join(_EXPORT.findall(inner))
    return f"const _{name} = (() => {{\n{_EXPORT.sub('', inner)}\nreturn {{ {exported} }};\n}})();"


@lru_cache(maxsize=1)
def sheet() -> str:
    """The style sheet."""
    return (files(__package__) / "explorer.css").read_text(encoding="utf-8")


class Explorer(anywidget.AnyWidget):
    """Runs to look at from all sides; the attributes follow what is chosen in the page, and the page follows them.

    Attributes
    ----------
    run
        Number of the run or pass, in the order given.
    phase
        `all`, `prefill`, `decode` or `mixed`.
    ranks
        Ranks shown.
    categories
        Categories that stand out; all where empty.
    step
        Number of the chosen step; -1 for none.
    span
        What the timeline shows: from and to, ns since the pass began.
    marked
        Stretch that is summed up, likewise; empty for none.
    text, pattern
        What is sought in kernel names, and whether it is a regular expression.
    tab
        `device` or `requests`.
    """

    _esm = module()
    _css = sheet()
    run = traitlets.Int(0).tag(sync=True)
    phase = traitlets.Unicode("all").tag(sync=True)
    ranks = traitlets.List(traitlets.Int()).tag(sync=True)
    categories = traitlets.List(traitlets.Unicode()).tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    span = traitlets.List(traitlets.Float()).tag(sync=True)
    marked = traitlets.List(traitlets.Float()).tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
    pattern = traitlets.Bool(False).tag(sync=True)
    tab = traitlets.Unicode("device").tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, **given: Any) -> None:
        self.session = session
        super().__init__(facts=_facts(session), **given)
        self.on_msg(self._answer)

    def _answer(self, _: Any, asked: Any, __: Any) -> None:
        if not isinstance(asked, dict) or "id" not in asked:
            return
        reply, buffers = self.session.answer(asked)
        self.send({"id": asked["id"], **reply}, buffers)


def explore(
    runs: Paths | BreakdownReport, *, slow: SlowReport | None = None, tab: str = "device", **given: Any
) -> Explorer:  # fmt: skip
    """Explore runs, recorded names or loose traces in JupyterLab.

    Parameters
    ----------
    runs
        Run directories, folders that hold some, names of recorded runs, trace files; or a `BreakdownReport`, whose
        traces are then not read again.
    slow
        What `perflab.tasks.slow_requests` answered about these runs, so that it is not worked out again.
    tab
        What is shown first: `device` or `requests`.
    given
        Other attributes of `Explorer` to start with.

    Raises
    ------
    InputError
        When a path or name is none of these.
    """
    found = entries(runs)
    return Explorer(Session(found, RequestViews(slow)), tab=tab, **given)


def _facts(session: Session) -> dict[str, Any]:
    """What a page needs to know before it asks: what can be chosen, words and colours."""
    prefix = "explorer.page."
    words = {name.removeprefix(prefix): text for name, text in catalogue().items() if name.startswith(prefix)}
    names = {code: style.word(code) for code in CODES} | {"call": words["call"], "wait": words["wait"]}
    colours = {code: style.CATEGORY_COLOURS.get(code, style.LINE) for code in CODES}
    return {
        "runs": [
            {"name": one.name, "trace": one.has_trace, "requests": session.has_requests(one)} for one in session.entries
        ],
        "codes": list(CODES), "names": names, "colours": colours, "words": words,
        "causes": {name: [CAUSE_WORDS.get(name, name), colour] for name, colour in CAUSE_COLOURS.items()},
    }  # fmt: skip
