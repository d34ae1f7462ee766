"""A real JupyterLab in a real Chromium, and what a person does in it: open a notebook, run it, operate its widgets.

In a test, by the fixture `lab` of tests/browser/conftest.py:

    def test_it(lab):
        with lab.notebook("03_gpu_time_breakdown.ipynb") as notebook:
            notebook.run_all()
            notebook.select("step", "2 (decode)")
            assert notebook.problems() == []
            notebook.shoot("after-selecting")
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from browser.screenshots import CHROMIUM_FLAGS, chromium, stitch

from perflab import places
from perflab.capture.process import free_port
from perflab.lab import lab_command

ARTIFACTS = Path(__file__).with_name("artifacts")
"""Pictures of the last run of the tests; not committed."""
FOLDER = "perflab-notebooks"
"""Where the copies of the notebooks lie in the folder that JupyterLab shows, as `perflab lab` lays them out."""
_CHECKS = Path(__file__).with_name("lab_checks.js")
_TOKEN = "token-of-the-tests"
_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
"""JupyterLab's own ways out of this machine are closed, so that what still leaves it is the notebooks' doing."""
# JupyterLab says these of itself, whatever notebook is open.
_NOISE = ("favicon", "ResizeObserver loop", "Extension Manager", "was preloaded using link preload")

_STATE = """before => {
  const panel = window.jupyterapp?.shell.currentWidget, cells = panel?.content?.model?.cells;
  if (!cells) return null;
  const code = [...cells].filter(c => c.type === 'code' && c.sharedModel.getSource().trim());
  return {
    kernel: panel.sessionContext?.session?.kernel?.status ?? 'none',
    running: code.filter(c => c.executionState === 'running').length,
    ran: code.filter(c => c.executionCount > before && c.executionState !== 'running').length,
    code: code.length,
    last: Math.max(0, ...code.map(c => c.executionCount ?? 0)),
    failed: code.some(c => c.executionCount > before && c.outputs.toJSON().some(o => o.output_type === 'error')),
  };
}"""
_OUTPUTS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .filter(c => c.type === 'code')
  .flatMap(c => c.outputs.toJSON().map(output => ({cell: c.sharedModel.getId(), output})))"""
# JupyterLab lets one scroll beyond the last cell.
_LENGTH = """e => {
  e.scrollTop = 0;
  const cells = [...e.querySelectorAll('.jp-Cell')], top = e.getBoundingClientRect().top;
  return [Math.ceil(Math.max(...cells.map(c => c.getBoundingClientRect().bottom)) - top) + 12, e.clientHeight];
}"""
_SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"


@dataclass(frozen=True)
class Window:
    """A window on JupyterLab: its width and the theme."""

    width: int = 1400
    scheme: str = "light"
    height: int = 1000

    @property
    def name(self) -> str:
        """`1400-light`."""
        return f"{self.width}-{self.scheme}"


WIDE, WIDE_DARK, NARROW, NARROW_DARK = Window(), Window(scheme="dark"), Window(800), Window(800, "dark")


class Server:
    """A JupyterLab of this Python on the loopback, with a folder, settings and kernels of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.notebooks = self.root / FOLDER
        self._own, self._log = folder / "jupyter", folder / "jupyter.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.notebooks.mkdir(parents=True)
        for notebook in places.notebooks().glob("*.ipynb"):
            shutil.copyfile(notebook, self.notebooks / notebook.name)

    def __enter__(self) -> Self:
        settings = self._own / "config" / "labconfig"
        settings.mkdir(parents=True)
        (settings / "default_setting_overrides.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")
        extra = [
            "--no-browser", f"--ServerApp.port={urlsplit(self.url).port}", "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={_TOKEN}", "--LabApp.expose_app_in_browser=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None",
            "--LabApp.extension_manager=readonly",
        ]  # fmt: skip
        own = {name: str(self._own / name.split("_")[1].lower()) for name in _JUPYTER_FOLDERS}
        environment = {**os.environ, **own, "IPYTHONDIR": str(self._own / "ipython"), places.WORK: str(self.root)}
        command = lab_command(self.notebooks, self.root, extra)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + 120
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"JupyterLab does not start: {self.log[-2000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        """What JupyterLab and the kernels wrote to their terminal."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def address(self, path: str) -> str:
        """Of a file below the root; in a workspace of its own, so that nothing that was open is restored."""
        return f"{self.url}/lab/workspaces/auto-{time.monotonic_ns()}/tree/{path}?token={_TOKEN}&reset"

    def ask(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """The answer of JupyterLab's own interface."""
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode() if body is not None else None,
            {"Authorization": f"token {_TOKEN}", "Content-Type": "application/json"}, method=method,
        )  # fmt: skip
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def use_theme(self, scheme: str) -> None:
        """From the next page on."""
        raw = json.dumps({"theme": _THEMES[scheme]})
        self.ask("lab/api/settings/@jupyterlab/apputils-extension:themes", "PUT", {"raw": raw})

    def end_kernels(self) -> None:
        """End every kernel with its session."""
        for session in self.ask("api/sessions"):
            self.ask(f"api/sessions/{session['id']}", "DELETE")

    def _answers(self) -> bool:
        try:
            return bool(self.ask("api/status"))
        except OSError:
            return False


_JUPYTER_FOLDERS = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


class Lab:
    """A browser on a server. Ask for it as the fixture `lab`."""

    def __init__(self, server: Server, browser: Any) -> None:
        self.server, self.browser = server, browser

    @contextmanager
    def notebook(self, path: str | Path, window: Window = WIDE) -> Iterator[Notebook]:
        """Open a notebook below the server's root (or a name of perflab's); its kernel ends with the block."""
        inside = Path(path)
        if inside.is_absolute():
            inside = inside.relative_to(self.server.root)
        elif not (self.server.root / inside).exists():
            inside = Path(FOLDER) / inside
        if not (self.server.root / inside).is_file():
            raise FileNotFoundError(inside)
        self.server.use_theme(window.scheme)
        context = self.browser.new_context(
            viewport={"width": window.width, "height": window.height}, color_scheme=window.scheme, device_scale_factor=1
        )
        try:
            page = context.new_page()
            opened = Notebook(page, inside.stem, window)
            page.goto(self.server.address(inside.as_posix()))
            opened._ready()
            yield opened
        finally:
            context.close()
            self.server.end_kernels()


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        try:
            yield running
        finally:
            running.close()


@dataclass
class Notebook:
    """A notebook that is open in JupyterLab. `page` is playwright's, for what is not here."""

    page: Any
    name: str
    window: Window
    said: list[str] = field(default_factory=list)
    """What the browser complained of, and what was asked of another machine."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("websocket", lambda socket: self._asked(socket.url))
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self._heard("error", str(error)))

    # What a person does

    def run_all(self, timeout_s: float = 480) -> None:
        """Run > Run All Cells; returns when every cell ran or one failed, and the kernel is idle."""
        before = self.page.evaluate(_STATE, 0)["last"]
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.wait(timeout_s, ran_after=before)

    def view(self, window: Window) -> None:
        """Make the window so wide and choose the theme, as in Settings > Theme; what was run stays."""
        self.window = window
        self.page.set_viewport_size({"width": window.width, "height": window.height})
        self.page.emulate_media(color_scheme=window.scheme)
        change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
        self.page.evaluate(change, _THEMES[window.scheme])
        light = "true" if window.scheme == "light" else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")
        self.page.evaluate(_SETTLED)

    def set_cell(self, cell: str, source: str) -> None:
        """Put other source into the cell with this id."""
        put = """([id, source]) => { for (const c of window.jupyterapp.shell.currentWidget.content.model.cells)
            if (c.sharedModel.getId() === id) { c.sharedModel.setSource(source); return true; } return false; }"""
        assert self.page.evaluate(put, [cell, source]), f"no cell {cell}"

    def widget(self, label: str) -> Any:
        """The widget of ipywidgets with this label; for others use `page.get_by_role` and the like."""
        labels = self.page.locator(".widget-label", has_text=label)
        return self._panel.locator(".jupyter-widgets", has=labels).last

    def select(self, label: str, option: str) -> None:
        """Choose in a Dropdown (or any `select` with this label), and wait for what follows."""
        box = self.widget(label).locator("select") if self.widget(label).count() else self._panel.get_by_label(label)
        box.select_option(label=option)
        self.wait()

    def options(self, label: str) -> list[str]:
        """What a Dropdown offers."""
        return [text.strip() for text in self.widget(label).locator("option").all_inner_texts()]

    def type(self, label: str, text: str, enter: bool = True) -> None:
        """Replace what is in a Text, key by key, and wait for what follows."""
        box = self.widget(label).locator("input, textarea").first
        box.click()
        box.press("Control+a")
        box.press_sequentially(text)
        box.press("Enter") if enter else box.blur()
        self.wait()

    def click(self, button: str) -> None:
        """Click the button with this text, and wait for what follows."""
        self._panel.locator("button:visible", has_text=button).first.click()
        self.wait()

    def drag_slider(self, label: str, to: float, handle: int = 0) -> None:
        """Drag a handle of a slider to a part of its length, 0 to 1, and wait for what follows."""
        slider = self.widget(label)
        rail = slider.locator(".noUi-base").bounding_box()
        grip = slider.locator(".noUi-handle").nth(handle)
        at = grip.bounding_box()
        self._drag(
            (at["x"] + at["width"] / 2, at["y"] + at["height"] / 2), (rail["x"] + rail["width"] * to, at["y"] + 5)
        )
        self.wait()

    def drag(self, on: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag the mouse over an element (a locator), from and to places given as parts of its width and height."""
        self._drag(self._place(on, start), self._place(on, end))
        self.wait()

    def hover(self, on: Any, at: tuple[float, float]) -> None:
        """Move the mouse to a place in an element."""
        self.page.mouse.move(*self._place(on, at))
        self.page.evaluate(_SETTLED)

    def wheel(self, on: Any, at: tuple[float, float], turn: float) -> None:
        """Turn the wheel over a place of an element; a negative turn is away from the person."""
        self.page.mouse.move(*self._place(on, at))
        self.page.mouse.wheel(0, turn)
        self.wait()

    # What a person sees

    def wait(self, timeout_s: float = 120, *, ran_after: int | None = None) -> None:
        """Until the kernel has been idle for a moment, and the page has drawn what came of it.

        With `ran_after` every cell must have a higher number in brackets than this, or one have failed.
        """
        end, quiet = time.monotonic() + timeout_s, 0
        while quiet < 3:
            state = self.page.evaluate(_STATE, ran_after or 0)
            done = state is not None and state["kernel"] == "idle" and not state["running"]
            if done and ran_after is not None:
                done = state["failed"] or state["ran"] == state["code"]
            quiet = quiet + 1 if done else 0
            if not done and time.monotonic() > end:
                raise TimeoutError(f"{self.name} is not done after {timeout_s:.0f} s: {state}")
            self.page.wait_for_timeout(100)
        self.page.evaluate(_SETTLED)

    def outputs(self) -> list[dict[str, Any]]:
        """Every output as nbformat has it, in order, with the `cell` that made it: {"cell": id, "output": {...}}."""
        found: list[dict[str, Any]] = self.page.evaluate(_OUTPUTS)
        return found

    def problems(self) -> list[str]:
        """Errors and stderr in outputs, complaints of the browser, and requests to other machines."""
        wrong = list(self.said)
        for one in self.outputs():
            output = one["output"]
            if output["output_type"] == "error":
                wrong.append(f"cell {one['cell']} failed: {output['ename']}: {output['evalue']}"[:400])
            if output["output_type"] == "stream":
                wrong.append(f"cell {one['cell']} wrote to {output['name']}: {''.join(output['text'])[:300]}")
        for widget in self._panel.locator(".jupyter-widgets .jp-RenderedText[data-mime-type*='stderr']").all():
            wrong.append(f"a widget wrote to stderr: {widget.inner_text()[:300]}")
        return wrong

    def looks(self) -> list[str]:
        """What is wrong with how outputs look: cut off, sticking out, empty figures, figures without alternative."""
        self._render_all()
        found: list[str] = self.page.evaluate(_CHECKS.read_text(encoding="utf-8"))
        return found

    def shoot(self, what: str = "", on: Any = None) -> Path:
        """Keep a picture of the whole notebook, however long (or of one element), among the artifacts."""
        self._render_all()
        stem = "-".join(part for part in (self.name, what, self.window.name) if part)
        picture = ARTIFACTS / f"{stem}.png"
        picture.parent.mkdir(exist_ok=True)
        if on is not None:
            on.scroll_into_view_if_needed()
            on.screenshot(path=str(picture), animations="disabled")
            return picture
        scroller = self._panel.locator(".jp-WindowedPanel-outer").first
        self.page.mouse.move(self.window.width / 2, 1)  # nothing under the mouse is lit up
        whole, seen = scroller.evaluate(_LENGTH)
        parts = []
        for top in range(0, whole, seen):
            at = scroller.evaluate("(e, top) => { e.scrollTop = top; return e.scrollTop; }", top)
            self.page.evaluate(_SETTLED)
            parts.append((round(at), scroller.screenshot(animations="disabled")))
        stitch(parts, picture, whole)
        return picture

    # How it is done

    @property
    def _panel(self) -> Any:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").first

    def _ready(self) -> None:
        """Wait until the kernel is there; close the file browser, which takes a third of a narrow window."""
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        self.page.evaluate("() => { window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.collapseRight(); }")
        self.wait(120)

    def _render_all(self) -> None:
        """Cells out of sight are not laid out until they come into it; here they are."""
        self.page.add_style_tag(content=".jp-Cell { content-visibility: visible !important; }")
        self.page.evaluate(_SETTLED)

    def _place(self, on: Any, part: tuple[float, float]) -> tuple[float, float]:
        on.scroll_into_view_if_needed()
        box = on.bounding_box()
        return box["x"] + box["width"] * part[0], box["y"] + box["height"] * part[1]

    def _drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=8)
        self.page.mouse.up()

    def _asked(self, url: str) -> None:
        place = urlsplit(url)
        if place.scheme not in ("data", "blob", "about") and place.hostname != "127.0.0.1":
            self.said.append(f"asks for {url[:160]}")

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(known in text for known in _NOISE):
            self.said.append(f"console: {text[:300]}")
