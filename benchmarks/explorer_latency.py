"""How long the explorer takes to answer on a run of a million kernels: in the kernel alone, and in JupyterLab.

    flock LOCK python benchmarks/explorer_latency.py [--kernels 1000000] [--browser] [--out latency.json]

Writes a valid Kineto trace of so many kernels (steps of 400 in one CUDA graph each, 300 names with C++ in them, five
streams, small overlaps), reads it as any trace is read, and asks what the page asks when a reader zooms, pans, searches
or marks. With `--browser` the same happens in JupyterLab in a headless Chromium: from the event of the mouse or the key
to the first frame, to the exact timeline, and to all that follows from it (the table of kernels, sums).
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic_trace import NAMES, PER_STEP, write_trace

WIDTH = 2400


def in_kernel(path: Path, repeats: int) -> dict[str, Any]:
    """Load times, and milliseconds of each question, in this process."""
    from perflab.explorer.requests import RequestViews
    from perflab.explorer.session import Session
    from perflab.explorer.sources import entries, read_pass
    from perflab.tasks.breakdown import breakdown

    begun = time.perf_counter()
    report = breakdown(path, attribution=False)
    broken = time.perf_counter()
    read_pass(report.passes[0])
    found: dict[str, Any] = {"breakdown_s": broken - begun, "arrays_s": time.perf_counter() - broken}
    session = Session(entries(report), RequestViews())
    opened, _ = session.answer({"what": "open", "run": 0})
    low, high = opened["window"]
    found["kernels"] = opened["ranks"][0]["activities"]
    chance = random.Random(2)

    def some(part: float) -> dict[str, int]:
        span = int((high - low) * part)
        start = low + chance.randrange(max(high - low - span, 1))
        return {"start": start, "end": start + max(span, 1000)}

    def view(part: float, **more: Any) -> Callable[[], dict[str, Any]]:
        return lambda: {"what": "view", "width": WIDTH, **some(part), **more}

    def table(kind: str, **more: Any) -> Callable[[], dict[str, Any]]:
        return lambda: {"what": "kernels", "scope": {"kind": kind, **(some(1) if kind == "span" else {}), **more}}

    texts = iter(range(10**9))
    asked: dict[str, Callable[[], dict[str, Any]]] = {
        "zoom: whole trace": view(1), "zoom: a tenth": view(0.1), "zoom: a hundredth": view(0.01),
        "zoom: one step": view(PER_STEP / found["kernels"]), "zoom: 20 kernels": view(20 / found["kernels"]),
        "overview": lambda: {"what": "overview", "width": WIDTH, "start": low, "end": high},
        "search: first view, most kernels": lambda: view(1, text=f"nvjet|void|x{next(texts)}", pattern=True)(),
        "search: first view, few kernels": lambda: view(1, text=f"norm_{next(texts) % NAMES}")(),
        "search: next view": view(1, text="nvjet"),
        "search: next occurrence": lambda: {"what": "occurrence", "text": "nvjet", "at": some(0.5)["start"], "step": 1},
        "mark a third": lambda: {"what": "select", **some(1 / 3)},
        "mark everything": lambda: {"what": "select", **some(1)},
        "kernel table: all": table("all"), "kernel table: a phase": table("phase", phase="decode"),
        "kernel table: everything shown": table("span"),
        "kernel table: one category": lambda: {**table("all")(), "categories": ["gemm"]},
        "breakdown of a phase": lambda: {"what": "bars", "phase": "decode"},
        "hover": lambda: {"what": "detail", "rank": 0, "row": chance.randrange(found["kernels"])},
    }  # fmt: skip
    for what, make in asked.items():
        took, size = [], 0
        for _ in range(repeats):
            question = {"run": 0, "ranks": [0], **make()}
            begun = time.perf_counter()
            reply, buffers = session.answer(question)
            took.append((time.perf_counter() - begun) * 1e3)
            assert "error" not in reply, reply
            size = max(size, len(json.dumps(reply)) + sum(map(len, buffers)))
        found[what] = {"median_ms": statistics.median(took), "max_ms": max(took), "n": repeats, "most_bytes": size}
    return found


# Runs in the page: do something; when was the first frame drawn, when the exact timeline, when all that follows?
_TIMED = """async ([what, times]) => {
  const root = document.querySelector('.pl'), canvas = root.querySelector('[data-view=timeline]'), took = [];
  const frame = () => new Promise(requestAnimationFrame);
  const watched = async begun => {
    const found = { first: 0, exact: 0, all: 0 };
    for (let quiet = 0; quiet < 2;) {
      await frame();
      // What was asked for is drawn in the frame after the one in which it is there.
      const now = performance.now() - begun, state = root.plState();
      found.first ||= now;
      if (!state.isExact()) found.exact = 0; else found.exact ||= now;
      if (!state.isFresh()) { quiet = 0; found.all = 0; } else { quiet += 1; found.all ||= now; }
    }
    return found;
  };
  const box = canvas.getBoundingClientRect(), fire = (type, more) => canvas.dispatchEvent(new PointerEvent(type, {
    bubbles: true, button: 0, pointerId: 1, clientX: box.left + 600, clientY: box.top + 60, ...more}));
  canvas.setPointerCapture = () => {};
  const search = root.querySelector('.pl-search'), type = text => {
    search.focus(); search.value = text; search.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const wheel = turn => canvas.dispatchEvent(new WheelEvent('wheel', {
    deltaY: turn, clientX: box.left + 700, clientY: box.top + 60, cancelable: true }));
  const drag = (from, to, more) => {
    fire('pointerdown', { ...more, clientX: box.left + from });
    fire('pointermove', { clientX: box.left + to });
    fire('pointerup', { clientX: box.left + to });
  };
  const acts = {
    'zoom in': () => wheel(-120), 'zoom out': () => wheel(120), 'pan': () => drag(600, 80),
    'everything': n => root.plState().show(n), 'mark': n => drag(200, 500 + 7 * n, { shiftKey: true }),
    'next step': () => canvas.dispatchEvent(new KeyboardEvent('keydown', { key: ']' })),
    'search': n => type(['nvjet', 'flash', 'norm_2', 'void', 'triton'][n % 5]),
    'category': n => root.querySelectorAll('.pl-legend .pl-key[data-category]')[n % 3].click(),
    'phase': n => root.querySelectorAll('[data-phase]')[1 + n % 2].click(),
  };
  for (let n = 0; n < times; n++) {
    const begun = performance.now();
    acts[what](n);
    took.push(await watched(begun));
    await new Promise(done => setTimeout(done, 120));
  }
  return took;
}"""
_REPEATS = {
    "everything": 10, "zoom in": 30, "pan": 20, "zoom out": 30, "next step": 20, "mark": 10, "search": 10,
    "category": 10, "phase": 10,
}  # fmt: skip


def in_browser(path: Path) -> dict[str, Any]:
    """Milliseconds from an event to the first frame, to the exact timeline, and to all that follows from it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from browser.lab import Lab, Server, Window, browser
    from small_runs import write_notebook

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server, browser() as chrome:
        code = f"from perflab.explorer import explore\nexplore({str(path)!r})"
        notebook = write_notebook(server.root / "explore.ipynb", ("code", code, []))
        with Lab(server, chrome).notebook(notebook, Window(1500, "light", 1300)) as page:
            page.run_all()
            begun = time.perf_counter()
            page.page.wait_for_selector(".pl-bars .pl-part", timeout=240_000)
            page.wait(240)
            found["open_s"] = time.perf_counter() - begun
            for what, times in _REPEATS.items():
                took = page.page.evaluate(_TIMED, [what, times])
                for part in ("first", "exact", "all"):
                    each = [one[part] for one in took]
                    found[f"{what}: {part}"] = {"median_ms": statistics.median(each), "max_ms": max(each), "n": times}
            if page.problems():
                raise SystemExit("\n".join(page.problems()))
    return found


def show(found: dict[str, Any], title: str) -> None:
    """A line a question."""
    print(f"\n{title}")
    for what, told in found.items():
        if isinstance(told, dict):
            print(f"  {what:46} median {told['median_ms']:7.1f} ms   max {told['max_ms']:7.1f} ms   n {told['n']}")
        else:
            print(f"  {what:46} {told:,.1f}" if isinstance(told, float) else f"  {what:46} {told:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--browser", action="store_true", help="also in JupyterLab, in a headless Chromium")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--trace", type=Path, help="keep the trace here, or use the one that is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.trace or Path(folder) / "million.pt.trace.json"
        if not path.exists():
            write_trace(path, asked.kernels)
        found = {"kernel": in_kernel(path, asked.repeats)}
        show(found["kernel"], f"In the kernel, {path.stat().st_size / 1e6:,.0f} MB of trace")
        if asked.browser:
            found["browser"] = in_browser(path)
            show(
                found["browser"],
                "In JupyterLab, from the event to the first frame, the exact timeline, all that follows",
            )
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
