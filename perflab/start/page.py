"""The start page: name files of your own, see what they are, get them broken down, save the report."""

from __future__ import annotations

import html
import threading
import time
from pathlib import Path
from typing import Any

import ipywidgets

from perflab import places, units
from perflab.errors import PerflabError
from perflab.messages import say
from perflab.report import report
from perflab.report.composing import fitting
from perflab.runs import Run, open_run
from perflab.start.answers import answers, has_answer
from perflab.start.parts import WIDE, fill, guarded, panel, problem, progress_html, show_links, stylesheet
from perflab.tasks.filled import filled_notebooks
from perflab.tasks.imports.copying import safe_name
from perflab.tasks.own_files import (
    Looked,
    Near,
    completions,
    free_folder,
    look_at,
    named_paths,
    nearby,
    run_name_for,
    short,
    take_in,
)

_MOST_KINDS = 8


def own_files(runs: str | Path = "runs", reports: str | Path = "reports") -> Any:
    """The widget. Runs and reports go to these folders of the working folder (`perflab.places.work`)."""
    return OwnFiles(places.work() / runs, places.work() / reports).widget


class OwnFiles:
    """The controls and what they show; everything is worked out by tasks and `perflab.start.answers`.

    Attributes
    ----------
    run
        The run directory that is shown; None before there is one.
    widget
        What a notebook's cell shows.
    """

    def __init__(self, runs: Path, reports: Path) -> None:
        self.runs, self.reports = runs, reports
        self.run: Run | None = None
        self.looked: Looked | None = None
        self.saving: threading.Thread | None = None
        self._near: list[Near] = []
        self.near = ipywidgets.SelectMultiple(
            description=say("start.label_found"), rows=7, layout=ipywidgets.Layout(**WIDE)
        )
        self.found = panel()
        self.path = ipywidgets.Combobox(description=say("start.label_path"), placeholder=say("start.path_example"))
        self.path.layout = ipywidgets.Layout(**WIDE)
        self.upload = ipywidgets.FileUpload(multiple=True, description=say("start.upload"))
        self.again = ipywidgets.Button(description=say("start.search_again"), icon="refresh")
        self.name = ipywidgets.Text(description=say("start.name"), layout=ipywidgets.Layout(width="24rem"))
        self.go = ipywidgets.Button(description=say("start.go"), button_style="primary", disabled=True)
        self.save = ipywidgets.Button(description=say("start.save"), button_style="primary", icon="save")
        self.what, self.said, self.answer, self.saved = panel(), panel(), panel(), panel()
        self.links, self.deeper = ipywidgets.Output(), ipywidgets.Output()
        self.after = ipywidgets.VBox([self.save, self.saved, self.links, panel(_head("deeper")), self.deeper])
        self.after.layout.display = "none"
        self.widget = ipywidgets.VBox([
            stylesheet(), self.found, self.near,
            panel(f"<p>{html.escape(say('start.or_path'))}</p>"), self.path,
            ipywidgets.HBox([self.upload, self.again]), self.what,
            ipywidgets.HBox([self.go, self.name]),
            self.said, self.answer, self.after,
        ])  # fmt: skip
        self.search()
        self.near.observe(self._chosen, names="value")
        self.path.observe(self._typed, names="value")
        self.upload.observe(self._uploaded, names="value")
        self.again.on_click(lambda _: self.search())
        self.go.on_click(lambda _: self.break_down())
        self.save.on_click(lambda _: self.save_report())

    # What there is

    def search(self) -> None:
        """Look for files near: in the working folder and below the home folder."""
        self._near = nearby([places.work(), Path.cwd(), Path.home()])
        self.near.options = [(one.label, index) for index, one in enumerate(self._near)]
        self.near.layout.display = None if self._near else "none"
        fill(self.found, _head("near" if self._near else "none_near"))

    def look(self, paths: list[Path]) -> None:
        """Say what files are; offer to break them down where they tell of a run."""
        self.looked = guarded(lambda: look_at(paths), self.what) if paths else None
        self.go.disabled = self.looked is None or not self.looked.useful
        if self.looked is not None:
            fill(self.what, _what_html(self.looked))
            self.name.value = run_name_for(paths)
            self.name.disabled = self.looked.run is not None
        elif not paths:
            fill(self.what, "")

    def _chosen(self, change: Any) -> None:
        if change.new:
            self.path.value = ""
            self.look([self._near[index].path for index in change.new])

    def _typed(self, change: Any) -> None:
        text = str(change.new).strip()
        if not text:
            return
        self.near.value = ()
        self.path.options = completions(text)
        try:
            self.look(named_paths(text))
        except PerflabError as error:
            # Half a path is no mistake: it is said quietly until it is one.
            self.looked, self.go.disabled = None, True
            fill(self.what, f'<p class="quiet">{html.escape(str(error))}</p>')

    def _uploaded(self, change: Any) -> None:
        if change.new:
            guarded(lambda: self.look(self._kept(change.new)), self.what)

    def _kept(self, uploads: Any) -> list[Path]:
        """Uploaded files, written to a folder of their own."""
        self.runs.mkdir(parents=True, exist_ok=True)
        folder = free_folder(self.runs / "uploads", time.strftime("%Y%m%d-%H%M%S"))
        folder.mkdir(parents=True)
        paths = []
        for one in uploads:
            path = folder / safe_name(Path(one["name"]).name)
            path.write_bytes(bytes(one["content"]))
            paths.append(path)
        return paths

    # The breakdown

    def break_down(self) -> None:
        """Import the files that were looked at, and show the run in short."""
        if self.looked is None:
            return
        self.after.layout.display = "none"
        for cleared in (self.answer, self.saved, self.said):
            fill(cleared, "")
        show_links(self.links, {})
        guarded(lambda: self._break_down(self.looked), self.said, busy=(self.go, self.again))

    def _break_down(self, looked: Any) -> None:
        began = time.monotonic()
        fill(self.said, progress_html(None, say("start.importing")))
        self.run = open_run(looked.run) if looked.run else take_in(looked.paths, self.runs, self.name.value)
        name = self.run.path.name
        shown = ""
        for doing, part in answers(self.run):
            shown += part
            fill(self.answer, shown)
            fill(self.said, progress_html(None, say(f"start.doing_{doing}", run=name)) if doing else "")
        key = "start.opened" if looked.run else "start.imported"
        took = units.show_time(units.ns_from_seconds(time.monotonic() - began))
        fill(self.said, f'<p class="done">{html.escape(say(key, run=short(self.run.path), took=took))}</p>')
        self.save.disabled = not has_answer(self.run)
        self._go_deeper(self.run)
        self.after.layout.display = None

    def _go_deeper(self, run: Run) -> None:
        notebooks = [notebook for notebook, _ in fitting([run])]
        own = run.path.parent / f"{run.path.name}.notebooks" if run.path.is_relative_to(self.runs) else None
        folder = own or self.runs / f"{run.path.name}.notebooks"
        made = filled_notebooks([run], notebooks, folder) if notebooks else []
        show_links(self.deeper, {say(f"start.link.{path.stem.split('_')[0]}"): path for path in made})

    # The report

    def save_report(self) -> None:
        """Write the HTML report beside other reports; nothing is replaced. Goes on while the page is used."""
        if self.run is None or (self.saving is not None and self.saving.is_alive()):
            return
        self.save.disabled = True
        self.saving = threading.Thread(target=self._save, args=(self.run,), daemon=True)
        self.saving.start()

    def _save(self, run: Run) -> None:
        def tell(done: int, of: int, notebook: str) -> None:
            fill(
                self.saved, progress_html((done + 0.15) / of, say("start.saving", done=done + 1, of=of, what=notebook))
            )

        def write() -> Path:
            self.reports.mkdir(parents=True, exist_ok=True)
            out = free_folder(self.reports, run.path.name, ".html")
            return report([run.path], out, progress=lambda d, o, n: tell(d, o, n) if n else None)

        out = guarded(write, self.saved, busy=(self.save,))
        if out is not None:
            size = units.show_bytes(out.stat().st_size)
            fill(self.saved, f'<p class="done">{html.escape(say("start.saved", path=short(out), size=size))}</p>')
            show_links(self.links, {say("start.open_report"): out})


def _head(name: str) -> str:
    return f"<h4>{html.escape(say(f'start.{name}'))}</h4>"


def _what_html(looked: Looked) -> str:
    """A line a kind of file, and why where nothing can be made of them."""
    if looked.run is not None:
        return f'<div class="card">{html.escape(say("start.is_run", path=short(looked.run)))}</div>'
    lines = [
        say("start.is_file" if n == 1 else "start.are_files", what=what, n=n, size=units.show_bytes(size))
        for what, n, size in looked.counts()
    ]
    more = [say("start.more_kinds", n=len(lines) - _MOST_KINDS)] if len(lines) > _MOST_KINDS else []
    more += [say("start.left_out", n=looked.left_out)] if looked.left_out else []
    told = "".join(f"<div>{html.escape(line)}</div>" for line in lines[:_MOST_KINDS] + more)
    card = f'<div class="card">{told}</div>' if told else ""
    return card if looked.useful else card + problem(say("start.no_use" if lines else "start.empty_folder"))
