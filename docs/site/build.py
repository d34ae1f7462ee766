"""The documentation as a site that needs no network: python docs/site/build.py [OUT]

`OUT/source` is what Sphinx reads: the pages of docs/, and what is generated from the code (command line, tables, JSON,
knowledge, figures). `OUT/html/index.html` is the site. A warning is an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
# The pages' own modules lie beside this file, the package in the checkout.
sys.path[:0] = [str(SITE), str(ROOT)]

import gallery  # noqa: E402
import pages  # noqa: E402
import reference  # noqa: E402


def build(out: Path, *, figures: bool = True) -> Path:
    """Write the site below `out`; returns its first page.

    Raises
    ------
    SystemExit
        When Sphinx warns of anything; it has printed of what.
    """
    source, html = out / "source", out / "html"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(html, ignore_errors=True)
    source.mkdir(parents=True)
    pages.stage(source)
    reference.write(source / "reference")
    if figures:
        gallery.draw(source / "gallery.md")
    for name in ("conf.py", "static"):
        if (SITE / name).is_dir():
            shutil.copytree(SITE / name, source / name)
        else:
            shutil.copyfile(SITE / name, source / name)
    if build_main(["-q", "-W", "--keep-going", "-b", "html", "-d", str(out / "doctrees"), str(source), str(html)]):
        raise SystemExit("the documentation has mistakes; they are named above")
    return html / "index.html"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "build" / "docs")
    parser.add_argument("--no-figures", action="store_true", help="do not draw the gallery, which takes longest")
    asked = parser.parse_args()
    print(build(asked.out, figures=not asked.no_figures))
