"""Every link of the documentation and of notebooks' text leads to something that is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from doc_blocks import ROOT, pages

FENCED = re.compile(r"^\s*(`{3,}|~{3,}).*?^\s*\1\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`[^`\n]*`")
PAGES = [path for path in pages() if path.is_file()]
NOTEBOOKS = sorted(path for path in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def anchors(text: str) -> set[str]:
    """The anchors that forges give headings: lower case, punctuation gone, blanks as hyphens, repeats numbered."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", FENCED.sub("", text), re.MULTILINE):
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = found.get(slug, -1) + 1
        found[slug] = number
        if number:
            found[f"{slug}-{number}"] = 0
    return set(found)


@cache
def anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text() if path.suffix == ".md" else notebook_text(path))


def notebook_text(path: Path) -> str:
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def links(text: str) -> Iterator[str]:
    without = CODE.sub("", FENCED.sub("", text))
    yield from LINK.findall(without)
    yield from re.findall(r'<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)="([^"]+)"', without)


def wrong(path: Path, text: str) -> Iterator[str]:
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        other = (path.parent / target).resolve() if target else path
        if not other.exists():
            yield f"{link}: there is no {target}"
        elif not other.is_relative_to(ROOT):
            yield f"{link}: leads out of the repository"
        elif anchor and other.suffix in (".md", ".ipynb") and anchor not in anchors_of(other):
            yield f"{link}: no such heading; there are {', '.join(sorted(anchors_of(other)))}"


@pytest.mark.parametrize("path", PAGES + NOTEBOOKS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text() if path.suffix == ".md" else notebook_text(path)
    assert list(wrong(path, text)) == []


def test_a_wrong_link_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "README.md"
    assert len(list(links(page.read_text()))) > 25
    for text in ("[a](no-such.md)", "[a](metrics.md#no-such)", "[a](../../elsewhere.md)", "[a [b] c](gone.md)"):
        assert list(wrong(page, text)), text
    for text in ("[a](metrics.md#load)", "`[a](gone.md)`", "```\n[a](gone.md)\n```\n", "[a](https://example.org/x)"):
        assert list(wrong(page, text)) == [], text


def test_anchors_are_those_of_a_forge() -> None:
    text = "# What can `this` do?\n## A, b: c\n## A, b: c\n```sh\n# no heading\n```\n### [linked](x.md) words_here\n"
    assert anchors(text) == {"what-can-this-do", "a-b-c", "a-b-c-1", "linked-words_here"}
