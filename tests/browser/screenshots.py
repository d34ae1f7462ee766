"""Any report or executed notebook as pictures, and what is wrong with how it looks.

From a shell: python tests/browser/screenshots.py REPORT.html -o FOLDER
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageStat

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MIN_SPREAD = 3.0
"""Standard deviation of grey values under which a picture counts as blank."""


@dataclass(frozen=True)
class View:
    """A window and a colour scheme to look at a page in."""

    width: int
    scheme: str

    @property
    def name(self) -> str:
        """`1280-light`."""
        return f"{self.width}-{self.scheme}"


VIEWS = tuple(View(width, scheme) for width in (1280, 420) for scheme in ("light", "dark"))


@dataclass(frozen=True)
class Look:
    """One picture of a page, and what is wrong with it: nothing, if all is well."""

    view: View
    picture: Path
    problems: list[str] = field(default_factory=list)


def chromium() -> str | None:
    """A Chromium or Chrome on the path, None where there is none."""
    return next((found for name in CHROMIUM_NAMES if (found := shutil.which(name))), None)


def look_at(page: Path, folder: Path, views: Iterable[View] = VIEWS) -> list[Look]:
    """Take a full-page picture of an HTML file or an executed notebook in each view, and check each.

    Checked: no request but for the page itself, no error on the console, not blank, as wide as the window and
    nothing sticking out of it or cut off, every figure drawn, with a text alternative and its labels inside it.
    """
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    if page.suffix == ".ipynb":
        from perflab.report import render

        page = render(page, folder / f"{page.stem}.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        try:
            return [_look(browser, page.resolve(), folder / f"{page.stem}-{view.name}.png", view) for view in views]
        finally:
            browser.close()


def _look(browser: Any, page: Path, picture: Path, view: View) -> Look:
    problems: list[str] = []
    context = browser.new_context(
        viewport={"width": view.width, "height": 900}, color_scheme=view.scheme, device_scale_factor=1
    )
    tab = context.new_page()
    address = page.as_uri()
    tab.on("request", lambda r: None if _inside(r.url, address) else problems.append(f"asks for {r.url[:120]}"))
    tab.on("console", lambda m: problems.append(f"console: {m.text[:200]}") if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    tab.on("dialog", lambda dialog: (problems.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
    tab.goto(address, wait_until="networkidle")
    problems += tab.evaluate(_WHAT_IS_WRONG)
    tab.screenshot(path=str(picture), full_page=True, animations="disabled")
    if _spread(picture) < MIN_SPREAD:
        problems.append("the page is blank")
    for number, figure in enumerate(tab.locator("figure svg, figure img").all(), start=1):
        part = picture.with_name(f"{picture.stem}-figure{number}.png")
        figure.screenshot(path=str(part))
        if _spread(part) < MIN_SPREAD:
            problems.append(f"figure {number} is blank")
        part.unlink()
    context.close()
    return Look(view, picture, problems)


def _inside(url: str, address: str) -> bool:
    return url.split("#")[0] == address or url.startswith("data:")


def _spread(picture: Path) -> float:
    with Image.open(picture) as image:
        return float(ImageStat.Stat(image.convert("L")).stddev[0])


_WHAT_IS_WRONG = """
() => {
  const wrong = [], width = document.documentElement.clientWidth, slack = 1.5;
  const named = e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + (typeof e.className === 'string' && e.className ? '.' + e.className.trim().split(/\\s+/).join('.') : '');
  const scrolls = e => { for (let p = e; p && p !== document.body; p = p.parentElement) {
    const o = getComputedStyle(p).overflowX; if (o === 'auto' || o === 'scroll') return true; } return false; };
  if (document.body.innerText.trim().length < 40) wrong.push('the page has hardly any text');
  const whole = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  if (whole > width + slack) wrong.push(`the page is ${whole} wide in a window of ${width}`);
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('svg') && e.tagName.toLowerCase() !== 'svg') continue;
    const box = e.getBoundingClientRect(), css = getComputedStyle(e);
    if (!box.width || !box.height || css.visibility === 'hidden' || e.matches('.skip')) continue;
    if ((box.right > width + slack || box.left < -slack) && !scrolls(e.parentElement || e) && !scrolls(e))
      wrong.push(`${named(e)} sticks out of the window: ${Math.round(box.left)} to ${Math.round(box.right)} of ${width}`);
    if (['hidden', 'clip'].includes(css.overflowX) && e.tagName.toLowerCase() !== 'svg' && e.scrollWidth > e.clientWidth + slack)
      wrong.push(`${named(e)} cuts off its content: ${e.scrollWidth} in ${e.clientWidth}`);
    if (['hidden', 'clip'].includes(css.overflowY) && e.tagName.toLowerCase() !== 'svg' && e.scrollHeight > e.clientHeight + slack)
      wrong.push(`${named(e)} cuts off its content: ${e.scrollHeight} high in ${e.clientHeight}`);
  }
  for (const e of document.querySelectorAll('img, svg')) {
    const box = e.getBoundingClientRect(), alt = (e.getAttribute('alt') || e.getAttribute('aria-label') || '').trim();
    if (box.width < 20 || box.height < 20) wrong.push(`${named(e)} is ${Math.round(box.width)} x ${Math.round(box.height)}`);
    if (!alt) wrong.push(`${named(e)} has no text alternative`);
    if (e.tagName === 'IMG' && !e.naturalWidth) wrong.push(`${named(e)} shows nothing`);
    if (e.tagName.toLowerCase() !== 'svg') continue;
    for (const text of e.querySelectorAll('g[id*="text_"]')) {
      const t = text.getBoundingClientRect();
      if (t.width && (t.left < box.left - slack || t.right > box.right + slack || t.top < box.top - slack || t.bottom > box.bottom + slack))
        wrong.push(`a label of the figure "${alt.slice(0, 60)}" is cut off at the figure's edge (${text.id})`);
    }
  }
  return [...new Set(wrong)];
}
"""


def main(argv: list[str] | None = None) -> int:
    """Pictures of one page; what is wrong goes to stdout, and the exit status is 1 if something is."""
    parser = argparse.ArgumentParser(
        description="Pictures of a report or executed notebook, and what is wrong with it."
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("screenshots"))
    args = parser.parse_args(argv)
    if chromium() is None:
        print("neither chromium nor google-chrome is on the path", file=sys.stderr)
        return 2
    looks = look_at(args.page, args.out)
    for look in looks:
        print(f"{look.picture}: {'; '.join(look.problems) or 'nothing wrong'}")
    return int(any(look.problems for look in looks))


if __name__ == "__main__":
    sys.exit(main())
