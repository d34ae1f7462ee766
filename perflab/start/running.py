"""Start a run from the notebook, watch it, stop it, and go on from what it left."""

from __future__ import annotations

import html
import threading
import time
from typing import TYPE_CHECKING

import ipywidgets

from perflab import units
from perflab.messages import say
from perflab.report.composing import fitting
from perflab.runs import Run
from perflab.start.parts import fill, guarded, panel, problem, progress_html, show_links
from perflab.tasks.capture import timestamp
from perflab.tasks.filled import filled_notebooks
from perflab.tasks.live import LiveRun, LiveState
from perflab.tasks.own_files import free_folder, short

if TYPE_CHECKING:
    from perflab.start.editor import Editor

_LOOK_S = 0.5


class Running:
    """The buttons and what they show.

    Attributes
    ----------
    live
        The run that was started last; None before.
    """

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.live: LiveRun | None = None
        self.watching: threading.Thread | None = None
        self._allowed = False
        self.start = ipywidgets.Button(
            description=say("start.run.start"), button_style="primary", icon="play", disabled=True
        )
        self.stop = ipywidgets.Button(
            description=say("start.run.stop"), button_style="warning", icon="stop", disabled=True
        )
        self.stop.layout.display = "none"
        self.shown, self.links = panel(), ipywidgets.Output()
        self.start.on_click(lambda _: self.begin())
        self.stop.on_click(lambda _: self.end())
        self.widget = ipywidgets.VBox([ipywidgets.HBox([self.start, self.stop]), self.shown, self.links])

    @property
    def going(self) -> bool:
        """Whether a run goes on."""
        return self.live is not None and self.live.ended is None

    def allow(self, allowed: bool) -> None:
        """Whether what is edited can be run."""
        self._allowed = allowed
        self.start.disabled = not allowed or self.going

    def begin(self) -> None:
        """Save the file and start the run, into a new run directory."""
        path = self.editor.save_file()
        experiment = self.editor.checked.experiment
        if path is None or experiment is None or self.going:
            return
        show_links(self.links, {})
        out = free_folder(self.editor.runs, f"{experiment.name}-{timestamp()}")
        self.live = guarded(lambda: LiveRun(path, out), self.shown)
        if self.live is None:
            return
        self.start.disabled, self.stop.disabled = True, False
        self.stop.layout.display = None
        self.watching = threading.Thread(target=self._watch, args=(self.live,), daemon=True)
        self.watching.start()

    def end(self) -> None:
        """Stop the run; what was measured is kept."""
        if self.live is not None and self.going:
            self.stop.disabled = True
            threading.Thread(target=self.live.stop, daemon=True).start()

    def _watch(self, live: LiveRun) -> None:
        guarded(lambda: self._follow(live), self.shown)
        self.stop.disabled, self.stop.layout.display = True, "none"
        self.start.disabled = not self._allowed

    def _follow(self, live: LiveRun) -> None:
        while (state := live.state()).going:
            fill(self.shown, state_html(state, stopping=self.stop.disabled))
            time.sleep(_LOOK_S)
        fill(self.shown, ended_html(state))
        if state.run is not None:
            self._go_on(state.run)

    def _go_on(self, run: Run) -> None:
        notebooks = [notebook for notebook, _ in fitting([run])]
        folder = run.path.parent / f"{run.path.name}.notebooks"
        made = filled_notebooks([run], notebooks, folder) if notebooks else []
        show_links(self.links, {say(f"start.link.{path.stem.split('_')[0]}"): path for path in made})


def state_html(state: LiveState, *, stopping: bool = False) -> str:
    """A run that goes on: how far, what the engine does, its log."""
    told, serving = state.told, state.serving
    left = say("start.run.left", left=_time(told.remaining_s)) if told.remaining_s is not None else ""
    at = say("start.run.at", done=min(told.done + 1, told.total), of=told.total) if told.total else ""
    numbers = [
        (say("start.run.elapsed"), _time(state.elapsed_s)),
        (say("start.run.point"), at),
        (say("start.run.tokens"), None if serving.tokens_per_s is None else units.show_count(serving.tokens_per_s)),
        (say("start.run.requests"), None if serving.running is None else f"{serving.running} / {serving.waiting or 0}"),
        (say("start.run.kv"), None if serving.kv_usage is None else units.show_share(serving.kv_usage)),
    ]
    shown = "".join(f"<span>{html.escape(name)}<b>{html.escape(value or '–')}</b></span>" for name, value in numbers)
    log = f"<pre>{html.escape(chr(10).join(state.log))}</pre>" if state.log else ""
    what = say("start.run.stopping") if stopping else f"{told.message} {left}".strip()
    return f'{progress_html(state.share, what)}<div class="numbers">{shown}</div>{log}'


def ended_html(state: LiveState) -> str:
    """A run that ended: where it is, and how it came out."""
    if state.run is None:
        return problem(state.told.error or "")
    manifest = state.run.manifest
    told = say("start.run.ended", path=short(state.run.path), status=manifest.status, took=_time(state.elapsed_s))
    kind = "done" if manifest.status == "complete" else "caution"
    why = f"<p>{html.escape(manifest.reason)}</p>" if manifest.reason else ""
    # Of a run in which nothing was measured there is nothing to look at.
    line = say("start.run.line", run=short(state.run.path)) if manifest.status in ("complete", "partial") else ""
    return f'<div class="{kind}"><p>{html.escape(told)}</p>{why}<p>{html.escape(line)}</p></div>'


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
