"""The README's picture, for a light and a dark page: python docs/make_picture.py

Drawn as the gallery draws its pictures (docs/site/gallery.py), then made PNG by a Chromium.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "site"), str(HERE.parent / "tests")]

import gallery  # noqa: E402
from browser.screenshots import CHROMIUM_FLAGS, chromium  # noqa: E402

from perflab.plots.breakdown import plot_breakdown  # noqa: E402
from perflab.report import svg, views  # noqa: E402
from perflab.tasks.breakdown import breakdown  # noqa: E402

RUNS = ["llama3-8b-eager", "llama3-8b-bf16", "llama3-70b-bf16-tp2"]
SIZE = {"width": 900, "height": 420}


def main() -> None:
    """Write docs/images/breakdown-light.png and breakdown-dark.png."""
    (piece,) = views.breakdown_pieces(breakdown(RUNS))
    light = svg.svg_of(plot_breakdown(**piece).figure)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        tab = browser.new_page(viewport=SIZE, device_scale_factor=2)
        for name, drawing in (("light", light), ("dark", gallery.dark(light))):
            page = Path(folder) / f"{name}.html"
            page.write_text(f"<style>body{{margin:0}} svg{{width:900px;height:auto;display:block}}</style>{drawing}")
            tab.goto(page.as_uri())
            tab.locator("svg").first.screenshot(path=HERE / "images" / f"breakdown-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
