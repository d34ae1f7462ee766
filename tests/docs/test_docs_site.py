"""The documentation builds without a warning, has a picture of every figure, and asks the network for nothing."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser.screenshots import CHROMIUM_FLAGS, chromium

import perflab.plots
from perflab import cli, schema

# More than half of it draws figures and reads recorded runs.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    pytest.importorskip("sphinx", reason="needs the extra `docs`")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, str(root / "docs" / "site" / "build.py"), str(out)],
        text=True,
        capture_output=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out / "html"


def test_it_builds_and_every_page_has_its_place(site: Path, root: Path) -> None:
    index = (site / "index.html").read_text()
    for page in (root / "docs").glob("*.md"):
        name = "index" if page.name == "README.md" else page.stem
        assert (site / f"{name}.html").is_file()
        assert name == "index" or f'href="{name}.html"' in index, f"{page.name} is not in the navigation"
    assert not list((root / "docs").glob("reference*")), "what is generated stays out of the checkout"


def test_every_plot_is_in_the_gallery_light_and_dark(site: Path) -> None:
    drawn = set(re.findall(r"_images/\d\d-([a-z-]+)-(light|dark)\.svg", (site / "gallery.html").read_text()))
    plots = {
        name.removeprefix("plot_").replace("_", "-")
        for module in pkgutil.iter_modules(perflab.plots.__path__, "perflab.plots.")
        for name, _ in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction)
        if name.startswith("plot_")
    }
    assert len(plots) > 30
    missing = {name for name in plots if not {(name, "light"), (name, "dark")} <= drawn}
    assert missing == set(), "docs/gallery.md lacks them"
    for name, scheme in drawn:
        (picture,) = (site / "_images").glob(f"[0-9][0-9]-{name}-{scheme}.svg")
        assert picture.stat().st_size > 3000
    alts = re.findall(r'<img alt="([^"]*)" class="only-', (site / "gallery.html").read_text())
    assert len(alts) == 2 * len({p.name.rpartition("-")[0] for p in (site / "_images").glob("*-light.svg")})
    assert all(len(alt) > 20 for alt in alts)


def test_the_reference_has_every_command_option_table_and_fact(site: Path, root: Path) -> None:
    commands = (site / "reference" / "cli.html").read_text()

    def walk(parser: object) -> None:
        for action in parser._actions:  # type: ignore[attr-defined]
            if isinstance(getattr(action, "choices", None), dict):
                for name, inner in action.choices.items():
                    assert f">perflab {name}" in commands or f" {name}<" in commands, name
                    walk(inner)
            for option in action.option_strings:
                assert option == "--help" or option in ("-h", "--version") or option in commands, option

    walk(cli._parser())
    tables = (site / "reference" / "tables.html").read_text()
    assert all(f'id="{name.replace("_", "-")}"' in tables for name in schema.TABLES)
    for file in (root / "perflab" / "knowledge").glob("*.toml"):
        assert (site / "reference" / f"knowledge-{file.stem}.html").is_file()
    keys = (site / "reference" / "json-keys.html").read_text()
    assert "ranks[].phases.{phase}.categories.{category}.exclusive_ns" in keys
    python = (site / "reference" / "api-perflab.tasks.html").read_text()
    assert 'id="perflab.tasks.breakdown.breakdown"' in python


def test_no_page_names_another_host_than_in_a_link(site: Path) -> None:
    """Nothing is loaded from elsewhere: no style, script, font or picture with a scheme."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:link|script|img|iframe|source)\b[^>]*?(?:href|src)="([a-z]+:)?//[^"]*"', text)
        assert loaded == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.browser
@pytest.mark.skipif(chromium() is None, reason="needs chromium or google-chrome on the path")
def test_opened_in_a_browser_it_asks_the_network_for_nothing(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    pages = sorted(page for page in site.rglob("*.html") if page.name != "genindex.html")
    asked: list[str] = []
    errors: list[str] = []
    wide: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        for scheme, width in (("light", 1280), ("dark", 420)):
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
            tab.on("pageerror", lambda error: errors.append(str(error)))
            for page in pages:
                tab.goto(page.as_uri())
                if tab.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
                    wide.append(f"{page.relative_to(site)} at {width}")
                if page.name == "gallery.html":
                    shown = tab.evaluate(
                        "[...document.querySelectorAll('article img')]"
                        ".filter(i => getComputedStyle(i).display != 'none')"
                        ".map(i => [i.src, i.naturalWidth])"
                    )
                    assert shown and all(f"-{scheme}.svg" in src and size > 0 for src, size in shown)
            # Searching works without a server too.
            tab.goto(site.as_uri() + "/search.html?q=straggler")
            tab.wait_for_selector("#search-results li", timeout=20_000)
            tab.close()
        browser.close()
    assert errors == []
    assert wide == []
    outside = [url for url in asked if not unquote(url).startswith((site.as_uri(), unquote(site.as_uri()), "data:"))]
    assert outside == []


def test_the_figures_of_a_page_carry_its_data(site: Path) -> None:
    """A picture is drawn from the recorded runs when the site is built, not copied: its numbers are the command's."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["breakdown", "llama3-8b-eager", "--json"]) == 0
    decode = json.loads(out.getvalue())["ranks"][0]["phases"]["decode"]
    each = decode["window_ns"] / decode["steps"] / 1e6
    alts = " ".join(re.findall(r'<img alt="([^"]*)" class="only-light', (site / "gallery.html").read_text()))
    assert f"{each:.1f} ms in llama3-8b-eager" in alts
