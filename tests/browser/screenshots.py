"""Any report or executed notebook as pictures, and what is wrong with how it looks.

From a shell: python tests/browser/screenshots.py REPORT.html -o FOLDER
"""

from __future__ import annotations

import argparse
import io
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
_CHECKS = Path(__file__).with_name("page_checks.js")
_FIGURES = """() => [...document.querySelectorAll('figure svg, figure img')].map(e => {
  const box = e.getBoundingClientRect(), seen = Math.min(box.right, document.documentElement.clientWidth);
  return [Math.max(box.left, 0), box.top + scrollY, seen, box.bottom + scrollY].map(Math.round);
})"""
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
    problems += tab.evaluate(_CHECKS.read_text(encoding="utf-8"))
    tab.screenshot(path=str(picture), full_page=True, animations="disabled")
    with Image.open(picture) as whole:
        if _spread(whole) < MIN_SPREAD:
            problems.append("the page is blank")
        # Cut out of the one picture: taking one of each figure takes minutes on a long page.
        for number, box in enumerate(tab.evaluate(_FIGURES), start=1):
            if box[2] - box[0] > 1 and box[3] - box[1] > 1 and _spread(whole.crop(box)) < MIN_SPREAD:
                problems.append(f"figure {number} is blank")
    context.close()
    return Look(view, picture, problems)


def stitch(parts: Iterable[tuple[int, bytes]], picture: Path, height: int) -> None:
    """One picture, so high, of parts as PNG, each with how many pixels from the top it begins."""
    images = [(top, Image.open(io.BytesIO(data))) for top, data in parts]
    whole = Image.new("RGB", (images[0][1].width, height))
    for top, image in images:
        whole.paste(image, (0, top))
    whole.save(picture)


def _inside(url: str, address: str) -> bool:
    return url.split("#")[0] == address or url.startswith("data:")


def _spread(image: Image.Image) -> float:
    return float(ImageStat.Stat(image.convert("L")).stddev[0])


def main(argv: list[str] | None = None) -> int:
    """Pictures of one page; what is wrong goes to stdout, and the exit status is 1 if something is."""
    parser = argparse.ArgumentParser(description="Pictures of a report or notebook, and what is wrong with it.")
    parser.add_argument("page", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("screenshots"))
    args = parser.parse_args(argv)
    if chromium() is None:
        sys.stderr.write("neither chromium nor google-chrome is on the path\n")
        return 2
    looks = look_at(args.page, args.out)
    for look in looks:
        sys.stdout.write(f"{look.picture}: {'; '.join(look.problems) or 'nothing wrong'}\n")
    return int(any(look.problems for look in looks))


if __name__ == "__main__":
    sys.exit(main())
