"""The pages of docs/ as Sphinx reads them: copied, their links led to where things lie in the site, put in order.

On a forge docs/README.md is the table of contents; here the same list becomes the navigation. A page that it does not
name yet is still in the site, under the heading of how-to pages.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONTENTS = DOCS / "README.md"
UNLISTED_UNDER = "How to"

# What lies outside docs/ and is a page of the site.
ELSEWHERE = {"README.md": "index.md", "data/README.md": "data.md", "benchmarks/README.md": "benchmarks.md"}
# Code and data whose page is generated.
GENERATED = {
    "perflab/schema.py": "reference/tables.md",
    "perflab/cli": "reference/cli.md",
    "perflab/knowledge": "reference/knowledge.md",
    "perflab/tasks": "reference/json-keys.md",
    "perflab": "reference/api.md",
}

FENCE = re.compile(r"^(\s*)(```|~~~)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def stage(source: Path) -> None:
    """Copy every page and what it shows below `source`."""
    for path in committed_pages():
        target = source / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = with_links(path.read_text(), lambda link, path=path: _moved(link, path, source))
        if path == CONTENTS:
            text += navigation(text)
        elif path.name == "README.md" and path.is_relative_to(DOCS):
            text += _tree("", [other.stem for other in sorted(path.parent.glob("*.md")) if other != path])
        target.write_text(text)


def committed_pages() -> list[Path]:
    """Every page that is written by hand."""
    inside = [p for p in sorted(DOCS.rglob("*.md")) if "site" not in p.relative_to(DOCS).parts]
    return inside + [ROOT / name for name in ELSEWHERE if name != "README.md" and (ROOT / name).is_file()]


def place(path: Path) -> str:
    """Where a file of the repository lies in the site; empty where it is no page."""
    if path == CONTENTS:
        return "index.md"
    if path.suffix == ".md" and path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT).as_posix()
    if inside.startswith("perflab/knowledge/") and path.suffix == ".toml":
        return f"reference/knowledge-{path.stem}.md"
    return ELSEWHERE.get(inside) or GENERATED.get(inside, "")


def with_links(text: str, change: Callable[[str], str | None]) -> str:
    """The text with the target of every link outside code changed; None leaves the words and takes the link away."""

    def one(match: re.Match[str]) -> str:
        target = change(match[3])
        return match[2] if target is None else f"{match[1]}[{match[2]}]({target})"

    lines, inside = [], ""
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line)
        if fence and inside in ("", fence[2]):
            inside = "" if inside else fence[2]
        lines.append(line if inside or fence else LINK.sub(one, line))
    return "".join(lines)


def _moved(link: str, page: Path, source: Path) -> str | None:
    target, _, anchor = link.partition("#")
    if not target or "://" in link:
        return link
    path = (page.parent / target).resolve()
    here = (source / place(page)).parent
    found = place(path)
    if not found and path.is_dir():
        return None
    if not found:
        found = (Path("files") / path.relative_to(ROOT)).as_posix()
        (source / found).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, source / found)
    return relpath(source / found, here) + (f"#{anchor}" if anchor else "")


def navigation(text: str) -> str:
    """The headings of the contents, each with the pages its list links to, as hidden trees."""
    trees: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip()
            trees[heading] = []
        elif heading and line.startswith("- "):
            already = {page for group in trees.values() for _, page in group}
            trees[heading] += [(m[2], m[3]) for m in LINK.finditer(line) if m[3] not in already][:1]
    listed = {page for group in trees.values() for _, page in group}
    for path in committed_pages():
        page = place(path)
        if page not in listed and page != "index.md" and not page.startswith("decisions/0"):
            trees[UNLISTED_UNDER].append(("", page))
    return "".join(_tree(caption, [_entry(*one) for one in group]) for caption, group in trees.items())


def _entry(words: str, page: str) -> str:
    name = page.removesuffix(".md")
    return f"{words} <{name}>" if words else name


def _tree(caption: str, pages: list[str]) -> str:
    return "\n".join(
        ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", ""]
    )
